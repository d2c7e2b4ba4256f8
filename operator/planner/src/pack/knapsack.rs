//! The load of one machine that is worth most at given values of pods.
//!
//! Pods come in the order of what they are worth per what they take, as many as fit, and then some fewer of the last ones (depth first), as long as the room that is left
//! may still be worth more than the best load so far. What room is worth at most is known from the relaxation ([`Units`]): there, no pod is worth
//! more than what it takes. A search ends after a number of steps; the best load so far is returned then.

use smallvec::SmallVec;

use crate::dual::Units;

/// Pods of one kind, as a machine sees them.
#[derive(Clone, Debug)]
pub(super) struct Row {
    /// By column that anybody uses; processors and memory come first.
    pub(super) requests: SmallVec<[i64; 6]>,
    /// Topology groups of which a machine holds one pod.
    pub(super) groups: Vec<usize>,
}

impl Row {
    /// Processors and memory.
    #[expect(clippy::cast_precision_loss, reason = "a relaxation")]
    pub(super) fn amounts(&self) -> [f64; 2] {
        [self.requests[0] as f64, self.requests[1] as f64]
    }
}

/// How many pods of which row.
pub(super) type Takes = SmallVec<[(usize, usize); 6]>;

/// Rows that are worth something on a machine, as a search goes through them.
struct Entry<'s> {
    /// Worth per what it takes; the best come first.
    ratio: f64,
    row: usize,
    value: f64,
    left: usize,
    of: &'s Row,
    /// The least that this row or one after it takes of processors and of memory.
    least: [i64; 2],
}

/// A search on one machine.
struct Search<'s> {
    entries: Vec<Entry<'s>>,
    /// What a unit of processors and of memory is worth.
    per_unit: [f64; 2],
    groups: SmallVec<[usize; 8]>,
    takes: Takes,
    best: (f64, Takes),
    steps: usize,
}

/// The load of some rows that is worth most on a machine with so much room, and what it is worth. The last value is how many steps it took.
#[expect(clippy::cast_precision_loss, reason = "worth, for comparison")]
pub(super) fn best_load(
    rows: &[Row],
    on: &[usize],
    left: &[usize],
    values: &[f64],
    room: &[i64],
    units: &Units,
    steps: usize,
) -> (f64, Takes, usize) {
    let per_unit = [0, 1].map(|at| units.worth[at] / (room[at].max(1) as f64));
    let mut entries: Vec<Entry<'_>> = on
        .iter()
        .filter(|&&row| left[row] > 0 && values[row] > 0.0)
        .map(|&row| {
            let (of, value) = (&rows[row], values[row]);
            let [cpu, memory] = of.amounts();
            let takes = per_unit[0] * cpu + per_unit[1] * memory;
            let ratio = if takes > 0.0 { value / takes } else { 1.0 };
            Entry { ratio, row, value, left: left[row], of, least: [0; 2] }
        })
        .collect();
    entries.sort_unstable_by(|a, b| b.ratio.total_cmp(&a.ratio).then(a.row.cmp(&b.row)));
    let mut least = [i64::MAX; 2];
    for entry in entries.iter_mut().rev() {
        least = [0, 1].map(|at| entry.of.requests[at].min(least[at]));
        entry.least = least;
    }
    let mut search = Search {
        entries,
        per_unit,
        groups: SmallVec::new(),
        takes: Takes::new(),
        best: (0.0, Takes::new()),
        steps,
    };
    let mut room: SmallVec<[i64; 6]> = room.iter().copied().collect();
    search.descend(0, &mut room, 0.0);
    let (worth, mut takes) = search.best;
    takes.sort_unstable();
    (worth, takes, steps - search.steps)
}

