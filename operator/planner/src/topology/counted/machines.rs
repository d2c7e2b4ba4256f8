//! The same for machines that exist.

use std::sync::Arc;

use fixedbitset::FixedBitSet;
use rustc_hash::{FxHashMap, FxHashSet};

use super::{Column, share};
use crate::compile::Problem;
use crate::id_set::IdSet;
use crate::intern::{Key, Value};
use crate::snapshot::{Node, NodePhase};

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
        problem: &Problem<'_>,
        machine: usize,
    ) -> Arc<FixedBitSet> {
        if let Some(known) = self.groups.get(&machine) {
            return Arc::clone(known);
        }
        let conditions = &problem.rules.conditions;
        let node = &problem.snapshot.nodes[machine];
        let affine = conditions.classes_of(&self.met(problem, machine, node));
        let tolerating = self
            .tolerating
            .entry(taints(node))
            .or_insert_with(|| Arc::new(conditions.tolerating(problem, &node.taints)));
        let has = &mut |key| problem.domains.of(key, machine).is_some();
        let groups = conditions.groups(problem.rules.groups.len(), has, &affine, tolerating);
        let groups = share(&mut self.known, groups);
        self.groups.insert(machine, Arc::clone(&groups));
        groups
    }

    /// The terms that a machine meets.
    fn met(&mut self, problem: &Problem<'_>, machine: usize, node: &Node) -> FixedBitSet {
        let conditions = &problem.rules.conditions;
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
            let value = problem.machines.label(machine, key);
            let promised = problem.machines.promised(machine, key);
            match promised.filter(|_| value.is_none() && node.phase == NodePhase::Pending) {
                Some(promised) => {
                    column.keep(&mut met, |set| promised.is_subset(set, &problem.symbols));
                }
                None => self.unmet(problem, key, column, value).take_from(&mut met),
            }
        }
        met
    }

    /// The terms that the value of a label, or its absence, does not meet.
    fn unmet(
        &mut self,
        problem: &Problem<'_>,
        key: Key,
        column: &Column,
        value: Option<Value>,
    ) -> &IdSet {
        self.unmet.entry((key, value)).or_insert_with(|| match value {
            None => column.present.clone(),
            Some(value) => {
                let failing = column.alike.iter();
                let failing = failing.filter(|(set, _)| !set.has(value, &problem.symbols));
                failing.flat_map(|(_, terms)| terms.iter()).collect()
            }
        })
    }
}

fn taints(node: &Node) -> Taints {
    let taints = node.taints.iter();
    taints.map(|taint| (taint.key.clone(), taint.value.clone(), taint.effect.clone())).collect()
}
