//! A machine to come as a place for pods of a demand.

use fixedbitset::FixedBitSet;

use super::strategy::Strategy;
use crate::demands::Demand;
use crate::solver::{Place, Solver, free, free_ports};
use crate::tables::shapes::ports_conflict;
use crate::topology::{DomainChoice, Host};

/// A machine to come, with the domain and the spec that it gets with the pods.
pub(super) struct OnClaim<'s, 'p, 'a> {
    pub(super) solver: &'s Solver<'p, 'a>,
    pub(super) demand: &'s Demand,
    /// Index into [`Solver::claims`]; one past its end is a new machine.
    pub(super) claim: usize,
    pub(super) to: &'s DomainChoice,
    pub(super) becomes: Becomes<'s>,
}

/// What the machine may be with the pods.
pub(super) enum Becomes<'s> {
    /// What it is already, with so much room, at no higher price. With [`Strategy::Fill`] any type,
    /// which is then told with those that are left; so it is where the spec has `minValues`.
    Same { room: &'s [i64], strategy: Strategy, other: Option<(FixedBitSet, usize)> },
    /// A larger type: by how much dearer it gets with one pod, and the type that it aims at.
    Larger(Option<(i64, usize)>),
    /// A new machine, of which the caller knows the types.
    New,
}

impl Place for OnClaim<'_, '_, '_> {
    fn by_room(&mut self) -> usize {
        let shape = &self.solver.problem.tables.shapes[self.demand.shape];
        let claim = self.solver.claims.get(self.claim);
        let used = claim.map(|claim| &claim.ports[..]).unwrap_or_default();
        match self.becomes {
            Becomes::Same { room, .. } => free((&shape.requests, room), (&shape.ports, used)),
            Becomes::Larger(_) | Becomes::New => free_ports(&shape.ports, used),
        }
    }

    fn by_hosts(&mut self) -> usize {
        let topology = &self.solver.problem.topology();
        let (counts, host) = (&self.solver.counts, Host::Claim(self.claim));
        counts.room_on_host(topology, self.demand.shape, self.demand.dropped, host) as usize
    }

    fn by_labels(&mut self) -> usize {
        self.to.most
    }

    fn by_types(&mut self, pods: usize) -> usize {
        let (solver, claim, to) = (self.solver, self.claim, self.to.spec);
        let tables = &solver.problem.tables;
        let shape = &tables.shapes[self.demand.shape];
        let after = &solver.specs[to];
        let lacks =
            |types: &FixedBitSet| solver.is_strict() && solver.lacking_values(to, types).is_some();
        match &mut self.becomes {
            Becomes::New => pods,
            Becomes::Same { strategy, other, .. }
                if *strategy == Strategy::Fill || after.requirements.has_min_values() =>
            {
                let target = solver.claims[claim].target;
                let mut pods = pods;
                while pods > 0 {
                    let types = solver.with(claim, to, &shape.requests, &shape.ports, pods);
                    let cheapest = after.cheapest(&types).filter(|_| !lacks(&types));
                    let aims_at = match strategy {
                        Strategy::Fill => cheapest,
                        _ => cheapest.map(|_| target).filter(|&target| types[target]),
                    };
                    if let Some(target) = aims_at {
                        *other = Some((types, target));
                        break;
                    }
                    pods /= 2;
                }
                pods
            }
            Becomes::Same { .. } => {
                let target = solver.claims[claim].target;
                let before = &solver.specs[solver.claims[claim].spec];
                let daemons = tables.templates[after.template].overheads.ports(target);
                let stays = after.types[target]
                    && after.price(target) <= before.price(target)
                    && !ports_conflict(&shape.ports, daemons);
                if stays { pods } else { 0 }
            }
            Becomes::Larger(larger) => {
                let types = solver.with(claim, to, &shape.requests, &shape.ports, 1);
                let target = after.cheapest(&types).filter(|_| !lacks(&types));
                let before = &solver.claims[claim];
                let paid = solver.specs[before.spec].price(before.target);
                *larger = target.map(|target| (after.price(target) - paid, target));
                larger.map_or(0, |_| 1)
            }
        }
    }
}
