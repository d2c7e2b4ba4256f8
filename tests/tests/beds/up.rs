//! The playground as a person uses it: `sandbox up` in one terminal; in another its exports,
//! kubectl, helm, `tenon`, and the verbs of `sandbox`; at the end Ctrl-C.

use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::Duration;

use serde_json::Value;
use tenon_aws_double::progress::Progress;
use tenon_bed::programs::TenonPrograms;
use tenon_bed::wait::{eventually, must};
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStderr, Command};

const LIMIT: Duration = Duration::from_secs(90);

/// A running `sandbox up`, and a shell beside it.
struct Playground {
    sandbox: Child,
    said: Lines<BufReader<ChildStderr>>,
    exports: PathBuf,
    home: tempfile::TempDir,
}

impl Playground {
    /// Starts it and waits until it says what to load.
    async fn start(args: &[&str]) -> Self {
        let programs = must(TenonPrograms::provide(&Progress::hidden()).await);
        let mut sandbox = Command::new(programs.sandbox)
            .arg("up")
            .args(args)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("the sandbox starts");
        let mut said = BufReader::new(sandbox.stderr.take().expect("piped")).lines();
        let mut before = Vec::new();
        while let Some(line) = must(said.next_line().await) {
            if let Some((_, exports)) = line.split_once("source ") {
                let (exports, home) = (exports.into(), must(tempfile::tempdir()));
                return Self { sandbox, said, exports, home };
            }
            before.push(line);
        }
        panic!("`sandbox up` ended before it was ready:\n{}", before.join("\n"));
    }

    /// Runs a line in a shell that has nothing but the exports and the system's own programs.
    async fn run(&self, line: &str) -> Output {
        let script = format!(". '{}'\n{line}", self.exports.display());
        let shell = Command::new("/bin/sh")
            .args(["-c", &script])
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("HOME", self.home.path())
            .current_dir(self.home.path())
            .stdin(Stdio::null())
            .output();
        must(shell.await)
    }

    /// What a line prints that must succeed.
    async fn says(&self, line: &str) -> String {
        let output = self.run(line).await;
        let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
        assert!(output.status.success(), "`{line}` ends with {}\n{stdout}{stderr}", output.status);
        stdout
    }

    async fn json(&self, line: &str) -> Value {
        must(serde_json::from_str(&self.says(line).await))
    }

    /// The ids of the instances that Tenon launched and that run.
    async fn instances(&self) -> Vec<String> {
        let all = self.json("sandbox instances -o json").await;
        let running = |it: &&Value| it["state"] == "running";
        let id = |it: &Value| it["id"].as_str().unwrap_or_default().to_owned();
        all.as_array().into_iter().flatten().filter(running).map(id).collect()
    }

