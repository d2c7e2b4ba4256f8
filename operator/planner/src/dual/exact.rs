//! The best splits, by generating columns: which two kinds of pods fill a machine of a type
//! exactly.
//!
//! The relaxation as a covering problem ([`Master`]) has a column for every type and every pair of
//! pods that together use up its processors and memory; loads of more kinds of pods are mixtures of
//! these. The best column of a type at given values is found by [`Units`], which also tells the
//! split that proves that there is none better. So the problem ends with splits that prove its
//! optimum.
//!
//! Pods that are dealt out among zones ([`Deals`]) have a row for each zone and one for all of them
//! together. The first ones ask for nothing by themselves; a column for each way to deal the pods
//! out, found at the values of the zones, gives the last one what it asks for and asks the others
//! for the pods.

use std::collections::BTreeMap;

use super::dealing::Deals;
use super::master::Master;
use super::units::Units;
use super::{Item, Kind, Values, evaluate, improve};

/// With more rows than this pods whose requests have nearly the same proportion are one row: the
/// work of a step is the square of the rows.
const ROWS: usize = 500;

/// How far the bound may be from the optimum: by less than this share of it.
const CLOSE: f64 = 5e-4;

/// How often splits are improved afterwards where pods were taken together.
const AFTERWARDS: u32 = 300;

/// What a way to deal pods out costs by itself, as a share of what the pods cost alone: prices tell
/// how much a column is worth looking at.
const DEALT: f64 = 0.1;

/// Pods that are alike.
struct Row<'i> {
    pods: f64,
    /// Those of them that are not dealt out.
    asked: f64,
    requests: [f64; 2],
    kinds: &'i [usize],
    /// The items that they are of.
    items: Vec<usize>,
}

/// The best splits and the values that go with them, within a budget: looks at one pod on one type,
/// and at one entry of the basis. What is found within less is a bound, too.
pub(crate) fn exact(kinds: &[Kind], items: &[Item], deals: &Deals, work: u64) -> Values {
    let (rows, merged) = rows(items, deals);
    let mut splits = vec![0.5; kinds.len()];
    if rows.is_empty() {
        return evaluate(kinds, items, deals, splits);
    }
    let lists: Vec<&[usize]> = rows.iter().map(|row| row.kinds).collect();
    let worthy = worthy(kinds, &lists);
    let requests: Vec<[f64; 2]> = rows.iter().map(|row| row.requests).collect();
    let mut on: Vec<Vec<usize>> = vec![Vec::new(); kinds.len()];
    for (index, row) in rows.iter().enumerate() {
        for &kind in row.kinds {
            on[kind].push(index);
        }
    }
    let mut problem = Dealt::new(&rows, items.len(), deals);
    let mut master = problem.master(kinds, work);
    let per_round: usize = worthy.iter().map(|&kind| on[kind].len() * 5).sum();
    // What is kept of the values that prove most: they change less from round to round.
    let mut center: Option<(f64, Vec<f64>)> = None;
    loop {
        let values = master.values().to_vec();
        let mid: Vec<f64> = match &center {
            Some((_, best)) => {
                values.iter().zip(best).map(|(a, b)| 0.6 * a.max(0.0) + 0.4 * b).collect()
            }
            None => values.iter().map(|value| value.max(0.0)).collect(),
        };
        let mut offered = 0;
        for at in [&mid, &values] {
            let mut most = 0.0_f64;
            for &kind in &worthy {
                let units = Units::new(kinds[kind].room, &on[kind], &requests, at);
                let ratio = (units.worth[0] + units.worth[1]) / kinds[kind].price;
                most = most.max(ratio);
                if ratio > 1.0 + 1e-6 {
                    let load: Vec<_> = units.load(kinds[kind].room, &requests).collect();
                    let worth: f64 = load.iter().map(|&(row, n)| values[row] * n).sum();
                    if worth > kinds[kind].price * (1.0 + 1e-6) {
                        master.offer(kinds[kind].price, load);
                        offered += 1;
                    }
                }
            }
            master.charge(per_round);
            let (least, more) = problem.deal(&mut master, at, &values);
            offered += more;
            // No type's pods are worth more than it costs at values that are so much lower.
            let proved = least / most.max(1e-300);
            if center.as_ref().is_none_or(|(best, _)| proved > *best) {
                center = Some((
                    proved,
                    at.iter().map(|value| value.max(0.0) / most.max(1e-300)).collect(),
                ));
            }
            if offered > 0 {
                break;
            }
        }
        let proved = center.as_ref().map_or(0.0, |(proved, _)| *proved);
        let price = master.price() - problem.dealt_price();
        if offered == 0 || master.work() == 0 || price * (1.0 - CLOSE) <= proved {
            break;
        }
        master.optimise();
    }
    let values = center.map_or_else(|| master.values().to_vec(), |(_, best)| best);
    for (kind, split) in splits.iter_mut().enumerate() {
        *split = Units::new(kinds[kind].room, &on[kind], &requests, &values).split();
    }
    if merged {
        return improve(kinds, items, deals, splits, AFTERWARDS);
    }
    evaluate(kinds, items, deals, splits)
}

