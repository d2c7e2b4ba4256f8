//! Packing: which pods share a machine to come.
//!
//! [`Strategy::Cheapest`] opens one kind of machine at a time. It starts from the largest pod that has no place, tries for each type that is worth it (the
//! cell's frontier) which other pods go well with it, and takes the type whose load is worth most per dollar. A load is worth the sum of its pods'
//! values; a pod's value is what it costs on machines that suit it best, the price of its dominant share. The same load is then bought as often as there
//! are pods for it, so that the work depends on the number of shapes and not on that of pods.
//!
//! [`Strategy::Fill`] is Karpenter's way: fill one claim, largest pod first, until nothing larger exists that would hold one more pod. Both are run, and
//! the cheaper plan is taken, so that a plan is never dearer than Karpenter's.

use fixedbitset::FixedBitSet;

use crate::Cancel;
use crate::cells::{CellId, frontier};
use crate::compile::shapes::{HostPort, ports_conflict};
use crate::compile::{add_times, take_times, times};
use crate::limits::Limits;
use crate::plan::Exclusion;
use crate::solver::{Claim, Demand, Solver};

/// How machines are filled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Strategy {
    /// By price per what is packed.
    Cheapest,
    /// As Karpenter does.
    Fill,
}

/// A load for one machine.
#[derive(Clone, Debug)]
struct Load {
    cell: CellId,
    /// Demand and number of pods, in the order in which they were put in.
    takes: Vec<(usize, usize)>,
    value: f64,
}

/// Pods that could be part of a load.
#[derive(Clone, Debug)]
struct Part {
    demand: usize,
    left: usize,
    value: f64,
    requests: Vec<i64>,
    ports: Vec<HostPort>,
    /// Whether it narrows the machine beyond what the seed does.
    narrows: bool,
}

/// Finds a place for every demand, on machines that exist first, then on new ones. Returns what keeps the others waiting: demand and reasons.
pub(crate) fn pack(
    solver: &mut Solver<'_, '_>,
    demands: &mut [Demand],
    strategy: Strategy,
    open: &dyn Fn(usize) -> bool,
    cancel: &dyn Cancel,
) -> Vec<(usize, Vec<(String, Exclusion)>)> {
    let mut given_up = vec![false; demands.len()];
    let mut waiting = place_ruled(solver, demands, strategy, open, &mut given_up, cancel);
    if !solver.claims.is_empty() {
        for (index, demand) in demands.iter_mut().enumerate() {
            if !given_up[index] {
                place_on_claims(solver, demand, strategy);
            }
        }
    }
    while let Some(seed) =
        (0..demands.len()).find(|&index| demands[index].left() > 0 && !given_up[index])
    {
        if cancel.is_cancelled() {
            break;
        }
        match solver.home(&demands[seed]) {
            Ok((template, cell)) => {
                demands[seed].home = Some(Some((template, cell)));
                open_machines(solver, demands, &given_up, seed, strategy);
            }
            Err(reasons) => {
                let shape = &solver.problem.shapes[demands[seed].shape];
                if demands[seed].variant + 1 < solver.problem.classes[shape.class].variants.len() {
                    let demand = &mut demands[seed];
                    (demand.variant, demand.home, demand.value) = (demand.variant + 1, None, -1.0);
                    solver.place_on_machines(demand, open);
                    place_on_claims(solver, demand, strategy);
                } else {
                    given_up[seed] = true;
                    waiting.push((seed, reasons));
                }
            }
        }
    }
    waiting
}

/// Places what topology rules are about, then what else fits on machines that exist. A pod may have to wait for one that it wants to be near: as long as
/// one finds a place the others are tried again.
fn place_ruled(
    solver: &mut Solver<'_, '_>,
    demands: &mut [Demand],
    strategy: Strategy,
    open: &dyn Fn(usize) -> bool,
    given_up: &mut [bool],
    cancel: &dyn Cancel,
) -> Vec<(usize, Vec<(String, Exclusion)>)> {
    let rules = &solver.problem.rules;
    let mut ruled: Vec<_> =
        (0..demands.len()).filter(|&index| rules.concern(demands[index].shape)).collect();
    ruled.sort_by_key(|&index| (rules.rank(demands[index].shape), index));
    let mut waiting = Vec::new();
    loop {
        let mut progress = false;
        waiting.clear();
        for &index in &ruled {
            let demand = &mut demands[index];
            given_up[index] = true;
            let before = demand.left();
            if let Some(reasons) = crate::ruled::place(solver, demand, strategy, open, cancel) {
                waiting.push((index, reasons));
            }
            progress |= demand.left() < before;
        }
        if !progress || waiting.is_empty() || cancel.is_cancelled() {
            break;
        }
    }
    for demand in demands.iter_mut().filter(|demand| !solver.problem.rules.concern(demand.shape)) {
        solver.place_on_machines(demand, open);
    }
    waiting
}

