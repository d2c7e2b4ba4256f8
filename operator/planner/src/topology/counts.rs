//! How many pods of each group are where.

use std::sync::Arc;

use fixedbitset::FixedBitSet;
use rustc_hash::FxHashMap;

use super::counted::{OnMachines, in_spec};
use super::families::{Counting, Universe};
use super::occupants::{Host, Occupants};
use super::standing::{Place, is_labelled};
use super::tallies::{Domain, Tallies, Tally};
use super::{Rules, Topology};
use crate::intern::{Key, Value};
use crate::machine_specs::{MachineSpecs, SpecId};
use crate::snapshot::Placement;

/// Pods that were counted.
#[derive(Clone, Debug)]
enum Change {
    /// Of one shape, in a domain that is a value: for the groups of a family that select it.
    Selected { shape: usize, family: usize, domain: Value, by: i32 },
    /// The same for those of some groups that are about a topology key.
    SelectedBy { groups: Arc<FixedBitSet>, shape: usize, key: Key, domain: Value, by: i32 },
    /// In a domain that is not known yet: for the groups of a family that bring pods together.
    Somewhere { shape: usize, family: usize, by: i32 },
    /// That carry the rule of a group of anti-affinity.
    Carrying { group: usize, domain: Value, by: i32 },
    /// Of one shape, on a host, with its place in bitsets.
    Occupants { shape: usize, host: Host, place: Option<usize>, by: i32 },
}

impl Change {
    /// What takes it back.
    fn inverse(mut self) -> Self {
        let (Self::Selected { by, .. }
        | Self::SelectedBy { by, .. }
        | Self::Somewhere { by, .. }
        | Self::Carrying { by, .. }
        | Self::Occupants { by, .. }) = &mut self;
        *by = -*by;
        self
    }
}

/// How many pods are where.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counts {
    /// Who is in domains that are values.
    pub(super) domains: FxHashMap<Value, Domain>,
    /// By group that wants to be together: the pods that it selects in all of them.
    pub(super) near: Tallies,
    /// By family: the domains that its pods could be in, once somebody has asked.
    pub(super) universes: Vec<Option<Universe>>,
    /// Which groups count pods on machines that exist, for shapes that many families count.
    counted: OnMachines,
    /// Who is on machines that exist, and on machines to come, as far as it matters.
    pub(super) on_machines: Occupants,
    pub(super) on_claims: Occupants,
    /// By shape that matters there: pods on hosts of both kinds.
    pub(super) on_hosts: Vec<u32>,
    /// What was counted since it may have to be taken back.
    journal: Option<Vec<Change>>,
    /// Of no meaning between two changes.
    scratch: FixedBitSet,
}

impl Counts {
    /// Counts the pods that run and stay.
    pub(crate) fn new(topology: &Topology<'_, '_>) -> Self {
        let mut counts = Self::default();
        if topology.rules.groups.is_empty() {
            return counts;
        }
        for pod in &topology.tables.snapshot.pods {
            let Placement::Bound(node) = pod.placement else { continue };
            let machine = node.0 as usize;
            let leaves = topology.tables.snapshot.nodes[machine].deleting
                && pod.is_currently_reschedulable();
            if !pod.terminating && !leaves {
                counts.add_on_machine(topology, pod.shape.0 as usize, machine, 1);
            }
        }
        counts
    }

    /// Counts a pod on a machine in (1) or out (-1).
    pub(crate) fn add_on_machine(
        &mut self,
        topology: &Topology<'_, '_>,
        shape: usize,
        machine: usize,
        by: i32,
    ) {
        let rules = &topology.rules;
        for &key in &rules.crowding[shape] {
            if let Some(domain) = topology.domains.of(key, machine) {
                let groups = self.counted.groups(topology, machine);
                self.count(rules, Change::SelectedBy { groups, shape, key, domain, by });
            }
        }
        for family in rules.counting[shape].iter() {
            let about = &rules.families[family].about;
            if let Some(domain) = topology.domains.of(about.key, machine)
                && about.counts_on(topology, machine)
            {
                self.count(rules, Change::Selected { shape, family, domain, by });
            }
        }
        for (group, key) in rules.closing(shape) {
            if let Some(domain) = topology.domains.of(key, machine) {
                self.count(rules, Change::Carrying { group, domain, by });
            }
        }
        if rules.matters_on_hosts(shape) {
            let (host, place) =
                (Host::Machine(machine), topology.tables.machines.position(machine));
            self.count(rules, Change::Occupants { shape, host, place, by });
        }
    }

