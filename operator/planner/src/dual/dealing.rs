//! How the pods of a spread group may be dealt out among zones.
//!
//! Every pod that a plan places finds its zone no more than the skew above the emptiest one, and
//! pods only come. So in the end each zone that got a pod has at most `m + s` pods of the group,
//! `m` being what the emptiest has then and `s` the skew; each zone has at least `m`. With `e` pods
//! there already a zone gets `max(0, m - e)` to `max(0, m + s - e)` of them, for one `m` that all
//! zones share. These are the [`Level`]s.
//!
//! What a pod costs in each zone gives the least that all of them cost: of each level the cheapest
//! zones get as many as they may. It is the smallest of linear functions, so that it is concave,
//! and as good as any mixture of ways to deal whole pods out.

use super::Item;

/// More levels than this are taken together, a few in a row: that leaves more ways to deal pods
/// out, and is a bound, too.
const LEVELS: usize = 16;

/// How many pods each zone gets at least and at most, for one number of pods in the emptiest zone.
#[derive(Clone, Debug)]
struct Level {
    least: Vec<f64>,
    most: Vec<f64>,
}

/// A zone, as one group of pods sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Zone {
    /// Pods there are this item.
    Item(usize),
    /// Pods may be there for nothing: only machines that exist take them.
    Free,
    /// No pod can be there.
    Closed,
}

/// The pods of one group.
#[derive(Clone, Debug)]
pub(crate) struct Deal {
    pods: f64,
    zones: Vec<Zone>,
    levels: Vec<Level>,
    /// Whether each level is one number of pods in the emptiest zone.
    is_exact: bool,
}

impl Deal {
    /// For zones with so many pods of the group each. `None` where the pods can't all be placed:
    /// nothing is known of where they go then.
    #[expect(clippy::cast_precision_loss, reason = "numbers of pods")]
    pub(crate) fn new(
        pods: usize,
        zones: Vec<Zone>,
        there: &[u32],
        max_skew: u32,
        is_short: bool,
    ) -> Option<Self> {
        let n = i64::try_from(pods).ok()?;
        let skew = i64::from(max_skew);
        let limits = |emptiest: i64| {
            let of = |(zone, &there): (&Zone, &u32)| {
                let there = i64::from(there);
                let most = match zone {
                    Zone::Closed => 0,
                    _ => (emptiest + skew - there).clamp(0, n),
                };
                // With fewer zones than there should be the emptiest counts as empty, and nobody
                // has to fill it.
                let least = if is_short { 0 } else { (emptiest - there).max(0) };
                (least, most)
            };
            zones.iter().zip(there).map(of).collect::<Vec<(i64, i64)>>()
        };
        let (mut levels, mut is_exact) = (Vec::new(), true);
        if is_short {
            levels.push(limits(0));
        } else {
            let most = |emptiest: i64| limits(emptiest).iter().map(|limit| limit.1).sum::<i64>();
            let least = |emptiest: i64| limits(emptiest).iter().map(|limit| limit.0).sum::<i64>();
            let lowest = i64::from(*there.iter().min()?);
            // A zone that no pod can come to stays as empty as it is.
            let closed = zones.iter().zip(there).filter(|(zone, _)| matches!(zone, Zone::Closed));
            let highest = closed.map(|(_, &there)| i64::from(there)).min().unwrap_or(lowest + n);
            let from = first(lowest, highest, |emptiest| most(emptiest) >= n);
            let until = first(lowest, highest, |emptiest| least(emptiest) > n);
            let together = usize::try_from(until - from).ok()?.div_ceil(LEVELS).max(1);
            is_exact = together == 1;
            for emptiest in (from..until).step_by(together) {
                let last = (emptiest + i64::try_from(together).ok()?).min(until) - 1;
                let limits = limits(emptiest).into_iter().zip(limits(last));
                levels.push(limits.map(|(low, high)| (low.0, high.1)).collect());
            }
        }
        levels.retain(|level| level.iter().map(|limit| limit.1).sum::<i64>() >= n);
        let level = |limits: Vec<(i64, i64)>| Level {
            least: limits.iter().map(|&(least, _)| least as f64).collect(),
            most: limits.iter().map(|&(least, most)| most.max(least) as f64).collect(),
        };
        let levels: Vec<Level> = levels.into_iter().map(level).collect();
        (!levels.is_empty()).then_some(Self { pods: pods as f64, zones, levels, is_exact })
    }

    /// The least that the pods cost when one of each item costs so much, and how many of each item
    /// there are then.
    pub(crate) fn least(&self, costs: &[f64]) -> (f64, Vec<(usize, f64)>) {
        let (least, dealt) = self.cheapest(costs);
        (least, self.by_item(&dealt))
    }

    /// The same by zone.
    fn cheapest(&self, costs: &[f64]) -> (f64, Vec<f64>) {
        let cost = |zone: usize| match self.zones[zone] {
            Zone::Item(item) => costs[item],
            Zone::Free => 0.0,
            Zone::Closed => f64::INFINITY,
        };
        let mut order: Vec<usize> = (0..self.zones.len()).collect();
        order.sort_by(|&a, &b| cost(a).total_cmp(&cost(b)).then(a.cmp(&b)));
        let mut best = (f64::INFINITY, Vec::new());
        for level in &self.levels {
            let mut dealt = level.least.clone();
            let mut left = self.pods - dealt.iter().sum::<f64>();
            for &zone in &order {
                let more = left.min(level.most[zone] - level.least[zone]);
                dealt[zone] += more;
                left -= more;
            }
            let paid = dealt.iter().enumerate().filter(|&(_, &pods)| pods > 0.0);
            let price: f64 = paid.map(|(zone, pods)| pods * cost(zone)).sum();
            if price < best.0 {
                best = (price, dealt);
            }
        }
        best
    }

