//! A second look at machines for pods with topology rules.
//!
//! Such pods are placed shape by shape, as their rules allow, so machines hold what came one after
//! the other and not what goes well together. Once all have a place, pods that rules about zones or
//! other domains count stay where they are, or change places with others that the same rules count
//! ([`crews`]), and only the rules about hosts are left. First the machines of a NodePool are given
//! up and packed anew all at once: pods that no such rule counts go to whichever zone their machine
//! is cheapest in. Then the same is done for the machines of each spec, with all values worked out
//! for that zone. New machines are taken if they cost less.

mod crews;

use std::collections::{BTreeMap, BTreeSet};

use rustc_hash::FxHashMap;

use super::columns::{self, Candidate, Scene};
use super::commit::commit;
use super::load::{Load, Part};
use super::loads::cheapest_load;
use super::strategy::Repeats;
use super::values::Valuation;
use crate::Cancel;
use crate::demands::{Demand, LaunchOption};
use crate::limits::Limits;
use crate::machine_specs::SpecId;
use crate::solver::{Claim, Solver};
use crate::topology::Mobility;
use crews::Crews;

/// The limit on rounds before the first rounding of the machines of a NodePool, which are packed
/// once more spec by spec.
const ROUNDS_OVER_SPECS: usize = 20;

/// With more kinds of pods than this machines are left as they are.
const SHAPES: usize = 12_000;

/// The limit on shapes × pods that packing all at once may leave to be packed one after the other.
const WORK_AFTERWARDS: usize = 100_000;

/// The limit on shapes × machines for packing machines one after the other.
const WORK: usize = 8_000;

/// The same limit where machines hold many pods each.
const WORK_FOR_MANY_PODS: usize = 20_000;

/// The same limit once packing the machines all at once has made them cheaper: with larger specs,
/// one after the other is hardly ever cheaper still, and takes more time than all the rest of the
/// plan.
const WORK_TWICE: usize = 1_000;

/// From this number of pods on each machine holds many.
const MANY_PODS: usize = 16;

/// Fewer pods of a shape than this are few: hardly two machines can hold the same.
const REPLICAS: usize = 4;

/// Machines that cost so little more than what their pods are worth are left as they are.
const WORTH_IT: f64 = 1.01;

/// Packs machines to come anew where that costs less. Only for a finished plan.
pub(crate) fn repack(solver: &mut Solver<'_, '_>, cancel: &dyn Cancel) {
    let mut changed = false;
    // First which pods go to which zone, then each zone by itself.
    for scopes in [Scope::templates, Scope::specs] {
        for scope in scopes(solver) {
            if cancel.is_cancelled() {
                break;
            }
            let is_in = |&index: &usize| scope.has(solver, &solver.claims[index]);
            let claims: Vec<usize> = (0..solver.claims.len()).filter(is_in).collect();
            let constrained = |&index: &usize| {
                let shapes = shapes_of(solver, &solver.claims[index]);
                shapes.into_iter().any(|shape| solver.problem.rules.concern(shape))
            };
            if claims.len() > 1 && claims.iter().any(constrained) {
                changed |= repack_scope(solver, scope, &claims, cancel);
            }
        }
    }
    if changed {
        let pods = solver.claims.iter().map(|claim| &claim.pods[..]);
        solver.counts.recount_claims(&solver.problem.topology(), pods);
    }
}

/// Machines that are packed anew together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Scope {
    Spec(SpecId),
    /// Those of a NodePool. Pods that rules leave a choice of specs may change them.
    Template(usize),
}

impl Scope {
    fn templates(solver: &Solver<'_, '_>) -> BTreeSet<Self> {
        let template = |claim: &Claim| Self::Template(solver.specs[claim.spec].template);
        solver.claims.iter().map(template).collect()
    }

    fn specs(solver: &Solver<'_, '_>) -> BTreeSet<Self> {
        solver.claims.iter().map(|claim| Self::Spec(claim.spec)).collect()
    }

    fn has(self, solver: &Solver<'_, '_>, claim: &Claim) -> bool {
        match self {
            Self::Spec(spec) => claim.spec == spec,
            Self::Template(template) => solver.specs[claim.spec].template == template,
        }
    }