impl Search<'_> {
    #[expect(clippy::cast_precision_loss, reason = "worth, for comparison")]
    fn descend(&mut self, from: usize, room: &mut SmallVec<[i64; 6]>, worth: f64) {
        if worth > self.best.0 {
            self.best.0 = worth;
            self.best.1.clone_from(&self.takes);
        }
        let rest = self.per_unit[0] * room[0] as f64 + self.per_unit[1] * room[1] as f64;
        for at in from..self.entries.len() {
            let Entry { ratio, row, value, left, of, least } = self.entries[at];
            if self.steps == 0
                || worth + rest * ratio <= self.best.0 * (1.0 + 1e-6)
                || least[0] > room[0]
                || least[1] > room[1]
            {
                return;
            }
            let Row { requests, groups } = of;
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
                most = most.min(1);
                if groups.iter().any(|group| self.groups.contains(group)) {
                    continue;
                }
            }
            for n in (1..=most).rev() {
                if self.steps == 0 {
                    return;
                }
                self.steps -= 1;
                let by = i64::try_from(n).unwrap_or(0);
                room.iter_mut().zip(requests).for_each(|(have, want)| *have -= by * want);
                self.groups.extend(groups.iter().copied());
                self.takes.push((row, n));
                self.descend(at + 1, room, worth + value * n as f64);
                self.takes.pop();
                self.groups.truncate(self.groups.len() - groups.len());
                room.iter_mut().zip(requests).for_each(|(have, want)| *have += by * want);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn row(cpu: i64, memory: i64, groups: &[usize]) -> Row {
        Row { requests: [cpu, memory, 1].into_iter().collect(), groups: groups.to_vec() }
    }

    /// The most that any load is worth, by trying all.
    fn by_trying(
        rows: &[Row],
        left: &[usize],
        values: &[f64],
        room: [i64; 3],
        taken: &[usize],
    ) -> f64 {
        let Some((row, others)) = rows.split_first() else { return 0.0 };
        let mut best = by_trying(others, &left[1..], &values[1..], room, taken);
        let apart = row.groups.iter().any(|group| taken.contains(group));
        let most = if row.groups.is_empty() { left[0] } else { left[0].min(1) };
        for n in 1..=if apart { 0 } else { most } {
            let by = i64::try_from(n).unwrap();
            let rest = [0, 1, 2].map(|at| room[at] - by * row.requests[at]);
            if rest.iter().any(|&have| have < 0) {
                break;
            }
            let taken: Vec<usize> = taken.iter().chain(&row.groups).copied().collect();
            let others = by_trying(others, &left[1..], &values[1..], rest, &taken);
            best = best.max(others + values[0] * f64::from(u32::try_from(n).unwrap()));
        }
        best
    }

    proptest! {
        #[test]
        fn with_enough_steps_no_load_is_worth_more(
            pods in prop::collection::vec((1..40_i64, 1..40_i64, 1..5_usize, 1..60_u32, 0..4_usize), 1..7),
            room in [20..100_i64, 20..100_i64, 3..12_i64],
        ) {
            let rows: Vec<Row> = pods
                .iter()
                .map(|&(cpu, memory, _, _, group)| row(cpu, memory, if group < 2 { &[7] } else { &[] }))
                .collect();
            let left: Vec<usize> = pods.iter().map(|pod| pod.2).collect();
            let values: Vec<f64> = pods.iter().map(|pod| f64::from(pod.3)).collect();
            let on: Vec<usize> = (0..rows.len()).collect();
            #[expect(clippy::cast_precision_loss, reason = "small")]
            let requests: Vec<[f64; 2]> =
                rows.iter().map(|row| [row.requests[0] as f64, row.requests[1] as f64]).collect();
            #[expect(clippy::cast_precision_loss, reason = "small")]
            let units = Units::new([room[0] as f64, room[1] as f64], &on, &requests, &values);
            let (worth, takes, _) = best_load(&rows, &on, &left, &values, &room, &units, 1_000_000);
            let counted: f64 =
                takes.iter().map(|&(row, n)| values[row] * f64::from(u32::try_from(n).unwrap())).sum();
            prop_assert!((worth - counted).abs() < 1e-9);
            let best = by_trying(&rows, &left, &values, room, &[]);
            prop_assert!(worth >= best * (1.0 - 1e-5), "{worth} of {best}");
        }
    }
}
