//! Filling one machine to come with pods.

use fixedbitset::FixedBitSet;

use super::exchange::improve;
use super::load::{Load, Part};
use crate::demands::Demand;
use crate::machine_specs::{SpecId, by_price, frontier};
use crate::solver::Solver;
use crate::tables::shapes::{HostPort, ports_conflict};
use crate::tables::{add_times, take_times, times};

/// How many types are filled in both orders.
const PROMISING: usize = 12;

/// With more parts than this that narrow the machine only the type is filled that would be best if
/// none did: each pod of each load makes another spec.
const NARROWING: usize = 256;

/// What a place costs on the machines that suit a request best: the price of its dominant share.
#[expect(clippy::cast_precision_loss, reason = "a weight, not an amount of money that is paid")]
pub(crate) fn value(solver: &Solver<'_, '_>, spec: SpecId, requests: &[i64]) -> f64 {
    let spec = &solver.specs[spec];
    let template = &solver.problem.tables.templates[spec.template];
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
        dominant * (spec.price(kind) as f64 + 1.0)
    };
    let best = spec
        .frontier(&solver.problem.tables)
        .iter()
        .map(|&kind| share(kind))
        .fold(f64::INFINITY, f64::min);
    if best.is_finite() { best } else { 0.0 }
}

/// What a load is worth per what its machine costs.
fn worth(solver: &Solver<'_, '_>, load: &Load, kind: usize) -> f64 {
    load.value / cost(solver, load, kind)
}

/// What its machine costs.
#[expect(clippy::cast_precision_loss, reason = "a ratio for comparison")]
fn cost(solver: &Solver<'_, '_>, load: &Load, kind: usize) -> f64 {
    let price = solver.specs[load.spec].price(kind);
    price.saturating_add(solver.problem.tables.policy.node_price.0.max(1)) as f64
}

