//! `EC2NodeClass` (`karpenter.k8s.aws/v1`): the AWS settings of nodes.

use std::collections::BTreeMap;

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::text_enum::text_enum;

mod selectors;
mod status;

pub use selectors::{
    Alias, AmiSelectorTerm, CapacityReservationSelectorTerm, InstanceMatchCriteria,
    PlacementGroupSelector, SecurityGroupSelectorTerm, SubnetSelectorTerm,
};
pub use status::{
    Ami, CapacityReservation, EC2NodeClassStatus, ReservationState, ReservationType, SecurityGroup,
    Subnet,
};

// Absent and empty fields differ in the drift hash, and so they differ here.
/// The AWS settings of nodes.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "karpenter.k8s.aws",
    version = "v1",
    kind = "EC2NodeClass",
    plural = "ec2nodeclasses",
    shortname = "ec2nc",
    shortname = "ec2ncs",
    category = "karpenter",
    status = "EC2NodeClassStatus",
    derive = "PartialEq",
    derive = "Default",
    doc = "EC2NodeClass holds the AWS settings of nodes: images, network, disks, role and user data."
)]
#[serde(rename_all = "camelCase")]
pub struct EC2NodeClassSpec {
    /// AMI family. Required unless an alias in `amiSelectorTerms` implies it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ami_family: Option<AmiFamily>,
    /// Selectors of images; the terms are alternatives.
    pub ami_selector_terms: Vec<AmiSelectorTerm>,
    /// Whether instances get a public IPv4 address. Absent leaves it to the subnet.
    #[serde(default, rename = "associatePublicIPAddress", skip_serializing_if = "Option::is_none")]
    pub associate_public_ip_address: Option<bool>,
    /// Block devices of the instances. Absent means those of the AMI family.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub block_device_mappings: Option<Vec<BlockDeviceMapping>>,
    /// Selectors of capacity reservations; the terms are alternatives.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub capacity_reservation_selector_terms: Vec<CapacityReservationSelectorTerm>,
    /// Idle timeouts of the connections that the network interfaces track.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connection_tracking: Option<ConnectionTracking>,
    /// Value of `Context` in calls of CreateFleet; reserved by EC2.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<String>,
    /// Options of the instances' processors.
    #[serde(default, rename = "cpuOptions", skip_serializing_if = "Option::is_none")]
    pub cpu_options: Option<CpuOptions>,
    /// Whether EC2 publishes metrics of the instances every minute.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detailed_monitoring: Option<bool>,
    /// Name of an instance profile that you manage. Exactly one of `role` and `instanceProfile`
    /// must be set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance_profile: Option<String>,
    /// Use of the instances' local disks. Absent leaves them unused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance_store_policy: Option<InstanceStorePolicy>,
    /// Number of IP prefixes (IPv4 /28 or IPv6 /80) of the first network interface at launch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ip_prefix_count: Option<i32>,
    /// Settings of the kubelet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kubelet: Option<KubeletConfiguration>,
    /// Access of the instances to the instance metadata service.
    #[serde(default = "MetadataOptions::preset", skip_serializing_if = "Option::is_none")]
    pub metadata_options: Option<MetadataOptions>,
    /// Network interfaces of the instances. Absent means one, or those that the instance type's EFA
    /// needs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network_interfaces: Option<Vec<NetworkInterface>>,
    /// Placement group of the instances.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub placement_group_selector: Option<PlacementGroupSelector>,
    /// Name of the role of the instances; the operator manages an instance profile for it. Exactly
    /// one of `role` and `instanceProfile` must be set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// Selectors of security groups; the instances get all that match a term.
    pub security_group_selector_terms: Vec<SecurityGroupSelectorTerm>,
    /// Selectors of subnets; instances are launched into subnets that match a term.
    pub subnet_selector_terms: Vec<SubnetSelectorTerm>,
    /// Tags of the instances and of their volumes and network interfaces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tags: Option<BTreeMap<String, String>>,
    /// User data in addition to that of the AMI family; the whole user data of `Custom`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user_data: Option<String>,
}

