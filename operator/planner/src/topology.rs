//! Topology rules: spread, pod affinity and anti-affinity.
//!
//! Rules that are the same for many pods form a group. A group counts, per domain (a zone, a host, a capacity type), the pods that its selector selects
//! and, for anti-affinity, those that carry the rule. How many pods may still come to a domain is then a look-up. A machine to come is narrowed to one
//! domain as soon as a rule asks for it, so that what the plan counts is what will be.
//!
//! Preferred terms and `ScheduleAnyway` are rules of the pod that carries them until they are dropped, in Karpenter's order; they bind nobody else.

mod choosing;
mod counts;
mod domains;
mod journal;
mod occupants;
mod selectors;
mod tallies;

use indexmap::IndexMap;
use rustc_hash::{FxBuildHasher, FxHashSet};
use smallvec::SmallVec;

use crate::cells::{CellId, Cells};
use crate::compile::shapes::ClassId;
use crate::compile::{Problem, label};
use crate::id_set::IdSet;
use crate::intern::{Key, Symbols};
use crate::policy::PreferencePolicy;
use crate::snapshot::Snapshot;
pub(crate) use choosing::Narrowed;
pub(crate) use counts::{Counts, Host};
pub(crate) use domains::{Domains, cell_values};
use selectors::{ByLabel, Names, Scope, Selectable};

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
    /// Of required rules, the topology keys of all rules of the kind that the same pods carry, this one's included: kube-scheduler looks at them together.
    keys: Vec<Key>,
    /// Of required affinity, the groups of the terms that the same pods carry, this one included.
    together: Vec<usize>,
    /// The shapes that the selector selects.
    selects: IdSet,
    /// The shapes that require the rule, ascending.
    carriers: SmallVec<[u32; 2]>,
}

/// What rules have in common that form one group: kind, topology key, the pods that they are about, [`Group::keys`].
type Identity = (Kind, Key, Scope, Vec<Key>);

/// How pods may change machines to come without any rule minding, but for rules about hosts that leave no room there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mobility {
    /// Not at all.
    Stays,
    /// Between machines of one cell: rules count which domain they are in.
    InCell,
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
    in_domains: IdSet,
    /// Of those about each topology key the first [`WEIGHED`], ascending.
    weighed: Vec<usize>,
    /// Whether there are more.
    is_crowded: bool,
    spread_on_hosts: IdSet,
    /// The others about hosts.
    on_hosts: IdSet,
}

/// How many rules that others carry, of those about one topology key, have a say in which of several domains is best for a pod that they select. All of them
/// have a say in which domains are open.
const WEIGHED: usize = 64;

impl Others {
    /// Those that have tallies ([`Group::is_tallied`]).
    fn tallied(&self) -> impl Iterator<Item = usize> {
        self.in_domains.iter().chain(self.spread_on_hosts.iter())
    }

    fn iter(&self) -> impl Iterator<Item = usize> {
        self.tallied().chain(self.on_hosts.iter())
    }
}

/// The groups of a snapshot, and which shapes have to do with them.
#[derive(Debug, Default)]
pub(crate) struct Rules {
    groups: Vec<Group>,
    /// By shape: the required rules that it carries.
    required: Vec<Vec<Rule>>,
    /// By shape.
    others: Vec<Others>,
    /// By shape: its preferences, those that are dropped first in front.
    preferred: Vec<Vec<Rule>>,
    /// By shape: how many of its preferences are terms of pod affinity, which are dropped before those of node affinity.
    terms: Vec<usize>,
    /// By group: whether it selects shapes that don't carry its rule.
    counts_others: Vec<bool>,
}

