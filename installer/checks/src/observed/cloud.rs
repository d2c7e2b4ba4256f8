//! What EC2, IAM, SQS and EventBridge say.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::Seen;

/// Where nodes would be attached.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NetworkView {
    /// Subnets that nodes may use.
    pub subnets: Seen<Vec<SubnetView>>,
    /// Security groups that nodes get.
    pub groups: Seen<Vec<GroupView>>,
    /// VPC endpoints, as the last part of the service's name, such as `ecr.api`.
    pub endpoints: Seen<Vec<EndpointView>>,
    /// The VPC resolves names.
    pub dns_support: Seen<bool>,
    /// The VPC gives names to instances.
    pub dns_hostnames: Seen<bool>,
    /// Instance types offered per zone, of those that the default NodePool would take.
    pub offerings: Seen<BTreeMap<String, usize>>,
}

/// Where a subnet's traffic goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SubnetClass {
    /// To an internet gateway.
    Public,
    /// To a NAT or another way out.
    Private,
    /// Nowhere.
    Isolated,
    /// The route table is not known.
    #[default]
    Unknown,
}

/// A subnet.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SubnetView {
    /// `subnet-…`
    pub id: String,
    /// Its VPC.
    pub vpc: String,
    /// Availability zone by name, such as `eu-central-1a`.
    pub zone: String,
    /// `availability-zone`, `local-zone` or `wavelength-zone`.
    pub zone_type: String,
    /// It is on an Outpost.
    pub outpost: bool,
    /// Free IPv4 addresses.
    pub free_addresses: i32,
    /// Instances get a public address.
    pub public_addresses: bool,
    /// Where its traffic goes.
    pub class: SubnetClass,
    /// Value of the tag `karpenter.sh/discovery`.
    pub discovery: Option<String>,
}

/// A security group.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GroupView {
    /// `sg-…`
    pub id: String,
    /// Its VPC.
    pub vpc: String,
    /// It carries `kubernetes.io/cluster/<cluster>`.
    pub cluster_tag: bool,
    /// Its members may reach one another.
    pub open_to_itself: bool,
    /// The cluster's security group may reach its members.
    pub open_to_cluster: bool,
}

/// A VPC endpoint.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EndpointView {
    /// Last part of the service's name, such as `ecr.api`.
    pub service: String,
    /// A gateway, as for S3; otherwise an interface.
    pub gateway: bool,
    /// The service's ordinary name leads to it.
    pub private_dns: bool,
}

/// Roles and who may take them.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct IamView {
    /// Audiences of the cluster's identity provider; none if there is no provider.
    pub provider_audiences: Seen<Option<Vec<String>>>,
    /// Status of the Pod Identity agent: the add-on's, or `DaemonSet`; none if it is missing.
    pub agent: Seen<Option<String>>,
    /// An association for the operator's service account exists.
    pub association: Seen<bool>,
    /// Numbers of the account: `Roles`, `RolesQuota`, ….
    pub account_summary: Seen<BTreeMap<String, i32>>,
    /// The service-linked role of EC2 Spot exists.
    pub spot_role: Seen<bool>,
    /// The access entry of the node role; none if there is none.
    pub access_entry: Seen<Option<AccessEntryView>>,
    /// When the node role was made, Unix seconds; none if it does not exist.
    pub node_role_created: Seen<Option<i64>>,
    /// ARN of the node role.
    pub node_role_arn: String,
    /// What a boundary keeps the operator from.
    pub boundary_blocks: Seen<Vec<String>>,
    /// What the trust policies of roles that somebody else made lack.
    pub trust_problems: Seen<Vec<String>>,
    /// What the operator's role lacks, as `action on resource (statement)`; none if the role does
    /// not exist.
    pub controller_gaps: Seen<Option<Vec<String>>>,
}

/// An access entry.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AccessEntryView {
    /// `EC2_LINUX`, `STANDARD`, ….
    pub kind: String,
    /// When it was made, Unix seconds.
    pub created: i64,
}

/// Quotas, machine images, leftovers.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ComputeView {
    /// Values of quotas by code.
    pub quotas: Seen<BTreeMap<String, f64>>,
    /// Instances with the cluster's and a NodePool's tag: id and NodeClaim.
    pub instances: Seen<Vec<InstanceView>>,
    /// Launch templates in the region.
    pub launch_templates: Seen<usize>,
    /// Machine images that the alias stands for, by architecture; none where it stands for nothing.
    pub images: Seen<Vec<ImageView>>,
    /// Keys of the customer that volumes of nodes are encrypted with.
    pub volume_keys: Seen<Vec<VolumeKeyView>>,
}

/// An instance that a NodePool owns.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct InstanceView {
    /// `i-…`
    pub id: String,
    /// The NodeClaim that its tags name.
    pub node_claim: Option<String>,
    /// Why it ended, if it did.
    pub state_reason: Option<String>,
}

/// What an AMI alias stands for.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ImageView {
    /// `amd64` or `arm64`.
    pub architecture: String,
    /// The SSM parameter that was asked.
    pub parameter: String,
    /// The image.
    pub id: Option<String>,
    /// Its name, which holds the Kubernetes version.
    pub name: Option<String>,
}

/// A key that volumes of nodes are encrypted with.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VolumeKeyView {
    /// Which volumes, in words.
    pub of: String,
    /// Its ARN, id or alias.
    pub key: String,
}

/// What a registry says of an image.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RegistryView {
    /// HTTP status of its manifest.
    pub status: u16,
    /// Architectures that it is there for; empty if the manifest doesn't say.
    pub architectures: Vec<String>,
}

/// The queue.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct QueueView {
    /// Messages that wait.
    pub waiting: i64,
    /// Messages that were received and not deleted.
    pub in_flight: i64,
    /// Principals of its policy that may send, in words; empty if none may.
    pub senders: Vec<String>,
}

/// The KMS key that encrypts the queue, or is to.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct KeyView {
    /// Its ARN, id or alias.
    pub id: String,
    /// Its policy lets EventBridge use it.
    pub open_to_events: Seen<bool>,
}

/// A rule.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RuleView {
    /// Name in EventBridge, unique in the region.
    pub name: String,
    /// It exists.
    pub exists: bool,
    /// It is enabled.
    pub enabled: bool,
    /// It leads to the queue.
    pub to_queue: bool,
}
