//! How large pods are, compared with the cluster.

use super::small_wave::parts;
use super::{Pass, size_class};
use crate::snapshot::Snapshot;

impl Pass<'_, '_> {
    /// What share of all CPU and memory a pod asks for, in billionths of each.
    pub(super) fn size(&self, pod: usize) -> u64 {
        let shape = self.problem.tables.snapshot.pods[pod].shape.0 as usize;
        let requests = &self.problem.tables.shapes[shape].requests;
        let share = |amount: i64, all: i64| parts(amount, all, 1_000_000_000);
        share(requests[0], self.capacity.0) + share(requests[1], self.capacity.1)
    }

    pub(super) fn size_class(&self, pod: usize) -> u32 {
        let snapshot = self.problem.tables.snapshot;
        size_class(&snapshot.shapes[snapshot.pods[pod].shape.0 as usize].requests)
    }
}

/// The CPU and memory of all machines.
pub(super) fn capacity(snapshot: &Snapshot) -> (i64, i64) {
    let all = snapshot.nodes.iter().map(|node| &node.allocatable);
    all.fold((0, 0), |(cpu, memory), node| {
        (cpu.saturating_add(node.cpu), memory.saturating_add(node.memory))
    })
}
