//! Families: groups of rules that count pods in the same domains.
//!
//! Spread looks only at nodes that its pods could use, and that have all of their topology keys. Which ones these are is asked once for all rules that ask the
//! same, however many there are.

use std::collections::BTreeSet;

use super::standing::{Place, Standing};
use crate::cells::{CellId, Cells};
use crate::compile::shapes::ClassId;
use crate::compile::taints::{Preferred, untolerated};
use crate::compile::{Problem, machine_meets};
use crate::id_set::IdSet;
use crate::intern::{Key, Value};

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Family {
    pub(super) about: About,
    /// Its groups.
    pub(super) groups: IdSet,
}

/// In which domains the groups of a family count pods.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct About {
    pub(super) key: Key,
    /// Of required rules, the topology keys of all rules of the kind that the same pods carry, this one's included: kube-scheduler looks at them together.
    pub(super) keys: Vec<Key>,
    pub(super) counts: Counting,
}

/// Which pods in a domain count, as far as their nodes are concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Counting {
    /// All, for rules that keep pods apart.
    Apart,
    /// All, for rules that bring them together.
    Near,
    /// Those on nodes that the pods of a spread constraint could use.
    Spread { honor_affinity: bool, honor_taints: bool, class: ClassId },
}

impl About {
    /// Whether pods on a machine count.
    pub(super) fn counts_on(&self, problem: &Problem<'_>, machine: usize) -> bool {
        let Counting::Spread { honor_affinity, honor_taints, class } = self.counts else {
            return true;
        };
        if self.others(problem).any(|key| problem.domains.of(key, machine).is_none()) {
            return false;
        }
        let class = &problem.classes[class];
        let affine =
            || class.required.iter().any(|required| machine_meets(problem, machine, required));
        let tolerated = || {
            let taints = &problem.snapshot.nodes[machine].taints;
            untolerated(taints, &class.tolerations, Preferred::Ignored).is_none()
        };
        (!honor_affinity || affine()) && (!honor_taints || tolerated())
    }

    /// Whether pods of a shape on machines of a cell count: all types there that hold one meet what the rule's own pods require. Where some do,
    /// [`super::standing`] narrows the cell before pods come.
    pub(super) fn counts_in(
        &self,
        problem: &Problem<'_>,
        cells: &mut Cells,
        place: &mut Place,
    ) -> bool {
        let Counting::Spread { class, honor_affinity, honor_taints } = self.counts else {
            return true;
        };
        if !self.has_keys(problem, cells, place.cell) {
            return false;
        }
        let cell = &cells[place.cell];
        let pool = problem.templates[cell.template].pool;
        let taints = &problem.snapshot.node_pools[pool].template.taints;
        let tolerations = &problem.classes[class].tolerations;
        (!honor_taints || untolerated(taints, tolerations, Preferred::Ignored).is_none())
            && (!honor_affinity || place.standing(problem, cells, class) == Standing::Counts)
    }

    /// The class of pods that it asks for.
    pub(super) fn class(&self) -> Option<ClassId> {
        match self.counts {
            Counting::Spread { class, honor_affinity, honor_taints } => {
                (honor_affinity || honor_taints).then_some(class)
            }
            Counting::Apart | Counting::Near => None,
        }
    }

    /// Whether a machine counts only if these pods' affinity is met there, and only if they tolerate its taints.
    pub(super) fn honors(&self) -> (bool, bool) {
        match self.counts {
            Counting::Spread { honor_affinity, honor_taints, .. } => (honor_affinity, honor_taints),
            Counting::Apart | Counting::Near => (false, false),
        }
    }

    /// The topology keys that a machine needs in order to count, but for its own and the host name.
    pub(super) fn further_keys(&self, problem: &Problem<'_>) -> Vec<Key> {
        match self.counts {
            Counting::Spread { .. } => self.others(problem).collect(),
            Counting::Apart | Counting::Near => vec![],
        }
    }

    /// Whether machines of a cell have all topology keys of the pods that carry the rule.
    fn has_keys(&self, problem: &Problem<'_>, cells: &Cells, cell: CellId) -> bool {
        self.others(problem).all(|key| cells.has_values(problem, cell, key))
    }

    fn others(&self, problem: &Problem<'_>) -> impl Iterator<Item = Key> {
        let hostname = problem.keys.hostname;
        self.keys.iter().copied().filter(move |&key| key != self.key && key != hostname)
    }

    /// The domains that the pods of a rule could be in: those of machines that exist, and those that can be launched.
    pub(super) fn universe(&self, problem: &Problem<'_>, cells: &mut Cells) -> Vec<Value> {
        let mut domains = BTreeSet::new();
        for &machine in &problem.machines.order {
            if let Some(value) = problem.domains.of(self.key, machine)
                && !domains.contains(&value)
                && self.counts_on(problem, machine)
            {
                domains.insert(value);
            }
        }
        let class = match self.counts {
            Counting::Spread { honor_affinity: true, class, .. } => Some(class),
            _ => None,
        };
        for template in 0..problem.templates.len() {
            let base = cells.base(problem, template);
            let Some(class) = class else {
                if self.has_keys(problem, cells, base) {
                    domains.extend(cells.values(problem, base, self.key));
                }
                continue;
            };
            for variant in 0..problem.classes[class].variants.len() {
                if let Ok(cell) = cells.join(problem, base, class, variant)
                    && self.has_keys(problem, cells, cell)
                {
                    domains.extend(cells.values(problem, cell, self.key));
                }
            }
        }
        domains.into_iter().collect()
    }
}