/// The part of the problem that is about dealing pods out.
struct Dealt<'r, 'i> {
    rows: &'r [Row<'i>],
    deals: &'r Deals,
    /// By item: its row.
    row_of: Vec<Option<usize>>,
    /// By group: what a way to deal its pods out costs by itself.
    prices: Vec<f64>,
}

impl<'r, 'i> Dealt<'r, 'i> {
    fn new(rows: &'r [Row<'i>], items: usize, deals: &'r Deals) -> Self {
        let mut row_of = vec![None; items];
        for (index, row) in rows.iter().enumerate() {
            for &item in &row.items {
                row_of[item] = Some(index);
            }
        }
        Self { rows, deals, row_of, prices: Vec::new() }
    }

    /// The problem with a column for each row: pods alone, where that is cheapest; groups that are
    /// not dealt out for more than they are worth.
    fn master(&mut self, kinds: &[Kind], work: u64) -> Master {
        let alone = |row: &Row<'_>| {
            let of = |&kind: &usize| {
                let takes = [0, 1].map(|at| row.requests[at] / kinds[kind].room[at]);
                (kinds[kind].price, 1.0 / takes[0].max(takes[1]))
            };
            let alone = row.kinds.iter().map(of);
            alone.min_by(|a, b| (a.0 / a.1).total_cmp(&(b.0 / b.1))).unwrap_or((1.0, 1.0))
        };
        let mut first: Vec<(f64, f64)> = self.rows.iter().map(alone).collect();
        let mut demand: Vec<f64> = self.rows.iter().map(|row| row.asked).collect();
        for deal in self.deals.iter() {
            let each = deal.items().filter_map(|item| self.row_of[item]);
            let dearest = each.map(|row| first[row].0 / first[row].1).fold(0.0, f64::max);
            let price = (deal.pods() * dearest).max(f64::MIN_POSITIVE);
            self.prices.push(price * DEALT);
            first.push((price * 2.0, 1.0));
            demand.push(1.0);
        }
        Master::new(&demand, &first, work)
    }

    /// What the groups pay in all for being dealt out.
    fn dealt_price(&self) -> f64 {
        self.prices.iter().sum()
    }

    /// The least that all pods cost at some values; offers the ways to deal them out that make it
    /// so little. Returns how many are worth it at the problem's own values.
    fn deal(&self, master: &mut Master, at: &[f64], values: &[f64]) -> (f64, usize) {
        let free = at.iter().zip(self.rows).map(|(value, row)| value * row.asked);
        let mut least: f64 = free.sum();
        if self.prices.is_empty() {
            return (least, 0);
        }
        let of_row = |row: &Option<usize>| row.map_or(0.0, |row| at[row].max(0.0));
        let costs: Vec<f64> = self.row_of.iter().map(of_row).collect();
        let mut offered = 0;
        for (group, (deal, &price)) in self.deals.iter().zip(&self.prices).enumerate() {
            let (cost, dealt) = deal.least(&costs);
            least += cost;
            let together = self.rows.len() + group;
            let taken = dealt.iter().filter_map(|&(item, pods)| Some((self.row_of[item]?, -pods)));
            let entries: Vec<(usize, f64)> =
                taken.chain([(together, 1.0)]).filter(|entry| entry.1 != 0.0).collect();
            let worth: f64 = entries.iter().map(|&(row, by)| values[row] * by).sum();
            if worth > price * (1.0 + 1e-6) {
                master.offer(price, entries);
                offered += 1;
            }
        }
        master.charge(costs.len());
        (least, offered)
    }
}

