//! When to plan: not in the middle of a movement.
//!
//! While pods are being deleted or evicted, a plan knows neither all nodes that may go nor where
//! the pods will be. What it finds is little, or is abandoned by its validation, and each small
//! wave of evictions makes the nodes that receive its pods wait for `consolidateAfter` once more.
//! So a pass waits for a moment until the movement is over.

use jiff::{SignedDuration, Timestamp};
use tokio_util::sync::CancellationToken;

use crate::cloud_provider::CloudProvider;
use crate::operator::Operator;

/// A pass waits no longer: in some clusters there is always a movement.
const PATIENCE: SignedDuration = SignedDuration::from_secs(15);

/// Waits until no pods of running commands are on their way, and no node is about to be
/// consolidatable; [`PATIENCE`] at most.
pub(super) async fn wait<P: CloudProvider>(operator: &Operator<P>, stop: &CancellationToken) {
    let patience = operator.now().checked_add(PATIENCE).unwrap_or(Timestamp::MAX);
    loop {
        // What happens after this line ends them.
        let evictions = operator.eviction_order.progress();
        let conditions = operator.settling.progress();
        let now = operator.now();
        let until = operator
            .eviction_order
            .moves_until(now)
            .max(operator.settling.settles_until(now, patience))
            .map(|until| until.min(patience).duration_since(now).unsigned_abs());
        let Some(left) = until.filter(|_| now < patience) else { return };
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(left) => {}
            () = evictions => {}
            () = conditions => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use serde_json::json;
    use tokio::time::Instant;

    use super::*;
    use crate::testing::idle::{Idle, machine, operator, pool};

    async fn waited_for(operator: &Operator<Idle>) -> Duration {
        let began = Instant::now();
        wait(operator, &CancellationToken::new()).await;
        began.elapsed()
    }

    async fn idle() -> Arc<Operator<Idle>> {
        let [claim, node] = machine("a", "default");
        operator(vec![pool("default", json!({})), claim, node]).await.0
    }

    #[tokio::test(start_paused = true)]
    async fn a_pass_waits_for_nodes_that_are_about_to_be_consolidatable() {
        let operator = idle().await;
        assert_eq!(waited_for(&operator).await, Duration::ZERO);
        let after = |seconds| Some(operator.now() + SignedDuration::from_secs(seconds));
        // Too far away: nobody waits for that.
        operator.settling.note("a", after(16));
        assert_eq!(waited_for(&operator).await, Duration::ZERO);
        // The condition is written three seconds later.
        operator.settling.note("a", after(2));
        let written = async {
            tokio::time::sleep(Duration::from_millis(2_900)).await;
            operator.settling.note("a", None);
        };
        let (waited, ()) = tokio::join!(waited_for(&operator), written);
        assert_eq!(waited, Duration::from_millis(2_900));
        // A condition that is refused delays one pass, and not every one.
        operator.settling.note("a", after(0));
        assert_eq!(waited_for(&operator).await, Duration::from_secs(10));
        assert_eq!(waited_for(&operator).await, Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn a_pass_waits_for_pods_that_are_being_evicted_but_not_for_ever() {
        let operator = idle().await;
        operator.eviction_order.expect([("small".into(), 1)].into_iter(), operator.now());
        let evicted = async {
            tokio::time::sleep(Duration::from_millis(900)).await;
            let owner = "/replicasets/web".into();
            operator.eviction_order.evicted("small", Some(&owner), operator.now());
            tokio::time::sleep(Duration::from_millis(900)).await;
            operator.eviction_order.tried(&"new".into(), "/replicasets/web", operator.now());
        };
        let (waited_for_pods, ()) = tokio::join!(waited_for(&operator), evicted);
        assert_eq!(waited_for_pods, Duration::from_millis(1_800));
        operator.eviction_order.expect([("stuck".into(), 1)].into_iter(), operator.now());
        assert_eq!(waited_for(&operator).await, PATIENCE.unsigned_abs());
        let stop = CancellationToken::new();
        stop.cancel();
        let began = Instant::now();
        wait(&operator, &stop).await;
        assert_eq!(began.elapsed(), Duration::ZERO);
    }
}
