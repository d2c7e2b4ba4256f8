//! Reading topology rules from pods: what forms one group, and which pods groups select.

use fixedbitset::FixedBitSet;
use indexmap::IndexMap;
use rustc_hash::{FxBuildHasher, FxHashSet};
use smallvec::SmallVec;

use super::families::{About, Counting, Family};
use super::idle::Draft;
use super::selectors::{ByLabel, Names, Scope, Selectable};
use super::{FEW_FAMILIES, Group, Kind, Others, Rule, Rules, WEIGHED, contains, idle};
use crate::id_set::{IdSet, inverse};
use crate::intern::Key;
use crate::label;
use crate::policy::PreferencePolicy;
use crate::snapshot::{PodAffinityTerm, Snapshot};
use crate::tables::Tables;
use crate::tables::shapes::ClassId;

/// What rules have in common that form one group: kind, topology key, the pods that they are about,
/// [`Draft::keys`].
type Identity = (Kind, Key, Scope, Vec<Key>);

impl Rules {
    /// The rules of a snapshot's shapes. The tables may lack machines and templates, which may
    /// depend on what rules ask for.
    pub(crate) fn new(tables: &mut Tables<'_>) -> Self {
        let Tables { snapshot, policy, symbols, shapes, classes, catalogs, .. } = tables;
        let snapshot: &Snapshot = snapshot;
        let class_of: Vec<ClassId> = shapes.iter().map(|shape| shape.class).collect();
        let preferences = policy.preferences;
        let mut groups: IndexMap<Identity, (), FxBuildHasher> = IndexMap::default();
        let mut names = Names::new(snapshot);
        let respected = preferences == PreferencePolicy::Respect;
        let n = snapshot.shapes.len();
        let (mut carried, mut preferred, mut terms): (Vec<Vec<usize>>, Vec<Vec<usize>>, _) =
            (Vec::with_capacity(n), Vec::new(), Vec::new());
        for (index, shape) in snapshot.shapes.iter().enumerate() {
            let (mut required, mut soft) = (Vec::new(), Vec::new());
            let mut near: SmallVec<[&PodAffinityTerm; 4]> = SmallVec::new();
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
            // A pod counts for the required terms of affinity only when it matches all of them,
            // whatever their topology keys.
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
                    class: if honors { class_of[index] } else { 0 },
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
        let drafts = groups.into_keys().map(|(kind, key, scope, keys)| {
            let selects = by_label.selected(&pods, &scope);
            Draft { kind, key, host: key == hostname, keys, selects }
        });
        let mut drafts: Vec<Draft> = drafts.collect();
        idle::leave_out(snapshot, &mut drafts, [&mut carried, &mut preferred], &mut terms, symbols);
        let mut families: IndexMap<About, IdSet, FxBuildHasher> = IndexMap::default();
        let groups = drafts.into_iter().enumerate().map(|(id, draft)| {
            let Draft { kind, key, host, keys, selects } = draft;
            let together = if kind == Kind::Affinity { vec![id] } else { vec![] };
            let entry = families.entry(About { key, keys, counts: kind.counting() });
            let family = entry.index();
            entry.or_default().insert(id);
            Group { kind, key, host, family, together, selects, carriers: SmallVec::new() }
        });
        let groups = groups.collect();
        let families = families.into_iter().map(|(about, groups)| Family { about, groups });
        let mut rules = Self { groups, families: families.collect(), terms, ..Self::default() };
        let on_hosts = || rules.groups.iter().enumerate().filter(|(_, group)| group.host);
        let groups = || rules.groups.iter().enumerate();
        let near = groups().filter(|(_, group)| !group.host && group.kind == Kind::Affinity);
        rules.near = near.map(|(id, _)| id).collect();
        let near = on_hosts().filter(|(_, group)| group.kind == Kind::Affinity);
        rules.near_on_hosts = near.map(|(id, _)| id).collect();
        let several = on_hosts().filter(|(_, group)| group.most_together() != Some(1));
        rules.several_on_hosts = several.map(|(id, _)| id).collect();
        rules.carry(&carried, &preferred);
        rules.select();
        rules.honour(classes, &class_of, catalogs, symbols);
        rules.weigh();
        rules.bring_together();
        rules
    }

    /// Notes which groups' rules shapes carry, by shape: the required ones, and those that are
    /// preferences.
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
        for (group, wishing) in self.groups.iter().zip(&wishing) {
            let carries = |shape| contains(&group.carriers, shape) || contains(wishing, shape);
            self.counts_others.push(group.selects.iter().any(|shape| !carries(shape)));
        }
    }

