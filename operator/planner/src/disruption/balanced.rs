//! The consolidation policy Balanced: what a move saves and what it disrupts are weighed as shares
//! of the NodePool.

use std::sync::Arc;

use super::candidates::Node;
use super::cost::{eviction_cost, reschedule_cost};
use crate::compile::Problem;
use crate::plan::{Launch, Score};
use crate::snapshot::{ConsolidationPolicy, Snapshot};

/// Price and disruption cost of whole pools, by index. They follow the commands of the pass: nodes
/// that go no longer count, replacements and moved pods do.
#[derive(Clone, Debug, Default)]
pub(super) struct Totals {
    pools: Vec<(f64, f64)>,
    /// By node, what it adds to its pool's disruption cost.
    costs: Arc<[f64]>,
}

impl Totals {
    pub(super) fn new(problem: &Problem<'_>, candidates: &[Node]) -> Self {
        let snapshot = problem.tables.snapshot;
        let mut pools = vec![(0.0, 0.0); snapshot.node_pools.len()];
        let mut costs = vec![0.0; snapshot.nodes.len()];
        let mut known = candidates.iter().peekable();
        for (index, node) in snapshot.nodes.iter().enumerate() {
            let candidate = known.next_if(|candidate| candidate.index == index);
            let Some(pool) = pool_of(snapshot, index) else { continue };
            costs[index] = candidate.map_or_else(
                || {
                    let pods = problem.tables.pods_on[index].iter().map(|&pod| &snapshot.pods[pod]);
                    reschedule_cost(pods.filter(|pod| !pod.daemon))
                },
                |candidate| candidate.cost,
            );
            pools[pool].0 += node.price.unwrap_or_default().as_usd();
            pools[pool].1 += costs[index];
        }
        Self { pools, costs: costs.into() }
    }

    /// A node goes.
    pub(super) fn leave(&mut self, snapshot: &Snapshot, node: usize) {
        if let Some(pool) = pool_of(snapshot, node) {
            let (price, cost) = &mut self.pools[pool];
            *price -= snapshot.nodes[node].price.unwrap_or_default().as_usd();
            *cost -= self.costs[node];
        }
    }

    /// A pod of a node that goes moves onto a machine that exists.
    pub(super) fn join(&mut self, snapshot: &Snapshot, machine: usize, pod: usize) {
        if let Some(pool) = pool_of(snapshot, machine) {
            self.pools[pool].1 += eviction_cost(&snapshot.pods[pod]).max(0.0);
        }
    }

    /// A machine comes, with pods of nodes that go.
    pub(super) fn come(&mut self, snapshot: &Snapshot, launch: &Launch, pods: &[usize]) {
        if let Some(pool) = pool_named(snapshot, &launch.node_pool) {
            let (price, cost) = &mut self.pools[pool];
            *price += launch.price.as_usd();
            *cost += reschedule_cost(pods.iter().map(|&pod| &snapshot.pods[pod]));
        }
    }

    /// Whether every pool with the policy Balanced approves of a move that saves so many dollars
    /// per hour.
    ///
    /// # Errors
    /// The score of the first pool that does not.
    pub(super) fn approve(
        &self,
        problem: &Problem<'_>,
        nodes: &[&Node],
        savings: f64,
    ) -> Result<(), Score> {
        let mut scores = self.scores(problem, nodes, savings).into_iter();
        scores.find(|score| !score.is_approved()).map_or(Ok(()), Err)
    }

    /// What every pool with the policy Balanced makes of such a move, in the order of the pools.
    /// What it saves is split among pools by what their nodes cost.
    pub(super) fn scores(
        &self,
        problem: &Problem<'_>,
        nodes: &[&Node],
        savings: f64,
    ) -> Vec<Score> {
        let price = |node: &Node| node.price.unwrap_or_default().as_usd();
        let all: f64 = nodes.iter().map(|node| price(node)).sum();
        let mut pools: Vec<usize> = nodes.iter().map(|node| node.pool).collect();
        pools.sort_unstable();
        pools.dedup();
        let of_pool = |pool: usize| {
            let own = || nodes.iter().filter(|node| node.pool == pool);
            let share =
                if all > 0.0 { own().map(|node| price(node)).sum::<f64>() / all } else { 0.0 };
            let disruption = own().map(|node| node.cost).sum();
            let (total_price, total_disruption) = self.pools[pool];
            let name = &problem.tables.snapshot.node_pools[pool].name;
            score(name, savings * share, total_price, disruption, total_disruption)
        };
        let is_balanced = |&pool: &usize| {
            let disruption = &problem.tables.snapshot.node_pools[pool].disruption;
            disruption.consolidation_policy == ConsolidationPolicy::Balanced
        };
        pools.into_iter().filter(is_balanced).map(of_pool).collect()
    }
}

/// The NodePool of a node, by index.
fn pool_of(snapshot: &Snapshot, node: usize) -> Option<usize> {
    pool_named(snapshot, snapshot.nodes[node].claim.as_ref()?.node_pool.as_deref()?)
}

fn pool_named(snapshot: &Snapshot, name: &str) -> Option<usize> {
    snapshot.node_pools.binary_search_by(|pool| pool.name.as_str().cmp(name)).ok()
}

/// The share of the price that is saved, and the share of the disruption cost that it takes.
fn score(
    node_pool: &str,
    savings: f64,
    price: f64,
    disruption: f64,
    total_disruption: f64,
) -> Score {
    let weighable = price > 0.0 && total_disruption > 0.0;
    let share = |part: f64, whole: f64| if weighable { billionths(part / whole) } else { 0 };
    Score {
        node_pool: node_pool.to_owned(),
        savings: share(savings, price),
        disruption: share(disruption, total_disruption),
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a conversion that saturates: losses count as nothing"
)]
fn billionths(share: f64) -> u64 {
    (share * 1e9).round() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Appendix A.8: ten equal nodes of price 1 with a disruption cost of 5 each.
    #[test]
    fn moves_are_scored_by_their_shares_of_the_pool() {
        let of_pool = |savings, disruption| score("default", savings, 10.0, disruption, 50.0);
        assert!((of_pool(1.0, 5.0).value() - 1.0).abs() < 1e-9, "one node is deleted");
        assert!((of_pool(0.4, 5.0).value() - 0.4).abs() < 1e-9, "replaced by one cheaper by 0.4");
        let thrice = of_pool(1.0, 15.0).value();
        assert!((thrice - 1.0 / 3.0).abs() < 1e-8, "three times the usual disruption: {thrice}");
        let approved = |savings, disruption| of_pool(savings, disruption).is_approved();
        assert!(approved(1.0, 5.0) && approved(0.5, 5.0) && !approved(0.4, 5.0));
        assert!(!approved(0.0, 5.0) && !approved(-1.0, 0.0));
        assert!(approved(0.1, 0.0), "nothing is disrupted");
        assert!(!score("default", 1.0, 0.0, 1.0, 1.0).is_approved(), "a pool without a price");
    }
}