    /// Ctrl-C; everything must go.
    async fn stop(mut self) {
        let dir = self.exports.parent().map(Path::to_path_buf).expect("the bed's directory");
        let pid = self.sandbox.id().expect("it runs").to_string();
        assert!(must(Command::new("kill").args(["-INT", &pid]).status().await).success());
        let mut words = Vec::new();
        while let Some(line) = must(self.said.next_line().await) {
            words.push(line);
        }
        let status = must(self.sandbox.wait().await);
        assert!(status.success(), "{status}:\n{}", words.join("\n"));
        assert!(!dir.exists(), "{} is left", dir.display());
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_person_plays_with_tenon_and_with_every_verb() {
    let up = Playground::start(&[]).await;
    assert!(up.says("kubectl get nodes -o name").await.contains("node/ip-10-0-1-10."));
    assert!(up.json("helm list --all-namespaces -o json").await.is_array());
    up.says("tenon status").await;

    // Pods of any image get machines and run.
    up.says("kubectl create deployment web --image=registry.example/web:1 --replicas=3").await;
    up.says("kubectl rollout status deployment/web --timeout=90s").await;
    let first = up.instances().await;
    assert!(!first.is_empty(), "pods run on no instance");
    let listed = up.says("sandbox instances").await;
    assert!(first.iter().all(|id| listed.contains(id)), "{listed}");
    assert!(up.says("sandbox counts").await.contains("ec2:CreateFleet"));
    assert!(up.says("sandbox calls ec2:CreateFleet").await.contains("assumed-role/"));
    up.says("sandbox calls --clear").await;

    the_verbs_set_faults_and_end_them(&up).await;

    // What is taken back is replaced.
    let id = &first[0];
    up.says("sandbox boot --delay 0.2 --ready 0.2").await;
    up.says("sandbox price m7i.large 0.04 --capacity spot").await;
    for verb in ["rebalance", "retire", "interrupt --notice 1"] {
        let outcome = up.says(&format!("sandbox {verb} {id}")).await;
        assert!(outcome.contains(id.as_str()), "{verb}: {outcome}");
    }
    replaced(&up, id).await;
    for verb in ["terminate", "stop"] {
        let id = up.instances().await.pop().expect("one runs");
        up.says(&format!("sandbox {verb} {id}")).await;
        let another = async || {
            let running = up.instances().await;
            Ok(!running.is_empty() && !running.contains(&id))
        };
        must(eventually(&format!("another instance runs instead of {id}"), LIMIT, another).await);
    }
    up.says("sandbox problems").await;

    // A verb that can't work says why.
    let unknown = up.run("sandbox interrupt i-0000").await;
    assert!(!unknown.status.success() && text(&unknown.stderr).contains("i-0000"));
    up.stop().await;
}

async fn the_verbs_set_faults_and_end_them(up: &Playground) {
    for (verb, kind) in [
        ("ice 'x9*' --capacity spot --zone eu-central-1a", "ice-"),
        ("throttle iam:ListUsers --per-second 1", "fault-"),
        ("fail 'glacier:*' --times 5 --code Broken", "fault-"),
        ("latency iam:ListUsers --seconds 0.1", "fault-"),
        ("drop iam:ListGroups --answer-only", "fault-"),
        ("boot --fault late --after 1 --share 0", ""),
    ] {
        let answer = up.says(&format!("sandbox {verb}")).await;
        assert!(answer.contains(kind), "{verb}: {answer}");
    }
    let faults = up.json("sandbox faults -o json").await;
    assert_eq!(faults["shortages"].as_object().map(serde_json::Map::len), Some(1), "{faults}");
    assert_eq!(faults["faults"].as_object().map(serde_json::Map::len), Some(4), "{faults}");
    let id = faults["faults"].as_object().and_then(|all| all.keys().next()).expect("four");
    up.says(&format!("sandbox heal {id}")).await;
    up.says("sandbox heal").await;
    let faults = up.json("sandbox faults -o json").await;
    assert_eq!(faults, serde_json::json!({ "faults": {}, "shortages": {} }));
}

/// Waits until the instance and its Node are gone and all pods run on Nodes that are there.
async fn replaced(up: &Playground, id: &str) {
    let look = async || {
        if up.instances().await.iter().any(|it| it == id) {
            return Err("it runs".into());
        }
        let nodes = up.json("kubectl get nodes -o json").await;
        let nodes = nodes["items"].as_array().cloned().unwrap_or_default();
        let of_it = |node: &Value| node["spec"]["providerID"].to_string().contains(id);
        if nodes.iter().any(of_it) {
            return Err("its Node is there".into());
        }
        let pods = up.json("kubectl get pods --selector app=web -o json").await;
        let pods = pods["items"].as_array().cloned().unwrap_or_default();
        let runs = |pod: &&Value| {
            let on = &pod["spec"]["nodeName"];
            pod["status"]["phase"] == "Running"
                && pod["metadata"]["deletionTimestamp"].is_null()
                && nodes.iter().any(|node| node["metadata"]["name"] == *on)
        };
        match pods.iter().filter(runs).count() {
            3 => Ok(true),
            n => Err(format!("{n} of 3 pods run").into()),
        }
    };
    must(eventually(&format!("{id} is replaced, and the pods run"), LIMIT, look).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bare_playground_has_no_trace_of_tenon_until_somebody_installs_it() {
    let up = Playground::start(&["--bare", "--cluster", "other", "--region", "us-west-2"]).await;
    assert_eq!(up.says("echo $CLUSTER_NAME $AWS_REGION").await, "other us-west-2\n");
    assert!(up.says("kubectl get nodes -o name").await.contains("us-west-2.compute.internal"));
    assert_eq!(up.says("kubectl get crds -o name").await, "");
    assert_eq!(up.json("helm list --all-namespaces -o json").await, serde_json::json!([]));
    assert_eq!(up.json("sandbox instances -o json").await, serde_json::json!([]));

    // Who installs Tenon there has an operator that runs.
    let file = up.home.path().join("tenon.yaml");
    let settings = serde_json::json!({
        "apiVersion": "tenon.sh/v1alpha1", "kind": "Installation",
        "cluster": { "name": "other", "region": "us-west-2" },
    });
    must(std::fs::write(&file, settings.to_string()));
    up.says(&format!("tenon install -f {} --yes --timeout 2m", file.display())).await;
    up.says("kubectl create deployment web --image=registry.example/web:1 --replicas=1").await;
    up.says("kubectl rollout status deployment/web --timeout=90s").await;
    up.stop().await;
}
