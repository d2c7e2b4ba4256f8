//! How many pods of each group are where, and how many more may come.

use fixedbitset::FixedBitSet;
use rustc_hash::FxHashMap;

use super::domains::{counts_there, has_keys, universe};
use super::journal::{Change, Place};
use super::occupants::Occupants;
use super::tallies::{Count, Tally};
use super::{Group, Kind, Rule};
use crate::cells::{CellId, Cells};
use crate::compile::Problem;
use crate::compile::taints::{Preferred, untolerated};
use crate::id_set::IdSet;
use crate::intern::{Key, Value};
use crate::plan::Exclusion;
use crate::requirements::Requirements;
use crate::snapshot::Placement;

/// No limit.
pub(super) const ANY: u32 = u32::MAX;

/// A host, as rules about host names see it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Host {
    /// A machine that exists.
    Machine(usize),
    /// A machine to come.
    Claim(usize),
}

/// How many pods are where.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counts {
    pub(super) groups: Vec<Count>,
    /// By domain that is a value: the groups of anti-affinity that pods there carry.
    pub(super) closing: FxHashMap<Value, IdSet>,
    /// Who is on machines that exist, and on machines to come, as far as it matters.
    pub(super) on_machines: Occupants,
    pub(super) on_claims: Occupants,
    /// By shape that matters there: pods on hosts of both kinds.
    pub(super) on_hosts: Vec<u32>,
    /// What was counted since it may have to be taken back.
    pub(super) journal: Option<Vec<Change>>,
}

