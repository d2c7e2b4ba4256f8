//! Topology rules: spread, pod affinity and anti-affinity.
//!
//! Rules that are the same for many pods form a group. A group counts, per domain (a zone, a host,
//! a capacity type), the pods that its selector selects and, for anti-affinity, those that carry
//! the rule. How many pods may still come to a domain is then a look-up. A machine to come is
//! narrowed to one domain as soon as a rule asks for it, so that what the plan counts is what will
//! be.
//!
//! Preferred terms and `ScheduleAnyway` are rules of the pod that carries them until they are
//! dropped, in Karpenter's order; they bind nobody else.

mod choosing;
mod counted;
mod counts;
mod domains;
mod evenly;
mod expected;
mod families;
mod following;
mod honoring;
mod host_sharing;
mod hosts;
mod idle;
mod machines;
mod occupants;
mod reading;
mod room;
mod selectors;
mod standing;
mod tallies;

use fixedbitset::FixedBitSet;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::id_set::IdSet;
use crate::intern::Key;
use crate::machine_specs::{MachineSpecs, SpecId};
use crate::tables::Tables;
use crate::tables::shapes::ClassId;
pub(crate) use choosing::DomainChoice;
use counted::Conditions;
#[cfg(test)]
pub(crate) use counted::both_ways;
pub(crate) use counts::Counts;
pub(crate) use domains::Domains;
pub(crate) use evenly::Evenly;
use families::Family;
pub use following::out_of_reach;
pub(crate) use host_sharing::{HostGroup, HostOccupancy, most_on_host};
pub(crate) use occupants::Host;
#[cfg(test)]
pub(crate) use room::UNTOLD;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Kind {
    Spread {
        max_skew: i32,
        min_domains: Option<i32>,
        honor_affinity: bool,
        honor_taints: bool,
        /// Whose affinity and tolerations are honoured.
        class: ClassId,
    },
    Affinity,
    Anti,
}

#[derive(Clone, Debug)]
struct Group {
    kind: Kind,
    key: Key,
    /// Domains are hosts.
    host: bool,
    /// Which [`Family`] it belongs to.
    family: usize,
    /// Of required affinity, the groups of the terms that the same pods carry, this one included.
    together: Vec<usize>,
    /// The shapes that the selector selects.
    selects: IdSet,
    /// The shapes that require the rule, ascending.
    carriers: SmallVec<[u32; 2]>,
}

/// How pods may change machines to come without any rule minding, but for rules about hosts that
/// leave no room there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mobility {
    /// Not at all.
    Stays,
    /// Between machines of one spec: rules count which domain they are in.
    InSpec,
    /// Between machines of one template.
    InTemplate,
}

/// What a group has to do with a shape.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rule {
    group: usize,
    /// The shape carries the rule.
    carried: bool,
    /// The rule's selector selects the shape.
    itself: bool,
    /// It is a preference: those that it selects don't mind.
    soft: bool,
}

/// The groups that select a shape, but for those whose required rule it carries.
#[derive(Debug, Default)]
struct Others {
    /// Of those about each topology key the first [`WEIGHED`], ascending.
    weighed: Vec<usize>,
    /// Whether there are more.
    is_crowded: bool,
    spread_on_hosts: IdSet,
    /// The others about hosts.
    on_hosts: IdSet,
}

/// How many rules that others carry, of those about one topology key, have a say in which of
/// several domains is best for a pod that they select. All of them have a say in which domains are
/// open.
const WEIGHED: usize = 64;

/// Pods of more groups about hosts than this don't change machines that are packed anew: each is
/// compared with all others.
const HOST_GROUPS: usize = 16;

/// Pods of more groups about other domains than this keep their domain: what they have to do with
/// is compared with all others.
const DOMAIN_GROUPS: usize = 16;

/// Of more families than this it is asked all at once which of them count on a machine.
const FEW_FAMILIES: usize = 16;

/// The groups of a snapshot, and which shapes have to do with them.
#[derive(Debug, Default)]
pub(crate) struct Rules {
    groups: Vec<Group>,
    families: Vec<Family>,
    /// By shape: the groups about other domains than hosts that select it.
    selecting: Vec<IdSet>,
    /// By shape: the families of these, as long as they are no more than [`FEW_FAMILIES`].
    counting: Vec<IdSet>,
    /// By shape: the topology keys of these, where there are more.
    crowding: Vec<Vec<Key>>,
    /// By topology key: the groups that are about it.
    about_key: FxHashMap<Key, IdSet>,
    /// The groups about other domains than hosts that bring pods together.
    near: FixedBitSet,
    conditions: Conditions,
    /// By shape: of these, some that count pods only on nodes which pods of another class could use
    /// ([`honoring`]).
    honouring: Vec<SmallVec<[usize; 2]>>,
    /// By shape: the required rules that it carries.
    required: Vec<Vec<Rule>>,
    /// By shape.
    others: Vec<Others>,
    /// By shape: its preferences, those that are dropped first in front.
    preferred: Vec<Vec<Rule>>,
    /// By shape: how many of its preferences are terms of pod affinity, which are dropped before
    /// those of node affinity.
    terms: Vec<usize>,
    /// By group: whether it selects shapes that don't carry its rule.
    counts_others: Vec<bool>,
    /// The groups about hosts that bring pods together, and with those of which a host may have
    /// several pods.
    near_on_hosts: IdSet,
    several_on_hosts: IdSet,
}

