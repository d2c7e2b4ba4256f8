//! Requests that launch, as plain values: they can be compared, hashed and printed, and say exactly
//! what goes over the wire.
//!
//! The structs have the shape and the names of EC2's API. Each is turned into the SDK's type in one
//! place, at the end of this file.

use std::collections::BTreeMap;

use aws_sdk_ec2::types as sdk;
use serde::Serialize;

/// CreateLaunchTemplate.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct CreateLaunchTemplate {
    /// Name; depends on everything else.
    pub launch_template_name: String,
    /// What instances are made like.
    pub launch_template_data: LaunchTemplateData,
    /// Tags of the template itself.
    pub tag_specifications: Vec<TagSpecification>,
}

/// What instances are made like.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct LaunchTemplateData {
    /// Disks; empty leaves them to the image.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub block_device_mappings: Vec<BlockDeviceMapping>,
    /// `NestedVirtualization`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_options: Option<CpuOptions>,
    /// Instance profile.
    pub iam_instance_profile: Named,
    /// Detailed monitoring.
    pub monitoring: Enabled,
    /// Image.
    pub image_id: String,
    /// User data, base64.
    pub user_data: String,
    /// Instance metadata service.
    pub metadata_options: MetadataOptions,
    /// Network interfaces; they carry the security groups.
    pub network_interfaces: Vec<NetworkInterface>,
    /// Tags of what is made with the instance.
    pub tag_specifications: Vec<TagSpecification>,
    /// Tenancy and placement group.
    pub placement: Placement,
    /// Nitro enclaves.
    pub enclave_options: Enabled,
    /// Set for capacity blocks and interruptible reservations.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instance_market_options: Option<InstanceMarketOptions>,
    /// How capacity reservations are used; absent leaves it to EC2.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capacity_reservation_specification: Option<CapacityReservationSpecification>,
}

/// A disk.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct BlockDeviceMapping {
    /// Device name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device_name: Option<String>,
    /// EBS volume.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ebs: Option<Ebs>,
}

/// An EBS volume.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct Ebs {
    /// Deleted with the instance.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delete_on_termination: Option<bool>,
    /// Encrypted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub encrypted: Option<bool>,
    /// IOPS.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub iops: Option<i32>,
    /// KMS key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kms_key_id: Option<String>,
    /// Snapshot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snapshot_id: Option<String>,
    /// MiB/s.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub throughput: Option<i32>,
    /// MiB/s.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume_initialization_rate: Option<i32>,
    /// GiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume_size: Option<i32>,
    /// Volume type.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume_type: Option<String>,
}

/// Processor options.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct CpuOptions {
    /// `enabled` or `disabled`.
    pub nested_virtualization: String,
}

/// Something by name.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct Named {
    /// Name.
    pub name: String,
}

/// A switch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct Enabled {
    /// On.
    pub enabled: bool,
}

/// Instance metadata service.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct MetadataOptions {
    /// `enabled` or `disabled`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http_endpoint: Option<String>,
    /// `enabled` or `disabled`; not known in isolated regions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http_protocol_ipv6: Option<String>,
    /// Hops.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http_put_response_hop_limit: Option<i32>,
    /// `required` or `optional`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http_tokens: Option<String>,
    /// Always `disabled`: tags may have keys that the metadata service can't show.
    pub instance_metadata_tags: String,
}

/// Of a launch template.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct NetworkInterface {
    /// Card.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network_card_index: Option<i32>,
    /// Device on the card.
    pub device_index: i32,
    /// `efa`, `efa-only`, `interface`; absent is an ordinary one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interface_type: Option<String>,
    /// Security groups.
    pub groups: Vec<String>,
    /// Public IPv4 address; absent leaves it to the subnet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub associate_public_ip_address: Option<bool>,
    /// IPv4 prefixes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ipv4_prefix_count: Option<i32>,
    /// IPv6 prefixes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ipv6_prefix_count: Option<i32>,
    /// The first IPv6 address stays for the interface's life.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub primary_ipv6: Option<bool>,
    /// IPv6 addresses.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ipv6_address_count: Option<i32>,
    /// Idle timeouts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connection_tracking_specification: Option<ConnectionTracking>,
}

/// Idle timeouts of tracked connections, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct ConnectionTracking {
    /// TCP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tcp_established_timeout: Option<i32>,
    /// UDP with answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub udp_stream_timeout: Option<i32>,
    /// UDP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub udp_timeout: Option<i32>,
}

