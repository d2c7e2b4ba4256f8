//! Spread constraints that say how many pods each domain gets, whatever a plan does.

use super::Topology;
use super::{Counts, Group, Kind, Rules};
use crate::intern::{Key, Value};
use crate::machine_specs::MachineSpecs;

/// A required spread constraint over other domains than hosts, which only the pods of one shape can
/// still change.
#[derive(Clone, Debug)]
pub(crate) struct Evenly {
    pub(crate) key: Key,
    /// How many pods more than the emptiest a domain may have; at least 1.
    pub(crate) max_skew: u32,
    /// All domains that count, ascending, with the pods that are there already.
    pub(crate) domains: Vec<(Value, u32)>,
    /// Whether the emptiest counts as one without pods: there are fewer domains than `minDomains`,
    /// or any machine may be another one.
    pub(crate) is_short: bool,
}

impl Rules {
    /// Whether no domain has more pods of a spread group than its skew allows, so that each of them
    /// may have come to its domain, and to any other: they can come in turn.
    pub(crate) fn is_even(
        &self,
        topology: &Topology<'_, '_>,
        specs: &mut MachineSpecs,
        counts: &Counts,
        group: usize,
    ) -> bool {
        let Group { kind, family, .. } = &self.groups[group];
        let Kind::Spread { max_skew, min_domains, .. } = *kind else { return false };
        let universe = self.families[*family].about.universe(topology, specs);
        let there = |&value: &Value| counts.in_domain(group, value).selected;
        let pods = || universe.domains.iter().map(there);
        let few = |least: i32| i64::try_from(pods().count()).is_ok_and(|n| n < i64::from(least));
        let least = if min_domains.is_some_and(few) { 0 } else { pods().min().unwrap_or(0) };
        let most = pods().max().unwrap_or(0);
        !universe.is_open && i64::from(most) <= i64::from(least) + i64::from(max_skew)
    }

    /// The spread constraints of a shape by which its own pods count, and of those that are still
    /// `placed` nobody else's.
    pub(crate) fn evenly(
        &self,
        topology: &Topology<'_, '_>,
        specs: &mut MachineSpecs,
        counts: &Counts,
        shape: usize,
        placed: &dyn Fn(usize) -> bool,
    ) -> Vec<Evenly> {
        let mut found = Vec::new();
        for rule in self.required[shape].iter().filter(|rule| rule.itself) {
            let group = &self.groups[rule.group];
            let Kind::Spread { max_skew, min_domains, .. } = group.kind else { continue };
            let others = || group.selects.iter().any(|other| other != shape && placed(other));
            if group.host || others() {
                continue;
            }
            let there = |value: Value| counts.in_domain(rule.group, value).selected;
            let universe = self.families[group.family].about.universe(topology, specs);
            let domains: Vec<(Value, u32)> =
                universe.domains.iter().map(|&value| (value, there(value))).collect();
            let few = |least: i32| i64::try_from(domains.len()).is_ok_and(|n| n < i64::from(least));
            let is_short = universe.is_open || min_domains.is_some_and(few);
            let max_skew = u32::try_from(max_skew).unwrap_or(0).max(1);
            found.push(Evenly { key: group.key, max_skew, domains, is_short });
        }
        found
    }
}
