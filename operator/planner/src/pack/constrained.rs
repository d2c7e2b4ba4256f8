//! Machines to come for pods that topology rules are about: as many pods at once as their rules
//! allow in one domain.
//!
//! A machine to come that such a pod opens aims at the type that holds its like at the best price.
//! It takes further pods while they fit that type, and becomes larger only where that costs no more
//! than a place elsewhere.

mod admission;
mod shared_target;

use fixedbitset::FixedBitSet;
use smallvec::SmallVec;

use crate::demands::Demand;
use crate::machine_specs::{MachineSpecs, SpecId};
use crate::pack::bins::Bins;
use crate::pack::commit::relax;
use crate::pack::loads::value;
use crate::pack::on_claim::{Becomes, OnClaim};
use crate::pack::strategy::Strategy;
use crate::plan::Exclusion;
use crate::room_index::Query;
use crate::solver::{Claim, Solver, holds, none_left_out, room_for};
use crate::tables::{add_times, times};
use crate::topology::{DomainChoice, Host};

/// How many machines that would have to grow are compared for one pod.
const GROWING: usize = 6;

/// The search for places on machines to come for one alternative of a demand.
pub(crate) struct Placing {
    /// The claims whose target holds a pod, and those that hold half of one.
    whole: Query,
    half: Query,
    /// The claims that rules about hosts close.
    closed: FixedBitSet,
    /// These, and others that have no room for that reason.
    full: FixedBitSet,
    /// Whether no two of the pods may share a host.
    alone: bool,
    /// Whether rules about other domains than hosts have a say: then each placement may open and
    /// close domains.
    domain_rules: bool,
    admitted: Vec<(usize, DomainChoice)>,
    /// The specs that were looked at for `admitted`.
    known: FixedBitSet,
    /// What a place elsewhere costs, by spec.
    elsewhere: SmallVec<[(SpecId, i64); 4]>,
    /// The type that a new machine aims at, by spec and by how many pods it could be for.
    targets: SmallVec<[(SpecId, usize, usize); 4]>,
}

impl Placing {
    pub(crate) fn new(bins: &Bins, solver: &Solver<'_, '_>, demand: &Demand) -> Self {
        let (rules, topology) = (&solver.problem.rules, &solver.problem.topology());
        let (shape, dropped) = (demand.shape, demand.dropped);
        let compiled = &solver.problem.tables.shapes[shape];
        let half: Vec<i64> = compiled.requests.iter().map(|amount| amount / 2).collect();
        let closed = solver.counts.closed_hosts(topology, shape, dropped, true);
        Self {
            whole: bins.query(&compiled.requests),
            half: bins.query(&half),
            full: solver.counts.full_hosts(topology, shape, dropped, &closed),
            closed,
            alone: !compiled.ports.is_empty() || rules.one_per_host(shape, dropped),
            domain_rules: rules.has_domains(shape, dropped),
            admitted: Vec::new(),
            known: FixedBitSet::new(),
            elsewhere: SmallVec::new(),
            targets: SmallVec::new(),
        }
    }

    /// Of so many machines to come those that are looked at, as far as rules about hosts are
    /// concerned.
    #[cfg(test)]
    pub(crate) fn looked_at(&self, claims: usize) -> Vec<usize> {
        (0..claims).filter(|&claim| !self.full.contains(claim)).collect()
    }

    /// Puts pods on a machine to come. Returns whether it did.
    pub(super) fn on_claim(
        &mut self,
        solver: &mut Solver<'_, '_>,
        bins: &mut Bins,
        demand: &mut Demand,
        strategy: Strategy,
    ) -> bool {
        bins.sync(solver);
        self.admit(solver, bins, demand);
        for at in 0..self.admitted.len() {
            let (slot, to) = self.admitted[at];
            let mut from = 0;
            loop {
                let found = bins.next(&self.whole, slot, &self.full, from);
                let (state, asked) = (&*solver, &*demand);
                let on = |claim: usize| {
                    let room = bins.room(claim);
                    let becomes = Becomes::Same { room, strategy, other: None };
                    OnClaim { solver: state, demand: asked, claim, to: &to, becomes }
                };
                none_left_out(bins.passed_over(slot, from, found), |claim| {
                    room_for(&mut on(claim), 1)
                });
                let Some(claim) = found else { break };
                from = claim + 1;
                let mut place = on(claim);
                let n = room_for(&mut place, at_once(demand, &to));
                if n == 0 {
                    continue;
                }
                if let Becomes::Same { other: Some((types, target)), .. } = place.becomes {
                    let claim = &mut solver.claims[claim];
                    (claim.types, claim.target) = (types, target);
                }
                settle(solver, bins, demand, claim, &to, n);
                self.note(solver, demand, claim);
                return true;
            }
        }
        strategy != Strategy::Fill
            && solver.problem.rules.concern(demand.shape)
            && self.grow(solver, bins, demand)
    }

