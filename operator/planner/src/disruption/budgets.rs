//! Budgets: how many nodes of a pool may go now, for which reason, and how many pods of a
//! PodDisruptionBudget.
//!
//! A node is tainted when its command starts, and takes no pods from then on. Where a
//! PodDisruptionBudget lets one pod go at a time, all nodes with such pods but one would stand
//! there tainted and wait: so no more of them go at once than can be drained.

use std::collections::BTreeMap;

use super::candidates::Node;
use crate::launch::pod_ref;
use crate::plan::StayReason;
use crate::snapshot::{
    Budget, BudgetNodes, DisruptionReason, NodePhase, Placement, PodBudget, Snapshot,
};

/// The budgets of all pools, and PodDisruptionBudgets.
#[derive(Clone, Debug)]
pub(super) struct Budgets {
    pools: Vec<PoolBudget>,
    /// How many pods of each PodDisruptionBudget are on nodes that go.
    going_pods: Vec<u32>,
}

#[derive(Clone, Debug)]
struct PoolBudget {
    budgets: Vec<Budget>,
    /// Nodes that count for percentages.
    nodes: u32,
    /// Nodes that are going already, or being rebooted.
    going: u32,
    /// Others that are not ready.
    not_ready: u32,
}

/// How far a pool's budgets are used up for a reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BudgetUse {
    /// The NodePool.
    pub node_pool: String,
    /// The budgets that limit this reason are counted.
    pub reason: DisruptionReason,
    /// Nodes of the pool that are initialised, or being rebooted.
    pub nodes: u32,
    /// How many of them may go at the same time; [`u32::MAX`] without a bound.
    pub allowed: u32,
    /// How many are going already, being rebooted or, unless it is for repair, not ready.
    pub disrupting: u32,
}

/// How far the budgets of all pools are used up, in the order of the snapshot's pools.
pub fn budget_uses(snapshot: &Snapshot) -> Vec<BudgetUse> {
    let names = snapshot.node_pools.iter().map(|pool| pool.name.as_str());
    Budgets::new(snapshot).uses(names).collect()
}

impl PoolBudget {
    /// How many nodes use up the budgets for a reason.
    fn disrupting(&self, reason: DisruptionReason) -> u32 {
        // A node that is not ready is what repair is there for: it does not use up repair's budget.
        let repair = reason == DisruptionReason::Unhealthy;
        self.going + if repair { 0 } else { self.not_ready }
    }
}

impl Budgets {
    pub(super) fn new(snapshot: &Snapshot) -> Self {
        let mut counts: BTreeMap<&str, (u32, u32, u32)> = BTreeMap::new();
        for node in &snapshot.nodes {
            let pool = node.claim.as_ref().and_then(|claim| claim.node_pool.as_deref());
            let rebooting = node.health.reboots.in_progress;
            let counts_for = node.phase == NodePhase::Initialized || rebooting;
            if let Some(pool) = pool.filter(|_| counts_for) {
                let going = node.deleting || rebooting;
                let count = counts.entry(pool).or_default();
                count.0 += 1;
                count.1 += u32::from(going);
                count.2 += u32::from(!going && !node.ready);
            }
        }
        let pools = snapshot
            .node_pools
            .iter()
            .map(|pool| {
                let (nodes, going, not_ready) =
                    counts.get(pool.name.as_str()).copied().unwrap_or_default();
                PoolBudget { budgets: pool.disruption.budgets.clone(), nodes, going, not_ready }
            })
            .collect();
        let mut going_pods = vec![0; snapshot.pod_budgets.len()];
        for pod in snapshot.pods.iter().filter(|pod| !pod.terminating && !pod.daemon) {
            if let (Some(budget), Placement::Bound(node)) = (pod.pod_budget, pod.placement)
                && snapshot.nodes[node.0 as usize].deleting
            {
                going_pods[budget as usize] += 1;
            }
        }
        Self { pools, going_pods }
    }

    /// Why a node may not go now for a reason, as far as others that go are concerned.
    pub(super) fn refusal(
        &self,
        snapshot: &Snapshot,
        node: &Node,
        reason: DisruptionReason,
    ) -> Option<StayReason> {
        if self.available(node.pool, reason) == 0 {
            return Some(StayReason::Budget(reason));
        }
        let claim = snapshot.nodes[node.index].claim.as_ref();
        let bounded = claim.is_some_and(|claim| claim.has_termination_grace_period);
        // What is sick, or goes in bounded time whatever its pods say, waits for nobody.
        if reason == DisruptionReason::Unhealthy || (reason == DisruptionReason::Drifted && bounded)
        {
            return None;
        }
        let used_up = |&&(budget, pods): &&(usize, u32)| {
            let PodBudget { allowed, .. } = snapshot.pod_budgets[budget];
            // One node may always go: with more pods than are allowed it is drained in steps.
            self.going_pods[budget] > 0 && self.going_pods[budget] + pods > allowed
        };
        let &(budget, _) = node.pod_budgets.iter().find(used_up)?;
        let pods = node.pods.iter().map(|&pod| &snapshot.pods[pod]);
        let pod = pods.clone().find(|pod| pod.pod_budget.map(|it| it as usize) == Some(budget))?;
        let name = snapshot.pod_budgets[budget].name.clone();
        Some(StayReason::PdbUsedUp { pod: pod_ref(pod), budget: name })
    }

    /// Whether nodes may all go now for a reason.
    pub(super) fn allow(
        &self,
        snapshot: &Snapshot,
        nodes: &[&Node],
        reason: DisruptionReason,
    ) -> Result<(), StayReason> {
        if let [node] = nodes {
            return self.refusal(snapshot, node, reason).map_or(Ok(()), Err);
        }
        let mut left = self.clone();
        for node in nodes {
            if let Some(stay) = left.refusal(snapshot, node, reason) {
                return Err(stay);
            }
            left.take(node);
        }
        Ok(())
    }

