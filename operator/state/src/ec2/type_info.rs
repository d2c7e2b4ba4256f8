//! What EC2 says about an instance type, reduced to what the catalog uses.

use serde::{Deserialize, Serialize};

/// An instance type as EC2 describes it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TypeInfo {
    /// Name, e.g. `m5.large`.
    pub name: String,
    /// `amd64` or `arm64`: the first supported architecture that Kubernetes knows.
    pub arch: String,
    /// The first architecture that EC2 lists is `arm64`: some of the memory is kept by the
    /// firmware.
    #[serde(skip_serializing_if = "is_false")]
    pub arm_firmware: bool,
    /// `on-demand`, `spot`, as far as supported.
    pub usage_classes: Vec<String>,
    /// Virtual CPUs.
    pub vcpus: i64,
    /// Memory in MiB.
    pub memory_mib: i64,
    /// Manufacturer of the processor as EC2 writes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_manufacturer: Option<String>,
    /// Sustained clock speed in GHz.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clock_ghz: Option<f64>,
    /// Supports nested virtualization.
    #[serde(skip_serializing_if = "is_false")]
    pub nested_virtualization: bool,
    /// `nitro` or `xen`; `None` on bare metal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hypervisor: Option<String>,
    /// Maximum EBS bandwidth in Mbps, when EBS-optimised by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ebs_mbps: Option<i64>,
    /// Local NVMe storage in GB; `None` when there is no NVMe.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nvme_gb: Option<i64>,
    /// Size of all local disks in GB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instance_store_gb: Option<i64>,
    /// Network.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<NetworkInfo>,
    /// GPUs, one entry per kind.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub gpus: Vec<Device>,
    /// Neuron devices, one entry per kind.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub neurons: Option<Vec<Neuron>>,
    /// Inference accelerators, one entry per kind.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub inference_accelerators: Vec<Device>,
    /// Placement group strategies that it supports.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub placement_strategies: Vec<String>,
}

/// Network of an instance type.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NetworkInfo {
    /// Network interfaces of the default card.
    pub default_card_interfaces: i64,
    /// IPv4 addresses per interface.
    pub ipv4_per_interface: i64,
    /// Traffic between instances is encrypted.
    #[serde(skip_serializing_if = "is_false")]
    pub encryption_in_transit: bool,
    /// Interfaces for EFA at most.
    #[serde(skip_serializing_if = "is_zero")]
    pub max_efa: i64,
    /// ENA is `unsupported`, `supported` or `required`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ena: Option<String>,
    /// Interfaces per card, in the order of the cards.
    pub cards: Vec<i64>,
    /// Baseline bandwidth of all cards in Mbps, where EC2 tells it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub baseline_mbps: Option<i64>,
}

/// A GPU or an inference accelerator.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Device {
    /// Name as EC2 writes it.
    pub name: String,
    /// Manufacturer as EC2 writes it.
    pub manufacturer: String,
    /// How many; 0 for fractions.
    pub count: i64,
    /// Memory of each in MiB.
    #[serde(skip_serializing_if = "is_zero")]
    pub memory_mib: i64,
}

/// A Neuron device.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Neuron {
    /// Name as EC2 writes it.
    pub name: String,
    /// How many.
    pub count: i64,
    /// Cores of each.
    pub cores: i64,
}

impl TypeInfo {
    /// Whether spot or on-demand is possible.
    pub fn supports(&self, usage_class: &str) -> bool {
        self.usage_classes.iter().any(|class| class == usage_class)
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands out references")]
fn is_false(value: &bool) -> bool {
    !value
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands out references")]
fn is_zero(value: &i64) -> bool {
    *value == 0
}
