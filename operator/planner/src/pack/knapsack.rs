//! The load of one machine that is worth most at given values of pods.
//!
//! Pods come in the order of what they are worth per what they take, as long as the room that is
//! left may still be worth more than the best load so far. What room is worth at most is known from
//! the relaxation ([`Units`]): there, no pod is worth more than what it takes. A search looks at so
//! many beginnings of a load at a time (`beam`); what it finds is then made better by exchanging a
//! few of its pods (`improve`), the room of which is filled depth first.

mod beam;
mod improve;

use smallvec::SmallVec;

use crate::dual::Units;
use crate::topology::{HostGroup, HostOccupancy};

/// Pods of one kind, as a machine sees them.
#[derive(Clone, Debug)]
pub(super) struct Row {
    /// By column that anybody uses; processors and memory come first.
    pub(super) requests: SmallVec<[i64; 6]>,
    /// Topology groups that limit which pods share a machine.
    pub(super) groups: Vec<HostGroup>,
    /// One of them of which a machine has no other pod then.
    apart: Option<usize>,
}

impl Row {
    pub(super) fn new(requests: SmallVec<[i64; 6]>, groups: Vec<HostGroup>) -> Self {
        let apart = groups.iter().find(|group| group.is_alone()).map(|group| group.group);
        Self { requests, groups, apart }
    }

    /// Whether a machine has one of its pods at most.
    pub(super) fn is_alone(&self) -> bool {
        self.apart.is_some()
    }

    /// Processors and memory.
    #[expect(clippy::cast_precision_loss, reason = "a relaxation")]
    pub(super) fn amounts(&self) -> [f64; 2] {
        [self.requests[0] as f64, self.requests[1] as f64]
    }
}

/// What is known of the loads of a machine before one is searched for.
pub(super) struct Prospect {
    /// No load is worth more.
    pub(super) most: f64,
    /// What room is worth to pods of all other rows.
    units: Units,
    /// The topology group that most rows belong to of which a machine has one pod.
    apart: Option<usize>,
}

impl Prospect {
    /// Pods of some rows on a machine with so much room, at given values. `requests` are
    /// [`Row::amounts`], by row.
    pub(super) fn new(
        rows: &[Row],
        on: &[usize],
        requests: &[[f64; 2]],
        values: &[f64],
        room: [f64; 2],
    ) -> Self {
        let mut sizes: SmallVec<[(usize, usize); 4]> = SmallVec::new();
        for group in on.iter().filter_map(|&row| rows[row].apart) {
            match sizes.iter_mut().find(|(known, _)| *known == group) {
                Some((_, size)) => *size += 1,
                None => sizes.push((group, 1)),
            }
        }
        let largest = sizes.iter().max_by_key(|(group, size)| (*size, std::cmp::Reverse(*group)));
        let Some(&(group, _)) = largest else {
            let units = Units::new(room, on, requests, values);
            return Self { most: units.worth[0] + units.worth[1], units, apart: None };
        };
        let (one, others): (Vec<usize>, Vec<usize>) =
            on.iter().partition(|&&row| rows[row].apart == Some(group));
        let units = Units::new(room, &others, requests, values);
        let one = one.into_iter().map(|row| values[row]).fold(0.0, f64::max);
        Self { most: one + units.worth[0] + units.worth[1], units, apart: Some(group) }
    }
}

/// How many pods of which row.
pub(super) type Takes = SmallVec<[(usize, usize); 6]>;

/// Rows that are worth something on a machine, as a search goes through them.
struct Entry<'s> {
    /// Worth per what it takes; the best come first. Before them come the pods that keep off each
    /// other, with the ratio of the best that comes after them.
    ratio: f64,
    /// The value of such a pod.
    apart: f64,
    row: usize,
    value: f64,
    left: usize,
    of: &'s Row,
    /// The least that this row or one after it takes of processors and of memory.
    least: [i64; 2],
    /// The most that this row or one after it is worth per processor and per memory that it takes,
    /// without those that keep off each other.
    dearest: [f64; 2],
}

/// How much is done for a load.
#[derive(Clone, Copy, Debug)]
pub(super) struct Effort {
    /// So many beginnings of a load are kept in view.
    pub(super) width: usize,
    /// So many steps are taken at most to make it better afterwards.
    pub(super) improve: usize,
    /// A load that is worth no more is of no use to the caller.
    pub(super) least: f64,
}

/// What is left of a machine, by column.
type Room = SmallVec<[i64; 6]>;

