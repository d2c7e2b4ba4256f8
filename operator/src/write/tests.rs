use tenon_crds::EC2NodeClass;
use tenon_crds::ec2nodeclass::EC2NodeClassSpec;

use super::*;
use crate::testing::bench::{Bench, node, nodeclaim};

/// The NodeClaim `a`, which the state has seen.
async fn known() -> (Bench, NodeClaim) {
    let bench = Bench::new().await;
    let claim = bench.seen(nodeclaim("a")).await;
    (bench, claim)
}

/// The same, and on the API server it has been deleted and made again under its name.
async fn made_again() -> (Bench, NodeClaim) {
    let (bench, claim) = known().await;
    bench.api.put::<NodeClaim>(nodeclaim("a"));
    (bench, claim)
}

fn labelled(value: &str) -> Value {
    json!({ "metadata": { "labels": { "example.com/a": value } } })
}

#[tokio::test(start_paused = true)]
async fn what_is_written_is_in_the_state_when_the_write_returns() {
    let bench = Bench::new().await;
    let mut new: NodeClaim = serde_json::from_value(nodeclaim("a")).unwrap();
    new.metadata.name = None;
    new.metadata.generate_name = Some("a-".to_owned());
    let created = bench.write.create_claim(&new).await.unwrap();
    let name = name(&created.metadata);
    assert!(bench.state.read().claim(&name).is_some());

    let mut patched = bench.write.patch_claim(&created, labelled("b"), Unchanged).await.unwrap();
    let label = |claim: &NodeClaim| claim.metadata.labels.as_ref()?.get("example.com/a").cloned();
    assert_eq!(label(bench.state.read().claim(&name).unwrap()).as_deref(), Some("b"));

    patched.status.get_or_insert_default().node_name = Some("node".to_owned());
    bench.write.patch_claim_status(&patched).await.unwrap();
    assert_eq!(bench.state.read().claim(&name).unwrap().node_name(), Some("node"));

    assert!(bench.write.delete_claim(&patched).await.unwrap());
    let deleted = bench.state.read().claim(&name).cloned().unwrap();
    assert!(bench.state.read().is_going(&deleted));
    bench.write.release_claim(&deleted).await.unwrap();
    assert!(bench.state.read().claim(&name).is_none());
    assert!(bench.api.get::<NodeClaim>(&name).is_null());
}

#[tokio::test(start_paused = true)]
async fn a_nodeclaim_that_nothing_holds_is_gone_when_it_is_deleted() {
    let bench = Bench::new().await;
    let mut unheld = nodeclaim("a");
    unheld["metadata"]["finalizers"] = json!([]);
    let claim: NodeClaim = bench.seen(unheld).await;
    assert!(bench.write.delete_claim(&claim).await.unwrap());
    assert!(bench.state.read().claim("a").is_none());
}

#[tokio::test(start_paused = true)]
async fn an_object_that_was_made_again_under_its_name_is_left_alone() {
    let (bench, claim) = made_again().await;
    let before = bench.api.get::<NodeClaim>("a");
    assert!(!bench.write.delete_claim(&claim).await.unwrap());
    let patched = bench.write.patch_claim(&claim, labelled("b"), SameUid).await.unwrap_err();
    assert!(patched.is_not_found(), "{patched:?}");
    let annotations = BTreeMap::from([("example.com/a", "b")]);
    let annotated = bench.write.annotate_claim(&claim.metadata, &annotations).await.unwrap_err();
    assert!(annotated.is_not_found(), "{annotated:?}");
    assert_eq!(annotated.category(), "not_found");
    assert_eq!(bench.api.get::<NodeClaim>("a"), before);

    let old: Node = bench.seen(node("n")).await;
    bench.api.put::<Node>(node("n"));
    let before = bench.api.get::<Node>("n");
    bench.write.delete_node(&old).await.unwrap();
    let relabelled = bench.write.label_node(&old, json!({ "a": "b" })).await.unwrap_err();
    assert!(relabelled.is_not_found(), "{relabelled:?}");
    assert_eq!(bench.api.get::<Node>("n"), before);
}

#[tokio::test(start_paused = true)]
async fn a_nodeclaim_that_the_api_server_does_not_have_leaves_the_state() {
    type Write = for<'w> fn(&'w Writer, &'w NodeClaim) -> futures::future::BoxFuture<'w, ()>;
    let writes: [Write; 4] = [
        |write, claim| Box::pin(async { drop(write.delete_claim(claim).await) }),
        |write, claim| Box::pin(async { drop(write.release_claim(claim).await) }),
        |write, claim| Box::pin(async { drop(write.patch_claim(claim, json!({}), SameUid).await) }),
        |write, claim| {
            Box::pin(async {
                drop(write.annotate_claim(&claim.metadata, &BTreeMap::new()).await);
            })
        },
    ];
    for write in writes {
        let (bench, claim) = known().await;
        bench.api.take::<NodeClaim>("a");
        write(&bench.write, &claim).await;
        assert!(bench.state.read().claim("a").is_none());
    }
}

