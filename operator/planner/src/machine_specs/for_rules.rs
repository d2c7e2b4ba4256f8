//! What topology rules have found out about specs. It is kept with the specs, as it is keyed by
//! them and holds for whoever has them; [`crate::topology`] fills it in.

use std::sync::Arc;

use fixedbitset::FixedBitSet;
use rustc_hash::{FxHashMap, FxHashSet};

use super::SpecId;
use crate::intern::Key;
use crate::requirements::ValueSet;

/// Which spread constraints count pods on machines of which specs.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counted {
    pub(crate) by_catalog: FxHashMap<usize, Arc<ByType>>,
    /// By pool: the classes that tolerate its taints.
    pub(crate) tolerating: FxHashMap<usize, Arc<FixedBitSet>>,
    /// By what a spec tells of a label, if that is little: the terms that it does not certainly
    /// meet.
    pub(crate) unmet: FxHashMap<(Key, ValueSet, usize, FixedBitSet), Arc<FixedBitSet>>,
    /// By spec and the types there that hold a pod: the groups that count it.
    pub(crate) in_specs: FxHashMap<(SpecId, FixedBitSet), Arc<FixedBitSet>>,
    pub(crate) known: FxHashSet<Arc<FixedBitSet>>,
}

/// What the types of a catalog say of the terms that are honored.
#[derive(Clone, Debug)]
pub(crate) struct ByType {
    /// By type: the terms that it meets, with `indifferent`.
    pub(crate) met: Vec<FixedBitSet>,
    /// The terms that ask for no labels of types.
    pub(crate) indifferent: FixedBitSet,
    /// The labels that markets have.
    pub(crate) on_markets: FxHashSet<Key>,
    /// The labels of which each type has one value: a type that meets both a spec and a term has
    /// one that both admit.
    pub(crate) decided: FxHashSet<Key>,
}

/// Of which templates a machine could be launched for some pod.
#[derive(Clone, Debug, Default)]
pub(crate) struct Expected {
    /// The shapes of pods, once somebody has asked.
    pub(crate) shapes: Option<Vec<usize>>,
    /// By template, and a label that no rule of the pods is about.
    pub(crate) known: FxHashMap<(usize, Option<Key>), bool>,
    pub(crate) questions: usize,
}
