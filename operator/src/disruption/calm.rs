//! When to plan: not in the middle of a movement.
//!
//! While pods are being deleted or evicted, a plan knows neither all nodes that may go nor where
//! the pods will be. What it finds is little, or is abandoned by its validation, and each small wave
//! of evictions makes the nodes that receive its pods wait for `consolidateAfter` once more. So a
//! pass waits for a moment until the movement is over.

use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::cloud_provider::CloudProvider;
use crate::operator::Operator;

/// A pass waits no longer: in some clusters there is always a movement.
pub(super) const PATIENCE: Duration = Duration::from_secs(15);
/// How often to look.
const STEP: Duration = Duration::from_millis(500);

/// Waits until no pods of running commands are on their way, and no node is about to be
/// consolidatable; [`PATIENCE`] at most.
pub(super) async fn wait<P: CloudProvider>(operator: &Operator<P>, stop: &CancellationToken) {
    let until = Instant::now() + PATIENCE;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() || !is_moving(operator, left) {
            return;
        }
        if stop.run_until_cancelled(tokio::time::sleep(STEP.min(left))).await.is_none() {
            return;
        }
    }
}

fn is_moving<P: CloudProvider>(operator: &Operator<P>, left: Duration) -> bool {
    let now = operator.now();
    operator.eviction_order.is_moving(now)
        || now.checked_add(left).is_ok_and(|until| operator.settling.any_by(until))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;
    use crate::testing::idle::{Idle, machine, operator, pool};

    async fn waited(operator: &Operator<Idle>) -> Duration {
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
        assert_eq!(waited(&operator).await, Duration::ZERO);
        let after = |seconds| Some(operator.now() + jiff::SignedDuration::from_secs(seconds));
        // Too far away: nobody waits for that.
        operator.settling.note("a", after(16));
        assert_eq!(waited(&operator).await, Duration::ZERO);
        // The condition is written three seconds later.
        operator.settling.note("a", after(2));
        let written = async {
            tokio::time::sleep(Duration::from_millis(2_900)).await;
            operator.settling.note("a", None);
        };
        let (waited, ()) = tokio::join!(waited(&operator), written);
        assert_eq!(waited, Duration::from_secs(3));
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
        let (waited_for_pods, ()) = tokio::join!(waited(&operator), evicted);
        assert_eq!(waited_for_pods, Duration::from_secs(2));
        operator.eviction_order.expect([("stuck".into(), 1)].into_iter(), operator.now());
        assert_eq!(waited(&operator).await, PATIENCE);
        let stop = CancellationToken::new();
        stop.cancel();
        let began = Instant::now();
        wait(&operator, &stop).await;
        assert_eq!(began.elapsed(), Duration::ZERO);
    }
}
