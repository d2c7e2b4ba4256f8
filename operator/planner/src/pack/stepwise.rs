//! Places for pods of which each placement changes where the next may go: topology rules are about
//! them, or they have claims for devices.
//!
//! What a pod wants most is tried first. On machines that exist it takes what comes first; for
//! machines to come [`super::constrained`] and [`super::device_claims`] each have their own way.

use super::bins::Bins;
use super::constrained::Placing;
use super::device_claims;
use super::strategy::Strategy;
use crate::Cancel;
use crate::compile::Problem;
use crate::demands::Demand;
use crate::plan::Exclusion;
use crate::solver::{REASONS, Solver};

/// Finds places for a demand's pods. Returns what keeps the rest waiting.
pub(crate) fn place(
    solver: &mut Solver<'_, '_>,
    bins: &mut Bins,
    demand: &mut Demand,
    strategy: Strategy,
    open: &dyn Fn(usize) -> bool,
    cancel: &dyn Cancel,
) -> Option<Vec<(String, Exclusion)>> {
    let mut reasons = Vec::new();
    let has_claims = solver.problem.tables.shapes[demand.shape].has_claims;
    let mut alternatives = alternatives(solver.problem, demand.shape).peekable();
    while let Some((variant, dropped)) = alternatives.next() {
        (demand.variant, demand.dropped) = (variant, dropped);
        // Nobody asks what is wrong with the others.
        let told = if alternatives.peek().is_none() { REASONS } else { 0 };
        let mut by_rules = (!has_claims).then(|| Placing::new(bins, solver, demand));
        loop {
            solver.place_on_machines(demand, open);
            if demand.left() == 0 || solver.stops(cancel) {
                return None;
            }
            let placed = match &mut by_rules {
                Some(placing) => placing.place_some(solver, bins, demand, strategy, told),
                None => device_claims::place_next(solver, bins, demand, strategy, told),
            };
            if let Err(why) = placed {
                reasons = why;
                break;
            }
        }
    }
    Some(reasons)
}

/// How many alternatives preferences about other pods may make of one shape; beyond that several
/// are dropped at once.
const STEPS: usize = 512;

/// What a shape asks for, the most wanted first: its variant, and how many preferences about other
/// pods are dropped.
///
/// Karpenter drops terms of pod affinity before those of node affinity, and `ScheduleAnyway` after
/// them.
pub(crate) fn alternatives(
    problem: &Problem<'_>,
    shape: usize,
) -> impl Iterator<Item = (usize, usize)> + use<> {
    let (preferences, terms) = problem.rules.preferences(shape);
    let variants = &problem.tables.classes[problem.tables.shapes[shape].class].variants;
    let (best, plain, all) = (variants.best(), variants.plain(), variants.len());
    let stride = (preferences * best.len()).div_ceil(STEPS).max(1);
    let with_terms = (0..terms).step_by(stride);
    let after = (terms + 1..preferences)
        .step_by(stride)
        .chain((preferences > terms).then_some(preferences));
    let last = plain.end;
    with_terms
        .flat_map(move |dropped| best.clone().map(move |variant| (variant, dropped)))
        .chain((0..last).map(move |variant| (variant, terms)))
        .chain(after.flat_map(move |dropped| plain.clone().map(move |variant| (variant, dropped))))
        .chain((last..all).map(move |variant| (variant, preferences)))
}
