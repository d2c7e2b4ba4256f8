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

/// What to write for the end of a drain that has to be over `by`, `None` when what is `set` is no
/// later. What can't be read counts as not set.
pub(crate) fn tightened(set: Option<&str>, by: Timestamp) -> Option<String> {
    let text = tenon_crds::Timestamp(by).to_string();
    // Both as they are written, in whole seconds.
    let by: Timestamp = text.parse().unwrap_or(by);
    let earlier = set.and_then(|set| set.parse::<Timestamp>().ok()).is_some_and(|set| set <= by);
    (!earlier).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drain_is_only_ever_shortened() {
        let by: Timestamp = "2026-11-20T12:05:00.7Z".parse().unwrap();
        let expected = Some("2026-11-20T12:05:00Z".to_owned());
        for later in [None, Some("2026-11-20T12:06:00Z"), Some("soon")] {
            assert_eq!(tightened(later, by), expected, "{later:?}");
        }
        for earlier in ["2026-11-20T12:05:00Z", "2026-11-20T12:04:00Z"] {
            assert_eq!(tightened(Some(earlier), by), None, "{earlier}");
        }
    }
}