/// Puts pods on machines that the plan opens anyway, as far as these get no dearer by it (with [`Strategy::Fill`] also if they do).
fn place_on_claims(solver: &mut Solver<'_, '_>, demand: &mut Demand, strategy: Strategy) {
    let problem = solver.problem;
    let shape = &problem.shapes[demand.shape];
    for index in 0..solver.claims.len() {
        if demand.left() == 0 {
            return;
        }
        let claim = &solver.claims[index];
        let price = solver.price(claim);
        let (from, ports) = (claim.cell, claim.ports.clone());
        let Ok(cell) = solver.cells.join(problem, from, shape.class, demand.variant) else {
            continue;
        };
        let template = solver.cells[cell].template;
        let claim = &solver.claims[index];
        let mut types = claim.types.clone();
        types.intersect_with(&solver.cells[cell].types);
        let best = types
            .ones()
            .filter(|&kind| strategy == Strategy::Fill || solver.cells[cell].prices[kind] <= price)
            .map(|kind| {
                times(&shape.requests, &rest(problem.templates[template].net(kind), &claim.used))
            })
            .max()
            .unwrap_or(0);
        let mut n = best.min(demand.left());
        if !shape.ports.is_empty() {
            n = n.min(usize::from(!ports_conflict(&shape.ports, &ports)));
        }
        if n == 0 {
            continue;
        }
        let mut used = claim.used.clone();
        add_times(&mut used, &shape.requests, n);
        let all_ports: Vec<_> = ports.iter().chain(&shape.ports).cloned().collect();
        solver.keep_fitting(&mut types, template, &used, &all_ports);
        if types.is_clear() || (solver.is_strict() && solver.lacking_values(cell, &types).is_some())
        {
            continue;
        }
        let pods = demand.take(n).to_vec();
        let prices = &solver.cells[cell].prices;
        let target = types.ones().min_by_key(|&kind| (prices[kind], kind));
        let claim = &mut solver.claims[index];
        claim.target = target.expect("types is not empty");
        claim.pods.extend(pods);
        (claim.cell, claim.used, claim.types, claim.ports) = (cell, used, types, all_ports);
    }
}

fn rest(net: &[i64], used: &[i64]) -> Vec<i64> {
    net.iter().zip(used).map(|(have, used)| have - used).collect()
}

/// Opens machines of the seed's template, at least one, with the seed on it.
fn open_machines(
    solver: &mut Solver<'_, '_>,
    demands: &mut [Demand],
    given_up: &[bool],
    seed: usize,
    strategy: Strategy,
) {
    let problem = solver.problem;
    let (template, cell) =
        demands[seed].home.flatten().expect("the caller has found the seed's home");
    let mut allowed = solver.cells[cell].types.clone();
    solver
        .limits
        .restrict(problem, template, &mut allowed)
        .expect("the seed's home has a type within the limits");
    let parts = parts(solver, demands, given_up, seed, cell);
    let load = match strategy {
        Strategy::Cheapest => cheapest_load(solver, demands, &parts, cell, &allowed),
        Strategy::Fill => fill_load(solver, demands, &parts, cell, &allowed),
    };
    commit(solver, demands, load, template, &allowed);
}

/// The demands that may share a machine with the seed, the seed first, then in their order: those that would open a machine of the same pool.
fn parts(
    solver: &mut Solver<'_, '_>,
    demands: &mut [Demand],
    given_up: &[bool],
    seed: usize,
    cell: CellId,
) -> Vec<Part> {
    let problem = solver.problem;
    let template = solver.cells[cell].template;
    let mut parts = Vec::new();
    let others = (0..demands.len()).filter(|&index| index != seed && !given_up[index]);
    for index in std::iter::once(seed).chain(others.collect::<Vec<_>>()) {
        if demands[index].left() == 0 {
            continue;
        }
        if demands[index].home.is_none() {
            demands[index].home = Some(solver.home(&demands[index]).ok());
        }
        let home = demands[index].home.flatten();
        let Some((_, own)) = home.filter(|home| home.0 == template) else { continue };
        if demands[index].value < 0.0 {
            demands[index].value =
                value(solver, own, &problem.shapes[demands[index].shape].requests);
        }
        let demand = &demands[index];
        let shape = &problem.shapes[demand.shape];
        if let Ok(joined) = solver.cells.join(problem, cell, shape.class, demand.variant) {
            parts.push(Part {
                demand: index,
                left: demand.left(),
                value: demand.value,
                requests: shape.requests.clone(),
                ports: shape.ports.clone(),
                narrows: joined != cell,
            });
        }
    }
    parts
}

