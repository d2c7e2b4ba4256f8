//! Machines to come for pods with claims, one pod at a time: each takes devices that the next one
//! can't have.

use fixedbitset::FixedBitSet;

use crate::demands::Demand;
use crate::devices::Proposal;
use crate::machine_specs::{MachineSpecs, SpecId};
use crate::pack::bins::Bins;
use crate::pack::commit::relax;
use crate::pack::on_claim::{Becomes, OnClaim};
use crate::pack::strategy::Strategy;
use crate::plan::Exclusion;
use crate::solver::{self, Claim, Solver, free_ports, holds, room_for};
use crate::tables::add_times;
use crate::topology::Host;

/// A place on a planned machine.
struct Place {
    /// Index into [`Solver::claims`]; one past its end is a new machine.
    at: usize,
    spec: SpecId,
    types: FixedBitSet,
    proposal: Proposal,
    /// The cheapest of the types.
    target: usize,
    /// The increase of the machine's price.
    dearer: i64,
}

/// Puts the next pod where it costs least; with [`Strategy::Fill`] on the first machine that can
/// take it. Else tells of so many templates why they don't open one.
pub(super) fn place_next(
    solver: &mut Solver<'_, '_>,
    bins: &mut Bins,
    demand: &mut Demand,
    strategy: Strategy,
    told: usize,
) -> Result<(), Vec<(String, Exclusion)>> {
    let mut best: Option<Place> = None;
    for at in 0..solver.claims.len() {
        let Some(place) = join(solver, demand, at) else { continue };
        if strategy == Strategy::Fill {
            settle(solver, bins, demand, place);
            return Ok(());
        }
        if best.as_ref().is_none_or(|best| place.dearer < best.dearer) {
            best = Some(place);
        }
    }
    let tables = &solver.problem.tables;
    let opened = solver.open_first(demand, 0..tables.templates.len(), told, open);
    let place = match opened {
        Ok(place) => {
            let price = place.dearer + tables.policy.node_price.0;
            best.filter(|best| best.dearer <= price).unwrap_or(place)
        }
        Err(reasons) => best.ok_or(reasons)?,
    };
    settle(solver, bins, demand, place);
    Ok(())
}

/// A place on a machine that the plan opens anyway.
fn join(solver: &mut Solver<'_, '_>, demand: &Demand, at: usize) -> Option<Place> {
    let mut joining = Joining { solver, demand, at, spec: None, found: None };
    room_for(&mut joining, 1);
    joining.found
}

/// A machine to come as a place for the next pod of a demand.
struct Joining<'s, 'p, 'a> {
    solver: &'s mut Solver<'p, 'a>,
    demand: &'s Demand,
    at: usize,
    /// The spec that it gets, as far as labels and rules go.
    spec: Option<SpecId>,
    found: Option<Place>,
}

impl solver::Place for Joining<'_, '_, '_> {
    fn by_room(&mut self) -> usize {
        let shape = &self.solver.problem.tables.shapes[self.demand.shape];
        free_ports(&shape.ports, &self.solver.claims[self.at].ports)
    }

    fn by_hosts(&mut self) -> usize {
        room_on_host(self.solver, self.demand, self.at)
    }

    fn by_labels(&mut self) -> usize {
        let Solver { problem, counts, specs, claims, .. } = &mut *self.solver;
        let (shape, dropped) = (self.demand.shape, self.demand.dropped);
        let class = problem.tables.shapes[shape].class;
        let variant = self.demand.variant;
        let Ok(joined) = specs.join(&problem.tables, claims[self.at].spec, class, variant) else {
            return 0;
        };
        let any = &mut |_: &MachineSpecs, _| true;
        let to = counts.narrow(&problem.topology(), specs, shape, dropped, joined, any);
        self.spec = to.ok().map(|to| to.spec);
        self.spec.map_or(0, |_| 1)
    }

    fn by_types(&mut self, _: usize) -> usize {
        self.found =
            self.spec.and_then(|spec| with_devices(self.solver, self.demand, self.at, spec));
        self.found.as_ref().map_or(0, |_| 1)
    }
}

/// The place on a machine to come that gets a spec, if it has devices there.
fn with_devices(
    solver: &mut Solver<'_, '_>,
    demand: &Demand,
    at: usize,
    spec: SpecId,
) -> Option<Place> {
    let shape = &solver.problem.tables.shapes[demand.shape];
    let types = solver.with(at, spec, &shape.requests, &shape.ports, 1);
    if types.is_clear() {
        return None;
    }
    let (spec, types, proposal) = propose(solver, demand, at, spec, &types).ok()?;
    if solver.is_strict() && solver.lacking_values(spec, &types).is_some() {
        return None;
    }
    let target = solver.specs[spec].cheapest(&types)?;
    let before = &solver.claims[at];
    let paid = solver.specs[before.spec].price(before.target);
    let dearer = solver.specs[spec].price(target) - paid;
    Some(Place { at, spec, types, proposal, target, dearer })
}

