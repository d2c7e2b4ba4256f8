//! Machines that exist or are on their way, as a table.

use crate::compile::shapes::HostPort;
use crate::compile::{Problem, label};
use crate::daemons::Daemons;
use crate::intern::{Key, Symbols, Value};
use crate::requirements::Requirements;
use crate::snapshot::{NodePhase, Snapshot};

/// Machines, by index into [`Snapshot::nodes`].
#[derive(Debug, Default)]
pub(crate) struct Machines {
    /// Sorted by key.
    labels: Vec<Vec<(Key, Value)>>,
    /// Requirements of claims that have no instance yet.
    pub(crate) promised: Vec<Requirements>,
    /// What pods may still use, daemons to come already taken off.
    room: Vec<i64>,
    width: usize,
    /// Host ports in use.
    pub(crate) ports: Vec<Vec<HostPort>>,
    /// Those that take pods, in the order in which they are tried: initialised first, then by name.
    pub(crate) order: Vec<usize>,
    /// By machine, where it stands in `order`.
    positions: Vec<Option<usize>>,
}

impl Machines {
    pub(crate) fn new(snapshot: &Snapshot, symbols: &mut Symbols) -> Self {
        let hostname = symbols.key(label::HOSTNAME);
        let mut machines = Self::default();
        for node in &snapshot.nodes {
            let mut labels: Vec<_> = node
                .labels
                .iter()
                .map(|(key, value)| (symbols.key(key), symbols.value(value)))
                .collect();
            if !node.labels.contains_key(label::HOSTNAME) {
                let name = symbols.value(node.name.as_deref().unwrap_or(&node.key));
                labels.push((hostname, name));
            }
            labels.sort_unstable();
            machines.labels.push(labels);
            machines.promised.push(Requirements::new(&node.requirements, symbols));
        }
        machines.order =
            (0..snapshot.nodes.len()).filter(|&node| !snapshot.nodes[node].deleting).collect();
        machines.order.sort_by_key(|&index| {
            let node = &snapshot.nodes[index];
            (
                node.phase != NodePhase::Initialized,
                node.name.as_ref().unwrap_or(&node.key),
                &node.key,
            )
        });
        machines.number();
        machines
    }

    /// Changes the order in which machines are tried.
    pub(super) fn sort(&mut self, order: Vec<usize>) {
        self.order = order;
        self.number();
    }

    fn number(&mut self) {
        self.positions = vec![None; self.labels.len()];
        for (position, &machine) in self.order.iter().enumerate() {
            self.positions[machine] = Some(position);
        }
    }

    /// Where a machine stands in `order`, if it takes pods.
    pub(crate) fn position(&self, machine: usize) -> Option<usize> {
        self.positions[machine]
    }

    /// A label's value.
    pub(crate) fn label(&self, machine: usize, key: Key) -> Option<Value> {
        let labels = &self.labels[machine];
        labels.binary_search_by_key(&key, |&(key, _)| key).ok().map(|at| labels[at].1)
    }

    /// The room of all machines, row by row.
    pub(crate) fn room(&self) -> &[i64] {
        &self.room
    }

    /// How many columns a row has.
    pub(crate) fn width(&self) -> usize {
        self.width
    }
}

/// Computes rooms and ports: allocatable less bound pods less daemons that are still to come.
pub(crate) fn fill_room(problem: &mut Problem<'_>, daemons: &Daemons) {
    let width = problem.columns.len();
    let mut room = Vec::with_capacity(problem.snapshot.nodes.len() * width);
    let mut ports = Vec::with_capacity(problem.snapshot.nodes.len());
    for (index, node) in problem.snapshot.nodes.iter().enumerate() {
        let mut row = problem.columns.row(&node.allocatable);
        let mut used_ports = Vec::new();
        for &pod in &problem.pods_on[index] {
            let shape = &problem.shapes[problem.snapshot.pods[pod].shape.0 as usize];
            super::take_times(&mut row, &shape.requests, 1);
            used_ports.extend(shape.ports.iter().cloned());
        }
        super::take_times(&mut row, &daemons.still_to_come(problem, index), 1);
        daemons.reserve_ports(problem, index, &mut used_ports);
        super::volumes::fill_room(problem, daemons, index, &mut row);
        room.extend(row);
        ports.push(used_ports);
    }
    problem.machines.room = room;
    problem.machines.width = width;
    problem.machines.ports = ports;
}