/// Rules with what they are judged by.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Topology<'p, 'a> {
    pub(crate) tables: &'p Tables<'a>,
    pub(crate) rules: &'p Rules,
    pub(crate) domains: &'p Domains,
}

impl Rules {
    /// Notes what they ask of machines, where that is asked of many at once.
    pub(crate) fn note_conditions(&mut self, tables: &Tables<'_>) {
        self.conditions = Conditions::new(tables, self);
    }

    /// Whether some shape is counted by so many families that they are asked all at once.
    pub(crate) fn has_crowds(&self) -> bool {
        self.crowding.iter().any(|keys| !keys.is_empty())
    }

    /// Whether a shape has to do with any rule, its own or another's.
    pub(crate) fn concern(&self, shape: usize) -> bool {
        !self.required[shape].is_empty()
            || !self.preferred[shape].is_empty()
            || self.others_of(shape).next().is_some()
    }

    /// How a shape's pods may change machines to come.
    pub(crate) fn mobility(&self, shape: usize) -> Mobility {
        let own = || self.carried(shape, 0).map(|rule| &self.groups[rule.group]);
        if own().any(|group| group.host && group.kind == Kind::Affinity)
            || self.others[shape].on_hosts.common(&self.near_on_hosts).next().is_some()
        {
            return Mobility::Stays;
        }
        let in_domains = self.selecting[shape].iter().next().is_some();
        if in_domains || own().any(|group| !group.host) {
            Mobility::InSpec
        } else {
            Mobility::InTemplate
        }
    }

    /// The rules about other domains than hosts that have to do with a shape, by group, and whether
    /// it carries them. Pods of one class for which these are the same may change places, and no
    /// rule can tell. A spread constraint that its pods carry alone is left out if it is even: it
    /// is met wherever they are. `None` where there are too many to compare, or where more than
    /// these decides whether a pod counts.
    pub(crate) fn in_domains(
        &self,
        shape: usize,
        is_even: &mut dyn FnMut(usize) -> bool,
    ) -> Option<Vec<(usize, bool)>> {
        if self.mobility(shape) != Mobility::InSpec || !self.honouring(shape).is_empty() {
            return None;
        }
        let own = || self.carried(shape, 0).filter(|rule| !self.groups[rule.group].host);
        let is_alone = own().nth(1).is_none();
        let own = own().filter(|rule| !is_alone || rule.soft || !is_even(rule.group));
        let selecting = self.selecting[shape].iter().map(|group| (group, false));
        let all = selecting.chain(own.map(|rule| (rule.group, true)));
        let mut all: Vec<(usize, bool)> = all.take(DOMAIN_GROUPS + 1).collect();
        all.sort_unstable();
        all.dedup();
        (all.len() <= DOMAIN_GROUPS).then_some(all)
    }

    /// When a shape's turn is. Those first that rules of others count, so that these rules see
    /// them: kube-scheduler may bind them in any order. Those last that want to be near others, so
    /// that they find them. With `hosts_first` those come first, too, whose rules count nobody but
    /// those that carry them: no rule minds, and the hosts that they need are there for the others.
    pub(crate) fn rank(&self, shape: usize, hosts_first: bool) -> u8 {
        let turn = |rule: &Rule| match self.groups[rule.group].kind {
            Kind::Affinity => 2,
            _ => u8::from(!hosts_first || self.counts_others[rule.group]),
        };
        self.carried(shape, 0).map(turn).max().unwrap_or(0)
    }

    /// The groups that a shape has to do with.
    pub(crate) fn of(&self, shape: usize) -> impl Iterator<Item = usize> {
        self.required[shape].iter().map(|rule| rule.group).chain(self.others_of(shape))
    }

    /// The groups that select a shape, but for those whose required rule it carries.
    fn others_of(&self, shape: usize) -> impl Iterator<Item = usize> {
        let others = &self.others[shape];
        let in_domains = self.selecting[shape].iter().filter(move |&id| !self.carries(shape, id));
        in_domains.chain(others.spread_on_hosts.iter()).chain(others.on_hosts.iter())
    }