/// So much more a load has to be worth to be looked for.
const MORE: f64 = 1.0 + 1e-6;

/// A search on one machine.
struct Search<'s> {
    entries: Vec<Entry<'s>>,
    /// What a unit of processors and of memory is worth.
    per_unit: [f64; 2],
    on_host: HostOccupancy,
    /// The pods on the machine that keep off each other.
    n_apart: usize,
    /// By entry.
    takes: Takes,
    best: Load,
    steps: usize,
}

/// Pods on a machine, by entry of a search, and what they are worth.
#[derive(Clone, Debug, Default)]
struct Load {
    worth: f64,
    takes: Takes,
}

/// The load of some rows that is worth most on a machine with so much room, and what it is worth.
/// The last value is how many steps it took.
#[expect(clippy::cast_precision_loss, reason = "worth, for comparison")]
pub(super) fn best_load(
    rows: &[Row],
    on: &[usize],
    left: &[usize],
    values: &[f64],
    room: &[i64],
    prospect: &Prospect,
    effort: Effort,
) -> (f64, Takes, usize) {
    let worth = prospect.units.worth;
    let per_unit = [0, 1].map(|at| worth[at] / (room[at].max(1) as f64));
    let mut entries: Vec<Entry<'_>> = on
        .iter()
        .filter(|&&row| left[row] > 0 && values[row] > 0.0)
        .map(|&row| {
            let (of, value) = (&rows[row], values[row]);
            let [cpu, memory] = of.amounts();
            let takes = per_unit[0] * cpu + per_unit[1] * memory;
            let ratio = if takes > 0.0 { value / takes } else { 1.0 };
            let is_apart = prospect.apart.is_some() && of.apart == prospect.apart;
            let apart = if is_apart { value } else { 0.0 };
            Entry {
                ratio,
                apart,
                row,
                value,
                left: left[row],
                of,
                least: [0; 2],
                dearest: [0.0; 2],
            }
        })
        .collect();
    let order = |a: &Entry<'_>, b: &Entry<'_>| {
        b.apart.total_cmp(&a.apart).then(b.ratio.total_cmp(&a.ratio)).then(a.row.cmp(&b.row))
    };
    entries.sort_unstable_by(order);
    let (mut least, mut dearest, mut ratio) = ([i64::MAX; 2], [0.0; 2], 0.0);
    for entry in entries.iter_mut().rev() {
        least = [0, 1].map(|at| entry.of.requests[at].min(least[at]));
        if entry.apart > 0.0 {
            entry.ratio = ratio;
        } else {
            let each = entry.of.amounts().map(|amount| entry.value / amount);
            dearest = [0, 1].map(|at| f64::max(each[at], dearest[at]));
            ratio = entry.ratio;
        }
        (entry.least, entry.dearest) = (least, dearest);
    }
    let mut search = Search {
        entries,
        per_unit,
        on_host: HostOccupancy::default(),
        n_apart: 0,
        takes: Takes::new(),
        best: Load::default(),
        steps: 0,
    };
    let mut room: Room = room.iter().copied().collect();
    let searched = search.beam(&room, effort.width, effort.least);
    let improved = search.improve(&mut room, effort.improve);
    let Search { best: Load { worth, takes }, entries, .. } = search;
    let mut takes: Takes = takes.into_iter().map(|(at, n)| (entries[at].row, n)).collect();
    takes.sort_unstable();
    (worth, takes, searched + improved)
}

