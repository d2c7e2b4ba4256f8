//! The problem in numbers: rows of pods that nothing tells apart, and the machines that may be bought for them.

use std::collections::BTreeMap;

use smallvec::SmallVec;

use super::super::knapsack::Row;
use super::Candidate;
use crate::cells::{CellId, by_price, frontier};
use crate::dual::{Item, Kind, Units, exact};
use crate::solver::{Demand, Home, Solver};

/// With more rows than this nothing is done: the work of a step is the square of the rows.
const ROWS: usize = 400;

/// With more cells than this nothing is done either.
const CELLS: usize = 16;

/// So many types of machines take part, those whose loads are worth most in the relaxation.
const BINS: usize = 64;

/// So are those whose loads are worth so little of their price left out.
const PROMISING: f64 = 0.9;

/// A machine that loads may be for.
pub(super) struct Bin {
    pub(super) cell: CellId,
    /// By column that anybody uses.
    pub(super) net: SmallVec<[i64; 6]>,
    pub(super) room: [f64; 2],
    pub(super) price: f64,
    pub(super) rows: Vec<usize>,
}

/// The problem in numbers.
pub(super) struct Table {
    pub(super) rows: Vec<Row>,
    /// Processors and memory by row.
    pub(super) requests: Vec<[f64; 2]>,
    /// Demands by row.
    pub(super) demands: Vec<Vec<usize>>,
    pub(super) left: Vec<usize>,
    pub(super) bins: Vec<Bin>,
    /// What pods are worth in the relaxation.
    pub(super) values: Vec<f64>,
}

/// What pods of one row have in common: the cell that they open machines in, class and variant, requests, and groups that keep them apart.
type Alike = (CellId, usize, usize, SmallVec<[i64; 6]>, Vec<usize>);

impl Table {
    /// Nothing when there is too much of it, or nothing to weigh.
    #[expect(clippy::cast_precision_loss, reason = "a relaxation")]
    pub(super) fn new(
        solver: &mut Solver<'_, '_>,
        demands: &[Demand],
        parts: &[Candidate],
    ) -> Option<Self> {
        let problem = solver.problem;
        let used = |column: usize| {
            let shape = |part: &Candidate| &problem.shapes[demands[part.demand].shape];
            column < 2 || parts.iter().any(|part| shape(part).requests[column] > 0)
        };
        let columns: Vec<usize> = (0..problem.columns.len()).filter(|&it| used(it)).collect();
        let of = |amounts: &[i64]| -> SmallVec<[i64; 6]> {
            columns.iter().map(|&column| amounts[column]).collect()
        };
        let mut alike: BTreeMap<Alike, Vec<usize>> = BTreeMap::new();
        let mut cells = Vec::new();
        for part in parts {
            let demand = &demands[part.demand];
            let shape = &problem.shapes[demand.shape];
            let Home::Opens(_, cell) = demand.home else { continue };
            let takes_part = demand.left() > 0
                && shape.ports.is_empty()
                && shape.requests[..2].iter().any(|&amount| amount > 0)
                && !solver.cells[cell].requirements.has_min_values();
            if takes_part {
                if !cells.contains(&cell) {
                    cells.push(cell);
                }
                let requests = of(&shape.requests);
                let key = (cell, shape.class, demand.variant, requests, part.groups.clone());
                alike.entry(key).or_default().push(part.demand);
            }
        }
        // Ids depend on the order in which shapes come, that of demands does not.
        let mut alike: Vec<(Alike, Vec<usize>)> = alike.into_iter().collect();
        alike.sort_by_key(|(_, demands)| demands[0]);
        if alike.is_empty() || alike.len() > ROWS || cells.len() > CELLS {
            return None;
        }
        let mut bins = Vec::new();
        for cell in cells {
            bins.extend(bins_of(solver, cell, &alike, &of));
        }
        let (mut rows, mut left, mut by_row) = (Vec::new(), Vec::new(), Vec::new());
        for ((.., requests, groups), demands_of) in alike {
            left.push(demands_of.iter().map(|&demand| demands[demand].left()).sum());
            by_row.push(demands_of);
            rows.push(Row { requests, groups });
        }
        let requests: Vec<[f64; 2]> =
            rows.iter().map(|row| [0, 1].map(|at| row.requests[at] as f64)).collect();
        let mut table = Self { rows, requests, demands: by_row, left, bins, values: Vec::new() };
        table.keep_promising();
        Some(table)
    }

