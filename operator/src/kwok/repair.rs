//! What makes a pretended machine sick: upstream's conditions, two of which exist only to be set by
//! hand, and one of these is cured by a reboot.

use jiff::SignedDuration;
use tenon_planner::snapshot::{RepairAction, RepairPolicy};

/// The repair policies of Karpenter's kwok provider.
pub(super) fn policies() -> Vec<RepairPolicy> {
    let policy =
        |condition: &str, status: &str, reason: Option<&str>, tolerated, grace| RepairPolicy {
            condition: condition.to_owned(),
            status: status.to_owned(),
            reason: reason.map(str::to_owned),
            toleration: tolerated,
            termination_grace_period: Some(grace),
            priority: 0,
            action: RepairAction::ReplaceNode,
        };
    let (ten_minutes, half_a_minute) =
        (SignedDuration::from_mins(10), SignedDuration::from_secs(30));
    vec![
        policy("Ready", "False", None, ten_minutes, SignedDuration::ZERO),
        policy("Ready", "Unknown", Some(".*"), ten_minutes, SignedDuration::ZERO),
        policy("KWOKUnhealthy", "True", Some(".*"), half_a_minute, SignedDuration::from_secs(45)),
        RepairPolicy {
            action: RepairAction::RebootNode,
            ..policy(
                "KWOKRebootRequired",
                "True",
                Some(".*"),
                half_a_minute,
                SignedDuration::from_mins(1),
            )
        },
    ]
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_policies_are_a_valid_set() {
        assert_eq!(tenon_planner::repair::validate(&super::policies()), Ok(()));
    }
}