text_enum! {
    /// How a machine is set up: its user data, disks and defaults.
    pub enum AmiFamily {
        /// Amazon Linux 2.
        Al2 = "AL2",
        /// Amazon Linux 2023.
        Al2023 = "AL2023",
        /// Bottlerocket.
        Bottlerocket = "Bottlerocket",
        /// The user data does everything.
        Custom = "Custom",
        /// Windows Server 2019.
        Windows2019 = "Windows2019",
        /// Windows Server 2022.
        Windows2022 = "Windows2022",
        /// Windows Server 2025.
        Windows2025 = "Windows2025",
    }
}

/// A block device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BlockDeviceMapping {
    /// Device name on the instance, such as `/dev/xvda`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device_name: Option<String>,
    /// EBS volume of the device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ebs: Option<BlockDevice>,
    /// Whether this device is the node's ephemeral storage; at most one may be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub root_volume: Option<bool>,
}

/// An EBS volume.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BlockDevice {
    /// Whether the volume is deleted when the instance is terminated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delete_on_termination: Option<bool>,
    /// Whether the volume is encrypted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encrypted: Option<bool>,
    /// Input and output operations per second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub iops: Option<i64>,
    /// The KMS key that encrypts the volume.
    #[serde(default, rename = "kmsKeyID", skip_serializing_if = "Option::is_none")]
    pub kms_key_id: Option<String>,
    /// Snapshot from which the volume is created.
    #[serde(default, rename = "snapshotID", skip_serializing_if = "Option::is_none")]
    pub snapshot_id: Option<String>,
    /// Throughput in MiB/s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub throughput: Option<i64>,
    /// Rate at which the snapshot is loaded, in MiB/s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume_initialization_rate: Option<i32>,
    /// Size, such as `100Gi`.
    // As text, because the schema accepts `Ti`, which is no quantity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume_size: Option<String>,
    /// Type of the volume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume_type: Option<VolumeType>,
}

text_enum! {
    /// Type of an EBS volume.
    pub enum VolumeType {
        /// Magnetic, previous generation.
        Standard = "standard",
        /// Provisioned IOPS.
        Io1 = "io1",
        /// Provisioned IOPS, durable.
        Io2 = "io2",
        /// General purpose, previous generation.
        Gp2 = "gp2",
        /// Cold HDD.
        Sc1 = "sc1",
        /// Throughput optimised HDD.
        St1 = "st1",
        /// General purpose.
        Gp3 = "gp3",
    }
}

text_enum! {
    /// What to do with the local disks of a machine.
    pub enum InstanceStorePolicy {
        /// One RAID 0 over all of them holds the node's ephemeral storage.
        Raid0 = "RAID0",
    }
}

/// A network interface of the instances.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NetworkInterface {
    /// Index of the device on its card.
    pub device_index: i32,
    /// Type of the interface.
    pub interface_type: InterfaceType,
    /// Index of the network card.
    pub network_card_index: i32,
}

text_enum! {
    /// Type of a network interface.
    pub enum InterfaceType {
        /// An ordinary interface.
        Interface = "interface",
        /// An EFA interface without IP.
        EfaOnly = "efa-only",
    }
}

/// How machines may reach the instance metadata service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MetadataOptions {
    /// Whether the service is enabled.
    #[serde(default = "MetadataOptions::http_endpoint", skip_serializing_if = "Option::is_none")]
    pub http_endpoint: Option<Switch>,
    /// Whether the service is available over IPv6.
    #[serde(
        default = "MetadataOptions::http_protocol_ipv6",
        rename = "httpProtocolIPv6",
        skip_serializing_if = "Option::is_none"
    )]
    pub http_protocol_ipv6: Option<Switch>,
    /// Maximum number of network hops of an answer; with 1, pods cannot use the service.
    #[serde(default = "MetadataOptions::hop_limit", skip_serializing_if = "Option::is_none")]
    pub http_put_response_hop_limit: Option<i64>,
    /// Whether callers need a session token (IMDSv2).
    #[serde(default = "MetadataOptions::http_tokens", skip_serializing_if = "Option::is_none")]
    pub http_tokens: Option<HttpTokens>,
}

text_enum! {
    /// On or off.
    pub enum Switch {
        /// On.
        Enabled = "enabled",
        /// Off.
        Disabled = "disabled",
    }
}

