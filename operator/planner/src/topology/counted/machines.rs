//! The same for machines that exist.

use std::sync::Arc;

use fixedbitset::FixedBitSet;
use rustc_hash::{FxHashMap, FxHashSet};

use super::{Column, share};
use crate::id_set::IdSet;
use crate::intern::{Key, Value};
use crate::snapshot::{Node, NodePhase};
use crate::tables::Tables;
use crate::topology::Topology;

/// What was found out about machines that exist so far.
#[derive(Clone, Debug, Default)]
pub(in crate::topology) struct OnMachines {
    /// The terms that do without the labels which no machine has.
    plain: Option<Arc<FixedBitSet>>,
    /// By label and its value, or none: the terms that it does not meet.
    unmet: FxHashMap<(Key, Option<Value>), IdSet>,
    tolerating: FxHashMap<Taints, Arc<FixedBitSet>>,
    /// By machine: the groups that count pods there.
    groups: FxHashMap<usize, Arc<FixedBitSet>>,
    known: FxHashSet<Arc<FixedBitSet>>,
}

/// Key, value and effect of each.
type Taints = Vec<(String, Option<String>, String)>;

impl OnMachines {
    /// The groups that count pods on a machine, as far as they are about a label that it has.
    pub(in crate::topology) fn groups(
        &mut self,
        topology: &Topology<'_, '_>,
        machine: usize,
    ) -> Arc<FixedBitSet> {
        if let Some(known) = self.groups.get(&machine) {
            return Arc::clone(known);
        }
        let conditions = &topology.rules.conditions;
        let node = &topology.tables.snapshot.nodes[machine];
        let affine = conditions.classes_of(&self.met(topology, machine, node));
        let tolerating = self
            .tolerating
            .entry(taints(node))
            .or_insert_with(|| Arc::new(conditions.tolerating(topology.tables, &node.taints)));
        let has = &mut |key| topology.domains.of(key, machine).is_some();
        let groups = conditions.groups(topology.rules.groups.len(), has, &affine, tolerating);
        let groups = share(&mut self.known, groups);
        self.groups.insert(machine, Arc::clone(&groups));
        groups
    }

    /// The terms that a machine meets.
    fn met(&mut self, topology: &Topology<'_, '_>, machine: usize, node: &Node) -> FixedBitSet {
        let conditions = &topology.rules.conditions;
        let (on_machines, nowhere) = conditions.columns.split_at(conditions.on_machines);
        let plain = self.plain.get_or_insert_with(|| {
            let mut met = conditions.all_terms();
            for (_, column) in nowhere {
                column.present.take_from(&mut met);
            }
            Arc::new(met)
        });
        let mut met = FixedBitSet::clone(plain);
        for &(key, ref column) in on_machines {
            let value = topology.tables.machines.label(machine, key);
            let promised = topology.tables.machines.promised(machine, key);
            match promised.filter(|_| value.is_none() && node.phase == NodePhase::Pending) {
                Some(promised) => {
                    column.keep(&mut met, |set| promised.is_subset(set, &topology.tables.symbols));
                }
                None => self.unmet(topology.tables, key, column, value).take_from(&mut met),
            }
        }
        met
    }

    /// The terms that the value of a label, or its absence, does not meet.
    fn unmet(
        &mut self,
        tables: &Tables<'_>,
        key: Key,
        column: &Column,
        value: Option<Value>,
    ) -> &IdSet {
        self.unmet.entry((key, value)).or_insert_with(|| match value {
            None => column.present.clone(),
            Some(value) => {
                let failing = column.alike.iter();
                let failing = failing.filter(|(set, _)| !set.has(value, &tables.symbols));
                failing.flat_map(|(_, terms)| terms.iter()).collect()
            }
        })
    }
}

fn taints(node: &Node) -> Taints {
    let taints = node.taints.iter();
    taints.map(|taint| (taint.key.clone(), taint.value.clone(), taint.effect.clone())).collect()
}
