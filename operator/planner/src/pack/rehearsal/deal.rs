//! Dealing pods out as kube-scheduler does.
//!
//! Three of its scores count here. LeastAllocated and BalancedAllocation together come to this: a
//! pod goes where the larger of the shares of CPU and memory that are then in use is the smallest.
//! PodTopologySpread has twice their weight and by default spreads the pods of a Deployment over
//! the nodes, whatever the size of these: pods of one shape count as one Deployment's, all nodes as
//! of one zone.

use fixedbitset::FixedBitSet;

use super::WORK;
use crate::solver::{Place, room_for};
use crate::tables::{add_times, fits, take_times};

/// A pod is compared on so many machines that have room for it, as kube-scheduler does it in large
/// clusters.
const COMPARED: usize = 100;

/// Pods that nothing tells apart.
pub(super) struct Row {
    /// By column that anybody uses.
    pub(super) requests: Vec<i64>,
    /// The specs whose machines take them.
    pub(super) takes: FixedBitSet,
    /// What a place costs where it is cheapest, in micro-dollars.
    pub(super) value: i64,
}

/// Machines that can be bought.
pub(super) struct Kind {
    /// The spec.
    pub(super) group: usize,
    /// What pods may use, by column that anybody uses.
    pub(super) net: Vec<i64>,
    /// With the price of having a machine.
    pub(super) price: i64,
}

impl Kind {
    /// How many of these it takes for an amount, were it cut into pieces.
    pub(super) fn times(&self, amount: &[i64]) -> usize {
        let each = amount.iter().zip(&self.net).filter(|it| *it.0 > 0);
        let most = each.map(|(want, &have)| (want + have - 1) / have.max(1)).max();
        usize::try_from(most.unwrap_or(0)).unwrap_or(usize::MAX)
    }
}

/// Pods that wait.
pub(super) struct Deal {
    rows: Vec<Row>,
    columns: Vec<usize>,
    /// Pod and row, in some orders of dealing.
    queues: [Vec<(usize, usize)>; 2],
    /// How many machines may still be looked at.
    work: usize,
}

/// A machine that fills up.
#[derive(Clone)]
struct Spot {
    group: usize,
    room: Vec<i64>,
    /// One over what it has of CPU and memory.
    scale: [f64; 2],
}

impl Spot {
    #[expect(clippy::cast_precision_loss, reason = "shares for comparison")]
    fn new(kind: &Kind) -> Self {
        let scale = [0, 1].map(|at| 1.0 / kind.net[at].max(1) as f64);
        Self { group: kind.group, room: kind.net.clone(), scale }
    }

    /// The larger of the shares of CPU and memory that are left once a pod has come, less what it
    /// takes: the more the better.
    #[expect(clippy::cast_precision_loss, reason = "shares for comparison")]
    fn left(&self, requests: &[i64]) -> f64 {
        let left = |at: usize| (self.room[at] - requests[at]) as f64 * self.scale[at];
        left(0).min(left(1))
    }
}

/// A machine as a place for a pod.
struct OnSpot<'d> {
    spot: &'d Spot,
    row: &'d Row,
}

impl Place for OnSpot<'_> {
    fn by_room(&mut self) -> usize {
        usize::from(fits(&self.row.requests, &self.spot.room))
    }

    fn by_labels(&mut self) -> usize {
        usize::from(self.row.takes.contains(self.spot.group))
    }
}

/// How many pods of each row are on which machine.
struct Counts {
    rows: usize,
    on: Vec<u32>,
    all: Vec<u32>,
}

impl Counts {
    fn new(spots: usize, rows: usize) -> Self {
        Self { rows, on: vec![0; spots * rows], all: vec![0; rows] }
    }

    fn add(&mut self, row: usize, at: usize) {
        self.on[at * self.rows + row] += 1;
        self.all[row] += 1;
    }

    /// The machine with the highest score, of those with room and what they have left then.
    #[expect(clippy::cast_precision_loss, reason = "scores for comparison")]
    fn best(&self, row: usize, compared: &[(f64, usize)]) -> Option<usize> {
        // The default constraints' skews less one, and what the zone has.
        let everywhere = 6.0 + f64::from(self.all[row]) * 3.0_f64.ln();
        let weight = (compared.len() as f64 + 2.0).ln();
        let crowd = |at: usize| everywhere + weight * f64::from(self.on[at * self.rows + row]);
        let most = compared.iter().map(|it| crowd(it.1)).fold(0.0, f64::max);
        let score = |&(left, at): &(f64, usize)| left - 2.0 * crowd(at) / most;
        let mut best: Option<(f64, usize)> = None;
        for it in compared {
            let score = score(it);
            if best.is_none_or(|(most, _)| score > most) {
                best = Some((score, it.1));
            }
        }
        best.map(|it| it.1)
    }
}

