//! A few machines, packed all at once over all zones.
//!
//! Packing puts pods that are spread over zones into their zones shape by shape, and
//! [`super::repack`](mod@super::repack) then fills the machines of each zone anew. Where there are
//! many machines that costs next to nothing. Where there are a few, which of the zones gets one
//! more pod decides whether a machine is needed there, and that is worth up to a quarter of the
//! price. So the machines of a small plan are given up together with the zones of their pods, and
//! bought anew by a covering problem that knows both ([`market`], [`search`]): a load is for
//! machines of one zone, and how a shape's pods are dealt out among zones is a variable of the
//! problem like what is bought. The result is taken if it costs less.
//!
//! Only pods whose rules the problem can express take part ([`model`]); machines that hold any
//! other pod stay as they are.

mod market;
mod model;
mod scope;
mod search;

use super::columns::is_within;
use super::commit::commit;
use super::load::Load;
use super::repack::charge_all;
use super::strategy::Repeats;
use crate::Cancel;
use crate::demands::Demand;
use crate::solver::{Claim, PlacedPod, Solver};
use crate::topology::Counts;
use model::{Machine, Model};
use scope::Scope;

/// Packs the machines of each NodePool anew where that costs less. Only for a finished plan;
/// `fresh` counts the pods that had a place before it.
pub(crate) fn pack_jointly(solver: &mut Solver<'_, '_>, fresh: &Counts, cancel: &dyn Cancel) {
    let mut templates: Vec<usize> =
        solver.claims.iter().map(|claim| solver.specs[claim.spec].template).collect();
    templates.sort_unstable();
    templates.dedup();
    let mut changed = false;
    for template in templates {
        if cancel.is_cancelled() {
            break;
        }
        changed |= pack_template(solver, template, cancel);
    }
    if changed {
        recount(solver, fresh);
    }
}

/// Packs the machines of one NodePool anew. Returns whether there are others now.
fn pack_template(solver: &mut Solver<'_, '_>, template: usize, cancel: &dyn Cancel) -> bool {
    let Some(scope) = Scope::of(solver, template) else { return false };
    let Some(model) = Model::new(solver, &scope) else {
        return false;
    };
    let current: Vec<Machine> =
        scope.claims.iter().filter_map(|&claim| model.machine(solver, &scope, claim)).collect();
    if current.len() != scope.claims.len() {
        return false;
    }
    let Some(machines) = search::cheapest(&model, &current, cancel) else { return false };
    let mut taken = vec![false; solver.claims.len()];
    scope.claims.iter().for_each(|&claim| taken[claim] = true);
    let mut taken = taken.into_iter();
    let (old, kept): (Vec<Claim>, Vec<Claim>) =
        std::mem::take(&mut solver.claims).into_iter().partition(|_| taken.next() == Some(true));
    solver.claims = kept;
    charge_all(solver);
    let kept = solver.claims.len();
    let limit = price(solver, &old);
    let mut demands = scope.demands(solver, template);
    let complete = open(solver, &model, &mut demands, &machines);
    let is_better = complete && price(solver, &solver.claims[kept..]) < limit;
    if !is_better {
        solver.claims.truncate(kept);
        solver.claims.extend(old);
        charge_all(solver);
    }
    is_better
}

/// Opens the machines. Returns whether all pods have a place then: limits may have excluded types.
fn open(
    solver: &mut Solver<'_, '_>,
    model: &Model,
    demands: &mut [Demand],
    machines: &[Machine],
) -> bool {
    for machine in machines {
        let spec = model.bins[machine.bin].spec;
        let template = solver.specs[spec].template;
        let mut allowed = solver.specs[spec].types.clone();
        if solver.limits.restrict(&solver.problem.tables, template, &mut allowed).is_err() {
            return false;
        }
        let takes = machine.takes.iter().map(|&(row, n)| (model.sources[row].crew, n)).collect();
        let load = Load { spec, takes, value: 0.0 };
        if load.takes.iter().any(|&(demand, n)| demands[demand].left() < n)
            || !is_within(solver, demands, &load, &allowed)
        {
            return false;
        }
        let pods: usize = load.takes.iter().map(|&(_, n)| n).sum();
        commit(solver, demands, load, template, &allowed, Repeats::AtMost(1));
        if solver.claims.last().is_none_or(|claim| claim.pods.len() != pods) {
            return false;
        }
    }
    demands.iter().all(|demand| demand.left() == 0)
}

/// What machines cost, the price of having them included.
fn price(solver: &Solver<'_, '_>, claims: &[Claim]) -> i64 {
    let node_price = solver.problem.tables.policy.node_price.0;
    claims.iter().map(|claim| solver.price(claim) + node_price).sum()
}

/// Counts all pods of the plan anew, in domains and on hosts.
fn recount(solver: &mut Solver<'_, '_>, fresh: &Counts) {
    let problem = solver.problem;
    let shape_of = |pod: usize| problem.tables.snapshot.pods[pod].shape.0 as usize;
    solver.counts = fresh.clone();
    solver.counts.forget_claims();
    for &PlacedPod { pod, machine } in &solver.placed {
        solver.counts.add_on_machine(&problem.topology(), shape_of(pod), machine, 1);
    }
    for (index, claim) in solver.claims.iter().enumerate() {
        for &pod in &claim.pods {
            let (shape, spec) = (shape_of(pod), claim.spec);
            solver.counts.add_on_claim(
                &problem.topology(),
                &mut solver.specs,
                shape,
                index,
                spec,
                1,
            );
        }
    }
}
