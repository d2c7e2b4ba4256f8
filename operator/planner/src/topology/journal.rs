//! Taking back what was counted for a plan that came to nothing.

use super::counts::Counts;
use crate::intern::Value;

/// Where pods were counted.
#[derive(Clone, Copy, Debug)]
pub(super) enum Place {
    Machine(usize),
    Claim(usize),
    Value(Value),
}

/// Pods of one group that were counted: selected ones and those that carry the rule.
#[derive(Clone, Copy, Debug)]
pub(super) struct Change {
    pub(super) group: usize,
    pub(super) place: Place,
    /// The host's place in bitsets, for hosts.
    pub(super) bit: Option<usize>,
    pub(super) selected: i32,
    pub(super) carrying: i32,
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
            let (selected, carrying) = (-change.selected, -change.carrying);
            self.apply(Change { selected, carrying, ..change });
        }
    }

    pub(super) fn count(&mut self, change: Change) {
        self.apply(change);
        if let Some(journal) = &mut self.journal {
            journal.push(change);
        }
    }

    fn apply(&mut self, change: Change) {
        let Change { group, place, bit, selected, carrying } = change;
        let count = &mut self.groups[group];
        match place {
            Place::Machine(machine) => count.machines.change(machine, bit, selected, carrying),
            Place::Claim(claim) => count.claims.change(claim, bit, selected, carrying),
            Place::Value(value) => count.change(value, selected, carrying),
        }
        count.total = count.total.saturating_add_signed(selected);
    }
}
