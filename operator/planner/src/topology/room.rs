//! How many pods more a rule lets into a domain.

use super::counts::Counts;
use super::families::Universe;
use super::tallies::Tally;
use super::{Group, Kind, Rule, Topology};
use crate::intern::{Key, Value};
use crate::machine_specs::MachineSpecs;
use crate::plan::Exclusion;

/// No limit.
pub(super) const ANY: u32 = u32::MAX;

impl Counts {
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
