//! Expiration: a NodeClaim that is as old as its `expireAfter` is deleted, whatever runs on it; its
//! drain is what takes care of the pods.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use tenon_crds::NodeClaim;

use super::{by_name, names};
use crate::actuate::claims::{give_up, pods_to_move};
use crate::claims::{capacity_type_of, pool_of, termination_mode};
use crate::cloud_provider::CloudProvider;
use crate::controller::{Affected, Reconciler};
use crate::decisions::Cause;
use crate::operator::Operator;
use crate::state::State;
use crate::state::change::Touched;
use crate::state::cluster::Cluster;
use crate::watch::wire::created_at;
use crate::work_queue::Action;
use crate::write::WriteError;

/// Deletes expired NodeClaims.
pub(crate) struct Expiration<P>(pub(crate) Arc<Operator<P>>);

impl<P: CloudProvider> Reconciler for Expiration<P> {
    const NAME: &'static str = "nodeclaim.expiration";
    type Key = String;
    type Error = WriteError;

    fn workers(&self) -> usize {
        self.0.options.workers(100, 1000)
    }

    fn affected(&self, touched: &Touched, _: &State) -> Affected<String> {
        by_name(touched)
    }

    fn all(&self, state: &Cluster) -> Vec<String> {
        names(state)
    }

    async fn reconcile(&self, name: &String) -> Result<Action, WriteError> {
        reconcile(&self.0, name).await
    }
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
            let after = claim.spec.expire_after.duration().map(tenon_crds::Duration::as_signed);
            give_up(operator, &claim, "expired", Cause::Expired(after)).await?;
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
