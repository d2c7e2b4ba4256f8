//! Places for pods that topology rules are about: one pod at a time, because each placement changes where the next may go.
//!
//! A machine to come that such a pod opens aims at the type that holds its like at the best price. It takes further pods while they fit that type, and
//! becomes larger only where that costs no more than a place elsewhere.

use fixedbitset::FixedBitSet;

use crate::Cancel;
use crate::cells::CellId;
use crate::compile::shapes::ports_conflict;
use crate::compile::{add_times, fits, times};
use crate::pack::{Strategy, value};
use crate::plan::Exclusion;
use crate::solver::{Claim, Demand, Solver};

/// How many machines that would have to grow are compared for one pod.
const GROWING: usize = 4;

/// Finds places for a demand's pods. Returns what keeps the rest waiting.
pub(crate) fn place(
    solver: &mut Solver<'_, '_>,
    demand: &mut Demand,
    strategy: Strategy,
    open: &dyn Fn(usize) -> bool,
    cancel: &dyn Cancel,
) -> Option<Vec<(String, Exclusion)>> {
    let class = solver.problem.shapes[demand.shape].class;
    let variants = solver.problem.classes[class].variants.len();
    while demand.left() > 0 && !cancel.is_cancelled() {
        let mut reasons = Vec::new();
        let placed = (0..variants).any(|variant| {
            demand.variant = variant;
            match place_one(solver, demand, strategy, open) {
                Ok(()) => true,
                Err(why) => {
                    reasons = why;
                    false
                }
            }
        });
        if !placed {
            return Some(reasons);
        }
    }
    None
}

/// Places a demand's pods on machines that exist, as far as they go.
pub(crate) fn place_on_machines(
    solver: &mut Solver<'_, '_>,
    demand: &mut Demand,
    open: &dyn Fn(usize) -> bool,
) {
    while demand.left() > 0 && on_machine(solver, demand, open) {}
}

fn place_one(
    solver: &mut Solver<'_, '_>,
    demand: &mut Demand,
    strategy: Strategy,
    open: &dyn Fn(usize) -> bool,
) -> Result<(), Vec<(String, Exclusion)>> {
    if on_machine(solver, demand, open) || on_claim(solver, demand, strategy) {
        return Ok(());
    }
    let problem = solver.problem;
    let mut reasons = Vec::new();
    for template in 0..problem.templates.len() {
        match open_claim(solver, demand, template) {
            Ok(()) => return Ok(()),
            Err(reason) => {
                let pool = crate::limits::pool_name(problem, &problem.templates[template]);
                reasons.push((pool.to_owned(), reason));
            }
        }
    }
    Err(reasons)
}

fn on_machine(
    solver: &mut Solver<'_, '_>,
    demand: &mut Demand,
    open: &dyn Fn(usize) -> bool,
) -> bool {
    let problem = solver.problem;
    let shape = &problem.shapes[demand.shape];
    for &machine in &problem.machines.order {
        if !open(machine) || !solver.takes(machine, demand.shape, demand.variant) {
            continue;
        }
        if !fits(&shape.requests, solver.room_of(machine)) {
            continue;
        }
        if !solver.counts.allow_on_machine(problem, &mut solver.cells, demand.shape, machine) {
            continue;
        }
        solver.occupy(machine, demand.shape, 1);
        solver.counts.add_on_machine(problem, demand.shape, machine, 1);
        let pod = demand.take(1)[0];
        solver.placed.push((pod, machine));
        return true;
    }
    false
}

/// A machine to come with one more pod.
struct Joined {
    cell: CellId,
    types: FixedBitSet,
    used: Vec<i64>,
}

fn on_claim(solver: &mut Solver<'_, '_>, demand: &mut Demand, strategy: Strategy) -> bool {
    let mut growing = Vec::new();
    for index in 0..solver.claims.len() {
        let Some(cell) = admits(solver, demand, index) else { continue };
        let problem = solver.problem;
        let claim = &solver.claims[index];
        let mut used = claim.used.clone();
        add_times(&mut used, &problem.shapes[demand.shape].requests, 1);
        let target = claim.target;
        let template = &problem.templates[solver.cells[cell].template];
        let same_price = solver.cells[cell].types[target]
            && solver.cells[cell].prices[target] <= solver.cells[claim.cell].prices[target];
        if same_price && fits(&used, template.net(target)) {
            if let Some(joined) = join(solver, demand, index, cell, used) {
                settle(solver, demand, index, joined, target);
                return true;
            }
        } else if growing.len() < GROWING {
            growing.push((index, cell, used));
        }
    }
    for (index, cell, used) in growing {
        let before = solver.price(&solver.claims[index]);
        let Some(joined) = join(solver, demand, index, cell, used) else { continue };
        let prices = &solver.cells[cell].prices;
        let Some(target) = joined.types.ones().min_by_key(|&kind| (prices[kind], kind)) else {
            continue;
        };
        let dearer = prices[target] - before;
        let elsewhere = own_price(solver, demand, cell);
        if dearer <= elsewhere || strategy == Strategy::Fill {
            settle(solver, demand, index, joined, target);
            return true;
        }
    }
    false
}

