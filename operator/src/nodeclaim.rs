//! NodeClaims: from the request for a machine to its end.

pub mod consistency;
pub mod disruption;
pub mod expiration;
pub mod garbage_collection;
pub mod lifecycle;
mod pod_events;
pub mod reboot;

use jiff::Timestamp;
use tenon_crds::conditions::{Conditions, Subject, nodeclaim};
use tenon_crds::{NodeClaim, labels};

use crate::cloud_provider::CloudProvider;
use crate::controller::Affected;
use crate::operator::Operator;
use crate::state::change::Touched;
use crate::state::cluster::{Cluster, label, name};
use crate::write::WriteError;

/// The conditions of a NodeClaim.
pub fn conditions(claim: &mut NodeClaim, now: Timestamp) -> Conditions<'_> {
    let subject = Subject::of(&claim.metadata);
    let list = &mut claim.status.get_or_insert_default().conditions;
    Conditions::new(nodeclaim::TYPES, list, subject, now)
}

/// For who looks at a NodeClaim when it has changed.
fn by_name(touched: &Touched) -> Affected<String> {
    match touched {
        Touched::NodeClaim(name) => Affected::One(name.clone()),
        _ => Affected::None,
    }
}

/// The names of all NodeClaims.
fn names(state: &Cluster) -> Vec<String> {
    state.claims().map(|claim| name(&claim.metadata)).collect()
}

/// The NodePool of a NodeClaim; empty when it has none.
pub fn pool_of(claim: &NodeClaim) -> &str {
    label(claim, labels::NODEPOOL).unwrap_or_default()
}

/// The capacity type of a NodeClaim; empty until it is launched.
pub fn capacity_type_of(claim: &NodeClaim) -> &str {
    label(claim, labels::CAPACITY_TYPE).unwrap_or_default()
}

/// How the machine of a NodeClaim ends, as metrics label it.
pub fn termination_mode(claim: &NodeClaim) -> &'static str {
    match &claim.spec.termination_grace_period {
        None => "graceful",
        Some(period) if period.as_nanos() <= 0 => "forceful",
        Some(_) => "eventual",
    }
}

/// Deletes a NodeClaim for a reason that no user asked for, and counts it.
pub(crate) async fn give_up<P: CloudProvider>(
    operator: &Operator<P>,
    claim: &NodeClaim,
    reason: &'static str,
) -> Result<(), WriteError> {
    operator.write.delete_claim(claim).await?;
    let (pool, capacity_type) = (pool_of(claim), capacity_type_of(claim));
    tracing::info!(
        nodeclaim = name(&claim.metadata),
        nodepool = pool,
        reason,
        "deleting nodeclaim"
    );
    let labels = [reason, pool, capacity_type, "", termination_mode(claim)];
    operator.context.metrics.nodeclaims_disrupted.inc(labels);
    Ok(())
}

/// How many pods have to find a place elsewhere when the NodeClaim's node goes.
pub(crate) fn pods_to_move<P: CloudProvider>(operator: &Operator<P>, claim: &NodeClaim) -> u64 {
    let state = operator.state.read();
    let node = state.node_of(claim);
    let pods = node.into_iter().flat_map(|node| state.pods_on(node.name()));
    let n_pods = pods.filter(|(_, pod)| pod.is_reschedulable()).count();
    u64::try_from(n_pods).unwrap_or(u64::MAX)
}
