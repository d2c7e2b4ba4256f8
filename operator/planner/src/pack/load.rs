//! A load: the pods that one machine to come is filled with, and those that could be part of it.

use crate::machine_specs::SpecId;
use crate::tables::shapes::HostPort;
use crate::topology::HostGroup;

/// A load for one machine.
#[derive(Clone, Debug)]
pub(super) struct Load {
    pub(super) spec: SpecId,
    /// Demand and number of pods, in the order in which they were put in.
    pub(super) takes: Vec<(usize, usize)>,
    pub(super) value: f64,
}

/// Pods that could be part of a load.
#[derive(Clone, Debug)]
pub(super) struct Part {
    pub(super) demand: usize,
    pub(super) left: usize,
    pub(super) value: f64,
    pub(super) requests: Vec<i64>,
    pub(super) ports: Vec<HostPort>,
    /// Topology groups that limit which pods share a machine.
    pub(super) groups: Vec<HostGroup>,
    /// Whether it narrows the machine beyond what the seed does.
    pub(super) narrows: bool,
}

/// What is left of a type's room.
pub(super) fn rest(net: &[i64], used: &[i64]) -> Vec<i64> {
    net.iter().zip(used).map(|(have, used)| have - used).collect()
}
