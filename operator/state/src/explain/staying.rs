//! Why nodes stay, in words.

use jiff::SignedDuration;
use tenon_planner::plan::{Score, Stay};

/// Reason, message and window of the event that tells why a node stays; `None` for what needs no
/// telling.
pub fn staying(stay: &Stay) -> Option<((&'static str, String), SignedDuration)> {
    const BLOCKED: &str = "DisruptionBlocked";
    const UNCONSOLIDATABLE: &str = "Unconsolidatable";
    let (reason, message) = match stay {
        Stay::NotManaged | Stay::Deleting | Stay::NotConsolidatable | Stay::Later => return None,
        Stay::Changed(_) => return None,
        Stay::NotInitialized => (BLOCKED, "Node isn't initialized".to_owned()),
        Stay::Nominated => (BLOCKED, "Node is nominated for a pending pod".to_owned()),
        Stay::DeletionRefused(message) => {
            (BLOCKED, format!("The API server refuses to delete the NodeClaim: {message}"))
        }
        Stay::DoNotDisrupt => {
            (BLOCKED, "Disruption is blocked through the \"karpenter.sh/do-not-disrupt\" annotation".to_owned())
        }
        Stay::PodDoNotDisrupt(pod) => (
            BLOCKED,
            format!("Pod has \"karpenter.sh/do-not-disrupt\" annotation (Pod={}/{})", pod.namespace, pod.name),
        ),
        Stay::Pdb { pod, budget } => (
            BLOCKED,
            format!("Pdb prevents pod evictions (PodDisruptionBudget={}/{budget}, Pod={})", pod.namespace, pod.name),
        ),
        Stay::PdbUsedUp { pod, budget } => (
            BLOCKED,
            format!(
                "Pdb allows no more pod evictions than those of nodes that are being disrupted already (PodDisruptionBudget={}/{budget}, Pod={})",
                pod.namespace, pod.name
            ),
        ),
        Stay::MissingLabel(label) => (UNCONSOLIDATABLE, format!("Node does not have label \"{label}\"")),
        Stay::Budget(reason) => {
            (BLOCKED, format!("No allowed disruptions for disruption reason {reason:?} due to blocking budget"))
        }
        Stay::PodsDontFit(pod) => {
            (UNCONSOLIDATABLE, format!("Not all pods would schedule, {}/{}", pod.namespace, pod.name))
        }
        Stay::WaitsForMachine(pod) => (
            UNCONSOLIDATABLE,
            format!("Pod {}/{} would schedule against uninitialized nodeclaim or node", pod.namespace, pod.name),
        ),
        Stay::NeedsSeveralReplacements => {
            (UNCONSOLIDATABLE, "Can't remove without creating several candidates".to_owned())
        }
        Stay::NothingCheaper => (UNCONSOLIDATABLE, "Can't replace with a cheaper node".to_owned()),
        Stay::SpotToSpot => (
            UNCONSOLIDATABLE,
            "SpotToSpotConsolidation is disabled or has too few cheaper instance types, can't replace a spot node with a spot node".to_owned(),
        ),
        Stay::NoStaticReplacement => (
            BLOCKED,
            "static NodePool is at its node limit and cannot stage a replacement".to_owned(),
        ),
        Stay::StaticReservationsFull => (
            BLOCKED,
            "static NodePool's capacity reservations are full and cannot stage a replacement"
                .to_owned(),
        ),
        Stay::StaticNotReady => (
            BLOCKED,
            "static NodePool is not ready and would not launch a replacement".to_owned(),
        ),
        Stay::Rebooting => (BLOCKED, "Node is rebooting".to_owned()),
        Stay::DoNotRepair => (
            BLOCKED,
            "repair is blocked through the \"karpenter.sh/do-not-repair\" annotation".to_owned(),
        ),
        Stay::RepairNeedsNodePool => (
            BLOCKED,
            "repair requires a NodePool to construct and budget a safe replacement".to_owned(),
        ),
        Stay::RepairNeedsGracePeriod(_) => (
            BLOCKED,
            "repair requires a termination grace period to bypass blocking pods".to_owned(),
        ),
        Stay::TooManyUnhealthy { node_pool, .. } => (
            "NodeRepairBlocked",
            format!("more than 20% of nodes in nodepool \"{node_pool}\" are unhealthy"),
        ),
        Stay::SavesTooLittle => {
            (UNCONSOLIDATABLE, "Savings do not outweigh the disruption".to_owned())
        }
        Stay::ScoresTooLow(score) => (
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
