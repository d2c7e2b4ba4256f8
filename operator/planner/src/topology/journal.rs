//! Taking back what was counted for a plan that came to nothing.

use std::sync::Arc;

use fixedbitset::FixedBitSet;

use super::Rules;
use super::counts::Counts;
use super::families::Counting;
use super::hosts::Host;
use crate::intern::{Key, Value};

/// Pods that were counted.
#[derive(Clone, Debug)]
pub(super) enum Change {
    /// Of one shape, in a domain that is a value: for the groups of a family that select it.
    Selected { shape: usize, family: usize, domain: Value, by: i32 },
    /// The same for those of some groups that are about a topology key.
    SelectedBy { groups: Arc<FixedBitSet>, shape: usize, key: Key, domain: Value, by: i32 },
    /// In a domain that is not known yet: for the groups of a family that bring pods together.
    Somewhere { shape: usize, family: usize, by: i32 },
    /// That carry the rule of a group of anti-affinity.
    Carrying { group: usize, domain: Value, by: i32 },
    /// Of one shape, on a host, with its place in bitsets.
    Occupants { shape: usize, host: Host, place: Option<usize>, by: i32 },
}

impl Change {
    /// What takes it back.
    fn inverse(mut self) -> Self {
        let (Self::Selected { by, .. }
        | Self::SelectedBy { by, .. }
        | Self::Somewhere { by, .. }
        | Self::Carrying { by, .. }
        | Self::Occupants { by, .. }) = &mut self;
        *by = -*by;
        self
    }
}

impl Counts {
    /// From here on [`Self::rewind`] can take changes back. Answers where things stand.
    pub(crate) fn mark(&mut self) -> usize {
        self.journal.get_or_insert_default().len()
    }

    /// Takes back what was counted since a mark.
    pub(crate) fn rewind(&mut self, rules: &Rules, mark: usize) {
        let Some(journal) = &mut self.journal else { return };
        for change in journal.split_off(mark).into_iter().rev() {
            self.apply(rules, &change.inverse());
        }
    }

    pub(super) fn count(&mut self, rules: &Rules, change: Change) {
        self.apply(rules, &change);
        if let Some(journal) = &mut self.journal {
            journal.push(change);
        }
    }

    fn apply(&mut self, rules: &Rules, change: &Change) {
        match *change {
            Change::Selected { shape, family, domain, by } => {
                let family = &rules.families[family];
                rules.selecting[shape].common_to(&family.groups, &mut self.scratch);
                self.domains.entry(domain).or_default().selected.change(&self.scratch, by);
                if family.about.counts == Counting::Near {
                    self.near.change(&self.scratch, by);
                }
            }
            Change::SelectedBy { ref groups, shape, key, domain, by } => {
                rules.selecting[shape].common_to(&rules.about_key[&key], &mut self.scratch);
                self.scratch.intersect_with(groups);
                self.domains.entry(domain).or_default().selected.change(&self.scratch, by);
                self.scratch.intersect_with(&rules.near);
                self.near.change(&self.scratch, by);
            }
            Change::Somewhere { shape, family, by } => {
                let groups = &rules.families[family].groups;
                rules.selecting[shape].common_to(groups, &mut self.scratch);
                self.near.change(&self.scratch, by);
            }
            Change::Carrying { group, domain, by } => {
                self.domains.entry(domain).or_default().carry(group, by);
            }
            Change::Occupants { shape, host, place, by } => {
                match host {
                    Host::Machine(machine) => self.on_machines.change(shape, machine, place, by),
                    Host::Claim(claim) => self.on_claims.change(shape, claim, place, by),
                }
                if self.on_hosts.len() <= shape {
                    self.on_hosts.resize(shape + 1, 0);
                }
                self.on_hosts[shape] = self.on_hosts[shape].saturating_add_signed(by);
            }
        }
    }
}
