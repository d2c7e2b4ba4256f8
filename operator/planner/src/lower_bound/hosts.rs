//! The bound where hosts hold only so many pods of a group.
//!
//! Of pods that keep off each other's hosts every machine has one place, like a resource of which
//! it has one unit. So a type's price can be split among processors, memory and such places; a pod
//! then costs on a type its shares of all three, and for any splits the sum of what pods cost where
//! they are cheapest is still a lower bound: what pods that share a machine cost is at most its
//! price, since they use no more than it has of anything.
//!
//! The splits are improved by steps that grow the part of what is used up most, starting from the
//! best splits without places. Pods that are dealt out among zones follow the prices meanwhile.

use crate::compile::Problem;
use crate::dual::{Deals, Item, Kind, Values};

/// So many groups are looked at, those with the most pods.
const GROUPS: usize = 64;

/// How often splits are improved.
const ROUNDS: u32 = 600;

/// What part of a price places get at first, together.
const FIRST_PART: f64 = 0.02;

/// What part of the pods that are dealt out among zones moves in a round to where they are
/// cheapest.
const FOLLOWING: f64 = 0.05;

/// The places that pods take on hosts.
#[derive(Debug)]
pub(super) struct Places {
    /// By item: groups, and what part of a host's places one pod takes.
    items: Vec<Vec<(usize, f64)>>,
    groups: usize,
}

impl Places {
    /// The places that the items' pods take, item by item in the order of `shapes`.
    pub(super) fn of(problem: &Problem<'_>, shapes: &[usize], items: &[Item]) -> Self {
        let limits: Vec<_> =
            shapes.iter().map(|&shape| problem.rules.limits_on_hosts(shape)).collect();
        let mut pods = std::collections::BTreeMap::new();
        for (limits, item) in limits.iter().zip(items) {
            for &(group, most) in limits {
                *pods.entry(group).or_insert(0.0) += item.pods / most;
            }
        }
        let mut ranked: Vec<(usize, f64)> = pods.into_iter().collect();
        ranked.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        ranked.truncate(GROUPS);
        let known = |group: usize| ranked.iter().position(|&(it, _)| it == group);
        let taken = |limits: Vec<(usize, f64)>| {
            let known = limits.iter().filter_map(|&(it, most)| Some((known(it)?, 1.0 / most)));
            known.collect()
        };
        Self { items: limits.into_iter().map(taken).collect(), groups: ranked.len() }
    }

    /// How many steps improving the bound takes, with so many of them in a round without places:
    /// costs are worked out twice, and parts moved.
    pub(super) fn steps(&self, per_round: usize, kinds: usize) -> usize {
        let parts = kinds.saturating_mul(2 + self.groups);
        (ROUNDS as usize).saturating_mul(per_round.saturating_mul(2).saturating_add(parts))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.groups == 0
    }
}

/// The best bound that is found with places, and by type the splits that prove it: processors,
/// memory, then each group's places.
pub(super) fn improve(
    kinds: &[Kind],
    items: &[Item],
    places: &Places,
    start: &Values,
    deals: &Deals,
) -> (f64, Vec<Vec<f64>>) {
    let first = FIRST_PART / f64::from(u32::try_from(places.groups).unwrap_or(u32::MAX));
    let mut splits: Vec<Vec<f64>> = start
        .splits
        .iter()
        .map(|&split| {
            let mut parts = vec![first; 2 + places.groups];
            parts[0] = split * (1.0 - FIRST_PART);
            parts[1] = (1.0 - split) * (1.0 - FIRST_PART);
            parts
        })
        .collect();
    let shares = Shares::new(kinds, items, places);
    let mut best = (f64::NEG_INFINITY, Vec::new());
    let mut used = vec![vec![0.0; 2 + places.groups]; kinds.len()];
    let mut items = items.to_vec();
    let mut costs = vec![0.0; items.len()];
    for round in 0..=ROUNDS {
        let done = f64::from(round) / f64::from(ROUNDS);
        let tolerance = 0.05 * (1.0 - done).powi(2) + 0.000_5;
        let step = 0.3 * (1.0 - done).powi(2) + 0.002;
        for used in &mut used {
            used.fill(0.0);
        }
        for (index, item) in items.iter().enumerate() {
            let cost = |kind: usize| shares.cost(index, kind, &splits[kind]);
            let cheapest = item.kinds.iter().map(|&kind| cost(kind)).fold(f64::INFINITY, f64::min);
            let cheapest = cheapest.max(f64::MIN_POSITIVE);
            costs[index] = cheapest;
            for &kind in &item.kinds {
                let gap = (cost(kind) / cheapest - 1.0) / tolerance;
                let near = item.pods / (1.0 + gap * gap);
                shares.add(index, kind, near, &mut used[kind]);
            }
        }
        let bound = deals.total(&items, &costs);
        if bound > best.0 {
            best = (bound, splits.clone());
        }
        deals.follow(&mut items, &costs, FOLLOWING);
        for (parts, used) in splits.iter_mut().zip(&used) {
            let mean: f64 = parts.iter().zip(used).map(|(part, used)| part * used).sum();
            if mean <= 0.0 {
                continue;
            }
            for (part, used) in parts.iter_mut().zip(used) {
                // What nothing is paid for now may be scarce later.
                *part = (*part * (step * (used / mean - 1.0).min(4.0)).exp()).max(1e-9);
            }
            let sum: f64 = parts.iter().sum();
            for part in parts.iter_mut() {
                *part /= sum;
            }
        }
    }
    best
}

/// What pods take of machines.
struct Shares<'a> {
    kinds: &'a [Kind],
    items: &'a [Item],
    places: &'a Places,
}

impl<'a> Shares<'a> {
    fn new(kinds: &'a [Kind], items: &'a [Item], places: &'a Places) -> Self {
        Self { kinds, items, places }
    }

    fn of(&self, item: usize, kind: usize) -> [f64; 2] {
        [0, 1].map(|at| self.items[item].requests[at] / self.kinds[kind].room[at])
    }

    /// What a pod costs on a type.
    fn cost(&self, item: usize, kind: usize, parts: &[f64]) -> f64 {
        let [cpu, memory] = self.of(item, kind);
        let places = self.places.items[item].iter().map(|&(group, share)| parts[2 + group] * share);
        self.kinds[kind].price * (parts[0] * cpu + parts[1] * memory + places.sum::<f64>())
    }

    /// Adds what so many pods take.
    fn add(&self, item: usize, kind: usize, pods: f64, used: &mut [f64]) {
        let [cpu, memory] = self.of(item, kind);
        used[0] += pods * cpu;
        used[1] += pods * memory;
        for &(group, share) in &self.places.items[item] {
            used[2 + group] += pods * share;
        }
    }
}
