//! Consolidation of several nodes at once, for at most one new machine.

use super::Pass;
use super::attempt::{Aim, Patience, eviction_price};
use super::candidates::{Node, by_savings};
use super::rehearsal::Stage;
use crate::demands::Demand;
use crate::snapshot::DisruptionReason;

/// How many nodes are considered together at most, as in Karpenter.
const TOGETHER: usize = 100;

/// How many lengths are tried of one list of nodes.
const LENGTHS: usize = 8;

/// Takes the nodes with the most to gain together, until nothing more is found.
pub(super) fn plan<'n>(
    stage: &mut Stage<'n, '_, '_>,
    eligible: &[&'n Node],
    patience: &mut Patience<'_>,
) {
    let sorted = by_savings(eligible.iter().copied());
    let mut from = 0;
    while from < sorted.len() && !patience.is_over() {
        let (window, end) = window(&stage.pass, &sorted, from);
        // What is merged is gone for the next look; where nothing is, the next nodes have their
        // turn.
        if !merge(stage, &window, patience) {
            from = end;
        }
    }
}

/// The next nodes that are still there, as far as the budgets of their pools go, and where the
/// window ends.
fn window<'n>(pass: &Pass<'_, '_>, sorted: &[&'n Node], from: usize) -> (Vec<&'n Node>, usize) {
    let mut budgets = pass.budgets.clone();
    let mut window = Vec::new();
    for (index, node) in sorted.iter().enumerate().skip(from) {
        if window.len() == TOGETHER {
            return (window, index);
        }
        let stays = pass.is_going(node) || pass.receiving[node.index];
        let refusal =
            || budgets.refusal(pass.problem.tables.snapshot, node, DisruptionReason::Underutilized);
        if !stays && refusal().is_none() {
            budgets.take(node);
            window.push(*node);
        }
    }
    (window, sorted.len())
}

/// Merges a beginning of a list, the one that promises to save most if it works.
fn merge<'n>(
    stage: &mut Stage<'n, '_, '_>,
    nodes: &[&'n Node],
    patience: &mut Patience<'_>,
) -> bool {
    if nodes.len() < 2 {
        return false;
    }
    promising(&mut stage.pass, nodes)
        .into_iter()
        .take(LENGTHS)
        .any(|n| !patience.is_over() && stage.try_act(&nodes[..n], Aim::Replace).is_ok())
}

/// The lengths for which a machine could hold what fits nowhere else and cost less than the nodes;
/// those first that may save most.
fn promising(pass: &mut Pass<'_, '_>, nodes: &[&Node]) -> Vec<usize> {
    let problem = pass.problem;
    let mut need = vec![0; problem.tables.columns.len()];
    let (mut price, mut evictions) = (0, 0);
    let mut lengths = Vec::new();
    for (index, node) in nodes.iter().enumerate() {
        price += node.price.unwrap_or_default().0;
        evictions += eviction_price(pass, &[node]);
        let (demands, _) = crate::demands::demands_of(problem, node.pods.iter().copied());
        for demand in &demands {
            if fits_nowhere(pass, demand, node.index) {
                let requests = &problem.tables.shapes[demand.shape].requests;
                crate::tables::add_times(&mut need, requests, demand.pods.len());
            }
        }
        let Some(cheapest) = pass.price_floor.holding(&need) else { break };
        let saved = price - cheapest - evictions;
        if index > 0 && saved > 0 {
            lengths.push((std::cmp::Reverse(saved), index + 1));
        }
    }
    lengths.sort_unstable();
    lengths.into_iter().map(|(_, length)| length).collect()
}

/// Whether no other machine has room for even one pod of a demand.
fn fits_nowhere(pass: &mut Pass<'_, '_>, demand: &Demand, machine: usize) -> bool {
    let problem = pass.problem;
    let variants = problem.tables.classes[problem.tables.shapes[demand.shape].class].variants.len();
    !(0..variants).any(|variant| pass.solver.may_have_room(demand, variant, machine))
}
