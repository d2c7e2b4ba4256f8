//! The least that any plan can cost, to measure plans against.

mod hosts;
mod splits;
mod whole;
mod zones;

use std::collections::{BTreeMap, BTreeSet};

use fixedbitset::FixedBitSet;

use crate::compile::Problem;
use crate::demands::demands;
use crate::dual::{Deals, Item, Kind, exact, worthy};
use crate::machine_specs::MachineSpecs;
use crate::policy::Policy;
use crate::resources::MicroUsd;
use crate::snapshot::Snapshot;
use crate::tables::machines::machine_meets;
use crate::tables::shapes::ClassId;
use crate::tables::taints::untolerated;
use splits::Splits;
use zones::{ItemInZone, Zones};

/// How much work the bound takes at most, in rounds of looking at each shape on each type and in
/// squares of the number of shapes: many times of what it took on anything that was tried.
const ROUNDS: u64 = 3_000;

/// With a budget for fewer rounds the bound may be too far from the best one to say anything.
const LEAST_ROUNDS: u64 = 100;

/// How many machines are asked for how many classes of pods whether they take them. Beyond that, a
/// machine counts as if it took all.
const MOST_ASKED: usize = 200_000;

/// How many sets of pods are told apart that machines take. A machine of any further set counts as
/// if it took all.
const MOST_SETS: usize = 64;

/// A lower bound of what launches for the pending pods cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bound {
    /// Per hour.
    pub price: MicroUsd,
}

/// The bound of the linear relaxation over shapes × instance types, daemons included: machines may
/// be bought in parts, and nothing counts but processors, memory, how few large pods a machine
/// holds, node affinity, taints, how many pods of a group a host holds (anti-affinity, and spread
/// over hosts, of which there is always one more), and how many pods each zone gets of those that
/// are spread over zones with different prices. What machines that exist may take is taken off at
/// its value. Pods that fit no instance type are left out.
pub fn lower_bound(snapshot: &Snapshot, policy: &Policy) -> Bound {
    let overlaid = crate::overlays::apply(snapshot);
    let problem = Problem::new(&overlaid.snapshot, policy);
    let relaxation = relaxation(&problem);
    relaxation.bound(&problem, relaxation.work(), true)
}

/// The same bound within a budget, for whoever can't wait: less work gives a lower bound too, and a
/// looser one. A step is one look at a type for a shape, or at an entry of a table of shapes ×
/// shapes. `None` when the budget is too small for a bound that says anything.
pub fn lower_bound_within(snapshot: &Snapshot, policy: &Policy, steps: u64) -> Option<Bound> {
    let overlaid = crate::overlays::apply(snapshot);
    let problem = Problem::new(&overlaid.snapshot, policy);
    let relaxation = relaxation(&problem);
    let per_round: usize = relaxation.items.iter().map(|item| item.kinds.len()).sum();
    let full = relaxation.work();
    let more = splits::steps(per_round, relaxation.kinds.len(), &relaxation.places);
    let is_thorough = full.saturating_add(more as u64) <= steps;
    let enough = steps / (per_round.max(1) as u64) >= LEAST_ROUNDS;
    enough.then(|| relaxation.bound(&problem, steps.min(full), is_thorough))
}

/// What is left of a problem when pods can be cut and machines bought in parts.
struct Relaxation {
    kinds: Vec<Kind>,
    items: Vec<Item>,
    places: hosts::Places,
    /// The pods whose zones a rule has a say in; each of their items is what they are in some
    /// zones.
    deals: Deals,
    zones: Zones,
    /// By kind: the zones where it costs so much, as one of [`Zones::alike`].
    sold_in: Vec<usize>,
    taken: Taken,
}

/// Which items the machines that exist may take, by taints and labels.
struct Taken {
    /// Sets of items; the first has all.
    sets: Vec<FixedBitSet>,
    /// By position in the order of machines: its set.
    of_machine: Vec<usize>,
}

