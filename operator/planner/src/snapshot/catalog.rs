//! What can be launched: instance types and their offerings.

use serde::{Deserialize, Serialize};

use super::{NodeClassRef, Requirement};
use crate::resources::{MicroUsd, Resources};

/// What can be launched with one NodeClass.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Catalog {
    /// The NodeClass that the types were computed for (its kubelet settings, storage and zones shape them).
    pub node_class: NodeClassRef,
    /// All types, with or without available offerings. Sorted by name.
    pub instance_types: Vec<InstanceType>,
}

/// A kind of machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InstanceType {
    /// Equal to the value of `node.kubernetes.io/instance-type`.
    pub name: String,
    /// A requirement for every well-known label: `In` for what the type has, `DoesNotExist` for what it has not. Sorted by key.
    pub requirements: Vec<Requirement>,
    /// What the machine has.
    pub capacity: Resources,
    /// Kube-reserved, system-reserved and eviction thresholds, summed.
    pub overhead: Resources,
    /// Where and how it can be bought.
    pub offerings: Vec<Offering>,
}

impl InstanceType {
    /// `capacity` less `overhead`; huge pages are taken off the memory, which does not fall below zero.
    pub fn allocatable(&self) -> Resources {
        let mut allocatable = self.capacity.clone();
        allocatable.subtract(&self.overhead);
        let huge: i64 = self
            .capacity
            .extended
            .iter()
            .filter(|(name, _)| name.starts_with("hugepages-"))
            .map(|(_, bytes)| bytes)
            .sum();
        allocatable.memory = (allocatable.memory - huge).max(0);
        allocatable
    }
}

/// One way to buy an [`InstanceType`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Offering {
    /// `topology.kubernetes.io/zone`.
    pub zone: String,
    /// `karpenter.sh/capacity-type`.
    pub capacity_type: CapacityType,
    /// Further labels of the offering (zone id, reservation id and type, …), as requirements. Sorted by key.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub requirements: Vec<Requirement>,
    /// Per hour.
    pub price: MicroUsd,
    /// Whether it can be asked for now (not in the ICE cache, zone served by a subnet).
    pub available: bool,
    /// For reservations: how many instances are left.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reservation_capacity: Option<u32>,
}

/// `karpenter.sh/capacity-type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CapacityType {
    /// `reserved`
    Reserved,
    /// `spot`
    Spot,
    /// `on-demand`
    OnDemand,
}

impl CapacityType {
    /// The label's value.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Reserved => "reserved",
            Self::Spot => "spot",
            Self::OnDemand => "on-demand",
        }
    }

    /// From the label's value.
    pub fn parse(value: &str) -> Option<Self> {
        match value {
            "reserved" => Some(Self::Reserved),
            "spot" => Some(Self::Spot),
            "on-demand" => Some(Self::OnDemand),
            _ => None,
        }
    }
}