    /// The spec in which a pod opens machines, and whether it can only be there.
    fn own(self, solver: &mut Solver<'_, '_>, shape: usize, spec: SpecId) -> (SpecId, bool) {
        let problem = solver.problem;
        let Self::Template(template) = self else { return (spec, true) };
        let class = problem.tables.shapes[shape].class;
        let moves = problem.rules.mobility(shape) == Mobility::InTemplate
            && problem.tables.classes[class].variants.len() == 1;
        let base = solver.specs.base(&problem.tables, template);
        match solver.specs.join(&problem.tables, base, class, 0) {
            Ok(own) if moves => (own, false),
            _ => (spec, true),
        }
    }
}

/// Packs the claims of a scope anew, without those that hold pods that can't move freely. Returns
/// whether claims have other numbers now.
fn repack_scope(
    solver: &mut Solver<'_, '_>,
    scope: Scope,
    claims: &[usize],
    cancel: &dyn Cancel,
) -> bool {
    let problem = solver.problem;
    let is_free = |&index: &usize| {
        let claim = &solver.claims[index];
        let shapes = shapes_of(solver, claim);
        !solver.specs[claim.spec].requirements.has_min_values()
            && shapes.into_iter().all(|shape| {
                !problem.tables.shapes[shape].has_claims && problem.rules.is_alone_on_hosts(shape)
            })
    };
    let free: Vec<usize> = claims.iter().copied().filter(is_free).collect();
    let over_specs = matches!(scope, Scope::Template(_));
    let crews = if over_specs { Crews::of(solver, &free) } else { Crews::default() };
    let (mut demands, parts) = demands(solver, scope, &free, &crews);
    if demands.len() > SHAPES {
        return false;
    }
    if over_specs && parts.iter().all(|part| part.is_pinned) {
        return false;
    }
    let pods: usize = demands.iter().map(Demand::left).sum();
    let sparse = pods < demands.len() * REPLICAS;
    let few = pods < free.len() * MANY_PODS || sparse;
    let work = demands.len() * free.len();
    // Most machines are needed anyway, and one after the other they would be filled in no better
    // way.
    let forced = few && free.len() * 4 <= hosts_needed(solver, &demands) * 5;
    let most = if few { WORK } else { WORK_FOR_MANY_PODS };
    let most = if forced { 0 } else { most };
    let mut valuation = Valuation::default();
    // Of pods that may change places nothing is known: each has but one spec here.
    let is_known = crews.list.is_empty();
    let worth = if is_known { worth(solver, &mut valuation, &mut demands) } else { 0.0 };
    let node_price = problem.tables.policy.node_price.0;
    let price = |solver: &Solver<'_, '_>, claims: &[Claim]| -> i64 {
        claims.iter().map(|claim| solver.price(claim) + node_price).sum()
    };
    let now = free.iter().map(|&claim| solver.price(&solver.claims[claim]) + node_price).sum();
    if !costs_more(now, worth) {
        return false;
    }
    let mut given_up = free.iter().copied().peekable();
    let (mut old, mut kept) = (Vec::new(), Vec::new());
    for (index, claim) in std::mem::take(&mut solver.claims).into_iter().enumerate() {
        let gone = given_up.next_if_eq(&index).is_some();
        if gone { &mut old } else { &mut kept }.push(claim);
    }
    let kept_claims = kept.len();
    solver.claims = kept;
    charge_all(solver);
    let mut least = price(solver, &old);
    // All at once first: where that comes close to what the pods are worth there is nothing more to
    // gain.
    for at_once in [true, false] {
        let most = if least < now { WORK_TWICE } else { most };
        if !at_once && (over_specs || work > most || !costs_more(least, worth)) {
            break;
        }
        if at_once {
            let rounds = if over_specs { ROUNDS_OVER_SPECS } else { columns::ROUNDS };
            // With limits on the way, it takes many rounds until loads are as good as these.
            let current = if crews.list.is_empty() { Vec::new() } else { loads(&demands, &old) };
            let scene = Scene { parts: &parts, crews: &crews.list, current: &current, rounds };
            columns::open(solver, &mut demands, &scene, cancel);
            crews.seat(solver, &mut demands, &parts, kept_claims);
        }
        let filled = is_little(&demands, at_once)
            && fill_machines(solver, valuation.clone(), &mut demands, kept_claims, least);
        let made = solver.claims.split_off(kept_claims);
        let price = price(solver, &made);
        if filled && price < least {
            (least, old) = (price, made);
        }
        for demand in &mut demands {
            (demand.next, demand.value) = (0, None);
        }
        charge_all(solver);
    }
    solver.claims.append(&mut old);
    charge_all(solver);
    true
}

