//! What makes an EC2 machine sick, and how long that is tolerated.
//!
//! `Ready` is what the kubelet says of itself; the other conditions come from EKS' node monitoring
//! agent. Every policy deletes what is left on the machine at once, when its replacement is ready:
//! who runs on a sick machine can't count on an orderly end.

use jiff::SignedDuration;
use tenon_planner::snapshot::{RepairAction, RepairPolicy};

/// Any reason; only the fallback of the set has none.
const ANY: Option<&str> = Some(".*");

/// Condition, status, reason, and the minutes that it is tolerated.
const CONDITIONS: [(&str, &str, Option<&str>, i64); 7] = [
    ("Ready", "False", None, 30),
    ("Ready", "Unknown", ANY, 30),
    ("AcceleratedHardwareReady", "False", ANY, 10),
    ("StorageReady", "False", ANY, 30),
    ("NetworkingReady", "False", ANY, 30),
    ("KernelReady", "False", ANY, 30),
    ("ContainerRuntimeReady", "False", ANY, 30),
];

/// The repair policies of EKS' node monitoring agent, as in Karpenter.
pub(super) fn policies() -> Vec<RepairPolicy> {
    let policy =
        |&(condition, status, reason, minutes): &(&str, &str, Option<&str>, i64)| RepairPolicy {
            condition: condition.to_owned(),
            status: status.to_owned(),
            reason: reason.map(str::to_owned),
            toleration: SignedDuration::from_mins(minutes),
            termination_grace_period: Some(SignedDuration::ZERO),
            priority: 0,
            action: RepairAction::ReplaceNode,
        };
    CONDITIONS.iter().map(policy).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_policies_are_a_valid_set_with_upstreams_conditions_and_times() {
        let policies = policies();
        assert_eq!(tenon_planner::repair::validate(&policies), Ok(()));
        let minutes: Vec<_> = policies
            .iter()
            .map(|it| (it.condition.as_str(), it.status.as_str(), it.toleration.as_mins()))
            .collect();
        assert_eq!(minutes[0], ("Ready", "False", 30));
        assert_eq!(minutes[1], ("Ready", "Unknown", 30));
        assert_eq!(minutes[2], ("AcceleratedHardwareReady", "False", 10));
        assert_eq!(minutes[3], ("StorageReady", "False", 30));
        assert_eq!(minutes.len(), 7);
    }
}
