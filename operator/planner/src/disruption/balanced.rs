//! The consolidation policy Balanced: what a move saves and what it disrupts are weighed as shares of the NodePool.

use super::candidates::Node;
use crate::compile::Problem;
use crate::snapshot::ConsolidationPolicy;

/// A move has to save at least half of what it disrupts.
const THRESHOLD: f64 = 0.5;

/// Price and disruption cost of whole pools, by index; computed once per pass.
#[derive(Clone, Debug, Default)]
pub(super) struct Totals {
    pools: Vec<(f64, f64)>,
}

impl Totals {
    pub(super) fn new(problem: &Problem<'_>, candidates: &[Node]) -> Self {
        let snapshot = problem.snapshot;
        let mut pools = vec![(0.0, 0.0); snapshot.node_pools.len()];
        let mut known = candidates.iter().peekable();
        for (index, node) in snapshot.nodes.iter().enumerate() {
            let candidate = known.next_if(|candidate| candidate.index == index);
            let name = node.claim.as_ref().and_then(|claim| claim.node_pool.as_deref());
            let pool = name.and_then(|name| {
                snapshot.node_pools.binary_search_by(|pool| pool.name.as_str().cmp(name)).ok()
            });
            let Some(pool) = pool else { continue };
            pools[pool].0 += node.price.unwrap_or_default().as_usd();
            pools[pool].1 += candidate.map_or_else(
                || {
                    let pods = problem.pods_on[index].iter().map(|&pod| &snapshot.pods[pod]);
                    super::cost::reschedule_cost(pods.filter(|pod| !pod.daemon))
                },
                |candidate| candidate.cost,
            );
        }
        Self { pools }
    }

    /// Whether every pool with the policy Balanced approves of a move that saves so many dollars per hour. What it saves is split among pools by what their
    /// nodes cost.
    pub(super) fn approve(&self, problem: &Problem<'_>, nodes: &[&Node], savings: f64) -> bool {
        let price = |node: &Node| node.price.unwrap_or_default().as_usd();
        let all: f64 = nodes.iter().map(|node| price(node)).sum();
        let mut pools: Vec<usize> = nodes.iter().map(|node| node.pool).collect();
        pools.sort_unstable();
        pools.dedup();
        pools.into_iter().all(|pool| {
            let policy = problem.snapshot.node_pools[pool].disruption.consolidation_policy;
            if policy != ConsolidationPolicy::Balanced {
                return true;
            }
            let own = || nodes.iter().filter(|node| node.pool == pool);
            let share =
                if all > 0.0 { own().map(|node| price(node)).sum::<f64>() / all } else { 0.0 };
            let disruption = own().map(|node| node.cost).sum();
            let (total_price, total_disruption) = self.pools[pool];
            score(savings * share, total_price, disruption, total_disruption) >= THRESHOLD
        })
    }
}

/// The share of the price that is saved over the share of the disruption cost that it takes.
fn score(savings: f64, price: f64, disruption: f64, total_disruption: f64) -> f64 {
    if price <= 0.0 || total_disruption <= 0.0 || savings <= 0.0 {
        return 0.0;
    }
    // Without disruption the quotient is infinite, as it should be.
    (savings / price) / (disruption / total_disruption)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Appendix A.8: ten equal nodes of price 1 with a disruption cost of 5 each.
    #[test]
    fn moves_are_scored_by_their_shares_of_the_pool() {
        let of_pool = |savings, disruption| score(savings, 10.0, disruption, 50.0);
        assert!((of_pool(1.0, 5.0) - 1.0).abs() < 1e-9, "one node is deleted");
        assert!((of_pool(0.4, 5.0) - 0.4).abs() < 1e-9, "replaced by one that is cheaper by 0.4");
        assert!((of_pool(1.0, 15.0) - 1.0 / 3.0).abs() < 1e-9, "three times the usual disruption");
        assert!(of_pool(1.0, 5.0) >= THRESHOLD && of_pool(0.4, 5.0) < THRESHOLD);
        assert!(of_pool(0.0, 5.0) < THRESHOLD && of_pool(-1.0, 0.0) < THRESHOLD);
        assert!(of_pool(0.1, 0.0) >= THRESHOLD, "nothing is disrupted");
        assert!(score(1.0, 0.0, 1.0, 1.0) < THRESHOLD, "a pool without a price");
    }
}
