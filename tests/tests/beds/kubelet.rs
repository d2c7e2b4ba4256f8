//! The kubelet of the bed's system nodes, with a small program that stands for the operator's
//! image.

use std::path::{Path, PathBuf};
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Pod, ServiceAccount};
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use tenon_aws_double::process::Signal;
use tenon_bed::api_faults::{Fault, Refusal, Requests};
use tenon_bed::bed::{Bed, BedConfig, Parts};
use tenon_bed::kubelet::{Image, Running};
use tenon_bed::wait::eventually;

/// Serves what it sees on its address, tells the API server who it is, and ends politely.
const STAND_IN: &str = r#"
import http.server, json, os, signal, ssl, sys, urllib.request
account = "/var/run/secrets/kubernetes.io/serviceaccount/"
if "KUBECONFIG" in os.environ and not os.path.exists(account):
    account = os.path.dirname(json.load(open(os.environ["KUBECONFIG"]))["users"][0]["user"]["tokenFile"]) + "/"
alive = True
def who():
    url = "https://%s:%s/apis/authentication.k8s.io/v1/selfsubjectreviews" % (
        os.environ["KUBERNETES_SERVICE_HOST"], os.environ["KUBERNETES_SERVICE_PORT"])
    body = json.dumps({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}).encode()
    headers = {"Authorization": "Bearer " + open(account + "token").read(), "Content-Type": "application/json"}
    context = ssl.create_default_context(cafile=account + "ca.crt")
    answer = urllib.request.urlopen(urllib.request.Request(url, body, headers), context=context)
    return json.load(answer)["status"]["userInfo"]["username"]
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        global alive
        if self.path == "/die":
            alive = False
        code = 500 if self.path == "/healthz" and not alive else 200
        self.send_response(code)
        self.end_headers()
        if self.path == "/seen":
            seen = {"env": dict(os.environ), "args": sys.argv[1:], "who": who(), "host": os.uname().nodename}
            self.wfile.write(json.dumps(seen).encode())
    def log_message(self, *args):
        pass
def end(*_):
    print("asked to end", flush=True)
    os._exit(0)
signal.signal(signal.SIGTERM, end)
print("started", flush=True)
http.server.ThreadingHTTPServer((os.environ["BIND_ADDRESS"], 8081), Handler).serve_forever()
"#;

fn stand_in(dir: &Path) -> PathBuf {
    use std::os::unix::fs::PermissionsExt;
    let python = std::process::Command::new("python3")
        .args(["-c", "import sys; print(sys.executable)"])
        .output();
    let python = String::from_utf8(python.expect("the bed needs Python").stdout).expect("a path");
    let path = dir.join("stand-in");
    std::fs::write(&path, format!("#!{}\n{STAND_IN}", python.trim())).expect("written");
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).expect("executable");
    path
}

fn pod(name: &str, image: &str, env: &Value) -> Pod {
    let probe =
        |path: &str| json!({ "httpGet": { "path": path, "port": "health" }, "periodSeconds": 1 });
    serde_json::from_value(json!({
        "metadata": { "name": name, "labels": { "app": "stand-in" } },
        "spec": {
            "serviceAccountName": "stand-in",
            "terminationGracePeriodSeconds": 20,
            "tolerations": [{ "key": "CriticalAddonsOnly", "operator": "Exists" }],
            "containers": [{
                "name": "controller", "image": image, "env": env, "args": ["--name=$(POD_NAME)"],
                "ports": [{ "name": "health", "containerPort": 8081 }],
                "livenessProbe": probe("/healthz"), "readinessProbe": probe("/readyz"),
                "resources": { "limits": { "memory": "256Mi" } },
            }],
        },
    }))
    .expect("a pod")
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions.is_some_and(|all| all.iter().any(|it| it.type_ == "Ready" && it.status == "True"))
}

fn restarts(pod: &Pod) -> i32 {
    let statuses = pod.status.as_ref().and_then(|status| status.container_statuses.as_ref());
    statuses.map_or(0, |all| all.iter().map(|it| it.restart_count).sum())
}

async fn get(address: &str, path: &str) -> String {
    use http_body_util::{BodyExt, Empty};
    use hyper_util::client::legacy::Client;
    use hyper_util::rt::TokioExecutor;
    let client = Client::builder(TokioExecutor::new()).build_http::<Empty<hyper::body::Bytes>>();
    let uri = format!("http://{address}:8081{path}").parse().expect("a URI");
    let answer =
        client.get(uri).await.expect("it serves").into_body().collect().await.expect("a body");
    String::from_utf8(answer.to_bytes().to_vec()).expect("text")
}

struct Fixture {
    bed: Bed,
    client: Client,
    pods: Api<Pod>,
}

const LIMIT: Duration = Duration::from_mins(1);

