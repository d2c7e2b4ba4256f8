//! What leaves, how much of it, and what proves it: the modes of `tenon uninstall`, an operator
//! that is gone before its nodes, `tenon sweep`, and the canary that shows that all of it worked
//! before.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::ResourceExt as _;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, ListParams, PostParams};
use kube::core::GroupVersionKind;
use serde_json::{Value, json};
use tenon_bed::bed::{Bed, BedConfig, Finished};
use tenon_bed::wait::eventually;

use super::command::tenon;
use super::install::{assert_unchanged, inventory, settings, until_done, write};

const MINUTE: Duration = Duration::from_mins(1);
/// Why the CRD of another version stays.
const RELICS: &str = "relics.karpenter.sh: there is still 1 object";

async fn run(bed: &Bed, args: &[&str], code: i32) -> Finished {
    let finished = tenon(bed, args, None).await;
    assert_eq!(
        finished.code,
        code,
        "tenon {}:\n{}\n{}",
        args.join(" "),
        finished.stdout,
        finished.stderr
    );
    finished
}

fn json_of(finished: &Finished) -> Value {
    serde_json::from_str(&finished.stdout).expect("one document")
}

/// A Deployment whose pods need nodes of a NodePool.
async fn deploy(bed: &Bed, replicas: i32) {
    deploy_onto(bed, "default", replicas).await;
}

/// The same, with nodes of this NodePool.
async fn deploy_onto(bed: &Bed, pool: &str, replicas: i32) {
    let deployments: Api<Deployment> = Api::namespaced(bed.client(), "default");
    let name = format!("web-{pool}");
    let deployment = serde_json::from_value(json!({
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {
                    "nodeSelector": {"karpenter.sh/nodepool": pool},
                    "terminationGracePeriodSeconds": 1,
                    "containers": [{"name": "web", "image": "registry.example/web:1"}],
                },
            },
        },
    }))
    .expect("a Deployment");
    deployments.create(&PostParams::default(), &deployment).await.expect("created");
    let what = format!("{replicas} pods run on {pool}");
    eventually(&what, 2 * MINUTE, async || {
        let live = deployments.get(&name).await?;
        Ok(live.status.and_then(|status| status.ready_replicas) == Some(replicas))
    })
    .await
    .expect("they run");
}

async fn undeploy(bed: &Bed) {
    let deployments: Api<Deployment> = Api::namespaced(bed.client(), "default");
    let (how, all) = (DeleteParams::default(), ListParams::default());
    deployments.delete_collection(&how, &all).await.expect("deleted");
}

/// Ids of the instances of NodePools that are alive.
fn instances(bed: &Bed) -> BTreeSet<String> {
    let mut alive = bed.aws().expect("AWS").gateway().control().alive();
    alive.retain(|_, instance| instance.tags.contains_key("karpenter.sh/nodepool"));
    alive.into_keys().collect()
}

async fn nodes_of_pools(bed: &Bed) -> Vec<Node> {
    let nodes: Api<Node> = Api::all(bed.client());
    let params = ListParams::default().labels("karpenter.sh/nodepool");
    nodes.list(&params).await.expect("nodes").items
}

/// Runs an uninstall to its end, killed after each of its steps.
async fn killed_on_the_way(bed: &Bed, args: &[&str]) {
    let kills = until_done(bed, args).await;
    assert!(kills >= 8, "only {kills} steps were interrupted");
    // What did not hit anything must not hit what comes next.
    bed.aws().expect("AWS").gateway().control().heal_all();
}

fn objects(bed: &Bed, version: &str, kind: &str, plural: &str) -> Api<DynamicObject> {
    let gvk = GroupVersionKind::gvk("karpenter.sh", version, kind);
    Api::all_with(bed.client(), &ApiResource::from_gvk_with_plural(&gvk, plural))
}

/// A NodeOverlay of the user's.
async fn overlay(bed: &Bed) {
    let overlay = serde_json::from_value(json!({
        "apiVersion": "karpenter.sh/v1alpha1",
        "kind": "NodeOverlay",
        "metadata": {"name": "dearer"},
        "spec": {
            "requirements": [{"key": "karpenter.sh/nodepool", "operator": "In", "values": ["none"]}],
            "priceAdjustment": "+10%",
        },
    }));
    let overlays = objects(bed, "v1alpha1", "NodeOverlay", "nodeoverlays");
    let made = overlays.create(&PostParams::default(), &overlay.expect("a NodeOverlay")).await;
    made.expect("created");
}