    /// How many nodes of a pool may go for a reason.
    pub(super) fn available(&self, pool: usize, reason: DisruptionReason) -> u32 {
        let pool = &self.pools[pool];
        allowed(&pool.budgets, pool.nodes, reason).saturating_sub(pool.disrupting(reason))
    }

    /// How far they are used up; `names` are those of the pools.
    fn uses<'n>(
        &self,
        names: impl IntoIterator<Item = &'n str>,
    ) -> impl Iterator<Item = BudgetUse> {
        const REASONS: [DisruptionReason; 4] = [
            DisruptionReason::Empty,
            DisruptionReason::Drifted,
            DisruptionReason::Underutilized,
            DisruptionReason::Unhealthy,
        ];
        self.pools.iter().zip(names).flat_map(|(pool, name)| {
            REASONS.map(|reason| BudgetUse {
                node_pool: name.to_owned(),
                reason,
                nodes: pool.nodes,
                allowed: allowed(&pool.budgets, pool.nodes, reason),
                disrupting: pool.disrupting(reason),
            })
        })
    }

    /// One more node goes.
    pub(super) fn take(&mut self, node: &Node) {
        self.pools[node.pool].going += 1;
        self.take_pods(node);
    }

    fn take_pods(&mut self, node: &Node) {
        for &(budget, pods) in &node.pod_budgets {
            self.going_pods[budget] += pods;
        }
    }

    /// One more node is going, as [`Budgets::new`] would find it: it does not count twice when it
    /// is not ready.
    pub(super) fn mark_going(&mut self, node: &Node, ready: bool) {
        self.take(node);
        self.pools[node.pool].not_ready -= u32::from(!ready);
    }
}

/// The smallest of the budgets that cover a reason; without any there is no bound.
fn allowed(budgets: &[Budget], nodes: u32, reason: DisruptionReason) -> u32 {
    budgets
        .iter()
        .filter(|budget| budget.reasons.is_empty() || budget.reasons.contains(&reason))
        .map(|budget| match budget.nodes {
            BudgetNodes::Count(count) => count,
            BudgetNodes::Percent(percent) => {
                let share = (u64::from(nodes) * u64::from(percent)).div_ceil(100);
                u32::try_from(share).unwrap_or(u32::MAX)
            }
        })
        .min()
        .unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mk_budget(nodes: BudgetNodes) -> Budget {
        Budget { nodes, reasons: Vec::new() }
    }

    /// Appendix A.4.
    #[test]
    fn percentages_are_rounded_up() {
        for (percent, nodes, expected) in [
            (10, 0, 0),
            (10, 1, 1),
            (10, 10, 1),
            (10, 11, 2),
            (5, 10, 1),
            (0, 100, 0),
            (33, 4, 2),
            (50, 3, 2),
            (100, 7, 7),
        ] {
            let budget = mk_budget(BudgetNodes::Percent(percent));
            assert_eq!(
                allowed(&[budget], nodes, DisruptionReason::Empty),
                expected,
                "{percent}% of {nodes}"
            );
        }
        for count in [5, 0] {
            let counted = mk_budget(BudgetNodes::Count(count));
            assert_eq!(allowed(&[counted], 3, DisruptionReason::Empty), count);
        }
    }

    /// Appendix A.14: ten nodes, of which three are not ready, and the default budget.
    #[test]
    fn nodes_that_are_not_ready_use_up_all_budgets_but_that_for_repair() {
        let pool = PoolBudget {
            budgets: vec![mk_budget(BudgetNodes::Percent(10))],
            nodes: 10,
            going: 0,
            not_ready: 3,
        };
        let mut budgets = Budgets { pools: vec![pool], going_pods: Vec::new() };
        assert_eq!(budgets.available(0, DisruptionReason::Unhealthy), 1);
        assert_eq!(budgets.available(0, DisruptionReason::Drifted), 0);
        budgets.pools[0].going += 1;
        assert_eq!(budgets.available(0, DisruptionReason::Unhealthy), 0);
    }

    #[test]
    fn the_smallest_budget_that_covers_the_reason_counts() {
        let both = [mk_budget(BudgetNodes::Percent(20)), mk_budget(BudgetNodes::Count(5))];
        assert_eq!(allowed(&both, 19, DisruptionReason::Drifted), 4);
        let drift_only =
            [Budget { nodes: BudgetNodes::Count(0), reasons: vec![DisruptionReason::Drifted] }];
        assert_eq!(allowed(&drift_only, 19, DisruptionReason::Drifted), 0);
        assert_eq!(allowed(&drift_only, 19, DisruptionReason::Empty), u32::MAX);
    }

    #[test]
    fn the_use_of_budgets_is_told_per_pool_and_reason() {
        let budget = |nodes, reasons| Budget { nodes, reasons };
        let budgets = vec![
            budget(BudgetNodes::Percent(50), Vec::new()),
            budget(BudgetNodes::Count(0), vec![DisruptionReason::Drifted]),
        ];
        let pool = PoolBudget { budgets, nodes: 3, going: 0, not_ready: 1 };
        let all = Budgets { pools: vec![pool], going_pods: Vec::new() };
        let uses: Vec<_> = all
            .uses(["default"])
            .map(|used| (used.reason, used.allowed, used.disrupting))
            .collect();
        assert_eq!(
            uses,
            [
                (DisruptionReason::Empty, 2, 1),
                (DisruptionReason::Drifted, 0, 1),
                (DisruptionReason::Underutilized, 2, 1),
                (DisruptionReason::Unhealthy, 2, 0),
            ]
        );
    }
}