    /// Whether a shape carries a group's required rule.
    fn carries(&self, shape: usize, group: usize) -> bool {
        contains(&self.groups[group].carriers, shape)
    }

    /// Whether a machine that gets a spec also gets a value for a label that was open, which rules
    /// are about: its pods were counted in no domain of that label.
    pub(crate) fn would_tell(
        &self,
        tables: &Tables<'_>,
        specs: &mut MachineSpecs,
        [from, to]: [SpecId; 2],
    ) -> bool {
        if from == to {
            return false;
        }
        let keys = specs[to].requirements.iter().map(|(key, _)| key);
        let keys: SmallVec<[Key; 8]> =
            keys.filter(|key| self.about_key.contains_key(key)).collect();
        keys.into_iter().any(|key| {
            specs.values(tables, from, key).is_empty() && !specs.values(tables, to, key).is_empty()
        })
    }

    /// Whether a shape requires any of some rules.
    pub(crate) fn require(&self, shape: usize, groups: &FixedBitSet) -> bool {
        self.required[shape].iter().any(|rule| groups.contains(rule.group))
    }

    /// Required rules by which it matters in what order pods move: a zone that is too full or too
    /// empty for a while is, unlike a host that is counted twice.
    pub(crate) fn in_order(&self) -> FixedBitSet {
        let mut found = FixedBitSet::with_capacity(self.groups.len());
        for (group, rule) in self.groups.iter().enumerate() {
            if rule.carriers.is_empty() {
                continue;
            }
            let matters = match rule.kind {
                Kind::Anti => false,
                Kind::Spread { .. } => !rule.host,
                Kind::Affinity => true,
            };
            found.set(group, matters);
        }
        found
    }

    /// Topology keys other than the host name.
    pub(crate) fn domain_keys(&self) -> impl Iterator<Item = Key> {
        self.groups.iter().filter(|group| !group.host).map(|group| group.key)
    }

    /// Whether a group's rule asks to be near others.
    pub(crate) fn is_affinity(&self, group: usize) -> bool {
        self.groups[group].kind == Kind::Affinity
    }

    /// How many groups there are.
    pub(crate) fn len(&self) -> usize {
        self.groups.len()
    }

    /// How many preferences a shape has, and how many of them are terms of pod affinity.
    pub(crate) fn preferences(&self, shape: usize) -> (usize, usize) {
        (self.preferred[shape].len(), self.terms[shape])
    }

    /// Whether a shape's pods keep off each other's hosts, as long as only so many preferences are
    /// dropped.
    pub(crate) fn one_per_host(&self, shape: usize, dropped: usize) -> bool {
        self.carried(shape, dropped).any(|rule| {
            let group = &self.groups[rule.group];
            group.most_together() == Some(1) && group.host && rule.itself
        })
    }

    /// Whether hosts matter to a shape only as far as [`HOST_GROUPS`] groups are concerned of which
    /// a host has one pod at most.
    pub(crate) fn is_alone_on_hosts(&self, shape: usize) -> bool {
        if self.on_hosts(shape).nth(HOST_GROUPS).is_some() {
            return false;
        }
        let others = &self.others[shape];
        let several = |groups: &IdSet| groups.common(&self.several_on_hosts).next().is_some();
        self.carried_about_hosts(shape, 0).all(|rule| !self.several_on_hosts.contains(rule.group))
            && !several(&others.on_hosts)
            && !several(&others.spread_on_hosts)
    }

    /// The rules about hosts that decide where a shape may be.
    fn on_hosts(&self, shape: usize) -> impl Iterator<Item = Rule> {
        let others = &self.others[shape];
        let others = others.spread_on_hosts.iter().chain(others.on_hosts.iter());
        self.carried_about_hosts(shape, 0).copied().chain(others.map(Rule::of_others))
    }

    /// The groups of which a host has one pod at most, as far as a shape has to do with them. None
    /// when hosts matter to it in another way.
    pub(crate) fn alone_on_hosts(&self, shape: usize) -> Vec<HostGroup> {
        if !self.is_alone_on_hosts(shape) {
            return Vec::new();
        }
        let of_rule = |rule: Rule| HostGroup {
            group: rule.group,
            is_selected: rule.itself,
            is_carrier: rule.carried,
            is_anti: self.groups[rule.group].kind == Kind::Anti,
        };
        let mut groups: Vec<HostGroup> = self.on_hosts(shape).map(of_rule).collect();
        groups.sort_unstable();
        groups.dedup();
        groups
    }

    /// The groups that a shape belongs to of which a host holds only so many pods, whatever is on
    /// it. A host without any may always come, so that spread over hosts lets each have as many as
    /// its skew.
    pub(crate) fn limits_on_hosts(&self, shape: usize) -> Vec<(usize, f64)> {
        let own = self.required[shape].iter().filter(|rule| rule.itself);
        let on_hosts = own.filter(|rule| self.groups[rule.group].host);
        let most =
            |rule: &Rule| Some((rule.group, f64::from(self.groups[rule.group].most_together()?)));
        on_hosts.filter_map(most).collect()
    }