    /// Makes a machine to come larger, if no more is paid for it than for a place elsewhere.
    fn grow(&mut self, solver: &mut Solver<'_, '_>, bins: &mut Bins, demand: &mut Demand) -> bool {
        let mut best: Option<(i64, usize, DomainChoice, usize)> = None;
        let mut compared = 0;
        // A pod that wants a host of its own may do with any that has none of its kind.
        let query = if self.alone { Query::default() } else { self.half.clone() };
        for at in 0..self.admitted.len() {
            let (slot, to) = self.admitted[at];
            let mut from = 0;
            while compared < GROWING * (at + 1)
                && let Some(claim) = bins.next(&query, slot, &self.closed, from)
            {
                (from, compared) = (claim + 1, compared + 1);
                let becomes = Becomes::Larger(None);
                let mut place = OnClaim { solver, demand, claim, to: &to, becomes };
                room_for(&mut place, 1);
                let Becomes::Larger(Some((dearer, target))) = place.becomes else { continue };
                if best.is_none_or(|(least, ..)| dearer < least) {
                    best = Some((dearer, claim, to, target));
                }
            }
        }
        let Some((dearer, claim, to, target)) = best else { return false };
        if dearer > self.elsewhere(solver, demand, to.spec) {
            return false;
        }
        solver.claims[claim].target = target;
        settle(solver, bins, demand, claim, &to, 1);
        self.note(solver, demand, claim);
        true
    }

    /// Notes that a pod of the demand is on a machine to come, which that may close for the next.
    fn note(&mut self, solver: &Solver<'_, '_>, demand: &Demand, claim: usize) {
        let (counts, host) = (&solver.counts, Host::Claim(claim));
        if counts.closes(&solver.problem.topology(), demand.shape, demand.dropped, host) {
            self.closed.grow_and_insert(claim);
            self.full.grow_and_insert(claim);
        }
    }

