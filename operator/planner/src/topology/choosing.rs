//! Which domains a machine to come is narrowed to when a pod comes that topology rules are about.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use smallvec::SmallVec;

use super::Topology;
use super::counts::Counts;
use super::domains::lacks;
use super::honoring::certain;
use super::room::{ANY, failed, passes_unlabelled, unknown};
use super::{Kind, Rule};
use crate::intern::{Key, Value};
use crate::machine_specs::{MachineSpecs, SpecId};
use crate::plan::Exclusion;
use crate::requirements::ValueSet;

/// With more domains than this nobody asks what a place costs in each.
const PRICED: usize = 16;

/// The spec of a machine to come once a pod is there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DomainChoice {
    /// DomainChoice to the domains that the pod's rules choose.
    pub(crate) spec: SpecId,
    /// How many pods of the shape may come to these domains before the others need some.
    pub(crate) most: usize,
    /// How good the domains are, the least first: the pods to keep apart from, the pods to be near.
    pub(crate) rank: (u32, Reverse<u32>),
    /// Whether rules count the pods there, so that they had better be even.
    pub(crate) counted: bool,
}

/// A domain that a machine to come may be narrowed to, the best first.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Domain<'p> {
    rank: (u32, Reverse<u32>),
    /// What a place for the pod costs there; of equals the cheapest comes first.
    price: i64,
    name: &'p str,
    value: Value,
    room: u32,
}

/// What a search for domains is about.
struct Search<'s, 'p, 'a, 'r> {
    topology: &'p Topology<'p, 'a>,
    shape: usize,
    /// Whether machines of a spec would do.
    holds: &'s mut dyn FnMut(&MachineSpecs, SpecId) -> bool,
    /// The best choice that the rules leave and that would not do.
    refused: Option<DomainChoice>,
    /// The first rule that closed all domains of machines that would do.
    closed_by: Option<&'r Rule>,
    /// How many domains may still be tried.
    left: usize,
}

impl Search<'_, '_, '_, '_> {
    /// The narrower spec with which it is certain for all of some families whether they count the
    /// pod there, if machines of it would do.
    fn settle(
        &mut self,
        specs: &mut MachineSpecs,
        families: &[usize],
        spec: SpecId,
    ) -> Option<SpecId> {
        let Some((&family, further)) = families.split_first() else {
            return (self.holds)(specs, spec).then_some(spec);
        };
        let narrower = certain(self.topology, specs, self.shape, spec, family);
        if !narrower.is_empty() && !(self.holds)(specs, spec) {
            return None;
        }
        for narrower in narrower {
            if self.left == 0 {
                break;
            }
            self.left -= 1;
            if let Some(settled) = self.settle(specs, further, narrower) {
                return Some(settled);
            }
        }
        // Better a machine that may turn out to count than none.
        self.settle(specs, further, spec)
    }
}

/// How many domains are tried on all NodePools together for pods of a shape, and at most and at
/// least on one of them. Where there are more, a key with few domains comes before one with many,
/// and as many are tried again.
const TRIES: usize = 4096;
const MOST_TRIES: usize = 256;
const LEAST_TRIES: usize = 16;

impl Counts {
    /// The spec that a machine to come has once a shape has come, narrowed to the domains that its
    /// rules choose: the best for one topology key after the other, or the next best where no
    /// domain of a further key goes with it or no machine there would do, as `holds` says. Where
    /// the rules leave only specs that would not do, the best of these is returned, so that the
    /// caller finds out what they lack. Rules about hosts are not looked at.
    ///
    /// Which domains go together is not known before it is tried, and there are as many
    /// combinations as the product of all keys' domains: so many are tried as the budget allows, no
    /// more.
    pub(crate) fn narrow(
        &mut self,
        topology: &Topology<'_, '_>,
        specs: &mut MachineSpecs,
        shape: usize,
        dropped: usize,
        spec: SpecId,
        holds: &mut dyn FnMut(&MachineSpecs, SpecId) -> bool,
    ) -> Result<DomainChoice, Exclusion> {
        let groups = &topology.rules.groups;
        let mut rules: SmallVec<[Rule; 8]> = topology.rules.about_domains(shape, dropped).collect();
        // By name, so that it does not matter in what order the keys were met.
        let name = |rule: &Rule| topology.tables.symbols.key_name(groups[rule.group].key);
        rules.sort_by(|a, b| name(a).cmp(name(b)));
        let mut by_key: SmallVec<[&[Rule]; 4]> =
            rules.chunk_by(|a, b| groups[a.group].key == groups[b.group].key).collect();
        let tries = (TRIES / topology.tables.templates.len().max(1)).clamp(LEAST_TRIES, MOST_TRIES);
        let mut search =
            Search { topology, shape, holds, refused: None, closed_by: None, left: tries };
        let free = DomainChoice { spec, most: ANY as usize, rank: (0, Reverse(0)), counted: false };
        let mut chosen = self.choose(&mut search, specs, &by_key, free);
        if chosen.is_err() && search.left == 0 {
            by_key.sort_by_cached_key(|rules| {
                let key = groups[rules[0].group].key;
                let open = self.open_domains(topology, specs, rules, spec, key, shape);
                open.map_or(0, |open| open.len())
            });
            search.left = tries;
            chosen = self.choose(&mut search, specs, &by_key, free);
        }
        // Where a machine would do but for a rule, it is the rule that keeps the pod waiting.
        chosen.or_else(|rule| match search.refused.filter(|_| search.closed_by.is_none()) {
            Some(refused) => Ok(refused),
            None => {
                let rule = search.closed_by.or(rule).or(rules.first()).expect("a rule was there");
                let is_known = specs.has_values(topology.tables, spec, groups[rule.group].key)
                    && !self.is_open(topology, specs, rule);
                Err(if is_known { failed(topology, rule) } else { unknown(topology, rule) })
            }
        })
    }

