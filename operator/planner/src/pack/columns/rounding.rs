//! From a solution that buys parts of machines to whole ones: as many of each load as it buys,
//! rounded down; then, where that is none, one of those that it nearly buys.
//!
//! The pods that a load is dealt differ from the average of their clusters, so in the end there may
//! be none of the whole loads for which all pods are left. Either the rest is then bought one after
//! the other, or these loads are bought without the pods that they lack. Which is cheaper depends
//! on what comes after: both are done, and the cheaper is taken.

use smallvec::SmallVec;

use super::super::knapsack::Takes;
use super::dealing::Dealer;
use super::table::{Left, Table};
use super::{Bought, Known, Market, one_after_the_other};
use crate::Cancel;
use crate::dual::Master;

/// The number of loads that are tried where the solution buys none whole.
const TRIED: usize = 2;

/// What is bought is a whole machine from this share of one on.
const WHOLE: f64 = 1.0 - 1e-6;

impl Market<'_> {
    /// Buys whole machines: of each load as many as the solution says, rounded down; where that is
    /// none, the one of some loads after which all together cost least.
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "amounts of machines"
    )]
    pub(super) fn round(&mut self, dealer: &mut Dealer<'_>, cancel: &dyn Cancel) -> Vec<Bought> {
        let table = self.table;
        let mut left = dealer.rest();
        let mut bought: Vec<Bought> = Vec::new();
        // Where the rest is bought one after the other, and the pods that this leaves.
        let mut other: Option<(usize, Vec<Bought>)> = None;
        // Even a pass that is cut short buys something, so that the next one has less to do.
        let mut cancelled = false;
        while left.pods.iter().any(|&pods| pods > 0) && self.master.work() > 0 && !cancelled {
            cancelled = cancel.is_cancelled();
            let mut solution: Vec<(usize, f64)> = self.master.bought().collect();
            solution.sort_by(|a, b| b.1.fract().total_cmp(&a.1.fract()).then(a.0.cmp(&b.0)));
            let whole = solution.iter().any(|&(_, amount)| amount >= WHOLE);
            let lacks = |&(column, amount): &(usize, f64)| {
                amount < WHOLE || lacks(table, &self.known[column], &left)
            };
            let is_short = whole && solution.iter().all(lacks);
            if is_short && other.is_none() && !cancelled {
                let mut dealer = dealer.clone();
                let rest = one_after_the_other(self, &mut dealer, usize::MAX, cancel);
                let all = bought.iter().cloned().chain(rest.into_iter().flatten()).collect();
                other = Some((dealer.left.iter().sum(), all));
            }
            let mut any = false;
            let best = if whole { None } else { self.loses_least(&solution, &left) };
            for (column, amount) in solution {
                if any && cancelled {
                    break;
                }
                let Known { bin, ref takes } = self.known[column];
                let takes = if is_short { &there_are(table, bin, takes, &left) } else { takes };
                let wanted = if whole {
                    (amount + 1e-6).floor() as usize
                } else {
                    usize::from(best == Some(column))
                };
                let most = takes.iter().map(|&(cluster, n)| left.pods[cluster] / n).min();
                let mut missing = most.unwrap_or(0).min(wanted);
                while missing > 0 {
                    let (takes, machines) = dealer.deal(bin, takes, missing.div_ceil(2));
                    if takes.is_empty() {
                        break;
                    }
                    missing -= machines;
                    any = true;
                    bought.push(Bought { bin, takes, machines });
                }
                left = dealer.rest();
            }
            if !any {
                break;
            }
            let shorter = shorten(table, &mut self.master, &self.known, &left);
            self.known.extend(shorter);
            self.master.set_demand(&left.demand());
            self.generate(&left, self.care.rounds, cancel);
        }
        // What is left when the work is done is filled by what pods are worth.
        if !cancelled {
            let rest = one_after_the_other(self, dealer, usize::MAX, cancel);
            bought.extend(rest.into_iter().flatten());
        }
        let price = |bought: &[Bought]| -> f64 {
            bought.iter().map(|it| table.bins[it.bin].price * it.machines as f64).sum()
        };
        let waiting: usize = dealer.left.iter().sum();
        match other {
            Some((left, other)) if (left, price(&other)) < (waiting, price(&bought)) => other,
            _ => bought,
        }
    }

    /// Of the loads that are bought in parts the one after which all together cost least.
    fn loses_least(&mut self, solution: &[(usize, f64)], left: &Left) -> Option<usize> {
        let table = self.table;
        let mut best: Option<(f64, usize)> = None;
        let there = |&&(column, _): &&(usize, f64)| !lacks(table, &self.known[column], left);
        for &(column, _) in solution.iter().filter(there).take(TRIED) {
            let Known { bin, takes } = &self.known[column];
            let mut after = left.clone();
            for &(cluster, n) in takes {
                after.pods[cluster] -= n;
                if let Some(limit) = table.limit(cluster, *bin) {
                    after.places[limit] -= n;
                }
            }
            let mut master = self.master.clone();
            shorten(table, &mut master, &self.known, &after);
            master.set_demand(&after.demand());
            let own = table.bins[*bin].price;
            let price = (own + master.price() - self.master.price()) / own;
            self.master.charge(usize::try_from(self.master.work() - master.work()).unwrap_or(0));
            if best.is_none_or(|(least, _)| price < least) {
                best = Some((price, column));
            }
        }
        best.map(|(_, column)| column)
    }
}

/// The pods of a load that are left, and have places.
fn there_are(table: &Table, bin: usize, takes: &Takes, left: &Left) -> Takes {
    let mut places: SmallVec<[(usize, usize); 2]> = SmallVec::new();
    let some = |&(cluster, n): &(usize, usize)| {
        let mut n = n.min(left.pods[cluster]);
        if let Some(limit) = table.limit(cluster, bin) {
            let at = places.iter().position(|&(known, _)| known == limit).unwrap_or_else(|| {
                places.push((limit, left.places[limit]));
                places.len() - 1
            });
            n = n.min(places[at].1);
            places[at].1 -= n;
        }
        (n > 0).then_some((cluster, n))
    };
    takes.iter().filter_map(some).collect()
}

/// Whether pods of a load are not left, or have no places.
fn lacks(table: &Table, known: &Known, left: &Left) -> bool {
    there_are(table, known.bin, &known.takes, left) != known.takes
}

/// Closes the loads for which there are too few pods left. Those that are bought are offered
/// without the pods that there are no more; returns these.
fn shorten(table: &Table, master: &mut Master, known: &[Known], left: &Left) -> Vec<Known> {
    let mut shorter = Vec::new();
    for (column, _) in master.bought().filter(|&(column, _)| lacks(table, &known[column], left)) {
        let Known { bin, ref takes } = known[column];
        let takes = there_are(table, bin, takes, left);
        if !takes.is_empty() {
            shorter.push((column, Known { bin, takes }));
        }
    }
    for (column, _) in known.iter().enumerate().filter(|(_, known)| lacks(table, known, left)) {
        master.close(column);
    }
    for (column, known) in &shorter {
        master.offer(master.price_of(*column), table.entries(known.bin, &known.takes));
    }
    shorter.into_iter().map(|(_, known)| known).collect()
}