/// What a place costs that the pod would get on a machine of its own, in micro-dollars, the price of one more machine included.
#[expect(clippy::cast_possible_truncation, reason = "hourly prices are far below 2^53 millionths")]
fn own_price(solver: &Solver<'_, '_>, demand: &Demand, cell: CellId) -> i64 {
    let requests = &solver.problem.shapes[demand.shape].requests;
    value(solver, cell, requests).ceil() as i64 + solver.problem.policy.node_price.0
}

/// The cell of a machine to come once the pod is there, if its rules let it.
fn admits(solver: &mut Solver<'_, '_>, demand: &Demand, index: usize) -> Option<CellId> {
    let problem = solver.problem;
    let shape = &problem.shapes[demand.shape];
    let claim = &solver.claims[index];
    if !shape.ports.is_empty() && ports_conflict(&shape.ports, &claim.ports) {
        return None;
    }
    let from = claim.cell;
    let cell = solver.cells.join(problem, from, shape.class, demand.variant).ok()?;
    solver.counts.narrow(problem, &mut solver.cells, demand.shape, index, cell).ok()
}

fn join(
    solver: &Solver<'_, '_>,
    demand: &Demand,
    index: usize,
    cell: CellId,
    used: Vec<i64>,
) -> Option<Joined> {
    let problem = solver.problem;
    let claim = &solver.claims[index];
    let mut types = claim.types.clone();
    types.intersect_with(&solver.cells[cell].types);
    let ports: Vec<_> =
        claim.ports.iter().chain(&problem.shapes[demand.shape].ports).cloned().collect();
    solver.keep_fitting(&mut types, solver.cells[cell].template, &used, &ports);
    let lacking = solver.is_strict() && solver.lacking_values(cell, &types).is_some();
    (!types.is_clear() && !lacking).then_some(Joined { cell, types, used })
}

fn settle(
    solver: &mut Solver<'_, '_>,
    demand: &mut Demand,
    index: usize,
    joined: Joined,
    target: usize,
) {
    let problem = solver.problem;
    let pod = demand.take(1)[0];
    solver.counts.add_on_claim(problem, &solver.cells, demand.shape, index, joined.cell);
    let claim = &mut solver.claims[index];
    claim.pods.push(pod);
    claim.ports.extend(problem.shapes[demand.shape].ports.iter().cloned());
    (claim.cell, claim.types, claim.used, claim.target) =
        (joined.cell, joined.types, joined.used, target);
}

fn open_claim(
    solver: &mut Solver<'_, '_>,
    demand: &mut Demand,
    template: usize,
) -> Result<(), Exclusion> {
    let problem = solver.problem;
    let shape = &problem.shapes[demand.shape];
    let free = solver.open(demand, template)?;
    let index = solver.claims.len();
    let cell = solver.counts.narrow(problem, &mut solver.cells, demand.shape, index, free)?;
    let mut types = solver.cells[cell].types.clone();
    solver.keep_fitting(&mut types, template, &shape.requests, &shape.ports);
    if types.is_clear() {
        return Err(solver.shortage(cell, &shape.requests));
    }
    solver.limits.restrict(problem, template, &mut types)?;
    if solver.is_strict()
        && let Some((key, required, found)) = solver.lacking_values(cell, &types)
    {
        let key = problem.symbols.key_name(key).to_owned();
        return Err(Exclusion::MinValues { key, required, found });
    }
    let target = target(solver, demand, cell, &types);
    if solver.limits.any(template) {
        let modest = solver.limits.modest(problem, template, &types, target);
        if solver.lacking_values(cell, &modest).is_none() {
            types = modest;
        }
        solver.limits.charge(problem, template, &types);
    }
    let relaxed = crate::pack::relax(solver, cell, &types);
    let pod = demand.take(1)[0];
    solver.counts.add_on_claim(problem, &solver.cells, demand.shape, index, cell);
    solver.claims.push(Claim {
        cell,
        used: shape.requests.clone(),
        types,
        ports: shape.ports.clone(),
        pods: vec![pod],
        relaxed,
        target,
    });
    Ok(())
}

/// The type that holds pods of the shape at the best price each, as far as there are any.
#[expect(clippy::cast_precision_loss, reason = "a ratio for comparison")]
fn target(solver: &Solver<'_, '_>, demand: &Demand, cell: CellId, types: &FixedBitSet) -> usize {
    let problem = solver.problem;
    let shape = &problem.shapes[demand.shape];
    let template = &problem.templates[solver.cells[cell].template];
    let alone =
        !shape.ports.is_empty() || problem.rules.one_per_host(demand.shape, problem.keys.hostname);
    let most = if alone { 1 } else { demand.left().max(1) };
    let price = |kind: usize| {
        let n = times(&shape.requests, template.net(kind)).clamp(1, most);
        let price = solver.cells[cell].prices[kind] + problem.policy.node_price.0;
        price as f64 / n as f64
    };
    let best = types.ones().min_by(|&a, &b| price(a).total_cmp(&price(b)).then(a.cmp(&b)));
    best.expect("the caller has made sure that there are types")
}
