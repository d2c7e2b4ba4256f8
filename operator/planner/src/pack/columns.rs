//! Which loads to buy how often, all machines at once (column generation, Gilmore and Gomory).
//!
//! Machines that are filled one after the other leave to the last what nobody wanted. Here loads
//! are weighed against each other: a covering problem ([`Master`]) has one row for each kind of pod
//! and one column for each load that is known; its values say what a pod is worth as long as these
//! are all the loads there are, and on each type the load is looked for that is worth most beyond
//! its price ([`best_load`]). When none is worth more than its machine costs, whole machines are
//! bought: as many of each load as the problem buys, rounded down; then, where that is none, those
//! that it nearly buys. What is left is a smaller problem of the same kind.
//!
//! Nothing here decides whether a pod may be somewhere: loads consist of pods that share a spec,
//! and what is bought is opened by [`super::commit::commit`] like any other load.

mod clusters;
mod dealing;
mod pools;
mod rounding;
mod table;

use std::collections::BTreeMap;

use fixedbitset::FixedBitSet;

use super::commit::commit;
use super::knapsack::{Effort, Prospect, Takes, best_load};
use super::load::Load;
use super::strategy::Repeats;
use crate::Cancel;
use crate::demands::Demand;
use crate::dual::Master;
use crate::machine_specs::SpecId;
use crate::solver::Solver;
use crate::tables::add_times;
use crate::topology::HostGroup;
use dealing::Dealer;
use table::{Bin, Left, Table};

/// After the first rounding only machines are filled whose loads of pieces are worth so much of
/// their price at the values that proved most.
const STILL_PROMISING: f64 = 0.97;

/// The number of beginnings of a load that a search has in view.
const WIDTH: usize = 4;

/// The limit on the steps that improve a load, whatever the number of pods.
const IMPROVING: usize = 1_000;

/// The share of a machine's price that a load must be worth for the search to keep it. The steps
/// that improve a load may add the rest.
const LEAST: f64 = 0.99;

/// The limit on rounds before the first rounding.
pub(super) const ROUNDS: usize = 60;

/// How thoroughly loads are searched for.
#[derive(Clone, Copy, Debug)]
struct Care {
    /// The number of bins that are searched in a round, those that may gain most.
    bins: usize,
    /// The limit on rounds after each rounding.
    rounds: usize,
    /// The number of pods for each step that improves a load: the more machines have the same load,
    /// the more a better one saves.
    per_step: usize,
    /// The share of a machine's price that a load must gain, and the gap to the proven bound, as a
    /// share of the price, at which the problem counts as solved.
    gap: f64,
}

/// So many times as many bins are searched in a round as long as no load gains anything.
const IN_VAIN: usize = 4;

/// For few pods, of which rounding loses more than such a gap.
const QUICK: Care = Care { bins: 6, rounds: 2, per_step: 16, gap: 3e-3 };

/// For at least `MANY` pods, and where pods keep off each other's hosts: then few loads fill a
/// machine.
const THOROUGH: Care = Care { bins: 12, rounds: 3, per_step: 4, gap: 1e-3 };

/// The number of pods from which `THOROUGH` applies.
const MANY: usize = 10_000;

/// With fewer machines than this, if they were of the best type, they are bought one after the
/// other.
const FEW: f64 = 24.0;

/// Unless it takes more than so many.
const SOME: usize = 48;

/// A load that the problem knows, by cluster.
#[derive(Clone, Debug)]
struct Known {
    bin: usize,
    takes: Takes,
}

/// Machines with the same load, by row.
#[derive(Clone, Debug)]
struct Bought {
    bin: usize,
    takes: Takes,
    machines: usize,
}

