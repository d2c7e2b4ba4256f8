//! A covering problem whose columns arrive one by one: buy loads at the least price so that
//! together they hold all pods.
//!
//! `min c·x` such that `A x ≥ d`, `x ≥ 0`. There is one row for each kind of pod and one column for
//! each load that somebody has offered. It is solved by the simplex method with a dense inverse of
//! the basis: there are few rows, and a pivot costs their square at most. New columns go on from
//! the last basis (primal steps), and so do other amounts of pods (dual steps). The amounts are
//! made uneven by some billionths, so that no step is without progress.
//!
//! Rounding errors add up in the inverse. Nothing depends on its being exact: what values prove is
//! worked out from the values anew, and pods are counted in integers.

/// What is too small to matter, relative to prices and to amounts of one.
const TINY: f64 = 1e-9;

/// What the price of a column is multiplied by so that it is bought only where nothing else is
/// left.
const PROHIBITIVE: f64 = 1e3;

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct Master {
    rows: usize,
    demand: Vec<f64>,
    /// Price of a column, and where its entries begin.
    columns: Vec<(f64, usize)>,
    entries: Vec<(u32, f64)>,
    /// Columns that may enter the basis.
    open: Vec<bool>,
    /// By row of the inverse: what is in the basis.
    basis: Vec<Basic>,
    inverse: Vec<f64>,
    amounts: Vec<f64>,
    values: Vec<f64>,
    /// What is left of the work, in entries looked at.
    work: u64,
}

/// What may be in the basis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Basic {
    /// A column.
    Load(usize),
    /// Places for a row that nobody takes.
    Surplus(usize),
}

impl Master {
    /// For rows that have one column each to begin with: its price, and how many pods of the row it
    /// holds. Rows beyond these are limits: what they ask for is negative, and so is what columns
    /// hold of them.
    pub(crate) fn new(demand: &[f64], first: &[(f64, f64)], work: u64) -> Self {
        let rows = demand.len();
        let basis = |row: usize| {
            if row < first.len() { Basic::Load(row) } else { Basic::Surplus(row) }
        };
        let mut master = Self {
            rows,
            demand: demand.to_vec(),
            columns: Vec::new(),
            entries: Vec::new(),
            open: Vec::new(),
            basis: (0..rows).map(basis).collect(),
            inverse: vec![0.0; rows * rows],
            amounts: vec![0.0; rows],
            values: vec![0.0; rows],
            work,
        };
        for (row, &(price, holds)) in first.iter().enumerate() {
            master.offer(price, [(row, holds)]);
            master.inverse[row * rows + row] = 1.0 / holds;
            master.values[row] = price / holds;
        }
        for row in first.len()..rows {
            master.inverse[row * rows + row] = -1.0;
        }
        master.weigh();
        master
    }

    /// What a pod of each row is worth.
    pub(crate) fn values(&self) -> &[f64] {
        &self.values
    }

    /// What is left of the work, in entries looked at.
    pub(crate) fn work(&self) -> u64 {
        self.work
    }

    /// Sets what is left of the work.
    pub(crate) fn allow(&mut self, work: u64) {
        self.work = work;
    }

    /// Charges work that was done elsewhere.
    pub(crate) fn charge(&mut self, work: usize) {
        self.work = self.work.saturating_sub(work as u64);
    }

    /// The price of what is bought.
    pub(crate) fn price(&self) -> f64 {
        self.bought().map(|(column, amount)| self.columns[column].0 * amount).sum()
    }

    /// The columns that are bought, and how often.
    pub(crate) fn bought(&self) -> impl Iterator<Item = (usize, f64)> {
        self.basis.iter().zip(&self.amounts).filter_map(|(basic, &amount)| match basic {
            Basic::Load(column) if amount > 1e-7 => Some((*column, amount)),
            _ => None,
        })
    }

    /// What one of a column costs.
    pub(crate) fn price_of(&self, column: usize) -> f64 {
        self.columns[column].0
    }

    /// A new column: its price and what it holds of each row. Returns its number.
    pub(crate) fn offer(
        &mut self,
        price: f64,
        holds: impl IntoIterator<Item = (usize, f64)>,
    ) -> usize {
        self.columns.push((price, self.entries.len()));
        let entries =
            holds.into_iter().map(|(row, amount)| (u32::try_from(row).unwrap_or(0), amount));
        self.entries.extend(entries);
        self.open.push(true);
        self.columns.len() - 1
    }

    /// Lets a column enter no more; one that is in the basis stays there until it leaves.
    pub(crate) fn close(&mut self, column: usize) {
        self.open[column] = false;
    }

    /// Makes columns so dear, and lets them enter no more, that those that are bought are given up
    /// for any others that hold the pods.
    pub(crate) fn give_up(&mut self, columns: impl IntoIterator<Item = usize>) {
        for column in columns {
            if self.open[column] {
                self.open[column] = false;
                self.columns[column].0 *= PROHIBITIVE;
            }
        }
        self.values.fill(0.0);
        for (line, basic) in self.inverse.chunks_exact(self.rows.max(1)).zip(&self.basis) {
            if let Basic::Load(column) = *basic {
                let price = self.columns[column].0;
                self.values.iter_mut().zip(line).for_each(|(value, by)| *value += price * by);
            }
        }
        self.charge(self.rows * self.rows / 4);
    }

    fn entries(&self, column: usize) -> &[(u32, f64)] {
        let end = self.columns.get(column + 1).map_or(self.entries.len(), |&(_, next)| next);
        &self.entries[self.columns[column].1..end]
    }

