//! Packing: which pods share a machine to come.
//!
//! [`Strategy::Cheapest`] opens one kind of machine at a time. It starts from the largest pod that
//! has no place, tries for each type that is worth it (the spec's frontier) which other pods go
//! well with it, and takes the type whose load is worth most per dollar. A load is worth the sum of
//! its pods' values; a pod's value is its dual price in the relaxation of what is left
//! ([`crate::dual`]), and where there are too many shapes for that the price of its dominant share
//! on machines that suit it best. The same load is then bought as often as there are pods for it,
//! so that the work depends on the number of shapes and not on that of pods.
//!
//! [`Strategy::Fill`] is Karpenter's way: fill one claim, largest pod first, until nothing larger
//! exists that would hold one more pod. Both are run, and the cheaper plan is taken, so that a plan
//! is never dearer than Karpenter's. The second is given up as soon as it costs as much as the
//! first ([`crate::solver::Budget`]). In the plan that is taken pods may change machines once more
//! ([`relocate`](mod@relocate)).

mod bins;
mod columns;
mod commit;
pub(crate) mod constrained;
mod device_claims;
mod exchange;
mod joint;
mod knapsack;
mod load;
mod loads;
mod on_claim;
mod rehearsal;
mod relocate;
mod repack;
pub(crate) mod stepwise;
mod strategy;
mod turn;
mod values;

use crate::Cancel;
use crate::demands::{Demand, LaunchOption};
use crate::machine_specs::SpecId;
use crate::plan::Exclusion;
use crate::solver::Solver;
use crate::tables::{add_times, take_times};
use columns::{Candidate, ROUNDS, Scene};
use commit::commit;
use constrained::Placing;
use load::Part;
use loads::{cheapest_load, fill_load};
use strategy::Repeats;

use turn::turn;
use values::Valuation;

pub(crate) use bins::Bins;
pub(crate) use joint::pack_jointly;
pub(crate) use loads::value;
pub(crate) use rehearsal::rehearse;
pub(crate) use relocate::relocate;
pub(crate) use repack::repack;
pub(crate) use stepwise::alternatives;
pub(crate) use strategy::Strategy;

/// Machines that cost no more than this times what their pods are worth are not packed in yet
/// another way.
const CLOSE: f64 = 1.01;

