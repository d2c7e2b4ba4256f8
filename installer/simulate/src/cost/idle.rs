//! Idle capacity by what keeps its nodes from being removed or replaced by smaller ones.

use std::collections::BTreeMap;

use serde::Serialize;
use tenon_planner::plan::StayReason;

use crate::explain::Known;

/// Nodes whose idle capacity one reason keeps.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Idle {
    /// Why their nodes stay.
    pub reason: &'static str,
    /// How many there are.
    pub nodes: usize,
    /// What of their price no pod requests, in USD.
    pub idle_per_hour: f64,
}

/// Sums over nodes, given what of each node's price is idle.
pub(super) fn by_reason(known: Known<'_>, idle: &[f64]) -> Vec<Idle> {
    let Known { snapshot, plans, observed, .. } = known;
    let disrupt = plans.disrupt.iter();
    let staying = disrupt.clone().flat_map(|plan| &plan.report.nodes);
    let staying: BTreeMap<&str, &StayReason> =
        staying.map(|node| (node.node.as_str(), &node.reason)).collect();
    let mut sums: BTreeMap<&'static str, Idle> = BTreeMap::new();
    for (node, idle) in snapshot.nodes.iter().zip(idle) {
        let is_frozen = super::pool_of(node).is_some_and(|pool| observed.is_frozen(pool));
        let reason = match staying.get(node.key.as_str()) {
            _ if node.deleting => "they are being removed",
            _ if is_frozen => "`tenon freeze` paused their NodePools",
            Some(reason) => why(reason),
            // The plan has a command for it.
            None => "consolidation removes or replaces them next",
        };
        let sum = sums.entry(reason).or_insert(Idle { reason, nodes: 0, idle_per_hour: 0.0 });
        sum.nodes += 1;
        sum.idle_per_hour += idle;
    }
    let mut sums: Vec<Idle> = sums.into_values().collect();
    sums.sort_by(|a, b| b.idle_per_hour.total_cmp(&a.idle_per_hour));
    sums
}

/// The reason in words that are the same for many nodes.
fn why(reason: &StayReason) -> &'static str {
    use StayReason as Why;
    match reason {
        Why::NotManaged => "no NodePool manages them",
        Why::NotInitialized => "they are starting",
        Why::Deleting | Why::DeletionRefused(_) => "they are being removed",
        Why::Nominated => "pods are about to be bound to them",
        Why::DoNotDisrupt | Why::PodDoNotDisrupt(_) => {
            "karpenter.sh/do-not-disrupt on nodes or pods"
        }
        Why::Pdb { .. } | Why::PdbUsedUp { .. } => "PodDisruptionBudgets",
        Why::MissingLabel(_) => "labels are missing that their price depends on",
        Why::NotConsolidatable => "consolidateAfter or consolidationPolicy of their NodePools",
        Why::Budget(_) => "disruption budgets of their NodePools",
        Why::PodsDontFit(_)
        | Why::NeedsSeveralReplacements
        | Why::NothingCheaper
        | Why::WaitsForMachine(_) => "nothing cheaper holds their pods",
        Why::SpotToSpot => "spot nodes are not replaced by cheaper spot nodes",
        Why::Later | Why::Changed(_) => "consolidation removes or replaces them next",
        Why::SavesTooLittle | Why::ScoresTooLow(_) => "the savings do not outweigh the evictions",
        Why::NoStaticReplacement | Why::StaticReservationsFull | Why::StaticNotReady => {
            "their NodePools are static"
        }
        Why::Rebooting
        | Why::DoNotRepair
        | Why::RepairNeedsNodePool
        | Why::RepairNeedsGracePeriod(_)
        | Why::TooManyUnhealthy { .. } => "they are unhealthy",
    }
}
