//! Which sets have a member, worked out from the members of all sets.
//!
//! Thousands of rules may select nearly all of thousands of pods. Long sets are bits, so that they
//! are the rows of a matrix that is transposed 64 × 64 bits at a time.

use fixedbitset::FixedBitSet;

use super::IdSet;

const BITS: usize = usize::BITS as usize;

/// For each of `n` members the ids of the sets that have it.
pub(crate) fn inverse<'s>(sets: impl Iterator<Item = (usize, &'s IdSet)>, n: usize) -> Vec<IdSet> {
    let mut found = vec![IdSet::default(); n];
    // By id, as far as some set with that id and the following ones is long.
    let mut blocks: Vec<(usize, [&[usize]; BITS])> = Vec::new();
    for (id, set) in sets {
        set.few.iter().for_each(|&member| found[member as usize].insert(id));
        if set.many.is_empty() {
            continue;
        }
        if blocks.last().is_none_or(|&(block, _)| block != id / BITS) {
            blocks.push((id / BITS, [&[]; BITS]));
        }
        let (_, rows) = blocks.last_mut().expect("it was just added");
        rows[id % BITS] = set.many.as_slice();
    }
    let Some(&(last, _)) = blocks.last() else { return found };
    let mut columns = vec![0; BITS * (last + 1)];
    for (at, members) in found.chunks_mut(BITS).enumerate() {
        columns.fill(0);
        for (block, rows) in &blocks {
            let mut square = [0; BITS];
            for (word, row) in square.iter_mut().zip(rows) {
                *word = row.get(at).copied().unwrap_or(0);
            }
            transpose(&mut square);
            for (member, &word) in square.iter().enumerate() {
                columns[member * (last + 1) + block] = word;
            }
        }
        for (member, column) in members.iter_mut().zip(columns.chunks(last + 1)) {
            let mut bits = FixedBitSet::with_capacity(column.len() * BITS);
            bits.as_mut_slice().copy_from_slice(column);
            member.add_to(&mut bits);
            *member = IdSet::from(bits);
        }
    }
    found
}

/// Bit `i` of word `j` becomes bit `j` of word `i`.
fn transpose(square: &mut [usize; BITS]) {
    let (mut half, mut mask) = (BITS / 2, usize::MAX >> (BITS / 2));
    while half > 0 {
        for at in (0..BITS).filter(|at| at & half == 0) {
            let swapped = (square[at] >> half ^ square[at | half]) & mask;
            square[at] ^= swapped << half;
            square[at | half] ^= swapped;
        }
        half /= 2;
        mask ^= mask << half;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_member_has_the_sets_that_have_it(
            sets in prop::collection::vec(
                (1..40_usize, prop::collection::btree_set(0..200_usize, 0..150)),
                0..90,
            ),
        ) {
            let mut id = 0;
            let sets: Vec<(usize, IdSet)> = sets
                .into_iter()
                .map(|(step, members)| {
                    id += step;
                    (id, members.into_iter().collect())
                })
                .collect();
            let found = inverse(sets.iter().map(|(id, set)| (*id, set)), 200);
            for (member, found) in found.iter().enumerate() {
                let having = sets.iter().filter(|(_, set)| set.contains(member));
                prop_assert_eq!(
                    found.iter().collect::<Vec<_>>(),
                    having.map(|&(id, _)| id).collect::<Vec<_>>()
                );
            }
        }
    }
}
