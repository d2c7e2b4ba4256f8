//! Topology rules: required spread, pod affinity and anti-affinity.
//!
//! Rules that are the same for many pods form a group. A group counts, per domain (a zone, a host, a capacity type), the pods that its selector selects
//! and, for anti-affinity, those that carry the rule. Whether a pod may be in a domain is then a look-up. A machine to come is narrowed to one domain as
//! soon as a rule asks for it, so that what the plan counts is what will be.
//!
//! Preferred terms and `ScheduleAnyway` are not looked at.

mod selectors;

use std::collections::{BTreeMap, BTreeSet};

use indexmap::IndexMap;
use rustc_hash::FxBuildHasher;

use crate::cells::{CellId, Cells};
use crate::compile::shapes::ClassId;
use crate::compile::taints::{Preferred, untolerated};
use crate::compile::types::NOT_FOR_SALE;
use crate::compile::{Problem, machine_meets};
use crate::intern::{Key, Symbols, Value};
use crate::plan::Exclusion;
use crate::requirements::{Requirements, ValueSet};
use crate::snapshot::{Placement, Snapshot};
use selectors::Scope;

/// How good a domain is, the least first: the pods to keep apart from, the pods to be near, the name.
type Rank = (u32, std::cmp::Reverse<u32>, String);

/// Where pods are counted together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Domain {
    /// A label's value.
    Value(Value),
    /// A machine that exists, for the host name.
    Machine(usize),
    /// A machine to come, for the host name.
    Claim(usize),
}

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
}

/// The groups of a snapshot, and which shapes have to do with them.
#[derive(Debug, Default)]
pub(crate) struct Rules {
    groups: Vec<Group>,
    /// By shape: the groups whose rule it carries.
    carried: Vec<Vec<usize>>,
    /// By shape: the groups that select it.
    selected: Vec<Vec<usize>>,
}

impl Rules {
    pub(crate) fn new(snapshot: &Snapshot, classes: &[ClassId], symbols: &mut Symbols) -> Self {
        let mut groups: IndexMap<(Kind, Key, Scope), (), FxBuildHasher> = IndexMap::default();
        let mut carried = vec![Vec::new(); snapshot.shapes.len()];
        for (index, shape) in snapshot.shapes.iter().enumerate() {
            let mut carry = |kind: Kind, key: &str, scope: Scope| {
                let id = groups.insert_full((kind, symbols.key(key), scope), ()).0;
                carried[index].push(id);
            };
            for spread in shape.topology_spread.iter().filter(|spread| spread.required) {
                let honors = spread.honor_affinity || spread.honor_taints;
                let kind = Kind::Spread {
                    max_skew: spread.max_skew,
                    min_domains: spread.min_domains,
                    honor_affinity: spread.honor_affinity,
                    honor_taints: spread.honor_taints,
                    class: if honors { classes[index] } else { 0 },
                };
                carry(kind, &spread.topology_key, Scope::of_spread(shape, spread));
            }
            for term in shape.pod_affinity.iter().filter(|term| term.weight.is_none()) {
                let kind = if term.anti { Kind::Anti } else { Kind::Affinity };
                carry(kind, &term.topology_key, Scope::of_term(snapshot, shape, term));
            }
        }
        let selected = snapshot
            .shapes
            .iter()
            .map(|shape| {
                let scopes = groups.keys().enumerate();
                scopes.filter(|(_, (_, _, scope))| scope.selects(shape)).map(|(id, _)| id).collect()
            })
            .collect();
        let groups = groups.into_keys().map(|(kind, key, _)| Group { kind, key }).collect();
        Self { groups, carried, selected }
    }

    /// Whether a shape has to do with any rule, its own or another's.
    pub(crate) fn concern(&self, shape: usize) -> bool {
        !self.carried[shape].is_empty() || !self.selected[shape].is_empty()
    }

    /// When a shape's turn is. Those first that rules of others count, so that these rules see them: kube-scheduler may bind them in any order. Those
    /// last that want to be near others, so that they find them.
    pub(crate) fn rank(&self, shape: usize) -> u8 {
        let near = |&group: &usize| self.groups[group].kind == Kind::Affinity;
        match &self.carried[shape][..] {
            [] => 0,
            carried if carried.iter().any(near) => 2,
            _ => 1,
        }
    }