    /// A way to deal the pods out, by zone, that has no more than so many in any zone; `None` if
    /// there is none.
    pub(crate) fn within(&self, most: &[f64]) -> Option<Vec<f64>> {
        self.levels.iter().find_map(|level| {
            let mut dealt = level.least.clone();
            let mut left = self.pods - dealt.iter().sum::<f64>();
            if dealt.iter().zip(most).any(|(least, most)| least > most) {
                return None;
            }
            for (dealt, (limit, most)) in dealt.iter_mut().zip(level.most.iter().zip(most)) {
                let more = left.min(limit.min(*most) - *dealt).max(0.0);
                *dealt += more;
                left -= more;
            }
            (left <= 0.0).then_some(dealt)
        })
    }

    /// Whether whole pods that some level allows keep the rule: none was taken together with
    /// others.
    pub(crate) fn is_exact(&self) -> bool {
        self.is_exact
    }

    /// The number of pods that a zone may have besides those that zones hold already.
    pub(crate) fn more_in(&self, zone: usize, held: &[f64]) -> f64 {
        let more = |level: &Level| {
            let each = level.least.iter().zip(&level.most).zip(held).enumerate();
            let others = each.filter(|&(other, _)| other != zone);
            let others: f64 =
                others.map(|(_, ((least, most), held))| held.min(*most).max(*least)).sum();
            level.most[zone].min(self.pods - others) - held[zone]
        };
        self.levels.iter().map(more).fold(0.0, f64::max)
    }

    /// The number of all pods.
    pub(crate) fn pods(&self) -> f64 {
        self.pods
    }

    /// The items that the group's pods may be.
    pub(super) fn items(&self) -> impl Iterator<Item = usize> {
        self.zones.iter().filter_map(|zone| match zone {
            Zone::Item(item) => Some(*item),
            _ => None,
        })
    }

    /// Pods dealt out as evenly as one of the levels lets them be.
    fn evenly(&self) -> Vec<f64> {
        let level = &self.levels[self.levels.len() / 2];
        let [least, most]: [f64; 2] = [&level.least, &level.most].map(|all| all.iter().sum());
        let share = if most > least { (self.pods - least) / (most - least) } else { 0.0 };
        level.least.iter().zip(&level.most).map(|(low, high)| low + share * (high - low)).collect()
    }

    /// Moves the items' pods a part of the way to other numbers by zone.
    fn shift(&self, items: &mut [Item], dealt: &[f64], part: f64) {
        for (item, pods) in self.by_item(dealt) {
            items[item].pods += part * (pods - items[item].pods);
        }
    }

    /// Numbers of pods by zone as numbers of items: zones with the same prices are one item.
    fn by_item(&self, dealt: &[f64]) -> Vec<(usize, f64)> {
        let mut by_item: Vec<(usize, f64)> = Vec::with_capacity(dealt.len());
        for (zone, pods) in self.zones.iter().zip(dealt) {
            let Zone::Item(item) = *zone else { continue };
            match by_item.iter_mut().find(|(known, _)| *known == item) {
                Some((_, all)) => *all += pods,
                None => by_item.push((item, *pods)),
            }
        }
        by_item
    }
}

/// The first number from `from` up to `until` for which something holds that goes on holding; the
/// one after `until` when it never does.
fn first(from: i64, until: i64, holds: impl Fn(i64) -> bool) -> i64 {
    let (mut low, mut high) = (from, until + 1);
    while low < high {
        let middle = low + (high - low) / 2;
        if holds(middle) { high = middle } else { low = middle + 1 }
    }
    low
}

/// All groups whose pods are dealt out.
#[derive(Clone, Debug, Default)]
pub(crate) struct Deals {
    list: Vec<Deal>,
    /// By item: whether it is what pods of a group are in a zone.
    is_dealt: Vec<bool>,
}

impl Deals {
    pub(crate) fn new(list: Vec<Deal>, items: usize) -> Self {
        let mut is_dealt = vec![false; items];
        for zone in list.iter().flat_map(|deal| &deal.zones) {
            if let Zone::Item(item) = zone {
                is_dealt[*item] = true;
            }
        }
        Self { list, is_dealt }
    }

    pub(super) fn iter(&self) -> std::slice::Iter<'_, Deal> {
        self.list.iter()
    }

    pub(crate) fn is_dealt(&self, item: usize) -> bool {
        self.is_dealt.get(item).copied().unwrap_or(false)
    }

    /// The least that all pods cost when one of each item costs so much.
    pub(crate) fn total(&self, items: &[Item], costs: &[f64]) -> f64 {
        let free = items.iter().zip(costs).enumerate().filter(|&(item, _)| !self.is_dealt(item));
        let free: f64 = free.map(|(_, (item, cost))| item.pods * cost).sum();
        free + self.list.iter().map(|deal| deal.cheapest(costs).0).sum::<f64>()
    }

    /// Deals all pods out as evenly as they may be.
    pub(crate) fn begin(&self, items: &mut [Item]) {
        for deal in &self.list {
            deal.shift(items, &deal.evenly(), 1.0);
        }
    }

    /// Moves pods a part of the way to where they are cheapest.
    pub(crate) fn follow(&self, items: &mut [Item], costs: &[f64], part: f64) {
        for deal in &self.list {
            deal.shift(items, &deal.cheapest(costs).1, part);
        }
    }
}