impl Rules {
    pub(crate) fn new(
        snapshot: &Snapshot,
        classes: &[ClassId],
        preferences: PreferencePolicy,
        symbols: &mut Symbols,
    ) -> Self {
        let mut groups: IndexMap<Identity, (), FxBuildHasher> = IndexMap::default();
        let mut names = Names::new(snapshot);
        let respected = preferences == PreferencePolicy::Respect;
        let n = snapshot.shapes.len();
        let (mut carried, mut preferred, mut terms) =
            (Vec::with_capacity(n), Vec::new(), Vec::new());
        for (index, shape) in snapshot.shapes.iter().enumerate() {
            let (mut required, mut soft) = (Vec::new(), Vec::new());
            let mut near: SmallVec<[&crate::snapshot::PodAffinityTerm; 4]> = SmallVec::new();
            let mut wanted: Option<(Scope, Vec<Key>)> = None;
            for term in &shape.pod_affinity {
                match (term.weight, term.anti) {
                    (None, true) => {
                        let scope = Scope::of_term(shape, term, &mut names);
                        let key = symbols.key(&term.topology_key);
                        required.push(groups.insert_full((Kind::Anti, key, scope, vec![]), ()).0);
                    }
                    (None, false) => {
                        let scope = Scope::of_term(shape, term, &mut names);
                        let key = symbols.key(&term.topology_key);
                        wanted = Some(match wanted.take() {
                            None => (scope, vec![key]),
                            Some((all, mut keys)) => {
                                keys.push(key);
                                (all.and(scope), keys)
                            }
                        });
                    }
                    (Some(_), _) if respected => near.push(term),
                    (Some(_), _) => {}
                }
            }
            // A pod counts for the required terms of affinity only when it matches all of them, whatever their topology keys.
            if let Some((scope, mut keys)) = wanted {
                keys.sort_unstable();
                keys.dedup();
                for &key in &keys {
                    let identity = (Kind::Affinity, key, scope.clone(), keys.clone());
                    required.push(groups.insert_full(identity, ()).0);
                }
            }
            near.sort_by_key(|term| (term.anti, std::cmp::Reverse(term.weight)));
            for term in &near {
                let key = symbols.key(&term.topology_key);
                let scope = Scope::of_term(shape, term, &mut names);
                let identity = if term.anti {
                    (Kind::Anti, key, scope, vec![])
                } else {
                    (Kind::Affinity, key, scope, vec![key])
                };
                soft.push(groups.insert_full(identity, ()).0);
            }
            terms.push(soft.len());
            // Nodes that lack one of the keys of required constraints count for none of them.
            let hard = shape.topology_spread.iter().filter(|spread| spread.required);
            let mut hard: Vec<Key> = hard.map(|spread| symbols.key(&spread.topology_key)).collect();
            hard.sort_unstable();
            hard.dedup();
            for spread in shape.topology_spread.iter().filter(|spread| spread.required || respected)
            {
                let key = symbols.key(&spread.topology_key);
                let keys = if spread.required { hard.clone() } else { vec![key] };
                let honors = spread.honor_affinity || spread.honor_taints;
                let kind = Kind::Spread {
                    max_skew: spread.max_skew,
                    min_domains: spread.min_domains,
                    honor_affinity: spread.honor_affinity,
                    honor_taints: spread.honor_taints,
                    class: if honors { classes[index] } else { 0 },
                };
                let scope = Scope::of_spread(shape, spread, &mut names);
                let id = groups.insert_full((kind, key, scope, keys), ()).0;
                if spread.required { required.push(id) } else { soft.push(id) }
            }
            let mut known = FxHashSet::default();
            required.retain(|&group| known.insert(group));
            carried.push(required);
            preferred.push(soft);
        }
        let pods: Vec<_> =
            snapshot.shapes.iter().map(|shape| Selectable::new(shape, &mut names)).collect();
        let by_label = ByLabel::new(&pods);
        let hostname = symbols.key(label::HOSTNAME);
        let groups = groups.into_keys().enumerate().map(|(id, (kind, key, scope, keys))| {
            let together = if kind == Kind::Affinity { vec![id] } else { vec![] };
            let selects = by_label.selected(&pods, &scope);
            let carriers = SmallVec::new();
            Group { kind, key, host: key == hostname, keys, together, selects, carriers }
        });
        let mut rules = Self { groups: groups.collect(), terms, ..Self::default() };
        rules.carry(&carried, &preferred);
        rules.bring_together();
        rules
    }

    /// Notes which groups' rules shapes carry, by shape: the required ones, and those that are preferences.
    fn carry(&mut self, required: &[Vec<usize>], preferred: &[Vec<usize>]) {
        let mut wishing: Vec<SmallVec<[u32; 2]>> = vec![SmallVec::new(); self.groups.len()];
        for (shape, id) in (0..required.len()).zip(0_u32..) {
            for &group in &required[shape] {
                self.groups[group].carriers.push(id);
            }
            for &group in &preferred[shape] {
                wishing[group].push(id);
            }
            self.required.push(self.rules_of(shape, &required[shape], false));
            self.preferred.push(self.rules_of(shape, &preferred[shape], true));
        }
        self.others.resize_with(required.len(), Others::default);
        for (id, (group, wishing)) in self.groups.iter().zip(&wishing).enumerate() {
            let is_in = |shapes: &[u32], shape: usize| {
                shapes.binary_search_by(|&other| (other as usize).cmp(&shape)).is_ok()
            };
            let mut counts_others = false;
            for shape in group.selects.iter().filter(|&shape| !is_in(&group.carriers, shape)) {
                let others = &mut self.others[shape];
                match group.kind {
                    _ if !group.host => others.in_domains.insert(id),
                    Kind::Spread { .. } => others.spread_on_hosts.insert(id),
                    _ => others.on_hosts.insert(id),
                }
                counts_others |= !is_in(wishing, shape);
            }
            self.counts_others.push(counts_others);
        }
        self.weigh();
    }