    /// Chooses domains for the keys that are left. An error is a rule that closes the best one.
    fn choose<'r>(
        &mut self,
        search: &mut Search<'_, '_, '_, 'r>,
        specs: &mut MachineSpecs,
        by_key: &[&'r [Rule]],
        so_far: DomainChoice,
    ) -> Result<DomainChoice, Option<&'r Rule>> {
        let Some((rules, further)) = by_key.split_first() else {
            let families = search.topology.rules.honouring(search.shape);
            if let Some(spec) = search.settle(specs, families, so_far.spec) {
                return Ok(DomainChoice { spec, ..so_far });
            }
            search.refused.get_or_insert(so_far);
            return Err(None);
        };
        let topology = search.topology;
        let group = |rule: &Rule| &topology.rules.groups[rule.group];
        let key = group(&rules[0]).key;
        let (spec, shape) = (so_far.spec, search.shape);
        let mut domains = match self.open_domains(topology, specs, rules, spec, key, shape) {
            Ok(domains) => domains,
            Err(blocking) => {
                // Others' rules don't matter where a machine has no such label, or one that no
                // other has. Nor do those that keep away where it certainly has none.
                let indifferent = specs.values(topology.tables, spec, key).is_empty()
                    && rules.iter().all(|rule| passes_unlabelled(group(rule), rule))
                    && (rules.iter().all(|rule| !rule.carried)
                        || lacks(topology, specs, spec, key));
                if indifferent {
                    return self.choose(search, specs, further, so_far);
                }
                search.closed_by.get_or_insert(blocking);
                return Err(Some(blocking));
            }
        };
        let counted = rules.iter().any(|rule| group(rule).kind != Kind::Affinity);
        // Machines are told their domain even where their types leave but one.
        let told = specs[so_far.spec].requirements.get(key).and_then(ValueSet::listed);
        let only = told.is_some_and(|listed| listed.len() == 1);
        let mut blocking = None;
        while let Some(Reverse(domain)) = domains.pop() {
            let mut spec = so_far.spec;
            if !only {
                if search.left == 0 {
                    break;
                }
                search.left -= 1;
                match specs.at(topology.tables, spec, key, domain.value) {
                    Some(narrower) => spec = narrower,
                    None => {
                        blocking = blocking.or(Some(&rules[0]));
                        continue;
                    }
                }
            }
            let (apart, Reverse(near)) = so_far.rank;
            let narrowed = DomainChoice {
                spec,
                most: so_far.most.min(domain.room as usize),
                rank: (apart + domain.rank.0, Reverse(near + domain.rank.1.0)),
                counted: so_far.counted || counted,
            };
            // What does not hold the pod holds it in no domain of a further key either.
            if !only && !further.is_empty() && !(search.holds)(specs, spec) {
                search.refused.get_or_insert(narrowed);
                continue;
            }
            match self.choose(search, specs, further, narrowed) {
                Ok(chosen) => return Ok(chosen),
                Err(rule) => blocking = blocking.or(rule),
            }
        }
        Err(blocking)
    }

    /// The domains in which machines of a spec can be and that rules about one key leave open, the
    /// best first; or a rule that closes one.
    fn open_domains<'p, 'r>(
        &mut self,
        topology: &'p Topology<'_, '_>,
        specs: &mut MachineSpecs,
        rules: &'r [Rule],
        spec: SpecId,
        key: Key,
        shape: usize,
    ) -> Result<BinaryHeap<Reverse<Domain<'p>>>, &'r Rule> {
        let least: SmallVec<[u32; 8]> =
            rules.iter().map(|rule| self.least(topology, specs, rule)).collect();
        let (mut open, mut blocking) = (Vec::new(), &rules[0]);
        for &value in specs.values(topology.tables, spec, key) {
            let (mut room, mut apart, mut near) = (ANY, 0, 0);
            for (rule, &least) in rules.iter().zip(&least) {
                let tally = self.in_domain(rule.group, value);
                room = room.min(self.room(topology, rule, tally, least));
                if room == 0 {
                    blocking = rule;
                    break;
                }
                match topology.rules.groups[rule.group].kind {
                    Kind::Affinity => near += tally.selected,
                    _ => apart += tally.selected,
                }
            }
            if room > 0 && self.keeps_off(topology, shape, key, value) {
                let anti = |rule: &&Rule| topology.rules.groups[rule.group].kind == Kind::Anti;
                (room, blocking) = (0, rules.iter().find(anti).unwrap_or(blocking));
            }
            if room > 0 {
                let name = topology.tables.symbols.value_name(value);
                let rank = (apart, Reverse(near));
                open.push(Reverse(Domain { rank, price: 0, name, value, room }));
            }
        }
        if (2..=PRICED).contains(&open.len()) {
            for Reverse(domain) in &mut open {
                let there = specs.at(topology.tables, spec, key, domain.value);
                domain.price = there
                    .map_or(i64::MAX, |there| specs.place_price(topology.tables, there, shape));
            }
        }
        if open.is_empty() { Err(blocking) } else { Ok(open.into()) }
    }
}