impl Taken {
    /// `shapes`: by item.
    fn new(problem: &Problem<'_>, shapes: &[usize]) -> Self {
        let tables = &problem.tables;
        let machines = &tables.machines.order;
        let mut all = FixedBitSet::with_capacity(shapes.len());
        all.insert_range(..);
        let classes: BTreeSet<_> = shapes.iter().map(|&shape| tables.shapes[shape].class).collect();
        let mut taken = Self { sets: vec![all], of_machine: vec![0; machines.len()] };
        if classes.len().saturating_mul(machines.len()) > MOST_ASKED {
            return taken;
        }
        // What a pod only prefers keeps it from nowhere.
        let weakest: BTreeMap<_, Vec<_>> = classes
            .into_iter()
            .map(|class| {
                let variants = &tables.classes[class].variants;
                let relaxed = variants.relaxed();
                (class, relaxed.map(|index| variants.at(index, &tables.symbols)).collect())
            })
            .collect();
        let mut known: BTreeMap<FixedBitSet, usize> = BTreeMap::new();
        for (position, &machine) in machines.iter().enumerate() {
            let taints = &tables.snapshot.nodes[machine].taints;
            let takes = |class: &ClassId| {
                let tolerations = &tables.classes[*class].tolerations;
                weakest[class].iter().any(|variant| {
                    untolerated(taints, tolerations, variant.preferred_taints).is_none()
                        && machine_meets(tables, machine, &variant.requirements)
                })
            };
            let classes: BTreeSet<ClassId> =
                weakest.keys().copied().filter(|class| takes(class)).collect();
            let is_taken = |item: &usize| classes.contains(&tables.shapes[shapes[*item]].class);
            let mut set = FixedBitSet::with_capacity(shapes.len());
            set.extend((0..shapes.len()).filter(is_taken));
            let next = taken.sets.len();
            taken.of_machine[position] = match known.get(&set) {
                Some(&index) => index,
                None if next == MOST_SETS => 0,
                None => {
                    known.insert(set.clone(), next);
                    taken.sets.push(set);
                    next
                }
            };
        }
        taken
    }
}

impl Relaxation {
    /// How much work the best bound with processors and memory takes at most.
    fn work(&self) -> u64 {
        let per_round: usize = self.items.iter().map(|item| item.kinds.len()).sum();
        let all = per_round.saturating_add(self.items.len().saturating_mul(self.items.len()));
        (all as u64).saturating_mul(ROUNDS)
    }

    fn bound(&self, problem: &Problem<'_>, work: u64, is_thorough: bool) -> Bound {
        let Self { kinds, items, places, deals, .. } = self;
        let values = exact(kinds, items, deals, work);
        let worth = |kind: usize, room: [f64; 2]| {
            let Kind { room: all, price } = kinds[kind];
            let split = values.splits[kind];
            price * (split * room[0] / all[0] + (1.0 - split) * room[1] / all[1])
        };
        let mut bound = values.bound - self.worth_of_machines(problem, &worth, values.bound);
        if is_thorough && !items.is_empty() {
            let splits: Splits = splits::improve(kinds, items, places, &values, deals);
            let worth = |kind: usize, room: [f64; 2]| splits.worth(kinds, kind, room);
            let there = self.worth_of_machines(problem, &worth, splits.bound);
            bound = bound.max(splits.bound - there);
        }
        Bound { price: MicroUsd(floor(bound)) }
    }

    /// What the room of machines that exist is worth at most: at the unit prices of a type that
    /// holds every pod that the machine may take, no such pod costs less than its value.
    #[expect(clippy::cast_precision_loss, reason = "a bound, rounded down")]
    fn worth_of_machines(
        &self,
        problem: &Problem<'_>,
        price: &dyn Fn(usize, [f64; 2]) -> f64,
        bound: f64,
    ) -> f64 {
        let machines = &problem.tables.machines;
        // For machines in each of the zones, then for those in none of them, where no pods are that
        // have a rule about them.
        let n_zones = self.zones.alike.len();
        let universal = |zone: usize, set: usize| {
            let dealt_there = |item: usize| self.sold_in[self.items[item].kinds[0]] == zone;
            let asked: Vec<usize> = self.taken.sets[set]
                .ones()
                .filter(|&item| !self.deals.is_dealt(item) || dealt_there(item))
                .collect();
            let holds = |&kind: &usize| {
                asked.iter().all(|&it| self.items[it].kinds.binary_search(&kind).is_ok())
            };
            let kinds: Vec<usize> = (0..self.kinds.len()).filter(holds).collect();
            // A machine that takes none of the pods is worth nothing.
            (!asked.is_empty()).then_some(kinds)
        };
        let mut known: BTreeMap<(usize, usize), Option<Vec<usize>>> = BTreeMap::new();
        let worth = |(&machine, &set): (&usize, &usize)| {
            let zone = self.zones.of_machine(problem, machine).unwrap_or(n_zones);
            let kinds = known.entry((zone, set)).or_insert_with(|| universal(zone, set));
            let room = &machines.room()[machine * machines.width()..];
            let room = [room[0].max(0) as f64, room[1].max(0) as f64];
            kinds.as_ref().map_or(0.0, |kinds| {
                let worths = kinds.iter().map(|&kind| price(kind, room));
                // Without such a type the machine may be worth anything.
                worths.fold(bound, f64::min)
            })
        };
        machines.order.iter().zip(&self.taken.of_machine).map(worth).sum()
    }
}

