//! Whether machines to come of a spec have a label, and are ones that pods of a class could use.

use fixedbitset::FixedBitSet;

use crate::intern::Key;
use crate::machine_specs::{MachineSpec, MachineSpecs, SpecId};
use crate::requirements::overlap;
use crate::snapshot::Operator;
use crate::tables::Tables;
use crate::tables::shapes::ClassId;

/// Whether pods on a machine to come count, as far as node affinity is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    Counts,
    DoesNot,
    /// It depends on what the machine becomes.
    Open,
}

/// Where pods of a shape are to be counted: on machines of a spec.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) spec: SpecId,
    shape: usize,
    /// The spec's types that hold one, once somebody has asked.
    types: Option<FixedBitSet>,
}

impl Place {
    pub(super) fn new(spec: SpecId, shape: usize) -> Self {
        Self { spec, shape, types: None }
    }

    /// The spec's types that hold a pod.
    pub(super) fn types(&mut self, tables: &Tables<'_>, specs: &MachineSpecs) -> &FixedBitSet {
        self.types.get_or_insert_with(|| {
            let spec = &specs[self.spec];
            let mut types = spec.types.clone();
            let fitting = &tables.templates[spec.template].fitting;
            fitting.keep(&mut types, &tables.shapes[self.shape].requests);
            types
        })
    }

    /// Whether a machine there is one that pods of a class could use: it meets one of the terms
    /// that they require.
    pub(super) fn standing(
        &mut self,
        tables: &Tables<'_>,
        specs: &mut MachineSpecs,
        class: ClassId,
    ) -> Standing {
        let mut all = Standing::DoesNot;
        for term in 0..tables.classes[class].required.len() {
            match self.meets(tables, specs, class, term) {
                Standing::Counts => return Standing::Counts,
                Standing::Open => all = Standing::Open,
                Standing::DoesNot => {}
            }
        }
        all
    }

    /// Whether a machine there has a label.
    pub(super) fn has(
        &mut self,
        tables: &Tables<'_>,
        specs: &mut MachineSpecs,
        key: Key,
    ) -> Standing {
        let spec = self.spec;
        has_label(tables, specs, spec, self.types(tables, specs), key)
    }

    fn meets(
        &mut self,
        tables: &Tables<'_>,
        specs: &mut MachineSpecs,
        class: ClassId,
        term: usize,
    ) -> Standing {
        let symbols = &tables.symbols;
        let required = &tables.classes[class].required[term];
        if specs.compatible(tables, self.spec, required).is_err() {
            return Standing::DoesNot;
        }
        let spec = &specs[self.spec];
        let template = &tables.templates[spec.template];
        let table = &tables.catalogs[template.catalog];
        let (mut of_types, mut is_open) = (false, false);
        for (key, wanted) in required.iter() {
            let of_type = table.keys.contains(&key);
            of_types |= of_type;
            let told = spec.requirements.get(key);
            if told.is_some_and(|told| told.entails(wanted, symbols)) {
                continue;
            }
            if !of_type {
                // Without the label, or with a value that is still to be chosen. That pods do
                // without it does not define it.
                is_open |= template.requirements.get(key).is_some();
                continue;
            }
            let of_market = |market: usize| table.markets[market].requirements.get(key);
            let mut met = spec
                .markets
                .ones()
                .map(|market| of_market(market).is_none_or(|have| overlap(have, wanted, symbols)));
            let first = met.next();
            is_open |= met.any(|met| Some(met) != first);
            if first == Some(false) && !is_open {
                return Standing::DoesNot;
            }
        }
        if of_types {
            let catalog = template.catalog;
            let types = self.types(tables, specs);
            let meeting = specs.meeting(tables, catalog, class, term);
            if meeting.is_disjoint(types) {
                return Standing::DoesNot;
            }
            is_open |= !types.is_subset(meeting);
        }
        if is_open { Standing::Open } else { Standing::Counts }
    }
}

/// Whether machines of a spec get a label that no instance type has: their NodePool defines it, and
/// no pod keeps it away.
pub(super) fn is_labelled(tables: &Tables<'_>, spec: &MachineSpec, key: Key) -> bool {
    tables.templates[spec.template].requirements.get(key).is_some()
        && spec.requirements.get(key).is_some_and(|set| set.operator() != Operator::DoesNotExist)
}

/// Whether a machine of a spec has a label, which is one of some types.
pub(super) fn has_label(
    tables: &Tables<'_>,
    specs: &mut MachineSpecs,
    id: SpecId,
    types: &FixedBitSet,
    key: Key,
) -> Standing {
    let spec = &specs[id];
    let catalog = tables.templates[spec.template].catalog;
    let table = &tables.catalogs[catalog];
    let certainly = |has| if has { Standing::Counts } else { Standing::DoesNot };
    if !table.keys.contains(&key) {
        return certainly(is_labelled(tables, spec, key));
    }
    let of_market = |market: usize| table.markets[market].requirements.get(key).is_some();
    if spec.markets.ones().all(of_market) {
        return Standing::Counts;
    }
    let of_some = spec.markets.ones().any(of_market);
    let labelled = specs.labelled(tables, catalog, key);
    if types.is_subset(&labelled) {
        Standing::Counts
    } else if of_some || !types.is_disjoint(&labelled) {
        Standing::Open
    } else {
        Standing::DoesNot
    }
}
