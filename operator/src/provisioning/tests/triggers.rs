//! What triggers a batch.

use serde_json::json;
use tenon_crds::NodeClaim;
use tokio::time::{Instant, timeout};

use super::super::*;
use crate::state::change::{Change, ObjectKey, Watched as _};
use crate::testing::bench::{Bench, node, nodeclaim};
use crate::write::Precondition;

const LONG: Duration = Duration::from_mins(1);

fn listening(bench: &Bench) -> Batcher {
    let batcher = Batcher::new(Duration::from_secs(1), Duration::from_secs(10));
    listen(&bench.state, &batcher);
    batcher
}

#[tokio::test(start_paused = true)]
async fn a_nodeclaim_that_begins_to_go_is_planned_for_at_once_and_only_then() {
    let bench = Bench::new().await;
    let claim: NodeClaim = bench.seen(nodeclaim("a")).await;
    let batcher = listening(&bench);
    bench.write.patch_claim(&claim, json!({}), Precondition::SameUid).await.unwrap();
    assert!(timeout(LONG, batcher.wait(|| false)).await.is_err(), "nothing goes");
    let began = Instant::now();
    bench.write.delete_claim(&claim).await.unwrap();
    batcher.hurry();
    batcher.wait(|| false).await;
    assert!(began.elapsed() < Duration::from_millis(200), "{:?}", began.elapsed());
    bench.write.patch_claim(&claim, json!({}), Precondition::SameUid).await.unwrap();
    assert!(timeout(LONG, batcher.wait(|| false)).await.is_err(), "that it goes is no news");
    let deleted = bench.state.read().claim("a").cloned().unwrap();
    bench.write.release_claim(&deleted).await.unwrap();
    assert!(timeout(LONG, batcher.wait(|| false)).await.is_err(), "it is gone");
    // Another one of that name is another machine.
    let claim: NodeClaim = bench.seen(nodeclaim("a")).await;
    bench.write.delete_claim(&claim).await.unwrap();
    batcher.wait(|| false).await;
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_fenced_off_or_deleted_is_planned_for() {
    let bench = Bench::new().await;
    let batcher = listening(&bench);
    let fenced: wire::Node = bench.seen(node("a")).await;
    assert!(timeout(LONG, batcher.wait(|| false)).await.is_err(), "it only came");
    let taint = json!({ "key": labels::DISRUPTED_TAINT, "effect": "NoSchedule" });
    let body = json!({ "spec": { "taints": [taint] } });
    bench.write.patch_node(&fenced, &body).await.unwrap();
    batcher.wait(|| false).await;
    let mut deleted = node("b");
    deleted["metadata"]["deletionTimestamp"] = json!("2026-11-20T00:00:00Z");
    bench.seen::<wire::Node>(deleted).await;
    batcher.wait(|| false).await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_with_affinity_that_is_bound_elsewhere_than_planned_is_news() {
    for (near, on, is_news) in [(true, "b", true), (true, "a", false), (false, "b", false)] {
        let bench = Bench::new().await;
        for name in ["a", "b"] {
            bench.seen::<NodeClaim>(nodeclaim(name)).await;
            bench.seen::<wire::Node>(node(name)).await;
        }
        let term = json!({"topologyKey": "topology.kubernetes.io/zone", "labelSelector": {}});
        let near = if near { vec![term] } else { vec![] };
        let required = "requiredDuringSchedulingIgnoredDuringExecution";
        let pod = |version: u64, node: Option<&str>| {
            json!({
                "apiVersion": "v1", "kind": "Pod",
                "metadata": {"name": "x", "namespace": "default", "uid": "x",
                    "resourceVersion": version.to_string()},
                "spec": {"nodeName": node, "containers": [],
                    "affinity": {"podAffinity": {required: near.clone()}}},
            })
        };
        let see = async |pod: serde_json::Value| {
            let pod: wire::Pod = serde_json::from_value(pod).unwrap();
            bench.state.apply(Change::Applied(pod.into_object())).await;
        };
        see(pod(1, None)).await;
        let key = ObjectKey::new("default", "x");
        bench.state.apply(Change::Planned([(key, "a".to_owned())].into(), Timestamp::MIN)).await;
        let batcher = listening(&bench);
        see(pod(2, Some(on))).await;
        let planned = timeout(LONG, batcher.wait(|| false)).await.is_ok();
        assert_eq!(planned, is_news, "{near:?}, bound to {on}");
    }
}
