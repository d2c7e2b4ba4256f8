//! Which machines to come count for spread that honours node affinity.
//!
//! Such a constraint counts pods only on nodes that the pods which carry it could use. Whether a
//! machine to come is one may depend on the type that it becomes: of eight cores or more, say. What
//! the plan counts is what will be, so a machine that gets pods which the constraint selects, but
//! of others, is narrowed until either all of its types count or none does, whichever is cheaper.

use fixedbitset::FixedBitSet;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use super::Rules;
use super::Topology;
use super::families::{About, Counting};
use crate::id_set::IdSet;
use crate::intern::{Key, Symbols};
use crate::machine_specs::{MachineSpec, MachineSpecs, SpecId};
use crate::requirements::{Requirements, ValueSet, overlap};
use crate::snapshot::Operator;
use crate::tables::Tables;
use crate::tables::shapes::{Class, ClassId};
use crate::tables::types::TypeTable;

/// For so many families a machine is narrowed at most; for others it counts if it certainly does.
const FAMILIES: usize = 16;

/// These are chosen among so many.
const LOOKS: usize = 256;

/// So many requirements of a term are tried to keep a machine from counting.
const KEYS: usize = 4;

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

impl Rules {
    /// Notes by shape the families of which it may depend on its machine's type whether they count
    /// its pods there: those that do so on nodes which pods of another class could use, and those
    /// that ask for labels which only some types have. In an order that does not depend on that of
    /// shapes.
    pub(super) fn honour(
        &mut self,
        classes: &[Class],
        class_of: &[ClassId],
        catalogs: &[TypeTable],
        symbols: &Symbols,
    ) {
        let anything = |class: ClassId| {
            classes[class].required.iter().any(|required| required.iter().next().is_none())
        };
        let uncertain = |family: usize| {
            let about = &self.families[family].about;
            let Counting::Spread { honor_affinity, class, .. } = about.counts else { return None };
            let class = (honor_affinity && !anything(class)).then_some(class);
            let others = about.keys.iter().filter(|&&key| key != about.key);
            let partly = others.filter(|&&key| catalogs.iter().any(|it| it.has_partly(key)));
            let mut keys: Vec<&str> = partly.map(|&key| symbols.key_name(key)).collect();
            keys.sort_unstable();
            let of_class = class.iter().flat_map(|&class| &classes[class].required);
            let terms: Vec<_> = of_class.map(|term| names(term, symbols)).collect();
            (class.is_some() || !keys.is_empty()).then_some((terms, keys, family, class))
        };
        let mut honouring: Vec<_> = (0..self.families.len()).filter_map(uncertain).collect();
        honouring.sort();
        let all: IdSet = {
            let mut ids: Vec<usize> = honouring.iter().map(|it| it.2).collect();
            ids.sort_unstable();
            ids.into_iter().collect()
        };
        let ranked = honouring.iter().enumerate();
        let rank: FxHashMap<usize, (usize, bool, Option<ClassId>)> =
            ranked.map(|(rank, it)| (it.2, (rank, !it.1.is_empty(), it.3))).collect();
        let of_shape = |(counting, &own): (&IdSet, &ClassId)| {
            let others = counting.common(&all).filter(|family| {
                let (_, by_label, class) = rank[family];
                by_label || class != Some(own)
            });
            let mut others: Vec<usize> = others.take(LOOKS).collect();
            others.sort_unstable_by_key(|family| rank[family].0);
            others.into_iter().take(FAMILIES).collect()
        };
        let of_shape = self.counting.iter().zip(class_of).map(of_shape).collect();
        self.honouring = of_shape;
    }

    /// The families of [`Self::honour`].
    pub(super) fn honouring(&self, shape: usize) -> &[usize] {
        &self.honouring[shape]
    }
}

/// What a term asks for, by name.
fn names(term: &Requirements, symbols: &Symbols) -> Vec<(String, String)> {
    let name = |(key, set): (Key, &ValueSet)| {
        let bounds = set.to_api(key, symbols).into_iter().map(|it| (it.operator, it.values));
        (symbols.key_name(key).to_owned(), format!("{:?}", bounds.collect::<Vec<_>>()))
    };
    let mut names: Vec<_> = term.iter().map(name).collect();
    names.sort_unstable();
    names
}

