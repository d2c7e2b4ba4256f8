//! Which groups count pods on a machine, asked for all families at once.
//!
//! Each of thousands of pods may carry a spread constraint of its own, and require something of its
//! own of its node: then each constraint is a family, and each pod that gets a place is looked at
//! by all of them. What they ask about is the machine, not the pod. So what they require stands in
//! columns, one per label: those that a value does not meet are a set, and so are those that an
//! instance type meets.

#[cfg(test)]
pub(crate) mod both_ways;
mod machines;

use std::sync::Arc;

use fixedbitset::FixedBitSet;
use indexmap::IndexMap;
use k8s_openapi::api::core::v1::Taint;
use rustc_hash::{FxBuildHasher, FxHashMap, FxHashSet};

use crate::id_set::{IdSet, inverse};
use crate::intern::Key;
use crate::machine_specs::{ByType, Counted, MachineSpecs, SpecId};
use crate::requirements::{Requirements, ValueSet, overlap};
use crate::tables::Tables;
use crate::tables::shapes::ClassId;
use crate::tables::taints::{Preferred, untolerated};

use super::standing::{Standing, has_label};
use super::{Rules, Topology};

pub(super) use machines::OnMachines;

const BITS: usize = usize::BITS as usize;

/// What the families of a snapshot ask of machines, for as long as there are shapes that many of
/// them count.
#[derive(Debug, Default)]
pub(super) struct Conditions {
    /// The classes of pods whose affinity or tolerations are honoured, ascending.
    classes: Vec<ClassId>,
    /// What they require: the first term of each class, in that order, then further ones.
    terms: Vec<RequiredTerm>,
    columns: Vec<(Key, Column)>,
    /// How many of them, in front, are about labels that machines have.
    on_machines: usize,
    questions: Vec<Question>,
}

/// A required term of a class of pods.
#[derive(Clone, Copy, Debug)]
struct RequiredTerm {
    /// Index of [`Conditions::classes`].
    class: usize,
    /// Index of the class's required terms.
    term: usize,
}

/// What terms want of one label.
#[derive(Debug, Default)]
struct Column {
    /// Each set that some want, with the terms that do.
    alike: Vec<(ValueSet, IdSet)>,
    /// Those that a machine without the label does not meet.
    present: IdSet,
}

/// What families ask that differ only in the class of pods that they ask for.
#[derive(Debug)]
struct Question {
    /// Topology keys other than the host name that a machine needs besides their own.
    keys: Vec<Key>,
    honors_affinity: bool,
    honors_taints: bool,
    /// By family: its class as an index of [`Conditions::classes`], and its groups.
    families: Vec<(usize, IdSet)>,
    /// The groups of all of them.
    groups: FixedBitSet,
}

/// What a spec says about a label.
struct SpecLabel<'c> {
    key: Key,
    catalog: usize,
    admits: &'c ValueSet,
    /// Its markets, if those have the label.
    markets: FixedBitSet,
}

/// Sets of at most so many values are remembered with what does not meet them.
const LITTLE: usize = 8;

impl Conditions {
    pub(super) fn new(tables: &Tables<'_>, rules: &Rules) -> Self {
        if !rules.has_crowds() {
            return Self::default();
        }
        let families = || rules.families.iter().filter(|it| it.about.key != tables.keys.hostname);
        let mut classes: Vec<ClassId> = families().filter_map(|it| it.about.class()).collect();
        classes.sort_unstable();
        classes.dedup();
        let first = (0..classes.len()).map(|class| RequiredTerm { class, term: 0 });
        let further = classes.iter().enumerate().flat_map(|(at, &class)| {
            (1..tables.classes[class].required.len())
                .map(move |term| RequiredTerm { class: at, term })
        });
        let terms: Vec<RequiredTerm> = first.chain(further).collect();
        let mut columns: FxHashMap<Key, FxHashMap<&ValueSet, IdSet>> = FxHashMap::default();
        for (id, &RequiredTerm { class, term }) in terms.iter().enumerate() {
            for (key, set) in tables.classes[classes[class]].required[term].iter() {
                columns.entry(key).or_default().entry(set).or_default().insert(id);
            }
        }
        let mut columns: Vec<(Key, Column)> =
            columns.into_iter().map(|(key, alike)| (key, Column::new(alike))).collect();
        columns.sort_unstable_by_key(|&(key, _)| (!tables.machines.have(key), key));
        let on_machines = columns.partition_point(|&(key, _)| tables.machines.have(key));
        let mut questions: IndexMap<(Vec<Key>, bool, bool), Question, FxBuildHasher> =
            IndexMap::default();
        for family in families() {
            let (honors_affinity, honors_taints) = family.about.honors();
            let keys = family.about.further_keys(tables);
            let question = questions.entry((keys, honors_affinity, honors_taints));
            let question = question.or_insert_with_key(|(keys, ..)| Question {
                keys: keys.clone(),
                honors_affinity,
                honors_taints,
                families: Vec::new(),
                groups: FixedBitSet::with_capacity(rules.groups.len()),
            });
            family.groups.add_to(&mut question.groups);
            let class = family.about.class().and_then(|class| classes.binary_search(&class).ok());
            if let Some(class) = class {
                question.families.push((class, family.groups.clone()));
            }
        }
        let questions = questions.into_values().collect();
        Self { classes, terms, columns, on_machines, questions }
    }