/// Opens machines for all demands that open machines and take part; those that are left when the
/// work is done are left to others. Returns what the pods are worth in the relaxation, in
/// micro-dollars: no machines for them cost less. Nothing when there is no telling.
pub(super) fn open(
    solver: &mut Solver<'_, '_>,
    demands: &mut [Demand],
    scene: &Scene<'_>,
    cancel: &dyn Cancel,
) -> Option<f64> {
    let table = Table::new(solver, demands, scene.parts, scene.crews)?;
    let (bought, worth) = buy(&table, table.known(scene.current), scene.rounds, cancel);
    for Bought { bin, takes, mut machines } in bought {
        let Bin { spec, .. } = table.bins[bin];
        while machines > 0 {
            let template = solver.specs[spec].template;
            let mut allowed = solver.specs[spec].types.clone();
            if solver.limits.restrict(&solver.problem.tables, template, &mut allowed).is_err() {
                return None;
            }
            let load = load(&table, demands, spec, &takes)?;
            if !is_within(solver, demands, &load, &allowed) {
                // Limits have excluded all types that hold it.
                break;
            }
            let before = solver.claims.len();
            commit(solver, demands, load, template, &allowed, Repeats::AtMost(machines));
            machines = machines.saturating_sub(solver.claims.len() - before);
        }
    }
    Some(worth)
}

/// Whether some type that is allowed holds a load.
pub(super) fn is_within(
    solver: &Solver<'_, '_>,
    demands: &[Demand],
    load: &Load,
    allowed: &FixedBitSet,
) -> bool {
    let problem = solver.problem;
    let mut used = vec![0; problem.tables.columns.len()];
    for &(demand, n) in &load.takes {
        add_times(&mut used, &problem.tables.shapes[demands[demand].shape].requests, n);
    }
    let mut types = allowed.clone();
    solver.keep_fitting(&mut types, solver.specs[load.spec].template, &used, &[]);
    !types.is_clear()
}

/// Who takes part, and what is known of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scene<'s> {
    pub(super) parts: &'s [Candidate],
    pub(super) crews: &'s [Crew],
    /// Loads that are known to begin with.
    pub(super) current: &'s [Load],
    /// The limit on rounds before the first rounding.
    pub(super) rounds: usize,
}

/// Pods that take part: a demand, and the topology groups that limit which of them share a machine.
#[derive(Clone, Debug)]
pub(super) struct Candidate {
    pub(super) demand: usize,
    /// Whether they are only on machines of the spec that they open.
    pub(super) is_pinned: bool,
    pub(super) groups: Vec<HostGroup>,
    /// Whose places they take, by index. Pods of a crew are on machines of the specs that it has
    /// places in, whatever they open.
    pub(super) crew: Option<usize>,
}

/// Pods that may change places with each other.
#[derive(Clone, Debug)]
pub(super) struct Crew {
    /// How many of them have to be on machines of which specs; as many as there are pods.
    pub(super) places: Vec<(SpecId, usize)>,
}

/// What the price of machines without a spec is multiplied by, that the problem begins with for
/// pods which have places in several.
const NOWHERE: f64 = 4.0;

/// A load of demands that have pods left.
fn load(table: &Table, demands: &[Demand], spec: SpecId, takes: &Takes) -> Option<Load> {
    let mut load = Load { spec, takes: Vec::new(), value: 0.0 };
    for &(row, n) in takes {
        let mut missing = n;
        for &demand in &table.demands[row] {
            let some = demands[demand].left().min(missing);
            if some > 0 {
                load.takes.push((demand, some));
                missing -= some;
            }
        }
    }
    (!load.takes.is_empty()).then_some(load)
}

/// The loads of a problem that is being solved.
struct Market<'t> {
    table: &'t Table,
    master: Master,
    known: Vec<Known>,
    /// Bins that are filled, with the rows that have pods left.
    active: Vec<(usize, Vec<usize>)>,
    /// Values that prove most, and what they prove.
    center: (f64, Vec<f64>),
    effort: Effort,
    care: Care,
}

