//! The condition ConsistentStateFound: whether a machine has what it was planned with. A node that
//! is smaller than promised is worth knowing about; what was planned onto it may not fit.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use tenon_crds::NodeClaim;
use tenon_crds::conditions::nodeclaim::{CONSISTENT_STATE_FOUND, INITIALIZED};

use super::{by_name, names};
use crate::claims::conditions;
use crate::cloud_provider::CloudProvider;
use crate::controller::{Affected, Reconciler};
use crate::events::{Event, Reason};
use crate::operator::Operator;
use crate::state::State;
use crate::state::change::Touched;
use crate::state::cluster::{Cluster, is_true};
use crate::state::resources::{amount, quantity};
use crate::watch::wire::Node;
use crate::work_queue::Action;
use crate::write::WriteError;

/// A machine is looked at so often at most.
const PERIOD: SignedDuration = SignedDuration::from_mins(10);

/// A node that has less than this share (in percent) of what was promised is not consistent.
const ENOUGH: i128 = 90;

/// When each NodeClaim (by name) was checked last.
type Checked = Mutex<BTreeMap<String, Timestamp>>;

/// Checks machines.
pub(crate) struct Consistency<P> {
    operator: Arc<Operator<P>>,
    checked: Checked,
}

impl<P> Consistency<P> {
    /// None was checked yet.
    pub(crate) fn new(operator: Arc<Operator<P>>) -> Self {
        Self { operator, checked: Checked::default() }
    }
}

impl<P: CloudProvider> Reconciler for Consistency<P> {
    const NAME: &'static str = "nodeclaim.consistency";
    type Key = String;
    type Error = WriteError;

    fn workers(&self) -> usize {
        self.operator.options.workers(10, 1000)
    }

    fn affected(&self, touched: &Touched, _: &State) -> Affected<String> {
        by_name(touched)
    }

    fn all(&self, state: &Cluster) -> Vec<String> {
        names(state)
    }

    async fn reconcile(&self, name: &String) -> Result<Action, WriteError> {
        reconcile(&self.operator, &self.checked, name).await
    }
}

async fn reconcile<P: CloudProvider>(
    operator: &Operator<P>,
    checked: &Checked,
    name: &str,
) -> Result<Action, WriteError> {
    // Dereference.
    let observed = {
        let state = operator.state.read();
        state.claim(name).cloned().map(|claim| {
            let node = state.node_of(&claim).cloned();
            (claim, node)
        })
    };
    let Some((claim, node)) = observed else {
        checked.lock().remove(name);
        return Ok(Action::Wait);
    };
    let going = claim.metadata.deletion_timestamp.is_some();
    let Some(node) = node.filter(|_| is_true(&claim, INITIALIZED) && !going) else {
        return Ok(Action::Wait);
    };
    let now = operator.now();
    if let Some(&last) = checked.lock().get(name) {
        let left = PERIOD - now.duration_since(last);
        if left.is_positive() {
            return Ok(Action::After(left.unsigned_abs()));
        }
    }

    // Validate and build.
    let shortfall = shortfall(&claim, &node);
    let mut after = (*claim).clone();
    let mut set = conditions(&mut after, now);
    match &shortfall {
        None => set.set_true(CONSISTENT_STATE_FOUND),
        Some(message) => set.set_false(CONSISTENT_STATE_FOUND, "ConsistencyCheckFailed", message),
    };

    // Update the status.
    if let Some(message) = shortfall {
        tracing::error!(nodeclaim = name, node = node.name(), message, "consistency error");
        operator.context.recorder.publish(Event::warning(
            &*claim,
            Reason::FailedConsistencyCheck,
            message,
        ));
    }
    if after.status != claim.status {
        operator.write.patch_claim_status(&after).await?;
    }
    checked.lock().insert(name.to_owned(), now);
    Ok(Action::After(PERIOD.unsigned_abs()))
}

/// Says of a NodeClaim that is being initialised that its Node has what was promised, if that is
/// so: with the same write. What is amiss is found later.
pub(super) fn confirm(claim: &mut NodeClaim, node: &Node, now: Timestamp) {
    if shortfall(claim, node).is_none() {
        conditions(claim, now).set_true(CONSISTENT_STATE_FOUND);
    }
}

/// What the node lacks of what was promised and asked for; `None` when it has enough.
fn shortfall(claim: &NodeClaim, node: &Node) -> Option<String> {
    let promised = &claim.status.as_ref()?.capacity;
    claim.spec.resources.requests.keys().find_map(|resource| {
        let expected = amount(resource, *promised.get(resource)?);
        let found = node.status.capacity.get(resource).map_or(0, |&there| amount(resource, there));
        let short = i128::from(found) * 100 < i128::from(expected) * ENOUGH;
        short.then(|| {
            format!(
                "expected {} of resource {resource}, but found {} ({}% of expected)",
                quantity(resource, expected),
                quantity(resource, found),
                i128::from(found) * 100 / i128::from(expected),
            )
        })
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tenon_crds::{NodeClaimSpec, NodeClaimStatus, ResourceList};

    use super::*;

    #[test]
    fn a_node_with_less_than_nine_tenths_of_what_was_promised_is_not_consistent() {
        let mut claim = NodeClaim::new("a", NodeClaimSpec::default());
        Arc::make_mut(&mut claim.spec.resources.requests)
            .insert("memory".to_owned(), "1Gi".parse().unwrap());
        claim.status = Some(NodeClaimStatus {
            capacity: ResourceList::from([
                ("memory".to_owned(), "10Gi".parse().unwrap()),
                ("cpu".to_owned(), "4".parse().unwrap()),
            ])
            .into(),
            ..NodeClaimStatus::default()
        });
        let node = |memory: &str| -> Node {
            serde_json::from_value(json!({
                "metadata": {"name": "n"}, "status": {"capacity": {"memory": memory}},
            }))
            .unwrap()
        };
        assert_eq!(shortfall(&claim, &node("9Gi")), None, "CPU is not asked for");
        assert_eq!(
            shortfall(&claim, &node("8Gi")).as_deref(),
            Some("expected 10Gi of resource memory, but found 8Gi (80% of expected)")
        );
        Arc::make_mut(&mut claim.spec.resources.requests)
            .insert("nvidia.com/gpu".to_owned(), "1".parse().unwrap());
        assert_eq!(shortfall(&claim, &node("9Gi")), None, "it was not promised");
    }
}
