//! Families: groups of rules that count pods in the same domains.
//!
//! Spread looks only at nodes that its pods could use, and that have all of their topology keys.
//! Which ones these are is asked once for all rules that ask the same, however many there are.

use std::collections::BTreeSet;
use std::sync::Arc;

use smallvec::SmallVec;

use super::Topology;
use super::expected::may_come;
use super::standing::{Place, Standing, has_label, is_labelled};
use crate::id_set::IdSet;
use crate::intern::{Key, Value};
use crate::machine_specs::{MachineSpecs, SpecId};
use crate::tables::Tables;
use crate::tables::machine_meets;
use crate::tables::shapes::ClassId;
use crate::tables::taints::{Preferred, untolerated};

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Family {
    pub(super) about: About,
    pub(super) groups: IdSet,
}

/// In which domains the groups of a family count pods.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct About {
    pub(super) key: Key,
    /// Of required rules, the topology keys of all rules of the kind that the same pods carry, this
    /// one's included: kube-scheduler looks at them together.
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
    pub(super) fn counts_on(&self, topology: &Topology<'_, '_>, machine: usize) -> bool {
        let Counting::Spread { honor_affinity, honor_taints, class } = self.counts else {
            return true;
        };
        if self.others(topology.tables).any(|key| topology.domains.of(key, machine).is_none()) {
            return false;
        }
        let class = &topology.tables.classes[class];
        let affine = || {
            class.required.iter().any(|required| machine_meets(topology.tables, machine, required))
        };
        let tolerated = || {
            let taints = &topology.tables.snapshot.nodes[machine].taints;
            untolerated(taints, &class.tolerations, Preferred::Ignored).is_none()
        };
        (!honor_affinity || affine()) && (!honor_taints || tolerated())
    }

    /// Whether pods of a shape on machines of a spec count: all types there that hold one meet what
    /// the rule's own pods require. Where some do, [`super::honoring`] narrows the spec before pods
    /// come.
    pub(super) fn counts_in(
        &self,
        tables: &Tables<'_>,
        specs: &mut MachineSpecs,
        place: &mut Place,
    ) -> bool {
        let Counting::Spread { class, honor_affinity, honor_taints } = self.counts else {
            return true;
        };
        if self.has_keys(tables, specs, place) != Standing::Counts {
            return false;
        }
        let spec = &specs[place.spec];
        let pool = tables.templates[spec.template].pool;
        let taints = &tables.snapshot.node_pools[pool].template.taints;
        let tolerations = &tables.classes[class].tolerations;
        (!honor_taints || untolerated(taints, tolerations, Preferred::Ignored).is_none())
            && (!honor_affinity || place.standing(tables, specs, class) == Standing::Counts)
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

    /// Whether a machine counts only if these pods' affinity is met there, and only if they
    /// tolerate its taints.
    pub(super) fn honors(&self) -> (bool, bool) {
        match self.counts {
            Counting::Spread { honor_affinity, honor_taints, .. } => (honor_affinity, honor_taints),
            Counting::Apart | Counting::Near => (false, false),
        }
    }

    /// The topology keys that a machine needs in order to count, but for its own and the host name.
    pub(super) fn further_keys(&self, tables: &Tables<'_>) -> Vec<Key> {
        match self.counts {
            Counting::Spread { .. } => self.others(tables).collect(),
            Counting::Apart | Counting::Near => vec![],
        }
    }

    /// Whether a machine of a spec that holds a pod has all topology keys of the pods that carry
    /// the rule.
    pub(super) fn has_keys(
        &self,
        tables: &Tables<'_>,
        specs: &mut MachineSpecs,
        place: &mut Place,
    ) -> Standing {
        let mut all = Standing::Counts;
        for key in self.others(tables) {
            match place.has(tables, specs, key) {
                Standing::Counts => {}
                Standing::Open => all = Standing::Open,
                Standing::DoesNot => return Standing::DoesNot,
            }
        }
        all
    }

    /// Whether some machine of a spec may have them.
    fn may_have_keys(&self, tables: &Tables<'_>, specs: &mut MachineSpecs, spec: SpecId) -> bool {
        let types = specs[spec].types.clone();
        let mut has = |key| has_label(tables, specs, spec, &types, key) != Standing::DoesNot;
        self.others(tables).all(&mut has)
    }

    fn others(&self, tables: &Tables<'_>) -> impl Iterator<Item = Key> {
        let hostname = tables.keys.hostname;
        self.keys.iter().copied().filter(move |&key| key != self.key && key != hostname)
    }

    /// The domains that the pods of a rule could be in: those of machines that exist, and those
    /// that can be launched, for these pods or for others.
    pub(super) fn universe(
        &self,
        topology: &Topology<'_, '_>,
        specs: &mut MachineSpecs,
    ) -> Universe {
        let mut domains = BTreeSet::new();
        for &machine in &topology.tables.machines.order {
            if let Some(value) = topology.domains.of(self.key, machine)
                && !domains.contains(&value)
                && self.counts_on(topology, machine)
            {
                domains.insert(value);
            }
        }
        let mut is_open = false;
        for template in 0..topology.tables.templates.len() {
            for spec in self.specs(topology, specs, template) {
                if !self.may_have_keys(topology.tables, specs, spec) {
                    continue;
                }
                let values = specs.values(topology.tables, spec, self.key);
                domains.extend(values.iter().copied());
                is_open |= values.is_empty()
                    && matches!(self.counts, Counting::Spread { .. })
                    && is_labelled(topology.tables, &specs[spec], self.key)
                    && may_come(topology, specs, template, Some(self.key));
            }
        }
        Universe { domains: domains.into_iter().collect(), is_open }
    }

    /// The specs of a template's machines that may come and then count.
    fn specs(
        &self,
        topology: &Topology<'_, '_>,
        specs: &mut MachineSpecs,
        template: usize,
    ) -> SmallVec<[SpecId; 2]> {
        let base = specs.base(topology.tables, template);
        let Some(class) = self.class() else { return SmallVec::from_slice(&[base]) };
        let (honors_affinity, honors_taints) = self.honors();
        let compiled = &topology.tables.classes[class];
        let pool = topology.tables.templates[template].pool;
        let taints = &topology.tables.snapshot.node_pools[pool].template.taints;
        let tolerates = || untolerated(taints, &compiled.tolerations, Preferred::Ignored).is_none();
        if honors_taints && !tolerates()
            || !specs.may_join(topology.tables, base, class)
                && !may_come(topology, specs, template, None)
        {
            return SmallVec::new();
        }
        if !honors_affinity {
            return SmallVec::from_slice(&[base]);
        }
        let terms = 0..compiled.required.len();
        terms.filter_map(|term| specs.requiring(topology.tables, template, class, term)).collect()
    }
}

/// The domains that the pods of a rule could be in.
#[derive(Clone, Debug)]
pub(super) struct Universe {
    /// Ascending.
    pub(super) domains: Arc<[Value]>,
    /// Whether each machine that may come is a further one: its NodePool leaves the label open.
    pub(super) is_open: bool,
}
