//! Which machines to buy: column generation, then a dive.
//!
//! The covering problem ([`Master`](crate::dual::Master)) has one row for each row of the model.
//! Pods that are spread ask for nothing there by themselves: one more row for each such shape asks
//! for one way to deal its pods out, and a column that is such a way asks for the pods in the
//! zones' rows. Loads and ways to deal pods out are added as long as they make what is bought
//! cheaper.
//!
//! What is bought then are fractions. A dive buys one machine of the load after which the rest is
//! cheapest, lets the problem adapt what is left to it, and goes on until all pods are held. It is
//! given up as soon as it can't become cheaper than the best plan so far; then the search goes back
//! to what seemed nearly as good, wherever that was. Loads of more pods than a zone may still get
//! are given up on the way: the problem would buy parts of them.

use std::rc::Rc;

use super::super::knapsack::Takes;
use super::market::{Loads, Market, whole};
use super::model::{Machine, Model, Places};
use crate::Cancel;

/// The share of the price that must be there to gain for a search to be worth it.
const WORTH_IT: f64 = 2e-3;

/// The limit on purchases that are tried.
const NODES: usize = 48;

/// Machines that hold all pods for less than the current ones, if any were found.
pub(super) fn cheapest(
    model: &Model,
    current: &[Machine],
    cancel: &dyn Cancel,
) -> Option<Vec<Machine>> {
    let paid: f64 = current.iter().map(|machine| model.bins[machine.bin].price).sum();
    let mut market = Market::new(model, current);
    market.begin(cancel);
    dive(market, paid, cancel)
}

/// What else could have been bought.
struct Alternative<'m> {
    /// What all pods cost at least then.
    least: f64,
    market: Rc<Market<'m>>,
    loads: Loads,
}

/// Buys whole machines until all pods are held, and goes back to what else seemed good, for less
/// than a limit.
fn dive(root: Market<'_>, mut limit: f64, cancel: &dyn Cancel) -> Option<Vec<Machine>> {
    let mut best = None;
    let mut open: Vec<Alternative<'_>> = Vec::new();
    let mut next = Some(root);
    for _ in 0..NODES {
        let market = match next.take() {
            Some(market) => market,
            None => {
                open.retain(|it| it.least < limit * (1.0 - WORTH_IT));
                let at = (0..open.len()).min_by(|&a, &b| open[a].least.total_cmp(&open[b].least));
                let Some(at) = at else { break };
                let Alternative { market, loads, .. } = open.swap_remove(at);
                market.after(&loads, cancel)
            }
        };
        if cancel.is_cancelled() {
            break;
        }
        if market.least() >= limit * (1.0 - WORTH_IT) {
            continue;
        }
        if let Some(machines) = complete(&market) {
            let price: f64 =
                machines.iter().map(|machine| market.model.bins[machine.bin].price).sum();
            if price < limit {
                (limit, best) = (price, Some(machines));
            }
            continue;
        }
        let market = Rc::new(market);
        let mut purchases = market.purchases().into_iter();
        if let Some((_, loads)) = purchases.next() {
            next = Some(market.after(&loads, cancel));
        }
        let other = |(least, loads)| Alternative { least, market: Rc::clone(&market), loads };
        open.extend(purchases.map(other));
    }
    best
}

/// The machines with pods, if they hold all; places that nobody needs are given up, so that
/// machines may be smaller.
fn complete(market: &Market<'_>) -> Option<Vec<Machine>> {
    let model = market.model;
    let mut surplus = market.covered.clone();
    for places in &model.places {
        match places {
            Places::Free { row, pods } => {
                surplus[*row] = surplus[*row].checked_sub(*pods)?;
            }
            Places::Spread { rows, deal } => {
                for (row, pods) in rows.iter().zip(deal.within(&market.held(rows))?) {
                    if let Some(row) = *row {
                        surplus[row] = surplus[row].checked_sub(whole(pods))?;
                    }
                }
            }
        }
    }
    let mut machines = market.bought.clone();
    for (row, &surplus) in surplus.iter().enumerate() {
        for _ in 0..surplus {
            leave_out(model, &mut machines, row)?;
        }
    }
    machines.retain(|machine| !machine.takes.is_empty());
    for machine in &mut machines {
        machine.bin = model.cheapest(machine.bin, &machine.takes);
    }
    Some(machines)
}

/// Takes a pod of a row off the machine where that saves most.
fn leave_out(model: &Model, machines: &mut [Machine], row: usize) -> Option<()> {
    let without = |machine: &Machine| -> Option<Takes> {
        let mut takes = machine.takes.clone();
        let at = takes.iter().position(|&(it, _)| it == row)?;
        takes[at].1 -= 1;
        takes.retain(|(_, n)| *n > 0);
        Some(takes)
    };
    let saved = |machine: &Machine, takes: &Takes| {
        let now = model.bins[model.cheapest(machine.bin, &machine.takes)].price;
        if takes.is_empty() {
            now
        } else {
            now - model.bins[model.cheapest(machine.bin, takes)].price
        }
    };
    let (_, at, takes) = machines
        .iter()
        .enumerate()
        .filter_map(|(at, machine)| {
            let takes = without(machine)?;
            Some((saved(machine, &takes), at, takes))
        })
        .max_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)))?;
    machines[at].takes = takes;
    Some(())
}
