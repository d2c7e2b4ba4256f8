//! The alternatives of a pod: one of its required terms, at most one of its preferences, one of the
//! places of its volumes. There may be very many, so they are numbered in the order in which they
//! are tried, and generated lazily.

use std::borrow::Cow;

use super::taints::Preferred;
use crate::intern::{Key, Symbols};
use crate::policy::{Policy, PreferencePolicy};
use crate::requirements::Requirements;
use crate::snapshot::PodShape;

/// The maximum number of alternatives that preferences add to one pod; the heaviest always counts,
/// the lighter ones beyond the limit count as dropped.
const PREFERRED: usize = 256;

/// The number of required terms × places of volumes that are tried for each pod regardless of other
/// pods, and the maximum for one pod.
const LEAST: usize = 16;
const MOST: usize = 4096;

/// The limit on alternatives × NodePools for all pods with more than [`LEAST`] together; this many
/// machines count as one NodePool.
const BUDGET: usize = 200_000;
const MACHINES: usize = 16;

/// One alternative.
#[derive(Clone, Debug)]
pub(crate) struct Variant<'v> {
    /// Selector, one required term, at most one preference, one alternative of the volumes.
    pub(crate) requirements: Cow<'v, Requirements>,
    /// Whether PreferNoSchedule taints count.
    pub(crate) preferred_taints: Preferred,
}

/// All alternatives in the order in which they are tried: more preferences first, then the earlier
/// required term.
///
/// Karpenter enforces one preference at a time, the heaviest, and drops it when that fails; a term
/// that it has dropped it does not try again. Trying every term for every preference finds a place
/// whenever Karpenter does.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Variants {
    selector: Requirements,
    /// Never empty.
    terms: Vec<Requirements>,
    /// By weight, the heaviest first.
    preferences: Vec<Requirements>,
    /// Never empty.
    volumes: Vec<Requirements>,
    /// Whether there are PreferNoSchedule taints, which the last alternatives ignore.
    soft_taints: bool,
    /// The number of terms × places of volumes that are tried.
    base: usize,
    /// The first alternative, cached because it is used most often.
    first: Requirements,
}

impl Variants {
    pub(super) fn new(
        shape: &PodShape,
        policy: &Policy,
        soft_taints: bool,
        symbols: &mut Symbols,
    ) -> Self {
        let selector = Requirements::from_labels(&shape.node_selector, symbols);
        let mut preferences = Vec::new();
        if policy.preferences == PreferencePolicy::Respect {
            let mut sorted: Vec<_> = shape.preferred_affinity.iter().collect();
            sorted.sort_by_key(|(weight, _)| std::cmp::Reverse(*weight));
            preferences.extend(sorted.iter().map(|(_, term)| Requirements::new(term, symbols)));
        }
        let mut alternatives = |terms: &[Vec<crate::snapshot::Requirement>]| -> Vec<Requirements> {
            if terms.is_empty() {
                return vec![Requirements::default()];
            }
            terms.iter().map(|term| Requirements::new(term, symbols)).collect()
        };
        let terms = alternatives(&shape.required_affinity);
        let volumes = alternatives(&shape.volume_topology);
        let base = terms.len().saturating_mul(volumes.len()).min(MOST);
        preferences.truncate((PREFERRED / base).max(1));
        let first = Requirements::default();
        let mut all = Self { selector, terms, preferences, volumes, soft_taints, base, first };
        all.first = all.make(0, symbols);
        all
    }

    /// The number of alternatives.
    pub(crate) fn len(&self) -> usize {
        self.base * (self.preferences.len() + 1 + usize::from(self.soft_taints))
    }

    /// The alternatives without a preference that respect PreferNoSchedule taints.
    pub(crate) fn plain(&self) -> std::ops::Range<usize> {
        let from = self.base * self.preferences.len();
        from..from + self.base
    }

    /// Those with the heaviest preference; the plain ones where there is none.
    pub(crate) fn best(&self) -> std::ops::Range<usize> {
        0..self.base
    }

    /// The weakest alternatives: without preferences, and with PreferNoSchedule taints ignored.
    pub(crate) fn relaxed(&self) -> std::ops::Range<usize> {
        self.len() - self.base..self.len()
    }

    /// The alternative with a number.
    pub(crate) fn at(&self, index: usize, symbols: &Symbols) -> Variant<'_> {
        let ignored = index / self.base > self.preferences.len();
        let preferred_taints = if ignored { Preferred::Ignored } else { Preferred::Counts };
        let requirements = match index {
            0 => Cow::Borrowed(&self.first),
            _ => Cow::Owned(self.make(index, symbols)),
        };
        Variant { requirements, preferred_taints }
    }

    fn make(&self, index: usize, symbols: &Symbols) -> Requirements {
        let (level, rest) = (index / self.base, index % self.base);
        let (term, volume) = (rest / self.volumes.len(), rest % self.volumes.len());
        let mut requirements = self.selector.clone();
        requirements.extend(&self.terms[term], symbols);
        if let Some(preference) = self.preferences.get(level) {
            requirements.extend(preference, symbols);
        }
        requirements.extend(&self.volumes[volume], symbols);
        requirements
    }

    /// The labels that the alternatives refer to, possibly with duplicates.
    pub(super) fn keys(&self) -> impl Iterator<Item = Key> {
        let parts = self.terms.iter().chain(&self.preferences).chain(&self.volumes);
        parts.chain([&self.selector]).flat_map(|part| part.iter().map(|(key, _)| key))
    }

    /// Leaves each of `variants` as many alternatives as may be tried in all on so many NodePools
    /// and machines.
    pub(super) fn share<'v>(
        variants: impl Iterator<Item = &'v mut Self>,
        pools: usize,
        machines: usize,
    ) {
        let mut many: Vec<_> = variants.filter(|variants| variants.base > LEAST).collect();
        let all = BUDGET / (many.len() * (pools + machines / MACHINES)).max(1);
        for variants in &mut many {
            variants.base = variants.base.min(all.max(LEAST));
        }
    }
}
