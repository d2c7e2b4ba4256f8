//! The bound with more in a price than processors and memory.
//!
//! Of some things a machine has one, whatever its size: a place for one of the pods that keep off
//! each other's hosts ([`super::hosts`]), and what whole pods count ([`super::whole`]). A type's
//! price can be split among these, its processors and its memory; a pod then costs on a type its
//! shares of all of them, and for any splits the sum of what pods cost where they are cheapest is
//! still a lower bound: what pods that share a machine cost is at most its price, since they use no
//! more than it has of anything.
//!
//! The splits are improved by steps that grow the part of what is used up most, starting from the
//! best splits between processors and memory. Pods that are dealt out among zones follow the prices
//! meanwhile.

use std::collections::BTreeMap;

use super::hosts::Places;
use super::whole::{COUNTS, Over, counted, counts};
use crate::dual::{Deals, Item, Kind, Values};

/// How often splits are improved.
const ROUNDS: u32 = 600;

/// What part of a price everything but processors and memory gets at first, together.
const FIRST_PART: f64 = 0.1;

/// What part of the pods that are dealt out among zones moves in a round to where they are
/// cheapest.
const FOLLOWING: f64 = 0.05;

/// Processors and memory, then what pods count of each.
const PLACES: usize = 2 + 2 * COUNTS;

/// How prices are split, and what that proves.
#[derive(Clone, Debug)]
pub(super) struct Splits {
    pub(super) bound: f64,
    parts: Vec<Vec<f64>>,
    over: Vec<Over>,
}

impl Splits {
    /// What pods that share so much room cost at most on a type.
    pub(super) fn worth(&self, kinds: &[Kind], kind: usize, room: [f64; 2]) -> f64 {
        let Kind { room: all, price } = kinds[kind];
        let (parts, over) = (&self.parts[kind], self.over[kind]);
        let places: f64 = parts[PLACES..].iter().sum();
        let taken: f64 = taken(over, room, all).map(|(part, share)| parts[part] * share).sum();
        price * (taken + places)
    }
}

/// What a request takes of a machine with so much room, but for places, as far as it does.
fn taken(over: Over, request: [f64; 2], room: [f64; 2]) -> impl Iterator<Item = (usize, f64)> {
    let shares = [0, 1].into_iter().map(move |at| (at, request[at] / room[at]));
    let counts = (0..2 * COUNTS).map(move |index| {
        let (at, which) = (index / COUNTS, index % COUNTS);
        (2 + index, counted(over[at][which], request[at], room[at]))
    });
    shares.chain(counts).filter(|&(_, share)| share > 0.0)
}

/// How many steps [`improve`] takes, from how many there are in a round over the items, of which
/// some are alike: costs are worked out, and parts moved.
pub(super) fn steps(per_round: usize, kinds: usize, places: &Places) -> usize {
    let parts = kinds.saturating_mul(PLACES + places.groups);
    (ROUNDS as usize).saturating_mul(per_round.saturating_mul(4).saturating_add(parts))
}

