//! Sets of dense ids, such as those of shapes or hosts: a sorted list while they are few, bits when
//! there are many.
//!
//! Most of thousands of such sets have a few members of thousands that are possible, but nobody
//! promises that. Bits alone would take as much room for each set, lists alone 32 times as much for
//! a full one.

mod inverse;

use fixedbitset::FixedBitSet;
use smallvec::SmallVec;

pub(crate) use inverse::inverse;

/// A list or bits, whichever is shorter.
#[derive(Clone, Debug, Default)]
pub(crate) struct IdSet {
    /// Ascending; empty as soon as there are bits.
    few: SmallVec<[u32; 4]>,
    many: FixedBitSet,
}

impl IdSet {
    /// Adds an id.
    pub(crate) fn insert(&mut self, id: usize) {
        if !self.many.is_empty() {
            self.many.grow_and_insert(id);
            return;
        }
        let id = u32::try_from(id).expect("fewer ids than fit into memory");
        if let Err(at) = self.few.binary_search(&id) {
            self.few.insert(at, id);
            if self.is_long() {
                self.many = std::mem::take(&mut self.few).iter().map(|&id| id as usize).collect();
            }
        }
    }

    /// Whether bits take less room than the list.
    fn is_long(&self) -> bool {
        self.few.spilled()
            && self.few.last().is_some_and(|&last| self.few.len() > last as usize / 32)
    }

    /// Removes an id.
    pub(crate) fn remove(&mut self, id: usize) {
        if self.many.contains(id) {
            self.many.remove(id);
        } else if let Ok(at) = self.few.binary_search_by(|&other| (other as usize).cmp(&id)) {
            self.few.remove(at);
        }
    }

    /// Whether it contains an id.
    pub(crate) fn contains(&self, id: usize) -> bool {
        self.many.contains(id)
            || self.few.binary_search_by(|&other| (other as usize).cmp(&id)).is_ok()
    }

    /// How many ids it contains.
    pub(crate) fn len(&self) -> usize {
        self.few.len() + self.many.count_ones(..)
    }

    /// Whether it is empty.
    pub(crate) fn is_empty(&self) -> bool {
        self.iter().next().is_none()
    }

    /// Its ids, ascending.
    pub(crate) fn iter(&self) -> impl Iterator<Item = usize> {
        self.few.iter().map(|&id| id as usize).chain(self.many.ones())
    }

    /// The ids that are in both, ascending.
    pub(crate) fn common<'s>(&'s self, other: &'s Self) -> impl Iterator<Item = usize> + 's {
        let (short, long) = if self.many.is_empty() { (self, other) } else { (other, self) };
        let few = short.few.iter().map(|&id| id as usize).filter(|&id| long.contains(id));
        few.chain(short.many.intersection(&long.many))
    }

    /// Makes a set of bits that of the ids that are in both.
    pub(crate) fn common_to(&self, other: &Self, bits: &mut FixedBitSet) {
        bits.clear();
        if self.many.is_empty() || other.many.is_empty() {
            self.common(other).for_each(|id| bits.grow_and_insert(id));
        } else {
            bits.union_with(&self.many);
            bits.intersect_with(&other.many);
        }
    }

    /// Adds its ids to a set of bits.
    pub(crate) fn add_to(&self, bits: &mut FixedBitSet) {
        bits.union_with(&self.many);
        if let Some(&last) = self.few.last() {
            bits.grow(last as usize + 1);
        }
        for &id in &self.few {
            bits.insert(id as usize);
        }
    }

    /// Removes its ids from a set of bits.
    pub(crate) fn take_from(&self, bits: &mut FixedBitSet) {
        bits.difference_with(&self.many);
        for id in self.few.iter().map(|&id| id as usize) {
            if bits.contains(id) {
                bits.remove(id);
            }
        }
    }
}

impl From<FixedBitSet> for IdSet {
    fn from(bits: FixedBitSet) -> Self {
        let Some(last) = bits.maximum() else { return Self::default() };
        let n = bits.count_ones(..);
        if n <= Self::default().few.inline_size() || n <= last / 32 {
            let few = bits.ones().map(|id| u32::try_from(id).expect("ids fit into 32 bits"));
            return Self { few: few.collect(), many: FixedBitSet::new() };
        }
        let mut many = FixedBitSet::with_capacity(last + 1);
        let words = many.as_mut_slice();
        let n_words = words.len();
        words.copy_from_slice(&bits.as_slice()[..n_words]);
        Self { few: SmallVec::new(), many }
    }
}

impl FromIterator<usize> for IdSet {
    fn from_iter<I: IntoIterator<Item = usize>>(ids: I) -> Self {
        let mut set = Self::default();
        ids.into_iter().for_each(|id| set.insert(id));
        set
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn has_what_was_put_in_and_not_taken_out(
            changes in prop::collection::vec((any::<bool>(), 0..300_usize), 0..200),
        ) {
            let (mut set, mut model) = (IdSet::default(), BTreeSet::new());
            for (comes, id) in changes {
                if comes {
                    set.insert(id);
                    model.insert(id);
                } else {
                    set.remove(id);
                    model.remove(&id);
                }
                prop_assert_eq!(set.contains(id), comes);
            }
            let ids: Vec<usize> = model.iter().copied().collect();
            prop_assert_eq!(set.is_empty(), ids.is_empty());
            prop_assert_eq!(set.len(), ids.len());
            prop_assert_eq!(set.iter().collect::<Vec<_>>(), ids.clone());
            let mut bits = FixedBitSet::new();
            set.add_to(&mut bits);
            prop_assert_eq!(bits.ones().collect::<Vec<_>>(), ids);
            for other in [IdSet::from_iter([7, 150, 1000]), (100..200).collect()] {
                let common: Vec<usize> = other.iter().filter(|id| model.contains(id)).collect();
                prop_assert_eq!(set.common(&other).collect::<Vec<_>>(), common.clone());
                prop_assert_eq!(other.common(&set).collect::<Vec<_>>(), common.clone());
                let mut bits: FixedBitSet = (0..50).collect();
                set.common_to(&other, &mut bits);
                prop_assert_eq!(bits.ones().collect::<Vec<_>>(), common);
            }
            let mut others: FixedBitSet = (0..200).collect();
            set.take_from(&mut others);
            let left: Vec<usize> = (0..200).filter(|id| !model.contains(id)).collect();
            prop_assert_eq!(others.ones().collect::<Vec<_>>(), left);
        }
    }

    #[test]
    fn takes_no_more_room_than_bits() {
        let full: IdSet = (0..10_000).collect();
        assert!(full.few.is_empty());
        assert!(full.many.as_slice().len() * usize::BITS as usize <= 2 * 10_000);
        let sparse: IdSet = (0..10).map(|id| id * 1000).collect();
        assert!(sparse.many.is_empty());
    }
}
