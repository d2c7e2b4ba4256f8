//! Interns names as dense ids, once per plan.
//!
//! Label keys and values are compared millions of times in one plan and printed a few times:
//! inside, they are indices. Ids are given in the order of first use, which the snapshot's own
//! order fixes, so that they are the same in every run.

use indexmap::IndexSet;
use rustc_hash::FxBuildHasher;

/// Id of a label key, dense from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Key(pub(crate) u32);

/// Id of a label value, dense from 0; all keys share the ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Value(pub(crate) u32);

impl Key {
    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

/// The label keys and values of one plan.
#[derive(Clone, Debug, Default)]
pub(crate) struct Symbols {
    keys: IndexSet<String, FxBuildHasher>,
    values: IndexSet<String, FxBuildHasher>,
    integers: Vec<Option<i64>>,
}

impl Symbols {
    /// The id of a key, given on first use.
    pub(crate) fn key(&mut self, name: &str) -> Key {
        Key(intern(&mut self.keys, name))
    }

    /// The id of a value, given on first use.
    pub(crate) fn value(&mut self, name: &str) -> Value {
        let id = intern(&mut self.values, name);
        if id as usize == self.integers.len() {
            self.integers.push(name.parse().ok());
        }
        Value(id)
    }

    /// The id of a key, if it was used.
    pub(crate) fn find_key(&self, name: &str) -> Option<Key> {
        self.keys.get_index_of(name).map(|index| Key(narrow(index)))
    }

    /// The id of a value, if it was used.
    #[cfg(test)]
    pub(crate) fn find_value(&self, name: &str) -> Option<Value> {
        self.values.get_index_of(name).map(|index| Value(narrow(index)))
    }

    /// A key's name.
    pub(crate) fn key_name(&self, key: Key) -> &str {
        &self.keys[key.index()]
    }

    /// A value's name.
    pub(crate) fn value_name(&self, value: Value) -> &str {
        &self.values[value.0 as usize]
    }

    /// A value as an integer, if it is one.
    pub(crate) fn integer(&self, value: Value) -> Option<i64> {
        self.integers[value.0 as usize]
    }

    /// The number of keys.
    pub(crate) fn n_keys(&self) -> usize {
        self.keys.len()
    }
}

fn intern(set: &mut IndexSet<String, FxBuildHasher>, name: &str) -> u32 {
    narrow(set.get_index_of(name).unwrap_or_else(|| set.insert_full(name.to_owned()).0))
}

fn narrow(index: usize) -> u32 {
    u32::try_from(index)
        .expect("a snapshot with four thousand million names does not fit into memory")
}
