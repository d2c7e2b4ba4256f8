//! What triggers a batch.

use serde_json::json;
use tenon_crds::NodeClaim;
use tokio::time::{Instant, timeout};

use super::super::*;
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
