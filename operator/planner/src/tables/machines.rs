//! Existing machines, and machines that are being launched, as a table.

use std::collections::BTreeSet;

use fixedbitset::FixedBitSet;
use rustc_hash::{FxHashMap, FxHashSet};

use super::Tables;
use super::columns::add_times;
use super::shapes::{HostPort, Shape};
use crate::intern::{Key, Symbols, Value};
use crate::label;
use crate::requirements::{Requirements, ValueSet};
use crate::snapshot::{Node, NodePhase, Placement, Snapshot};

/// Machines, by index into [`Snapshot::nodes`].
#[derive(Debug, Default)]
pub(crate) struct Machines {
    /// Keys that pods, daemons or topology rules refer to, with the values of machines, or nothing
    /// if no machine has the label; other labels are not read. Sorted by key.
    labels: Vec<(Key, Vec<Option<Value>>)>,
    /// Requirements of claims that have no instance yet.
    promised: FxHashMap<usize, Requirements>,
    promised_keys: FxHashSet<Key>,
    /// Free room for pods, without the requests of daemons that are still to start.
    pub(super) room: Vec<i64>,
    pub(super) width: usize,
    /// Host ports in use.
    pub(crate) ports: Vec<Vec<HostPort>>,
    /// Machines that accept pods, in the order in which they are tried: initialized first, then by
    /// name.
    pub(crate) order: Vec<usize>,
    /// By machine: its position in `order`.
    positions: Vec<Option<usize>>,
}