/// The load that is worth most per dollar, over the types that are worth considering.
pub(super) fn cheapest_load(
    solver: &mut Solver<'_, '_>,
    demands: &[Demand],
    parts: &[Part],
    spec: SpecId,
    allowed: &FixedBitSet,
) -> Load {
    let problem = solver.problem;
    let current = &solver.specs[spec];
    let template = current.template;
    let kinds = if *allowed == current.types {
        current.frontier(&problem.tables).to_vec()
    } else {
        frontier(&problem.tables, template, &by_price(allowed, |kind| current.price(kind)))
    };
    let price = |kind: usize| solver.specs[spec].price(kind);
    let mut kinds = super::values::thinned(solver, template, kinds, &price);
    let mut promising = PROMISING;
    if parts.iter().filter(|part| part.narrows).count() > NARROWING {
        let mut best: Option<(f64, usize)> = None;
        for kind in kinds.drain(..) {
            let Some(load) = fill(solver, demands, parts, spec, kind, Order::Unnarrowed) else {
                continue;
            };
            let worth = worth(solver, &load, kind);
            if best.is_none_or(|(most, _)| worth > most) {
                best = Some((worth, kind));
            }
        }
        kinds.extend(best.map(|(_, kind)| kind));
        promising = 0;
    }
    let mut loads = Vec::new();
    for kind in kinds {
        if let Some(load) = fill(solver, demands, parts, spec, kind, Order::LargestFirst) {
            loads.push((worth(solver, &load, kind), kind, load));
        }
    }
    // The other order is dearer to work out: only types that come close get a second chance.
    loads.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
    let promising: Vec<usize> = loads.iter().take(promising).map(|&(_, kind, _)| kind).collect();
    let mut best = loads.into_iter().next();
    for kind in promising {
        let Some(load) = fill(solver, demands, parts, spec, kind, Order::BestMatchFirst) else {
            continue;
        };
        let worth = worth(solver, &load, kind);
        if best.as_ref().is_none_or(|(most, ..)| worth > *most * (1.0 + 1e-9)) {
            best = Some((worth, kind, load));
        }
    }
    // With a seed that only dominated types take (host ports of daemons differ between types)
    // Karpenter's way still finds one.
    let Some((_, kind, mut load)) = best else {
        return fill_load(solver, demands, parts, spec, allowed);
    };
    let price = cost(solver, &load, kind);
    improve(&mut load, parts, problem.tables.templates[template].net(kind), price);
    load
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Order {
    LargestFirst,
    /// The same, as if no pod narrowed the machine.
    Unnarrowed,
    /// Worth most per what it uses of what is left, where what is scarce weighs more.
    BestMatchFirst,
}

/// Fills a machine of one type, with one seed first.
fn fill(
    solver: &mut Solver<'_, '_>,
    demands: &[Demand],
    parts: &[Part],
    spec: SpecId,
    kind: usize,
    order: Order,
) -> Option<Load> {
    let problem = solver.problem;
    let template = &problem.tables.templates[solver.specs[spec].template];
    let mut room = template.net(kind).to_vec();
    let mut ports = template.overheads.ports(kind).to_vec();
    let mut load = Load { spec, takes: Vec::new(), value: 0.0 };
    let mut left: Vec<usize> = parts.iter().map(|part| part.left).collect();
    let mut out = vec![false; parts.len()];
    let mut groups = FixedBitSet::with_capacity(problem.rules.len());
    let mut put = |solver: &mut Solver<'_, '_>,
                   load: &mut Load,
                   room: &mut Vec<i64>,
                   left: &mut [usize],
                   index: usize,
                   n: usize| {
        let part = &parts[index];
        if part.narrows && order != Order::Unnarrowed {
            let demand = &demands[part.demand];
            let class = problem.tables.shapes[demand.shape].class;
            match solver.specs.join(&problem.tables, load.spec, class, demand.variant) {
                Ok(joined) if solver.specs[joined].types[kind] => load.spec = joined,
                _ => return false,
            }
        }
        if !part.is_sociable() {
            let taken = part.groups.iter().any(|&group| groups[group]);
            if n > 1 || taken || ports_conflict(&part.ports, &ports) {
                return false;
            }
            ports.extend(part.ports.iter().cloned());
            groups.extend(part.groups.iter().copied());
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
        if part.is_sociable() { n } else { n.min(1) }
    };
    if most(&parts[0], &room, left[0]) == 0 || !put(solver, &mut load, &mut room, &mut left, 0, 1) {
        return None;
    }
    match order {
        Order::LargestFirst | Order::Unnarrowed => {
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
            let is_in = put(solver, &mut load, &mut room, &mut left, index, n);
            out[index] = !is_in || !parts[index].is_sociable();
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
pub(super) fn fill_load(
    solver: &mut Solver<'_, '_>,
    demands: &[Demand],
    parts: &[Part],
    spec: SpecId,
    allowed: &FixedBitSet,
) -> Load {
    let problem = solver.problem;
    let template = solver.specs[spec].template;
    let mut load = Load { spec, takes: Vec::new(), value: 0.0 };
    let mut types = allowed.clone();
    let mut used = vec![0; problem.tables.columns.len()];
    let mut ports: Vec<HostPort> = Vec::new();
    let mut groups: Vec<usize> = Vec::new();
    for (index, part) in parts.iter().enumerate() {
        let demand = &demands[part.demand];
        let class = problem.tables.shapes[demand.shape].class;
        // What does not fit makes no spec.
        if index > 0 && most_of(solver, template, &types, &used, part) == 0 {
            continue;
        }
        let Ok(joined) = solver.specs.join(&problem.tables, load.spec, class, demand.variant)
        else {
            continue;
        };
        if part.groups.iter().any(|group| groups.contains(group)) {
            continue;
        }
        let mut narrowed = types.clone();
        narrowed.intersect_with(&solver.specs[joined].types);
        let all_ports: Vec<_> = ports.iter().chain(&part.ports).cloned().collect();
        if !part.ports.is_empty() {
            if ports_conflict(&part.ports, &ports) {
                continue;
            }
            solver.keep_fitting(&mut narrowed, template, &used, &all_ports);
        }
        let mut n = most_of(solver, template, &narrowed, &used, part);
        if !part.is_sociable() {
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
            (load.spec, used, types, ports) = (joined, more, fitting, all_ports);
            load.takes.push((part.demand, n));
            groups.extend(&part.groups);
        }
    }
    load
}

/// How many pods any of some types still takes.
fn most_of(
    solver: &Solver<'_, '_>,
    template: usize,
    types: &FixedBitSet,
    used: &[i64],
    part: &Part,
) -> usize {
    let fitting = &solver.problem.tables.templates[template].fitting;
    let of = |column: usize| (fitting.most(types, column) - used[column]) / part.requests[column];
    let columns = (0..used.len()).filter(|&column| part.requests[column] > 0);
    let most = columns.map(of).min().unwrap_or(i64::MAX);
    let most = usize::try_from(most).unwrap_or(0).min(part.left);
    let holds = |n: usize| {
        let mut more = used.to_vec();
        add_times(&mut more, &part.requests, n);
        let mut types = types.clone();
        fitting.keep(&mut types, &more);
        !types.is_clear()
    };
    // Of each resource some type has enough for `most`; one type may not have all.
    let (mut least, mut beyond) = (0, most + 1);
    while beyond - least > 1 {
        let middle = if beyond == most + 1 { most } else { usize::midpoint(least, beyond) };
        if holds(middle) { least = middle } else { beyond = middle }
    }
    least
}