fn relaxation(problem: &Problem<'_>) -> Relaxation {
    let mut specs = MachineSpecs::default();
    let (demands, _) = demands(problem, |_| true);
    let zones = Zones::new(problem, &mut specs, &demands);
    let (mut kinds, mut sold_in, mut offers) = (Vec::new(), Vec::new(), Vec::new());
    for template in 0..problem.tables.templates.len() {
        let base = specs.base(&problem.tables, template);
        for zone in 0..zones.alike.len() {
            let Some(spec) = zones.spec(problem, &mut specs, base, zone) else { continue };
            offers.push(Offer { template, zone, first_kind: kinds.len() });
            for kind in 0..specs[spec].n_types() {
                kinds.push(Kind::new(
                    problem.tables.templates[template].net(kind),
                    specs[spec].price(kind),
                ));
                sold_in.push(zone);
            }
        }
    }
    let (mut items, mut shapes, mut deals) = (Vec::new(), Vec::new(), Vec::new());
    for demand in &demands {
        let holding = holding(problem, &mut specs, &zones, &offers, demand.shape);
        if holding.is_empty() {
            continue;
        }
        let requests = &problem.tables.shapes[demand.shape].requests;
        let pods = demand.pods.len();
        let first = items.len();
        // In the order of the zones.
        let parts = holding.chunk_by(|&a, &b| sold_in[a] == sold_in[b]);
        let parts: Vec<&[usize]> = parts.collect();
        let places: Vec<ItemInZone> = parts
            .iter()
            .zip(first..)
            .map(|(part, item)| ItemInZone { zone: sold_in[part[0]], item })
            .collect();
        match zones.deal(problem, demand, &places) {
            Some(deal) => {
                deals.push(deal);
                items.extend(parts.iter().map(|part| Item::new(pods, requests, part.to_vec())));
            }
            None => items.push(Item::new(pods, requests, sorted(holding))),
        }
        shapes.resize(items.len(), demand.shape);
    }
    let deals = Deals::new(deals, items.len());
    deals.begin(&mut items);
    let lists: Vec<&[usize]> = items.iter().map(|item| &item.kinds[..]).collect();
    let worthy = worthy(&kinds, &lists);
    let kinds = worthy.iter().map(|&kind| kinds[kind]).collect();
    let sold_in = worthy.iter().map(|&kind| sold_in[kind]).collect();
    for item in &mut items {
        let known = item.kinds.iter().filter_map(|kind| worthy.binary_search(kind).ok());
        item.kinds = known.collect();
    }
    let places = hosts::Places::of(problem, &shapes, &items);
    let taken = Taken::new(problem, &shapes);
    Relaxation { kinds, items, places, deals, zones, sold_in, taken }
}

/// The types of a NodePool in zones that cost the same.
struct Offer {
    template: usize,
    zone: usize,
    first_kind: usize,
}

/// The kinds that hold a pod of a shape, those of one zone after those of another.
fn holding(
    problem: &Problem<'_>,
    specs: &mut MachineSpecs,
    zones: &Zones,
    offers: &[Offer],
    shape: usize,
) -> Vec<usize> {
    let shape = &problem.tables.shapes[shape];
    let mut by_zone = vec![Vec::new(); zones.alike.len()];
    for &Offer { template, zone, first_kind } in offers {
        let base = specs.base(&problem.tables, template);
        let mut types = FixedBitSet::with_capacity(specs[base].types.len());
        for variant in 0..problem.tables.classes[shape.class].variants.len() {
            if let Ok(spec) = specs.join(&problem.tables, base, shape.class, variant) {
                zones.add_types(problem, specs, spec, zone, &mut types);
            }
        }
        problem.tables.templates[template].fitting.keep(&mut types, &shape.requests);
        by_zone[zone].extend(types.ones().map(|kind| first_kind + kind));
    }
    by_zone.concat()
}

fn sorted(mut kinds: Vec<usize>) -> Vec<usize> {
    kinds.sort_unstable();
    kinds
}

#[expect(clippy::cast_possible_truncation, reason = "hourly prices are far below 2^53 millionths")]
fn floor(price: f64) -> i64 {
    if price.is_finite() { price.max(0.0).floor() as i64 } else { 0 }
}