    /// The groups that a shape has to do with.
    pub(crate) fn of(&self, shape: usize) -> impl Iterator<Item = usize> {
        self.carried[shape].iter().chain(&self.selected[shape]).copied()
    }

    /// How many groups there are.
    pub(crate) fn len(&self) -> usize {
        self.groups.len()
    }

    /// Whether a shape's pods keep off each other's hosts.
    pub(crate) fn one_per_host(&self, shape: usize, hostname: Key) -> bool {
        self.carried[shape].iter().any(|&group| {
            let rule = &self.groups[group];
            let apart = match rule.kind {
                Kind::Anti => true,
                Kind::Spread { max_skew, .. } => max_skew <= 1,
                Kind::Affinity => false,
            };
            apart && rule.key == hostname && self.selected[shape].contains(&group)
        })
    }

    /// The groups that decide where a shape may be: its own rules, and the anti-affinity of others that selects it.
    fn deciding(&self, shape: usize) -> impl Iterator<Item = usize> {
        let others = self.selected[shape]
            .iter()
            .copied()
            .filter(move |group| !self.carried[shape].contains(group));
        self.carried[shape].iter().copied().chain(others)
    }
}

/// How many pods are where.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counts {
    /// By group: pods that the selector selects.
    selected: Vec<BTreeMap<Domain, u32>>,
    /// By group: pods that carry the rule, for anti-affinity.
    carrying: Vec<BTreeMap<Domain, u32>>,
    /// By group: the domains that its pods could be in.
    universe: BTreeMap<usize, BTreeSet<Value>>,
}

impl Counts {
    /// Counts the pods that run and stay.
    pub(crate) fn new(problem: &Problem<'_>) -> Self {
        let n = problem.rules.groups.len();
        let mut counts = Self {
            selected: vec![BTreeMap::new(); n],
            carrying: vec![BTreeMap::new(); n],
            universe: BTreeMap::new(),
        };
        if n == 0 {
            return counts;
        }
        for pod in &problem.snapshot.pods {
            let Placement::Bound(node) = pod.placement else { continue };
            let machine = node.0 as usize;
            let leaves = problem.snapshot.nodes[machine].deleting
                && crate::provision::is_currently_reschedulable(pod);
            if !pod.terminating && !leaves {
                counts.add_on_machine(problem, pod.shape.0 as usize, machine, 1);
            }
        }
        counts
    }

    /// Counts a pod on a machine in (1) or out (-1).
    pub(crate) fn add_on_machine(
        &mut self,
        problem: &Problem<'_>,
        shape: usize,
        machine: usize,
        by: i32,
    ) {
        for &group in &problem.rules.selected[shape] {
            let rule = &problem.rules.groups[group];
            if let Some(domain) = domain_of(problem, rule.key, machine)
                && counts_there(problem, rule, machine)
            {
                change(&mut self.selected[group], domain, by);
            }
        }
        for &group in &problem.rules.carried[shape] {
            if let Some(domain) = domain_of(problem, problem.rules.groups[group].key, machine) {
                change(&mut self.carrying[group], domain, by);
            }
        }
    }

    /// Counts a pod on a machine to come.
    pub(crate) fn add_on_claim(
        &mut self,
        problem: &Problem<'_>,
        cells: &Cells,
        shape: usize,
        claim: usize,
        cell: CellId,
    ) {
        let domain = |key: Key| {
            if key == problem.keys.hostname {
                return Some(Domain::Claim(claim));
            }
            match *cell_values(problem, cells, cell, key).as_slice() {
                [value] => Some(Domain::Value(value)),
                _ => None,
            }
        };
        for &group in &problem.rules.selected[shape] {
            let rule = &problem.rules.groups[group];
            let counted = match rule.kind {
                Kind::Spread { class, honor_affinity: true, .. } => {
                    problem.classes[class].required.iter().any(|required| {
                        let well_known = |key| problem.is_well_known(key);
                        let have = &cells[cell].requirements;
                        have.compatible(required, well_known, &problem.symbols).is_ok()
                    })
                }
                _ => true,
            };
            if let Some(domain) = domain(rule.key).filter(|_| counted) {
                change(&mut self.selected[group], domain, 1);
            }
        }
        for &group in &problem.rules.carried[shape] {
            if let Some(domain) = domain(problem.rules.groups[group].key) {
                change(&mut self.carrying[group], domain, 1);
            }
        }
    }

