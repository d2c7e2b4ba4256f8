//! Families: groups of rules that count pods in the same domains.
//!
//! Spread looks only at nodes that its pods could use, and that have all of their topology keys.
//! Which ones these are is asked once for all rules that ask the same, however many there are.

use std::collections::BTreeSet;
use std::sync::Arc;

use smallvec::SmallVec;

use super::expected::Expected;
use super::standing::{Place, Standing, has_label, is_labelled};
use crate::compile::shapes::ClassId;
use crate::compile::taints::{Preferred, untolerated};
use crate::compile::{Problem, machine_meets};
use crate::id_set::IdSet;
use crate::intern::{Key, Value};
use crate::machine_specs::{MachineSpecs, SpecId};

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

    /// Whether pods of a shape on machines of a spec count: all types there that hold one meet what
    /// the rule's own pods require. Where some do, [`super::standing`] narrows the spec before pods
    /// come.
    pub(super) fn counts_in(
        &self,
        problem: &Problem<'_>,
        specs: &mut MachineSpecs,
        place: &mut Place,
    ) -> bool {
        let Counting::Spread { class, honor_affinity, honor_taints } = self.counts else {
            return true;
        };
        if self.has_keys(problem, specs, place) != Standing::Counts {
            return false;
        }
        let spec = &specs[place.spec];
        let pool = problem.templates[spec.template].pool;
        let taints = &problem.snapshot.node_pools[pool].template.taints;
        let tolerations = &problem.classes[class].tolerations;
        (!honor_taints || untolerated(taints, tolerations, Preferred::Ignored).is_none())
            && (!honor_affinity || place.standing(problem, specs, class) == Standing::Counts)
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
    pub(super) fn further_keys(&self, problem: &Problem<'_>) -> Vec<Key> {
        match self.counts {
            Counting::Spread { .. } => self.others(problem).collect(),
            Counting::Apart | Counting::Near => vec![],
        }
    }

    /// Whether a machine of a spec that holds a pod has all topology keys of the pods that carry
    /// the rule.
    pub(super) fn has_keys(
        &self,
        problem: &Problem<'_>,
        specs: &mut MachineSpecs,
        place: &mut Place,
    ) -> Standing {
        let mut all = Standing::Counts;
        for key in self.others(problem) {
            match place.has(problem, specs, key) {
                Standing::Counts => {}
                Standing::Open => all = Standing::Open,
                Standing::DoesNot => return Standing::DoesNot,
            }
        }
        all
    }

    /// Whether some machine of a spec may have them.
    fn may_have_keys(&self, problem: &Problem<'_>, specs: &mut MachineSpecs, spec: SpecId) -> bool {
        let types = specs[spec].types.clone();
        let mut has = |key| has_label(problem, specs, spec, &types, key) != Standing::DoesNot;
        self.others(problem).all(&mut has)
    }

    fn others(&self, problem: &Problem<'_>) -> impl Iterator<Item = Key> {
        let hostname = problem.keys.hostname;
        self.keys.iter().copied().filter(move |&key| key != self.key && key != hostname)
    }

    /// The domains that the pods of a rule could be in: those of machines that exist, and those
    /// that can be launched, for these pods or for others.
    pub(super) fn universe(&self, problem: &Problem<'_>, specs: &mut MachineSpecs) -> Universe {
        let mut domains = BTreeSet::new();
        for &machine in &problem.machines.order {
            if let Some(value) = problem.domains.of(self.key, machine)
                && !domains.contains(&value)
                && self.counts_on(problem, machine)
            {
                domains.insert(value);
            }
        }
        let mut is_open = false;
        for template in 0..problem.templates.len() {
            for spec in self.specs(problem, specs, template) {
                if !self.may_have_keys(problem, specs, spec) {
                    continue;
                }
                let values = specs.values(problem, spec, self.key);
                domains.extend(values.iter().copied());
                is_open |= values.is_empty()
                    && matches!(self.counts, Counting::Spread { .. })
                    && is_labelled(problem, &specs[spec], self.key)
                    && Expected::has(problem, specs, template, Some(self.key));
            }
        }
        Universe { domains: domains.into_iter().collect(), is_open }
    }

    /// The specs of a template's machines that may come and then count.
    fn specs(
        &self,
        problem: &Problem<'_>,
        specs: &mut MachineSpecs,
        template: usize,
    ) -> SmallVec<[SpecId; 2]> {
        let base = specs.base(problem, template);
        let Some(class) = self.class() else { return SmallVec::from_slice(&[base]) };
        let (honors_affinity, honors_taints) = self.honors();
        let compiled = &problem.classes[class];
        let pool = problem.templates[template].pool;
        let taints = &problem.snapshot.node_pools[pool].template.taints;
        let tolerates = || untolerated(taints, &compiled.tolerations, Preferred::Ignored).is_none();
        if honors_taints && !tolerates()
            || !specs.may_join(problem, base, class)
                && !Expected::has(problem, specs, template, None)
        {
            return SmallVec::new();
        }
        if !honors_affinity {
            return SmallVec::from_slice(&[base]);
        }
        let terms = 0..compiled.required.len();
        terms.filter_map(|term| specs.requiring(problem, template, class, term)).collect()
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
