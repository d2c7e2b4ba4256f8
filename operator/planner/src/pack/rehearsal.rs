//! Fleets that hold their pods however kube-scheduler deals them out.
//!
//! Where pods are not nominated to nodes a plan says what is launched, but not where pods go.
//! kube-scheduler deals them out evenly, and what fits when it is packed tightly then leaves the
//! last pods without a place: machines are launched for them in further rounds, and what the first
//! ones have left is of no use to anybody. So what the plan would really cost is rehearsed: its
//! pods are dealt out as kube-scheduler would, and what is left over is counted as launched for.
//! Fleets that are planned for being dealt out stand against it: of one type as many as it takes
//! until everybody finds a place, then single machines exchanged for others or left out as long as
//! all still do. The cheapest is taken, and its pods are where the rehearsal put them.
//!
//! Only machines take part that nothing but room decides about. Consolidation's rehearsal
//! ([`crate::disruption`]) asks something else: whether any order leaves somebody without a place,
//! where one machine too many undoes what it is for.

mod deal;

use fixedbitset::FixedBitSet;
use rustc_hash::{FxHashMap, FxHashSet};

use super::values::thinned;
use crate::Cancel;
use crate::machine_specs::SpecId;
use crate::snapshot::CapacityType;
use crate::solver::{Claim, Solver};
use crate::tables::add_times;
use deal::{Deal, Kind, Row};

/// With more pods than this nothing is rehearsed.
const PODS: usize = 20_000;

/// Nor with machines of more specs.
const SPECS: usize = 16;

/// Nor with more kinds of pods times machines: it is counted how many of each are where.
const COUNTS: usize = 500_000;

/// So many machines are looked at in all while pods are dealt out: some milliseconds.
const WORK: usize = 1_000_000;

/// Pods that came together are dealt out in these orders: everybody has to find a place in each.
const ORDERS: [u64; 2] = [1, 2];

/// Fleets of one type are tried of so many types.
const TYPES: usize = 12;

/// So often a fleet of one type grows until it holds all pods.
const STEPS: usize = 6;

/// Fleets with more machines than this are left as they are: one machine makes no difference.
const EXCHANGED: usize = 48;

/// Fleets are worth a second look that cost less than so much of what the plan comes to: single
/// machines may be exchanged.
const DEARER: (i64, i64) = (100, 115);

/// So many of them.
const IMPROVED: usize = 3;

/// What is left over costs so much more in further rounds than it is worth: these are dealt out,
/// too.
const FURTHER_ROUNDS: f64 = 1.15;

/// Machines by type: index in [`Stage::kinds`], and how many.
type Fleet = Vec<(usize, usize)>;

/// Replaces machines to come by such as cost less once pods have been dealt out. Only for a
/// finished plan: claims have other numbers then.
pub(crate) fn rehearse(solver: &mut Solver<'_, '_>, cancel: &dyn Cancel) {
    let (mut free, mut fixed) = (Vec::new(), Vec::new());
    for claim in std::mem::take(&mut solver.claims) {
        if is_free(solver, &claim) { &mut free } else { &mut fixed }.push(claim);
    }
    let better = Stage::new(solver, &free).and_then(|mut stage| {
        let fleet = stage.search(cancel)?;
        Some(stage.claims(solver, &fleet))
    });
    fixed.extend(better.unwrap_or(free));
    solver.claims = fixed;
}

/// Whether nothing but room decides which pods a machine takes, and nothing but the price how many
/// of its kind are bought.
fn is_free(solver: &Solver<'_, '_>, claim: &Claim) -> bool {
    let problem = solver.problem;
    let spec = &solver.specs[claim.spec];
    let table = &problem.tables.catalogs[problem.tables.templates[spec.template].catalog];
    let is_reserved = |market: usize| table.markets[market].capacity_type == CapacityType::Reserved;
    let is_plain = |&pod: &usize| {
        let pod = &problem.tables.snapshot.pods[pod];
        let (number, shape) = (pod.shape.0 as usize, &problem.tables.shapes[pod.shape.0 as usize]);
        let alone = problem.rules.concern(number) || shape.has_claims || !shape.ports.is_empty();
        pod.buffer.is_none() && !alone
    };
    !spec.requirements.has_min_values()
        && !solver.limits.any(spec.template)
        && !spec.markets.ones().any(is_reserved)
        && claim.pods.iter().all(is_plain)
}

