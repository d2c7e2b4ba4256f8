//! A compiled snapshot, the input of the solver: its tables, the rules between pods, and devices.

use crate::devices;
use crate::policy::Policy;
use crate::snapshot::Snapshot;
use crate::tables::{Draft, Tables};
use crate::topology::{Domains, Rules, Topology};

/// The compiled snapshot with its policy.
#[derive(Debug)]
pub(crate) struct Problem<'a> {
    pub(crate) tables: Tables<'a>,
    pub(crate) rules: Rules,
    /// Topology domains of machines.
    pub(crate) domains: Domains,
    /// Devices and claims; `None` where claims are not planned for.
    pub(crate) devices: Option<Box<devices::Table<'a>>>,
}

impl<'a> Problem<'a> {
    /// Compiles a snapshot.
    pub(crate) fn new(snapshot: &'a Snapshot, policy: &'a Policy) -> Self {
        let mut draft = Draft::new(snapshot, policy);
        let mut rules = Rules::new(&mut draft.tables);
        draft.read_node_pools();
        let devices = devices::Table::new(snapshot, &mut draft.tables.symbols);
        let selectors = devices.iter().flat_map(|devices| devices.selectors());
        let selected = selectors.flat_map(|set| set.iter().map(|(key, _)| key));
        let tables = draft.finish(selected.chain(rules.domain_keys()));
        let domains = Domains::new(&tables, &rules);
        rules.note_conditions(&tables);
        Self { tables, rules, domains, devices }
    }

    /// The rules with what they are judged by.
    pub(crate) fn topology(&self) -> Topology<'_, 'a> {
        Topology { tables: &self.tables, rules: &self.rules, domains: &self.domains }
    }

    /// Changes the order in which machines are tried, before anything is placed.
    pub(crate) fn try_in_order(&mut self, order: Vec<usize>) {
        self.tables.machines.sort(order);
        self.domains = Domains::new(&self.tables, &self.rules);
    }
}
