//! `tenon simulate` and `tenon explain` as users run them: manifests in, a report out. Nothing here
//! needs a cluster.

use std::path::{Path, PathBuf};

use assert_cmd::Command;

const NOW: &str = "2026-01-01T12:00:00Z";

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("simulate/tests/fixtures").join(name)
}

/// The program in a folder with copies of the fixtures, so that paths in messages are the same
/// everywhere.
struct Bench {
    directory: tempfile::TempDir,
}

impl Bench {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        for name in ["catalog.json", "pool.yaml", "workloads.yaml", "cluster.yaml"] {
            std::fs::copy(fixture(name), directory.path().join(name)).expect("copied");
        }
        Self { directory }
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.directory.path().join(name), text).expect("written");
    }

    fn command(&self, args: &str) -> Command {
        let mut command = Command::new(assert_cmd::cargo::cargo_bin!("tenon"));
        command
            .env_clear()
            .env("HOME", self.directory.path())
            .env("KUBECONFIG", self.directory.path().join("none"))
            .current_dir(self.directory.path())
            .args(args.split_whitespace());
        if args.starts_with("simulate") || args.starts_with("explain") {
            command.args(["--now", NOW]);
        }
        command
    }

    /// Exit code, stdout and stderr.
    fn screen(&self, args: &str) -> String {
        let output = self.command(args).output().expect("the program runs");
        let text = format!(
            "exit code {}\n--- stdout\n{}--- stderr\n{}",
            output.status.code().map_or_else(|| "none".to_owned(), |code| code.to_string()),
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
        text.replace(&*self.directory.path().to_string_lossy(), "[DIRECTORY]")
    }

    fn json(&self, args: &str) -> serde_json::Value {
        let output = self.command(&format!("{args} -o json")).output().expect("the program runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).expect("JSON on stdout")
    }
}

/// Leaves out what differs from run to run.
fn settings() -> insta::Settings {
    let mut settings = insta::Settings::clone_current();
    settings.add_filter(r"in \d+\.\d+ s", "in [TIME] s");
    settings
}

macro_rules! assert_screen {
    ($name:literal, $bench:expr, $args:expr) => {
        settings().bind(|| insta::assert_snapshot!($name, $bench.screen($args)));
    };
}

#[test]
fn a_chart_is_planned_as_it_is_rendered() {
    let bench = Bench::new();
    assert_screen!(
        "chart",
        bench,
        "simulate -f pool.yaml -f workloads.yaml --catalog catalog.json"
    );
}

#[test]
fn a_saved_cluster_is_consolidated() {
    let bench = Bench::new();
    assert_screen!(
        "consolidation",
        bench,
        "simulate -f pool.yaml -f cluster.yaml --catalog catalog.json --what disrupt"
    );
}

#[test]
fn yaml_says_the_same_as_json() {
    let bench = Bench::new();
    let args = "simulate -f pool.yaml -f workloads.yaml --catalog catalog.json";
    let mut json = bench.json(args);
    let output = bench.command(&format!("{args} -o yaml")).output().expect("the program runs");
    let mut yaml: serde_json::Value =
        serde_saphyr::from_slice(&output.stdout).expect("YAML on stdout");
    for outcome in [&mut json, &mut yaml] {
        outcome["totals"]["planSeconds"] = 0.into();
    }
    assert_eq!(json, yaml);
}

#[test]
fn a_saved_snapshot_gives_the_same_plan() {
    let bench = Bench::new();
    let mut first = bench.json(
        "simulate -f pool.yaml -f cluster.yaml -f workloads.yaml --catalog catalog.json --save snapshot.json",
    );
    let mut again = bench.json("simulate -f snapshot.json");
    for outcome in [&mut first, &mut again] {
        outcome["totals"]["planSeconds"] = 0.into();
        outcome["skippedKinds"] = serde_json::Value::Null;
    }
    assert_eq!(first, again);
    assert_screen!("snapshot_alone", bench, "simulate -f snapshot.json --catalog catalog.json");
}

/// The fixture's NodePool, of an EC2NodeClass.
fn ec2_pool() -> String {
    let text = std::fs::read_to_string(fixture("pool.yaml")).expect("read");
    let pool = text.split("---").next().expect("the NodePool");
    pool.replace("group: karpenter.kwok.sh", "group: karpenter.k8s.aws")
        .replace("kind: KWOKNodeClass", "kind: EC2NodeClass")
}

#[test]
fn the_built_in_catalog_is_named_and_so_is_what_it_assumes() {
    let bench = Bench::new();
    bench.write("ec2.yaml", &ec2_pool());
    assert_screen!("built_in_catalog", bench, "simulate -f ec2.yaml");
}

#[test]
fn each_problem_names_file_document_path_and_what_is_allowed() {
    let bench = Bench::new();
    bench.write(
        "wrong.yaml",
        "apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: web\n  namespace: shop\nspec:\n  replicas: three\n---\n\
         apiVersion: v1\nitems:\n- apiVersion: v1\n  kind: Pod\n  metadata: {name: ok}\n- apiVersion: v1\n  kind: Pod\n  metadata:\n    name: a\n  spec:\n    containers:\n    - resources:\n        requests:\n          cpu: lots\nkind: List\n---\n\
         kind: Pod\nmetadata: {name: b}\n---\napiVersion: v1\nkind: Pod\nmetadata: [\n",
    );
    bench.write(
        "wrong.json",
        "{\"apiVersion\": \"v1\", \"kind\": \"Pod\",\n \"metadata\": {\"name\" \"c\"}}",
    );
    assert_screen!("wrong_manifests", bench, "simulate -f wrong.yaml -f wrong.json");
}

#[test]
fn a_wrong_catalog_says_which_entry_and_what_is_allowed() {
    let bench = Bench::new();
    let text = std::fs::read_to_string(fixture("catalog.json")).expect("read");
    bench.write("catalog.json", &text.replacen("\"spot\"", "\"cheap\"", 1));
    assert_screen!("wrong_catalog", bench, "simulate -f pool.yaml --catalog catalog.json");
}

#[test]
fn without_input_there_is_nothing_to_plan_on() {
    let bench = Bench::new();
    assert_screen!("no_input", bench, "simulate");
    assert_screen!("no_file", bench, "simulate -f none.yaml");
    assert_screen!("no_cluster", bench, "simulate --live");
}

/// A CapacityBuffer as people write it.
fn buffer(name: &str, spec: &str) -> String {
    format!(
        "apiVersion: autoscaling.x-k8s.io/v1beta1\nkind: CapacityBuffer\nmetadata: {{ name: {name} }}\nspec: {spec}\n---\n"
    )
}

#[test]
fn machines_keep_room_for_what_capacity_buffers_stand_for() {
    let bench = Bench::new();
    let text = buffer(
        "web",
        "{ scalableRef: { apiGroup: apps, kind: Deployment, name: web }, percentage: 100 }",
    ) + &buffer("unit", "{ podTemplateRef: { name: huge }, replicas: 1 }")
        + &buffer("lost", "{ podTemplateRef: { name: nowhere }, replicas: 1 }")
        + "apiVersion: v1\nkind: PodTemplate\nmetadata: { name: huge }\ntemplate:\n  spec: { containers: [{ name: main, resources: { requests: { cpu: \"900\" } } }] }\n";
    bench.write("buffers.yaml", &text);
    let args = "simulate -f pool.yaml -f workloads.yaml -f buffers.yaml --catalog catalog.json";
    let outcome = bench.json(args);
    let buffers = outcome["buffers"].as_array().expect("a list");
    let counts = |index: usize| {
        ["pods", "onNodes", "onLaunches", "missing"].map(|key| buffers[index][key].as_u64())
    };
    assert_eq!(buffers.len(), 2, "one refers to nothing");
    assert_eq!((&buffers[0]["name"], counts(0)), (&"unit".into(), [1, 0, 0, 1].map(Some)));
    assert_eq!(buffers[0]["reasons"][0]["nodePool"], "default");
    assert_eq!((&buffers[1]["name"], counts(1)), (&"web".into(), [3, 0, 3, 0].map(Some)));
    let launches = outcome["launches"].as_array().expect("a list");
    let room: u64 = launches.iter().filter_map(|launch| launch["bufferPods"].as_u64()).sum();
    assert_eq!(room, 3);
    assert_eq!(outcome["totals"]["pods"], 4, "pods to come are not pending");
    let waiting = outcome["unschedulable"].as_array().expect("a list");
    assert!(waiting.iter().all(|pod| !pod["name"].to_string().contains("buffer")), "{waiting:?}");
    assert_screen!("capacity_buffers", bench, args);
}

#[test]
fn no_room_is_kept_for_pods_that_a_quota_forbids() {
    let bench = Bench::new();
    let text = buffer("unit", "{ podTemplateRef: { name: small }, replicas: 5 }")
        + "apiVersion: v1\nkind: PodTemplate\nmetadata: { name: small }\ntemplate:\n  spec: { containers: [{ name: main, resources: { requests: { cpu: 100m } } }] }\n---\n"
        + "apiVersion: v1\nkind: ResourceQuota\nmetadata: { name: compute }\nstatus: { hard: { cpu: \"1\" }, used: { cpu: 750m } }\n";
    bench.write("buffers.yaml", &text);
    let args = "simulate -f pool.yaml -f buffers.yaml --catalog catalog.json";
    let outcome = bench.json(args);
    assert_eq!(outcome["buffers"][0]["pods"], 2);
    let screen = bench.screen(args);
    let warning = "CapacityBuffer default/unit reserves room for 2 of 5 pods: ResourceQuota compute allows no more";
    assert!(screen.contains(warning), "{screen}");
}

#[test]
fn plans_go_by_the_options_of_the_operator() {
    let bench = Bench::new();
    let args = "simulate -f pool.yaml -f workloads.yaml --catalog catalog.json";
    let pods = |flags: &str| {
        let outcome = bench.json(&format!("{args} {flags}"));
        let launches = outcome["launches"].as_array().expect("a list").clone();
        let counts = launches.iter().map(|launch| launch["pods"].as_array().map_or(0, Vec::len));
        counts.max().expect("there are launches")
    };
    assert_eq!((pods(""), pods("--largest-share=1")), (3, 1));
    assert_screen!("wrong_gate", bench, &format!("{args} --feature-gates=NodeOverlay"));
}

#[test]
fn pods_are_spread_as_the_configuration_of_the_scheduler_says() {
    let bench = Bench::new();
    // What kube-scheduler reads, as it is.
    let config = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nprofiles:\n- pluginConfig:\n  - name: PodTopologySpread\n    args:\n      defaultingType: List\n      defaultConstraints:\n      - { maxSkew: 1, topologyKey: topology.kubernetes.io/zone, whenUnsatisfiable: DoNotSchedule }\n";
    let launches = |workloads: &str, config: &str| {
        let args = format!("simulate -f pool.yaml -f {workloads} --catalog catalog.json -o json");
        let mut command = bench.command(&args);
        let output =
            command.args(["--scheduler-config", config]).output().expect("the program runs");
        let outcome: serde_json::Value =
            serde_json::from_slice(&output.stdout).expect("JSON on stdout");
        let launches = outcome["launches"].as_array().expect("a list").clone();
        let pods = launches.iter().map(|launch| launch["pods"].as_array().map_or(0, Vec::len));
        pods.collect::<Vec<_>>()
    };
    assert_eq!(launches("workloads.yaml", ""), [3]);
    let mut spread = launches("workloads.yaml", config);
    spread.sort_unstable();
    assert_eq!(spread, [1, 2], "one zone has one pod more than the other");
    let bare = "apiVersion: v1\nkind: Pod\nmetadata: { name: NAME, labels: { app: web } }\nspec: { containers: [{ name: main }] }\n---\n";
    bench.write("bare.yaml", &["a", "b"].map(|name| bare.replace("NAME", name)).concat());
    assert_eq!(launches("bare.yaml", config), [2], "nothing says that they belong together");
    let args = "simulate -f pool.yaml -f workloads.yaml --catalog catalog.json";
    assert_screen!(
        "wrong_scheduler_config",
        bench,
        &format!("{args} --scheduler-config={{spread:1}}")
    );
}

#[test]
fn a_pod_that_stays_pending_is_told_why() {
    let bench = Bench::new();
    let input = "-f pool.yaml -f workloads.yaml --catalog catalog.json -q";
    assert_screen!("explain_pending_pod", bench, &format!("explain pod huge {input}"));
    let answer = bench.json(&format!("explain pod huge {input}"));
    assert_eq!(answer["reasons"][0]["reason"]["resources"]["requested"], 64_000);
    assert_eq!(answer["instanceTypes"][0]["matchingPod"], 2);
    assert_eq!(answer["instanceTypes"][0]["largeEnough"], 0);
    assert_screen!("explain_launched_pod", bench, &format!("explain pod web-0 {input}"));
}

#[test]
fn nodes_claims_and_pools_are_explained() {
    let bench = Bench::new();
    let input = "-f pool.yaml -f cluster.yaml --catalog catalog.json -q";
    assert_screen!("explain_node", bench, &format!("explain node node-a {input}"));
    assert_screen!("explain_nodeclaim", bench, &format!("explain nodeclaim default-aaaaa {input}"));
    assert_screen!("explain_nodepool", bench, &format!("explain nodepool default {input}"));
    assert_screen!("explain_running_pod", bench, &format!("explain pod lonely -n team {input}"));
}

#[test]
fn what_is_not_there_can_not_be_explained() {
    let bench = Bench::new();
    let input = "-f pool.yaml -f cluster.yaml --catalog catalog.json -q";
    assert_screen!("no_such_pod", bench, &format!("explain pod lonely {input}"));
    assert_screen!("no_such_pool", bench, &format!("explain nodepool defualt {input}"));
    assert_screen!("no_such_node", bench, &format!("explain node default-a {input}"));
}

#[test]
fn drained_nodes_and_what_a_drain_would_lose_or_wait_for_are_told() {
    let bench = Bench::new();
    let more = "---\napiVersion: v1\nkind: Pod\nmetadata: { name: bare, namespace: team }\nspec:\n  \
                nodeName: node-a\n  containers: [{ name: main }]\nstatus: { phase: Running }\n---\n\
                apiVersion: policy/v1\nkind: PodDisruptionBudget\nmetadata: { name: all, namespace: \
                team }\nspec: { minAvailable: 100%, selector: {} }\n";
    bench.write("more.yaml", more);
    let input = "simulate -f pool.yaml -f cluster.yaml -f more.yaml --catalog catalog.json";
    assert_screen!("drained", bench, &format!("{input} --drain kubernetes.io/hostname=node-a"));
    assert_screen!("drains_nothing", bench, &format!("{input} --drain team=x"));
    assert_screen!("drains_what", bench, &format!("{input} --drain a=b=c"));
    std::fs::write(bench.directory.path().join("s.json"), "").expect("written");
    let save = format!("{input} --save s.json");
    assert!(bench.screen(&save).starts_with("exit code 0"));
    assert_screen!("drains_no_snapshot", bench, "simulate -f s.json --drain a=b");
}

#[test]
fn a_change_to_node_pools_is_compared_with_what_is() {
    let bench = Bench::new();
    let pool = std::fs::read_to_string(fixture("pool.yaml")).expect("a fixture");
    let pool = pool.split("---").next().expect("the NodePool").to_owned();
    // Labels of the template make NodeClaims drift.
    let label = "template:\n    metadata:\n      labels: { team: a }\n";
    bench.write("change.yaml", &pool.replacen("template:\n", label, 1));
    bench.write("limited.yaml", &pool.replace("cpu: \"100\"", "cpu: \"0\""));
    bench.write("wrong.yaml", &pool.replace("kind: NodePool", "kind: NodePol"));
    let input = "simulate -f pool.yaml -f cluster.yaml -f workloads.yaml --catalog catalog.json";
    assert_screen!("what_if", bench, &format!("{input} --what-if change.yaml"));
    let alone = "simulate -f pool.yaml -f workloads.yaml --catalog catalog.json";
    assert_screen!("what_if_limited", bench, &format!("{alone} --what-if limited.yaml"));
    bench.write("pool-alone.yaml", &pool);
    let limited = "simulate -f limited.yaml -f workloads.yaml --catalog catalog.json";
    assert_screen!("what_if_more", bench, &format!("{limited} --what-if pool-alone.yaml"));
    let wrong = bench.screen(&format!("{input} --what-if wrong.yaml"));
    assert!(wrong.starts_with("exit code 2") && wrong.contains("wrong.yaml:1:"), "{wrong}");
    let json = bench.json(&format!("{alone} --what-if limited.yaml"));
    assert_eq!(json["schema"], "tenon.sh/what-if/v1alpha1");
    assert_eq!(json["after"]["launched"], 0);
}