/// What is rehearsed, in numbers.
struct Stage {
    specs: Vec<SpecId>,
    /// Types of machines that may be bought, by spec.
    kinds: Vec<Kind>,
    /// The instance types of these.
    types: Vec<usize>,
    deal: Deal,
    /// What the plan buys.
    planned: Fleet,
}

impl Stage {
    /// Nothing when there is too much of it, or nothing to rehearse.
    fn new(solver: &mut Solver<'_, '_>, claims: &[Claim]) -> Option<Self> {
        let problem = solver.problem;
        let pods: usize = claims.iter().map(|claim| claim.pods.len()).sum();
        let mut specs: Vec<SpecId> = claims.iter().map(|claim| claim.spec).collect();
        specs.sort_unstable();
        specs.dedup();
        let shapes: FxHashSet<_> = claims
            .iter()
            .flat_map(|claim| &claim.pods)
            .map(|&pod| problem.tables.snapshot.pods[pod].shape)
            .collect();
        let large = shapes.len() * claims.len() > COUNTS;
        if claims.len() < 2 || large || pods > PODS || specs.len() > SPECS {
            return None;
        }
        let mut order: Vec<usize> = claims.iter().flat_map(|claim| &claim.pods).copied().collect();
        order.sort_unstable();
        let mut row_of: FxHashMap<usize, usize> = FxHashMap::default();
        let mut shapes = Vec::new();
        let pods: Vec<(usize, usize)> = order
            .iter()
            .map(|&pod| {
                let shape = problem.tables.snapshot.pods[pod].shape.0 as usize;
                let row = *row_of.entry(shape).or_insert_with(|| {
                    shapes.push(shape);
                    shapes.len() - 1
                });
                (pod, row)
            })
            .collect();
        let queues = ORDERS.map(|number| {
            // Pods in the order in which kube-scheduler takes them; those that came together in no
            // certain one.
            let mut order: Vec<usize> = (0..pods.len()).collect();
            crate::arrival_order::shuffle(&mut order, number);
            order.sort_by_key(|&at| {
                let pod = &problem.tables.snapshot.pods[pods[at].0];
                (std::cmp::Reverse(pod.priority), pod.created_at)
            });
            order.into_iter().map(|at| pods[at]).collect()
        });
        let used = |&column: &usize| {
            column < 2
                || shapes.iter().any(|&shape| problem.tables.shapes[shape].requests[column] > 0)
        };
        let columns: Vec<usize> = (0..problem.tables.columns.len()).filter(used).collect();
        let of = |row: &[i64]| -> Vec<i64> { columns.iter().map(|&it| row[it]).collect() };
        let rows: Vec<Row> = shapes
            .iter()
            .map(|&shape| {
                let suitable = (0..specs.len()).filter(|&at| suits(solver, specs[at], shape));
                let takes: FixedBitSet = suitable.collect();
                let value = takes
                    .ones()
                    .map(|at| solver.specs.place_price(&problem.tables, specs[at], shape));
                let value = value.min()?;
                Some(Row { requests: of(&problem.tables.shapes[shape].requests), takes, value })
            })
            .collect::<Option<_>>()?;
        let node_price = problem.tables.policy.node_price.0;
        let (mut kinds, mut types) = (Vec::new(), Vec::new());
        for (group, &spec) in specs.iter().enumerate() {
            let (spec, template) = (&solver.specs[spec], solver.specs[spec].template);
            let price = |kind: usize| spec.price(kind).saturating_add(node_price);
            let mut some =
                thinned(solver, template, spec.frontier(&problem.tables).to_vec(), &price);
            some.extend(claims.iter().filter(|it| it.spec == specs[group]).map(|it| it.target));
            some.sort_unstable();
            some.dedup();
            for kind in some {
                let net = of(problem.tables.templates[template].net(kind));
                kinds.push(Kind { group, net, price: price(kind) });
                types.push(kind);
            }
        }
        let mut counts = vec![0; kinds.len()];
        for claim in claims {
            let at = (0..kinds.len())
                .find(|&at| specs[kinds[at].group] == claim.spec && types[at] == claim.target)?;
            counts[at] += 1;
        }
        let planned = counts.into_iter().enumerate().filter(|it| it.1 > 0).collect();
        Some(Self { specs, kinds, types, deal: Deal::new(rows, columns, queues), planned })
    }