/// Whether so few pods are left after packing all at once that the rest is quickly packed.
fn is_little(demands: &[Demand], at_once: bool) -> bool {
    let left = demands.iter().map(Demand::left).filter(|&left| left > 0);
    let (shapes, pods) = left.fold((0, 0), |(shapes, pods), left| (shapes + 1, pods + left));
    !at_once || shapes * pods <= WORK_AFTERWARDS
}

/// Opens machines for all demands. Returns whether it could, at less than a price.
fn fill_machines(
    solver: &mut Solver<'_, '_>,
    mut valuation: Valuation,
    demands: &mut [Demand],
    kept: usize,
    before: i64,
) -> bool {
    let problem = solver.problem;
    let given_up = vec![false; demands.len()];
    let (mut spent, mut priced) = (0, kept);
    while let Some(seed) = demands.iter().position(|demand| demand.left() > 0) {
        let LaunchOption::Feasible(template, spec) = demands[seed].launch_option else {
            return false;
        };
        let mut allowed = solver.specs[spec].types.clone();
        if spent >= before
            || solver.limits.restrict(&problem.tables, template, &mut allowed).is_err()
        {
            return false;
        }
        valuation.refresh(solver, demands, &given_up, template);
        let parts = parts(solver, demands, spec, seed);
        let shape = &problem.tables.shapes[demands[seed].shape];
        let mut holding = allowed.clone();
        solver.keep_fitting(&mut holding, template, &shape.requests, &shape.ports);
        if holding.is_clear() {
            return false;
        }
        let load = cheapest_load(solver, demands, &parts, spec, &allowed);
        if load.takes.is_empty() || load.spec != spec {
            return false;
        }
        commit(solver, demands, load, template, &allowed, Repeats::Half);
        spent += solver.claims[priced..].iter().map(|claim| solver.price(claim)).sum::<i64>();
        priced = solver.claims.len();
    }
    true
}

/// The pods of some claims by shape and spec, the largest first, and how they may share machines.
fn demands(
    solver: &mut Solver<'_, '_>,
    scope: Scope,
    claims: &[usize],
    crews: &Crews,
) -> (Vec<Demand>, Vec<Candidate>) {
    let problem = solver.problem;
    let mut own: FxHashMap<(usize, SpecId), (SpecId, bool)> = FxHashMap::default();
    let mut alike: FxHashMap<(usize, SpecId, bool, Option<usize>), Vec<usize>> =
        FxHashMap::default();
    for &claim in claims {
        let spec = solver.claims[claim].spec;
        for at in 0..solver.claims[claim].pods.len() {
            let pod = solver.claims[claim].pods[at];
            let shape = shape_of(solver, pod);
            let crew = crews.of_pod(solver, pod);
            let (spec, is_pinned) = match crew {
                Some(crew) => (crews.list[crew].places[0].0, false),
                None => *own.entry((shape, spec)).or_insert_with(|| scope.own(solver, shape, spec)),
            };
            alike.entry((shape, spec, is_pinned, crew)).or_default().push(pod);
        }
    }
    let mut list: Vec<(Demand, bool, Option<usize>)> = alike
        .into_iter()
        .map(|((shape, spec, is_pinned, crew), mut pods)| {
            pods.sort_unstable();
            (demand(solver, shape, spec, pods), is_pinned, crew)
        })
        .collect();
    list.sort_by_key(|(demand, ..)| {
        let requests = &problem.tables.shapes[demand.shape].requests;
        (std::cmp::Reverse((requests[0], requests[1])), demand.pods[0])
    });
    let candidates = list.iter().enumerate().map(|(index, (demand, is_pinned, crew))| Candidate {
        demand: index,
        is_pinned: *is_pinned,
        groups: problem.rules.alone_on_hosts(demand.shape),
        crew: *crew,
    });
    let candidates = candidates.collect();
    (list.into_iter().map(|(demand, ..)| demand).collect(), candidates)
}

/// Pods of a shape that open machines of a spec.
fn demand(solver: &Solver<'_, '_>, shape: usize, spec: SpecId, pods: Vec<usize>) -> Demand {
    let launch_option = LaunchOption::Feasible(solver.specs[spec].template, spec);
    Demand { shape, pods, next: 0, variant: 0, dropped: 0, value: None, launch_option }
}