    /// The groups of the families whose question has a good answer, from whether a machine has a
    /// label, and the classes whose affinity it meets and that tolerate its taints.
    fn groups(
        &self,
        n: usize,
        has: &mut dyn FnMut(Key) -> bool,
        affine: &FixedBitSet,
        tolerating: &FixedBitSet,
    ) -> FixedBitSet {
        let mut groups = FixedBitSet::with_capacity(n);
        for question in &self.questions {
            if !question.keys.iter().all(|&key| has(key)) {
                continue;
            }
            let met = |asks: bool, met: &FixedBitSet| !asks || met.is_full();
            if met(question.honors_affinity, affine) && met(question.honors_taints, tolerating) {
                groups.union_with(&question.groups);
                continue;
            }
            for (class, of_family) in &question.families {
                if (!question.honors_affinity || affine[*class])
                    && (!question.honors_taints || tolerating[*class])
                {
                    of_family.add_to(&mut groups);
                }
            }
        }
        groups
    }

    fn all_terms(&self) -> FixedBitSet {
        let mut all = FixedBitSet::with_capacity(self.terms.len());
        all.insert_range(..);
        all
    }

    /// The classes of which a term is met.
    fn classes_of(&self, met: &FixedBitSet) -> FixedBitSet {
        let n = self.classes.len();
        let words = met.as_slice()[..n.div_ceil(BITS)].iter().copied();
        let mut classes = FixedBitSet::with_capacity_and_blocks(n, words);
        for (term, &RequiredTerm { class, .. }) in self.terms.iter().enumerate().skip(n) {
            if met[term] {
                classes.insert(class);
            }
        }
        classes
    }

    /// The classes that tolerate taints.
    fn tolerating(&self, tables: &Tables<'_>, taints: &[Taint]) -> FixedBitSet {
        let mut classes = FixedBitSet::with_capacity(self.classes.len());
        for (at, &class) in self.classes.iter().enumerate() {
            let tolerations = &tables.classes[class].tolerations;
            classes.set(at, untolerated(taints, tolerations, Preferred::Ignored).is_none());
        }
        classes
    }
}

impl Column {
    fn new(alike: FxHashMap<&ValueSet, IdSet>) -> Self {
        let present = alike.iter().filter(|(set, _)| !set.admits_absence());
        let present = present.flat_map(|(_, terms)| terms.iter()).collect();
        Self {
            alike: alike.into_iter().map(|(set, terms)| (set.clone(), terms)).collect(),
            present,
        }
    }

    /// Takes out the terms whose set does not pass.
    fn keep(&self, terms: &mut FixedBitSet, passes: impl Fn(&ValueSet) -> bool) {
        for (_, failing) in self.alike.iter().filter(|(set, _)| !passes(set)) {
            failing.take_from(terms);
        }
    }
}

/// What the types of a catalog say of the terms.
fn by_type(
    tables: &Tables<'_>,
    specs: &mut MachineSpecs,
    conditions: &Conditions,
    catalog: usize,
) -> ByType {
    let table = &tables.catalogs[catalog];
    let n = conditions.terms.len();
    let mut indifferent = FixedBitSet::with_capacity(n);
    let mut types: Vec<(usize, IdSet)> = Vec::new();
    for (id, &RequiredTerm { class, term }) in conditions.terms.iter().enumerate() {
        let class = conditions.classes[class];
        let required = &tables.classes[class].required[term];
        if required.iter().all(|(key, _)| !table.keys.contains(&key)) {
            indifferent.insert(id);
        } else {
            types.push((id, specs.meeting(tables, catalog, class, term).clone().into()));
        }
    }
    let met = inverse(types.iter().map(|(id, types)| (*id, types)), table.len());
    let met = met.iter().map(|terms| {
        let mut bits = indifferent.clone();
        terms.add_to(&mut bits);
        bits
    });
    let has_one = |requirements: &Requirements, key| {
        let listed = requirements.get(key).and_then(ValueSet::listed);
        listed.is_some_and(|listed| listed.len() == 1)
    };
    let decided =
        conditions.columns.iter().map(|&(key, _)| key).filter(|&key| {
            table.requirements.iter().all(|requirements| has_one(requirements, key))
        });
    let markets = table.markets.iter().flat_map(|market| market.requirements.iter());
    ByType {
        met: met.collect(),
        indifferent,
        on_markets: markets.map(|(key, _)| key).collect(),
        decided: decided.collect(),
    }
}

