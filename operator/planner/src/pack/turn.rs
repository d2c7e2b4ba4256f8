//! The order in which pods with topology rules or resource claims are placed, before all others.

use std::cmp::Reverse;

use super::strategy::Strategy;
use crate::compile::Problem;
use crate::demands::Demand;

/// When a demand's turn is among those that are placed first, the least coming first.
pub(super) fn turn(
    problem: &Problem<'_>,
    demand: &Demand,
    strategy: Strategy,
    index: usize,
) -> impl Ord + use<> {
    let shape = &problem.tables.shapes[demand.shape];
    let fills = strategy == Strategy::Fill;
    // Karpenter's way fills a machine as long as there is a larger type: who comes before those
    // that need a host each leaves none of these full.
    let rank = problem.rules.rank(demand.shape, fills);
    // Pods that want a host each decide how many machines there are; the others fill these.
    let alone = problem.rules.one_per_host(demand.shape, 0);
    // Of pods with claims those that take the most devices come first: few machines have so many.
    let devices = if fills { 0 } else { shape.devices };
    (!shape.has_claims, rank, !alone, Reverse(devices), index)
}