/// A CRD such as another version of the installation brought, and an object of it.
async fn former_crd(bed: &Bed) -> Api<CustomResourceDefinition> {
    let crds: Api<CustomResourceDefinition> = Api::all(bed.client());
    let ours = crds.get("nodepools.karpenter.sh").await.expect("it is installed");
    let id = &ours.labels()["tenon.sh/install-id"];
    let crd = serde_json::from_value(json!({
        "metadata": { "name": "relics.karpenter.sh", "labels": { "tenon.sh/install-id": id } },
        "spec": {
            "group": "karpenter.sh", "scope": "Cluster",
            "names": { "kind": "Relic", "plural": "relics", "singular": "relic", "listKind": "RelicList" },
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": { "openAPIV3Schema": { "type": "object" } },
            }],
        },
    }));
    let crd = crd.expect("a CRD");
    crds.create(&PostParams::default(), &crd).await.expect("created");
    let relics = objects(bed, "v1", "Relic", "relics");
    let relic = json!({
        "apiVersion": "karpenter.sh/v1", "kind": "Relic", "metadata": { "name": "kept" },
    });
    let relic = serde_json::from_value(relic).expect("an object");
    eventually("the API server serves it", MINUTE, async || {
        Ok(relics.create(&PostParams::default(), &relic).await.is_ok())
    })
    .await
    .expect("it is there");
    crds
}

/// A NodePool like the first.
async fn second_pool(bed: &Bed) {
    let pools = objects(bed, "v1", "NodePool", "nodepools");
    let first = pools.get("default").await.expect("there is one");
    let resource = ApiResource::from_gvk_with_plural(
        &GroupVersionKind::gvk("karpenter.sh", "v1", "NodePool"),
        "nodepools",
    );
    let mut second = DynamicObject::new("second", &resource);
    second.data = json!({"spec": first.data["spec"]});
    pools.create(&PostParams::default(), &second).await.expect("created");
}

/// What the last uninstall saved.
fn backup(bed: &Bed) -> String {
    let files = std::fs::read_dir(bed.dir().join("state")).expect("it is there");
    let paths = files.map(|file| file.expect("it can be read").path());
    let is_backup = |path: &PathBuf| path.to_string_lossy().contains("/backup-");
    let last = paths.filter(is_backup).max().expect("there is one");
    std::fs::read_to_string(last).expect("it can be read")
}

