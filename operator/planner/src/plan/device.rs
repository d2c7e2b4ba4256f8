//! The devices that a plan relies on. kube-scheduler allocates them in the end, and may choose
//! others.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Devices for the claims of pods on one machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PlacedDevices {
    /// [`crate::snapshot::Node::key`]; `None` in a launch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<String>,
    /// The instance types as which the machine has these; empty when it has published its own
    /// devices.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub instance_types: Vec<String>,
    /// By claim. Sorted by namespace, then name.
    pub claims: Vec<ClaimDevices>,
}

/// The devices of one claim.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClaimDevices {
    /// `metadata.namespace` of the claim.
    pub namespace: String,
    /// `metadata.name` of the claim.
    pub name: String,
    /// In the order of its requests.
    pub devices: Vec<ChosenDevice>,
}

/// A device that the plan chose for a request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ChosenDevice {
    /// As `request` or `request/subrequest`.
    pub request: String,
    /// Name of the DRA driver.
    pub driver: String,
    /// Name of the pool that published the device, or of the template.
    pub pool: String,
    /// Name of the device in that pool.
    pub device: String,
    /// The device does not exist yet: the machine will publish one like it
    /// ([`crate::snapshot::InstanceType::devices`]).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub template: bool,
    /// Allocated with `adminAccess`, which consumes nothing.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub admin: bool,
    /// The consumed capacity of a shared device, in thousandths.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub consumed: BTreeMap<String, i64>,
}