    /// Notes which groups select shapes.
    fn select(&mut self) {
        let n = self.required.len();
        let groups = || self.groups.iter().enumerate();
        let is_spread = |group: &Group| matches!(group.kind, Kind::Spread { .. });
        let of = |wanted: &dyn Fn(&Group) -> bool| {
            let wanted = groups().filter(|(_, group)| wanted(group));
            inverse(wanted.map(|(id, group)| (id, &group.selects)), n)
        };
        self.selecting = of(&|group| !group.host);
        let spread = of(&|group| group.host && is_spread(group));
        let others = of(&|group| group.host && !is_spread(group));
        let on_hosts = spread.into_iter().zip(others);
        self.others = on_hosts
            .map(|(spread_on_hosts, on_hosts)| Others {
                spread_on_hosts,
                on_hosts,
                ..Others::default()
            })
            .collect();
        for (id, group) in self.groups.iter().enumerate().filter(|(_, group)| group.host) {
            for &shape in &group.carriers {
                let others = &mut self.others[shape as usize];
                others.spread_on_hosts.remove(id);
                others.on_hosts.remove(id);
            }
        }
        let counted: Vec<IdSet> =
            self.families.iter().map(|family| self.counted_by(family)).collect();
        self.counting = inverse(counted.iter().enumerate(), n);
    }

    /// The shapes that some rule of a family, about other domains than hosts, selects.
    fn counted_by(&self, family: &Family) -> IdSet {
        let mut selected = FixedBitSet::new();
        let groups = family.groups.iter().map(|group| &self.groups[group]);
        groups.filter(|group| !group.host).for_each(|group| group.selects.add_to(&mut selected));
        IdSet::from(selected)
    }

    /// Chooses the rules of others that are weighed: few about each topology key.
    fn weigh(&mut self) {
        for (id, group) in self.groups.iter().enumerate() {
            self.about_key.entry(group.key).or_default().insert(id);
        }
        let mut keys: Vec<Key> = Vec::new();
        for shape in 0..self.others.len() {
            keys.clear();
            // There may be a family for each of thousands of pods, all about the same key.
            for id in self.counting[shape].iter() {
                let key = self.families[id].about.key;
                if keys.last() != Some(&key) {
                    keys.push(key);
                }
            }
            keys.sort_unstable();
            keys.dedup();
            for key in &keys {
                let groups = self.selecting[shape].common(&self.about_key[key]);
                let mut groups = groups.filter(|&group| !self.carries(shape, group));
                let weighed: SmallVec<[usize; WEIGHED]> = groups.by_ref().take(WEIGHED).collect();
                let is_crowded = groups.next().is_some();
                let others = &mut self.others[shape];
                others.weighed.extend(weighed);
                others.is_crowded |= is_crowded;
            }
            self.others[shape].weighed.sort_unstable();
            let is_crowded = self.counting[shape].iter().nth(FEW_FAMILIES).is_some();
            if is_crowded {
                self.counting[shape] = IdSet::default();
            }
            self.crowding.push(if is_crowded { keys.clone() } else { vec![] });
        }
    }

    /// What groups have to do with a shape that carries their rules.
    fn rules_of(&self, shape: usize, groups: &[usize], soft: bool) -> Vec<Rule> {
        let itself = |group: usize| self.groups[group].selects.contains(shape);
        let rule = |&group| Rule { group, carried: true, itself: itself(group), soft };
        groups.iter().map(rule).collect()
    }

    /// Finds the terms of affinity that are required together. Those of one group are with the same
    /// others, whoever carries them: they have the same keys.
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
}

impl Kind {
    /// Which pods count for a rule of this kind.
    fn counting(&self) -> Counting {
        match *self {
            Self::Spread { honor_affinity, honor_taints, class, .. } => {
                Counting::Spread { honor_affinity, honor_taints, class }
            }
            Self::Affinity => Counting::Near,
            Self::Anti => Counting::Apart,
        }
    }
}
