//! Filling one machine to come with pods.

use fixedbitset::FixedBitSet;

use super::exchange::improve;
use super::load::{Load, Part};
use crate::demands::Demand;
use crate::machine_specs::{SpecId, by_price, frontier};
use crate::solver::{ANY, Place, Solver, free_ports, room_for};
use crate::tables::shapes::HostPort;
use crate::tables::{add_times, take_times, times};
use crate::topology::HostOccupancy;

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

/// A machine of one type that is being filled.
struct Filling<'s, 'p, 'a> {
    solver: &'s mut Solver<'p, 'a>,
    demands: &'s [Demand],
    parts: &'s [Part],
    kind: usize,
    order: Order,
    room: Vec<i64>,
    ports: Vec<HostPort>,
    on_host: HostOccupancy,
    load: Load,
    /// By part.
    left: Vec<usize>,
}

/// The same as a place for a part's pods.
struct ForPart<'f, 's, 'p, 'a> {
    filling: &'f mut Filling<'s, 'p, 'a>,
    index: usize,
    /// The spec that it gets.
    joined: SpecId,
}

impl Place for ForPart<'_, '_, '_, '_> {
    fn by_room(&mut self) -> usize {
        self.filling.by_room(self.index)
    }

    fn by_labels(&mut self) -> usize {
        let Filling { solver, demands, parts, kind, order, load, .. } = &mut *self.filling;
        let part = &parts[self.index];
        if !part.narrows || *order == Order::Unnarrowed {
            return ANY;
        }
        let demand = &demands[part.demand];
        let tables = &solver.problem.tables;
        let class = tables.shapes[demand.shape].class;
        match solver.specs.join(tables, load.spec, class, demand.variant) {
            Ok(joined) if solver.specs[joined].types[*kind] => self.joined = joined,
            _ => return 0,
        }
        ANY
    }

    fn by_hosts(&mut self) -> usize {
        self.filling.on_host.most(&self.filling.parts[self.index].groups)
    }

    fn by_types(&mut self, pods: usize) -> usize {
        pods.min(free_ports(&self.filling.parts[self.index].ports, &self.filling.ports))
    }
}

impl Filling<'_, '_, '_> {
    /// How many pods of a part it has room for.
    fn by_room(&self, index: usize) -> usize {
        let part = &self.parts[index];
        let n = times(&part.requests, &self.room);
        if part.ports.is_empty() { n } else { n.min(1) }
    }

    /// Puts up to so many pods of a part in. Returns whether it did.
    fn put(&mut self, index: usize, most: usize) -> bool {
        let joined = self.load.spec;
        let mut place = ForPart { filling: self, index, joined };
        let n = room_for(&mut place, most);
        let joined = place.joined;
        if n == 0 {
            return false;
        }
        self.load.spec = joined;
        let part = &self.parts[index];
        self.ports.extend(part.ports.iter().cloned());
        self.on_host.add(&part.groups, n);
        take_times(&mut self.room, &part.requests, n);
        self.left[index] -= n;
        let load = &mut self.load;
        load.value += part.value * f64::from(u32::try_from(n).unwrap_or(u32::MAX));
        match load.takes.iter_mut().find(|(demand, _)| *demand == part.demand) {
            Some((_, count)) => *count += n,
            None => load.takes.push((part.demand, n)),
        }
        true
    }
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
    let mut filling = Filling {
        solver,
        demands,
        parts,
        kind,
        order,
        room: template.net(kind).to_vec(),
        ports: template.overheads.ports(kind).to_vec(),
        on_host: HostOccupancy::default(),
        load: Load { spec, takes: Vec::new(), value: 0.0 },
        left: parts.iter().map(|part| part.left).collect(),
    };
    if filling.left[0] == 0 || !filling.put(0, 1) {
        return None;
    }
    match order {
        Order::LargestFirst | Order::Unnarrowed => {
            for index in 0..parts.len() {
                filling.put(index, filling.left[index]);
            }
        }
        Order::BestMatchFirst => {
            let mut out = vec![false; parts.len()];
            loop {
                let mut best: Option<(f64, usize, usize)> = None;
                for (index, part) in parts.iter().enumerate() {
                    if out[index] || filling.left[index] == 0 {
                        continue;
                    }
                    let n = filling.by_room(index).min(filling.left[index]);
                    if n == 0 {
                        // Room only shrinks.
                        out[index] = true;
                        continue;
                    }
                    let score = part.value / usage(&part.requests, &filling.room);
                    if best.is_none_or(|(most, _, _)| score > most) {
                        best = Some((score, index, n));
                    }
                }
                let Some((_, index, n)) = best else { break };
                // In quarters: what is scarce changes as the machine fills.
                let is_in = filling.put(index, n.div_ceil(4));
                out[index] = !is_in || !parts[index].ports.is_empty();
            }
        }
    }
    Some(filling.load)
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

