//! Expiration: a NodeClaim that is as old as its `expireAfter` is deleted, whatever runs on it; its drain is what takes care of the pods.

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tenon_crds::NodeClaim;
use tokio_util::sync::CancellationToken;

use super::{capacity_type_of, give_up, pods_to_move, pool_of, termination_mode};
use crate::cloud_provider::CloudProvider;
use crate::operator::Operator;
use crate::state::change::Touched;
use crate::state::cluster::name;
use crate::watch::wire::created_at;
use crate::work::{Action, Backoff, WorkQueue, settle};
use crate::write::WriteError;

const BACKOFF: Backoff = Backoff { min: Duration::from_secs(1), max: Duration::from_mins(1) };

/// Deletes expired NodeClaims until `stop`.
pub async fn run<P: CloudProvider>(operator: Arc<Operator<P>>, stop: CancellationToken) {
    let queue = WorkQueue::new();
    let sink = queue.clone();
    operator.state.subscribe(move |touched| {
        if let Touched::NodeClaim(name) = touched {
            sink.add(name.clone());
        }
    });
    for claim in operator.state.read().claims() {
        queue.add(name(&claim.metadata));
    }
    let workers = operator.options.workers(100, 1000);
    queue
        .run(workers, BACKOFF, stop, |name| {
            let operator = Arc::clone(&operator);
            async move {
                let result = reconcile(&operator, &name).await;
                settle(&operator.context, "nodeclaim.expiration", &name, result)
            }
        })
        .await;
}

async fn reconcile<P: CloudProvider>(
    operator: &Operator<P>,
    name: &str,
) -> Result<Action, WriteError> {
    let Some(claim) = operator.state.read().claim(name).cloned() else { return Ok(Action::Wait) };
    match expires(&claim, operator.now()) {
        Expires::Never => Ok(Action::Wait),
        Expires::In(left) => Ok(Action::After(left.unsigned_abs())),
        Expires::Now => {
            give_up(operator, &claim, "expired").await?;
            let pods = pods_to_move(operator, &claim);
            let metrics = &operator.context.metrics;
            metrics.pods_disruption_initiated.add(
                [
                    "expired",
                    pool_of(&claim),
                    capacity_type_of(&claim),
                    "",
                    termination_mode(&claim),
                ],
                pods,
            );
            Ok(Action::Wait)
        }
    }
}

/// When a NodeClaim expires.
#[derive(Debug, PartialEq, Eq)]
enum Expires {
    Never,
    In(SignedDuration),
    Now,
}

fn expires(claim: &NodeClaim, now: Timestamp) -> Expires {
    if claim.metadata.deletion_timestamp.is_some() {
        return Expires::Never;
    }
    let Some(after) = claim.spec.expire_after.duration() else { return Expires::Never };
    let left = after.as_signed() - now.duration_since(created_at(&claim.metadata));
    if left.is_positive() { Expires::In(left) } else { Expires::Now }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use tenon_crds::NillableDuration;

    #[test]
    fn a_nodeclaim_expires_by_its_own_time_and_once() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let mut claim = NodeClaim::new("a", tenon_crds::NodeClaimSpec::default());
        claim.metadata.creation_timestamp = Some(Time(at(0)));
        claim.spec.expire_after = NillableDuration::After("1h".parse().unwrap());
        assert_eq!(expires(&claim, at(3000)), Expires::In(SignedDuration::from_secs(600)));
        assert_eq!(expires(&claim, at(3600)), Expires::Now);
        claim.metadata.deletion_timestamp = Some(Time(at(3600)));
        assert_eq!(expires(&claim, at(3700)), Expires::Never);
        claim.metadata.deletion_timestamp = None;
        claim.spec.expire_after = NillableDuration::Never;
        assert_eq!(expires(&claim, at(1 << 37)), Expires::Never);
    }
}