/// What to buy, and how often; and what the pods are worth as far as loads of whole pods tell.
fn buy(
    table: &Table,
    current: Vec<Known>,
    rounds: usize,
    cancel: &dyn Cancel,
) -> (Vec<Bought>, f64) {
    let mut dealer = Dealer::new(table);
    let left = dealer.rest();
    let mut market = Market::new(table, &left, work(&left.pods));
    let mut bought = None;
    if market.is_about_few_machines() {
        let values = market.center.1.clone();
        let mut one = dealer.clone();
        bought = one_after_the_other(&mut market, &mut one, SOME, cancel);
        market.center.1 = values;
    }
    let mut worth = table.worth();
    let mut bought = bought.unwrap_or_else(|| {
        for known in current {
            let price = table.bins[known.bin].price;
            market.master.offer(price, table.entries(known.bin, &known.takes));
            market.known.push(known);
        }
        market.master.optimise();
        market.generate(&left, rounds, cancel);
        market.narrow();
        worth = worth.max(market.center.0);
        market.round(&mut dealer, cancel)
    });
    // The largest pods first, as ever: where there are limits, they get what is left of them.
    bought.sort_by_key(|bought| bought.takes[0].0);
    (bought, worth)
}

/// Buys for all pods that are left the load that is worth most of its price, again and again;
/// values are worked out anew each time an eighth of the pods has a place. Nothing when that takes
/// more than so many machines.
fn one_after_the_other(
    market: &mut Market<'_>,
    dealer: &mut Dealer<'_>,
    at_most: usize,
    cancel: &dyn Cancel,
) -> Option<Vec<Bought>> {
    let table = market.table;
    let mut left = dealer.rest();
    let (mut valued, mut count) = (left.pods.iter().sum::<usize>(), 0);
    let mut bought = Vec::new();
    while left.pods.iter().any(|&pods| pods > 0) {
        let pods = left.pods.iter().sum();
        if at_most < usize::MAX && pods * 8 < valued * 7 {
            (valued, market.center.1) = (pods, table.revalued(&left.pods));
        }
        let Some(Known { bin, takes }) = market.best(&left) else { break };
        let most = takes.iter().map(|&(cluster, n)| left.pods[cluster] / n).min().unwrap_or(0);
        let (takes, machines) = dealer.deal(bin, &takes, most.div_ceil(2));
        if takes.is_empty() {
            break;
        }
        count += machines;
        if count > at_most {
            return None;
        }
        bought.push(Bought { bin, takes, machines });
        left = dealer.rest();
        if cancel.is_cancelled() {
            break;
        }
    }
    Some(bought)
}

/// How much work a problem is worth: it grows with the pods up to some.
fn work(left: &[usize]) -> u64 {
    let pods: usize = left.iter().sum();
    8_000_000 + 2_000 * (pods.min(40_000) as u64)
}

impl<'t> Market<'t> {
    #[expect(clippy::cast_precision_loss, reason = "amounts of pods")]
    fn new(table: &'t Table, left: &Left, work: u64) -> Self {
        let (mut known, mut first, mut elsewhere) = (Vec::new(), Vec::new(), Vec::new());
        for row in 0..table.clusters.len() {
            // The cheapest for one pod, of all specs, and of those with limits.
            let mut best: Option<(f64, usize, usize)> = None;
            let mut limited: BTreeMap<usize, (f64, usize, usize)> = BTreeMap::new();
            for (index, bin) in table.bins.iter().enumerate() {
                if bin.clusters.binary_search(&row).is_err() {
                    continue;
                }
                let limit = table.limit(row, index);
                let admitted = limit.map_or(usize::MAX, |limit| left.places[limit]);
                let requests = &table.means[row].requests;
                let times = requests.iter().zip(&bin.net).filter(|(want, _)| **want > 0);
                let times = times.map(|(want, have)| have / want).min().unwrap_or(1);
                let most = left.pods[row].min(admitted).max(1).min(table.clusters[row].most);
                let n = usize::try_from(times).unwrap_or(1).clamp(1, most);
                let each = bin.price / n as f64;
                if best.is_none_or(|(least, ..)| each < least) {
                    best = Some((each, index, n));
                }
                if let Some(limit) = limit
                    && limited.get(&limit).is_none_or(|&(least, ..)| each < least)
                {
                    limited.insert(limit, (each, index, n));
                }
            }
            let (each, bin, n) = best.unwrap_or((1.0, 0, 1));
            known.push(Known { bin, takes: [(row, n)].into_iter().collect() });
            let dearer = if limited.is_empty() { 1.0 } else { NOWHERE };
            first.push((each * n as f64 * dearer, n as f64));
            elsewhere.extend(limited.into_values().map(|(_, bin, n)| (row, bin, n)));
        }
        let demand = left.demand();
        let proved = table.worths.iter().zip(&demand).map(|(value, pods)| value * pods).sum();
        let mut master = Master::new(&demand, &first, work);
        for (row, bin, n) in elsewhere {
            let takes: Takes = [(row, n)].into_iter().collect();
            master.offer(table.bins[bin].price, table.entries(bin, &takes));
            known.push(Known { bin, takes });
        }
        let active =
            (0..table.bins.len()).map(|bin| (bin, table.bins[bin].clusters.clone())).collect();
        let pods: usize = left.pods.iter().sum();
        let apart = table.rows.iter().any(|row| !row.groups.is_empty());
        let care = if pods < MANY && !apart { QUICK } else { THOROUGH };
        let effort =
            Effort { width: WIDTH, improve: (pods / care.per_step).min(IMPROVING), least: 0.0 };
        let center = (proved, table.worths.clone());
        Self { table, master, known, active, center, effort, care }
    }