impl Counts {
    /// Counts the pods that run and stay.
    pub(crate) fn new(problem: &Problem<'_>) -> Self {
        let groups = problem.rules.groups.iter().map(|group| {
            let closes = group.kind == Kind::Anti && !group.host;
            Count { closes, ..Count::default() }
        });
        let mut counts = Self { groups: groups.collect(), ..Self::default() };
        if counts.groups.is_empty() {
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
        let rules = &problem.rules;
        for group in rules.tallied(shape) {
            if counts_there(problem, &rules.groups[group], machine) {
                self.change_on_machine(problem, group, machine, by, 0);
            }
        }
        for rule in &rules.required[shape] {
            self.change_on_machine(problem, rule.group, machine, 0, by);
        }
        if rules.matters_on_hosts(shape) {
            let place = problem.machines.position(machine);
            self.count(Change::Occupants { shape, host: Host::Machine(machine), place, by });
        }
    }

    fn change_on_machine(
        &mut self,
        problem: &Problem<'_>,
        group: usize,
        machine: usize,
        selected: i32,
        carrying: i32,
    ) {
        let rule = &problem.rules.groups[group];
        if !rule.is_tallied() {
            return;
        }
        let (place, bit) = if rule.host {
            (Place::Machine(machine), problem.machines.position(machine))
        } else if let Some(value) = problem.domains.of(rule.key, machine) {
            (Place::Value(value), None)
        } else {
            return;
        };
        self.count(Change::Tally { group, place, bit, selected, carrying });
    }

    /// Counts pods on a machine to come.
    pub(crate) fn add_on_claim(
        &mut self,
        problem: &Problem<'_>,
        cells: &mut Cells,
        shape: usize,
        claim: usize,
        cell: CellId,
        n: usize,
    ) {
        let n = i32::try_from(n).unwrap_or(i32::MAX);
        let rules = &problem.rules;
        for group in rules.tallied(shape) {
            if counts_in(problem, cells, &rules.groups[group], cell, shape) {
                self.change_on_claim(problem, cells, group, claim, cell, n, 0);
            }
        }
        for rule in &rules.required[shape] {
            self.change_on_claim(problem, cells, rule.group, claim, cell, 0, n);
        }
        if rules.matters_on_hosts(shape) {
            let (host, place) = (Host::Claim(claim), Some(claim));
            self.count(Change::Occupants { shape, host, place, by: n });
        }
    }

    #[expect(clippy::too_many_arguments, reason = "what is counted, where, and by how much")]
    fn change_on_claim(
        &mut self,
        problem: &Problem<'_>,
        cells: &mut Cells,
        group: usize,
        claim: usize,
        cell: CellId,
        selected: i32,
        carrying: i32,
    ) {
        let rule = &problem.rules.groups[group];
        if !rule.is_tallied() {
            return;
        }
        let (place, bit) = if rule.host {
            (Place::Claim(claim), Some(claim))
        } else if let [value] = *cells.values(problem, cell, rule.key) {
            (Place::Value(value), None)
        } else {
            return;
        };
        self.count(Change::Tally { group, place, bit, selected, carrying });
    }

    /// Whether a shape may go on a machine.
    pub(crate) fn allow_on_machine(
        &mut self,
        problem: &Problem<'_>,
        cells: &mut Cells,
        shape: usize,
        machine: usize,
    ) -> bool {
        let (preferences, _) = problem.rules.preferences(shape);
        self.room_on_machine(problem, cells, shape, preferences, machine) > 0
    }

    /// How many pods of a shape may go on a machine, of which only so many preferences are dropped.
    pub(crate) fn room_on_machine(
        &mut self,
        problem: &Problem<'_>,
        cells: &mut Cells,
        shape: usize,
        dropped: usize,
        machine: usize,
    ) -> usize {
        let mut most = self.room_on_host(problem, shape, dropped, Host::Machine(machine));
        for rule in problem.rules.about_domains(shape, dropped) {
            if most == 0 {
                break;
            }
            let (rule, group) = (&rule, &problem.rules.groups[rule.group]);
            most = match problem.domains.of(group.key, machine) {
                Some(value) => {
                    let least = self.least(problem, cells, rule);
                    let tally = self.groups[rule.group].value(value);
                    most.min(self.room(problem, rule, tally, least))
                }
                None if passes_unlabelled(group, rule) => most,
                None => 0,
            };
        }
        let mut domains = problem.domains.all_of(machine);
        if problem.rules.others[shape].is_crowded
            && domains.any(|(key, value)| self.keeps_off(problem, shape, key, value))
        {
            return 0;
        }
        most as usize
    }

    /// Whether anti-affinity of a pod in a domain that is a value keeps a shape off, as far as its rule is not weighed.
    pub(super) fn keeps_off(
        &self,
        problem: &Problem<'_>,
        shape: usize,
        key: Key,
        value: Value,
    ) -> bool {
        let others = &problem.rules.others[shape];
        others.is_crowded
            && self.closing.get(&value).is_some_and(|closing| {
                let mut groups = closing.common(&others.in_domains);
                groups.any(|group| problem.rules.groups[group].key == key)
            })
    }

    /// How many pods of a shape rules about hosts let on a host.
    pub(crate) fn room_on_host(
        &self,
        problem: &Problem<'_>,
        shape: usize,
        dropped: usize,
        host: Host,
    ) -> u32 {
        if self.keep_off(problem, shape, host) {
            return 0;
        }
        let own = problem.rules.carried_about_hosts(shape, dropped);
        // There is always one more host, so the least is 0.
        own.map(|rule| self.room(problem, rule, self.tally(problem, rule.group, host), 0))
            .min()
            .unwrap_or(ANY)
    }

    /// The pods on a host that a group about hosts selects, and those that carry its rule.
    fn tally(&self, problem: &Problem<'_>, group: usize, host: Host) -> Tally {
        let (rule, count) = (&problem.rules.groups[group], &self.groups[group]);
        match host {
            Host::Machine(machine) if rule.is_tallied() => count.machines.of(machine),
            Host::Machine(machine) => self.on_machines.tally(rule, machine),
            Host::Claim(claim) if rule.is_tallied() => count.claims.of(claim),
            Host::Claim(claim) => self.on_claims.tally(rule, claim),
        }
    }

    /// Whether a pod on a host wants no pod of a shape there.
    fn keep_off(&self, problem: &Problem<'_>, shape: usize, host: Host) -> bool {
        let rules = &problem.rules;
        match host {
            Host::Machine(machine) => self.on_machines.keep_off(rules, shape, machine),
            Host::Claim(claim) => self.on_claims.keep_off(rules, shape, claim),
        }
    }

    /// The machines, by position, in domains that may take at least one pod of a shape; `None` when every machine's may.
    pub(crate) fn open_positions(
        &mut self,
        problem: &Problem<'_>,
        cells: &mut Cells,
        shape: usize,
        dropped: usize,
    ) -> Option<FixedBitSet> {
        let mut open: Option<FixedBitSet> = None;
        for rule in problem.rules.about_domains(shape, dropped) {
            let (rule, group) = (&rule, &problem.rules.groups[rule.group]);
            if !rule.carried && group.kind != Kind::Anti {
                continue;
            }
            let least = self.least(problem, cells, rule);
            let unlabelled = passes_unlabelled(group, rule);
            let set = problem.domains.positions(group.key, unlabelled, |value| {
                self.room(problem, rule, self.groups[rule.group].value(value), least) > 0
            });
            match &mut open {
                None => open = Some(set),
                Some(open) => open.intersect_with(&set),
            }
        }
        if problem.rules.others[shape].is_crowded {
            let open = open.get_or_insert_with(|| problem.domains.all_positions());
            for key in problem.domains.keys() {
                let keeps_off = |value| self.keeps_off(problem, shape, key, value);
                open.intersect_with(
                    &problem.domains.positions(key, true, |value| !keeps_off(value)),
                );
            }
        }
        open
    }

    /// Hosts that rules about host names certainly keep a shape off: machines by position, or machines to come.
    pub(crate) fn closed_hosts(
        &self,
        problem: &Problem<'_>,
        shape: usize,
        dropped: usize,
        to_come: bool,
    ) -> FixedBitSet {
        let rules = &problem.rules;
        let occupants = if to_come { &self.on_claims } else { &self.on_machines };
        let mut closed = occupants.no_places();
        for rule in rules.carried_about_hosts(shape, dropped) {
            let (group, count) = (&rules.groups[rule.group], &self.groups[rule.group]);
            match group.kind {
                Kind::Anti => {
                    occupants.add_selected(group, &mut closed);
                    if rule.itself && !rule.soft {
                        occupants.add_carrying(group, &mut closed);
                    }
                }
                Kind::Spread { max_skew, .. } if rule.itself && max_skew <= 1 => {
                    let hosts = if to_come { &count.claims } else { &count.machines };
                    closed.union_with(&hosts.selected);
                }
                _ => {}
            }
        }
        for group in rules.others[shape].on_hosts.iter().map(|group| &rules.groups[group]) {
            if group.kind == Kind::Anti {
                occupants.add_carrying(group, &mut closed);
            }
        }
        closed
    }

    /// Whether a host is one of [`Self::closed_hosts`].
    pub(crate) fn closes(
        &self,
        problem: &Problem<'_>,
        shape: usize,
        dropped: usize,
        host: Host,
    ) -> bool {
        let closes = |rule: &Rule| {
            let tally = self.tally(problem, rule.group, host);
            match problem.rules.groups[rule.group].kind {
                Kind::Anti => {
                    tally.selected > 0 || (rule.itself && !rule.soft && tally.carrying > 0)
                }
                Kind::Spread { max_skew, .. } => rule.itself && max_skew <= 1 && tally.selected > 0,
                Kind::Affinity => false,
            }
        };
        self.keep_off(problem, shape, host)
            || problem.rules.carried_about_hosts(shape, dropped).any(closes)
    }

    /// Whether no pods are counted that a group selects.
    fn selects_nobody(&self, problem: &Problem<'_>, group: usize) -> bool {
        let rule = &problem.rules.groups[group];
        if rule.is_tallied() {
            return self.groups[group].total == 0;
        }
        let mut pods = rule.selects.iter().map_while(|shape| self.on_hosts.get(shape));
        pods.all(|&pods| pods == 0)
    }

    /// How many pods of a shape one rule lets into a domain.
    pub(super) fn room(&self, problem: &Problem<'_>, rule: &Rule, here: Tally, least: u32) -> u32 {
        match problem.rules.groups[rule.group].kind {
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
                let together = &problem.rules.groups[rule.group].together;
                let nobody = || together.iter().all(|&term| self.selects_nobody(problem, term));
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

    /// The domains into which a rule of its own lets at least one pod more, ascending. Not for rules about hosts.
    pub(crate) fn domains_left(
        &mut self,
        problem: &Problem<'_>,
        cells: &mut Cells,
        rule: &Rule,
    ) -> Vec<Value> {
        let least = self.least(problem, cells, rule);
        let group = &problem.rules.groups[rule.group];
        let count = &mut self.groups[rule.group];
        let mut domains =
            count.universe.get_or_insert_with(|| universe(problem, cells, group)).clone();
        let count = &self.groups[rule.group];
        domains.retain(|&zone| self.room(problem, rule, count.value(zone), least) > 0);
        domains
    }

    /// The smallest count of any domain that the pods of a spread group could be in.
    pub(super) fn least(&mut self, problem: &Problem<'_>, cells: &mut Cells, rule: &Rule) -> u32 {
        let group = &problem.rules.groups[rule.group];
        let Kind::Spread { min_domains, .. } = group.kind else { return 0 };
        // There is always one more host.
        if group.host || !rule.carried {
            return 0;
        }
        let count = &mut self.groups[rule.group];
        let domains = count.universe.get_or_insert_with(|| universe(problem, cells, group));
        let few = |least: i32| i64::try_from(domains.len()).is_ok_and(|n| n < i64::from(least));
        if min_domains.is_some_and(few) {
            return 0;
        }
        let domains = &*domains;
        let values = &count.values;
        let selected = |value: &Value| {
            let at = values.binary_search_by_key(value, |&(value, _)| value);
            at.map_or(0, |at| values[at].1.selected)
        };
        domains.iter().map(selected).min().unwrap_or(0)
    }
}

/// Where a label is missing nobody else's rule applies, and one's own can't be met, unless it only keeps away.
fn passes_unlabelled(group: &Group, rule: &Rule) -> bool {
    !rule.carried || group.kind == Kind::Anti
}

/// Whether pods of a shape on machines of a cell count for a rule: some type there that holds one meets what the rule's own pods require.
fn counts_in(
    problem: &Problem<'_>,
    cells: &Cells,
    rule: &Group,
    cell: CellId,
    shape: usize,
) -> bool {
    let Kind::Spread { class, honor_affinity, honor_taints, .. } = rule.kind else { return true };
    if !has_keys(problem, cells, rule, cell) {
        return false;
    }
    let class = &problem.classes[class];
    let cell = &cells[cell];
    let template = &problem.templates[cell.template];
    let affine = |required: &Requirements| {
        let well_known = |key| problem.is_well_known(key);
        let symbols = &problem.symbols;
        if cell.requirements.compatible(required, well_known, symbols).is_err() {
            return false;
        }
        let table = &problem.catalogs[template.catalog];
        if required.iter().all(|(key, _)| !table.keys.contains(&key)) {
            return true;
        }
        let mut types = cell.types.clone();
        template.fitting.keep(&mut types, &problem.shapes[shape].requests);
        types.ones().any(|kind| table.requirements[kind].intersects(required, symbols).is_ok())
    };
    let tolerated = || {
        let taints = &problem.snapshot.node_pools[template.pool].template.taints;
        untolerated(taints, &class.tolerations, Preferred::Ignored).is_none()
    };
    (!honor_affinity || class.required.iter().any(affine)) && (!honor_taints || tolerated())
}

/// Why a shape has no domain. For [`Counts::room_on_host`] it is the first rule about hosts.
pub(super) fn failed(problem: &Problem<'_>, rule: &Rule) -> Exclusion {
    let group = &problem.rules.groups[rule.group];
    Exclusion::Topology {
        key: problem.symbols.key_name(group.key).to_owned(),
        rule: group.describe(),
    }
}

impl Counts {
    /// What keeps a shape off every host to come.
    pub(crate) fn no_host(&self, problem: &Problem<'_>, shape: usize, dropped: usize) -> Exclusion {
        let rules = &problem.rules;
        let mut of_hosts = rules.carried_about_hosts(shape, dropped).peekable();
        let first = of_hosts.peek().copied();
        let closed = |rule: &&Rule| self.room(problem, rule, Tally::default(), 0) == 0;
        let rule = of_hosts.find(closed).or(first);
        failed(problem, rule.expect("only rules about hosts leave no room on a new host"))
    }

    /// Whether rules about hosts let one more pod of a shape on a machine to come: its own, and those of pods that are there.
    pub(crate) fn suits_host(&self, problem: &Problem<'_>, shape: usize, claim: usize) -> bool {
        let of_those_there = problem.rules.tallied(shape).all(|group| {
            let Group { kind: Kind::Spread { max_skew, .. }, host: true, .. } =
                problem.rules.groups[group]
            else {
                return true;
            };
            let tally = self.groups[group].claims.of(claim);
            tally.carrying == 0 || i64::from(tally.selected) < i64::from(max_skew)
        });
        of_those_there && self.room_on_host(problem, shape, 0, Host::Claim(claim)) > 0
    }

    /// Counts a pod on a machine to come, as a host, in (1) or out (-1).
    pub(crate) fn add_on_host(
        &mut self,
        problem: &Problem<'_>,
        cells: &Cells,
        shape: usize,
        claim: usize,
        cell: CellId,
        by: i32,
    ) {
        let rules = &problem.rules;
        let tallied = |group: usize| rules.groups[group].host && rules.groups[group].is_tallied();
        for group in rules.tallied(shape).filter(|&group| tallied(group)) {
            if counts_in(problem, cells, &rules.groups[group], cell, shape) {
                self.groups[group].claims.change(claim, Some(claim), by, 0);
            }
        }
        let carried = rules.required[shape].iter().map(|rule| rule.group);
        for group in carried.filter(|&group| tallied(group)) {
            self.groups[group].claims.change(claim, Some(claim), 0, by);
        }
        if rules.matters_on_hosts(shape) {
            self.on_claims.change(shape, claim, Some(claim), by);
        }
    }

    /// Counts all pods on machines to come, as hosts, anew.
    pub(crate) fn recount_claims(
        &mut self,
        problem: &Problem<'_>,
        cells: &Cells,
        claims: &[crate::solver::Claim],
    ) {
        self.forget_claims();
        for (index, claim) in claims.iter().enumerate() {
            for &pod in &claim.pods {
                let shape = problem.snapshot.pods[pod].shape.0 as usize;
                self.add_on_host(problem, cells, shape, index, claim.cell, 1);
            }
        }
    }

    /// Forgets what stands on machines to come, as hosts: others will have their numbers.
    pub(crate) fn forget_claims(&mut self) {
        for count in &mut self.groups {
            count.claims.clear();
        }
        self.on_claims.clear();
    }
}