/// Finds a place for every demand, on machines that exist first, then on new ones. Returns what
/// keeps the others waiting: demand and reasons.
pub(crate) fn pack(
    solver: &mut Solver<'_, '_>,
    demands: &mut [Demand],
    strategy: Strategy,
    open: &dyn Fn(usize) -> bool,
    cancel: &dyn Cancel,
) -> Vec<(usize, Vec<(String, Exclusion)>)> {
    let mut given_up = vec![false; demands.len()];
    let problem = solver.problem;
    let wanted =
        |demand: &Demand| (&problem.tables.shapes[demand.shape].requests[..], demand.left());
    solver.limits.share_among(demands.iter().map(wanted));
    if solver.claims.is_empty() {
        solver.counts.forget_claims();
        if let Some(devices) = &mut solver.devices {
            devices.forget_claims();
        }
    }
    let mut bins = Bins::new(solver, strategy);
    let mut waiting =
        place_constrained(solver, &mut bins, demands, strategy, open, &mut given_up, cancel);
    if !solver.claims.is_empty() {
        for (index, demand) in demands.iter_mut().enumerate() {
            if !given_up[index] {
                place_on_claims(solver, &mut bins, demand, strategy);
            }
        }
        bins.narrow(solver);
    }
    // Values are worked out anew whenever a good part of the pods has been packed: what is scarce
    // changes.
    let mut valuation = Valuation::default();
    let with_rules = solver.claims.len();
    let mut worth = None;
    if strategy == Strategy::Columns {
        find_launch_options(solver, demands, &given_up);
        let parts: Vec<Candidate> = (0..demands.len())
            .filter(|&demand| !given_up[demand])
            .map(|demand| Candidate { demand, is_pinned: false, groups: Vec::new(), crew: None })
            .collect();
        let scene = Scene { parts: &parts, crews: &[], current: &[], rounds: ROUNDS };
        worth = columns::open(solver, demands, &scene, cancel);
    }
    while let Some(seed) =
        (0..demands.len()).find(|&index| demands[index].left() > 0 && !given_up[index])
    {
        if solver.stops(cancel) {
            break;
        }
        match solver.launch_option(&demands[seed]) {
            Some((template, spec)) => {
                demands[seed].launch_option = LaunchOption::Feasible(template, spec);
                if strategy.has_values() {
                    find_launch_options(solver, demands, &given_up);
                    valuation.refresh(solver, demands, &given_up, template);
                }
                open_machines(solver, demands, &given_up, seed, strategy);
            }
            None => {
                let shape = &solver.problem.tables.shapes[demands[seed].shape];
                if demands[seed].variant + 1
                    < solver.problem.tables.classes[shape.class].variants.len()
                {
                    let demand = &mut demands[seed];
                    (demand.variant, demand.launch_option, demand.value) =
                        (demand.variant + 1, LaunchOption::Unknown, None);
                    solver.place_on_machines(demand, open);
                    place_on_claims(solver, &mut bins, demand, strategy);
                    bins.narrow(solver);
                } else {
                    given_up[seed] = true;
                    waiting.push((seed, solver.why_not_launchable(&demands[seed])));
                }
            }
        }
    }
    solver.opens_freely = solver.claims.len() > with_rules;
    solver.is_close = worth.is_some_and(|worth| {
        let node_price = solver.problem.tables.policy.node_price.0;
        let paid = solver.claims[with_rules..].iter().map(|claim| solver.price(claim) + node_price);
        is_close(paid.sum(), worth)
    });
    waiting
}

/// Whether machines cost so little more than their pods are worth that there is hardly anything to
/// gain.
#[expect(clippy::cast_precision_loss, reason = "a ratio")]
fn is_close(paid: i64, worth: f64) -> bool {
    paid as f64 <= worth * CLOSE
}

/// Places what topology rules are about, then what else fits on machines that exist. A pod may have
/// to wait for one that it wants to be near: as long as one finds a place the others are tried
/// again.
fn place_constrained(
    solver: &mut Solver<'_, '_>,
    bins: &mut Bins,
    demands: &mut [Demand],
    strategy: Strategy,
    open: &dyn Fn(usize) -> bool,
    given_up: &mut [bool],
    cancel: &dyn Cancel,
) -> Vec<(usize, Vec<(String, Exclusion)>)> {
    let problem = solver.problem;
    let has_claims = |demand: &Demand| problem.tables.shapes[demand.shape].has_claims;
    let first = |demand: &Demand| problem.rules.concern(demand.shape) || has_claims(demand);
    if strategy.has_values() {
        solver.unplaced = vec![0; problem.tables.columns.len()];
        for demand in demands.iter() {
            let requests = &problem.tables.shapes[demand.shape].requests;
            add_times(&mut solver.unplaced, requests, demand.left());
        }
    }
    let mut waiting = Vec::new();
    // kube-scheduler knows no virtual pods, so none may count when a pod that there is gets its
    // place.
    for are_virtual in [false, true] {
        let of_kind = |demand: &Demand| demand.is_virtual(problem) == are_virtual;
        let constrained = (0..demands.len()).filter(|&index| {
            let demand = &demands[index];
            of_kind(demand) && first(demand)
        });
        let mut constrained: Vec<usize> = constrained.collect();
        constrained.sort_by_cached_key(|&index| turn(problem, &demands[index], strategy, index));
        let mut waits_here = Vec::new();
        loop {
            let mut progress = false;
            waits_here.clear();
            for &index in &constrained {
                let demand = &mut demands[index];
                given_up[index] = true;
                let before = demand.left();
                let waits = stepwise::place(solver, bins, demand, strategy, open, cancel);
                if let Some(reasons) = waits {
                    waits_here.push((index, reasons));
                }
                let placed = before - demand.left();
                take_times(
                    &mut solver.unplaced,
                    &problem.tables.shapes[demand.shape].requests,
                    placed,
                );
                progress |= placed > 0;
            }
            if !progress || waits_here.is_empty() || solver.stops(cancel) {
                break;
            }
        }
        waiting.append(&mut waits_here);
        for demand in demands.iter_mut().filter(|demand| of_kind(demand) && !first(demand)) {
            solver.place_on_machines(demand, open);
        }
    }
    solver.unplaced.clear();
    waiting
}