    /// The cheapest fleet on which everybody finds a place, if it costs less than the plan does in
    /// the end.
    fn search(&mut self, cancel: &dyn Cancel) -> Option<Fleet> {
        let planned = self.planned.clone();
        let cost = self.cost(&planned)?;
        let mut fleets = vec![(0, planned)];
        for group in 0..self.specs.len() {
            let (_, fleet) = fleets.swap_remove(0);
            fleets = self.of_one_type(group, fleet, cost);
            if fleets.is_empty() || cancel.is_cancelled() {
                return None;
            }
        }
        fleets.truncate(IMPROVED);
        let improved =
            fleets.into_iter().map(|(price, fleet)| self.exchanged(price, fleet, cancel));
        let (price, fleet) = improved.min_by_key(|it| it.0)?;
        (price < cost).then_some(fleet)
    }

    /// Fleets in which all machines of a spec are of one type, the cheapest first: those on which
    /// all find a place whose specs have been looked at so far. They may cost somewhat more than
    /// the plan.
    fn of_one_type(&mut self, group: usize, fleet: Fleet, cost: i64) -> Vec<(i64, Fleet)> {
        let rest: Fleet = fleet.into_iter().filter(|it| self.kinds[it.0].group != group).collect();
        let others = self.price(&rest);
        let need = self.deal.need(group);
        let mut candidates: Vec<(i64, usize, usize)> = (0..self.kinds.len())
            .filter(|&kind| {
                self.kinds[kind].group == group && self.deal.holds_all(&self.kinds[kind])
            })
            .map(|kind| {
                let n = self.kinds[kind].times(&need);
                (self.kinds[kind].price.saturating_mul(number(n)), kind, n)
            })
            .collect();
        candidates.sort_unstable();
        let mut fleets = Vec::new();
        for (_, kind, mut n) in candidates.into_iter().take(TYPES) {
            for _ in 0..STEPS {
                let mut fleet = rest.clone();
                fleet.extend((n > 0).then_some((kind, n)));
                let price = others.saturating_add(self.kinds[kind].price.saturating_mul(number(n)));
                if price / DEARER.1 * DEARER.0 >= cost {
                    break;
                }
                let Some(mut left) = self.deal.left_over(&self.kinds, &fleet) else { break };
                left.retain(|&row| self.deal.is_settled(row, group));
                if left.is_empty() {
                    fleets.push((price, fleet));
                    break;
                }
                n += self.kinds[kind].times(&self.deal.sum(left.into_iter())).max(1);
            }
        }
        fleets.sort_unstable();
        fleets
    }