/// Tags of a kind of resource.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct TagSpecification {
    /// Kind.
    pub resource_type: String,
    /// Tags; sorted by key.
    pub tags: BTreeMap<String, String>,
}

/// Tenancy and placement group.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct Placement {
    /// `default` or `dedicated`.
    pub tenancy: String,
    /// Placement group.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group_id: Option<String>,
    /// Partition of the placement group; EC2 chooses one when there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub partition_number: Option<i32>,
}

/// How capacity reservations are used.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct CapacityReservationSpecification {
    /// `none` or `capacity-reservations-only`.
    pub capacity_reservation_preference: String,
    /// The only one to use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capacity_reservation_target: Option<CapacityReservationTarget>,
}

/// A capacity reservation.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct CapacityReservationTarget {
    /// `CapacityReservationId`, `cr-…`.
    pub capacity_reservation_id: String,
}

/// How instances are bought.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct InstanceMarketOptions {
    /// `capacity-block` or `interruptible-capacity-reservation`.
    pub market_type: String,
}

/// CreateFleet.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct CreateFleet {
    /// Always `instant`.
    #[serde(rename = "Type")]
    pub kind: String,
    /// `Context` of the NodeClass.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context: Option<String>,
    /// One per launch template.
    pub launch_template_configs: Vec<LaunchTemplateConfig>,
    /// What to buy, and how many.
    pub target_capacity_specification: TargetCapacity,
    /// For spot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spot_options: Option<AllocationOptions>,
    /// For on-demand.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_demand_options: Option<AllocationOptions>,
    /// For interruptible reservations.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reserved_capacity_options: Option<ReservedCapacityOptions>,
    /// Tags of instances, volumes and the fleet.
    pub tag_specifications: Vec<TagSpecification>,
    /// Try only whether it would be allowed.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub dry_run: bool,
}

/// A launch template and where it may be used.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct LaunchTemplateConfig {
    /// Template.
    pub launch_template_specification: LaunchTemplateSpecification,
    /// Types and places.
    pub overrides: Vec<Override>,
}

/// A launch template by name.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct LaunchTemplateSpecification {
    /// Name.
    pub launch_template_name: String,
    /// `$Latest`.
    pub version: String,
}

impl LaunchTemplateSpecification {
    /// The newest version of a template.
    pub(crate) fn latest(name: &str) -> Self {
        Self { launch_template_name: name.to_owned(), version: "$Latest".to_owned() }
    }
}

/// A type in a place.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct Override {
    /// Instance type.
    pub instance_type: String,
    /// Subnet.
    pub subnet_id: String,
    /// Image.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image_id: Option<String>,
    /// Zone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub availability_zone: Option<String>,
    /// Dollars per hour: lower is better.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<f64>,
}

/// What to buy, and how many.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct TargetCapacity {
    /// `spot`, `on-demand`, `capacity-block` or `reserved-capacity`.
    pub default_target_capacity_type: String,
    /// Number of instances.
    pub total_target_capacity: i32,
}

/// How EC2 chooses among overrides.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct AllocationOptions {
    /// Strategy.
    pub allocation_strategy: String,
}

/// Which reservations a fleet uses.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct ReservedCapacityOptions {
    /// `interruptible-capacity-reservation`.
    pub reservation_types: Vec<String>,
}

/// RunInstances as a dry run, to learn whether launching would be allowed.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct DryRunInstances {
    /// Template.
    pub launch_template: LaunchTemplateSpecification,
    /// Instance type.
    pub instance_type: String,
    /// Card, device, type; all in one subnet.
    pub network_interfaces: Vec<DryRunInterface>,
    /// Tags.
    pub tag_specifications: Vec<TagSpecification>,
}

/// A network interface of a dry run.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct DryRunInterface {
    /// Card.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network_card_index: Option<i32>,
    /// Device.
    pub device_index: i32,
    /// Type.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interface_type: Option<String>,
    /// Subnet.
    pub subnet_id: String,
}

/// Tags for the SDK.
pub(super) fn tags(tags: &BTreeMap<String, String>) -> Vec<sdk::Tag> {
    tags.iter().map(|(key, value)| sdk::Tag::builder().key(key).value(value).build()).collect()
}

/// Tag specifications for the SDK.
pub(crate) fn tag_specifications(
    specifications: &[TagSpecification],
) -> Vec<sdk::TagSpecification> {
    specifications
        .iter()
        .map(|specification| {
            sdk::TagSpecification::builder()
                .resource_type(specification.resource_type.as_str().into())
                .set_tags(Some(tags(&specification.tags)))
                .build()
        })
        .collect()
}