/// What a place costs on the machines that suit a request best: the price of its dominant share.
#[expect(clippy::cast_precision_loss, reason = "a weight, not an amount of money that is paid")]
pub(crate) fn value(solver: &Solver<'_, '_>, cell: CellId, requests: &[i64]) -> f64 {
    let cell = &solver.cells[cell];
    let template = &solver.problem.templates[cell.template];
    let share = |kind: usize| {
        let net = template.net(kind);
        let dominant = requests
            .iter()
            .zip(net)
            .filter(|&(&want, _)| want > 0)
            .map(
                |(&want, &have)| {
                    if have >= want { want as f64 / have as f64 } else { f64::INFINITY }
                },
            )
            .fold(0.0, f64::max);
        // Free machines still cost a pod slot, so that free pods are packed, too.
        dominant * (cell.prices[kind] as f64 + 1.0)
    };
    let best = cell.frontier.iter().map(|&kind| share(kind)).fold(f64::INFINITY, f64::min);
    if best.is_finite() { best } else { 0.0 }
}

/// The load that is worth most per dollar, over the types that are worth considering.
#[expect(clippy::cast_precision_loss, reason = "a ratio for comparison")]
fn cheapest_load(
    solver: &mut Solver<'_, '_>,
    demands: &[Demand],
    parts: &[Part],
    cell: CellId,
    allowed: &FixedBitSet,
) -> Load {
    let problem = solver.problem;
    let current = &solver.cells[cell];
    let template = current.template;
    let kinds = if *allowed == current.types {
        current.frontier.clone()
    } else {
        frontier(problem, template, allowed, &current.prices)
    };
    let node_price = problem.policy.node_price.0.max(1);
    let mut best: Option<(f64, Load)> = None;
    for kind in kinds {
        for order in [Order::LargestFirst, Order::BestMatchFirst] {
            let Some(load) = fill(solver, demands, parts, cell, kind, order) else { break };
            let price = solver.cells[load.cell].prices[kind];
            let worth = load.value / price.saturating_add(node_price) as f64;
            if best.as_ref().is_none_or(|(most, _)| worth > *most * (1.0 + 1e-9)) {
                best = Some((worth, load));
            }
        }
    }
    // With a seed that only dominated types take (host ports of daemons differ between types) Karpenter's way still finds one.
    best.map_or_else(|| fill_load(solver, demands, parts, cell, allowed), |(_, load)| load)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Order {
    LargestFirst,
    /// Worth most per what it uses of what is left, where what is scarce weighs more.
    BestMatchFirst,
}

/// Fills a machine of one type, with one seed first.
fn fill(
    solver: &mut Solver<'_, '_>,
    demands: &[Demand],
    parts: &[Part],
    cell: CellId,
    kind: usize,
    order: Order,
) -> Option<Load> {
    let problem = solver.problem;
    let template = &problem.templates[solver.cells[cell].template];
    let mut room = template.net(kind).to_vec();
    let mut ports = template.overheads.ports(kind).to_vec();
    let mut load = Load { cell, takes: Vec::new(), value: 0.0 };
    let mut left: Vec<usize> = parts.iter().map(|part| part.left).collect();
    let mut out = vec![false; parts.len()];
    let mut put = |solver: &mut Solver<'_, '_>,
                   load: &mut Load,
                   room: &mut Vec<i64>,
                   left: &mut [usize],
                   index: usize,
                   n: usize| {
        let part = &parts[index];
        if part.narrows {
            let demand = &demands[part.demand];
            let class = problem.shapes[demand.shape].class;
            match solver.cells.join(problem, load.cell, class, demand.variant) {
                Ok(joined) if solver.cells[joined].types[kind] => load.cell = joined,
                _ => return false,
            }
        }
        if !part.ports.is_empty() {
            if n > 1 || ports_conflict(&part.ports, &ports) {
                return false;
            }
            ports.extend(part.ports.iter().cloned());
        }
        take_times(room, &part.requests, n);
        left[index] -= n;
        load.value += part.value * f64::from(u32::try_from(n).unwrap_or(u32::MAX));
        match load.takes.iter_mut().find(|(demand, _)| *demand == part.demand) {
            Some((_, count)) => *count += n,
            None => load.takes.push((part.demand, n)),
        }
        true
    };
    let most = |part: &Part, room: &[i64], left: usize| {
        let n = times(&part.requests, room).min(left);
        if part.ports.is_empty() { n } else { n.min(1) }
    };
    if most(&parts[0], &room, left[0]) == 0 || !put(solver, &mut load, &mut room, &mut left, 0, 1) {
        return None;
    }
    match order {
        Order::LargestFirst => {
            for index in 0..parts.len() {
                let n = most(&parts[index], &room, left[index]);
                if n > 0 {
                    put(solver, &mut load, &mut room, &mut left, index, n);
                }
            }
        }
        Order::BestMatchFirst => loop {
            let mut best: Option<(f64, usize, usize)> = None;
            for (index, part) in parts.iter().enumerate() {
                if out[index] || left[index] == 0 {
                    continue;
                }
                let n = most(part, &room, left[index]);
                if n == 0 {
                    // Room only shrinks.
                    out[index] = true;
                    continue;
                }
                let score = part.value / usage(&part.requests, &room);
                if best.is_none_or(|(most, _, _)| score > most) {
                    best = Some((score, index, n));
                }
            }
            let Some((_, index, n)) = best else { break };
            // In quarters: what is scarce changes as the machine fills.
            let n = n.div_ceil(4);
            if !put(solver, &mut load, &mut room, &mut left, index, n) {
                out[index] = true;
            }
        },
    }
    Some(load)
}

/// What part of the room a request uses, summed over resources.
#[expect(clippy::cast_precision_loss, reason = "a weight")]
fn usage(requests: &[i64], room: &[i64]) -> f64 {
    let sum: f64 = requests
        .iter()
        .zip(room)
        .filter(|&(&want, _)| want > 0)
        .map(|(&want, &have)| want as f64 / have as f64)
        .sum();
    sum.max(f64::MIN_POSITIVE)
}

/// Karpenter's load: the largest pods first, as long as any type holds one more.
fn fill_load(
    solver: &mut Solver<'_, '_>,
    demands: &[Demand],
    parts: &[Part],
    cell: CellId,
    allowed: &FixedBitSet,
) -> Load {
    let problem = solver.problem;
    let template = solver.cells[cell].template;
    let mut load = Load { cell, takes: Vec::new(), value: 0.0 };
    let mut types = allowed.clone();
    let mut used = vec![0; problem.columns.len()];
    let mut ports: Vec<HostPort> = Vec::new();
    for (index, part) in parts.iter().enumerate() {
        let demand = &demands[part.demand];
        let class = problem.shapes[demand.shape].class;
        let Ok(joined) = solver.cells.join(problem, load.cell, class, demand.variant) else {
            continue;
        };
        let mut narrowed = types.clone();
        narrowed.intersect_with(&solver.cells[joined].types);
        let all_ports: Vec<_> = ports.iter().chain(&part.ports).cloned().collect();
        if !part.ports.is_empty() {
            if ports_conflict(&part.ports, &ports) {
                continue;
            }
            solver.keep_fitting(&mut narrowed, template, &used, &all_ports);
        }
        let compiled = &problem.templates[template];
        let holds = |kind: usize| times(&part.requests, &rest(compiled.net(kind), &used));
        let mut n = narrowed.ones().map(holds).max().unwrap_or(0).min(part.left);
        if !part.ports.is_empty() {
            n = n.min(1);
        }
        let mut kept = None;
        while n > 0 {
            let mut more = used.clone();
            add_times(&mut more, &part.requests, n);
            let mut fitting = narrowed.clone();
            solver.keep_fitting(&mut fitting, template, &more, &all_ports);
            let lacking = index > 0
                && solver.is_strict()
                && solver.lacking_values(joined, &fitting).is_some();
            if !fitting.is_clear() && !lacking {
                kept = Some((more, fitting));
                break;
            }
            n /= 2;
        }
        if let Some((more, fitting)) = kept {
            (load.cell, used, types, ports) = (joined, more, fitting, all_ports);
            load.takes.push((part.demand, n));
        }
    }
    load
}

/// Opens as many machines with a load as there are pods for it.
fn commit(
    solver: &mut Solver<'_, '_>,
    demands: &mut [Demand],
    mut load: Load,
    template: usize,
    allowed: &FixedBitSet,
) {
    let problem = solver.problem;
    let attainable = solver.is_strict() || {
        let mut types = allowed.clone();
        let seed = &problem.shapes[demands[load.takes[0].0].shape];
        solver.keep_fitting(&mut types, template, &seed.requests, &seed.ports);
        solver.lacking_values(load.cell, &types).is_none()
    };
    let (types, used, ports) = loop {
        let mut used = vec![0; problem.columns.len()];
        let mut ports = Vec::new();
        for &(demand, n) in &load.takes {
            let shape = &problem.shapes[demands[demand].shape];
            add_times(&mut used, &shape.requests, n);
            ports.extend(shape.ports.iter().cloned());
        }
        let mut types = solver.cells[load.cell].types.clone();
        types.intersect_with(allowed);
        solver.keep_fitting(&mut types, template, &used, &ports);
        let lacking =
            types.is_clear() || (attainable && solver.lacking_values(load.cell, &types).is_some());
        let alone = load.takes.len() == 1 && load.takes[0].1 == 1;
        if !lacking || alone {
            break (types, used, ports);
        }
        // Fewer pods leave more types to choose from.
        lighten(solver, demands, &mut load);
    };
    let types = keep_modest(solver, &load, template, types);
    let relaxed = relax(solver, load.cell, &types);
    let prices = &solver.cells[load.cell].prices;
    let target = types.ones().min_by_key(|&kind| (prices[kind], kind));
    let target = target.expect("the seed's home has a type that holds it");
    let limited = solver.limits.any(template);
    let repeats = load.takes.iter().map(|&(demand, n)| demands[demand].left() / n).min();
    let repeats = if limited { 1 } else { repeats.unwrap_or(1).max(1) };
    for _ in 0..repeats {
        let mut pods = Vec::new();
        for &(demand, n) in &load.takes {
            pods.extend_from_slice(demands[demand].take(n));
        }
        solver.claims.push(Claim {
            cell: load.cell,
            used: used.clone(),
            types: types.clone(),
            ports: ports.clone(),
            pods,
            relaxed: relaxed.clone(),
            target,
        });
    }
    if limited {
        solver.limits.charge(problem, template, &types);
        // What is left of the limit may exclude types, and so whole templates.
        demands.iter_mut().for_each(|demand| demand.home = None);
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
    let mut cell = None;
    for &(demand, _) in &load.takes {
        let demand = &demands[demand];
        let class = problem.shapes[demand.shape].class;
        let from = cell.unwrap_or_else(|| {
            let template = solver.cells[load.cell].template;
            solver.cells.base(problem, template)
        });
        if let Ok(joined) = solver.cells.join(problem, from, class, demand.variant) {
            cell = Some(joined);
        }
    }
    load.cell = cell.unwrap_or(load.cell);
}

fn keep_modest(
    solver: &Solver<'_, '_>,
    load: &Load,
    template: usize,
    types: FixedBitSet,
) -> FixedBitSet {
    let limits: &Limits = &solver.limits;
    let prices = &solver.cells[load.cell].prices;
    let Some(cheapest) = types.ones().min_by_key(|&kind| (prices[kind], kind)) else {
        return types;
    };
    if !limits.any(template) {
        return types;
    }
    let modest = limits.modest(solver.problem, template, &types, cheapest);
    if solver.lacking_values(load.cell, &modest).is_some() { types } else { modest }
}

/// Under BestEffort the keys whose `minValues` can't be had, with what can.
pub(crate) fn relax(
    solver: &Solver<'_, '_>,
    cell: CellId,
    types: &FixedBitSet,
) -> Vec<(crate::intern::Key, u32)> {
    if solver.is_strict() {
        return Vec::new();
    }
    let problem = solver.problem;
    let table = &problem.catalogs[problem.templates[solver.cells[cell].template].catalog];
    solver.cells[cell]
        .requirements
        .iter()
        .filter_map(|(key, set)| {
            let required = set.min_values()?;
            let found = crate::solver::distinct_values(problem, table, key, set, types);
            (found < required).then_some((key, found))
        })
        .collect()
}