    /// Looks no more at what the first rounds had no use for.
    fn narrow(&mut self) {
        let Self { table, active, center: (_, values), .. } = self;
        let by_spec = table.by_spec(values);
        active.retain(|(index, rows)| {
            let bin = &table.bins[*index];
            table.prospect(bin, rows, bin.here(&by_spec)).most / bin.price > STILL_PROMISING
        });
    }

    /// Looks for loads that make what is bought cheaper.
    fn generate(&mut self, left: &Left, rounds: usize, cancel: &dyn Cancel) {
        let demand = left.demand();
        let worth = |values: &[f64]| -> f64 {
            values.iter().zip(&demand).map(|(value, pods)| value * pods).sum()
        };
        self.center.0 = worth(&self.center.1);
        for round in 0..rounds {
            if self.master.work() == 0 || cancel.is_cancelled() {
                break;
            }
            if self.master.price() * (1.0 - self.care.gap) <= self.center.0 {
                break;
            }
            let values: Vec<f64> =
                self.master.values().iter().map(|value| value.max(0.0)).collect();
            let share = if round == 0 { 1.0 } else { 0.5 };
            let mid: Vec<f64> = values
                .iter()
                .zip(&self.center.1)
                .map(|(a, b)| (1.0 - share) * a + share * b)
                .collect();
            let mut offered = 0;
            for at in [&mid, &values] {
                let (some, most) = self.offer(left, at, &values);
                offered = some;
                let proved = worth(at) / most;
                if proved > self.center.0 {
                    self.center = (proved, at.iter().map(|value| value / most).collect());
                }
                if offered > 0 {
                    break;
                }
            }
            if offered == 0 {
                break;
            }
            self.master.optimise();
        }
    }

    /// Whether there are hardly more machines to buy than clusters to weigh: then what is bought of
    /// each load says little, as nearly all of it are fractions.
    fn is_about_few_machines(&self) -> bool {
        let (worth, values) = &self.center;
        let by_spec = self.table.by_spec(values);
        let ratio = |bin: &Bin| {
            let values = bin.here(&by_spec);
            self.table.prospect(bin, &bin.clusters, values).most / bin.price
        };
        let best = self.table.bins.iter().max_by(|a, b| ratio(a).total_cmp(&ratio(b)));
        best.is_some_and(|bin| *worth < bin.price * FEW)
    }

