//! What a release publishes, all the way: the image and both charts go to a real registry, Helm
//! installs the charts from there, by the commands of the guide "Install with Helm", and the
//! kubelet runs the operator in the files of the image that it pulled, and in no others.

use std::path::{Path, PathBuf};
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{ListParams, PostParams};
use serde_json::{Value, json};
use tenon_aws_double::progress::Progress;
use tenon_bed::bed::{Bed, BedConfig, Parts};
use tenon_bed::kubelet::isolation::Isolation;
use tenon_bed::programs::TenonPrograms;
use tenon_bed::registry::Registry;
use tenon_bed::user::{NodeClass, User, one_of};
use tenon_bed::wait::{eventually, must};
use tenon_release::charts::{self, CHARTS};
use tenon_release::image::{Source, build};
use tenon_release::layout::Layout;
use tenon_release::proxy::Proxies;
use tenon_release::registry;
use tokio::process::Command;

use crate::guide::Guide;

mod quickstart;
mod tenon;

const VERSION: &str = env!("CARGO_PKG_VERSION");
const LIMIT: Duration = Duration::from_mins(2);

/// A copy of a program without its debug information, where `strip` is there: it is two fifths of
/// it.
async fn stripped(built: &Path, dir: &Path, name: &str) -> PathBuf {
    let program = dir.join(name);
    let strip =
        Command::new("strip").arg("--strip-debug").arg("-o").arg(&program).arg(built).status();
    if !strip.await.is_ok_and(|status| status.success()) {
        must(std::fs::copy(built, &program));
    }
    program
}

/// The operator's image of this build.
async fn image(bed: &Bed) -> Layout {
    let dir = bed.dir();
    let built = must(TenonPrograms::provide(&Progress::hidden()).await);
    let program = stripped(&built.operator, dir, "tenon-operator").await;
    let beside = [stripped(&built.tenon, dir, "tenon").await];
    // The operator calls nobody over TLS here whose certificate an authority has signed, but its
    // AWS clients want a bundle with a certificate in it.
    let bundle = dir.join("ca.crt");
    must(std::fs::copy(bed.control_plane().certificates().join("apiserver.crt"), &bundle));
    let source = Source {
        program: &program,
        beside: &beside,
        root: Path::new("/"),
        library_path: &[],
        ca_bundle: &bundle,
        compressed: false,
        epoch: 0,
        version: VERSION,
        commit: "of this test",
        source: None,
    };
    must(build(&source, &dir.join("image")))
}

async fn helm(bed: &Bed, args: &[&str]) -> String {
    let output = must(bed.command(Path::new("helm")).args(args).output().await);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "helm {}: {said}", args.join(" "));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The section with commands that only AWS can answer.
const OF_AWS: &str = "Create the AWS resources";

/// Packages the charts with the registry's image as their default, and pushes them; answers where
/// charts are.
async fn push_charts(bed: &Bed, host: &str, repository: &str) -> String {
    let to = format!("oci://{host}/tenon/charts");
    for chart in CHARTS {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../charts").join(chart);
        let file = must(charts::package(&dir, VERSION, Some(repository), 0, bed.dir()));
        let file = bed.dir().join(file).display().to_string();
        helm(bed, &["push", &file, &to, "--plain-http"]).await;
    }
    to
}

/// A file of `/proc` of a process.
fn proc(pid: u32, name: &str) -> PathBuf {
    PathBuf::from(format!("/proc/{pid}/{name}"))
}

/// The operator's processes have the image's files for theirs, can't write them, and run as the
/// image's user.
fn run_in_the_image(bed: &Bed) {
    let kubelet = bed.kubelet().expect("it has one");
    let running = kubelet.running();
    assert_eq!(running.len(), 2, "{running:?}");
    let Isolation::Namespace(flags) = kubelet.isolation() else { return };
    for pid in running.iter().map(tenon_bed::kubelet::Running::pid) {
        let program = must(std::fs::read_link(proc(pid, "exe")));
        assert!(program.ends_with("root/usr/bin/tenon-operator"), "{}", program.display());
        let root = must(std::fs::read_dir(proc(pid, "root")));
        let mut names: Vec<_> = root.map(|it| must(it).file_name().into_string()).collect();
        names.sort();
        let expected = ["dev", "etc", "lib", "lib64", "proc", "run", "sys", "tmp", "usr", "var"];
        assert_eq!(names, expected.map(|name| Ok(name.to_owned())), "nothing of this machine");
        let mounts = must(std::fs::read_to_string(proc(pid, "mountinfo")));
        let root = mounts.lines().find(|line| line.split(' ').nth(4) == Some("/"));
        let options = root.and_then(|line| line.split(' ').nth(5)).unwrap_or_default();
        assert!(options.split(',').any(|it| it == "ro"), "the root can be written: {mounts}");
        let status = must(std::fs::read_to_string(proc(pid, "status")));
        let user = status.lines().find_map(|line| line.strip_prefix("Uid:")).unwrap_or_default();
        let is_own_user = flags.iter().any(|flag| flag == "--map-root-user");
        assert!(is_own_user || user.split_whitespace().all(|id| id == "65532"), "{user}");
    }
}

