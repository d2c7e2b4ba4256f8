//! The values that machines of a spec can have for a label.

use std::collections::BTreeSet;

use super::{MachineSpecs, SpecId};
use crate::intern::{Key, Value};
use crate::requirements::ValueSet;
use crate::tables::Tables;
use crate::tables::types::NOT_FOR_SALE;

/// The values of a label that machines of a spec can have.
pub(super) fn spec_values(
    tables: &Tables<'_>,
    specs: &MachineSpecs,
    id: SpecId,
    key: Key,
) -> Vec<Value> {
    let spec = &specs[id];
    let table = &tables.catalogs[tables.templates[spec.template].catalog];
    if !table.keys.contains(&key) && spec.requirements.get(key).is_none() {
        return Vec::new();
    }
    let admitted = |value: &&Value| {
        spec.requirements.get(key).is_none_or(|set| set.has(**value, &tables.symbols))
    };
    let mut values = BTreeSet::new();
    for market in spec.markets.ones() {
        let listed = table.markets[market].requirements.get(key).and_then(ValueSet::listed);
        let Some(listed) = listed else { continue };
        if spec.types.ones().any(|kind| table.prices(kind)[market] != NOT_FOR_SALE) {
            values.extend(listed.iter().filter(admitted));
        }
    }
    if values.is_empty() {
        for kind in spec.types.ones() {
            let listed = table.requirements[kind].get(key).and_then(ValueSet::listed);
            values.extend(listed.into_iter().flatten().filter(admitted));
        }
    }
    if values.is_empty() {
        let listed = spec.requirements.get(key).and_then(ValueSet::listed);
        values.extend(listed.into_iter().flatten());
    }
    values.into_iter().collect()
}
