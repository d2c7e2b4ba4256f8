//! From a solution that buys parts of machines to whole ones: as many of each load as it buys,
//! rounded down; then, where that is none, one of those that it nearly buys.
//!
//! The pods that a load is dealt differ from the average of their clusters, so in the end there may
//! be none of the whole loads for which all pods are left. Either the rest is then bought one after
//! the other, or these loads are bought without the pods that they lack. Which is cheaper depends
//! on what comes after: both are done, and the cheaper is taken.

use super::super::knapsack::Takes;
use super::dealing::Dealer;
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
        let mut left = table.by_cluster(&dealer.left);
        let mut bought: Vec<Bought> = Vec::new();
        // Where the rest is bought one after the other, and the pods that this leaves.
        let mut other: Option<(usize, Vec<Bought>)> = None;
        // Even a pass that is cut short buys something, so that the next one has less to do.
        let mut cancelled = false;
        while left.iter().any(|&pods| pods > 0) && self.master.work() > 0 && !cancelled {
            cancelled = cancel.is_cancelled();
            let mut solution: Vec<(usize, f64)> = self.master.bought().collect();
            solution.sort_by(|a, b| b.1.fract().total_cmp(&a.1.fract()).then(a.0.cmp(&b.0)));
            let whole = solution.iter().any(|&(_, amount)| amount >= WHOLE);
            let lacks = |&(column, amount): &(usize, f64)| {
                amount < WHOLE
                    || there_are(&self.known[column].takes, &left) != self.known[column].takes
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
                let takes = if is_short { &there_are(takes, &left) } else { takes };
                let wanted = if whole {
                    (amount + 1e-6).floor() as usize
                } else {
                    usize::from(best == Some(column))
                };
                let most = takes.iter().map(|&(cluster, n)| left[cluster] / n).min().unwrap_or(0);
                let mut missing = most.min(wanted);
                while missing > 0 {
                    let (takes, machines) = dealer.deal(bin, takes, missing.div_ceil(2));
                    if takes.is_empty() {
                        break;
                    }
                    missing -= machines;
                    any = true;
                    bought.push(Bought { bin, takes, machines });
                }
                left = table.by_cluster(&dealer.left);
            }
            if !any {
                break;
            }
            let shorter = shorten(&mut self.master, &self.known, &left);
            self.known.extend(shorter);
            let demand: Vec<f64> = left.iter().map(|&pods| pods as f64).collect();
            self.master.set_demand(&demand);
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
    #[expect(clippy::cast_precision_loss, reason = "amounts of pods")]
    fn loses_least(&mut self, solution: &[(usize, f64)], left: &[usize]) -> Option<usize> {
        let mut best: Option<(f64, usize)> = None;
        let there = |&&(column, _): &&(usize, f64)| {
            self.known[column].takes.iter().all(|&(cluster, n)| n <= left[cluster])
        };
        for &(column, _) in solution.iter().filter(there).take(TRIED) {
            let Known { bin, takes } = &self.known[column];
            let mut after = left.to_vec();
            takes.iter().for_each(|&(cluster, n)| after[cluster] -= n);
            let mut master = self.master.clone();
            shorten(&mut master, &self.known, &after);
            let demand: Vec<f64> = after.iter().map(|&pods| pods as f64).collect();
            master.set_demand(&demand);
            let own = self.table.bins[*bin].price;
            let price = (own + master.price() - self.master.price()) / own;
            self.master.charge(usize::try_from(self.master.work() - master.work()).unwrap_or(0));
            if best.is_none_or(|(least, _)| price < least) {
                best = Some((price, column));
            }
        }
        best.map(|(_, column)| column)
    }
}

/// The pods of a load that are left.
fn there_are(takes: &Takes, left: &[usize]) -> Takes {
    let takes = takes.iter().map(|&(cluster, n)| (cluster, n.min(left[cluster])));
    takes.filter(|&(_, n)| n > 0).collect()
}

/// Closes the loads for which there are too few pods left. Those that are bought are offered
/// without the pods that there are no more; returns these.
#[expect(clippy::cast_precision_loss, reason = "amounts of pods")]
fn shorten(master: &mut Master, known: &[Known], left: &[usize]) -> Vec<Known> {
    let too_few = |known: &Known| known.takes.iter().any(|&(cluster, n)| n > left[cluster]);
    let mut shorter = Vec::new();
    for (column, _) in master.bought().filter(|&(column, _)| too_few(&known[column])) {
        let Known { bin, ref takes } = known[column];
        let takes = there_are(takes, left);
        if !takes.is_empty() {
            shorter.push((column, Known { bin, takes }));
        }
    }
    for (column, _) in known.iter().enumerate().filter(|(_, known)| too_few(known)) {
        master.close(column);
    }
    for (column, known) in &shorter {
        let holds = known.takes.iter().map(|&(cluster, n)| (cluster, n as f64));
        master.offer(master.price_of(*column), holds);
    }
    shorter.into_iter().map(|(_, known)| known).collect()
}
