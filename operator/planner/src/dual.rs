//! What places are worth: dual prices of the linear relaxation of packing.
//!
//! The relaxation lets a shape's pods be cut into pieces and machines be bought in parts: buy parts
//! `n_k` of types at price `c_k`, so that the pieces on a type need no more processors and memory
//! than `n_k` machines have. Its dual gives every type a split of its price between processors and
//! memory, `θ` and `1 - θ`; a pod then costs on that type `c_k (θ cpu / cpu_k + (1 - θ) memory /
//! memory_k)`, and it is worth what it costs where it is cheapest. For any splits the sum of these
//! values over all pods is a lower bound of what any plan costs, whatever other resources and rules
//! ask for; the best splits give the bound of the relaxation.
//!
//! [`exact`](mod@exact) finds the best splits. [`improve`] improves given ones by steps along a
//! smoothed gradient, for which the sum is concave; that is all it takes when a few pods fewer are
//! left, but it may get stuck far from the best. Its work is proportional to rounds × shapes ×
//! types.

mod dealing;
mod exact;
mod master;
mod units;

pub(crate) use dealing::{Deal, Deals, Zone};
pub(crate) use exact::{exact, worthy};
pub(crate) use master::Master;
pub(crate) use units::Units;

/// A type of machine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kind {
    /// Processors and memory for pods.
    pub(crate) room: [f64; 2],
    pub(crate) price: f64,
}

impl Kind {
    /// A machine with a price and, by column, the amounts that it has for pods.
    #[expect(clippy::cast_precision_loss, reason = "a ratio")]
    pub(crate) fn new(net: &[i64], price: i64) -> Self {
        let room = [net[0], net[1]].map(|amount| amount.max(1) as f64);
        Self { room, price: price as f64 }
    }
}

/// Pods of one shape.
#[derive(Clone, Debug)]
pub(crate) struct Item {
    /// How many.
    pub(crate) pods: f64,
    /// Processors and memory.
    pub(crate) requests: [f64; 2],
    /// The types that hold one, by index.
    pub(crate) kinds: Vec<usize>,
}

impl Item {
    /// So many pods with the same requests, by column, and the types that hold one.
    #[expect(clippy::cast_precision_loss, reason = "a ratio")]
    pub(crate) fn new(pods: usize, requests: &[i64], kinds: Vec<usize>) -> Self {
        let requests = [requests[0], requests[1]].map(|amount| amount as f64);
        Self { pods: pods as f64, requests, kinds }
    }
}

/// What places are worth.
#[derive(Clone, Debug)]
pub(crate) struct Values {
    /// By item; in the unit of the prices.
    pub(crate) items: Vec<f64>,
    /// By type: the share of its price that its processors cost.
    pub(crate) splits: Vec<f64>,
    /// The sum over all pods: no plan is cheaper.
    pub(crate) bound: f64,
}

/// The values after so many rounds, from given splits. The fewer the rounds, the smaller the steps.
pub(crate) fn improve(
    kinds: &[Kind],
    items: &[Item],
    deals: &Deals,
    mut splits: Vec<f64>,
    rounds: u32,
) -> Values {
    let first_step = if rounds < 100 { 0.08 } else { 0.25 };
    let mut best = evaluate(kinds, items, deals, splits.clone());
    let (mut pull, mut weight) = (vec![0.0; kinds.len()], vec![0.0; kinds.len()]);
    for round in 0..rounds {
        let done = f64::from(round) / f64::from(rounds);
        let step = first_step * (1.0 - done).powi(2) + 0.001;
        let tolerance = 0.05 * (1.0 - done).powi(2) + 0.000_5;
        pull.fill(0.0);
        weight.fill(0.0);
        for item in items {
            let cheapest = cheapest(kinds, item, &splits);
            for &index in &item.kinds {
                let [cpu, memory] = shares(&kinds[index], item);
                let cost = splits[index] * cpu + (1.0 - splits[index]) * memory;
                let gap = (cost / cheapest - 1.0) / tolerance;
                let near = item.pods / (1.0 + gap * gap);
                pull[index] += near * (cpu - memory);
                weight[index] += near * (cpu + memory);
            }
        }
        for index in 0..kinds.len() {
            if weight[index] > 0.0 {
                let moved = splits[index] + step * pull[index] / weight[index];
                splits[index] = moved.clamp(0.0, 1.0);
            }
        }
        let values = evaluate(kinds, items, deals, splits.clone());
        if values.bound > best.bound {
            best = values;
        }
    }
    best
}

/// What splits prove.
pub(crate) fn evaluate(kinds: &[Kind], items: &[Item], deals: &Deals, splits: Vec<f64>) -> Values {
    let values: Vec<f64> = items.iter().map(|item| cheapest(kinds, item, &splits)).collect();
    let bound = deals.total(items, &values);
    Values { items: values, splits, bound }
}

/// What a pod costs where it is cheapest.
fn cheapest(kinds: &[Kind], item: &Item, splits: &[f64]) -> f64 {
    let cost = |&index: &usize| {
        let [cpu, memory] = shares(&kinds[index], item);
        splits[index] * cpu + (1.0 - splits[index]) * memory
    };
    item.kinds.iter().map(cost).fold(f64::INFINITY, f64::min)
}

/// What a pod takes of a machine's price by processors and by memory.
fn shares(kind: &Kind, item: &Item) -> [f64; 2] {
    [0, 1].map(|at| kind.price * item.requests[at] / kind.room[at])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_bound_of_a_relaxation_that_is_known() {
        // Processors cost 1 each on the first type, memory 1 each on the second; each type has one
        // of the other for free.
        let kinds =
            [Kind { room: [10.0, 1.0], price: 10.0 }, Kind { room: [1.0, 10.0], price: 10.0 }];
        let item = |requests| Item { pods: 100.0, requests, kinds: vec![0, 1] };
        // Alone: 100 × 1 processors, 100 × 0.1 memory fit the first type exactly.
        let alone = exact(&kinds, &[item([1.0, 0.1])], &Deals::default(), u64::MAX);
        assert!((alone.bound - 100.0).abs() < 0.1, "{}", alone.bound);
        // Both fit their own types exactly.
        let both =
            exact(&kinds, &[item([1.0, 0.1]), item([0.1, 1.0])], &Deals::default(), u64::MAX);
        assert!((both.bound - 200.0).abs() < 0.2, "{}", both.bound);
        // A pod that needs half a unit of each pays for the scarce one wherever it is.
        let mixed = exact(&kinds, &[item([0.55, 0.55])], &Deals::default(), u64::MAX);
        assert!((mixed.bound - 550.0).abs() < 0.6, "{}", mixed.bound);
    }
}
