//! Opening machines with a load, within limits and `minValues`.

use fixedbitset::FixedBitSet;

use super::load::Load;
use super::strategy::Repeats;
use crate::demands::{Demand, LaunchOption};
use crate::limits::Limits;
use crate::machine_specs::SpecId;
use crate::solver::{Claim, Solver};
use crate::tables::add_times;

/// So many machines with the same load are opened at once without a second thought.
const FEW: usize = 4;

/// Opens as many machines with a load as there are pods for it.
pub(super) fn commit(
    solver: &mut Solver<'_, '_>,
    demands: &mut [Demand],
    mut load: Load,
    template: usize,
    allowed: &FixedBitSet,
    how_often: Repeats,
) {
    let problem = solver.problem;
    let attainable = solver.is_strict() || {
        let mut types = allowed.clone();
        let seed = &problem.tables.shapes[demands[load.takes[0].0].shape];
        solver.keep_fitting(&mut types, template, &seed.requests, &seed.ports);
        solver.lacking_values(load.spec, &types).is_none()
    };
    let (types, used, ports) = loop {
        let mut used = vec![0; problem.tables.columns.len()];
        let mut ports = Vec::new();
        for &(demand, n) in &load.takes {
            let shape = &problem.tables.shapes[demands[demand].shape];
            add_times(&mut used, &shape.requests, n);
            ports.extend(shape.ports.iter().cloned());
        }
        let mut types = solver.specs[load.spec].types.clone();
        types.intersect_with(allowed);
        solver.keep_fitting(&mut types, template, &used, &ports);
        let lacking =
            types.is_clear() || (attainable && solver.lacking_values(load.spec, &types).is_some());
        let alone = load.takes.len() == 1 && load.takes[0].1 == 1;
        if !lacking || alone {
            break (types, used, ports);
        }
        // Fewer pods leave more types to choose from.
        lighten(solver, demands, &mut load);
    };
    let types = keep_modest(solver, &load, template, types);
    let relaxed = relax(solver, load.spec, &types);
    let target = solver.specs[load.spec].cheapest(&types);
    let target = target.expect("the seed's launch option has a type that holds it");
    let limited = solver.limits.any(template);
    let repeats = load.takes.iter().map(|&(demand, n)| demands[demand].left() / n).min();
    let mut repeats = repeats.unwrap_or(1);
    match how_often {
        Repeats::All => {}
        Repeats::Half if repeats > FEW => repeats = repeats.div_ceil(2),
        Repeats::Half => {}
        Repeats::AtMost(most) => repeats = repeats.min(most),
    }
    if limited {
        repeats = repeats.min(solver.limits.affordable(&problem.tables, template, &types));
    }
    let repeats = repeats.max(1);
    for _ in 0..repeats {
        let mut pods = Vec::new();
        for &(demand, n) in &load.takes {
            pods.extend_from_slice(demands[demand].take(n));
        }
        solver.claims.push(Claim {
            spec: load.spec,
            used: used.clone(),
            types: types.clone(),
            ports: ports.clone(),
            pods,
            relaxed: relaxed.clone(),
            target,
        });
    }
    if limited {
        for _ in 0..repeats {
            solver.limits.charge(&problem.tables, template, &types);
        }
    }
    if limited && solver.limits.binds(&problem.tables, template) {
        // What is left of the limit may exclude types, and so whole templates.
        for demand in demands {
            demand.launch_option = LaunchOption::Unknown;
        }
    }
}

/// Takes pods off a load: the last demand's, half of them at a time; of the seed one stays.
fn lighten(solver: &mut Solver<'_, '_>, demands: &[Demand], load: &mut Load) {
    let last = load.takes.len() - 1;
    let (_, n) = &mut load.takes[last];
    *n /= 2;
    if *n == 0 {
        load.takes.pop();
    }
    // Without the demand that left the machine may be less narrow.
    let problem = solver.problem;
    let mut spec = None;
    for &(demand, _) in &load.takes {
        let demand = &demands[demand];
        let class = problem.tables.shapes[demand.shape].class;
        let from = spec.unwrap_or_else(|| {
            let template = solver.specs[load.spec].template;
            solver.specs.base(&problem.tables, template)
        });
        if let Ok(joined) = solver.specs.join(&problem.tables, from, class, demand.variant) {
            spec = Some(joined);
        }
    }
    load.spec = spec.unwrap_or(load.spec);
}

fn keep_modest(
    solver: &Solver<'_, '_>,
    load: &Load,
    template: usize,
    types: FixedBitSet,
) -> FixedBitSet {
    let limits: &Limits = &solver.limits;
    let Some(cheapest) = solver.specs[load.spec].cheapest(&types) else { return types };
    if !limits.any(template) {
        return types;
    }
    let modest = limits.modest(&solver.problem.tables, template, &types, cheapest);
    if solver.lacking_values(load.spec, &modest).is_some() { types } else { modest }
}

/// Under BestEffort the keys whose `minValues` can't be had, with what can.
pub(super) fn relax(
    solver: &Solver<'_, '_>,
    spec: SpecId,
    types: &FixedBitSet,
) -> Vec<(crate::intern::Key, u32)> {
    if solver.is_strict() {
        return Vec::new();
    }
    let problem = solver.problem;
    let table =
        &problem.tables.catalogs[problem.tables.templates[solver.specs[spec].template].catalog];
    solver.specs[spec]
        .requirements
        .iter()
        .filter_map(|(key, set)| {
            let required = set.min_values()?;
            let found = crate::solver::distinct_values(problem, table, key, set, types);
            (found < required).then_some((key, found))
        })
        .collect()
}
