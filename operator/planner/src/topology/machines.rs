//! How many pods rules about other domains than hosts let on a machine that exists, and which
//! machines they leave open.

use fixedbitset::FixedBitSet;

use super::counts::Counts;
use super::room::{ANY, passes_unlabelled};
use super::{Kind, Topology};
use crate::machine_specs::MachineSpecs;

impl Counts {
    /// How many pods of a shape rules about other domains than hosts let on a machine, with only so
    /// many of its preferences dropped.
    pub(crate) fn room_in_domains(
        &mut self,
        topology: &Topology<'_, '_>,
        specs: &mut MachineSpecs,
        shape: usize,
        dropped: usize,
        machine: usize,
    ) -> usize {
        let mut most = ANY;
        for rule in topology.rules.about_domains(shape, dropped) {
            if most == 0 {
                break;
            }
            let (rule, group) = (&rule, &topology.rules.groups[rule.group]);
            most = match topology.domains.of(group.key, machine) {
                Some(value) => {
                    let least = self.least(topology, specs, rule);
                    let tally = self.in_domain(rule.group, value);
                    most.min(self.room(topology, rule, tally, least))
                }
                None if passes_unlabelled(group, rule) => most,
                None => 0,
            };
        }
        let mut domains = topology.domains.all_of(machine);
        if topology.rules.others[shape].is_crowded
            && domains.any(|(key, value)| self.keeps_off(topology, shape, key, value))
        {
            return 0;
        }
        most as usize
    }

    /// The machines, by position, in domains that may take at least one pod of a shape; `None` when
    /// every machine's may.
    pub(crate) fn open_positions(
        &mut self,
        topology: &Topology<'_, '_>,
        specs: &mut MachineSpecs,
        shape: usize,
        dropped: usize,
    ) -> Option<FixedBitSet> {
        let mut open: Option<FixedBitSet> = None;
        let mut open_anyway = false;
        for rule in topology.rules.about_domains(shape, dropped) {
            let (rule, group) = (&rule, &topology.rules.groups[rule.group]);
            if !rule.carried && group.kind != Kind::Anti {
                continue;
            }
            let unlabelled = passes_unlabelled(group, rule);
            if unlabelled && !topology.domains.have(group.key) {
                // Pods may have thousands of rules about labels that no machine has.
                open_anyway = true;
                continue;
            }
            let least = self.least(topology, specs, rule);
            let set = topology.domains.positions(group.key, unlabelled, |value| {
                self.room(topology, rule, self.in_domain(rule.group, value), least) > 0
            });
            match &mut open {
                None => open = Some(set),
                Some(open) => open.intersect_with(&set),
            }
        }
        if topology.rules.others[shape].is_crowded {
            let open = open.get_or_insert_with(|| topology.domains.all_positions());
            for key in topology.domains.keys() {
                let keeps_off = |value| self.keeps_off(topology, shape, key, value);
                open.intersect_with(
                    &topology.domains.positions(key, true, |value| !keeps_off(value)),
                );
            }
        }
        open.or_else(|| open_anyway.then(|| topology.domains.all_positions()))
    }
}
