//! Which instance types hold an amount: per column a ladder of the amounts that types have, and on
//! each rung the types that have at least so much.
//!
//! Narrowing a set of types to those that hold some pods is then one intersection of bitsets per
//! column that the pods use, whatever the number of types.

use fixedbitset::FixedBitSet;

/// The ladders of one NodePool's types.
#[derive(Debug)]
pub(crate) struct Fitting {
    columns: Vec<Ladder>,
}

#[derive(Debug, Default)]
struct Ladder {
    /// Distinct, ascending.
    amounts: Vec<i64>,
    /// By rung: the types with at least this amount.
    at_least: Vec<FixedBitSet>,
    /// Types, those with the most first.
    descending: Vec<u32>,
}

impl Fitting {
    /// From rows of `width` amounts, one per type, for the types of a set.
    pub(super) fn new(types: &FixedBitSet, rows: &[i64], width: usize) -> Self {
        let columns =
            (0..width).map(|column| Ladder::new(types, |kind| rows[kind * width + column]));
        Self { columns: columns.collect() }
    }

    /// Keeps the types that have at least `used` of every resource.
    pub(crate) fn keep(&self, types: &mut FixedBitSet, used: &[i64]) {
        for (ladder, &amount) in self.columns.iter().zip(used) {
            if amount > 0 {
                match ladder.at_least.get(ladder.rung(amount)) {
                    Some(enough) => types.intersect_with(enough),
                    None => types.clear(),
                }
            }
        }
    }

    /// The largest amount in a column among the types of a set.
    pub(crate) fn most(&self, types: &FixedBitSet, column: usize) -> i64 {
        let ladder = &self.columns[column];
        let largest = ladder.descending.iter().find(|&&kind| types[kind as usize]);
        let Some(&largest) = largest else { return 0 };
        // The last rung that the type stands on.
        let at = ladder.at_least.partition_point(|enough| enough[largest as usize]);
        ladder.amounts[at - 1]
    }
}

impl Ladder {
    fn new(types: &FixedBitSet, amount: impl Fn(usize) -> i64) -> Self {
        let mut descending: Vec<usize> = types.ones().collect();
        descending.sort_by_key(|&kind| (std::cmp::Reverse(amount(kind)), kind));
        let mut ladder = Self::default();
        let mut reached = FixedBitSet::with_capacity(types.len());
        for (index, &kind) in descending.iter().enumerate() {
            reached.insert(kind);
            let here = amount(kind);
            let last = descending.get(index + 1).is_none_or(|&next| amount(next) != here);
            if last {
                ladder.amounts.push(here);
                ladder.at_least.push(reached.clone());
            }
        }
        ladder.amounts.reverse();
        ladder.at_least.reverse();
        let narrow = |kind| u32::try_from(kind).expect("instance types are fewer than 2^32");
        ladder.descending = descending.into_iter().map(narrow).collect();
        ladder
    }

    /// The first rung with at least so much.
    fn rung(&self, amount: i64) -> usize {
        self.amounts.partition_point(|&have| have < amount)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_the_types_that_hold_an_amount_and_knows_the_largest() {
        // Three types, two columns.
        let rows = [2, 8, 4, 8, 8, 1];
        let all: FixedBitSet = (0..3).collect();
        let fitting = Fitting::new(&all, &rows, 2);
        for (used, expected) in [
            ([0, 0], vec![0, 1, 2]),
            ([3, 0], vec![1, 2]),
            ([4, 2], vec![1]),
            ([0, 8], vec![0, 1]),
            ([9, 0], vec![]),
            ([5, 5], vec![]),
        ] {
            let mut types = all.clone();
            fitting.keep(&mut types, &used);
            assert_eq!(types.ones().collect::<Vec<_>>(), expected, "{used:?}");
        }
        assert_eq!(fitting.most(&all, 0), 8);
        assert_eq!(fitting.most(&[0, 1].into_iter().collect(), 0), 4);
        assert_eq!(fitting.most(&[2].into_iter().collect(), 1), 1);
    }
}
