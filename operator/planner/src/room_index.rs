//! An index of bins by free room, so that bins that can't hold a pod are never visited.
//!
//! For every column a few thresholds are chosen among what pods ask for. A bin stands in the set of
//! each threshold that its room reaches. Bins that may hold a request are those in the sets of the
//! largest thresholds that the request reaches: an intersection of bitsets. With more thresholds
//! than different requests the answer is exact; otherwise the caller compares what is left.

use fixedbitset::FixedBitSet;
use smallvec::SmallVec;

/// The maximum number of thresholds of a column.
const THRESHOLDS: usize = 24;

/// Bitsets of bins by threshold, for each column.
#[derive(Clone, Debug, Default)]
pub(crate) struct RoomIndex {
    columns: Vec<Column>,
    /// Bins that were added.
    all: FixedBitSet,
}

#[derive(Clone, Debug)]
struct Column {
    index: usize,
    /// Distinct, ascending.
    thresholds: Vec<i64>,
    at_least: Vec<FixedBitSet>,
}

/// The sets that a request selects: threshold by column of [`RoomIndex`].
#[derive(Clone, Debug, Default)]
pub(crate) struct Query {
    levels: SmallVec<[(u32, u32); 4]>,
}

impl RoomIndex {
    /// An index without bins, with thresholds for given rows of requests.
    pub(crate) fn new<'r>(rows: impl Iterator<Item = &'r [i64]>, width: usize) -> Self {
        let mut asked: Vec<Vec<i64>> = vec![Vec::new(); width];
        for row in rows {
            for (amounts, &amount) in asked.iter_mut().zip(row) {
                if amount > 0 && amounts.last() != Some(&amount) {
                    amounts.push(amount);
                }
            }
        }
        let columns = asked.into_iter().enumerate().filter(|(_, amounts)| !amounts.is_empty());
        let columns = columns.map(|(index, mut amounts)| {
            amounts.sort_unstable();
            amounts.dedup();
            let n = amounts.len();
            let thresholds: Vec<i64> = if n <= THRESHOLDS {
                amounts
            } else {
                (0..THRESHOLDS).map(|step| amounts[step * n / THRESHOLDS]).collect()
            };
            let at_least = vec![FixedBitSet::new(); thresholds.len()];
            Column { index, thresholds, at_least }
        });
        Self { columns: columns.collect(), all: FixedBitSet::new() }
    }

    /// Adds a bin.
    pub(crate) fn insert(&mut self, bin: usize, room: &[i64]) {
        self.all.grow_and_insert(bin);
        for column in &mut self.columns {
            let reached = column.reached(room[column.index]);
            for set in &mut column.at_least[..reached] {
                set.grow_and_insert(bin);
            }
        }
    }

    /// Updates a bin after its room changed in one column.
    pub(crate) fn change(&mut self, bin: usize, index: usize, before: i64, after: i64) {
        if before == after {
            return;
        }
        let Some(column) = self.columns.iter_mut().find(|column| column.index == index) else {
            return;
        };
        let (before, after) = (column.reached(before), column.reached(after));
        for set in &mut column.at_least[after.min(before)..before] {
            set.set(bin, false);
        }
        for set in &mut column.at_least[before.min(after)..after] {
            set.grow_and_insert(bin);
        }
    }

    /// Updates a bin after its room changed.
    pub(crate) fn update(&mut self, bin: usize, before: &[i64], after: &[i64]) {
        for index in 0..after.len() {
            self.change(bin, index, before[index], after[index]);
        }
    }

    /// The query for a request.
    pub(crate) fn query(&self, request: &[i64]) -> Query {
        let levels = self.columns.iter().zip(0..).filter_map(|(column, at)| {
            let level = column.reached(request[column.index]).checked_sub(1)?;
            Some((at, u32::try_from(level).expect("few thresholds")))
        });
        Query { levels: levels.collect() }
    }

    /// The sets of a query, for [`first`].
    pub(crate) fn sets<'s>(&'s self, query: &Query) -> SmallVec<[&'s FixedBitSet; 8]> {
        let mut sets: SmallVec<[&FixedBitSet; 8]> = SmallVec::new();
        sets.push(&self.all);
        let chosen = query.levels.iter();
        sets.extend(chosen.map(|&(at, level)| &self.columns[at as usize].at_least[level as usize]));
        sets
    }
}

impl Column {
    /// The number of thresholds that an amount reaches.
    fn reached(&self, amount: i64) -> usize {
        self.thresholds.partition_point(|&threshold| threshold <= amount)
    }
}

/// The first bin from `from` on that is in all of some sets and in none of others.
pub(crate) fn first(all: &[&FixedBitSet], none: &[&FixedBitSet], from: usize) -> Option<usize> {
    const BITS: usize = usize::BITS as usize;
    let (head, rest) = all.split_first()?;
    let head = head.as_slice();
    let word = |set: &FixedBitSet, at: usize| set.as_slice().get(at).copied().unwrap_or(0);
    let mut mask = usize::MAX << (from % BITS);
    for (at, &start) in head.iter().enumerate().skip(from / BITS) {
        let mut bits = start & mask;
        mask = usize::MAX;
        for set in rest {
            if bits == 0 {
                break;
            }
            bits &= word(set, at);
        }
        for set in none {
            bits &= !word(set, at);
        }
        if bits != 0 {
            return Some(at * BITS + bits.trailing_zeros() as usize);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_bins_that_may_hold_a_request() {
        let requests: [&[i64]; 3] = [&[1, 0], &[4, 2], &[8, 0]];
        let mut rooms = RoomIndex::new(requests.into_iter(), 2);
        for (bin, room) in [[3, 9], [8, 1], [8, 9], [100, 100]].iter().enumerate() {
            rooms.insert(bin, room);
        }
        let find = |rooms: &RoomIndex, request: &[i64]| {
            let query = rooms.query(request);
            let sets = rooms.sets(&query);
            let (mut found, mut from): (Vec<usize>, usize) = (Vec::new(), 0);
            while let Some(bin) = first(&sets, &[], from) {
                found.push(bin);
                from = bin + 1;
            }
            found
        };
        assert_eq!(find(&rooms, &[1, 0]), [0, 1, 2, 3]);
        assert_eq!(find(&rooms, &[4, 2]), [2, 3]);
        assert_eq!(find(&rooms, &[8, 0]), [1, 2, 3]);
        rooms.update(3, &[100, 100], &[0, 100]);
        rooms.update(0, &[3, 9], &[4, 9]);
        assert_eq!(find(&rooms, &[4, 2]), [0, 2]);
        let excluded: FixedBitSet = [0].into_iter().collect();
        let query = rooms.query(&[4, 2]);
        assert_eq!(first(&rooms.sets(&query), &[&excluded], 0), Some(2));
        assert_eq!(first(&rooms.sets(&query), &[], 3), None);
    }
}
