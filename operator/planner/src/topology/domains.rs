//! Domains: the values of a topology key that machines have, and that machines to come can have.

use std::collections::BTreeSet;

use fixedbitset::FixedBitSet;

use super::{Group, Kind, Rules};
use crate::cells::{CellId, Cells};
use crate::compile::taints::{Preferred, untolerated};
use crate::compile::types::NOT_FOR_SALE;
use crate::compile::{Problem, machine_meets};
use crate::intern::{Key, Value};
use crate::requirements::ValueSet;

/// The domains of machines that exist, per topology key other than the host name.
#[derive(Debug, Default)]
pub(crate) struct Domains {
    tables: Vec<Table>,
}

#[derive(Debug)]
struct Table {
    key: Key,
    /// By machine.
    of: Vec<Option<Value>>,
    /// By domain: machines as positions in [`crate::compile::machines::Machines::order`].
    members: Vec<(Value, FixedBitSet)>,
    /// Positions of machines without the label.
    missing: FixedBitSet,
}

impl Domains {
    pub(crate) fn new(problem: &Problem<'_>, rules: &Rules) -> Self {
        let keys: BTreeSet<Key> = rules.domain_keys().collect();
        let n = problem.snapshot.nodes.len();
        let positions = problem.machines.order.len();
        let table = |key: Key| {
            let of: Vec<_> = (0..n).map(|machine| label(problem, key, machine)).collect();
            let mut members: Vec<(Value, FixedBitSet)> = Vec::new();
            let mut missing = FixedBitSet::with_capacity(positions);
            for (position, &machine) in problem.machines.order.iter().enumerate() {
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
            Table { key, of, members, missing }
        };
        Self { tables: keys.into_iter().map(table).collect() }
    }

    fn table(&self, key: Key) -> &Table {
        let at = self.tables.binary_search_by_key(&key, |table| table.key);
        &self.tables[at.expect("every topology key has a table")]
    }

    /// The domain of a machine.
    pub(super) fn of(&self, key: Key, machine: usize) -> Option<Value> {
        self.table(key).of[machine]
    }

    /// The topology keys.
    pub(super) fn keys(&self) -> impl Iterator<Item = Key> {
        self.tables.iter().map(|table| table.key)
    }

    /// The domains of a machine.
    pub(super) fn all_of(&self, machine: usize) -> impl Iterator<Item = (Key, Value)> {
        self.tables.iter().filter_map(move |table| Some((table.key, table.of[machine]?)))
    }

    /// The positions of all machines.
    pub(super) fn all_positions(&self) -> FixedBitSet {
        let n = self.tables.first().map_or(0, |table| table.missing.len());
        let mut all = FixedBitSet::with_capacity(n);
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
        let table = self.table(key);
        let mut set = if missing {
            table.missing.clone()
        } else {
            FixedBitSet::with_capacity(table.missing.len())
        };
        for (value, members) in &table.members {
            if passes(*value) {
                set.union_with(members);
            }
        }
        set
    }
}

fn label(problem: &Problem<'_>, key: Key, machine: usize) -> Option<Value> {
    let promised = || match problem.machines.promised(machine, key)?.listed()? {
        [value] => Some(*value),
        _ => None,
    };
    problem.machines.label(machine, key).or_else(promised)
}

/// Whether pods on a machine count for a rule: spread looks only at nodes that its pods could use, and that have all of their topology keys.
pub(super) fn counts_there(problem: &Problem<'_>, rule: &Group, machine: usize) -> bool {
    let Kind::Spread { honor_affinity, honor_taints, class, .. } = rule.kind else { return true };
    let others = rule.keys.iter().filter(|&&key| key != rule.key && key != problem.keys.hostname);
    if others.into_iter().any(|&key| problem.domains.of(key, machine).is_none()) {
        return false;
    }
    let class = &problem.classes[class];
    let affine = || class.required.iter().any(|required| machine_meets(problem, machine, required));
    let tolerated = || {
        let taints = &problem.snapshot.nodes[machine].taints;
        untolerated(taints, &class.tolerations, Preferred::Ignored).is_none()
    };
    (!honor_affinity || affine()) && (!honor_taints || tolerated())
}

/// The domains that pods of a class could be in: those of machines that exist, and those that can be launched.
pub(super) fn universe(problem: &Problem<'_>, cells: &mut Cells, rule: &Group) -> Vec<Value> {
    let mut domains = BTreeSet::new();
    for &machine in &problem.machines.order {
        if let Some(value) = problem.domains.of(rule.key, machine)
            && !domains.contains(&value)
            && counts_there(problem, rule, machine)
        {
            domains.insert(value);
        }
    }
    let class = match rule.kind {
        Kind::Spread { honor_affinity: true, class, .. } => Some(class),
        _ => None,
    };
    for template in 0..problem.templates.len() {
        let base = cells.base(problem, template);
        let Some(class) = class else {
            if has_keys(problem, cells, rule, base) {
                domains.extend(cells.values(problem, base, rule.key));
            }
            continue;
        };
        for variant in 0..problem.classes[class].variants.len() {
            if let Ok(cell) = cells.join(problem, base, class, variant)
                && has_keys(problem, cells, rule, cell)
            {
                domains.extend(cells.values(problem, cell, rule.key));
            }
        }
    }
    domains.into_iter().collect()
}

/// Whether machines of a cell have all topology keys of the pods that carry a spread constraint.
pub(super) fn has_keys(problem: &Problem<'_>, cells: &Cells, rule: &Group, cell: CellId) -> bool {
    let others = rule.keys.iter().filter(|&&key| key != rule.key && key != problem.keys.hostname);
    others.into_iter().all(|&key| cells.has_values(problem, cell, key))
}

/// The values of a label that machines of a cell can have.
pub(crate) fn cell_values(
    problem: &Problem<'_>,
    cells: &Cells,
    id: CellId,
    key: Key,
) -> Vec<Value> {
    let cell = &cells[id];
    let table = &problem.catalogs[problem.templates[cell.template].catalog];
    let admitted = |value: &&Value| {
        cell.requirements.get(key).is_none_or(|set| set.has(**value, &problem.symbols))
    };
    let mut values = BTreeSet::new();
    for market in cell.markets.ones() {
        let listed = table.markets[market].requirements.get(key).and_then(ValueSet::listed);
        let Some(listed) = listed else { continue };
        if cell.types.ones().any(|kind| table.prices(kind)[market] != NOT_FOR_SALE) {
            values.extend(listed.iter().filter(admitted));
        }
    }
    if values.is_empty() {
        for kind in cell.types.ones() {
            let listed = table.requirements[kind].get(key).and_then(ValueSet::listed);
            values.extend(listed.into_iter().flatten().filter(admitted));
        }
    }
    if values.is_empty() {
        let listed = cell.requirements.get(key).and_then(ValueSet::listed);
        values.extend(listed.into_iter().flatten());
    }
    values.into_iter().collect()
}
