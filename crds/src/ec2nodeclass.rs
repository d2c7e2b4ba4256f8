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
    /// How the machines are set up. Required unless an alias in `amiSelectorTerms` says it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ami_family: Option<AmiFamily>,
    /// Which images may be used; the terms are alternatives.
    pub ami_selector_terms: Vec<AmiSelectorTerm>,
    /// Whether machines get a public IPv4 address. Absent leaves it to the subnet.
    #[serde(default, rename = "associatePublicIPAddress", skip_serializing_if = "Option::is_none")]
    pub associate_public_ip_address: Option<bool>,
    /// Disks of the machines. Absent means the disks of the AMI family.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub block_device_mappings: Option<Vec<BlockDeviceMapping>>,
    /// Which capacity reservations may be used; the terms are alternatives.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub capacity_reservation_selector_terms: Vec<CapacityReservationSelectorTerm>,
    /// Idle timeouts of the connections that the network interfaces track.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connection_tracking: Option<ConnectionTracking>,
    /// Passed to EC2 as the context of CreateFleet, which EC2 reserves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<String>,
    /// Options of the processors.
    #[serde(default, rename = "cpuOptions", skip_serializing_if = "Option::is_none")]
    pub cpu_options: Option<CpuOptions>,
    /// Whether EC2 publishes metrics of the machines every minute.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detailed_monitoring: Option<bool>,
    /// Name of an instance profile that somebody else manages. Exactly one of `role` and `instanceProfile` must be set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance_profile: Option<String>,
    /// What to do with the local disks of the machines. Absent leaves them unused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance_store_policy: Option<InstanceStorePolicy>,
    /// How many IP prefixes (IPv4 /28 or IPv6 /80) the first network interface gets at launch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ip_prefix_count: Option<i32>,
    /// Settings of the kubelet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kubelet: Option<KubeletConfiguration>,
    /// How the machines may reach the instance metadata service.
    #[serde(default = "MetadataOptions::preset", skip_serializing_if = "Option::is_none")]
    pub metadata_options: Option<MetadataOptions>,
    /// Network interfaces of the machines. Absent means one, or those that the instance type's EFA needs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network_interfaces: Option<Vec<NetworkInterface>>,
    /// The placement group that machines are launched into.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub placement_group_selector: Option<PlacementGroupSelector>,
    /// Name of the role of the machines; the operator manages an instance profile for it. Exactly one of `role` and
    /// `instanceProfile` must be set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// Which security groups the machines get; the terms add up.
    pub security_group_selector_terms: Vec<SecurityGroupSelectorTerm>,
    /// Which subnets machines may be launched into; the terms add up.
    pub subnet_selector_terms: Vec<SubnetSelectorTerm>,
    /// Tags of the machines and of what belongs to them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tags: Option<BTreeMap<String, String>>,
    /// Added to the user data that the AMI family generates; for the family `Custom` it is the whole user data.
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

/// A disk.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BlockDeviceMapping {
    /// Name under which the machine sees the disk, such as `/dev/xvda`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device_name: Option<String>,
    /// The EBS volume behind it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ebs: Option<BlockDevice>,
    /// Whether this disk counts as the node's ephemeral storage. At most one may say so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub root_volume: Option<bool>,
}

/// An EBS volume.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BlockDevice {
    /// Whether the volume goes when its machine goes.
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
    /// The snapshot that the volume is made from.
    #[serde(default, rename = "snapshotID", skip_serializing_if = "Option::is_none")]
    pub snapshot_id: Option<String>,
    /// Throughput in MiB/s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub throughput: Option<i64>,
    /// How fast the snapshot is loaded, in MiB/s.
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

/// A network interface.
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
    /// Whether the service answers at all.
    #[serde(default = "MetadataOptions::http_endpoint", skip_serializing_if = "Option::is_none")]
    pub http_endpoint: Option<Switch>,
    /// Whether the service answers over IPv6.
    #[serde(
        default = "MetadataOptions::http_protocol_ipv6",
        rename = "httpProtocolIPv6",
        skip_serializing_if = "Option::is_none"
    )]
    pub http_protocol_ipv6: Option<Switch>,
    /// How many network hops an answer may travel; 1 keeps it from pods.
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

/// Options of the processors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CpuOptions {
    /// Whether machines may run virtual machines of their own.
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
    /// Thresholds at which pods are evicted at once, by signal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub eviction_hard: Option<BTreeMap<String, String>>,
    /// The longest grace period in seconds of pods that are evicted for a soft threshold.
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
    /// What is kept for Kubernetes' own programs, by resource.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kube_reserved: Option<BTreeMap<String, String>>,
    /// The most pods of a node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_pods: Option<i32>,
    /// The most pods of a node per CPU core; 0 sets no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pods_per_core: Option<i32>,
    /// What is kept for the operating system, by resource.
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