#[tokio::test(flavor = "multi_thread")]
async fn each_mode_of_removal_takes_what_it_says_and_the_rest_can_be_taken_later() {
    let bed = Bed::start(BedConfig::default()).await.expect("the bed starts");
    let before = inventory(&bed).await;
    let control = bed.aws().expect("AWS").gateway().control();
    let file = write(&bed, "tenon.yaml", &format!("{:#}\n", settings(&bed))).display().to_string();
    let install = ["install", "-f", file.as_str(), "--yes"];

    // The canary joins, goes by a message in the queue, and leaves nothing.
    let canary = [&install[..], &["--canary", "--timeout", "3m", "-o", "json"]].concat();
    let proven = json_of(&run(&bed, &canary, 0).await);
    assert!(proven["canary"]["joinedSeconds"].is_u64(), "{proven:#}");
    assert!(proven["canary"]["messageSeconds"].is_u64(), "{proven:#}");
    assert_eq!(instances(&bed), BTreeSet::new());

    // The operator goes, its nodes and their pods stay.
    deploy(&bed, 2).await;
    let running = instances(&bed);
    assert!(!running.is_empty());
    let refused = run(&bed, &["uninstall", "--aws-only", "--yes"], 6).await;
    assert!(refused.stderr.contains("still exists"), "{}", refused.stderr);
    killed_on_the_way(&bed, &["uninstall", "--keep-nodes", "--yes"]).await;
    let kept = run(&bed, &["uninstall", "--keep-nodes", "--yes", "-o", "json"], 0).await;
    let kept = json_of(&kept);
    assert_eq!(kept["left"], json!([]));
    for id in &running {
        assert!(kept["kept"].to_string().contains(id.as_str()), "{id} is not named: {kept:#}");
    }
    assert_eq!(instances(&bed), running);
    let nodes = nodes_of_pools(&bed).await;
    assert_eq!(nodes.len(), running.len());
    for node in &nodes {
        assert!(node.finalizers().is_empty() && node.owner_references().is_empty(), "{node:?}");
    }

    // They are leftovers now: seen by a sweep, and taken by it only when it is told to.
    let shown = json_of(&run(&bed, &["sweep", "-o", "json"], 0).await);
    assert_eq!(shown["removed"], json!([]));
    assert_eq!(instances(&bed), running);
    undeploy(&bed).await;
    let removed = json_of(&run(&bed, &["uninstall", "--yes", "-o", "json"], 0).await);
    assert_eq!(removed["left"], json!([]));
    let found: u64 = removed["proof"]
        .as_array()
        .expect("queries")
        .iter()
        .filter_map(|query| query["found"].as_u64())
        .sum();
    assert_eq!(found, 0, "{removed:#}");
    assert_unchanged(&before, &inventory(&bed).await);

    // Kubernetes first, AWS later. Nobody looks after the nodes any more, and EC2 refuses to
    // terminate them.
    run(&bed, &install, 0).await;
    deploy(&bed, 2).await;
    overlay(&bed).await;
    let running = instances(&bed);
    let operators: Api<Deployment> = Api::namespaced(bed.client(), "kube-system");
    operators.delete("karpenter", &DeleteParams::foreground()).await.expect("deleted");
    let refusal = control.fail("ec2:TerminateInstances", None, 400, "OperationNotPermitted");
    let abandon = ["uninstall", "--k8s-only", "--yes", "--force-capacity", "--drain-timeout", "1s"];
    let abandon = [&abandon[..], &["--abandon-instances", "-o", "json"]].concat();
    let abandoned = json_of(&run(&bed, &abandon, 4).await);
    let ids = abandoned["abandoned"].as_array().expect("ids").iter().filter_map(Value::as_str);
    assert_eq!(ids.map(str::to_owned).collect::<BTreeSet<_>>(), running);
    assert!(abandoned["removed"].to_string().contains("NodeOverlays dearer"), "{abandoned:#}");
    assert_eq!(instances(&bed), running);
    control.heal(&refusal).expect("it was there");
    // What was let go of is still known by the record, and is drained, terminated and proven gone
    // now.
    run(&bed, &["uninstall", "--k8s-only", "--yes", "--force-capacity"], 0).await;
    assert_eq!(instances(&bed), BTreeSet::new());
    undeploy(&bed).await;
    let left = inventory(&bed).await;
    assert!(left.iter().all(|(kind, _)| !["crd", "Deployment"].contains(&kind.as_str())
        || before.iter().any(|(of, _)| of == kind)));
    assert!(left.iter().any(|(kind, _)| kind == "queue"));
    killed_on_the_way(&bed, &["uninstall", "--aws-only", "--yes"]).await;
    assert_unchanged(&before, &inventory(&bed).await);

    // Somebody removed the operator first, so nobody takes the finalizers off.
    run(&bed, &install, 0).await;
    deploy(&bed, 2).await;
    operators.delete("karpenter", &DeleteParams::foreground()).await.expect("deleted");
    // Nothing else in this cluster could hold their pods.
    let forced = ["uninstall", "--yes", "--drain-timeout", "30s", "--force-capacity"];
    run(&bed, &forced, 0).await;
    assert_eq!(instances(&bed), BTreeSet::new());
    assert_eq!(nodes_of_pools(&bed).await.len(), 0);
    undeploy(&bed).await;
    assert_unchanged(&before, &inventory(&bed).await);

    // The same, and it is brought back to do its work itself, one NodePool after the other. Every
    // call that deletes is written down.
    run(&bed, &install, 0).await;
    second_pool(&bed).await;
    let crds = former_crd(&bed).await;
    let shown = json_of(&run(&bed, &["uninstall", "--dry-run", "-o", "json"], 0).await);
    assert!(!shown["inventory"].to_string().contains("relics"), "{shown:#}");
    let of_nodes = ["nodepools.karpenter.sh", "ec2nodeclasses.karpenter.k8s.aws"];
    for crd in of_nodes {
        assert!(shown["inventory"].to_string().contains(crd), "{crd} goes: {shown:#}");
    }
    assert!(shown["kept"].to_string().contains(RELICS), "{shown:#}");
    deploy(&bed, 2).await;
    deploy_onto(&bed, "second", 2).await;
    operators.delete("karpenter", &DeleteParams::foreground()).await.expect("deleted");
    control.calls().clear();
    let repaired = ["uninstall", "--yes", "--repair-first", "--force-capacity", "-o", "json"];
    let too_short = [&repaired[..], &["--timeout", "0s"]].concat();
    let too_short = run(&bed, &too_short, 4).await;
    assert!(too_short.stderr.contains("default, second stay paused"), "{}", too_short.stderr);
    let repaired = [&repaired[..], &["--parallel", "1"]].concat();
    let repaired = run(&bed, &repaired, 0).await;
    assert!(repaired.stderr.contains("the last `tenon uninstall` ended"), "{}", repaired.stderr);
    assert!(!repaired.stderr.contains("is not running"), "{}", repaired.stderr);
    let steps = ["✔ NodePools default", "✔ nodes of default", "✔ NodePools second"];
    let at = steps.map(|step| repaired.stderr.find(step).expect(step));
    assert!(at.is_sorted(), "{}", repaired.stderr);
    let mut launches = control.calls().of("ec2:CreateFleet");
    launches.retain(|call| !call.dry_run);
    assert!(launches.is_empty(), "nodes were replaced: {launches:?}");
    assert!(!backup(&bed).contains("nodes: \"0\""), "{}", backup(&bed));
    let removed = json_of(&repaired);
    assert_eq!((&removed["left"], &removed["abandoned"]), (&json!([]), &json!([])));
    assert!(removed["kept"].to_string().contains(RELICS), "{removed:#}");
    crds.delete("relics.karpenter.sh", &DeleteParams::default()).await.expect("deleted");
    let gone = async || Ok(crds.get_opt("relics.karpenter.sh").await?.is_none());
    eventually("the CRD is gone", MINUTE, gone).await.expect("it goes");
    let audit = removed["audit"].as_str().expect("a file");
    let audit = std::fs::read_to_string(audit).expect("it is there");
    for call in ["IAM DeleteRole", "SQS DeleteQueue", "EC2 DeleteTags", "\"delete\""] {
        assert!(audit.contains(call), "{call} is not in {audit}");
    }
    undeploy(&bed).await;
    assert_unchanged(&before, &inventory(&bed).await);
    bed.stop().await.expect("the bed stops");
}