    /// The number of groups about other domains than hosts that a shape has to do with.
    pub(crate) fn n_about_domains(&self, shape: usize) -> usize {
        let own = self.carried(shape, 0).map(|rule| rule.group);
        let own = own.filter(|&group| !self.groups[group].host);
        let mut groups: Vec<usize> = own.chain(self.selecting[shape].iter()).collect();
        groups.sort_unstable();
        groups.dedup();
        groups.len()
    }

    /// Whether rules about other domains than hosts decide where a shape may be.
    pub(crate) fn has_domains(&self, shape: usize, dropped: usize) -> bool {
        self.about_domains(shape, dropped).next().is_some()
    }

    /// Among how many domains of a spec a shape's pods are spread.
    pub(crate) fn shares(
        &self,
        tables: &Tables<'_>,
        specs: &mut MachineSpecs,
        shape: usize,
        dropped: usize,
        spec: SpecId,
    ) -> usize {
        let spread = self.carried(shape, dropped).filter(|rule| {
            let group = &self.groups[rule.group];
            !group.host && rule.itself && matches!(group.kind, Kind::Spread { .. })
        });
        let domains =
            spread.map(|rule| specs.values(tables, spec, self.groups[rule.group].key).len());
        domains.max().unwrap_or(1).max(1)
    }

    /// The required rules about a topology key that a shape carries itself.
    pub(crate) fn about(&self, shape: usize, key: Key) -> impl Iterator<Item = &Rule> {
        self.required[shape].iter().filter(move |rule| self.groups[rule.group].key == key)
    }

    /// The rules that a shape carries once some of its preferences are dropped.
    fn carried(&self, shape: usize, dropped: usize) -> impl Iterator<Item = &Rule> {
        self.required[shape].iter().chain(&self.preferred[shape][dropped..])
    }

    /// Those of them that are about hosts.
    fn carried_about_hosts(&self, shape: usize, dropped: usize) -> impl Iterator<Item = &Rule> {
        self.carried(shape, dropped).filter(|rule| self.groups[rule.group].host)
    }

    /// What decides in which domains other than hosts a shape may be: its own rules, and those of
    /// others that select it, of these the ones that are weighed. The rest
    /// only closes domains ([`Counts::keeps_off`]).
    fn about_domains(&self, shape: usize, dropped: usize) -> impl Iterator<Item = Rule> {
        let others = self.others[shape].weighed.iter().map(|&group| Rule::of_others(group));
        self.required[shape]
            .iter()
            .copied()
            .chain(others)
            .chain(self.preferred[shape][dropped..].iter().copied())
            .filter(|rule| !self.groups[rule.group].host)
    }

    /// The groups of anti-affinity about other domains than hosts whose required rule a shape
    /// carries, and their topology keys.
    fn closing(&self, shape: usize) -> impl Iterator<Item = (usize, Key)> {
        let own = self.required[shape].iter().map(|rule| (rule.group, &self.groups[rule.group]));
        let anti = own.filter(|(_, group)| !group.host && group.kind == Kind::Anti);
        anti.map(|(id, group)| (id, group.key))
    }

    /// Whether it matters to a rule about hosts that a shape's pods are there.
    fn matters_on_hosts(&self, shape: usize) -> bool {
        !self.others[shape].on_hosts.is_empty()
            || !self.others[shape].spread_on_hosts.is_empty()
            || self.required[shape].iter().any(|rule| self.groups[rule.group].host)
    }
}

impl Rule {
    /// A rule that others carry and that selects the shape.
    fn of_others(group: usize) -> Self {
        Self { group, carried: false, itself: true, soft: false }
    }
}

impl Group {
    /// How many of its pods a domain may have while another has none; nothing when they want to be
    /// together.
    fn most_together(&self) -> Option<i32> {
        match self.kind {
            Kind::Anti => Some(1),
            Kind::Spread { max_skew, .. } => Some(max_skew.max(1)),
            Kind::Affinity => None,
        }
    }

    fn describe(&self) -> String {
        match self.kind {
            Kind::Spread { max_skew, .. } => {
                format!("topology spread with maxSkew {max_skew} leaves no domain")
            }
            Kind::Affinity => "pod affinity: no domain has a pod that it selects".to_owned(),
            Kind::Anti => {
                "pod anti-affinity: every domain has a pod that it keeps away from".to_owned()
            }
        }
    }
}

/// Whether ascending shapes have one among them.
fn contains(shapes: &[u32], shape: usize) -> bool {
    shapes.binary_search_by(|&other| (other as usize).cmp(&shape)).is_ok()
}