    /// Chooses the rules of others that are weighed: few about each topology key.
    fn weigh(&mut self) {
        let groups = &self.groups;
        let mut by_key: Vec<usize> = (0..groups.len()).filter(|&id| !groups[id].host).collect();
        by_key.sort_by_key(|&id| groups[id].key);
        let mut found = vec![0; self.others.len()];
        for about_key in by_key.chunk_by(|&a, &b| groups[a].key == groups[b].key) {
            found.fill(0);
            for &id in about_key {
                for shape in groups[id].selects.iter() {
                    let others = &mut self.others[shape];
                    if !others.in_domains.contains(id) {
                        continue;
                    }
                    found[shape] += 1;
                    if found[shape] <= WEIGHED {
                        others.weighed.push(id);
                    }
                    others.is_crowded |= found[shape] > WEIGHED;
                }
            }
        }
        for others in &mut self.others {
            others.weighed.sort_unstable();
        }
    }

    /// What groups have to do with a shape that carries their rules.
    fn rules_of(&self, shape: usize, groups: &[usize], soft: bool) -> Vec<Rule> {
        let itself = |group: usize| self.groups[group].selects.contains(shape);
        let rule = |&group| Rule { group, carried: true, itself: itself(group), soft };
        groups.iter().map(rule).collect()
    }

    /// Finds the terms of affinity that are required together. Those of one group are with the same others, whoever carries them: they have the same keys.
    fn bring_together(&mut self) {
        for carried in &self.required {
            let affinity = |&group: &usize| self.groups[group].kind == Kind::Affinity;
            let together: Vec<usize> =
                carried.iter().map(|rule| rule.group).filter(affinity).collect();
            if together.len() > 1 {
                for &group in &together {
                    self.groups[group].together.clone_from(&together);
                }
            }
        }
    }

    /// Whether a shape has to do with any rule, its own or another's.
    pub(crate) fn concern(&self, shape: usize) -> bool {
        !self.required[shape].is_empty()
            || !self.preferred[shape].is_empty()
            || self.others[shape].iter().next().is_some()
    }

    /// How a shape's pods may change machines to come.
    pub(crate) fn mobility(&self, shape: usize) -> Mobility {
        let groups = self.deciding(shape, 0).map(|rule| &self.groups[rule.group]);
        let mut mobility = Mobility::InTemplate;
        for group in groups {
            if group.host && group.kind == Kind::Affinity {
                return Mobility::Stays;
            }
            if !group.host {
                mobility = Mobility::InCell;
            }
        }
        mobility
    }

    /// When a shape's turn is. Those first that rules of others count, so that these rules see them: kube-scheduler may bind them in any order. Those
    /// last that want to be near others, so that they find them. With `hosts_first` those come first, too, whose rules count nobody but those that carry them:
    /// no rule minds, and the hosts that they need are there for the others.
    pub(crate) fn rank(&self, shape: usize, hosts_first: bool) -> u8 {
        let turn = |rule: &Rule| match self.groups[rule.group].kind {
            Kind::Affinity => 2,
            _ => u8::from(!hosts_first || self.counts_others[rule.group]),
        };
        self.carried(shape, 0).map(turn).max().unwrap_or(0)
    }

    /// The groups that a shape has to do with.
    pub(crate) fn of(&self, shape: usize) -> impl Iterator<Item = usize> {
        self.required[shape].iter().map(|rule| rule.group).chain(self.others[shape].iter())
    }