/// Pods that are alike, as rows; and whether some of these are only nearly alike.
fn rows<'i>(items: &'i [Item], deals: &Deals) -> (Vec<Row<'i>>, bool) {
    let mut alike: BTreeMap<(&[usize], [u64; 2]), Row<'_>> = BTreeMap::new();
    let asks = |item: &Item| item.requests.iter().any(|&amount| amount > 0.0);
    for (index, item) in items.iter().enumerate().filter(|(_, item)| asks(item)) {
        let (requests, kinds) = (item.requests, &item.kinds[..]);
        let row = Row { pods: 0.0, asked: 0.0, requests, kinds, items: Vec::new() };
        let row = alike.entry((kinds, requests.map(f64::to_bits))).or_insert(row);
        row.pods += item.pods;
        row.asked += if deals.is_dealt(index) { 0.0 } else { item.pods };
        row.items.push(index);
    }
    let mut rows: Vec<Row<'_>> = alike.into_values().collect();
    if rows.len() <= ROWS {
        return (rows, false);
    }
    // In the order of what they may run on and their proportions, a few in a row together.
    let proportion = |row: &Row<'_>| {
        (row.requests[0] / (row.requests[0] + row.requests[1] * 1e-6)).clamp(0.0, 1.0)
    };
    rows.sort_by(|a, b| a.kinds.cmp(b.kinds).then(proportion(a).total_cmp(&proportion(b))));
    let together = rows.len().div_ceil(ROWS);
    let mut merged: Vec<Row<'_>> = Vec::new();
    for same in rows.chunk_by(|a, b| a.kinds == b.kinds) {
        for few in same.chunks(together) {
            let sum = |at: usize| few.iter().map(|row| row.pods * row.requests[at]).sum::<f64>();
            let pods: f64 = few.iter().map(|row| row.pods).sum();
            merged.push(Row {
                pods,
                asked: few.iter().map(|row| row.asked).sum(),
                requests: [sum(0) / pods, sum(1) / pods],
                kinds: few[0].kinds,
                items: few.iter().flat_map(|row| row.items.iter().copied()).collect(),
            });
        }
    }
    (merged, true)
}

/// The types that are not beaten by another that costs no more, has no less of anything and holds
/// the same pods: with the other's split no pod costs less on one that is beaten, so it changes no
/// bound. From the types that hold each kind of pod.
pub(crate) fn worthy(kinds: &[Kind], lists: &[&[usize]]) -> Vec<usize> {
    let mut holds: Vec<Vec<u64>> = vec![vec![0; lists.len().div_ceil(64)]; kinds.len()];
    for (index, list) in lists.iter().enumerate() {
        for &kind in *list {
            holds[kind][index / 64] |= 1 << (index % 64);
        }
    }
    let mut order: Vec<usize> =
        (0..kinds.len()).filter(|&kind| holds[kind].iter().any(|&word| word != 0)).collect();
    order.sort_by(|&a, &b| kinds[a].price.total_cmp(&kinds[b].price).then(a.cmp(&b)));
    let mut worthy: Vec<usize> = Vec::new();
    for kind in order {
        let beaten = worthy.iter().rev().any(|&other| {
            [0, 1].iter().all(|&at| kinds[other].room[at] >= kinds[kind].room[at])
                && holds[other].iter().zip(&holds[kind]).all(|(more, less)| less & !more == 0)
        });
        if !beaten {
            worthy.push(kind);
        }
    }
    worthy.sort_unstable();
    worthy
}

#[cfg(test)]
mod tests {
    use microlp::{ComparisonOp, OptimizationDirection, Problem, SolveOutcome, Variable};
    use proptest::prelude::*;

    use super::*;