    /// What a column costs beyond what its pods are worth.
    fn reduced(&self, basic: Basic) -> f64 {
        match basic {
            Basic::Load(column) => {
                let worth = self.entries(column).iter();
                let worth: f64 = worth.map(|&(row, by)| self.values[row as usize] * by).sum();
                self.columns[column].0 - worth
            }
            Basic::Surplus(row) => self.values[row],
        }
    }

    /// Takes columns into the basis as long as that makes it cheaper.
    pub(crate) fn optimise(&mut self) {
        while self.work > 0 {
            let mut best = (-1e-7, None);
            for column in 0..self.columns.len() {
                if self.open[column] {
                    let gain = self.reduced(Basic::Load(column)) / self.columns[column].0.max(TINY);
                    if gain < best.0 {
                        best = (gain, Some(Basic::Load(column)));
                    }
                }
            }
            let scale = self.values.iter().fold(TINY, |most, value| most.max(value.abs()));
            for row in 0..self.rows {
                let gain = self.values[row] / scale;
                if gain < best.0 {
                    best = (gain, Some(Basic::Surplus(row)));
                }
            }
            self.charge(self.entries.len() + self.rows);
            let Some(entering) = best.1 else { break };
            let direction = self.direction(entering);
            let mut leaving: Option<(f64, usize)> = None;
            for (row, &step) in direction.iter().enumerate() {
                if step > 1e-8 {
                    let ratio = self.amounts[row].max(0.0) / step;
                    let better = leaving.is_none_or(|(least, at)| {
                        ratio < least - TINY || ratio < least + TINY && step > direction[at]
                    });
                    if better {
                        leaving = Some((ratio, row));
                    }
                }
            }
            let Some((_, row)) = leaving else { break };
            self.pivot(entering, row, &direction);
        }
    }

    /// Other amounts of pods; afterwards they are held again at the least price that the columns
    /// allow. What is left of the work may end it before.
    pub(crate) fn set_demand(&mut self, demand: &[f64]) {
        self.demand.copy_from_slice(demand);
        self.weigh();
        while self.work > 0 {
            let least = (0..self.rows).min_by(|&a, &b| self.amounts[a].total_cmp(&self.amounts[b]));
            let Some(row) = least.filter(|&row| self.amounts[row] < -1e-6) else { break };
            let line = &self.inverse[row * self.rows..(row + 1) * self.rows];
            let mut best: Option<(f64, Basic)> = None;
            let mut consider = |basic: Basic, by: f64| {
                if by < -1e-7 {
                    let ratio = self.reduced(basic).max(0.0) / -by;
                    if best.is_none_or(|(least, _)| ratio < least) {
                        best = Some((ratio, basic));
                    }
                }
            };
            for column in (0..self.columns.len()).filter(|&column| self.open[column]) {
                let by = self.entries(column).iter().map(|&(at, by)| line[at as usize] * by).sum();
                consider(Basic::Load(column), by);
            }
            for (at, by) in line.iter().enumerate() {
                consider(Basic::Surplus(at), -by);
            }
            self.charge(self.entries.len() + self.rows);
            let Some((_, entering)) = best else { break };
            let direction = self.direction(entering);
            if direction[row] > -1e-9 {
                break;
            }
            self.pivot(entering, row, &direction);
        }
    }

    /// How the basis changes by one of a column.
    fn direction(&self, basic: Basic) -> Vec<f64> {
        let mut direction = vec![0.0; self.rows];
        let surplus;
        let entries = match basic {
            Basic::Load(column) => self.entries(column),
            Basic::Surplus(row) => {
                surplus = [(u32::try_from(row).unwrap_or(0), -1.0)];
                &surplus[..]
            }
        };
        for (line, to) in self.inverse.chunks_exact(self.rows).zip(&mut direction) {
            *to = entries.iter().map(|&(row, by)| line[row as usize] * by).sum();
        }
        direction
    }

    fn pivot(&mut self, entering: Basic, row: usize, direction: &[f64]) {
        let rows = self.rows;
        let reduced = self.reduced(entering);
        let scale = 1.0 / direction[row];
        let line: Vec<f64> =
            self.inverse[row * rows..(row + 1) * rows].iter().map(|by| by * scale).collect();
        let used: Vec<usize> = (0..rows).filter(|&at| line[at].abs() > 1e-13).collect();
        let step = self.amounts[row] * scale;
        let mut changed = 0;
        for (at, &by) in direction.iter().enumerate() {
            if at == row || by.abs() < 1e-13 {
                continue;
            }
            changed += 1;
            self.amounts[at] -= by * step;
            let to = &mut self.inverse[at * rows..(at + 1) * rows];
            if used.len() * 2 < rows {
                for &column in &used {
                    to[column] -= by * line[column];
                }
            } else {
                for (to, from) in to.iter_mut().zip(&line) {
                    *to -= by * from;
                }
            }
        }
        for &column in &used {
            self.values[column] += reduced * line[column];
        }
        self.amounts[row] = step;
        self.inverse[row * rows..(row + 1) * rows].copy_from_slice(&line);
        self.basis[row] = entering;
        // Next to each other they are faster to go through than entries of columns.
        self.charge((changed * used.len().min(rows)) / 4 + rows);
    }

    /// What the basis holds of each column.
    fn weigh(&mut self) {
        let demand: Vec<f64> = (0_u32..)
            .zip(&self.demand)
            .map(|(row, pods)| pods + 1e-7 * (1.0 + (f64::from(row) * 0.618).fract()))
            .collect();
        for (line, to) in self.inverse.chunks_exact(self.rows.max(1)).zip(&mut self.amounts) {
            *to = line.iter().zip(&demand).map(|(by, pods)| by * pods).sum();
        }
        self.charge(self.rows * self.rows / 4);
    }
}
