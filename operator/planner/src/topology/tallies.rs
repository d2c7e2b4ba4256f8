//! Tallies of pods in one domain, for all groups of rules at once.
//!
//! Whoever may create pods may write thousands of rules that select nearly everybody. So tallies
//! stand upright: plane 0 has the lowest bit of each group's tally, plane 1 the next, and a pod is
//! counted for 64 groups by binary addition of words.

use fixedbitset::FixedBitSet;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::id_set::IdSet;

/// Pods in one domain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    /// That the group's selector selects.
    pub(super) selected: u32,
    /// That carry the rule; only counted for anti-affinity.
    pub(super) carrying: u32,
}

/// The pods in a domain that is a value.
#[derive(Clone, Debug, Default)]
pub(super) struct Domain {
    /// By group: those that its selector selects.
    pub(super) selected: Tallies,
    /// By group of anti-affinity: those that carry its rule.
    carrying: FxHashMap<usize, u32>,
    /// The groups that have an entry there.
    pub(super) closing: IdSet,
}

impl Domain {
    /// The tally of a group.
    pub(super) fn of(&self, group: usize) -> Tally {
        let carrying = self.carrying.get(&group).copied().unwrap_or(0);
        Tally { selected: self.selected.of(group), carrying }
    }

    /// Counts pods that carry the rule of a group of anti-affinity in, or out (negative).
    pub(super) fn carry(&mut self, group: usize, by: i32) {
        let carrying = self.carrying.entry(group).or_default();
        *carrying = carrying.saturating_add_signed(by);
        if *carrying == 0 {
            self.carrying.remove(&group);
            self.closing.remove(group);
        } else {
            self.closing.insert(group);
        }
    }
}

/// A number for each group, see the module.
#[derive(Clone, Debug, Default)]
pub(super) struct Tallies {
    /// Words per plane.
    width: usize,
    /// One plane after the other, the lowest first.
    words: Vec<usize>,
}

const BITS: usize = usize::BITS as usize;

impl Tallies {
    /// The tally of a group.
    pub(super) fn of(&self, group: usize) -> u32 {
        let (at, bit) = (group / BITS, group % BITS);
        if at >= self.width {
            return 0;
        }
        let (mut number, mut plane, mut word) = (0_u64, 0, at);
        while let Some(&bits) = self.words.get(word) {
            number |= ((bits >> bit & 1) as u64) << plane;
            (plane, word) = (plane + 1, word + self.width);
        }
        u32::try_from(number).unwrap_or(u32::MAX)
    }

    /// Adds to the tallies of some groups, or takes off (negative), down to 0.
    pub(super) fn change(&mut self, groups: &FixedBitSet, by: i32) {
        let groups = groups.as_slice();
        self.widen(groups.len());
        let n = by.unsigned_abs();
        // Of all groups at once, plane by plane, so that the loops become vector instructions.
        let mut carry: SmallVec<[usize; 16]> = SmallVec::new();
        for bit in (0..u32::BITS as usize).filter(|bit| n >> bit & 1 == 1) {
            carry.clear();
            carry.extend_from_slice(groups);
            if by > 0 {
                self.add(bit, &mut carry);
            } else {
                self.take(bit, &mut carry);
            }
        }
    }

    /// Adds to a plane, and what is carried to those above.
    fn add(&mut self, mut plane: usize, carry: &mut [usize]) {
        let mut left = carry.iter().fold(0, |all, word| all | word);
        while left != 0 {
            let start = plane * self.width;
            if start >= self.words.len() {
                self.words.resize(start + self.width, 0);
            }
            left = 0;
            for (word, carry) in self.words[start..].iter_mut().zip(&mut *carry) {
                (*word, *carry) = (*word ^ *carry, *word & *carry);
                left |= *carry;
            }
            plane += 1;
        }
    }

    /// Takes from a plane, and what is borrowed from those above.
    fn take(&mut self, plane: usize, borrow: &mut [usize]) {
        for plane in self.words.chunks_mut(self.width.max(1)).skip(plane) {
            let mut left = 0;
            for (word, borrow) in plane.iter_mut().zip(&mut *borrow) {
                (*word, *borrow) = (*word ^ *borrow, !*word & *borrow);
                left |= *borrow;
            }
            if left == 0 {
                return;
            }
        }
        // More than there was.
        for plane in self.words.chunks_mut(self.width.max(1)) {
            plane.iter_mut().zip(&*borrow).for_each(|(word, borrow)| *word &= !borrow);
        }
    }

    /// Makes room for groups of so many words.
    fn widen(&mut self, width: usize) {
        if width <= self.width {
            return;
        }
        let mut words = Vec::with_capacity(self.words.len() / self.width.max(1) * width);
        for plane in self.words.chunks(self.width.max(1)) {
            words.extend_from_slice(plane);
            words.resize(words.len() + width - self.width, 0);
        }
        (self.width, self.words) = (width, words);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn are_what_was_added_and_not_taken_off(
            changes in prop::collection::vec(
                (prop::collection::vec(0..200_usize, 0..40), -70..90_i32),
                0..40,
            ),
        ) {
            let (mut tallies, mut model) = (Tallies::default(), vec![0_u32; 200]);
            for (groups, by) in changes {
                let groups: FixedBitSet = groups.into_iter().collect();
                tallies.change(&groups, by);
                for group in groups.ones() {
                    model[group] = model[group].saturating_add_signed(by);
                }
                let found: Vec<u32> = (0..200).map(|group| tallies.of(group)).collect();
                prop_assert_eq!(&found, &model);
            }
        }
    }

    #[test]
    fn a_domain_is_closed_while_it_has_a_pod_that_closes_it() {
        let mut domain = Domain::default();
        domain.carry(7, 2);
        domain.carry(7, -1);
        assert_eq!(domain.of(7), Tally { selected: 0, carrying: 1 });
        assert_eq!(domain.closing.iter().collect::<Vec<_>>(), [7]);
        domain.carry(7, -1);
        assert!(domain.closing.is_empty());
        assert_eq!(domain.of(7), Tally::default());
    }
}
