//! Which machines to come count for spread that honours node affinity.
//!
//! Such a constraint counts pods only on nodes that the pods which carry it could use. Whether a
//! machine to come is one may depend on the type that it becomes: of eight cores or more, say. What
//! the plan counts is what will be, so a machine that gets pods which the constraint selects, but
//! of others, is narrowed until either all of its types count or none does, whichever is cheaper.

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use super::families::{About, Counting};
use super::standing::{Place, Standing};
use super::{Rules, Topology};
use crate::id_set::IdSet;
use crate::intern::{Key, Symbols};
use crate::machine_specs::{MachineSpecs, SpecId};
use crate::requirements::{Requirements, ValueSet};
use crate::tables::Tables;
use crate::tables::shapes::{Class, ClassId};
use crate::tables::types::TypeTable;

/// For so many families a machine is narrowed at most; for others it counts if it certainly does.
const FAMILIES: usize = 16;

/// These are chosen among so many.
const LOOKS: usize = 256;

/// So many requirements of a term are tried to keep a machine from counting.
const KEYS: usize = 4;

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