impl Search<'_> {
    /// What pods that are worth so much may be worth at most together with others from an entry on.
    /// Nothing where none of these fits. `n_apart` of those on the machine keep off each other.
    #[expect(clippy::cast_precision_loss, reason = "worth, for comparison")]
    fn may_be_worth(&self, from: usize, room: &[i64], worth: f64, n_apart: usize) -> Option<f64> {
        let &Entry { ratio, apart, least, dearest, .. } = self.entries.get(from)?;
        if least[0] > room[0] || least[1] > room[1] {
            return None;
        }
        // Where hardly anything of one resource is left, that counts, and not what the other one is
        // worth.
        let have = [room[0] as f64, room[1] as f64];
        let rest = self.per_unit[0] * have[0] + self.per_unit[1] * have[1];
        let apart = if n_apart == 0 { apart } else { 0.0 };
        Some(worth + apart + (rest * ratio).min(have[0] * dearest[0]).min(have[1] * dearest[1]))
    }

    /// Fills what is left of the room depth first: as many pods as fit, then some fewer of the last
    /// ones.
    #[expect(clippy::cast_precision_loss, reason = "worth, for comparison")]
    fn descend(&mut self, from: usize, room: &mut Room, worth: f64) {
        if worth > self.best.worth {
            self.best.worth = worth;
            self.best.takes.clone_from(&self.takes);
        }
        for at in from..self.entries.len() {
            let Entry { value, apart, left, of, .. } = self.entries[at];
            let most = self.may_be_worth(at, room, worth, self.n_apart);
            if self.steps == 0 || most.is_none_or(|most| most <= self.best.worth * MORE) {
                return;
            }
            let Row { requests, groups, .. } = of;
            if requests.iter().zip(room.iter()).any(|(want, have)| want > have) {
                continue;
            }
            let mut most = left;
            for (&want, &have) in requests.iter().zip(room.iter()) {
                if want > 0 && most > 1 {
                    most = most.min(usize::try_from(have / want).unwrap_or(0));
                }
            }
            if !groups.is_empty() {
                most = most.min(self.on_host.most(groups));
            }
            for n in (1..=most).rev() {
                if self.steps == 0 {
                    return;
                }
                self.steps -= 1;
                let by = i64::try_from(n).unwrap_or(0);
                room.iter_mut().zip(requests).for_each(|(have, want)| *have -= by * want);
                self.on_host.add(groups, n);
                self.n_apart += usize::from(apart > 0.0);
                self.takes.push((at, n));
                self.descend(at + 1, room, worth + value * n as f64);
                self.takes.pop();
                self.on_host.remove(groups, n);
                self.n_apart -= usize::from(apart > 0.0);
                room.iter_mut().zip(requests).for_each(|(have, want)| *have += by * want);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn row(cpu: i64, memory: i64, groups: &[HostGroup]) -> Row {
        Row::new([cpu, memory, 1].into_iter().collect(), groups.to_vec())
    }

    /// The most that any load is worth, by trying all.
    fn by_trying(
        rows: &[Row],
        left: &[usize],
        values: &[f64],
        room: [i64; 3],
        on_host: &[HostGroup],
    ) -> f64 {
        let Some((row, others)) = rows.split_first() else { return 0.0 };
        let mut best = by_trying(others, &left[1..], &values[1..], room, on_host);
        let mut on_host = on_host.to_vec();
        for n in 1..=left[0] {
            on_host.extend(&row.groups);
            if !may_share(&on_host) {
                break;
            }
            let by = i64::try_from(n).unwrap();
            let rest = [0, 1, 2].map(|at| room[at] - by * row.requests[at]);
            if rest.iter().any(|&have| have < 0) {
                break;
            }
            let others = by_trying(others, &left[1..], &values[1..], rest, &on_host);
            best = best.max(others + values[0] * f64::from(u32::try_from(n).unwrap()));
        }
        best
    }

    /// Whether pods of one group may share a host: no carrier minds another pod that is selected,
    /// except that one which spread does not select itself puts up with one.
    fn may_share(pods: &[HostGroup]) -> bool {
        let selected = |but: usize| {
            pods.iter().enumerate().filter(|(at, pod)| *at != but && pod.is_selected).count()
        };
        pods.iter().enumerate().filter(|(_, pod)| pod.is_carrier).all(|(at, pod)| {
            let most = usize::from(!pod.is_anti && !pod.is_selected);
            selected(at) <= most
        })
    }

    type Drawn = (Vec<Row>, Vec<usize>, Vec<f64>, [i64; 3]);

    /// Up to six kinds of pods, some of which belong to a group, and a machine.
    fn problem() -> impl Strategy<Value = Drawn> {
        let pods = (1..40_i64, 1..40_i64, 1..5_usize, 1..60_u32, 0..6_usize);
        let room = [20..100_i64, 20..100_i64, 3..12_i64];
        let drawn = (prop::collection::vec(pods, 1..7), room, any::<bool>());
        drawn.prop_map(|(pods, room, is_anti)| {
            let both = HostGroup { group: 7, is_selected: true, is_carrier: true, is_anti };
            let group = |it| match it {
                0 => vec![both],
                1 => vec![HostGroup { is_carrier: false, ..both }],
                2 => vec![HostGroup { is_selected: false, ..both }],
                _ => Vec::new(),
            };
            let rows = pods.iter().map(|&(cpu, memory, .., it)| row(cpu, memory, &group(it)));
            let left = pods.iter().map(|pod| pod.2).collect();
            let values = pods.iter().map(|pod| f64::from(pod.3)).collect();
            (rows.collect(), left, values, room)
        })
    }

    #[expect(clippy::cast_precision_loss, reason = "small")]
    fn search(
        rows: &[Row],
        left: &[usize],
        values: &[f64],
        room: [i64; 3],
        effort: Effort,
    ) -> (f64, Takes, usize) {
        let on: Vec<usize> = (0..rows.len()).collect();
        let requests: Vec<[f64; 2]> = rows.iter().map(Row::amounts).collect();
        let prospect =
            Prospect::new(rows, &on, &requests, values, [room[0] as f64, room[1] as f64]);
        best_load(rows, &on, left, values, &room, &prospect, effort)
    }

    #[expect(clippy::cast_precision_loss, reason = "small")]
    fn worth(values: &[f64], takes: &Takes) -> f64 {
        takes.iter().map(|&(row, n)| values[row] * n as f64).sum()
    }

    #[test]
    fn a_pod_that_is_worth_most_leaves_for_two_that_fill_the_room() {
        let (rows, left) = ([row(6, 6, &[]), row(5, 5, &[])], [1, 2]);
        let find = |improve| {
            let effort = Effort { width: 0, improve, least: 0.0 };
            search(&rows, &left, &[6.6, 5.0], [10, 10, 9], effort).1
        };
        assert_eq!(find(0).as_slice(), [(0, 1)]);
        assert_eq!(find(10).as_slice(), [(1, 2)]);
    }

    #[test]
    fn a_machine_is_filled_though_as_many_as_fit_of_the_first_pods_leave_gaps() {
        // What a pod takes, in millicores and MiB, and is worth; five of the first, twelve of the
        // fourth, and some of three others fill the machine exactly.
        let pods = [
            (2_070, 496, 38_089.0),
            (650, 3_056, 25_086.0),
            (620, 3_264, 24_043.0),
            (350, 1_680, 13_782.0),
            (270, 1_248, 10_305.0),
            (260, 1_680, 11_653.0),
            (250, 1_200, 9_843.0),
            (150, 2_880, 12_907.0),
            (140, 1_392, 7_943.0),
            (60, 688, 3_706.0),
            (40, 336, 2_054.0),
        ];
        let rows = pods.map(|(cpu, memory, _)| row(cpu, memory, &[]));
        let values = pods.map(|(.., value)| value);
        let effort = Effort { width: 8, improve: 250, least: 0.0 };
        let (worth, ..) = search(&rows, &[1_000; 11], &values, [15_900, 32_758, 256], effort);
        assert!(worth > 420_000.0, "{worth}");
    }

    proptest! {
        #[test]
        fn with_everything_in_view_no_load_is_worth_more((rows, left, values, room) in problem()) {
            let effort = Effort { width: 1_000_000, improve: 0, least: 0.0 };
            let (most, takes, _) = search(&rows, &left, &values, room, effort);
            prop_assert!((most - worth(&values, &takes)).abs() < 1e-9);
            let best = by_trying(&rows, &left, &values, room, &[]);
            prop_assert!(most >= best * (1.0 - 1e-5), "{most} of {best}");
        }

        #[test]
        fn a_load_that_was_made_better_fits(
            (rows, left, values, room) in problem(),
            width in 0..12_usize,
            improve in 0..200_usize,
        ) {
            let effort = Effort { width, improve, least: 0.0 };
            let (most, takes, taken) = search(&rows, &left, &values, room, effort);
            prop_assert!((most - worth(&values, &takes)).abs() < 1e-6);
            for (column, &have) in room.iter().enumerate() {
                let of = |&(row, n): &(usize, usize)| {
                    rows[row].requests[column] * i64::try_from(n).unwrap()
                };
                prop_assert!(takes.iter().map(of).sum::<i64>() <= have);
            }
            prop_assert!(takes.iter().all(|&(row, n)| 0 < n && n <= left[row]));
            let of_row = |&(row, n): &(usize, usize)| rows[row].groups.repeat(n);
            let on_host: Vec<HostGroup> = takes.iter().flat_map(of_row).collect();
            prop_assert!(may_share(&on_host));
            let before = search(&rows, &left, &values, room, Effort { width, improve: 0, least: 0.0 });
            prop_assert!(most >= before.0);
            prop_assert!(taken <= before.2 + improve);
        }
    }
}
