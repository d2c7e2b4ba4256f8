//! How many pods of each group are where, and how many more may come.

use fixedbitset::FixedBitSet;
use rustc_hash::FxHashMap;

use super::Topology;
use super::counted::{OnMachines, in_spec};
use super::families::{Counting, Universe};
use super::hosts::Host;
use super::journal::Change;
use super::occupants::Occupants;
use super::standing::{Place, is_labelled};
use super::tallies::{Domain, Tallies, Tally};
use super::{Group, Kind, Rule};
use crate::intern::{Key, Value};
use crate::machine_specs::{MachineSpecs, SpecId};
use crate::plan::Exclusion;
use crate::snapshot::Placement;

/// No limit.
pub(super) const ANY: u32 = u32::MAX;

/// How many pods are where.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counts {
    /// Who is in domains that are values.
    pub(super) domains: FxHashMap<Value, Domain>,
    /// By group that wants to be together: the pods that it selects in all of them.
    pub(super) near: Tallies,
    /// By family: the domains that its pods could be in, once somebody has asked.
    universes: Vec<Option<Universe>>,
    /// Which groups count pods on machines that exist, for shapes that many families count.
    counted: OnMachines,
    /// Who is on machines that exist, and on machines to come, as far as it matters.
    pub(super) on_machines: Occupants,
    pub(super) on_claims: Occupants,
    /// By shape that matters there: pods on hosts of both kinds.
    pub(super) on_hosts: Vec<u32>,
    /// What was counted since it may have to be taken back.
    pub(super) journal: Option<Vec<Change>>,
    /// Of no meaning between two changes.
    pub(super) scratch: FixedBitSet,
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

    /// Whether a shape may go on a machine.
    pub(crate) fn allow_on_machine(
        &mut self,
        topology: &Topology<'_, '_>,
        specs: &mut MachineSpecs,
        shape: usize,
        machine: usize,
    ) -> bool {
        let (preferences, _) = topology.rules.preferences(shape);
        self.room_on_machine(topology, specs, shape, preferences, machine) > 0
    }

    /// How many pods of a shape may go on a machine, of which only so many preferences are dropped.
    pub(crate) fn room_on_machine(
        &mut self,
        topology: &Topology<'_, '_>,
        specs: &mut MachineSpecs,
        shape: usize,
        dropped: usize,
        machine: usize,
    ) -> usize {
        let mut most = self.room_on_host(topology, shape, dropped, Host::Machine(machine));
        for rule in topology.rules.about_domains(shape, dropped) {
            if most == 0 {
                break;
            }
            let (rule, group) = (&rule, &topology.rules.groups[rule.group]);
            most = match topology.domains.of(group.key, machine) {
                Some(value) => {
                    let least = self.least(topology, specs, rule);
                    let tally = self.in_domain(rule.group, value);
                    most.min(self.room(topology, rule, tally, least))
                }
                None if passes_unlabelled(group, rule) => most,
                None => 0,
            };
        }
        let mut domains = topology.domains.all_of(machine);
        if topology.rules.others[shape].is_crowded
            && domains.any(|(key, value)| self.keeps_off(topology, shape, key, value))
        {
            return 0;
        }
        most as usize
    }

    /// Whether anti-affinity of a pod in a domain that is a value keeps a shape off, as far as its
    /// rule is not weighed.
    pub(super) fn keeps_off(
        &self,
        topology: &Topology<'_, '_>,
        shape: usize,
        key: Key,
        value: Value,
    ) -> bool {
        let others = &topology.rules.others[shape];
        others.is_crowded
            && self.domains.get(&value).is_some_and(|domain| {
                let mut groups = domain.closing.common(&topology.rules.selecting[shape]);
                groups.any(|group| topology.rules.groups[group].key == key)
            })
    }

    /// The machines, by position, in domains that may take at least one pod of a shape; `None` when
    /// every machine's may.
    pub(crate) fn open_positions(
        &mut self,
        topology: &Topology<'_, '_>,
        specs: &mut MachineSpecs,
        shape: usize,
        dropped: usize,
    ) -> Option<FixedBitSet> {
        let mut open: Option<FixedBitSet> = None;
        let mut open_anyway = false;
        for rule in topology.rules.about_domains(shape, dropped) {
            let (rule, group) = (&rule, &topology.rules.groups[rule.group]);
            if !rule.carried && group.kind != Kind::Anti {
                continue;
            }
            let unlabelled = passes_unlabelled(group, rule);
            if unlabelled && !topology.domains.have(group.key) {
                // Pods may have thousands of rules about labels that no machine has.
                open_anyway = true;
                continue;
            }
            let least = self.least(topology, specs, rule);
            let set = topology.domains.positions(group.key, unlabelled, |value| {
                self.room(topology, rule, self.in_domain(rule.group, value), least) > 0
            });
            match &mut open {
                None => open = Some(set),
                Some(open) => open.intersect_with(&set),
            }
        }
        if topology.rules.others[shape].is_crowded {
            let open = open.get_or_insert_with(|| topology.domains.all_positions());
            for key in topology.domains.keys() {
                let keeps_off = |value| self.keeps_off(topology, shape, key, value);
                open.intersect_with(
                    &topology.domains.positions(key, true, |value| !keeps_off(value)),
                );
            }
        }
        open.or_else(|| open_anyway.then(|| topology.domains.all_positions()))
    }

    /// Whether no pods are counted that a group selects.
    fn selects_nobody(&self, topology: &Topology<'_, '_>, group: usize) -> bool {
        let rule = &topology.rules.groups[group];
        if !rule.host {
            return self.near.of(group) == 0;
        }
        let mut pods = rule.selects.iter().map_while(|shape| self.on_hosts.get(shape));
        pods.all(|&pods| pods == 0)
    }

    /// How many pods of a shape one rule lets into a domain.
    pub(super) fn room(
        &self,
        topology: &Topology<'_, '_>,
        rule: &Rule,
        here: Tally,
        least: u32,
    ) -> u32 {
        match topology.rules.groups[rule.group].kind {
            Kind::Anti => {
                let others = rule.itself && !rule.soft && here.carrying > 0;
                match (rule.carried && here.selected > 0) || others {
                    true => 0,
                    false if rule.carried && rule.itself => 1,
                    false => ANY,
                }
            }
            // Without the rule the pod is only counted.
            _ if !rule.carried => ANY,
            // The first of a group that wants to be together may be anywhere.
            Kind::Affinity => {
                let together = &topology.rules.groups[rule.group].together;
                let nobody = || together.iter().all(|&term| self.selects_nobody(topology, term));
                if here.selected > 0 || (rule.itself && nobody()) { ANY } else { 0 }
            }
            Kind::Spread { max_skew, .. } => {
                let limit = i64::from(max_skew) + i64::from(least) - i64::from(here.selected);
                let limit = u32::try_from(limit).unwrap_or(if limit < 0 { 0 } else { ANY });
                match rule.itself {
                    true => limit,
                    // It adds nothing to the count.
                    false if i64::from(here.selected) - i64::from(least) <= i64::from(max_skew) => {
                        ANY
                    }
                    false => 0,
                }
            }
        }
    }

    /// The domains into which a rule of its own lets at least one pod more, ascending. Not for
    /// rules about hosts.
    pub(crate) fn domains_left(
        &mut self,
        topology: &Topology<'_, '_>,
        specs: &mut MachineSpecs,
        rule: &Rule,
    ) -> Vec<Value> {
        let least = self.least(topology, specs, rule);
        let universe = self.universe(topology, specs, rule.group).domains;
        let is_left = |&&domain: &&Value| {
            self.room(topology, rule, self.in_domain(rule.group, domain), least) > 0
        };
        universe.iter().filter(is_left).copied().collect()
    }

    /// The domains that the pods of a group could be in, ascending. Not for groups about hosts.
    fn universe(
        &mut self,
        topology: &Topology<'_, '_>,
        specs: &mut MachineSpecs,
        group: usize,
    ) -> Universe {
        let rules = &topology.rules;
        let family = rules.groups[group].family;
        self.universes.resize(rules.families.len(), None);
        let found = || rules.families[family].about.universe(topology, specs);
        self.universes[family].get_or_insert_with(found).clone()
    }

    /// Whether each machine that may come is a further domain of a spread constraint.
    pub(super) fn is_open(
        &mut self,
        topology: &Topology<'_, '_>,
        specs: &mut MachineSpecs,
        rule: &Rule,
    ) -> bool {
        let group = &topology.rules.groups[rule.group];
        let is_spread = matches!(group.kind, Kind::Spread { .. });
        is_spread
            && !group.host
            && rule.carried
            && self.universe(topology, specs, rule.group).is_open
    }

    /// The smallest count of any domain that the pods of a spread group could be in.
    pub(super) fn least(
        &mut self,
        topology: &Topology<'_, '_>,
        specs: &mut MachineSpecs,
        rule: &Rule,
    ) -> u32 {
        let group = &topology.rules.groups[rule.group];
        let Kind::Spread { min_domains, .. } = group.kind else { return 0 };
        // There is always one more host.
        if group.host || !rule.carried {
            return 0;
        }
        let Universe { domains, is_open } = self.universe(topology, specs, rule.group);
        let few = |least: i32| i64::try_from(domains.len()).is_ok_and(|n| n < i64::from(least));
        if is_open || min_domains.is_some_and(few) {
            return 0;
        }
        let selected = |&domain: &Value| self.in_domain(rule.group, domain).selected;
        domains.iter().map(selected).min().unwrap_or(0)
    }
}

/// Where a label is missing nobody else's rule applies, and one's own can't be met, unless it only
/// keeps away.
pub(super) fn passes_unlabelled(group: &Group, rule: &Rule) -> bool {
    !rule.carried || group.kind == Kind::Anti
}

/// Why a shape has no domain. For [`Counts::room_on_host`] it is the first rule about hosts.
pub(super) fn failed(topology: &Topology<'_, '_>, rule: &Rule) -> Exclusion {
    let group = &topology.rules.groups[rule.group];
    Exclusion::Topology {
        key: topology.tables.symbols.key_name(group.key).to_owned(),
        rule: group.describe(),
    }
}

/// What is wrong with machines to come whose label has an unknown value, or none.
pub(crate) const UNTOLD: &str = "the NodePool does not say which value the label has";

/// Why machines to come are no domain for a shape: they have no such label, or a value that is made
/// up once they are launched.
pub(super) fn unknown(topology: &Topology<'_, '_>, rule: &Rule) -> Exclusion {
    let key = topology.tables.symbols.key_name(topology.rules.groups[rule.group].key).to_owned();
    Exclusion::Topology { key, rule: UNTOLD.to_owned() }
}
