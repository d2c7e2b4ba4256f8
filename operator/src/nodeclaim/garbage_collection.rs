//! NodeClaims whose machine is gone: they are deleted, so that their pods get another one.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tenon_crds::NodeClaim;
use tenon_crds::conditions::nodeclaim::REGISTERED;

use crate::actuate::claims::{give_up, pods_to_move};
use crate::claims::{capacity_type_of, pool_of, termination_mode};
use crate::cloud_provider::{CloudError, CloudProvider};
use crate::controller::Periodic;
use crate::decisions::Cause;
use crate::operator::Operator;
use crate::state::cluster::{Cluster, is_true, name};
use crate::work_queue::{Failure as _, log_concern};

/// How often the machines are listed.
const PERIOD: Duration = Duration::from_mins(2);

/// Collects NodeClaims without machines.
pub(crate) struct GarbageCollection<P>(pub(crate) Arc<Operator<P>>);

impl<P: CloudProvider> Periodic for GarbageCollection<P> {
    const NAME: &'static str = "nodeclaim.garbagecollection";

    async fn pass(&mut self) -> Duration {
        collect(&self.0).await;
        PERIOD
    }
}

async fn collect<P: CloudProvider>(operator: &Operator<P>) {
    // NodeClaims first: what is launched after this can't be mistaken for gone.
    let claims: Vec<Arc<NodeClaim>> = operator.state.read().claims().cloned().collect();
    let machines = match operator.cloud.list().await {
        Ok(machines) => machines,
        Err(error) => {
            let (concern, error) = (error.concern(), crate::text::chain(&error));
            log_concern!(concern, error, "failed to list instances");
            operator.context.metrics.reconcile_errors.inc(["nodeclaim.garbagecollection", "list"]);
            return;
        }
    };
    let running: BTreeSet<&str> = machines
        .iter()
        .filter(|machine| !machine.terminating)
        .map(|machine| machine.provider_id.as_str())
        .collect();
    let gone: Vec<Arc<NodeClaim>> = {
        let state = operator.state.read();
        claims.into_iter().filter(|claim| is_gone(&state, claim, &running)).collect()
    };
    for claim in gone {
        if !is_confirmed(operator, &claim).await {
            continue;
        }
        let pods = pods_to_move(operator, &claim);
        if let Err(error) = give_up(operator, &claim, "garbage_collected", Cause::NoInstance).await
        {
            log_concern!(
                error.concern(),
                nodeclaim = name(&claim.metadata),
                error = %crate::text::chain(&error),
                "failed to garbage collect a nodeclaim"
            );
            continue;
        }
        let labels = [
            "garbage_collected",
            pool_of(&claim),
            capacity_type_of(&claim),
            "",
            termination_mode(&claim),
        ];
        operator.context.metrics.pods_disruption_initiated.add(labels, pods);
    }
}

/// Whether the cloud says of this very machine, too, that it does not run. A list may leave out
/// what it should have.
async fn is_confirmed<P: CloudProvider>(operator: &Operator<P>, claim: &NodeClaim) -> bool {
    let Some(id) = claim.provider_id() else { return false };
    match operator.cloud.get(id).await {
        Ok(machine) => machine.terminating,
        Err(CloudError::NotFound(_)) => true,
        Err(error) => {
            let error = crate::text::chain(&error);
            tracing::warn!(
                provider_id = id,
                error,
                "not garbage collecting a nodeclaim: its instance may exist"
            );
            false
        }
    }
}

/// Whether the machine of a NodeClaim, which did join, does not run any more. A Node that is Ready
/// proves the list wrong.
fn is_gone(state: &Cluster, claim: &NodeClaim, running: &BTreeSet<&str>) -> bool {
    let Some(id) = claim.provider_id() else { return false };
    let lives = claim.metadata.deletion_timestamp.is_none() && is_true(claim, REGISTERED);
    lives && !running.contains(id) && !state.node_of(claim).is_some_and(|node| node.is_ready())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claims::conditions;
    use crate::cloud_provider::NodeClassKind;
    use crate::state::change::{Change, Object};
    use jiff::Timestamp;
    use serde_json::json;
    use tenon_crds::labels::LabelRules;

    const KINDS: &[NodeClassKind] = &[NodeClassKind { group: "g", kind: "k", label: "g/k" }];

    #[test]
    fn only_a_machine_that_joined_and_is_neither_listed_nor_ready_is_gone() {
        let mut claim = NodeClaim::new("a", tenon_crds::NodeClaimSpec::default());
        claim.status.get_or_insert_default().provider_id = Some("test:///a".to_owned());
        let mut cluster = Cluster::new(KINDS, LabelRules::core());
        let nothing = BTreeSet::new();
        assert!(!is_gone(&cluster, &claim, &nothing), "it has not joined");
        conditions(&mut claim, Timestamp::UNIX_EPOCH).set_true(REGISTERED);
        assert!(is_gone(&cluster, &claim, &nothing));
        assert!(!is_gone(&cluster, &claim, &BTreeSet::from(["test:///a"])));
        for (status, expected) in [("True", false), ("Unknown", true)] {
            let node = serde_json::from_value(json!({
                "metadata": {"name": "n"}, "spec": {"providerID": "test:///a"},
                "status": {"conditions": [{"type": "Ready", "status": status}]},
            }));
            cluster.apply(Change::Applied(Object::Node(Box::new(node.unwrap()))));
            assert_eq!(
                is_gone(&cluster, &claim, &nothing),
                expected,
                "the node's Ready is {status}"
            );
        }
    }
}