/// A place on a new machine of a template.
fn open(
    solver: &mut Solver<'_, '_>,
    demand: &mut Demand,
    template: usize,
) -> Result<Place, Exclusion> {
    let problem = solver.problem;
    let shape = &problem.tables.shapes[demand.shape];
    let free = solver.open(demand, template)?;
    let at = solver.claims.len();
    let (specs, counts, limits) = (&mut solver.specs, &mut solver.counts, &solver.limits);
    let holds =
        &mut |specs: &MachineSpecs, spec| holds(problem, limits, &specs[spec], demand.shape);
    let to =
        counts.narrow(&problem.topology(), specs, demand.shape, demand.dropped, free, holds)?;
    let mut place = OnClaim { solver, demand, claim: at, to: &to, becomes: Becomes::New };
    if room_for(&mut place, 1) == 0 {
        return Err(solver.counts.no_host(&problem.topology(), demand.shape, demand.dropped));
    }
    let mut types = solver.specs[to.spec].types.clone();
    solver.keep_fitting(&mut types, template, &shape.requests, &shape.ports);
    if types.is_clear() {
        return Err(solver.shortage(to.spec, &shape.requests));
    }
    solver.limits.restrict(&problem.tables, template, &mut types)?;
    let (spec, types, proposal) = propose(solver, demand, at, to.spec, &types)?;
    if solver.is_strict()
        && let Some((key, required, found)) = solver.lacking_values(spec, &types)
    {
        let key = problem.tables.symbols.key_name(key).to_owned();
        return Err(Exclusion::MinValues { key, required, found });
    }
    let target = solver.specs[spec].cheapest(&types);
    let target = target.expect("types that serve the claims are of the spec");
    let dearer = solver.specs[spec].price(target);
    Ok(Place { at, spec, types, proposal, target, dearer })
}

fn propose(
    solver: &mut Solver<'_, '_>,
    demand: &Demand,
    at: usize,
    spec: SpecId,
    types: &FixedBitSet,
) -> Result<(SpecId, FixedBitSet, Proposal), Exclusion> {
    let pod = demand.pods[demand.next];
    let problem = solver.problem;
    let Some((left, table)) = solver.devices.as_mut().zip(problem.devices.as_deref()) else {
        return Err(Exclusion::Pod("its resource claims are not there".to_owned()));
    };
    left.on_claim(&problem.tables, table, &mut solver.specs, (pod, at), spec, types)
}

/// How many pods of the demand rules about hosts let on a machine to come.
fn room_on_host(solver: &Solver<'_, '_>, demand: &Demand, at: usize) -> usize {
    let topology = &solver.problem.topology();
    let host = Host::Claim(at);
    solver.counts.room_on_host(topology, demand.shape, demand.dropped, host) as usize
}

/// Places the next pod on a planned machine.
fn settle(solver: &mut Solver<'_, '_>, bins: &mut Bins, demand: &mut Demand, place: Place) {
    let problem = solver.problem;
    let shape = &problem.tables.shapes[demand.shape];
    let Place { at, spec, mut types, proposal, target, .. } = place;
    solver.counts.add_on_claim(&problem.topology(), &mut solver.specs, demand.shape, at, spec, 1);
    let template = solver.specs[spec].template;
    if let Some((left, table)) = solver.devices.as_mut().zip(problem.devices.as_deref()) {
        left.take(proposal);
        left.narrow(table, at, problem.tables.templates[template].catalog, &types);
    }
    let pods = demand.take(1);
    if at < solver.claims.len() {
        let claim = &mut solver.claims[at];
        claim.pods.extend_from_slice(pods);
        claim.ports.extend(shape.ports.iter().cloned());
        (claim.spec, claim.types, claim.target) = (spec, types, target);
        add_times(&mut claim.used, &shape.requests, 1);
        bins.refresh(solver, at);
        return;
    }
    if solver.limits.any(template) {
        let modest = solver.limits.modest(&problem.tables, template, &types, target);
        if solver.lacking_values(spec, &modest).is_none() {
            types = modest;
        }
        solver.limits.charge(&problem.tables, template, &types);
    }
    let relaxed = relax(solver, spec, &types);
    let (used, ports) = (shape.requests.clone(), shape.ports.clone());
    solver.claims.push(Claim { spec, used, types, ports, pods: pods.to_vec(), relaxed, target });
    bins.sync(solver);
}
