//! Rules about hosts: which hosts they leave to a pod.
//!
//! All of them are read off the pods that are on a host ([`super::occupants`]). Spread counts only
//! nodes that its pods could use, which needs no look here: a host that one of these pods may come
//! to is one, and how many pods are on others is nobody's concern, as there is always one more host
//! without any.

use fixedbitset::FixedBitSet;

use super::Topology;
use super::counts::Counts;
use super::occupants::Host;
use super::room::{ANY, failed};
use super::tallies::Tally;
use super::{Kind, Rule};
use crate::plan::Exclusion;

/// Asking the pods on a host costs about as much as looking up so many rules.
const RULES_PER_HOST: usize = 8;

impl Counts {
    /// How many pods of a shape rules about hosts let on a host.
    pub(crate) fn room_on_host(
        &self,
        topology: &Topology<'_, '_>,
        shape: usize,
        dropped: usize,
        host: Host,
    ) -> u32 {
        if self.keep_off(topology, shape, host) {
            return 0;
        }
        let own = topology.rules.carried_about_hosts(shape, dropped);
        // There is always one more host, so the least is 0.
        own.map(|rule| self.room(topology, rule, self.tally(topology, rule.group, host), 0))
            .min()
            .unwrap_or(ANY)
    }

    /// The pods on a host that a group about hosts selects, and those that carry its rule.
    fn tally(&self, topology: &Topology<'_, '_>, group: usize, host: Host) -> Tally {
        let group = &topology.rules.groups[group];
        match host {
            Host::Machine(machine) => self.on_machines.tally(group, machine),
            Host::Claim(claim) => self.on_claims.tally(group, claim),
        }
    }

    /// Whether a pod on a host wants no pod of a shape there.
    fn keep_off(&self, topology: &Topology<'_, '_>, shape: usize, host: Host) -> bool {
        let rules = &topology.rules;
        match host {
            Host::Machine(machine) => self.on_machines.keep_off(rules, shape, machine),
            Host::Claim(claim) => self.on_claims.keep_off(rules, shape, claim),
        }
    }

    /// Hosts that rules about host names certainly keep a shape off: machines by position, or
    /// machines to come.
    pub(crate) fn closed_hosts(
        &self,
        topology: &Topology<'_, '_>,
        shape: usize,
        dropped: usize,
        to_come: bool,
    ) -> FixedBitSet {
        let rules = &topology.rules;
        let occupants = if to_come { &self.on_claims } else { &self.on_machines };
        let mut closed = occupants.no_places();
        for rule in rules.carried_about_hosts(shape, dropped) {
            let group = &rules.groups[rule.group];
            match group.kind {
                Kind::Anti => {
                    occupants.add_selected(group, &mut closed);
                    if rule.itself && !rule.soft {
                        occupants.add_carrying(group, &mut closed);
                    }
                }
                Kind::Spread { max_skew, .. } if rule.itself && max_skew <= 1 => {
                    occupants.add_selected(group, &mut closed);
                }
                _ => {}
            }
        }
        let others = &rules.others[shape].on_hosts;
        let open = closed.count_zeroes(..);
        // Thousands of rules may select the pod: then it is less work to ask the pods on the hosts
        // that are still open. The place of a machine to come is its number.
        if to_come && open * RULES_PER_HOST < others.len() {
            let keeps_off = |&place: &usize| occupants.keep_off(rules, shape, place);
            let open: Vec<usize> = closed.zeroes().filter(keeps_off).collect();
            for place in open {
                closed.insert(place);
            }
            return closed;
        }
        for group in others.iter().map(|group| &rules.groups[group]) {
            if group.kind == Kind::Anti {
                occupants.add_carrying(group, &mut closed);
            }
        }
        closed
    }

    /// The same for machines to come, with those on which there are already more pods than spread
    /// over hosts allows. That is for rules that select thousands of shapes: there may be as many
    /// such machines as pods.
    pub(crate) fn full_hosts(
        &self,
        topology: &Topology<'_, '_>,
        shape: usize,
        dropped: usize,
        closed: &FixedBitSet,
    ) -> FixedBitSet {
        let mut full = closed.clone();
        for rule in topology.rules.carried_about_hosts(shape, dropped) {
            let group = &topology.rules.groups[rule.group];
            if let Kind::Spread { max_skew, .. } = group.kind {
                // One that the rule does not select itself may still come to as many as the skew.
                let most = u32::try_from(max_skew).unwrap_or(0).max(1);
                self.on_claims.add_crowded(group, most + u32::from(!rule.itself), &mut full);
            }
        }
        full
    }

    /// Whether a host is one of [`Self::closed_hosts`].
    pub(crate) fn closes(
        &self,
        topology: &Topology<'_, '_>,
        shape: usize,
        dropped: usize,
        host: Host,
    ) -> bool {
        let closes = |rule: &Rule| {
            let tally = self.tally(topology, rule.group, host);
            match topology.rules.groups[rule.group].kind {
                Kind::Anti => {
                    tally.selected > 0 || (rule.itself && !rule.soft && tally.carrying > 0)
                }
                Kind::Spread { max_skew, .. } => rule.itself && max_skew <= 1 && tally.selected > 0,
                Kind::Affinity => false,
            }
        };
        self.keep_off(topology, shape, host)
            || topology.rules.carried_about_hosts(shape, dropped).any(closes)
    }

    /// What keeps a shape off every host to come.
    pub(crate) fn no_host(
        &self,
        topology: &Topology<'_, '_>,
        shape: usize,
        dropped: usize,
    ) -> Exclusion {
        let rules = &topology.rules;
        let mut of_hosts = rules.carried_about_hosts(shape, dropped).peekable();
        let first = of_hosts.peek().copied();
        let closed = |rule: &&Rule| self.room(topology, rule, Tally::default(), 0) == 0;
        let rule = of_hosts.find(closed).or(first);
        failed(topology, rule.expect("only rules about hosts leave no room on a new host"))
    }

    /// Whether rules about hosts let one more pod of a shape on a machine to come: its own, and
    /// those of pods that are there.
    pub(crate) fn suits_host(
        &self,
        topology: &Topology<'_, '_>,
        shape: usize,
        claim: usize,
    ) -> bool {
        self.on_claims.leave_room(topology.rules, shape, claim)
            && self.room_on_host(topology, shape, 0, Host::Claim(claim)) > 0
    }

    /// Counts a pod on a machine to come, as a host, in (1) or out (-1).
    pub(crate) fn add_on_host(
        &mut self,
        topology: &Topology<'_, '_>,
        shape: usize,
        claim: usize,
        by: i32,
    ) {
        if topology.rules.matters_on_hosts(shape) {
            self.on_claims.change(shape, claim, Some(claim), by);
        }
    }

    /// Counts all pods on machines to come, as hosts, anew: each with the pods that are to run
    /// there.
    pub(crate) fn recount_claims<'c>(
        &mut self,
        topology: &Topology<'_, '_>,
        claims: impl Iterator<Item = &'c [usize]>,
    ) {
        self.forget_claims();
        for (index, pods) in claims.enumerate() {
            for &pod in pods {
                self.add_on_host(
                    topology,
                    topology.tables.snapshot.pods[pod].shape.0 as usize,
                    index,
                    1,
                );
            }
        }
    }

    /// Forgets what stands on machines to come, as hosts: others will have their numbers.
    pub(crate) fn forget_claims(&mut self) {
        self.on_claims.clear();
    }
}
