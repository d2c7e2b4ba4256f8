//! What NodeClaims say about themselves.

use jiff::Timestamp;
use tenon_crds::conditions::{Conditions, Subject, nodeclaim};
use tenon_crds::{NodeClaim, labels};
use tenon_state::cluster::label;

/// The conditions of a NodeClaim.
pub(crate) fn conditions(claim: &mut NodeClaim, now: Timestamp) -> Conditions<'_> {
    let subject = Subject::of(&claim.metadata);
    let list = &mut claim.status.get_or_insert_default().conditions;
    Conditions::new(nodeclaim::TYPES, list, subject, now)
}

/// The NodePool of a NodeClaim; empty when it has none.
pub(crate) fn pool_of(claim: &NodeClaim) -> &str {
    label(claim, labels::NODEPOOL).unwrap_or_default()
}

/// The capacity type of a NodeClaim; empty until it is launched.
pub(crate) fn capacity_type_of(claim: &NodeClaim) -> &str {
    label(claim, labels::CAPACITY_TYPE).unwrap_or_default()
}

/// How the machine of a NodeClaim ends, as metrics label it.
pub(crate) fn termination_mode(claim: &NodeClaim) -> &'static str {
    match &claim.spec.termination_grace_period {
        None => "graceful",
        Some(period) if period.as_nanos() <= 0 => "forceful",
        Some(_) => "eventual",
    }
}