impl Deal {
    pub(super) fn new(
        rows: Vec<Row>,
        columns: Vec<usize>,
        queues: [Vec<(usize, usize)>; 2],
    ) -> Self {
        Self { rows, columns, queues, work: WORK }
    }

    /// The rows of the pods that find no place in the first of the orders in which some don't, one
    /// for each; nothing when the work is done.
    pub(super) fn left_over(
        &mut self,
        kinds: &[Kind],
        fleet: &[(usize, usize)],
    ) -> Option<Vec<usize>> {
        let mut left = Vec::new();
        for queue in &self.queues {
            let tell = |row: usize, spot: Option<usize>| left.extend(spot.is_none().then_some(row));
            let looks = self.run(queue, kinds, fleet, self.work, tell);
            self.work = self.work.saturating_sub(looks.unwrap_or(self.work));
            looks?;
            if !left.is_empty() {
                break;
            }
        }
        Some(left)
    }

    /// Pods with their machines, as numbers in the fleet's order.
    pub(super) fn places(&self, kinds: &[Kind], fleet: &[(usize, usize)]) -> Vec<(usize, usize)> {
        let mut places = Vec::new();
        let [queue, _] = &self.queues;
        let mut pods = queue.iter().map(|it| it.0);
        let done = self.run(queue, kinds, fleet, usize::MAX, |_, spot| {
            places.extend(pods.next().zip(spot));
        });
        debug_assert!(done.is_some(), "there is no limit");
        places
    }

    /// Tells where each pod goes, and returns how many machines were looked at; nothing when that
    /// would be more than may be.
    fn run(
        &self,
        queue: &[(usize, usize)],
        kinds: &[Kind],
        fleet: &[(usize, usize)],
        work: usize,
        mut tell: impl FnMut(usize, Option<usize>),
    ) -> Option<usize> {
        let spots =
            fleet.iter().flat_map(|&(kind, n)| std::iter::repeat_n(Spot::new(&kinds[kind]), n));
        let mut spots: Vec<Spot> = spots.collect();
        let mut counts = Counts::new(spots.len(), self.rows.len());
        // Room only shrinks: where one pod finds none, no other of its kind does.
        let mut full = vec![false; self.rows.len()];
        let mut compared: Vec<(f64, usize)> = Vec::new();
        let (mut next, mut looks) = (0, 0);
        for &(_, row) in queue {
            let requests = &self.rows[row].requests;
            if full[row] {
                tell(row, None);
                continue;
            }
            compared.clear();
            let mut looked = 0;
            while looked < spots.len() && compared.len() < COMPARED {
                let at = (next + looked) % spots.len();
                looked += 1;
                let spot = &spots[at];
                if room_for(&mut OnSpot { spot, row: &self.rows[row] }, 1) > 0 {
                    compared.push((spot.left(requests), at));
                }
            }
            looks += looked;
            if looks > work {
                return None;
            }
            next = (next + looked) % spots.len().max(1);
            let best = counts.best(row, &compared);
            match best {
                Some(at) => {
                    take_times(&mut spots[at].room, requests, 1);
                    counts.add(row, at);
                }
                None => full[row] = true,
            }
            tell(row, best);
        }
        Some(looks)
    }

    /// What pods of these rows request together.
    pub(super) fn sum(&self, rows: impl Iterator<Item = usize>) -> Vec<i64> {
        let mut sum = vec![0; self.columns.len()];
        rows.for_each(|row| add_times(&mut sum, &self.rows[row].requests, 1));
        sum
    }

    /// What pods that go nowhere but to machines of a spec request together; of a single spec all.
    pub(super) fn need(&self, group: usize) -> Vec<i64> {
        let rows = self.queues[0].iter().map(|it| it.1);
        self.sum(rows.filter(|&row| {
            let takes = &self.rows[row].takes;
            takes.contains(group) && takes.count_ones(..) == 1
        }))
    }

    /// Whether machines of a kind take all pods that go nowhere but to machines of its spec.
    pub(super) fn holds_all(&self, kind: &Kind) -> bool {
        self.rows.iter().all(|row| {
            let elsewhere = !row.takes.contains(kind.group) || row.takes.count_ones(..) > 1;
            elsewhere || fits(&row.requests, &kind.net)
        })
    }

    /// Whether pods go to no machines of specs after this one.
    pub(super) fn is_settled(&self, row: usize, group: usize) -> bool {
        self.rows[row].takes.ones().all(|at| at <= group)
    }

    /// What pods of some rows are worth.
    pub(super) fn value(&self, rows: &[usize]) -> i64 {
        rows.iter().fold(0, |sum, &row| sum.saturating_add(self.rows[row].value))
    }

    /// An amount without what nobody asks for.
    pub(super) fn asked(&self, amounts: &[i64]) -> Vec<i64> {
        let mut asked = vec![0; amounts.len()];
        self.columns.iter().for_each(|&column| asked[column] = amounts[column]);
        asked
    }
}