    /// Whether a shape may go on a machine.
    pub(crate) fn allow_on_machine(
        &mut self,
        problem: &Problem<'_>,
        cells: &mut Cells,
        shape: usize,
        machine: usize,
    ) -> bool {
        let deciding: Vec<_> = problem.rules.deciding(shape).collect();
        deciding.into_iter().all(|group| {
            let carried = problem.rules.carried[shape].contains(&group);
            match domain_of(problem, problem.rules.groups[group].key, machine) {
                Some(domain) => self.allows(problem, cells, shape, group, domain),
                // Where the label is missing nobody else's rule applies, and one's own can't be met.
                None => !carried || problem.rules.groups[group].kind == Kind::Anti,
            }
        })
    }

    /// The cell in which a machine to come is once a shape has come, narrowed to the domains that its rules choose.
    pub(crate) fn narrow(
        &mut self,
        problem: &Problem<'_>,
        cells: &mut Cells,
        shape: usize,
        claim: usize,
        mut cell: CellId,
    ) -> Result<CellId, Exclusion> {
        let mut by_key: BTreeMap<Key, Vec<usize>> = BTreeMap::new();
        for group in problem.rules.deciding(shape) {
            by_key.entry(problem.rules.groups[group].key).or_default().push(group);
        }
        for (key, groups) in by_key {
            let failed = |group: usize| Exclusion::Topology {
                key: problem.symbols.key_name(key).to_owned(),
                rule: problem.rules.groups[group].describe(),
            };
            if key == problem.keys.hostname {
                for &group in &groups {
                    if !self.allows(problem, cells, shape, group, Domain::Claim(claim)) {
                        return Err(failed(group));
                    }
                }
                continue;
            }
            let values = cell_values(problem, cells, cell, key);
            let mut best: Option<(Rank, Value)> = None;
            let mut blocking = groups[0];
            for value in values {
                let domain = Domain::Value(value);
                let refused = groups
                    .iter()
                    .find(|&&group| !self.allows(problem, cells, shape, group, domain));
                if let Some(&refused) = refused {
                    blocking = refused;
                    continue;
                }
                let (mut spread, mut near) = (0, 0);
                for &group in &groups {
                    let count = self.selected[group].get(&domain).copied().unwrap_or(0);
                    match problem.rules.groups[group].kind {
                        Kind::Affinity => near += count,
                        _ => spread += count,
                    }
                }
                let name = problem.symbols.value_name(value).to_owned();
                let rank = (spread, std::cmp::Reverse(near), name);
                if best.as_ref().is_none_or(|(least, _)| rank < *least) {
                    best = Some((rank, value));
                }
            }
            let Some((_, value)) = best else {
                // Others' rules don't matter where a machine has no such label.
                let own = groups.iter().any(|group| problem.rules.carried[shape].contains(group));
                if !own && cell_values(problem, cells, cell, key).is_empty() {
                    continue;
                }
                return Err(failed(blocking));
            };
            let mut wanted = Requirements::default();
            wanted.add(key, ValueSet::one_of([value]), &problem.symbols);
            cell = cells.narrow(problem, cell, &wanted).map_err(|_| failed(blocking))?;
        }
        Ok(cell)
    }

    /// Whether one rule lets a shape be in a domain.
    fn allows(
        &mut self,
        problem: &Problem<'_>,
        cells: &mut Cells,
        shape: usize,
        group: usize,
        domain: Domain,
    ) -> bool {
        let rule = &problem.rules.groups[group];
        let carried = problem.rules.carried[shape].contains(&group);
        let itself = problem.rules.selected[shape].contains(&group);
        let here = self.selected[group].get(&domain).copied().unwrap_or(0);
        match rule.kind {
            Kind::Anti => {
                let others = self.carrying[group].get(&domain).copied().unwrap_or(0);
                let clashes = (carried && here > 0) || (itself && others > 0);
                !clashes
            }
            // Without the rule the pod is only counted.
            _ if !carried => true,
            // The first of a group that wants to be together may be anywhere.
            Kind::Affinity => here > 0 || (itself && self.selected[group].is_empty()),
            Kind::Spread { max_skew, min_domains, .. } => {
                let least = self.least(problem, cells, group, min_domains);
                let skew = i64::from(here) + i64::from(itself) - i64::from(least);
                skew <= i64::from(max_skew)
            }
        }
    }

