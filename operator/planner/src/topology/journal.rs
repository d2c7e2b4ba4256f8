//! Taking back what was counted for a plan that came to nothing.

use super::counts::{Counts, Host};
use crate::intern::Value;

/// Where pods were counted.
#[derive(Clone, Copy, Debug)]
pub(super) enum Place {
    Machine(usize),
    Claim(usize),
    Value(Value),
}

/// Pods that were counted.
#[derive(Clone, Copy, Debug)]
pub(super) enum Change {
    /// For one group: selected ones and those that carry the rule.
    Tally {
        group: usize,
        place: Place,
        /// The host's place in bitsets, for hosts.
        bit: Option<usize>,
        selected: i32,
        carrying: i32,
    },
    /// Of one shape, on a host, with its place in bitsets.
    Occupants { shape: usize, host: Host, place: Option<usize>, by: i32 },
}

impl Change {
    /// What takes it back.
    fn inverse(self) -> Self {
        match self {
            Self::Tally { group, place, bit, selected, carrying } => {
                Self::Tally { group, place, bit, selected: -selected, carrying: -carrying }
            }
            Self::Occupants { shape, host, place, by } => {
                Self::Occupants { shape, host, place, by: -by }
            }
        }
    }
}

impl Counts {
    /// From here on [`Self::rewind`] can take changes back. Answers where things stand.
    pub(crate) fn mark(&mut self) -> usize {
        self.journal.get_or_insert_default().len()
    }

    /// Takes back what was counted since a mark.
    pub(crate) fn rewind(&mut self, mark: usize) {
        let Some(journal) = &mut self.journal else { return };
        for change in journal.split_off(mark).into_iter().rev() {
            self.apply(change.inverse());
        }
    }

    pub(super) fn count(&mut self, change: Change) {
        self.apply(change);
        if let Some(journal) = &mut self.journal {
            journal.push(change);
        }
    }

    fn apply(&mut self, change: Change) {
        match change {
            Change::Tally { group, place, bit, selected, carrying } => {
                let count = &mut self.groups[group];
                match place {
                    Place::Machine(machine) => {
                        count.machines.change(machine, bit, selected, carrying);
                    }
                    Place::Claim(claim) => count.claims.change(claim, bit, selected, carrying),
                    Place::Value(value) => {
                        let is_carried = count.change(value, selected, carrying).carrying > 0;
                        if count.closes && carrying != 0 {
                            let closing = self.closing.entry(value).or_default();
                            if is_carried { closing.insert(group) } else { closing.remove(group) }
                        }
                    }
                }
                count.total = count.total.saturating_add_signed(selected);
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