/// The specs that a machine may be narrowed to so that it's certain whether pods of a shape count
/// there for a family: the one in which the pod costs least first. None when it is certain already
/// or can't be said.
pub(super) fn certain(
    topology: &Topology<'_, '_>,
    specs: &mut MachineSpecs,
    shape: usize,
    spec: SpecId,
    family: usize,
) -> SmallVec<[SpecId; 4]> {
    let about = &topology.rules.families[family].about;
    let mut found: SmallVec<[SpecId; 4]> = SmallVec::new();
    let Counting::Spread { honor_affinity, class, .. } = about.counts else { return found };
    for (labelled, has_keys) in with_keys(topology.tables, specs, shape, spec, about) {
        if has_keys == Standing::DoesNot || !honor_affinity {
            found.push(labelled);
        } else {
            found.extend(with_affinity(topology.tables, specs, shape, labelled, class));
        }
    }
    if found.iter().all(|&narrower| narrower == spec) {
        return SmallVec::new();
    }
    found.sort_by_cached_key(|&spec| specs.place_price(topology.tables, spec, shape));
    found.retain(|spec| specs.place_price(topology.tables, *spec, shape) < i64::MAX);
    found
}

/// The specs with which it is certain whether machines have the further labels that a family asks
/// for, or the one where it can't be said.
fn with_keys(
    tables: &Tables<'_>,
    specs: &mut MachineSpecs,
    shape: usize,
    spec: SpecId,
    about: &About,
) -> SmallVec<[(SpecId, Standing); 4]> {
    let standing = |specs: &mut MachineSpecs, spec| {
        about.has_keys(tables, specs, &mut Place::new(spec, shape))
    };
    let has_keys = standing(specs, spec);
    let mut found: SmallVec<[(SpecId, Standing); 4]> = SmallVec::new();
    if has_keys == Standing::Open {
        let (mut all, mut one_less) = (Requirements::default(), Vec::new());
        for key in about.further_keys(tables).into_iter().take(KEYS) {
            all.add(key, ValueSet::exists(), &tables.symbols);
            let mut without = Requirements::default();
            without.add(key, ValueSet::does_not_exist(), &tables.symbols);
            one_less.push((without, Standing::DoesNot));
        }
        for (wanted, as_wanted) in std::iter::once((all, Standing::Counts)).chain(one_less) {
            if let Ok(narrower) = specs.narrow(tables, spec, &wanted)
                && standing(specs, narrower) == as_wanted
            {
                found.push((narrower, as_wanted));
            }
        }
    }
    if found.is_empty() {
        found.push((spec, has_keys));
    }
    found
}

/// The specs with which it is certain whether a machine is one that pods of a class could use, or
/// the one where it can't be said.
fn with_affinity(
    tables: &Tables<'_>,
    specs: &mut MachineSpecs,
    shape: usize,
    spec: SpecId,
    class: ClassId,
) -> SmallVec<[SpecId; 4]> {
    let standing =
        |specs: &mut MachineSpecs, spec| Place::new(spec, shape).standing(tables, specs, class);
    let mut found: SmallVec<[SpecId; 4]> = SmallVec::new();
    if standing(specs, spec) == Standing::Open {
        let mut keep = |specs: &mut MachineSpecs, wanted: &Requirements, as_wanted: Standing| {
            if let Ok(narrower) = specs.narrow(tables, spec, wanted)
                && standing(specs, narrower) == as_wanted
                && !found.contains(&narrower)
            {
                found.push(narrower);
            }
        };
        for term in &tables.classes[class].required {
            keep(specs, term, Standing::Counts);
        }
        for term in &tables.classes[class].required {
            let mut parts: SmallVec<[(Key, &ValueSet); 4]> = term.iter().collect();
            parts.sort_by_key(|part| tables.symbols.key_name(part.0));
            for (key, set) in parts.into_iter().take(KEYS) {
                let Some(outside) = set.outside() else { continue };
                let mut wanted = Requirements::default();
                wanted.add(key, outside, &tables.symbols);
                keep(specs, &wanted, Standing::DoesNot);
            }
        }
    }
    if found.is_empty() {
        found.push(spec);
    }
    found
}
