//! A cluster with Karpenter, laid out as its documentation says, is taken over and given back; its
//! node notices nothing. Karpenter is played by the operator under Karpenter's image.

use std::sync::Arc;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{ApiResource, DynamicObject, Patch, PatchParams};
use kube::core::GroupVersionKind;
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};
use tenon_bed::bed::{Bed, BedConfig, Parts};
use tenon_bed::installation::Installation;
use tenon_bed::karpenter::{self, NODE_ROLE, ROLE, RULE, arn};
use tenon_bed::user::{LIMIT, one_of};
use tenon_bed::wait::{eventually, must};

use super::command::tenon;

/// Karpenter leads by a Lease of another name than usual.
const LEASE: &str = "other-leader-election";
/// What its container is told by a ConfigMap.
const MAP: &str = "karpenter-settings";

/// What its chart creates, with a Lease of another name.
async fn in_kubernetes(bed: &Bed) {
    let variables = [
        json!({ "name": "LEADER_ELECTION_NAME", "value": LEASE }),
        json!({ "name": "TEAM", "valueFrom": from_map("team") }),
    ];
    for mut body in must(karpenter::manifests(bed, &variables).await) {
        if body["kind"] == "Deployment" {
            let container = &mut body["spec"]["template"]["spec"]["containers"][0];
            container["envFrom"] = json!([{ "configMapRef": { "name": MAP } }]);
        }
        if body["kind"] == "Role" {
            // As whoever gives the Lease another name has to do as well.
            let text = body.to_string().replace("karpenter-leader-election", LEASE);
            body = serde_json::from_str(&text).expect("JSON");
        }
        apply(bed, &body).await;
    }
}

fn from_map(key: &str) -> Value {
    json!({ "configMapKeyRef": { "name": MAP, "key": key } })
}

async fn apply(bed: &Bed, body: &Value) {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let version = text(&body["apiVersion"]);
    let (group, version) = version.split_once('/').unwrap_or(("", &version));
    let resource =
        ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, &text(&body["kind"])));
    let name = text(&body["metadata"]["name"]);
    let api: Api<DynamicObject> = match body["metadata"]["namespace"].as_str() {
        Some(namespace) => Api::namespaced_with(bed.client(), namespace, &resource),
        None => Api::all_with(bed.client(), &resource),
    };
    let parameters = PatchParams::apply("helm").force();
    // The type of an object may have been made a moment ago.
    let what = format!("{name} is applied");
    let applied = eventually(&what, LIMIT, async || {
        match api.patch(&name, &parameters, &Patch::Apply(body)).await {
            Ok(_) => Ok(true),
            Err(error) => Err(error.to_string().into()),
        }
    });
    must(applied.await);
}

async fn leader(bed: &Bed) -> String {
    let leases: Api<Lease> = Api::namespaced(bed.client(), "kube-system");
    let lease = must(leases.get(LEASE).await);
    lease.spec.and_then(|spec| spec.holder_identity).unwrap_or_default()
}

/// A pod that is no more holds the Lease, as after a node that died.
async fn dead_leader(bed: &Bed, name: &str) {
    let leases: Api<Lease> = Api::namespaced(bed.client(), "kube-system");
    let dead = json!({ "spec": { "holderIdentity": name, "leaseDurationSeconds": 15 } });
    must(leases.patch(LEASE, &PatchParams::default(), &Patch::Merge(dead)).await);
}

/// Whether Karpenter is to work without the Lease. Its pods stay as they are: the Deployment is
/// paused.
async fn alone(bed: &Bed, alone: bool) {
    let api: Api<Deployment> = Api::namespaced(bed.client(), "kube-system");
    let entry = if alone {
        json!({ "name": "DISABLE_LEADER_ELECTION", "value": "true" })
    } else {
        json!({ "$patch": "delete", "name": "DISABLE_LEADER_ELECTION" })
    };
    let container = json!({ "name": "controller", "env": [entry] });
    let template = json!({ "spec": { "containers": [container] } });
    let patch = json!({ "spec": { "paused": alone, "template": template } });
    must(api.patch("karpenter", &PatchParams::default(), &Patch::Strategic(patch)).await);
}

