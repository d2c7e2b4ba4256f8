//! The covering problem as far as loads, and ways to deal pods out, are known.

use super::super::knapsack::{Effort, Prospect, Row, best_load};
use super::model::{Bin, Machine, Model, Places};
use crate::Cancel;
use crate::dual::{Deal, Master};

/// How thoroughly a load is searched for, at first and after each purchase.
const EFFORT: Effort = Effort { width: 8, improve: 60, least: 0.0 };
const EFFORT_AFTERWARDS: Effort = Effort { width: 3, improve: 12, least: 0.0 };

/// The number of bins that are searched in a round at most, those that may gain most first, until
/// so many loads that gain something were found.
const SEARCHED: usize = 48;
const SEARCHED_AFTERWARDS: usize = 12;
const OFFERED: usize = 12;

/// The limit on rounds before the dive.
const ROUNDS: usize = 40;

/// The limit on rounds after each purchase.
const AFTERWARDS: usize = 6;

/// The share of its machine's price that a load must gain.
const GAIN: f64 = 1e-4;

/// After the first problem only types are filled of which a load is worth so much of its price.
const PROMISING: f64 = 0.75;

/// So many loads are compared before one is bought.
const COMPARED: usize = 8;

/// What is bought is a whole machine from this share of one on.
const WHOLE: f64 = 1.0 - 1e-4;

/// The least share of a machine that counts as bought.
const SOME: f64 = 1e-4;

/// What a way to deal pods out costs by itself, as a share of what the pods cost alone: prices tell
/// how much a column is worth looking at.
const DEALT: f64 = 0.1;

/// The limit on the work of the first problem, and after each purchase, in entries looked at.
const WORK: u64 = 6_000_000;
const WORK_AFTERWARDS: u64 = 300_000;

/// A shape's way of being dealt out.
#[derive(Clone)]
struct Dealing<'m> {
    deal: &'m Deal,
    /// What a way to deal its pods out costs by itself.
    price: f64,
}

/// The problem as far as loads are known.
#[derive(Clone)]
pub(super) struct Market<'m> {
    pub(super) model: &'m Model,
    master: Master,
    loads: Vec<Machine>,
    /// By column: which load it is. Others are ways to deal pods out.
    load_of: Vec<Option<usize>>,
    dealings: Vec<Dealing<'m>>,
    /// The bins that loads are searched for.
    active: Vec<usize>,
    /// Pods that machines which are bought have places for, by row.
    pub(super) covered: Vec<usize>,
    /// These machines, and what they cost.
    pub(super) bought: Vec<Machine>,
    spent: f64,
}

/// What loads of a bin may be worth.
struct Outcome {
    /// No load is worth more.
    most: f64,
    prospect: Prospect,
    /// The rows of which one more machine may hold pods that are worth something.
    rows: Vec<usize>,
}

/// Loads that could be bought, and how often.
pub(super) type Loads = Vec<(usize, usize)>;

impl<'m> Market<'m> {
    pub(super) fn new(model: &'m Model, current: &[Machine]) -> Self {
        let loads: Vec<Machine> = (0..model.rows.len()).map(|row| alone(model, row)).collect();
        let mut first: Vec<(f64, f64)> = loads
            .iter()
            .map(|load| (model.bins[load.bin].price, weight(load.takes[0].1)))
            .collect();
        let mut demand = vec![0.0; model.rows.len()];
        let mut dealings = Vec::new();
        for places in &model.places {
            match places {
                Places::Free { row, pods } => demand[*row] = weight(*pods),
                Places::Spread { rows, deal } => {
                    let each = rows.iter().flatten().map(|&row| first[row].0 / first[row].1);
                    let price = deal.pods() * each.fold(0.0, f64::max) * DEALT;
                    dealings.push(Dealing { deal, price: price.max(f64::MIN_POSITIVE) });
                }
            }
        }
        for dealing in &dealings {
            // Dearer than any way to deal them out and what it asks for.
            first.push((dealing.price * 4.0 / DEALT, 1.0));
            demand.push(1.0);
        }
        let master = Master::new(&demand, &first, WORK);
        let mut load_of: Vec<Option<usize>> = (0..loads.len()).map(Some).collect();
        load_of.resize(first.len(), None);
        let (active, covered) = ((0..model.bins.len()).collect(), vec![0; model.rows.len()]);
        let (bought, spent) = (Vec::new(), 0.0);
        let mut market =
            Self { model, master, loads, load_of, dealings, active, covered, bought, spent };
        for machine in current {
            market.add(machine.clone());
        }
        market
    }