    /// What a place costs that the pod would get on a machine of its own, in micro-dollars, the
    /// price of one more machine included.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "hourly prices are far below 2^53 millionths"
    )]
    fn elsewhere(&mut self, solver: &Solver<'_, '_>, demand: &Demand, spec: SpecId) -> i64 {
        if let Some(&(_, price)) = self.elsewhere.iter().find(|(known, _)| *known == spec) {
            return price;
        }
        let problem = solver.problem;
        let requests = &problem.tables.shapes[demand.shape].requests;
        let place = if self.alone {
            let mut types = solver.specs[spec].types.clone();
            solver.keep_fitting(&mut types, solver.specs[spec].template, requests, &[]);
            let cheapest = solver.specs[spec].cheapest(&types);
            cheapest.map_or(0, |kind| solver.specs[spec].price(kind))
        } else {
            value(solver, spec, requests).ceil() as i64
        };
        let price = place + problem.tables.policy.node_price.0;
        self.elsewhere.push((spec, price));
        price
    }

    /// Puts pods on a machine to come, otherwise on a new one of the first template that takes
    /// them. Else tells of so many templates why they don't.
    pub(super) fn place_some(
        &mut self,
        solver: &mut Solver<'_, '_>,
        bins: &mut Bins,
        demand: &mut Demand,
        strategy: Strategy,
        told: usize,
    ) -> Result<(), Vec<(String, Exclusion)>> {
        if self.on_claim(solver, bins, demand, strategy) {
            return Ok(());
        }
        let templates = solver.templates_for(demand);
        let open = |solver: &mut Solver<'_, '_>, demand: &mut Demand, template| {
            self.open_claim(solver, demand, template)
        };
        solver.open_first(demand, templates, told, open)?;
        bins.sync(solver);
        Ok(())
    }

    fn open_claim(
        &mut self,
        solver: &mut Solver<'_, '_>,
        demand: &mut Demand,
        template: usize,
    ) -> Result<(), Exclusion> {
        let problem = solver.problem;
        let (tables, topology) = (&problem.tables, &problem.topology());
        let shape = &tables.shapes[demand.shape];
        let free = solver.open(demand, template)?;
        let index = solver.claims.len();
        let (specs, counts, limits) = (&mut solver.specs, &mut solver.counts, &solver.limits);
        let holds =
            &mut |specs: &MachineSpecs, spec| holds(problem, limits, &specs[spec], demand.shape);
        let to = counts.narrow(topology, specs, demand.shape, demand.dropped, free, holds)?;
        let spec = to.spec;
        let mut types = solver.specs[spec].types.clone();
        solver.keep_fitting(&mut types, template, &shape.requests, &shape.ports);
        if types.is_clear() {
            return Err(solver.shortage(spec, &shape.requests));
        }
        solver.limits.restrict(tables, template, &mut types)?;
        let mut place = OnClaim { solver, demand, claim: index, to: &to, becomes: Becomes::New };
        let n = room_for(&mut place, at_once(demand, &to));
        if n == 0 {
            return Err(solver.counts.no_host(topology, demand.shape, demand.dropped));
        }
        if solver.is_strict()
            && let Some((key, required, found)) = solver.lacking_values(spec, &types)
        {
            let key = tables.symbols.key_name(key).to_owned();
            return Err(Exclusion::MinValues { key, required, found });
        }
        let target = self.target(solver, demand, spec, free, &types);
        if solver.limits.any(template) {
            let modest = solver.limits.modest(tables, template, &types, target);
            if solver.lacking_values(spec, &modest).is_none() {
                types = modest;
            }
            solver.limits.charge(tables, template, &types);
        }
        let relaxed = relax(solver, spec, &types);
        let mut n = n.min(times(&shape.requests, tables.templates[template].net(target))).max(1);
        if n > 1 && !keeps_values(solver, template, spec, &types, &shape.requests, n) {
            n = 1;
        }
        let mut used = vec![0; shape.requests.len()];
        add_times(&mut used, &shape.requests, n);
        let pods = demand.take(n).to_vec();
        solver.counts.add_on_claim(topology, &mut solver.specs, demand.shape, index, spec, n);
        let ports = shape.ports.clone();
        solver.claims.push(Claim { spec, used, types, ports, pods, relaxed, target });
        self.note(solver, demand, index);
        Ok(())
    }

    /// The type that holds pods of the shape at the best price each, as far as there are any; where
    /// other pods that have no place yet may share the machine (`Solver::unplaced`), as far as all
    /// of them fill it, divided among the machines that the shape needs anyway.
    #[expect(clippy::cast_precision_loss, reason = "a ratio for comparison")]
    fn target(
        &mut self,
        solver: &mut Solver<'_, '_>,
        demand: &Demand,
        spec: SpecId,
        free: SpecId,
        types: &FixedBitSet,
    ) -> usize {
        let (tables, rules) = (&solver.problem.tables, &solver.problem.rules);
        let shape = &tables.shapes[demand.shape];
        let template = &tables.templates[solver.specs[spec].template];
        let specs = &mut solver.specs;
        let domains = rules.shares(tables, specs, demand.shape, demand.dropped, free);
        let most = if self.alone { 1 } else { demand.left().div_ceil(domains).max(1) };
        let known = self.targets.iter().find(|known| (known.0, known.1) == (spec, most));
        if let Some(&(_, _, target)) = known.filter(|known| types[known.2]) {
            return target;
        }
        if let Some(modest) = shared_target::types(solver, &solver.specs[spec], types) {
            let machines = if self.alone { demand.pods.len() } else { domains };
            let best = shared_target::target(solver, demand, spec, &modest, machines);
            self.targets.push((spec, most, best));
            return best;
        }
        let in_spec = &solver.specs[spec];
        let price = |kind: usize, n: usize| {
            (in_spec.price(kind) + tables.policy.node_price.0) as f64 / n as f64
        };
        let mut best: Option<(f64, usize)> = None;
        for kind in solver.specs[spec].ranked(types) {
            // From here on they cost more even if all pods went on one of them.
            if best.is_some_and(|(least, _)| price(kind, most) > least) {
                break;
            }
            let n = times(&shape.requests, template.net(kind)).clamp(1, most);
            let each = (price(kind, n), kind);
            let better =
                |best: &(f64, usize)| each.0.total_cmp(&best.0).then(each.1.cmp(&best.1)).is_lt();
            if best.as_ref().is_none_or(better) {
                best = Some(each);
            }
        }
        let (_, best) = best.expect("the caller has made sure that there are types");
        self.targets.push((spec, most, best));
        best
    }
}

/// How many pods of a demand are put on one machine at most.
fn at_once(demand: &Demand, to: &DomainChoice) -> usize {
    // Where nothing asks for it even domains leave more room for those that do.
    if to.counted { demand.left().div_ceil(8) } else { demand.left() }
}

/// Whether types that hold so many pods have the values that the spec asks for.
fn keeps_values(
    solver: &Solver<'_, '_>,
    template: usize,
    spec: SpecId,
    types: &FixedBitSet,
    requests: &[i64],
    n: usize,
) -> bool {
    if !solver.is_strict() || !solver.specs[spec].requirements.has_min_values() {
        return true;
    }
    let mut used = vec![0; requests.len()];
    add_times(&mut used, requests, n);
    let mut types = types.clone();
    solver.keep_fitting(&mut types, template, &used, &[]);
    solver.lacking_values(spec, &types).is_none()
}

/// Records pods on a machine to come.
fn settle(
    solver: &mut Solver<'_, '_>,
    bins: &mut Bins,
    demand: &mut Demand,
    index: usize,
    to: &DomainChoice,
    n: usize,
) {
    let problem = solver.problem;
    let shape = &problem.tables.shapes[demand.shape];
    let (topology, specs) = (&problem.topology(), &mut solver.specs);
    solver.counts.add_on_claim(topology, specs, demand.shape, index, to.spec, n);
    let claim = &mut solver.claims[index];
    claim.pods.extend_from_slice(demand.take(n));
    claim.ports.extend(shape.ports.iter().cloned());
    claim.spec = to.spec;
    add_times(&mut claim.used, &shape.requests, n);
    bins.refresh(solver, index);
}