    /// Exchanges single machines for cheaper ones, or leaves them out, as long as everybody finds a
    /// place.
    fn exchanged(&mut self, mut price: i64, mut fleet: Fleet, cancel: &dyn Cancel) -> (i64, Fleet) {
        let machines = |fleet: &Fleet| fleet.iter().map(|it| it.1).sum::<usize>();
        if machines(&fleet) > EXCHANGED {
            return (price, fleet);
        }
        loop {
            let mut cheapest: Option<(i64, Fleet)> = None;
            for at in 0..fleet.len() {
                let out = fleet[at].0;
                let mut moves: Vec<(i64, Option<usize>)> = (0..self.kinds.len())
                    .filter(|&kind| self.kinds[kind].group == self.kinds[out].group)
                    .map(|kind| (self.kinds[kind].price, Some(kind)))
                    .chain([(0, None)])
                    .filter(|it| it.0 < self.kinds[out].price)
                    .collect();
                moves.sort_unstable();
                // What saves most first: when it holds everybody the others save less.
                for (paid, kind) in moves {
                    let then = price - self.kinds[out].price + paid;
                    if cheapest.as_ref().is_some_and(|it| it.0 <= then) {
                        break;
                    }
                    let mut other = fleet.clone();
                    other[at].1 -= 1;
                    if let Some(kind) = kind {
                        match other.iter_mut().find(|it| it.0 == kind) {
                            Some(known) => known.1 += 1,
                            None => other.push((kind, 1)),
                        }
                    }
                    other.retain(|it| it.1 > 0);
                    let Some(left) = self.deal.left_over(&self.kinds, &other) else {
                        return (price, fleet);
                    };
                    if left.is_empty() {
                        cheapest = Some((then, other));
                        break;
                    }
                }
            }
            match cheapest {
                Some(better) if !cancel.is_cancelled() => (price, fleet) = better,
                _ => return (price, fleet),
            }
        }
    }

    fn price(&self, fleet: &[(usize, usize)]) -> i64 {
        fleet.iter().map(|&(kind, n)| self.kinds[kind].price * number(n)).sum()
    }

    /// What a fleet costs with what is launched for the pods that are left over; nothing when the
    /// work is done.
    #[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, reason = "an estimate")]
    fn cost(&mut self, fleet: &[(usize, usize)]) -> Option<i64> {
        let left = self.deal.left_over(&self.kinds, fleet)?;
        let further = self.deal.value(&left) as f64 * FURTHER_ROUNDS;
        Some(self.price(fleet).saturating_add(further as i64))
    }

    /// The machines of a fleet with the pods that the rehearsal put there.
    fn claims(&self, solver: &Solver<'_, '_>, fleet: &[(usize, usize)]) -> Vec<Claim> {
        let problem = solver.problem;
        let mut claims: Vec<Claim> = Vec::new();
        for &(kind, n) in fleet {
            let (spec, target) = (self.specs[self.kinds[kind].group], self.types[kind]);
            let template = solver.specs[spec].template;
            // Room that only the rehearsal knows of has to be there, whatever type it becomes.
            let room = self.deal.asked(problem.tables.templates[template].net(target));
            let mut types = solver.specs[spec].types.clone();
            solver.keep_fitting(&mut types, template, &room, &[]);
            let claim = Claim {
                spec,
                used: vec![0; problem.tables.columns.len()],
                types,
                ports: Vec::new(),
                pods: Vec::new(),
                relaxed: Vec::new(),
                target,
            };
            claims.extend(std::iter::repeat_n(claim, n));
        }
        for (pod, machine) in self.deal.places(&self.kinds, fleet) {
            let shape = problem.tables.snapshot.pods[pod].shape.0 as usize;
            add_times(&mut claims[machine].used, &problem.tables.shapes[shape].requests, 1);
            claims[machine].pods.push(pod);
        }
        claims.retain(|claim| !claim.pods.is_empty());
        claims
    }
}

/// Whether a machine of a spec takes pods of a shape and keeps its spec.
fn suits(solver: &mut Solver<'_, '_>, spec: SpecId, shape: usize) -> bool {
    let problem = solver.problem;
    let class = problem.tables.shapes[shape].class;
    let mut variants = problem.tables.classes[class].variants.relaxed();
    variants.any(|variant| solver.specs.joined(&problem.tables, spec, class, variant) == Some(spec))
}

fn number(n: usize) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}