    /// Looks for loads until none makes what is bought cheaper, and chooses the types that later
    /// searches are about.
    pub(super) fn begin(&mut self, cancel: &dyn Cancel) {
        self.generate(ROUNDS, SEARCHED, cancel);
        self.narrow();
    }

    /// What all pods cost at least, as far as loads are known.
    pub(super) fn least(&self) -> f64 {
        self.spent + self.master.price() - self.dealt()
    }

    /// What dealing pods out costs by itself.
    fn dealt(&self) -> f64 {
        self.dealings.iter().map(|dealing| dealing.price).sum()
    }

    fn add(&mut self, load: Machine) {
        let price = self.model.bins[load.bin].price;
        self.master.offer(price, load.takes.iter().map(|&(row, n)| (row, weight(n))));
        self.load_of.push(Some(self.loads.len()));
        self.loads.push(load);
    }

    /// Looks for loads, and ways to deal pods out, that make what is bought cheaper.
    fn generate(&mut self, rounds: usize, bins: usize, cancel: &dyn Cancel) {
        let at_most = self.at_most();
        self.master.optimise();
        let mut center: Option<Vec<f64>> = None;
        for _ in 0..rounds {
            if self.master.work() == 0 || cancel.is_cancelled() {
                break;
            }
            let values: Vec<f64> =
                self.master.values().iter().map(|value| value.max(0.0)).collect();
            let mid: Vec<f64> = match &center {
                Some(last) => values.iter().zip(last).map(|(a, b)| 0.6 * a + 0.4 * b).collect(),
                None => values.clone(),
            };
            let mut offered = 0;
            for at in [&mid, &values] {
                offered = self.offer(bins, &at_most, at, &values) + self.deal(at, &values);
                if offered > 0 {
                    break;
                }
            }
            center = Some(mid);
            if offered == 0 {
                break;
            }
            self.master.optimise();
        }
    }

    /// Looks no more at types of which no load is worth nearly its price, in whatever zone.
    fn narrow(&mut self) {
        let model = self.model;
        let at: Vec<f64> = self.master.values().iter().map(|value| value.max(0.0)).collect();
        let at_most = self.at_most();
        let mut promising = vec![false; model.kinds];
        for bin in &model.bins {
            if !promising[bin.kind] {
                promising[bin.kind] = self.worth(bin, &at_most, &at) > bin.price * PROMISING;
            }
        }
        for load in self.master.bought().filter_map(|(column, _)| self.load_of[column]) {
            promising[model.bins[self.loads[load].bin].kind] = true;
        }
        self.active.retain(|&bin| promising[model.bins[bin].kind]);
    }

    /// What the best load of a bin is worth; nothing where that is far from its price.
    fn worth(&self, bin: &Bin, at_most: &[usize], at: &[f64]) -> f64 {
        let Outcome { most, prospect, rows } = self.prospect(bin, at_most, at);
        if most < bin.price * PROMISING {
            return 0.0;
        }
        best_load(&self.model.rows, &rows, at_most, at, &bin.net, &prospect, EFFORT).0
    }

    /// What is known of the loads of a bin before one is searched for.
    fn prospect(&self, bin: &Bin, at_most: &[usize], at: &[f64]) -> Outcome {
        let wanted = |&&row: &&usize| at_most[row] > 0 && at[row] > 0.0;
        let rows: Vec<usize> = bin.rows.iter().filter(wanted).copied().collect();
        let Model { rows: all, requests, .. } = self.model;
        let prospect = Prospect::new(all, &rows, requests, at, bin.room);
        // There may be fewer pods than a machine holds.
        let all: f64 = rows.iter().map(|&row| at[row] * weight(at_most[row])).sum();
        Outcome { most: all.min(prospect.most), prospect, rows }
    }