    /// The smallest count of any domain that the pods of a spread group could be in.
    fn least(
        &mut self,
        problem: &Problem<'_>,
        cells: &mut Cells,
        group: usize,
        min_domains: Option<i32>,
    ) -> u32 {
        let rule = &problem.rules.groups[group];
        // There is always one more host.
        if rule.key == problem.keys.hostname {
            return 0;
        }
        let counts = &self.selected[group];
        let domains = self.universe.entry(group).or_insert_with(|| universe(problem, cells, rule));
        if min_domains
            .is_some_and(|least| i64::try_from(domains.len()).unwrap_or(0) < i64::from(least))
        {
            return 0;
        }
        let count = |value: &Value| counts.get(&Domain::Value(*value)).copied().unwrap_or(0);
        domains.iter().map(count).min().unwrap_or(0)
    }
}

impl Group {
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

fn change(counts: &mut BTreeMap<Domain, u32>, domain: Domain, by: i32) {
    let count = counts.entry(domain).or_default();
    *count = count.saturating_add_signed(by);
    if *count == 0 {
        counts.remove(&domain);
    }
}

fn domain_of(problem: &Problem<'_>, key: Key, machine: usize) -> Option<Domain> {
    if key == problem.keys.hostname {
        return Some(Domain::Machine(machine));
    }
    let promised = || match problem.machines.promised[machine].get(key)?.listed()? {
        [value] => Some(*value),
        _ => None,
    };
    problem.machines.label(machine, key).or_else(promised).map(Domain::Value)
}

/// Whether pods on a machine count for a rule: spread looks only at nodes that its pods could use.
fn counts_there(problem: &Problem<'_>, rule: &Group, machine: usize) -> bool {
    let Kind::Spread { honor_affinity, honor_taints, class, .. } = rule.kind else { return true };
    let class = &problem.classes[class];
    let affine = || class.required.iter().any(|required| machine_meets(problem, machine, required));
    let tolerated = || {
        let taints = &problem.snapshot.nodes[machine].taints;
        untolerated(taints, &class.tolerations, Preferred::Ignored).is_none()
    };
    (!honor_affinity || affine()) && (!honor_taints || tolerated())
}

/// The domains that pods of a class could be in: those of machines that exist, and those that can be launched.
fn universe(problem: &Problem<'_>, cells: &mut Cells, rule: &Group) -> BTreeSet<Value> {
    let mut domains = BTreeSet::new();
    for &machine in &problem.machines.order {
        if let Some(Domain::Value(value)) = domain_of(problem, rule.key, machine)
            && counts_there(problem, rule, machine)
        {
            domains.insert(value);
        }
    }
    let class = match rule.kind {
        Kind::Spread { honor_affinity: true, class, .. } => Some(class),
        _ => None,
    };
    for template in 0..problem.templates.len() {
        let base = cells.base(problem, template);
        let Some(class) = class else {
            domains.extend(cell_values(problem, cells, base, rule.key));
            continue;
        };
        for variant in 0..problem.classes[class].variants.len() {
            if let Ok(cell) = cells.join(problem, base, class, variant) {
                domains.extend(cell_values(problem, cells, cell, rule.key));
            }
        }
    }
    domains
}

/// The values of a label that machines of a cell can have.
fn cell_values(problem: &Problem<'_>, cells: &Cells, id: CellId, key: Key) -> Vec<Value> {
    let cell = &cells[id];
    let table = &problem.catalogs[problem.templates[cell.template].catalog];
    let admitted = |value: &&Value| {
        cell.requirements.get(key).is_none_or(|set| set.has(**value, &problem.symbols))
    };
    let mut values = BTreeSet::new();
    for market in cell.markets.ones() {
        let listed = table.markets[market].requirements.get(key).and_then(ValueSet::listed);
        let Some(listed) = listed else { continue };
        if cell.types.ones().any(|kind| table.prices(kind)[market] != NOT_FOR_SALE) {
            values.extend(listed.iter().filter(admitted));
        }
    }
    if values.is_empty() {
        for kind in cell.types.ones() {
            let listed = table.requirements[kind].get(key).and_then(ValueSet::listed);
            values.extend(listed.into_iter().flatten().filter(admitted));
        }
    }
    if values.is_empty() {
        let listed = cell.requirements.get(key).and_then(ValueSet::listed);
        values.extend(listed.into_iter().flatten());
    }
    values.into_iter().collect()
}