/// What claims hold, by demand.
fn loads(demands: &[Demand], claims: &[Claim]) -> Vec<Load> {
    let mut of_pod: FxHashMap<usize, usize> = FxHashMap::default();
    for (index, demand) in demands.iter().enumerate() {
        of_pod.extend(demand.pods.iter().map(|&pod| (pod, index)));
    }
    let load = |claim: &Claim| {
        let mut takes: BTreeMap<usize, usize> = BTreeMap::new();
        for demand in claim.pods.iter().filter_map(|pod| of_pod.get(pod)) {
            *takes.entry(*demand).or_default() += 1;
        }
        Load { spec: claim.spec, takes: takes.into_iter().collect(), value: 0.0 }
    };
    claims.iter().map(load).collect()
}

/// How many machines it takes at least, because of pods that keep off each other's hosts.
fn hosts_needed(solver: &Solver<'_, '_>, demands: &[Demand]) -> usize {
    let mut pods: FxHashMap<usize, usize> = FxHashMap::default();
    for demand in demands {
        for of in solver.problem.rules.alone_on_hosts(demand.shape) {
            if of.is_alone() {
                *pods.entry(of.group).or_default() += demand.pods.len();
            }
        }
    }
    pods.into_values().max().unwrap_or(1)
}

/// Whether machines cost so much more than their pods are worth that others may be cheaper.
#[expect(clippy::cast_precision_loss, reason = "a ratio")]
fn costs_more(price: i64, worth: f64) -> bool {
    price as f64 > worth * WORTH_IT
}

/// What pods are worth together; nothing is known of that where it is 0.
#[expect(clippy::cast_precision_loss, reason = "for comparison")]
fn worth(solver: &Solver<'_, '_>, valuation: &mut Valuation, demands: &mut [Demand]) -> f64 {
    let Some(LaunchOption::Feasible(template, spec)) =
        demands.first().map(|demand| demand.launch_option)
    else {
        return f64::INFINITY;
    };
    let given_up = vec![false; demands.len()];
    valuation.refresh(solver, demands, &given_up, template);
    // With too many pods and types there are no dual prices, and the pods' own best prices are no
    // bound.
    if demands.iter().all(|demand| demand.value.is_none()) {
        return 0.0;
    }
    let values = demands.iter().map(|demand| {
        let requests = &solver.problem.tables.shapes[demand.shape].requests;
        let value = demand.value.unwrap_or_else(|| super::value(solver, spec, requests));
        value * demand.left() as f64
    });
    values.sum()
}

/// The demands that are left, the seed first.
fn parts(solver: &Solver<'_, '_>, demands: &mut [Demand], spec: SpecId, seed: usize) -> Vec<Part> {
    let problem = solver.problem;
    let own = demands[seed].launch_option;
    let others = (0..demands.len()).filter(|&index| {
        index != seed && demands[index].left() > 0 && demands[index].launch_option == own
    });
    let order: Vec<usize> = std::iter::once(seed).chain(others).collect();
    order
        .into_iter()
        .map(|index| {
            let demand = &mut demands[index];
            let shape = &problem.tables.shapes[demand.shape];
            let value = || super::value(solver, spec, &shape.requests);
            Part {
                demand: index,
                left: demand.left(),
                value: *demand.value.get_or_insert_with(value),
                requests: shape.requests.clone(),
                ports: shape.ports.clone(),
                groups: problem.rules.alone_on_hosts(demand.shape),
                narrows: false,
            }
        })
        .collect()
}

/// Charges the limits with the claims that there are.
pub(super) fn charge_all(solver: &mut Solver<'_, '_>) {
    let problem = solver.problem;
    if !(0..problem.tables.templates.len()).any(|template| solver.limits.any(template)) {
        return;
    }
    solver.limits = Limits::new(&problem.tables);
    for claim in &solver.claims {
        solver.limits.charge(&problem.tables, solver.specs[claim.spec].template, &claim.types);
    }
}

fn shape_of(solver: &Solver<'_, '_>, pod: usize) -> usize {
    solver.problem.tables.snapshot.pods[pod].shape.0 as usize
}

fn shapes_of(solver: &Solver<'_, '_>, claim: &Claim) -> Vec<usize> {
    let mut shapes: Vec<usize> = claim.pods.iter().map(|&pod| shape_of(solver, pod)).collect();
    shapes.sort_unstable();
    shapes.dedup();
    shapes
}