impl Fixture {
    async fn start(dir: &Path) -> Self {
        let images = vec![Image { name: "tenon-operator".to_owned(), program: stand_in(dir) }];
        let parts = Parts { kubelet: true, ..Parts::control_plane_only() };
        let bed = Bed::start(BedConfig { images, parts, api_faults: true, ..BedConfig::default() })
            .await
            .expect("the bed starts");
        let client = bed.client();
        let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), "default");
        let account =
            serde_json::from_value(json!({ "metadata": { "name": "stand-in" } })).expect("valid");
        accounts.create(&PostParams::default(), &account).await.expect("created");
        Self { bed, pods: Api::namespaced(client.clone(), "default"), client }
    }

    async fn create(&self, pod: &Pod) {
        self.pods.create(&PostParams::default(), pod).await.expect("created");
    }

    async fn ready(&self, name: &str, with_restarts: i32) -> Pod {
        eventually(&format!("{name} is ready after {with_restarts} restarts"), LIMIT, async || {
            let pod = self.pods.get(name).await?;
            Ok(is_ready(&pod) && restarts(&pod) == with_restarts)
        })
        .await
        .expect("ready");
        self.pods.get(name).await.expect("it exists")
    }

    fn process(&self, pod: &str) -> Running {
        let running = self.bed.kubelet().expect("it has one").running();
        running.into_iter().find(|running| running.pod == pod).expect("it runs as a process")
    }

    async fn gone(&self, name: &str) {
        eventually(&format!("{name} is gone"), LIMIT, async || {
            Ok(self.pods.get_opt(name).await?.is_none())
        })
        .await
        .expect("gone");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_of_our_image_run_as_processes_and_live_as_in_a_cluster() {
    let dir = tempfile::tempdir().expect("temp dir");
    let bed = Fixture::start(dir.path()).await;
    let image = "registry.example/tenon/tenon-operator:test";
    let env = json!([
        { "name": "POD_NAME", "valueFrom": { "fieldRef": { "fieldPath": "metadata.name" } } },
        { "name": "POD_IP", "valueFrom": { "fieldRef": { "fieldPath": "status.podIP" } } },
        { "name": "MEMORY", "valueFrom": { "resourceFieldRef": { "resource": "limits.memory", "divisor": "1Mi" } } },
        { "name": "SETTING", "valueFrom": { "configMapKeyRef": { "name": "settings", "key": "level" } } },
    ]);

    // Two pods with the same port on one machine, whose configuration is not complete yet.
    for name in ["one", "two"] {
        bed.create(&pod(name, image, &env)).await;
    }
    eventually("both say what is missing", LIMIT, async || {
        let pods = bed.pods.list(&ListParams::default()).await?;
        let says = |pod: &Pod| {
            serde_json::to_string(&pod.status)
                .is_ok_and(|it| it.contains("configmap \\\"settings\\\" not found"))
        };
        Ok(pods.items.iter().all(says))
    })
    .await
    .expect("said");
    let maps: Api<ConfigMap> = Api::namespaced(bed.client.clone(), "default");
    let map = json!({ "metadata": { "name": "settings" }, "data": { "level": "loud" } });
    maps.create(&PostParams::default(), &serde_json::from_value(map).expect("valid"))
        .await
        .expect("created");
    let one = bed.ready("one", 0).await;
    let two = bed.ready("two", 0).await;
    let address = |pod: &Pod| {
        pod.status.as_ref().and_then(|status| status.pod_ip.clone()).expect("an address")
    };
    assert_ne!(address(&one), address(&two));

    // What the process sees.
    let seen: Value = serde_json::from_str(&get(&address(&one), "/seen").await).expect("JSON");
    assert_eq!(seen["env"]["POD_IP"], json!(address(&one)));
    assert_eq!(seen["env"]["MEMORY"], "256");
    assert_eq!(seen["env"]["SETTING"], "loud");
    assert_eq!(seen["args"], json!(["--name=one"]));
    assert_eq!(seen["who"], "system:serviceaccount:default:stand-in");

    // Pods speak to the API server through the faults of the bed, as themselves, and nobody else
    // does.
    let faults = bed.bed.api_faults().expect("the bed has them");
    let asked = |requests: &Requests| faults.count(requests);
    let reviews = Requests::of("create", "selfsubjectreviews");
    assert_eq!((asked(&reviews), asked(&Requests::any())), (1, 1));
    let refusal = Refusal::denied_by_webhook("policy.example", "not today");
    let rule = faults.add(reviews.clone(), Fault::Refuse(refusal));
    let seen = get(&address(&one), "/seen").await;
    assert_eq!((seen.as_str(), rule.met()), ("", 1), "its question is refused");
    rule.lift();
    assert!(get(&address(&one), "/seen").await.contains("stand-in"));

    // kill -9, then a liveness probe that fails: restarted, and counted.
    bed.process("one").signal(Signal::Kill);
    bed.ready("one", 1).await;
    get(&address(&one), "/die").await;
    bed.ready("one", 2).await;
    bed.ready("two", 0).await;

    // SIGTERM, and the pod goes when the process has gone, long before the grace period is over.
    let (log, pid) = (bed.process("two").log.clone(), bed.process("two").pid());
    bed.pods.delete("two", &DeleteParams::default()).await.expect("deleted");
    bed.gone("two").await;
    assert!(std::fs::read_to_string(log).expect("the log").contains("asked to end"));
    assert!(!Path::new(&format!("/proc/{pid}")).exists());

    // A pod of another image is played.
    let mut other = pod("other", "registry.example/other:1", &json!([]));
    other.metadata.labels = None;
    bed.create(&other).await;
    let other = bed.ready("other", 0).await;
    assert!(
        bed.bed
            .kubelet()
            .expect("it has one")
            .running()
            .iter()
            .all(|it| it.pod != other.name_any())
    );
    bed.pods.delete("other", &DeleteParams::default()).await.expect("deleted");
    bed.gone("other").await;

    let pid = bed.process("one").pid();
    bed.bed.stop().await.expect("the bed stops");
    assert!(!Path::new(&format!("/proc/{pid}")).exists(), "the process ends with the bed");
}