#[tokio::test(start_paused = true)]
async fn lists_are_written_only_into_the_version_that_they_were_computed_from() {
    let (bench, claim) = known().await;
    bench.write.patch_claim(&claim, labelled("b"), SameUid).await.unwrap();
    let finalizers = json!({ "metadata": { "finalizers": [] } });
    let locked = bench.write.patch_claim(&claim, finalizers, Unchanged).await.unwrap_err();
    assert!(locked.is_conflict(), "{locked:?}");
    let released = bench.write.release_claim(&claim).await.unwrap_err();
    assert!(released.is_conflict(), "{released:?}");
    let status = bench.write.patch_claim_status(&claim).await.unwrap_err();
    assert!(status.is_conflict(), "{status:?}");

    let old: Node = bench.seen(node("n")).await;
    bench.write.label_node(&old, json!({ "a": "b" })).await.unwrap();
    let taint = |key: &str| json!({ "spec": { "taints": [{"key": key, "effect": "NoSchedule"}] } });
    // What else became of a Node holds nobody up who replaces its taints.
    bench.write.patch_node(&old, &taint("first")).await.unwrap();
    let overwritten = bench.write.patch_node(&old, &taint("second")).await.unwrap_err();
    assert!(overwritten.is_conflict(), "{overwritten:?}");
    assert!(overwritten.is_passing() && !overwritten.is_refused());
    // Labels are nobody else's: the kubelet's heartbeat does not hold them up.
    let node = bench.write.label_node(&old, json!({ "a": null, "c": "d" })).await.unwrap();
    assert_eq!((node.label("a"), node.label("c")), (None, Some("d")));
    assert_eq!(bench.state.read().node("n").unwrap().label("c"), Some("d"));
}

#[tokio::test(start_paused = true)]
async fn only_the_operators_own_finalizer_is_taken_off() {
    let bench = Bench::new().await;
    let mut held = nodeclaim("a");
    held["metadata"]["finalizers"] = json!(["example.com/other", "karpenter.sh/termination"]);
    let claim: NodeClaim = bench.seen(held).await;
    bench.write.delete_claim(&claim).await.unwrap();
    let deleted = bench.state.read().claim("a").cloned().unwrap();
    bench.write.release_claim(&deleted).await.unwrap();
    let left = bench.state.read().claim("a").unwrap().metadata.finalizers.clone();
    assert_eq!(left.unwrap(), ["example.com/other"]);
}

#[tokio::test(start_paused = true)]
async fn a_nodeclaim_that_does_not_parse_is_annotated_all_the_same() {
    let bench = Bench::new().await;
    let mut odd = nodeclaim("odd");
    odd["spec"]["requirements"] = json!([{ "key": "a", "operator": "Roughly" }]);
    let stored = bench.api.put::<NodeClaim>(odd);
    let metadata: ObjectMeta = serde_json::from_value(stored["metadata"].clone()).unwrap();
    let annotations = BTreeMap::from([("example.com/a", "b")]);
    bench.write.annotate_claim(&metadata, &annotations).await.unwrap();
    let annotated = bench.api.get::<NodeClaim>("odd");
    assert_eq!(annotated["metadata"]["annotations"]["example.com/a"], "b");
}

#[tokio::test(start_paused = true)]
async fn a_nodeclass_is_written_only_as_it_was_read() {
    let bench = Bench::new().await;
    let class = EC2NodeClass::new("default", EC2NodeClassSpec::default());
    let stored = bench.api.put::<EC2NodeClass>(serde_json::to_value(class).unwrap());
    let class: EC2NodeClass = serde_json::from_value(stored).unwrap();
    let finalizers = |all: Value| json!({ "metadata": { "finalizers": all } });
    let held = bench.write.patch_class(&class, finalizers(json!(["a"]))).await.unwrap();
    assert_eq!(held.metadata.finalizers.clone().unwrap(), ["a"]);
    let stale = bench.write.patch_class(&class, finalizers(json!(["b"]))).await.unwrap_err();
    assert!(stale.is_conflict(), "{stale:?}");
    let status = json!({ "instanceProfile": "demo" });
    let written = bench.write.patch_class_status(&held, status.clone()).await.unwrap();
    assert_eq!(written.status.unwrap().instance_profile.as_deref(), Some("demo"));
    assert!(bench.write.patch_class_status(&held, status).await.unwrap_err().is_conflict());
}

#[test]
fn a_drain_is_only_ever_shortened() {
    let by: Timestamp = "2026-11-20T12:05:00.7Z".parse().unwrap();
    let expected = Some("2026-11-20T12:05:00Z".to_owned());
    for later in [None, Some("2026-11-20T12:06:00Z"), Some("soon")] {
        assert_eq!(tightened(later, by), expected, "{later:?}");
    }
    for earlier in ["2026-11-20T12:05:00Z", "2026-11-20T12:04:00Z"] {
        assert_eq!(tightened(Some(earlier), by), None, "{earlier}");
    }
}