impl Machines {
    /// With the labels that something asks for.
    pub(super) fn new(snapshot: &Snapshot, asked: &BTreeSet<Key>, symbols: &mut Symbols) -> Self {
        let mut machines = Self { labels: labels(snapshot, asked, symbols), ..Self::default() };
        for (index, node) in snapshot.nodes.iter().enumerate() {
            if !node.requirements.is_empty() {
                let promised = Requirements::new(&node.requirements, symbols);
                machines.promised_keys.extend(promised.iter().map(|(key, _)| key));
                machines.promised.insert(index, promised);
            }
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
    pub(crate) fn sort(&mut self, order: Vec<usize>) {
        self.order = order;
        self.number();
    }

    fn number(&mut self) {
        let n = self.order.iter().max().map_or(0, |last| last + 1);
        self.positions = vec![None; n];
        for (position, &machine) in self.order.iter().enumerate() {
            self.positions[machine] = Some(position);
        }
    }

    /// The position of a machine in `order`, if it accepts pods.
    pub(crate) fn position(&self, machine: usize) -> Option<usize> {
        self.positions.get(machine).copied().flatten()
    }

    /// The value of a label that something asks for.
    pub(crate) fn label(&self, machine: usize, key: Key) -> Option<Value> {
        let at = self.labels.binary_search_by_key(&key, |&(key, _)| key);
        debug_assert!(at.is_ok(), "the label was asked for when the snapshot was compiled");
        self.labels[at.ok()?].1.get(machine).copied().flatten()
    }

    /// Whether any machine has a label that something asks for, or will have.
    pub(crate) fn have(&self, key: Key) -> bool {
        let at = self.labels.binary_search_by_key(&key, |&(key, _)| key);
        let said = at.is_ok_and(|at| self.labels[at].1.iter().any(Option::is_some));
        said || self.promised_keys.contains(&key)
    }

    /// The requirement of a claim without an instance on a label.
    pub(crate) fn promised(&self, machine: usize, key: Key) -> Option<&ValueSet> {
        self.promised.get(&machine)?.get(key)
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

/// With more keys than this, the labels of machines are scanned for keys instead of keys for
/// machines.
const FEW_KEYS: usize = 64;

/// The values of some keys by machine, column by column. Pods may name thousands of keys that no
/// machine has.
fn labels(
    snapshot: &Snapshot,
    asked: &BTreeSet<Key>,
    symbols: &mut Symbols,
) -> Vec<(Key, Vec<Option<Value>>)> {
    let mut columns: Vec<_> = asked.iter().map(|&key| (key, Vec::new())).collect();
    let mut on_nodes = FxHashSet::default();
    if columns.len() > FEW_KEYS {
        let labels = snapshot.nodes.iter().flat_map(|node| node.labels.keys());
        on_nodes.extend(labels.filter_map(|name| symbols.find_key(name)));
        on_nodes.extend(symbols.find_key(label::HOSTNAME));
    }
    for (key, values) in &mut columns {
        if asked.len() > FEW_KEYS && !on_nodes.contains(key) {
            continue;
        }
        let name = symbols.key_name(*key).to_owned();
        let of = |node: &Node| {
            let value = node.labels.get(&name).map(String::as_str);
            let host = || node.name.as_deref().unwrap_or(&node.key);
            let value = value.or_else(|| (name == label::HOSTNAME).then(host));
            value.map(|value| symbols.value(value))
        };
        values.extend(snapshot.nodes.iter().map(of));
    }
    columns
}

/// Pods by the machine that they are bound to, as indices of [`Snapshot::pods`].
#[derive(Debug, Default)]
pub(crate) struct PodsOn {
    /// By machine, where its pods begin; one more at the end.
    starts: Vec<usize>,
    pods: Vec<usize>,
}

impl std::ops::Index<usize> for PodsOn {
    type Output = [usize];

    fn index(&self, machine: usize) -> &[usize] {
        &self.pods[self.starts[machine]..self.starts[machine + 1]]
    }
}

/// The result of one scan of all pods.
#[derive(Debug, Default)]
pub(super) struct PodScan {
    pub(super) on: PodsOn,
    /// Pods that may need a place: pending ones, and pods on machines that are being removed.
    pub(super) restless: Vec<usize>,
    /// By machine and column: what bound pods use.
    pub(super) used: Vec<i64>,
}

/// Scans all pods once: together they exceed the processor's caches.
pub(super) fn scan_pods(snapshot: &Snapshot, shapes: &[Shape], width: usize) -> PodScan {
    let n = snapshot.nodes.len();
    let mut scan = PodScan { used: vec![0; n * width], ..PodScan::default() };
    let mut starts = vec![0; n + 1];
    let mut bound = Vec::with_capacity(snapshot.pods.len());
    for (index, pod) in snapshot.pods.iter().enumerate() {
        match pod.placement {
            Placement::Bound(node) => {
                let machine = node.0 as usize;
                bound.push((machine, index));
                starts[machine + 1] += 1;
                let row = &mut scan.used[machine * width..(machine + 1) * width];
                add_times(row, &shapes[pod.shape.0 as usize].requests, 1);
                if snapshot.nodes[machine].deleting {
                    scan.restless.push(index);
                }
            }
            Placement::Unschedulable => scan.restless.push(index),
            Placement::Waiting => {}
        }
    }
    for machine in 0..n {
        starts[machine + 1] += starts[machine];
    }
    let mut next = starts.clone();
    let mut pods = vec![0; bound.len()];
    for (machine, index) in bound {
        pods[next[machine]] = index;
        next[machine] += 1;
    }
    scan.on = PodsOn { starts, pods };
    scan
}

/// The types that a claim without an instance lists.
pub(crate) fn promised_types(tables: &Tables<'_>, machine: usize, catalog: usize) -> FixedBitSet {
    let table = &tables.catalogs[catalog];
    let mut types = FixedBitSet::with_capacity(table.len());
    let promised = tables.machines.promised(machine, tables.keys.instance_type);
    for &value in promised.and_then(|set| set.listed()).unwrap_or_default() {
        if let Some(kind) = table.find(tables.symbols.value_name(value)) {
            types.insert(kind);
        }
    }
    types
}

/// Whether the labels of a machine or, before it has any, the requirements of its claim meet a set;
/// an undefined label does not meet it.
pub(crate) fn machine_meets(tables: &Tables<'_>, machine: usize, wanted: &Requirements) -> bool {
    let symbols = &tables.symbols;
    let pending = tables.snapshot.nodes[machine].phase == NodePhase::Pending;
    wanted.iter().all(|(key, set)| match tables.machines.label(machine, key) {
        Some(value) => set.has(value, symbols),
        None if pending => match tables.machines.promised(machine, key) {
            Some(promised) => promised.is_subset(set, symbols),
            None => set.admits_absence(),
        },
        None => set.admits_absence(),
    })
}
