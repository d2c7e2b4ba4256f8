//! Domains: the values of a topology key that machines have, and that machines to come can have.

use std::collections::BTreeSet;

use fixedbitset::FixedBitSet;
use rustc_hash::FxHashMap;

use super::Rules;
use super::Topology;
use crate::intern::{Key, Value};
use crate::machine_specs::{MachineSpecs, SpecId};
use crate::requirements::ValueSet;
use crate::snapshot::Operator;
use crate::tables::Tables;

/// The domains of machines that exist, per topology key other than the host name that any of them
/// has: pods may name thousands that none has.
#[derive(Debug, Default)]
pub(crate) struct Domains {
    tables: Vec<Table>,
    /// How many machines there are by position.
    positions: usize,
}

#[derive(Debug)]
struct Table {
    key: Key,
    /// By machine.
    of: Vec<Option<Value>>,
    /// By domain: machines as positions in [`crate::tables::machines::Machines::order`].
    members: Vec<(Value, FixedBitSet)>,
    /// Positions of machines without the label.
    missing: FixedBitSet,
    /// The templates of the machines that have it.
    templates: FixedBitSet,
}

impl Domains {
    pub(crate) fn new(tables: &Tables<'_>, rules: &Rules) -> Self {
        let keys: BTreeSet<Key> = rules.domain_keys().collect();
        let n = tables.snapshot.nodes.len();
        let positions = tables.machines.order.len();
        let names =
            tables.templates.iter().map(|it| crate::tables::templates::pool_name(tables, it));
        let by_name: FxHashMap<&str, usize> = names.zip(0..).collect();
        let template = |node: &crate::snapshot::Node| {
            by_name.get(node.claim.as_ref()?.node_pool.as_deref()?).copied()
        };
        let templates: Vec<Option<usize>> = tables.snapshot.nodes.iter().map(template).collect();
        let table = |key: Key| {
            let of: Vec<_> = (0..n).map(|machine| label(tables, key, machine)).collect();
            let mut members: Vec<(Value, FixedBitSet)> = Vec::new();
            let mut missing = FixedBitSet::with_capacity(positions);
            for (position, &machine) in tables.machines.order.iter().enumerate() {
                let Some(value) = of[machine] else {
                    missing.insert(position);
                    continue;
                };
                let at = members.binary_search_by_key(&value, |&(value, _)| value);
                let at = at.unwrap_or_else(|at| {
                    members.insert(at, (value, FixedBitSet::with_capacity(positions)));
                    at
                });
                members[at].1.insert(position);
            }
            let labelled = of.iter().zip(&templates).filter(|(value, _)| value.is_some());
            let templates = labelled.filter_map(|(_, template)| *template).collect();
            Table { key, of, members, missing, templates }
        };
        let keys = keys.into_iter().filter(|&key| tables.machines.have(key));
        Self { tables: keys.map(table).collect(), positions }
    }

    fn table(&self, key: Key) -> Option<&Table> {
        let at = self.tables.binary_search_by_key(&key, |table| table.key);
        Some(&self.tables[at.ok()?])
    }

    /// Whether any machine is in a domain of a topology key.
    pub(super) fn have(&self, key: Key) -> bool {
        self.table(key).is_some()
    }

    /// Whether machines of a template have a label, whoever gave it to them.
    fn are_labelled(&self, key: Key, template: usize) -> bool {
        self.table(key).is_some_and(|table| table.templates.contains(template))
    }

    /// The domain of a machine.
    pub(crate) fn of(&self, key: Key, machine: usize) -> Option<Value> {
        self.table(key)?.of[machine]
    }

    /// The topology keys that machines have.
    pub(super) fn keys(&self) -> impl Iterator<Item = Key> {
        self.tables.iter().map(|table| table.key)
    }

    /// The domains of a machine.
    pub(super) fn all_of(&self, machine: usize) -> impl Iterator<Item = (Key, Value)> {
        self.tables.iter().filter_map(move |table| Some((table.key, table.of[machine]?)))
    }

    /// The positions of all machines.
    pub(super) fn all_positions(&self) -> FixedBitSet {
        let mut all = FixedBitSet::with_capacity(self.positions);
        all.insert_range(..);
        all
    }

    /// The positions of machines whose domain passes; with those without the label, if they do.
    pub(super) fn positions(
        &self,
        key: Key,
        missing: bool,
        mut passes: impl FnMut(Value) -> bool,
    ) -> FixedBitSet {
        let none = || FixedBitSet::with_capacity(self.positions);
        let Some(table) = self.table(key) else {
            return if missing { self.all_positions() } else { none() };
        };
        let mut set = if missing { table.missing.clone() } else { none() };
        for (value, members) in &table.members {
            if passes(*value) {
                set.union_with(members);
            }
        }
        set
    }
}

fn label(tables: &Tables<'_>, key: Key, machine: usize) -> Option<Value> {
    let promised = || match tables.machines.promised(machine, key)?.listed()? {
        [value] => Some(*value),
        _ => None,
    };
    tables.machines.label(machine, key).or_else(promised)
}

/// Whether machines of a spec do without a label, as far as can be told: their types say nothing of
/// it, nor does their NodePool, unless that it does not exist, and no machine of the NodePool has
/// it. Where one has, somebody else labels them, and nobody knows how.
pub(super) fn lacks(
    topology: &Topology<'_, '_>,
    specs: &mut MachineSpecs,
    id: SpecId,
    key: Key,
) -> bool {
    let template = specs[id].template;
    let told = topology.tables.templates[template].requirements.get(key);
    let free = |set: &ValueSet| set.admits_absence();
    told.is_none_or(|set| set.operator() == Operator::DoesNotExist)
        && specs[id].requirements.get(key).is_none_or(free)
        && specs.values(topology.tables, id, key).is_empty()
        && !topology.domains.are_labelled(key, template)
}
