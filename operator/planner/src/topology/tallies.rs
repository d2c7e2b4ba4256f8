//! Tallies of pods per domain, for one group of rules.

use fixedbitset::FixedBitSet;
use rustc_hash::FxHashMap;

use crate::intern::Value;

/// Pods in one domain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    /// That the group's selector selects.
    pub(super) selected: u32,
    /// That carry the rule.
    pub(super) carrying: u32,
}

/// Tallies of hosts of one kind: machines that exist, or machines to come.
#[derive(Clone, Debug, Default)]
pub(super) struct Hosts {
    tallies: FxHashMap<usize, Tally>,
    /// Hosts with a pod that is selected, and with one that carries the rule.
    pub(super) selected: FixedBitSet,
    pub(super) carrying: FixedBitSet,
}

impl Hosts {
    pub(super) fn change(&mut self, host: usize, bit: Option<usize>, selected: i32, carrying: i32) {
        let tally = self.tallies.entry(host).or_default();
        tally.selected = tally.selected.saturating_add_signed(selected);
        tally.carrying = tally.carrying.saturating_add_signed(carrying);
        let Some(bit) = bit else { return };
        for (set, amount) in
            [(&mut self.selected, tally.selected), (&mut self.carrying, tally.carrying)]
        {
            set.grow(bit + 1);
            set.set(bit, amount > 0);
        }
    }

    pub(super) fn clear(&mut self) {
        self.tallies.clear();
        self.selected.clear();
        self.carrying.clear();
    }

    pub(super) fn of(&self, host: usize) -> Tally {
        self.tallies.get(&host).copied().unwrap_or_default()
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct Count {
    /// Whether a pod that carries the rule closes its domain, a value, to those that the group selects.
    pub(super) closes: bool,
    /// By domain, when domains are values; sorted.
    pub(super) values: Vec<(Value, Tally)>,
    /// When domains are hosts.
    pub(super) machines: Hosts,
    pub(super) claims: Hosts,
    /// Pods that are selected, in all domains.
    pub(super) total: u32,
    /// The domains that pods could be in; worked out when it is asked for.
    pub(super) universe: Option<Vec<Value>>,
}

impl Count {
    pub(super) fn value(&self, value: Value) -> Tally {
        let at = self.values.binary_search_by_key(&value, |&(value, _)| value);
        at.map(|at| self.values[at].1).unwrap_or_default()
    }

    /// Returns what there is then.
    pub(super) fn change(&mut self, value: Value, selected: i32, carrying: i32) -> Tally {
        let at = self.values.binary_search_by_key(&value, |&(value, _)| value);
        let at = at.unwrap_or_else(|at| {
            self.values.insert(at, (value, Tally::default()));
            at
        });
        let tally = &mut self.values[at].1;
        tally.selected = tally.selected.saturating_add_signed(selected);
        tally.carrying = tally.carrying.saturating_add_signed(carrying);
        *tally
    }
}
