//! One instance of the double: everything that a real one would know of its launch, and EC2's
//! states.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::prices::CapacityType;

/// EC2's instance states.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// Launched, not yet started.
    Pending,
    /// Started.
    Running,
    /// Will be stopped.
    Stopping,
    /// Stopped; can be started again.
    Stopped,
    /// Will be terminated.
    ShuttingDown,
    /// Gone; still listed for a while.
    Terminated,
}

impl State {
    /// As EC2 writes it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Running => "running",
            Self::Stopping => "stopping",
            Self::Stopped => "stopped",
            Self::ShuttingDown => "shutting-down",
            Self::Terminated => "terminated",
        }
    }

    /// EC2's number.
    pub fn code(self) -> u8 {
        match self {
            Self::Pending => 0,
            Self::Running => 16,
            Self::ShuttingDown => 32,
            Self::Terminated => 48,
            Self::Stopping => 64,
            Self::Stopped => 80,
        }
    }

    /// Whether the instance is there to stay: neither terminated nor on the way to it.
    pub fn is_alive(self) -> bool {
        !matches!(self, Self::ShuttingDown | Self::Terminated)
    }
}

/// One instance: everything that a real one would know of its launch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Instance {
    /// `i-…`.
    pub id: String,
    /// `r-…`.
    pub reservation_id: String,
    /// Type.
    pub instance_type: String,
    /// How it is paid.
    pub capacity_type: CapacityType,
    /// State.
    pub state: State,
    /// Why it was stopped or terminated: code and message.
    pub state_reason: Option<(String, String)>,
    /// When it was launched.
    pub launched: Timestamp,
    /// When its state changed last.
    pub changed: Timestamp,
    /// Zone.
    pub zone: String,
    /// Subnet.
    pub subnet_id: String,
    /// VPC.
    pub vpc_id: String,
    /// Image.
    pub image_id: String,
    /// `x86_64` or `arm64`.
    pub architecture: String,
    /// First private address.
    pub private_ip: Ipv4Addr,
    /// `ip-10-0-0-4.eu-central-1.compute.internal`.
    pub private_dns_name: String,
    /// Security groups: ID and name.
    pub security_groups: Vec<(String, String)>,
    /// Instance profile.
    pub profile: Option<Profile>,
    /// IMDS settings.
    pub metadata_options: MetadataOptions,
    /// User data in base64, as the launch template holds it.
    pub user_data: Option<String>,
    /// Volumes.
    pub volumes: Vec<Volume>,
    /// Network interfaces.
    pub interfaces: Vec<Interface>,
    /// `default` or `dedicated`.
    pub tenancy: String,
    /// Detailed monitoring.
    pub monitoring: bool,
    /// Tags.
    pub tags: BTreeMap<String, String>,
    /// The capacity reservation that it is in.
    pub capacity_reservation: Option<String>,
    /// The placement group that it is in.
    pub placement_group: Option<Placed>,
    /// How it uses capacity reservations: `open`, `none` or `capacity-reservations-only`.
    pub reservation_preference: String,
    /// `capacity-block` or `interruptible-capacity-reservation`, when it was bought so.
    pub market_type: Option<String>,
    /// `sir-…` of a spot instance.
    pub spot_request_id: Option<String>,
    /// The fleet that launched it.
    pub fleet_id: Option<String>,
    /// The launch template.
    pub template: Option<TemplateRef>,
    /// Token of the request that launched it.
    pub client_token: String,
    /// ARN of who launched it.
    pub launched_by: String,
    /// Status checks.
    pub health: Health,
}

impl Instance {
    /// Karpenter's and the cloud controller's name for it.
    pub fn provider_id(&self) -> String {
        format!("aws:///{}/{}", self.zone, self.id)
    }
}

/// Where an instance is in a placement group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Placed {
    /// `pg-…`.
    pub group_id: String,
    /// The group's name.
    pub group_name: String,
    /// The partition, counted from one; none in a group without partitions.
    pub partition: Option<u32>,
}

/// IMDS settings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MetadataOptions {
    /// `enabled` or `disabled`.
    pub http_endpoint: String,
    /// `enabled` or `disabled`.
    pub http_protocol_ipv6: String,
    /// 1 to 64.
    pub http_put_response_hop_limit: u32,
    /// `required` or `optional`.
    pub http_tokens: String,
    /// `enabled` or `disabled`.
    pub instance_metadata_tags: String,
}

/// An EBS volume of an instance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Volume {
    /// `vol-…`.
    pub id: String,
    /// `/dev/xvda`.
    pub device: String,
    /// GiB.
    pub size_gib: u32,
    /// `gp3`.
    pub volume_type: String,
    /// Encrypted.
    pub encrypted: bool,
    /// Provisioned operations per second.
    pub iops: Option<u32>,
    /// Provisioned throughput in MiB/s.
    pub throughput: Option<u32>,
    /// Goes with the instance.
    pub delete_on_termination: bool,
    /// Tags.
    pub tags: BTreeMap<String, String>,
}

/// A network interface of an instance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Interface {
    /// `eni-…`.
    pub id: String,
    /// Device index on its card.
    pub device_index: u32,
    /// Network card.
    pub card_index: u32,
    /// `interface`, `efa`, `efa-only`.
    pub interface_type: String,
    /// Private address.
    pub private_ip: Ipv4Addr,
    /// Tags.
    pub tags: BTreeMap<String, String>,
}

/// The instance profile that an instance was launched with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Profile {
    /// ARN.
    pub arn: String,
    /// `AIPA…`.
    pub id: String,
    /// Name.
    pub name: String,
    /// ARN of the role in it.
    pub role_arn: String,
}

/// The launch template version that an instance was launched from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TemplateRef {
    /// `lt-…`.
    pub id: String,
    /// Name.
    pub name: String,
    /// Version, resolved.
    pub version: u64,
}

/// A maintenance event, as DescribeInstanceStatus tells it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ScheduledEvent {
    /// `instance-retirement`, `system-reboot`, ….
    pub code: String,
    /// Description.
    pub description: String,
    /// Not before.
    pub not_before: Timestamp,
}

/// Status checks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Health {
    /// The instance check fails since.
    pub instance_impaired_since: Option<Timestamp>,
    /// The system check fails since.
    pub system_impaired_since: Option<Timestamp>,
    /// Maintenance events.
    pub events: Vec<ScheduledEvent>,
}
