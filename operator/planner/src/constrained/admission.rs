//! In which cells there are machines to come that a pod with rules may join.

use super::Placing;
use crate::cells::Cells;
use crate::pack::Bins;
use crate::room_index::Query;
use crate::solver::{Demand, Solver};

/// With more cells than this only those are looked at whose machines may have room.
const FEW_CELLS: usize = 64;

/// In how many cells machines are looked at for one pod.
const ADMITTED: usize = 256;

impl Placing {
    /// The cells with machines to come in which a pod may be, the best first.
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
        let class = problem.shapes[demand.shape].class;
        for slot in slots {
            if self.admitted.len() >= ADMITTED {
                break;
            }
            self.known.grow_and_insert(slot);
            let joined = solver.cells.joined(problem, bins.cell(slot), class, demand.variant);
            let Some(cell) = joined else { continue };
            if problem.rules.would_tell(problem, &mut solver.cells, [bins.cell(slot), cell]) {
                continue;
            }
            let (cells, counts) = (&mut solver.cells, &mut solver.counts);
            // Whether a machine holds the pod is another question for each.
            let any = &mut |_: &Cells, _| true;
            if let Ok(to) = counts.narrow(problem, cells, demand.shape, demand.dropped, cell, any) {
                self.admitted.push((slot, to));
            }
        }
        // Machines that have to be narrowed come last: they stay free for others.
        self.admitted.sort_by_key(|(slot, to)| (to.rank, to.cell != bins.cell(*slot), *slot));
    }

    /// The cells that were not looked at yet; of many only those with a machine that may have room, since there may be as many cells as machines.
    fn promising(&self, bins: &Bins) -> Vec<usize> {
        if bins.n_cells() <= FEW_CELLS {
            return (0..bins.n_cells()).filter(|&slot| !self.known.contains(slot)).collect();
        }
        let query = if self.alone { &Query::default() } else { &self.half };
        let new = bins.live().filter(|&slot| !self.known.contains(slot));
        new.filter(|&slot| bins.next(query, slot, &self.closed, 0).is_some()).collect()
    }
}
