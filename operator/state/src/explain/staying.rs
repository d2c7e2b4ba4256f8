//! Why nodes stay, in words.

use jiff::SignedDuration;
use tenon_planner::plan::{Score, StayReason};

/// Reason, message and window of the event that tells why a node stays; `None` for what needs no
/// telling.
pub fn staying(stay: &StayReason) -> Option<((&'static str, String), SignedDuration)> {
    const BLOCKED: &str = "DisruptionBlocked";
    const UNCONSOLIDATABLE: &str = "Unconsolidatable";
    let (reason, message) = match stay {
        StayReason::NotManaged | StayReason::Deleting | StayReason::NotConsolidatable | StayReason::Later => return None,
        StayReason::Changed(_) => return None,
        StayReason::NotInitialized => (BLOCKED, "Node isn't initialized".to_owned()),
        StayReason::Nominated => (BLOCKED, "Node is nominated for a pending pod".to_owned()),
        StayReason::DeletionRefused(message) => {
            (BLOCKED, format!("The API server refuses to delete the NodeClaim: {message}"))
        }
        StayReason::DoNotDisrupt => {
            (BLOCKED, "Disruption is blocked through the \"karpenter.sh/do-not-disrupt\" annotation".to_owned())
        }
        StayReason::PodDoNotDisrupt(pod) => (
            BLOCKED,
            format!("Pod has \"karpenter.sh/do-not-disrupt\" annotation (Pod={}/{})", pod.namespace, pod.name),
        ),
        StayReason::Pdb { pod, budget } => (
            BLOCKED,
            format!("Pdb prevents pod evictions (PodDisruptionBudget={}/{budget}, Pod={})", pod.namespace, pod.name),
        ),
        StayReason::PdbUsedUp { pod, budget } => (
            BLOCKED,
            format!(
                "Pdb allows no more pod evictions than those of nodes that are being disrupted already (PodDisruptionBudget={}/{budget}, Pod={})",
                pod.namespace, pod.name
            ),
        ),
        StayReason::MissingLabel(label) => (UNCONSOLIDATABLE, format!("Node does not have label \"{label}\"")),
        StayReason::Budget(reason) => {
            (BLOCKED, format!("No allowed disruptions for disruption reason {reason:?} due to blocking budget"))
        }
        StayReason::PodsDontFit(pod) => {
            (UNCONSOLIDATABLE, format!("Not all pods would schedule, {}/{}", pod.namespace, pod.name))
        }
        StayReason::WaitsForMachine(pod) => (
            UNCONSOLIDATABLE,
            format!("Pod {}/{} would schedule against uninitialized nodeclaim or node", pod.namespace, pod.name),
        ),
        StayReason::NeedsSeveralReplacements => {
            (UNCONSOLIDATABLE, "Can't remove without creating several candidates".to_owned())
        }
        StayReason::NothingCheaper => (UNCONSOLIDATABLE, "Can't replace with a cheaper node".to_owned()),
        StayReason::SpotToSpot => (
            UNCONSOLIDATABLE,
            "SpotToSpotConsolidation is disabled or has too few cheaper instance types, can't replace a spot node with a spot node".to_owned(),
        ),
        StayReason::NoStaticReplacement => (
            BLOCKED,
            "static NodePool is at its node limit and cannot stage a replacement".to_owned(),
        ),
        StayReason::StaticReservationsFull => (
            BLOCKED,
            "static NodePool's capacity reservations are full and cannot stage a replacement"
                .to_owned(),
        ),
        StayReason::StaticNotReady => (
            BLOCKED,
            "static NodePool is not ready and would not launch a replacement".to_owned(),
        ),
        StayReason::Rebooting => (BLOCKED, "Node is rebooting".to_owned()),
        StayReason::DoNotRepair => (
            BLOCKED,
            "repair is blocked through the \"karpenter.sh/do-not-repair\" annotation".to_owned(),
        ),
        StayReason::RepairNeedsNodePool => (
            BLOCKED,
            "repair requires a NodePool to construct and budget a safe replacement".to_owned(),
        ),
        StayReason::RepairNeedsGracePeriod(_) => (
            BLOCKED,
            "repair requires a termination grace period to bypass blocking pods".to_owned(),
        ),
        StayReason::TooManyUnhealthy { node_pool, .. } => (
            "NodeRepairBlocked",
            format!("more than 20% of nodes in nodepool \"{node_pool}\" are unhealthy"),
        ),
        StayReason::SavesTooLittle => {
            (UNCONSOLIDATABLE, "Savings do not outweigh the disruption".to_owned())
        }
        StayReason::ScoresTooLow(score) => (
            UNCONSOLIDATABLE,
            format!("Savings do not outweigh the disruption, {}", weighed(score)),
        ),
    };
    let window = if reason == BLOCKED { 2 } else { 15 };
    Some(((reason, message), SignedDuration::from_mins(window)))
}

/// What the policy Balanced makes of a move, in Karpenter's words.
pub fn weighed(score: &Score) -> String {
    let value = score.value();
    let sign = if value >= Score::THRESHOLD { ">=" } else { "<" };
    format!(
        "score {value:.2} {sign} threshold {:.2} (k: {:.0}, savings {:.1}%, disruption {:.1}%)",
        Score::THRESHOLD,
        Score::THRESHOLD.recip(),
        score.savings_share() * 100.0,
        score.disruption_share() * 100.0,
    )
}