/// A machine that is being filled without a type in mind.
struct AnyType<'s, 'p, 'a> {
    solver: &'s mut Solver<'p, 'a>,
    demands: &'s [Demand],
    template: usize,
    load: Load,
    /// The types that hold its pods.
    types: FixedBitSet,
    used: Vec<i64>,
    ports: Vec<HostPort>,
    on_host: HostOccupancy,
}

/// The same as a place for a part's pods.
struct OfAnyType<'f, 's, 'p, 'a> {
    filling: &'f mut AnyType<'s, 'p, 'a>,
    part: &'f Part,
    is_seed: bool,
    /// The spec that it gets.
    joined: SpecId,
    /// What is used then, and the types that hold it.
    after: (Vec<i64>, FixedBitSet),
}

impl Place for OfAnyType<'_, '_, '_, '_> {
    fn by_room(&mut self) -> usize {
        let AnyType { solver, template, types, used, .. } = &*self.filling;
        // What does not fit makes no spec.
        if self.is_seed { ANY } else { most_of(solver, *template, types, used, self.part) }
    }

    fn by_labels(&mut self) -> usize {
        let AnyType { solver, demands, load, .. } = &mut *self.filling;
        let demand = &demands[self.part.demand];
        let tables = &solver.problem.tables;
        let class = tables.shapes[demand.shape].class;
        let joined = solver.specs.join(tables, load.spec, class, demand.variant);
        joined.map_or(0, |joined| {
            self.joined = joined;
            ANY
        })
    }

    fn by_hosts(&mut self) -> usize {
        self.filling.on_host.most(&self.part.groups)
    }

    fn by_types(&mut self, pods: usize) -> usize {
        let AnyType { solver, template, types, used, ports, .. } = &*self.filling;
        let part = self.part;
        let by_ports = free_ports(&part.ports, ports);
        if by_ports == 0 {
            return 0;
        }
        let mut narrowed = types.clone();
        narrowed.intersect_with(&solver.specs[self.joined].types);
        let all_ports: Vec<_> = ports.iter().chain(&part.ports).cloned().collect();
        if !part.ports.is_empty() {
            solver.keep_fitting(&mut narrowed, *template, used, &all_ports);
        }
        let mut n = pods.min(by_ports).min(most_of(solver, *template, &narrowed, used, part));
        while n > 0 {
            let mut more = used.clone();
            add_times(&mut more, &part.requests, n);
            let mut fitting = narrowed.clone();
            solver.keep_fitting(&mut fitting, *template, &more, &all_ports);
            let lacking = !self.is_seed
                && solver.is_strict()
                && solver.lacking_values(self.joined, &fitting).is_some();
            if !fitting.is_clear() && !lacking {
                self.after = (more, fitting);
                break;
            }
            n /= 2;
        }
        n
    }
}

/// Karpenter's load: the largest pods first, as long as any type holds one more.
pub(super) fn fill_load(
    solver: &mut Solver<'_, '_>,
    demands: &[Demand],
    parts: &[Part],
    spec: SpecId,
    allowed: &FixedBitSet,
) -> Load {
    let template = solver.specs[spec].template;
    let used = vec![0; solver.problem.tables.columns.len()];
    let load = Load { spec, takes: Vec::new(), value: 0.0 };
    let (ports, on_host) = (Vec::new(), HostOccupancy::default());
    let types = allowed.clone();
    let mut filling = AnyType { solver, demands, template, load, types, used, ports, on_host };
    for (index, part) in parts.iter().enumerate() {
        let (is_seed, after) = (index == 0, (Vec::new(), FixedBitSet::new()));
        let filled = &mut filling;
        let mut place = OfAnyType { filling: filled, part, is_seed, joined: spec, after };
        let n = room_for(&mut place, part.left);
        if n == 0 {
            continue;
        }
        let OfAnyType { joined, after, .. } = place;
        (filling.load.spec, (filling.used, filling.types)) = (joined, after);
        filling.load.takes.push((part.demand, n));
        filling.ports.extend(part.ports.iter().cloned());
        filling.on_host.add(&part.groups, n);
    }
    filling.load
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
