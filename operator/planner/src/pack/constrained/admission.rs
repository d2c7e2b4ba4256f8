//! The specs of machines to come that a pod with rules may join.

use super::Placing;
use crate::demands::Demand;
use crate::machine_specs::MachineSpecs;
use crate::pack::bins::Bins;
use crate::room_index::Query;
use crate::solver::Solver;

/// With more specs than this only those are looked at whose machines may have room.
const FEW_SPECS: usize = 64;

/// The number of specs of which machines are looked at for one pod.
const ADMITTED: usize = 256;

impl Placing {
    /// The specs with machines to come in which a pod may be, the best first.
    pub(super) fn admit(&mut self, solver: &mut Solver<'_, '_>, bins: &Bins, demand: &Demand) {
        if self.domain_rules {
            self.admitted.clear();
            self.known.clear();
        }
        let slots = self.promising(bins);
        if slots.is_empty() {
            return;
        }
        let problem = solver.problem;
        let class = problem.tables.shapes[demand.shape].class;
        for slot in slots {
            if self.admitted.len() >= ADMITTED {
                break;
            }
            self.known.grow_and_insert(slot);
            let joined =
                solver.specs.joined(&problem.tables, bins.spec(slot), class, demand.variant);
            let Some(spec) = joined else { continue };
            if problem.rules.would_tell(&problem.tables, &mut solver.specs, [bins.spec(slot), spec])
            {
                continue;
            }
            let (specs, counts) = (&mut solver.specs, &mut solver.counts);
            // Whether a machine holds the pod is another question for each.
            let any = &mut |_: &MachineSpecs, _| true;
            if let Ok(to) =
                counts.narrow(&problem.topology(), specs, demand.shape, demand.dropped, spec, any)
            {
                self.admitted.push((slot, to));
            }
        }
        // Machines that have to be narrowed come last: they stay free for others.
        self.admitted.sort_by_key(|(slot, to)| (to.rank, to.spec != bins.spec(*slot), *slot));
    }

    /// The specs that were not looked at yet; of many only those with a machine that may have room,
    /// since there may be as many specs as machines.
    fn promising(&self, bins: &Bins) -> Vec<usize> {
        if bins.n_specs() <= FEW_SPECS {
            return (0..bins.n_specs()).filter(|&slot| !self.known.contains(slot)).collect();
        }
        let query = if self.alone { &Query::default() } else { &self.half };
        let new = bins.live().filter(|&slot| !self.known.contains(slot));
        new.filter(|&slot| bins.next(query, slot, &self.closed, 0).is_some()).collect()
    }
}