    /// Required rules by which it matters in what order pods move: a zone that is too full or too empty for a while is, unlike a host that is counted twice.
    pub(crate) fn in_order(&self) -> fixedbitset::FixedBitSet {
        let mut found = fixedbitset::FixedBitSet::with_capacity(self.groups.len());
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

    /// Whether a shape's pods keep off each other's hosts, as long as only so many preferences are dropped.
    pub(crate) fn one_per_host(&self, shape: usize, dropped: usize) -> bool {
        self.carried(shape, dropped).any(|rule| {
            let group = &self.groups[rule.group];
            group.most_together() == Some(1) && group.host && rule.itself
        })
    }

    /// Whether hosts matter to a shape only as far as groups are concerned of which a host has one pod at most.
    pub(crate) fn is_alone_on_hosts(&self, shape: usize) -> bool {
        self.groups_on_hosts(shape).all(|group| self.groups[group].most_together() == Some(1))
    }

    /// The groups of which a host has one pod at most, as far as a shape has to do with them. None when hosts matter to it in another way.
    pub(crate) fn alone_on_hosts(&self, shape: usize) -> Vec<usize> {
        if self.is_alone_on_hosts(shape) { self.groups_on_hosts(shape).collect() } else { vec![] }
    }

    /// The groups about hosts that decide where a shape may be.
    fn groups_on_hosts(&self, shape: usize) -> impl Iterator<Item = usize> {
        let groups = self.deciding(shape, 0).map(|rule| rule.group);
        groups.filter(|&group| self.groups[group].host)
    }

    /// The groups that a shape belongs to of which a host holds only so many pods, whatever is on it. A host without any may always come, so that spread over hosts
    /// lets each have as many as its skew.
    pub(crate) fn limits_on_hosts(&self, shape: usize) -> Vec<(usize, f64)> {
        let own = self.required[shape].iter().filter(|rule| rule.itself);
        let on_hosts = own.filter(|rule| self.groups[rule.group].host);
        let most =
            |rule: &Rule| Some((rule.group, f64::from(self.groups[rule.group].most_together()?)));
        on_hosts.filter_map(most).collect()
    }

    /// Whether rules about other domains than hosts decide where a shape may be.
    pub(crate) fn has_domains(&self, shape: usize, dropped: usize) -> bool {
        self.about_domains(shape, dropped).next().is_some()
    }

    /// Among how many domains of a cell a shape's pods are spread.
    pub(crate) fn shares(
        &self,
        problem: &Problem<'_>,
        cells: &mut Cells,
        shape: usize,
        dropped: usize,
        cell: CellId,
    ) -> usize {
        let spread = self.carried(shape, dropped).filter(|rule| {
            let group = &self.groups[rule.group];
            !group.host && rule.itself && matches!(group.kind, Kind::Spread { .. })
        });
        let domains =
            spread.map(|rule| cells.values(problem, cell, self.groups[rule.group].key).len());
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

    /// What decides where a shape may be once some of its preferences are dropped: its own rules, and those of others that select it.
    fn deciding(&self, shape: usize, dropped: usize) -> impl Iterator<Item = Rule> {
        let others = self.others[shape].iter().map(Rule::of_others);
        self.required[shape]
            .iter()
            .copied()
            .chain(others)
            .chain(self.preferred[shape][dropped..].iter().copied())
    }

    /// The same for domains other than hosts; of others' rules those that are weighed. The rest only closes domains ([`Counts::keeps_off`]).
    fn about_domains(&self, shape: usize, dropped: usize) -> impl Iterator<Item = Rule> {
        let others = self.others[shape].weighed.iter().map(|&group| Rule::of_others(group));
        self.required[shape]
            .iter()
            .copied()
            .chain(others)
            .chain(self.preferred[shape][dropped..].iter().copied())
            .filter(|rule| !self.groups[rule.group].host)
    }

    /// The groups with tallies that count a shape's pods as selected.
    fn tallied(&self, shape: usize) -> impl Iterator<Item = usize> {
        let own = self.required[shape].iter().filter(|rule| rule.itself).map(|rule| rule.group);
        own.filter(|&group| self.groups[group].is_tallied()).chain(self.others[shape].tallied())
    }

    /// Whether it matters to a rule that is read off the pods on a host ([`occupants`]) that a shape's pods are there.
    fn matters_on_hosts(&self, shape: usize) -> bool {
        !self.others[shape].on_hosts.is_empty()
            || self.required[shape].iter().any(|rule| !self.groups[rule.group].is_tallied())
    }
}

impl Rule {
    /// A rule that others carry and that selects the shape.
    fn of_others(group: usize) -> Self {
        Self { group, carried: false, itself: true, soft: false }
    }
}

impl Group {
    /// Whether pods are counted by domain. Whom anti-affinity and affinity about hosts select is read off the pods on a host instead.
    fn is_tallied(&self) -> bool {
        !self.host || matches!(self.kind, Kind::Spread { .. })
    }

    /// How many of its pods a domain may have while another has none; nothing when they want to be together.
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
