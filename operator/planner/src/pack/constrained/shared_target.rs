//! The type that a new machine aims at when all pods that have no place yet may share it with those
//! that open it.

use fixedbitset::FixedBitSet;

use crate::demands::Demand;
use crate::machine_specs::{MachineSpec, SpecId};
use crate::solver::Solver;

/// When what others may bring is known: the types that a machine for all of them may aim at. A
/// launch is charged with its largest type, so where there are limits no type counts that would eat
/// up much of what is left.
pub(super) fn types(
    solver: &Solver<'_, '_>,
    spec: &MachineSpec,
    types: &FixedBitSet,
) -> Option<FixedBitSet> {
    if solver.unplaced.is_empty() {
        return None;
    }
    if !solver.limits.any(spec.template) {
        return Some(types.clone());
    }
    let cheapest = spec.cheapest(types)?;
    Some(solver.limits.modest(&solver.problem.tables, spec.template, types, cheapest))
}

/// The cheapest of some types when all that is left is divided among so many machines.
#[expect(clippy::cast_precision_loss, reason = "a ratio for comparison")]
pub(super) fn target(
    solver: &Solver<'_, '_>,
    demand: &Demand,
    spec: SpecId,
    types: &FixedBitSet,
    machines: usize,
) -> usize {
    let problem = solver.problem;
    let spec = &solver.specs[spec];
    let requests = &problem.tables.shapes[demand.shape].requests;
    let price = |kind: usize| {
        let net = problem.tables.templates[spec.template].net(kind);
        let one = dominant_share(requests, net);
        let all = dominant_share(&solver.unplaced, net) / machines as f64;
        (spec.price(kind) + problem.tables.policy.node_price.0) as f64 * one / all.min(1.0).max(one)
    };
    let types = types.ones().map(|kind| (price(kind), kind));
    let best = types.min_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    best.expect("the caller has made sure that there are types").1
}

/// What part of a machine's processors or memory an amount takes, whichever is more.
#[expect(clippy::cast_precision_loss, reason = "a ratio for comparison")]
fn dominant_share(amounts: &[i64], net: &[i64]) -> f64 {
    // Pods that ask for nothing still take something.
    let share = |column: usize| amounts[column] as f64 / net[column].max(1) as f64;
    share(0).max(share(1)).max(1e-6)
}