    /// What the pods are worth in the relaxation.
    #[expect(clippy::cast_precision_loss, reason = "amounts of pods")]
    pub(super) fn worth(&self) -> f64 {
        self.values.iter().zip(&self.left).map(|(value, &pods)| value * pods as f64).sum()
    }

    /// Leaves out machines that the relaxation has no use for; each row keeps one that holds it.
    #[expect(clippy::cast_precision_loss, reason = "a relaxation")]
    fn keep_promising(&mut self) {
        let kinds: Vec<Kind> =
            self.bins.iter().map(|bin| Kind { room: bin.room, price: bin.price }).collect();
        let mut items: Vec<Item> = (0..self.rows.len())
            .map(|row| Item {
                pods: self.left[row] as f64,
                requests: self.requests[row],
                kinds: Vec::new(),
            })
            .collect();
        for (index, bin) in self.bins.iter().enumerate() {
            for &row in &bin.rows {
                items[row].kinds.push(index);
            }
        }
        let values = exact(&kinds, &items, 40_000_000);
        self.values =
            values.items.iter().map(|&value| if value.is_finite() { value } else { 0.0 }).collect();
        let mut ranked: Vec<(f64, usize)> = self
            .bins
            .iter()
            .enumerate()
            .map(|(index, bin)| {
                let units = Units::new(bin.room, &bin.rows, &self.requests, &self.values);
                ((units.worth[0] + units.worth[1]) / bin.price, index)
            })
            .collect();
        ranked.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        let mut held = vec![false; self.rows.len()];
        let mut kept = vec![false; self.bins.len()];
        for (rank, &(ratio, bin)) in ranked.iter().enumerate() {
            let needed = self.bins[bin].rows.iter().any(|&row| !held[row]);
            if needed || rank < BINS && ratio > PROMISING {
                kept[bin] = true;
                self.bins[bin].rows.iter().for_each(|&row| held[row] = true);
            }
        }
        let mut kept = kept.into_iter();
        self.bins.retain(|_| kept.next().unwrap_or(false));
        // What no machine holds is left to others.
        for (left, held) in self.left.iter_mut().zip(&held) {
            if !held {
                *left = 0;
            }
        }
    }
}

/// The machines of a cell that hold pods of some rows.
#[expect(clippy::cast_precision_loss, reason = "a relaxation")]
fn bins_of(
    solver: &mut Solver<'_, '_>,
    cell: CellId,
    alike: &[(Alike, Vec<usize>)],
    of: &dyn Fn(&[i64]) -> SmallVec<[i64; 6]>,
) -> Vec<Bin> {
    let problem = solver.problem;
    let template = solver.cells[cell].template;
    let mut allowed = solver.cells[cell].types.clone();
    if solver.limits.restrict(problem, template, &mut allowed).is_err() {
        return Vec::new();
    }
    // Pods that would open machines in other cells come along where they narrow nothing.
    let mut admits = |&(home, class, variant, ..): &Alike| {
        home == cell
            || solver.cells[home].template == template
                && solver.cells.joined(problem, cell, class, variant) == Some(cell)
    };
    let admitted: Vec<bool> = alike.iter().map(|(row, _)| admits(row)).collect();
    let current = &solver.cells[cell];
    let kinds = if allowed == current.types {
        current.frontier.clone()
    } else {
        frontier(problem, template, &by_price(&allowed, &current.prices))
    };
    let bin = |kind: usize| {
        let net = of(problem.templates[template].net(kind));
        let holds = |row: &usize| {
            let (.., requests, _) = &alike[*row].0;
            admitted[*row] && requests.iter().zip(&net).all(|(want, have)| want <= have)
        };
        let rows: Vec<usize> = (0..alike.len()).filter(holds).collect();
        let room = [net[0].max(1) as f64, net[1].max(1) as f64];
        let price = current.prices[kind].saturating_add(problem.policy.node_price.0).max(1) as f64;
        Bin { cell, net, room, price, rows }
    };
    kinds.into_iter().map(bin).filter(|bin| !bin.rows.is_empty()).collect()
}