    /// The number of pods of each row that one more machine may be of use to.
    fn at_most(&self) -> Vec<usize> {
        let mut at_most = vec![0; self.model.rows.len()];
        for places in &self.model.places {
            match places {
                Places::Free { row, pods } => {
                    at_most[*row] = pods.saturating_sub(self.covered[*row]);
                }
                Places::Spread { rows, deal } => {
                    let held = self.held(rows);
                    for (zone, row) in rows.iter().enumerate() {
                        if let Some(row) = *row {
                            at_most[row] = whole(deal.more_in(zone, &held));
                        }
                    }
                }
            }
        }
        at_most
    }

    /// Offers the loads that are worth most at some values, where they gain at others. Returns how
    /// many.
    fn offer(&mut self, bins: usize, at_most: &[usize], at: &[f64], values: &[f64]) -> usize {
        let model = self.model;
        let effort = if self.bought.is_empty() { EFFORT } else { EFFORT_AFTERWARDS };
        let mut looked = 0;
        let mut ranked: Vec<(f64, usize, Outcome)> = Vec::new();
        for &index in &self.active {
            let bin = &model.bins[index];
            looked += bin.rows.len() * 5;
            let prospect = self.prospect(bin, at_most, at);
            let ratio = prospect.most / bin.price;
            if ratio > 1.0 + GAIN {
                ranked.push((ratio, index, prospect));
            }
        }
        ranked.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        let mut offered = 0;
        for (_, index, Outcome { prospect, rows, .. }) in ranked.into_iter().take(bins) {
            if offered == OFFERED {
                break;
            }
            let bin = &model.bins[index];
            let (_, takes, steps) =
                best_load(&model.rows, &rows, at_most, at, &bin.net, &prospect, effort);
            looked += steps * 8 + rows.len() * 4;
            let worth: f64 = takes.iter().map(|&(row, n)| values[row] * weight(n)).sum();
            if worth > bin.price * (1.0 + GAIN) {
                self.add(Machine { bin: index, takes });
                offered += 1;
            }
        }
        self.master.charge(looked);
        offered
    }

    /// Offers the ways to deal pods out that are cheapest at some values, where they gain at
    /// others. Returns how many.
    fn deal(&mut self, at: &[f64], values: &[f64]) -> usize {
        let mut offered = 0;
        for (index, dealing) in self.dealings.iter().enumerate() {
            let (_, dealt) = dealing.deal.least(at);
            let together = self.model.rows.len() + index;
            let entries = dealt.into_iter().map(|(row, pods)| (row, -pods));
            let entries: Vec<(usize, f64)> =
                entries.chain([(together, 1.0)]).filter(|entry| entry.1 != 0.0).collect();
            let worth: f64 = entries.iter().map(|&(row, by)| values[row] * by).sum();
            if worth > dealing.price * (1.0 + GAIN) {
                self.master.offer(dealing.price, entries);
                self.load_of.push(None);
                offered += 1;
            }
        }
        self.master.charge(self.model.rows.len());
        offered
    }

    /// The problem after some loads were bought so often.
    pub(super) fn after(&self, loads: &[(usize, usize)], cancel: &dyn Cancel) -> Self {
        let mut after = self.clone();
        for &(load, n) in loads {
            let load = self.loads[load].clone();
            for &(row, pods) in &load.takes {
                after.covered[row] += pods * n;
            }
            after.spent += self.model.bins[load.bin].price * weight(n);
            after.bought.extend(std::iter::repeat_n(load, n));
        }
        after.master.allow(WORK_AFTERWARDS);
        after.master.set_demand(&after.demand());
        // Loads of more pods than there can be in a zone now would be bought for a part of them.
        let at_most = after.at_most();
        let exceeds =
            |load: usize| after.loads[load].takes.iter().any(|&(row, pods)| pods > at_most[row]);
        let gone = after.load_of.iter().enumerate();
        let gone = gone.filter(|(_, load)| load.is_some_and(exceeds)).map(|(column, _)| column);
        after.master.give_up(gone);
        after.generate(AFTERWARDS, SEARCHED_AFTERWARDS, cancel);
        after
    }