/// A pod whose image the registry does not have says so.
async fn a_missing_image_is_named(bed: &Bed, repository: &str) {
    let pods: Api<Pod> = Api::namespaced(bed.client(), "default");
    let pod = json!({
        "metadata": { "name": "missing" },
        "spec": {
            "nodeName": must(nodes(bed).await.first().cloned().ok_or("a system node")),
            "tolerations": [{ "operator": "Exists" }],
            "containers": [{ "name": "main", "image": format!("{repository}:0.0.0") }],
        },
    });
    must(pods.create(&PostParams::default(), &must(serde_json::from_value(pod))).await);
    eventually("the pod says why", LIMIT, async || {
        let pod = must(serde_json::to_value(pods.get("missing").await?));
        let waiting = &pod["status"]["containerStatuses"][0]["state"]["waiting"];
        let message = waiting["message"].as_str().unwrap_or_default();
        Ok(waiting["reason"] == "ErrImagePull" && message.contains("404"))
    })
    .await
    .unwrap_or_else(|error| panic!("{error}"));
}

async fn nodes(bed: &Bed) -> Vec<String> {
    let nodes: Api<k8s_openapi::api::core::v1::Node> = Api::all(bed.client());
    let all = must(nodes.list(&ListParams::default()).await);
    all.items.into_iter().filter_map(|node| node.metadata.name).collect()
}

/// What the operator needs where it makes its Nodes itself.
fn values() -> Value {
    let rule = |group: &str, resources: &[&str], verbs: &[&str]| json!({ "apiGroups": [group], "resources": resources, "verbs": verbs });
    json!({
        "controller": { "env": [{ "name": "CLOUD_PROVIDER", "value": "kwok" }] },
        "additionalClusterRoleRules": [
            rule("karpenter.kwok.sh", &["kwoknodeclasses"], &["get", "list", "watch"]),
            rule("", &["nodes"], &["create", "delete"]),
            rule("", &["nodes/status"], &["patch"]),
        ],
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn the_image_and_the_charts_come_from_a_registry_and_the_operator_runs_in_its_image() {
    let parts = Parts { kubelet: true, ..Parts::control_plane_only() };
    let bed = must(Bed::start(BedConfig { parts, ..BedConfig::default() }).await);
    let registry = must(Registry::start(&bed, None).await);
    let repository = format!("{}/tenon/tenon-operator", registry.host());

    // Pushed twice: what is there is not sent again, and the digest is the same.
    let layout = image(&bed).await;
    let reference = must(format!("{repository}:{VERSION}").parse::<registry::Reference>());
    let push = registry::Registry::of(reference, None, Proxies::default());
    let digest = must(push.push(&layout).await);
    assert_eq!(must(push.push(&layout).await), digest);
    let charts = push_charts(&bed, &registry.host(), &repository).await;

    let mut guide = Guide::new(
        include_str!("../../../docs/src/guides/helm.md"),
        [
            ("oci://registry.example/tenon/charts", charts.as_str()),
            ("registry.example/tenon/tenon-operator", &repository),
        ],
    );
    let mut values: Value = must(serde_saphyr::from_str(guide.file("values.yaml")));
    // Without AWS there is no queue.
    values["settings"]["interruptionQueue"] = "".into();
    for (key, value) in self::values().as_object().expect("a map") {
        values[key] = value.clone();
    }
    must(std::fs::write(bed.dir().join("values.yaml"), values.to_string()));
    must(std::fs::write(bed.dir().join("nodepool.yaml"), guide.file("nodepool.yaml")));
    let checkout = Path::new(env!("CARGO_MANIFEST_DIR")).join("../charts");
    must(std::os::unix::fs::symlink(checkout, bed.dir().join("charts")));
    guide.follow(&bed, "Install from a registry").await;
    guide.follow(&bed, "Check the installation").await;
    let releases: Value =
        must(serde_json::from_str(&helm(&bed, &["list", "-A", "-o", "json"]).await));
    let deployed =
        releases.as_array().expect("a list").iter().filter(|it| it["status"] == "deployed");
    assert_eq!(deployed.count(), 2, "{releases}");

    run_in_the_image(&bed);
    let system = nodes(&bed).await.len();
    a_missing_image_is_named(&bed, &repository).await;

    // It works there: a pod without a node gets one.
    let user = User::new(bed.client(), NodeClass::Kwok);
    let class = json!({
        "apiVersion": "karpenter.kwok.sh/v1alpha1", "kind": "KWOKNodeClass",
        "metadata": { "name": "default" }, "spec": {},
    });
    must(user.apply(&class).await);
    let machines = json!([one_of("karpenter.sh/capacity-type", &["on-demand"])]);
    must(user.pool("released", &machines, &json!({})).await);
    must(user.scale("released", 1, &json!({ "scenario": "released" })).await);
    must(user.runs("released", 1).await);

    guide.follow(&bed, "Create a NodePool").await;
    guide.follow(&bed, "Upgrade and roll back").await;
    let revisions = helm(&bed, &["history", "karpenter", "-n", "kube-system", "-o", "json"]).await;
    let revisions: Value = must(serde_json::from_str(&revisions));
    let revisions = revisions.as_array().expect("a list");
    let status = revisions.iter().map(|it| it["status"].as_str().unwrap_or_default());
    assert_eq!(status.collect::<Vec<_>>(), ["superseded", "superseded", "deployed"]);

    guide.follow(&bed, "Uninstall").await;
    assert_eq!(nodes(&bed).await.len(), system, "the NodePools' nodes are gone");
    guide.follow(&bed, "Install from a checkout").await;
    run_in_the_image(&bed);
    guide.has_read_all_but(&[OF_AWS]);
    registry.stop().await;
    must(bed.stop().await);
}