/// Puts pods on machines that the plan opens anyway, as far as these get no dearer by it (with
/// [`Strategy::Fill`] also if they do).
fn place_on_claims(
    solver: &mut Solver<'_, '_>,
    bins: &mut Bins,
    demand: &mut Demand,
    strategy: Strategy,
) {
    let mut placing = Placing::new(bins, solver, demand);
    while demand.left() > 0 && placing.on_claim(solver, bins, demand, strategy) {}
}

/// Finds the launch options of all demands that have none yet.
fn find_launch_options(solver: &mut Solver<'_, '_>, demands: &mut [Demand], given_up: &[bool]) {
    for index in 0..demands.len() {
        if demands[index].launch_option == LaunchOption::Unknown
            && demands[index].left() > 0
            && !given_up[index]
        {
            demands[index].launch_option = match solver.launch_option(&demands[index]) {
                Some((template, spec)) => LaunchOption::Feasible(template, spec),
                None => LaunchOption::Infeasible,
            };
        }
    }
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
    let LaunchOption::Feasible(template, spec) = demands[seed].launch_option else { return };
    let mut allowed = solver.specs[spec].types.clone();
    solver
        .limits
        .restrict(&problem.tables, template, &mut allowed)
        .expect("the seed's launch option has a type within the limits");
    let parts = parts(solver, demands, given_up, seed, spec);
    let load = match strategy {
        Strategy::Cheapest | Strategy::Columns | Strategy::Plain => {
            cheapest_load(solver, demands, &parts, spec, &allowed)
        }
        Strategy::Fill => fill_load(solver, demands, &parts, spec, &allowed),
    };
    let repeats = if strategy.has_values() { Repeats::Half } else { Repeats::All };
    commit(solver, demands, load, template, &allowed, repeats);
}

/// The demands that may share a machine with the seed, the seed first, then in their order: those
/// that would open a machine of the same pool.
fn parts(
    solver: &mut Solver<'_, '_>,
    demands: &mut [Demand],
    given_up: &[bool],
    seed: usize,
    spec: SpecId,
) -> Vec<Part> {
    let problem = solver.problem;
    let template = solver.specs[spec].template;
    find_launch_options(solver, demands, given_up);
    let mut parts = Vec::new();
    let others = (0..demands.len()).filter(|&index| index != seed && !given_up[index]);
    for index in std::iter::once(seed).chain(others.collect::<Vec<_>>()) {
        if demands[index].left() == 0 {
            continue;
        }
        let own = match demands[index].launch_option {
            LaunchOption::Feasible(opens, own) if opens == template => own,
            _ => continue,
        };
        let demand = &mut demands[index];
        let shape = &problem.tables.shapes[demand.shape];
        let value = *demand.value.get_or_insert_with(|| value(solver, own, &shape.requests));
        if let Some(narrows) =
            solver.specs.narrows(&problem.tables, spec, shape.class, demand.variant)
        {
            parts.push(Part {
                demand: index,
                left: demand.left(),
                value,
                requests: shape.requests.clone(),
                ports: shape.ports.clone(),
                groups: Vec::new(),
                narrows,
            });
        }
    }
    parts
}