/// The best bound that is found, and the splits that prove it.
pub(super) fn improve(
    kinds: &[Kind],
    items: &[Item],
    places: &Places,
    start: &Values,
    deals: &Deals,
) -> Splits {
    let over = counts(kinds, items);
    let n_parts = PLACES + places.groups;
    let alike = Alike::new(kinds, items, places, &over);
    let mut splits = first(start, &over, places.groups);
    let mut best = (f64::NEG_INFINITY, Vec::new());
    let mut used = vec![0.0; kinds.len() * n_parts];
    let mut items = items.to_vec();
    let mut costs = vec![0.0; items.len()];
    let mut of_pairs = Vec::new();
    for round in 0..=ROUNDS {
        let done = f64::from(round) / f64::from(ROUNDS);
        let tolerance = 0.05 * (1.0 - done).powi(2) + 0.000_5;
        let step = 0.3 * (1.0 - done).powi(2) + 0.002;
        used.fill(0.0);
        let mut pods = vec![0.0; alike.classes.len()];
        for (item, &class) in items.iter().zip(&alike.class_of) {
            pods[class] += item.pods;
        }
        let mut by_class = vec![0.0; alike.classes.len()];
        for (class, pairs) in alike.classes.iter().enumerate() {
            of_pairs.clear();
            of_pairs.extend(pairs.iter().map(|pair| {
                let parts = &splits[pair.kind * n_parts..];
                let takes = &alike.takes[pair.takes.clone()];
                let cost: f64 = takes.iter().map(|&(part, share)| parts[part] * share).sum();
                kinds[pair.kind].price * cost
            }));
            let cheapest = of_pairs.iter().copied().fold(f64::INFINITY, f64::min);
            let cheapest = cheapest.max(f64::MIN_POSITIVE);
            by_class[class] = cheapest;
            for (pair, cost) in pairs.iter().zip(&of_pairs) {
                let gap = (cost / cheapest - 1.0) / tolerance;
                let near = pods[class] / (1.0 + gap * gap);
                let used = &mut used[pair.kind * n_parts..];
                for &(part, share) in &alike.takes[pair.takes.clone()] {
                    used[part] += near * share;
                }
            }
        }
        for (cost, &class) in costs.iter_mut().zip(&alike.class_of) {
            *cost = by_class[class];
        }
        let bound = deals.total(&items, &costs);
        if bound > best.0 {
            best = (bound, splits.clone());
        }
        deals.follow(&mut items, &costs, FOLLOWING);
        for (parts, used) in splits.chunks_exact_mut(n_parts).zip(used.chunks_exact(n_parts)) {
            move_parts(parts, used, step);
        }
    }
    let parts = best.1.chunks_exact(n_parts).map(<[f64]>::to_vec).collect();
    Splits { bound: best.0, parts, over }
}

/// The splits to begin with, type by type.
fn first(start: &Values, over: &[Over], groups: usize) -> Vec<f64> {
    let mut splits = Vec::with_capacity(over.len() * (PLACES + groups));
    for (&split, over) in start.splits.iter().zip(over) {
        let counts = over.iter().flatten().filter(|&&over| over > 0).count();
        let others = u32::try_from(counts + groups).unwrap_or(u32::MAX);
        let most = if others == 0 { 1.0 } else { 1.0 - FIRST_PART };
        let each = FIRST_PART / f64::from(others.max(1));
        splits.extend([split * most, (1.0 - split) * most]);
        splits.extend(over.iter().flatten().map(|&over| if over > 0 { each } else { 0.0 }));
        splits.extend(std::iter::repeat_n(each, groups));
    }
    splits
}

/// Grows the parts of what is used more than the rest.
fn move_parts(parts: &mut [f64], used: &[f64], step: f64) {
    let mean: f64 = parts.iter().zip(used).map(|(part, used)| part * used).sum();
    if mean <= 0.0 {
        return;
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

/// What pods take of machines; those that take the same are worked out once.
struct Alike {
    /// By item.
    class_of: Vec<usize>,
    classes: Vec<Vec<Pair>>,
    /// Parts, and shares of them.
    takes: Vec<(usize, f64)>,
}

/// A pod on a type.
struct Pair {
    kind: usize,
    /// See [`Alike::takes`].
    takes: std::ops::Range<usize>,
}

impl Alike {
    fn new(kinds: &[Kind], items: &[Item], places: &Places, over: &[Over]) -> Self {
        let bits = |amounts: [f64; 2]| amounts.map(f64::to_bits);
        let mut alike = Self { class_of: Vec::new(), classes: Vec::new(), takes: Vec::new() };
        let mut known = BTreeMap::new();
        for (item, places) in items.iter().zip(&places.items) {
            let on_hosts: Vec<_> = places.iter().map(|&(it, by)| (it, by.to_bits())).collect();
            let class =
                *known.entry((bits(item.requests), &item.kinds, on_hosts)).or_insert_with(|| {
                    let mut pair = |&kind: &usize| {
                        let from = alike.takes.len();
                        alike.takes.extend(taken(over[kind], item.requests, kinds[kind].room));
                        let shares = places.iter().map(|&(group, share)| (PLACES + group, share));
                        alike.takes.extend(shares);
                        Pair { kind, takes: from..alike.takes.len() }
                    };
                    alike.classes.push(item.kinds.iter().map(&mut pair).collect());
                    alike.classes.len() - 1
                });
            alike.class_of.push(class);
        }
        alike
    }
}