text_enum! {
    /// Whether callers of the instance metadata service need a session token.
    pub enum HttpTokens {
        /// They do (IMDSv2).
        Required = "required",
        /// They do not.
        Optional = "optional",
    }
}

/// Idle timeouts of tracked connections, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConnectionTracking {
    /// Established TCP connections.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tcp_established_timeout: Option<i32>,
    /// UDP flows with more than one request and answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub udp_stream_timeout: Option<i32>,
    /// UDP flows with traffic in one direction or a single request and answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub udp_timeout: Option<i32>,
}

/// Options of the instances' processors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CpuOptions {
    /// Whether instances can run nested virtual machines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nested_virtualization: Option<Switch>,
}

/// Settings of the kubelet that the operator understands and writes into the user data.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KubeletConfiguration {
    /// IP addresses of the cluster's DNS servers.
    #[serde(default, rename = "clusterDNS", skip_serializing_if = "Option::is_none")]
    pub cluster_dns: Option<Vec<String>>,
    /// Whether CPU limits are enforced by CFS quota.
    #[serde(default, rename = "cpuCFSQuota", skip_serializing_if = "Option::is_none")]
    pub cpu_cfs_quota: Option<bool>,
    /// Thresholds at which pods are evicted immediately, by signal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub eviction_hard: Option<BTreeMap<String, String>>,
    /// Maximum grace period, in seconds, of pods that are evicted at a soft threshold.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub eviction_max_pod_grace_period: Option<i32>,
    /// Thresholds at which pods are evicted after a grace period, by signal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub eviction_soft: Option<BTreeMap<String, String>>,
    /// Grace periods of the soft thresholds, by signal, such as `1m30s`.
    // As text, because the schema accepts any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub eviction_soft_grace_period: Option<BTreeMap<String, String>>,
    /// Percentage of disk usage at which images are always removed.
    #[serde(
        default,
        rename = "imageGCHighThresholdPercent",
        skip_serializing_if = "Option::is_none"
    )]
    pub image_gc_high_threshold_percent: Option<i32>,
    /// Percentage of disk usage down to which images are removed.
    #[serde(
        default,
        rename = "imageGCLowThresholdPercent",
        skip_serializing_if = "Option::is_none"
    )]
    pub image_gc_low_threshold_percent: Option<i32>,
    /// Resources reserved for Kubernetes' own processes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kube_reserved: Option<BTreeMap<String, String>>,
    /// Maximum number of pods of a node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_pods: Option<i32>,
    /// Maximum number of pods of a node per CPU core; 0 sets no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pods_per_core: Option<i32>,
    /// Resources reserved for the operating system.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system_reserved: Option<BTreeMap<String, String>>,
}

impl MetadataOptions {
    #[expect(clippy::unnecessary_wraps, reason = "serde's default must have the type of the field")]
    fn preset() -> Option<Self> {
        Some(Self::default())
    }

    fn http_endpoint() -> Option<Switch> {
        Self::default().http_endpoint
    }

    fn http_protocol_ipv6() -> Option<Switch> {
        Self::default().http_protocol_ipv6
    }

    fn hop_limit() -> Option<i64> {
        Self::default().http_put_response_hop_limit
    }

    fn http_tokens() -> Option<HttpTokens> {
        Self::default().http_tokens
    }
}

impl Default for MetadataOptions {
    /// What the API server fills in: IMDSv2 only, one hop, no IPv6.
    fn default() -> Self {
        Self {
            http_endpoint: Some(Switch::Enabled),
            http_protocol_ipv6: Some(Switch::Disabled),
            http_put_response_hop_limit: Some(1),
            http_tokens: Some(HttpTokens::Required),
        }
    }
}

impl EC2NodeClassSpec {
    /// The alias that selects the images, if one does.
    pub fn alias(&self) -> Option<Alias> {
        self.ami_selector_terms.iter().find_map(AmiSelectorTerm::parsed_alias)
    }

    /// The family that counts: the one that is set, else the one of the alias, else `Custom`.
    pub fn resolved_ami_family(&self) -> AmiFamily {
        self.ami_family
            .or_else(|| self.alias().map(|alias| alias.family))
            .unwrap_or(AmiFamily::Custom)
    }
}

#[cfg(test)]
mod tests;