    /// The optimum by another solver and from the other side: what pieces of pods go on which type,
    /// and how much of each type is bought.
    fn by_another_solver(kinds: &[Kind], items: &[Item]) -> f64 {
        let mut problem = Problem::new(OptimizationDirection::Minimize);
        let bought: Vec<Variable> =
            kinds.iter().map(|kind| problem.add_var(kind.price, (0.0, f64::INFINITY))).collect();
        let mut used: Vec<[Vec<(Variable, f64)>; 2]> = bought
            .iter()
            .zip(kinds)
            .map(|(&it, kind)| [0, 1].map(|at| vec![(it, -kind.room[at])]))
            .collect();
        for item in items {
            let pieces: Vec<Variable> =
                item.kinds.iter().map(|_| problem.add_var(0.0, (0.0, f64::INFINITY))).collect();
            let whole: Vec<_> = pieces.iter().map(|&piece| (piece, 1.0)).collect();
            problem.add_constraint(whole, ComparisonOp::Eq, item.pods);
            for (&kind, &piece) in item.kinds.iter().zip(&pieces) {
                for at in [0, 1] {
                    used[kind][at].push((piece, item.requests[at]));
                }
            }
        }
        for used in used.into_iter().flatten() {
            problem.add_constraint(used, ComparisonOp::Le, 0.0);
        }
        match problem.solve().expect("there is always something to buy") {
            SolveOutcome::Solution(solution) => solution.objective(),
            SolveOutcome::Interrupted(_) => unreachable!("there is no limit"),
        }
    }

    fn mix() -> impl Strategy<Value = (Vec<Kind>, Vec<Item>)> {
        let kind = (1..64_u32, 0..4_u32, 80..120_u32).prop_map(|(cores, ratio, dear)| {
            let (cores, ratio) = (f64::from(cores), f64::from(1 << ratio));
            let price = cores * (0.03 + 0.005 * ratio) * f64::from(dear) / 100.0;
            Kind { room: [cores * 0.95, cores * ratio * 0.9], price }
        });
        let item = (1..400_u32, 1..16_000_u32, 1..64_000_u32, any::<u16>());
        (prop::collection::vec(kind, 1..14), prop::collection::vec(item, 1..40)).prop_map(
            |(mut kinds, items)| {
                kinds.push(Kind { room: [128.0, 512.0], price: 6.0 });
                let items = items.into_iter().map(|(pods, cpu, memory, some)| {
                    let requests = [f64::from(cpu) / 1e3, f64::from(memory) / 1e3];
                    let last = kinds.len() - 1;
                    let holds = |&kind: &usize| {
                        kind == last
                            || some & (1 << kind) != 0
                                && [0, 1].iter().all(|&at| requests[at] <= kinds[kind].room[at])
                    };
                    Item {
                        pods: f64::from(pods),
                        requests,
                        kinds: (0..=last).filter(holds).collect(),
                    }
                });
                let items = items.collect();
                (kinds, items)
            },
        )
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1_000))]

        #[test]
        fn the_bound_is_what_another_solver_finds((kinds, items) in mix()) {
            let (ours, theirs) = (exact(&kinds, &items, &Deals::default(), u64::MAX).bound, by_another_solver(&kinds, &items));
            prop_assert!((ours / theirs - 1.0).abs() < 1e-3, "{ours} instead of {theirs}");
            prop_assert!(ours <= theirs * (1.0 + 1e-9), "{ours} is no bound of {theirs}");
        }

        #[test]
        fn little_work_leaves_a_bound((kinds, items) in mix(), work in 0..20_000_u64) {
            let (ours, theirs) = (exact(&kinds, &items, &Deals::default(), work).bound, by_another_solver(&kinds, &items));
            prop_assert!(ours <= theirs * (1.0 + 1e-9), "{ours} is no bound of {theirs}");
        }
    }

    #[test]
    fn many_different_pods_are_bounded_as_closely() {
        let mut draw = crate::testing::mixes::Draw(3);
        let kinds: Vec<Kind> = [(2.0, 0.085), (4.0, 0.096), (8.0, 0.126)]
            .iter()
            .flat_map(|&(ratio, price)| {
                [2.0, 8.0, 32.0]
                    .map(|cores| Kind { room: [cores, cores * ratio], price: price * cores / 2.0 })
            })
            .collect();
        let items: Vec<Item> = (0..900)
            .map(|_| {
                let requests = [0.1 + 1.8 * draw.share(), 0.1 + 3.8 * draw.share().powi(2)];
                Item {
                    pods: 1.0 + f64::from(draw.number() % 9),
                    requests,
                    kinds: (0..kinds.len()).collect(),
                }
            })
            .collect();
        let (ours, theirs) = (
            exact(&kinds, &items, &Deals::default(), u64::MAX).bound,
            by_another_solver(&kinds, &items),
        );
        assert!(ours <= theirs * (1.0 + 1e-9) && ours > theirs * 0.999, "{ours} of {theirs}");
    }
}