/// The groups that count a pod on machines of a spec, from the types there that hold it.
pub(super) fn in_spec(
    topology: &Topology<'_, '_>,
    specs: &mut MachineSpecs,
    spec: SpecId,
    types: FixedBitSet,
) -> Arc<FixedBitSet> {
    let asked = (spec, types);
    if let Some(known) = specs.counted.in_specs.get(&asked) {
        return Arc::clone(known);
    }
    let conditions = &topology.rules.conditions;
    let (template, requirements) = (specs[spec].template, Arc::clone(&specs[spec].requirements));
    let catalog = topology.tables.templates[template].catalog;
    let by_type = match specs.counted.by_catalog.get(&catalog) {
        Some(known) => Arc::clone(known),
        None => {
            let made = Arc::new(by_type(topology.tables, specs, conditions, catalog));
            specs.counted.by_catalog.insert(catalog, Arc::clone(&made));
            made
        }
    };
    let anything = ValueSet::exists();
    let mut met = conditions.all_terms();
    for (key, column) in &conditions.columns {
        let on_markets = by_type.on_markets.contains(key);
        let markets = if on_markets { specs[spec].markets.clone() } else { FixedBitSet::new() };
        // That pods do without a label does not define it.
        let is_defined = topology.tables.templates[template].requirements.get(*key).is_some()
            || topology.tables.catalogs[catalog].keys.contains(key);
        let told = match requirements.get(*key).filter(|_| is_defined) {
            None if topology.tables.is_well_known(*key) && !on_markets => continue,
            None if topology.tables.is_well_known(*key) => &anything,
            None => {
                column.present.take_from(&mut met);
                continue;
            }
            Some(_) if by_type.decided.contains(key) => continue,
            Some(told) => told,
        };
        let label = SpecLabel { key: *key, catalog, admits: told, markets };
        keep(&mut specs.counted, topology.tables, column, &label, &mut met);
    }
    if asked.1.is_clear() {
        met.intersect_with(&by_type.indifferent);
    }
    for kind in asked.1.ones() {
        met.intersect_with(&by_type.met[kind]);
    }
    let affine = conditions.classes_of(&met);
    let pool = topology.tables.templates[template].pool;
    let tolerating = specs.counted.tolerating.entry(pool).or_insert_with(|| {
        let taints = &topology.tables.snapshot.node_pools[pool].template.taints;
        Arc::new(conditions.tolerating(topology.tables, taints))
    });
    let tolerating = Arc::clone(tolerating);
    let has = &mut |key| has_label(topology.tables, specs, spec, &asked.1, key) == Standing::Counts;
    let groups = conditions.groups(topology.rules.groups.len(), has, &affine, &tolerating);
    let groups = share(&mut specs.counted.known, groups);
    specs.counted.in_specs.insert(asked, Arc::clone(&groups));
    groups
}

/// Takes out the terms that machines of a spec don't certainly meet, as far as a label is
/// concerned. What the types say of it is another matter.
fn keep(
    counted: &mut Counted,
    tables: &Tables<'_>,
    column: &Column,
    label: &SpecLabel<'_>,
    terms: &mut FixedBitSet,
) {
    let symbols = &tables.symbols;
    let table = &tables.catalogs[label.catalog];
    let of_types = table.keys.contains(&label.key);
    let sold = |wanted: &ValueSet, market: usize| {
        let sold = table.markets[market].requirements.get(label.key);
        sold.is_none_or(|sold| overlap(sold, wanted, symbols))
    };
    let passes = |wanted: &ValueSet| {
        overlap(label.admits, wanted, symbols)
            && (label.admits.entails(wanted, symbols)
                || of_types && label.markets.ones().all(|market| sold(wanted, market)))
    };
    if label.admits.listed().is_none_or(|listed| listed.len() > LITTLE) {
        column.keep(terms, passes);
        return;
    }
    let asked = (label.key, label.admits.clone(), label.catalog, label.markets.clone());
    let unmet = counted.unmet.entry(asked).or_insert_with(|| {
        let mut met = FixedBitSet::with_capacity(terms.len());
        met.insert_range(..);
        column.keep(&mut met, passes);
        met.toggle_range(..);
        Arc::new(met)
    });
    terms.difference_with(unmet);
}

/// The same set, in one place for all that are equal.
fn share(known: &mut FxHashSet<Arc<FixedBitSet>>, groups: FixedBitSet) -> Arc<FixedBitSet> {
    if let Some(known) = known.get(&groups) {
        return Arc::clone(known);
    }
    let groups = Arc::new(groups);
    known.insert(Arc::clone(&groups));
    groups
}
