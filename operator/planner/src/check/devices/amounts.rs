//! How much devices have, and how much is taken of it.

use std::collections::BTreeMap;

use crate::snapshot::{DeviceAsk, DeviceKind};

/// What an ask gets of a device that is shared.
pub(super) fn due(kind: &DeviceKind, ask: &DeviceAsk) -> BTreeMap<String, i64> {
    if !kind.shared || ask.admin {
        return BTreeMap::new();
    }
    let dimensions = kind.capacity.iter();
    dimensions
        .map(|(name, capacity)| {
            (name.clone(), capacity.grant(ask.capacity.get(name).copied()).unwrap_or(i64::MAX))
        })
        .collect()
}

/// Whether devices of these kinds draw no more on the counters than there is.
pub(super) fn within<'k>(
    counters: &BTreeMap<String, BTreeMap<String, i64>>,
    kinds: impl Iterator<Item = &'k DeviceKind>,
) -> bool {
    let mut drawn: BTreeMap<(&str, &str), i64> = BTreeMap::new();
    for (set, counter, amount) in kinds.flat_map(|kind| &kind.consumes) {
        *drawn.entry((set, counter)).or_default() += amount;
    }
    drawn.iter().all(|((set, counter), amount)| {
        let there = counters.get(*set).and_then(|set| set.get(*counter));
        there.is_some_and(|there| amount <= there)
    })
}