    /// Counts pods on a machine to come.
    pub(crate) fn add_on_claim(
        &mut self,
        topology: &Topology<'_, '_>,
        specs: &mut MachineSpecs,
        shape: usize,
        claim: usize,
        spec: SpecId,
        n: usize,
    ) {
        let by = i32::try_from(n).unwrap_or(i32::MAX);
        let rules = &topology.rules;
        let mut place = Place::new(spec, shape);
        for &key in &rules.crowding[shape] {
            if let [domain] = *specs.values(topology.tables, spec, key) {
                let types = place.types(topology.tables, specs).clone();
                let groups = in_spec(topology, specs, spec, types);
                self.count(rules, Change::SelectedBy { groups, shape, key, domain, by });
            }
        }
        // There may be a family for each pod, all about the same key.
        let mut known: Option<(Key, Option<Value>)> = None;
        for family in rules.counting[shape].iter() {
            let about = &rules.families[family].about;
            if known.is_none_or(|(key, _)| key != about.key) {
                let only = match *specs.values(topology.tables, spec, about.key) {
                    [domain] => Some(domain),
                    _ => None,
                };
                known = Some((about.key, only));
            }
            match known {
                Some((_, Some(domain))) if about.counts_in(topology.tables, specs, &mut place) => {
                    self.count(rules, Change::Selected { shape, family, domain, by });
                }
                // The pod will be in some domain, so none that wants to be near it is the first of
                // its kind.
                Some((_, None))
                    if about.counts == Counting::Near
                        && is_labelled(topology.tables, &specs[spec], about.key) =>
                {
                    self.count(rules, Change::Somewhere { shape, family, by });
                }
                _ => {}
            }
        }
        for (group, key) in rules.closing(shape) {
            if let [domain] = *specs.values(topology.tables, spec, key) {
                self.count(rules, Change::Carrying { group, domain, by });
            }
        }
        if rules.matters_on_hosts(shape) {
            let (host, place) = (Host::Claim(claim), Some(claim));
            self.count(rules, Change::Occupants { shape, host, place, by });
        }
    }

    /// The pods in a domain that is a value: those that a group selects, and those that carry its
    /// rule.
    pub(super) fn in_domain(&self, group: usize, domain: Value) -> Tally {
        self.domains.get(&domain).map(|domain| domain.of(group)).unwrap_or_default()
    }

    /// From here on [`Self::rewind`] can take changes back. Answers where things stand.
    pub(crate) fn mark(&mut self) -> usize {
        self.journal.get_or_insert_default().len()
    }

    /// Takes back what was counted since a mark.
    pub(crate) fn rewind(&mut self, rules: &Rules, mark: usize) {
        let Some(journal) = &mut self.journal else { return };
        for change in journal.split_off(mark).into_iter().rev() {
            self.apply(rules, &change.inverse());
        }
    }

    fn count(&mut self, rules: &Rules, change: Change) {
        self.apply(rules, &change);
        if let Some(journal) = &mut self.journal {
            journal.push(change);
        }
    }

    fn apply(&mut self, rules: &Rules, change: &Change) {
        match *change {
            Change::Selected { shape, family, domain, by } => {
                let family = &rules.families[family];
                rules.selecting[shape].common_to(&family.groups, &mut self.scratch);
                self.domains.entry(domain).or_default().selected.change(&self.scratch, by);
                if family.about.counts == Counting::Near {
                    self.near.change(&self.scratch, by);
                }
            }
            Change::SelectedBy { ref groups, shape, key, domain, by } => {
                rules.selecting[shape].common_to(&rules.about_key[&key], &mut self.scratch);
                self.scratch.intersect_with(groups);
                self.domains.entry(domain).or_default().selected.change(&self.scratch, by);
                self.scratch.intersect_with(&rules.near);
                self.near.change(&self.scratch, by);
            }
            Change::Somewhere { shape, family, by } => {
                let groups = &rules.families[family].groups;
                rules.selecting[shape].common_to(groups, &mut self.scratch);
                self.near.change(&self.scratch, by);
            }
            Change::Carrying { group, domain, by } => {
                self.domains.entry(domain).or_default().carry(group, by);
            }
            Change::Occupants { shape, host, place, by } => {
                match host {
                    Host::Machine(machine) => self.on_machines.change(shape, machine, place, by),
                    Host::Claim(claim) => self.on_claims.change(shape, claim, place, by),
                }
                if self.on_hosts.len() <= shape {
                    self.on_hosts.resize(shape + 1, 0);
                }
                self.on_hosts[shape] = self.on_hosts[shape].saturating_add_signed(by);
            }
        }
    }
}