/// What Tenon's container is told that Karpenter's was.
async fn carried_over(bed: &Bed) {
    let api: Api<Deployment> = Api::namespaced(bed.client(), "kube-system");
    let live = must(serde_json::to_value(must(api.get("tenon").await)));
    let container = &live["spec"]["template"]["spec"]["containers"][0];
    let env = container["env"].as_array().expect("variables");
    let of = |name: &str| env.iter().find(|entry| entry["name"] == name);
    let team = of("TEAM").expect("the variable is carried over");
    assert_eq!(team["valueFrom"]["configMapKeyRef"]["key"], "team");
    assert_eq!(of("BATCH_MAX_DURATION").expect("the option")["value"], "9s");
    assert_eq!(container["envFrom"][0]["configMapRef"]["name"], MAP);
}

async fn replicas(bed: &Bed, name: &str) -> Option<i32> {
    let api: Api<Deployment> = Api::namespaced(bed.client(), "kube-system");
    must(api.get_opt(name).await)?.spec.replicas
}

/// Names of things that carry one of our marks, in Kubernetes.
async fn marked(bed: &Bed) -> Vec<String> {
    let api: Api<Deployment> = Api::namespaced(bed.client(), "kube-system");
    let all = must(api.list(&kube::api::ListParams::default()).await);
    let ours = all.items.iter().filter(|one| {
        let labels = one.labels().keys().chain(one.annotations().keys());
        labels.into_iter().any(|key| key.starts_with("tenon.sh/"))
    });
    ours.map(kube::ResourceExt::name_any).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn karpenter_is_taken_over_and_comes_back_and_its_node_stays() {
    let config = BedConfig { parts: Parts::all(), ..BedConfig::default() };
    let bed = Arc::new(Bed::start(config).await.expect("the bed starts"));
    let nothing =
        tenon(&bed, &["adopt", "--cluster", "bed", "--region", bed.region(), "--yes"], None).await;
    assert_eq!(nothing.code, 6, "{}", nothing.stderr);
    let shown = ["config", "show", "--cluster", "bed", "--region", bed.region()];
    let shown = tenon(&bed, &shown, None).await;
    assert_eq!(shown.code, 6, "{}", shown.stdout);
    assert!(shown.stderr.contains("no record of an installation"), "{}", shown.stderr);
    must(karpenter::in_aws(&bed).await);
    let map = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": { "name": MAP, "namespace": "kube-system" },
        "data": { "team": "a", "BATCH_MAX_DURATION": "9s" },
    });
    apply(&bed, &map).await;
    in_kubernetes(&bed).await;
    let before = must(bed.aws_inventory().await);

    let cluster = Installation::on(&bed);
    must(cluster.user().ready("EC2NodeClass", "default").await);
    let requirements = json!([one_of("node.kubernetes.io/instance-type", &["m6i.large"])]);
    must(cluster.user().pool("adopt", &requirements, &json!({})).await);
    must(cluster.user().scale("adopt", 2, &json!({ "scenario": "adopt" })).await);
    must(cluster.user().runs("adopt", 2).await);
    let nodes = must(cluster.instances());
    assert!(leader(&bed).await.starts_with("karpenter-"));

    let target = ["--cluster", bed.cluster(), "--region", bed.region()];
    let adopt = [&["adopt", "--yes"][..], &target].concat();
    let undo = [&["adopt", "--undo", "--yes"][..], &target].concat();
    let dry = [&["adopt", "--dry-run", "-o", "json"][..], &target].concat();
    let shown = tenon(&bed, &dry, None).await;
    assert_eq!(shown.code, 0, "{}", shown.stderr);
    let shown: Value = serde_json::from_str(&shown.stdout).expect("one document");
    assert_eq!(shown["karpenter"]["role"], arn(ROLE).as_str());
    assert_eq!(shown["karpenter"]["nodeRoles"], json!([NODE_ROLE]));
    assert_eq!(shown["karpenter"]["rules"], json!([RULE]));
    assert_eq!(shown["karpenter"]["version"], "1.14.1");
    let touched = shown["actions"].as_array().expect("steps").iter();
    let touched = touched.filter(|step| {
        ["NodePool", "EC2NodeClass", "NodeClaim"].iter().any(|kind| step["type"] == *kind)
    });
    assert_eq!(touched.count(), 0, "no NodePool is touched");

    // Two that would lead at once are refused before anything is changed.
    alone(&bed, true).await;
    let refused = tenon(&bed, &adopt, None).await;
    assert_eq!(refused.code, 6, "{}", refused.stderr);
    assert!(refused.stderr.contains("DISABLE_LEADER_ELECTION=true"), "{}", refused.stderr);
    assert_eq!(marked(&bed).await, [""; 0], "something was changed");
    alone(&bed, false).await;

    // Killed after each of the first steps, it goes on.
    for _ in 0..4 {
        let killed = tenon(&bed, &adopt, Some(1)).await;
        assert_ne!(killed.code, 0, "it was not killed");
    }
    // Killed right after the hand-over, with a Lease that a dead pod holds: the next run waits for
    // one that lives.
    let shown = tenon(&bed, &dry, None).await;
    let shown: Value = serde_json::from_str(&shown.stdout).expect("one document");
    let steps = shown["actions"].as_array().expect("steps");
    assert_eq!(steps.last().expect("a step")["id"], "leader");
    let killed = tenon(&bed, &adopt, Some(steps.len() - 1)).await;
    assert_ne!(killed.code, 0, "it was not killed");
    assert_eq!(replicas(&bed, "karpenter").await, Some(0));
    dead_leader(&bed, "tenon-0000000000-dead0_1").await;
    let adopted = tenon(&bed, &adopt, None).await;
    assert_eq!(adopted.code, 0, "{}", adopted.stderr);
    let leads = leader(&bed).await;
    assert!(leads.starts_with("tenon-") && !leads.contains("dead0"), "{leads}");
    assert!(adopted.stdout.contains(&format!("{leads} leads")), "{}", adopted.stdout);
    carried_over(&bed).await;
    let again = tenon(&bed, &adopt, None).await;
    assert!(again.stdout.contains("Nothing to do"), "{}{}", again.stdout, again.stderr);
    let status = [&["diff"][..], &target].concat();
    assert_eq!(tenon(&bed, &status, None).await.code, 0, "it is as the record says");
    // What was found is a settings file, too.
    let shown = tenon(&bed, &[&["config", "show"][..], &target].concat(), None).await;
    assert!(shown.stdout.contains(&arn(ROLE)), "{}{}", shown.stdout, shown.stderr);
    let file = bed.dir().join("adopted.yaml");
    std::fs::write(&file, &shown.stdout).expect("the bed's directory can be written");
    let differs = tenon(&bed, &["diff", "-f", &file.display().to_string()], None).await;
    assert_eq!(differs.code, 0, "{}{}", differs.stdout, differs.stderr);
    // Tenon works with what it was given: a pod more than fits gets a node.
    must(cluster.user().scale("adopt", 4, &json!({ "scenario": "adopt" })).await);
    must(cluster.user().runs("adopt", 4).await);
    let now = must(cluster.instances());
    assert!(nodes.keys().all(|id| now.contains_key(id)), "a node was replaced");

    let killed = tenon(&bed, &undo, Some(1)).await;
    assert_ne!(killed.code, 0, "it was not killed");
    let undone = tenon(&bed, &undo, None).await;
    assert_eq!(undone.code, 0, "{}", undone.stderr);
    assert!(leader(&bed).await.starts_with("karpenter-"), "{}", leader(&bed).await);
    assert_eq!(replicas(&bed, "karpenter").await, Some(2));
    assert_eq!(replicas(&bed, "tenon").await, None);
    assert_eq!(marked(&bed).await, [""; 0], "a mark is left");
    let after = must(cluster.instances());
    assert!(now.keys().all(|id| after.contains_key(id)), "a node was replaced");
    let kinds = [
        "role",
        "inline policy",
        "attached policy",
        "policy",
        "queue",
        "rule",
        "access entry",
        "Pod Identity association",
    ];
    let of = |all: &[(String, String)]| {
        let all = all.iter().filter(|(kind, _)| kinds.contains(&kind.as_str()));
        all.cloned().collect::<std::collections::BTreeSet<_>>()
    };
    assert_eq!(of(&before), of(&must(bed.aws_inventory().await)));

    // Taken over once more, and then uninstalled: nodes go, and what was Karpenter's is what it
    // was.
    let adopted = tenon(&bed, &adopt, None).await;
    assert_eq!(adopted.code, 0, "{}", adopted.stderr);
    let uninstall = [&["uninstall", "--yes", "--force-capacity"][..], &target].concat();
    let removed = tenon(&bed, &uninstall, None).await;
    assert_eq!(removed.code, 0, "{}{}", removed.stdout, removed.stderr);
    assert_eq!(replicas(&bed, "karpenter").await, Some(2));
    assert_eq!(replicas(&bed, "tenon").await, None);
    assert_eq!(marked(&bed).await, [""; 0], "a mark is left");
    assert_eq!(of(&before), of(&must(bed.aws_inventory().await)));
    drop(cluster);
    let bed = Arc::try_unwrap(bed).expect("nobody else has the bed");
    bed.stop().await.expect("the bed stops");
}