    /// The load that is worth most of its price at the values that prove most.
    fn best(&self, left: &Left) -> Option<Known> {
        let table = self.table;
        let by_spec = table.by_spec(&self.center.1);
        let at_most = self.at_most(left);
        let mut ranked: Vec<(f64, usize, Prospect, Vec<usize>)> = Vec::new();
        for (index, bin) in table.bins.iter().enumerate() {
            let at_most = bin.here(&at_most);
            let is_left = |&it: &usize| at_most[it] > 0;
            let on: Vec<usize> = bin.clusters.iter().copied().filter(is_left).collect();
            let prospect = table.prospect(bin, &on, bin.here(&by_spec));
            ranked.push((prospect.most / bin.price, index, prospect, on));
        }
        ranked.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        let mut best: Option<(f64, Known)> = None;
        for (ratio, index, prospect, on) in ranked.into_iter().take(THOROUGH.bins) {
            if best.as_ref().is_some_and(|(most, _)| ratio <= *most) {
                break;
            }
            let bin = &table.bins[index];
            let least = best.as_ref().map_or(0.0, |(most, _)| most * bin.price);
            let effort = Effort { least, ..self.effort };
            let (at_most, values) = (bin.here(&at_most), bin.here(&by_spec));
            let (worth, takes, _) =
                best_load(&table.means, &on, at_most, values, &bin.net, &prospect, effort);
            let ratio = worth / bin.price;
            if !takes.is_empty() && best.as_ref().is_none_or(|(most, _)| ratio > *most) {
                best = Some((ratio, Known { bin: index, takes }));
            }
        }
        best.map(|(_, known)| known)
    }

    /// How many pods of each cluster a machine may hold, by spec as [`Table::by_spec`].
    fn at_most(&self, left: &Left) -> Vec<Vec<usize>> {
        let table = self.table;
        let of = |place: usize| {
            let each = left.pods.iter().zip(&table.clusters).map(|(&pods, cluster)| {
                let limit = cluster.pool.and_then(|pool| table.pools.limit(pool, place));
                let admitted = limit.map_or(usize::MAX, |limit| left.places[limit]);
                pods.min(cluster.most).min(admitted)
            });
            each.collect()
        };
        (0..table.n_by_spec()).map(of).collect()
    }

    /// Offers the loads that are worth most at some values, where they gain at others. Returns how
    /// many, and the most that a load is worth of its price.
    fn offer(&mut self, left: &Left, at: &[f64], values: &[f64]) -> (usize, f64) {
        let table = self.table;
        let (at, values) = (table.by_spec(at), table.by_spec(values));
        let mut ranked: Vec<(f64, usize, Prospect)> = Vec::new();
        let mut looked = 0;
        for (position, (index, rows)) in self.active.iter_mut().enumerate() {
            rows.retain(|&row| left.pods[row] > 0);
            let bin = &table.bins[*index];
            let prospect = table.prospect(bin, rows, bin.here(&at));
            looked += rows.len() * 5;
            ranked.push((prospect.most / bin.price, position, prospect));
        }
        ranked.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        let care = self.care;
        let (mut offered, mut most) = (0, 1.0_f64);
        let at_most = self.at_most(left);
        for (rank, (ratio, position, prospect)) in ranked.into_iter().enumerate() {
            let is_enough = rank >= if offered > 0 { care.bins } else { care.bins * IN_VAIN };
            if is_enough || ratio <= 1.0 + care.gap {
                // No load of this type, nor of those that come after it, is worth more than that.
                most = most.max(ratio);
                break;
            }
            let (index, ref rows) = self.active[position];
            let bin = &table.bins[index];
            let effort = Effort { least: bin.price * LEAST, ..self.effort };
            let (at_most, at) = (bin.here(&at_most), bin.here(&at));
            let (worth, takes, steps) =
                best_load(&table.means, rows, at_most, at, &bin.net, &prospect, effort);
            looked += steps * 8 + rows.len() * 4;
            most = most.max(worth / bin.price);
            let values = bin.here(&values);
            #[expect(clippy::cast_precision_loss, reason = "amounts of pods")]
            let worth: f64 = takes.iter().map(|&(row, n)| values[row] * n as f64).sum();
            if worth > bin.price * (1.0 + care.gap) {
                self.master.offer(bin.price, table.entries(index, &takes));
                self.known.push(Known { bin: index, takes });
                offered += 1;
            }
        }
        self.master.charge(looked);
        (offered, most)
    }
}