    /// What to buy next, what seems best first, and what all pods cost at least then: all machines
    /// that are bought whole, or one machine of a load.
    pub(super) fn purchases(&self) -> Vec<(f64, Loads)> {
        let mut amounts: Vec<(usize, f64)> = self
            .master
            .bought()
            .filter_map(|(column, amount)| Some((self.load_of[column]?, amount)))
            .filter(|&(_, amount)| amount > SOME)
            .collect();
        let whole_ones = amounts.iter().filter(|&&(_, amount)| amount >= WHOLE);
        let whole_ones: Loads =
            whole_ones.map(|&(load, amount)| (load, whole(amount + SOME))).collect();
        amounts.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        amounts.truncate(COMPARED);
        let demand = self.demand();
        let after = |load: usize| {
            let Machine { bin, takes } = &self.loads[load];
            let mut left = demand.clone();
            takes.iter().for_each(|&(row, pods)| left[row] -= weight(pods));
            let mut master = self.master.clone();
            master.set_demand(&left);
            self.spent + master.price() - self.dealt() + self.model.bins[*bin].price
        };
        let mut compared: Vec<(f64, Loads)> =
            amounts.into_iter().map(|(load, _)| (after(load), vec![(load, 1)])).collect();
        // Of equals the one that is bought most.
        compared.sort_by(|a, b| a.0.total_cmp(&b.0));
        if !whole_ones.is_empty() {
            compared.insert(0, (self.least(), whole_ones));
        }
        compared
    }

    /// What is still asked for: less than nothing where more is held than the rows ask for.
    fn demand(&self) -> Vec<f64> {
        let mut demand: Vec<f64> = self.covered.iter().map(|&pods| -weight(pods)).collect();
        for places in &self.model.places {
            if let Places::Free { row, pods } = places {
                demand[*row] += weight(*pods);
            }
        }
        demand.extend(self.dealings.iter().map(|_| 1.0));
        demand
    }

    /// The pods that machines which are bought hold in each zone.
    pub(super) fn held(&self, rows: &[Option<usize>]) -> Vec<f64> {
        let held = |row: &Option<usize>| row.map_or(0.0, |row| weight(self.covered[row]));
        rows.iter().map(held).collect()
    }
}

/// As many pods of one row as a machine holds, where that is cheapest for one.
fn alone(model: &Model, row: usize) -> Machine {
    let Row { requests, .. } = &model.rows[row];
    let pods = match &model.places[model.sources[row].crew] {
        Places::Free { pods, .. } => *pods,
        Places::Spread { rows, deal } => {
            let none = vec![0.0; rows.len()];
            model.sources[row].zone.map_or(1, |zone| whole(deal.more_in(zone, &none)))
        }
    };
    let most = if model.rows[row].is_alone() { 1 } else { pods.max(1) };
    let held = |net: &[i64]| {
        let by = requests.iter().zip(net).filter(|(want, _)| **want > 0);
        let by = by.map(|(want, have)| usize::try_from(have / want).unwrap_or(0));
        by.min().unwrap_or(most).clamp(1, most)
    };
    let of_row = model.bins.iter().enumerate().filter(|(_, bin)| bin.rows.contains(&row));
    let each = of_row.map(|(index, bin)| (bin.price / weight(held(&bin.net)), index));
    let (_, bin) = each
        .min_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)))
        .expect("the model has a machine for each row");
    Machine { bin, takes: [(row, held(&model.bins[bin].net))].into_iter().collect() }
}

pub(super) fn weight(n: usize) -> f64 {
    f64::from(u32::try_from(n).unwrap_or(u32::MAX))
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "numbers of pods")]
pub(super) fn whole(amount: f64) -> usize {
    amount.max(0.0) as usize
}
