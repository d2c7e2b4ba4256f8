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
mod selectors;
mod tallies;

use indexmap::IndexMap;
use rustc_hash::{FxBuildHasher, FxHashMap, FxHashSet};
use smallvec::SmallVec;

use crate::cells::{CellId, Cells};
use crate::compile::shapes::ClassId;
use crate::compile::{Problem, label};
use crate::intern::{Key, Symbols};
use crate::policy::PreferencePolicy;
use crate::snapshot::Snapshot;
pub(crate) use choosing::Narrowed;
pub(crate) use counts::{Counts, Host};
pub(crate) use domains::{Domains, cell_values};
use selectors::{Names, Scope, Selectable};

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

/// The groups of a snapshot, and which shapes have to do with them.
#[derive(Debug, Default)]
pub(crate) struct Rules {
    groups: Vec<Group>,
    /// By shape: the groups whose required rule it carries.
    carried: Vec<Vec<usize>>,
    /// By shape: the groups that select it.
    selected: Vec<Vec<usize>>,
    /// By shape: what decides where it may be: its own rules, and those of others that select it.
    required: Vec<Vec<Rule>>,
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
        let selected = selected(&pods, groups.keys().map(|(_, _, scope, _)| scope));
        let hostname = symbols.key(label::HOSTNAME);
        let groups = groups.into_keys().enumerate().map(|(id, (kind, key, _, keys))| {
            let together = if kind == Kind::Affinity { vec![id] } else { vec![] };
            Group { kind, key, host: key == hostname, keys, together }
        });
        let mut rules = Self {
            groups: groups.collect(),
            carried,
            selected,
            required: Vec::with_capacity(n),
            preferred: Vec::with_capacity(n),
            terms,
            counts_others: Vec::new(),
        };
        for (shape, soft) in preferred.iter().enumerate() {
            let (required, soft) = (rules.required_of(shape), rules.preferred_of(shape, soft));
            rules.required.push(required);
            rules.preferred.push(soft);
        }
        rules.counts_others = rules.counting_others(&preferred);
        rules.bring_together();
        rules
    }

    /// Finds the terms of affinity that are required together. Those of one group are with the same others, whoever carries them: they have the same keys.
    fn bring_together(&mut self) {
        for carried in &self.carried {
            let affinity = |&&group: &&usize| self.groups[group].kind == Kind::Affinity;
            let together: Vec<usize> = carried.iter().filter(affinity).copied().collect();
            if together.len() > 1 {
                for &group in &together {
                    self.groups[group].together.clone_from(&together);
                }
            }
        }
    }

    /// By group: whether it selects shapes that don't carry its rule.
    fn counting_others(&self, preferred: &[Vec<usize>]) -> Vec<bool> {
        let mut counts = vec![false; self.groups.len()];
        for (shape, selected) in self.selected.iter().enumerate() {
            for group in selected {
                let carries =
                    self.carried[shape].contains(group) || preferred[shape].contains(group);
                counts[*group] |= !carries;
            }
        }
        counts
    }

    fn required_of(&self, shape: usize) -> Vec<Rule> {
        let (carried, selected) = (&self.carried[shape], &self.selected[shape]);
        let own = carried.iter().map(|&group| {
            let itself = selected.binary_search(&group).is_ok();
            Rule { group, carried: true, itself, soft: false }
        });
        let others = selected.iter().filter(|group| !carried.contains(group));
        own.chain(others.map(|&group| Rule { group, carried: false, itself: true, soft: false }))
            .collect()
    }

    fn preferred_of(&self, shape: usize, groups: &[usize]) -> Vec<Rule> {
        let itself = |group: &usize| self.selected[shape].binary_search(group).is_ok();
        let rule = |&group| Rule { group, carried: true, itself: itself(&group), soft: true };
        groups.iter().map(rule).collect()
    }

    /// Whether a shape has to do with any rule, its own or another's.
    pub(crate) fn concern(&self, shape: usize) -> bool {
        !self.required[shape].is_empty() || !self.preferred[shape].is_empty()
    }

    /// How a shape's pods may change machines to come.
    pub(crate) fn mobility(&self, shape: usize) -> Mobility {
        let preferred = self.preferred[shape].iter().map(|rule| rule.group);
        let groups = self.of(shape).chain(preferred).map(|group| &self.groups[group]);
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
        let rules = self.required[shape].iter().chain(&self.preferred[shape]);
        let own = rules.filter(|rule| rule.carried);
        let turn = |rule: &Rule| match self.groups[rule.group].kind {
            Kind::Affinity => 2,
            _ => u8::from(!hosts_first || self.counts_others[rule.group]),
        };
        own.map(turn).max().unwrap_or(0)
    }

    /// The groups that a shape has to do with.
    pub(crate) fn of(&self, shape: usize) -> impl Iterator<Item = usize> {
        self.carried[shape].iter().chain(&self.selected[shape]).copied()
    }

    /// Required rules by which it matters in what order pods move: a zone that is too full or too empty for a while is, unlike a host that is counted twice.
    pub(crate) fn in_order(&self) -> fixedbitset::FixedBitSet {
        let mut found = fixedbitset::FixedBitSet::with_capacity(self.groups.len());
        for &group in self.carried.iter().flatten() {
            let rule = &self.groups[group];
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
        self.deciding(shape, dropped).any(|rule| {
            let group = &self.groups[rule.group];
            group.most_together() == Some(1) && group.host && rule.carried && rule.itself
        })
    }

    /// The groups of which a host has one pod at most, as far as a shape has to do with them. Nothing when hosts matter to it in another way.
    pub(crate) fn alone_on_hosts(&self, shape: usize) -> Option<Vec<usize>> {
        let on_hosts = self.deciding(shape, 0).filter(|rule| self.groups[rule.group].host);
        let alone = |group: &usize| self.groups[*group].most_together() == Some(1);
        on_hosts.map(|rule| Some(rule.group).filter(alone)).collect()
    }

    /// The groups that a shape belongs to of which a host holds only so many pods, whatever is on it. A host without any may always come, so that spread over hosts
    /// lets each have as many as its skew.
    pub(crate) fn limits_on_hosts(&self, shape: usize) -> Vec<(usize, f64)> {
        let own = self.required[shape].iter().filter(|rule| rule.carried && rule.itself);
        let on_hosts = own.filter(|rule| self.groups[rule.group].host);
        let most =
            |rule: &Rule| Some((rule.group, f64::from(self.groups[rule.group].most_together()?)));
        on_hosts.filter_map(most).collect()
    }

    /// Whether rules about other domains than hosts decide where a shape may be.
    pub(crate) fn has_domains(&self, shape: usize, dropped: usize) -> bool {
        self.deciding(shape, dropped).any(|rule| !self.groups[rule.group].host)
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
        let spread = self.deciding(shape, dropped).filter(|rule| {
            let group = &self.groups[rule.group];
            !group.host && rule.carried && rule.itself && matches!(group.kind, Kind::Spread { .. })
        });
        let domains =
            spread.map(|rule| cells.values(problem, cell, self.groups[rule.group].key).len());
        domains.max().unwrap_or(1).max(1)
    }

    /// The required rules about a topology key that a shape carries itself.
    pub(crate) fn about(&self, shape: usize, key: Key) -> impl Iterator<Item = &Rule> {
        let own = self.required[shape].iter().filter(|rule| rule.carried);
        own.filter(move |rule| self.groups[rule.group].key == key)
    }

    /// What decides where a shape may be once some of its preferences are dropped.
    fn deciding(&self, shape: usize, dropped: usize) -> impl Iterator<Item = &Rule> {
        self.required[shape].iter().chain(&self.preferred[shape][dropped..])
    }
}

/// By pod the scopes that select it, ascending. A scope that asks for a label's value is compared only with the pods that have it.
fn selected<'g>(pods: &[Selectable], scopes: impl Iterator<Item = &'g Scope>) -> Vec<Vec<usize>> {
    let (mut by_label, mut others) = (FxHashMap::default(), Vec::new());
    let scopes: Vec<&Scope> = scopes.collect();
    for (id, scope) in scopes.iter().enumerate() {
        match scope.label() {
            Some(label) => by_label.entry(label).or_insert_with(Vec::new).push(id),
            None => others.push(id),
        }
    }
    let of = |pod: &Selectable| {
        let found = pod.labels.iter().filter_map(|label| by_label.get(label));
        let candidates = found.flatten().chain(&others);
        let mut ids: Vec<usize> =
            candidates.copied().filter(|&id| scopes[id].selects(pod)).collect();
        ids.sort_unstable();
        ids
    };
    pods.iter().map(of).collect()
}

impl Group {
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
