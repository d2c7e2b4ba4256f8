//! What can be launched: instance types and their offerings.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{NodeClassRef, Operator, Requirement};
use crate::resources::{MicroUsd, Resources};

/// What can be launched with one NodeClass.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Catalog {
    /// The NodeClass that the types were computed for (its kubelet settings, storage and zones
    /// shape them).
    pub node_class: NodeClassRef,
    /// All types, with or without available offerings. Sorted by name.
    pub instance_types: Vec<InstanceType>,
}

/// An instance type, as computed for one NodeClass.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InstanceType {
    /// Equal to the value of `node.kubernetes.io/instance-type`.
    pub name: String,
    /// A requirement for every well-known label: `In` for what the type has, `DoesNotExist` for
    /// what it has not. Sorted by key.
    pub requirements: Vec<Requirement>,
    /// Total resources of the machine, before `overhead`.
    pub capacity: Resources,
    /// Kube-reserved, system-reserved and eviction thresholds, summed.
    pub overhead: Resources,
    /// Combinations of zone, capacity type and reservation.
    pub offerings: Vec<Offering>,
    /// Attachable volumes by CSI driver, for pods and daemons together. An absent driver has no
    /// limit.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub volume_limits: BTreeMap<String, u32>,
    /// What its machines will publish as devices, one entry per pool.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<super::DeviceTemplate>,
    /// Which of these devices will agree in an attribute that they don't have here.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attribute_bindings: Vec<super::AttributeBinding>,
}

impl InstanceType {
    /// `capacity` less `overhead`; huge pages are taken off the memory, which does not fall below
    /// zero.
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
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Offering {
    /// `topology.kubernetes.io/zone`.
    pub zone: String,
    /// `karpenter.sh/capacity-type`.
    pub capacity_type: CapacityType,
    /// Further labels of the offering (zone id, reservation id and type, …), as requirements.
    /// Sorted by key.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub requirements: Vec<Requirement>,
    /// Per hour; 0 while none is known.
    pub price: MicroUsd,
    /// Whether it can be requested now: a subnet serves the zone, and no recent launch failed for
    /// lack of capacity.
    pub available: bool,
    /// For reservations: how many instances are left. A reservation that is full is `available`
    /// with 0. Several offerings with the same [`Offering::reservation`] share them; the least
    /// counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reservation_capacity: Option<u32>,
    /// No price is known, so it is not `available`: whether it is once a NodeOverlay sets one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unpriced: Option<bool>,
}

impl Offering {
    /// The price per hour; `None` while the provider has none.
    pub fn known_price(&self) -> Option<MicroUsd> {
        self.unpriced.is_none().then_some(self.price)
    }

    /// The id of the reservation that it takes machines from: the value of the label whose name
    /// ends in `reservation-id`, as providers have it.
    pub fn reservation(&self) -> Option<&str> {
        let reserved = self.capacity_type == CapacityType::Reserved;
        let id = |need: &&Requirement| {
            need.operator == Operator::In
                && need.values.len() == 1
                && need.key.ends_with("reservation-id")
        };
        let label = self.requirements.iter().filter(|_| reserved).find(id);
        label.map(|label| label.values[0].as_str())
    }

    /// Whether a machine can be launched from it: it is available and, if it is a reservation, not
    /// full.
    pub fn is_launchable(&self) -> bool {
        let full = self.capacity_type == CapacityType::Reserved
            && self.reservation_capacity.unwrap_or(0) == 0;
        self.available && !full
    }
}

/// `karpenter.sh/capacity-type`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum CapacityType {
    /// `reserved`
    Reserved,
    /// `spot`
    Spot,
    /// `on-demand`
    #[default]
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
