//! The settings file, version `tenon.sh/v1alpha1`: its types are the schema that files are checked
//! against.
//!
//! Every field is optional here; what must be there in the end is checked after flags and
//! environment are laid over it.

mod check;

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::ValueEnum;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tenon_iam_policies::interruption::InterruptionRule;

use crate::settings::values::{Values, chart};

/// The file format's version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub enum ApiVersion {
    /// The only version.
    #[default]
    #[serde(rename = "tenon.sh/v1alpha1")]
    V1Alpha1,
}

/// The kind of document.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub enum Kind {
    /// The only version.
    #[default]
    Installation,
}

/// A settings file.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Config {
    /// Version of the format.
    pub api_version: ApiVersion,
    /// Kind of document.
    pub kind: Kind,
    /// The cluster to install into.
    #[serde(default, skip_serializing_if = "is_default")]
    pub cluster: Cluster,
    /// The operator's permissions.
    #[serde(default, skip_serializing_if = "is_default")]
    pub identity: Identity,
    /// The permissions and authorization of nodes.
    #[serde(default, skip_serializing_if = "is_default")]
    pub nodes: Nodes,
    /// Delivery of interruptions to the operator.
    #[serde(default, skip_serializing_if = "is_default")]
    pub interruption: Interruption,
    /// Subnets and security groups of nodes.
    #[serde(default, skip_serializing_if = "is_default")]
    pub network: Network,
    /// Deployment of the operator.
    #[serde(default, skip_serializing_if = "is_default")]
    pub deploy: Deploy,
    /// The default NodePool and EC2NodeClass.
    #[serde(default, skip_serializing_if = "is_default")]
    pub defaults: DefaultsConfig,
    /// Tags for all AWS resources.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: BTreeMap<String, String>,
    /// Safeguards.
    #[serde(default, skip_serializing_if = "is_default")]
    pub protect: Protect,
}

/// `cluster`
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Cluster {
    /// Name of the EKS cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// AWS region of the cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
    /// Provider of the cluster's control plane.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<Provider>,
    /// Refuse to run against any other AWS account.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub account_id: Option<String>,
}

/// Provider of the control plane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Provider {
    /// Detect it.
    Auto,
    /// Amazon EKS.
    Eks,
}

/// `identity`
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Identity {
    /// Mechanism by which the operator's pods get their role.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<IdentityMode>,
    /// Install the EKS add-on `eks-pod-identity-agent` if the cluster has none. It is never
    /// removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub install_agent: Option<bool>,
    /// Use this role instead of creating one; it is never changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub controller_role_arn: Option<String>,
    /// ARN of the permissions boundary for the roles.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boundary: Option<String>,
    /// Path of the roles; default `/tenon/<cluster>/`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role_path: Option<String>,
    /// Prefix of the names of all AWS resources; default `tenon`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name_prefix: Option<String>,
}

/// Mechanism by which the operator's pods get their role.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema, ValueEnum,
)]
#[serde(rename_all = "kebab-case")]
pub enum IdentityMode {
    /// Pod Identity; IRSA on Fargate, where Pod Identity is not available.
    #[default]
    Auto,
    /// EKS Pod Identity.
    PodIdentity,
    /// IAM roles for service accounts, through the cluster's OIDC issuer, which is registered in
    /// IAM if necessary.
    Irsa,
}

/// `nodes`
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Nodes {
    /// Use this role instead of creating one; it is never changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role_name: Option<String>,
    /// ARNs of additional managed policies for the node role.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub extra_policies: Vec<String>,
    /// Mechanism by which the cluster authorizes nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub authorization: Option<Authorization>,
    /// Whether nodes may run Windows, whose kube-proxy needs the group `eks:kube-proxy-windows`;
    /// default false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub windows: Option<bool>,
    /// Whether the operator creates instance profiles, or the installer creates one for all nodes;
    /// default `dynamic`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance_profile: Option<ProfileMode>,
    /// Whether to create the service-linked role of EC2 Spot if it does not exist and spot
    /// instances may be launched; default `manage`. It is never removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spot_role: Option<Switch>,
}

/// Creator of instance profiles.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema, ValueEnum,
)]
#[serde(rename_all = "kebab-case")]
pub enum ProfileMode {
    /// The operator, one per EC2NodeClass.
    #[default]
    Dynamic,
    /// The installer, one for all nodes: for networks without a route to IAM, and for accounts that
    /// forbid creating profiles at run time.
    Static,
}

/// Mechanism by which the cluster authorizes nodes.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema, ValueEnum,
)]
#[serde(rename_all = "kebab-case")]
pub enum Authorization {
    /// An access entry if the cluster supports them, otherwise the ConfigMap.
    #[default]
    Auto,
    /// An EKS access entry.
    AccessEntry,
    /// The ConfigMap `kube-system/aws-auth`.
    AwsAuth,
}

/// `interruption`
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Interruption {
    /// Create the queue and its rules; default true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// Whether the installer manages the queue and its rules; with `skip`, `queueName` is an
    /// existing queue with its rules. Default `manage`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub manage: Option<Switch>,
    /// Name of the queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue_name: Option<String>,
    /// ARN of a customer managed KMS key that encrypts the queue; default: SQS's own encryption.
    /// The key's policy must allow `events.amazonaws.com` to use it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kms_key: Option<String>,
    /// Events to deliver; default all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<Event>,
}

/// A kind of event that the operator handles.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Event {
    /// A spot instance will be interrupted.
    Spot,
    /// An instance stops or is terminated.
    State,
    /// Maintenance is planned.
    Health,
    /// A spot instance has an elevated risk of interruption.
    Rebalance,
    /// An interruptible capacity reservation is reclaimed.
    Capres,
}

impl Event {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::Spot, Self::State, Self::Health, Self::Rebalance, Self::Capres];

    /// The rule that delivers it.
    pub fn rule(self) -> InterruptionRule {
        match self {
            Self::Spot => InterruptionRule::SpotInterruption,
            Self::State => InterruptionRule::InstanceStateChange,
            Self::Health => InterruptionRule::ScheduledChange,
            Self::Rebalance => InterruptionRule::Rebalance,
            Self::Capres => InterruptionRule::CapacityReservationInterruption,
        }
    }
}

/// `network`
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Network {
    /// How EC2NodeClasses select subnets and security groups; default `tags`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub discovery: Option<Discovery>,
    /// Subnets for nodes; default: those of the cluster.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub subnet_ids: Vec<String>,
    /// Security groups for nodes; default: the cluster's own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub security_group_ids: Vec<String>,
}

/// How EC2NodeClasses select subnets and security groups.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema, ValueEnum,
)]
#[serde(rename_all = "kebab-case")]
pub enum Discovery {
    /// By the tag `karpenter.sh/discovery`, which the installer adds.
    #[default]
    Tags,
    /// By their ids, written into the EC2NodeClass. Needs no permission to tag.
    Ids,
}

/// `deploy`
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Deploy {
    /// Namespace; default `kube-system`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Image without tag; default `tenon-operator`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// Tag of the image; default: the installer's own version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Number of replicas of the operator, one of them active; default 2.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 10))]
    pub replicas: Option<i32>,
    /// Where the operator runs; default `nodes`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<Host>,
    /// Whether the installer deploys the operator, its CRDs and the default NodePool; default
    /// `manage`. With `skip`, it owns the AWS resources only, and Helm, Flux or Argo CD deploys
    /// what `tenon export` writes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operator: Option<Switch>,
    /// Whether the installer manages the CRDs; default `manage`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub crds: Option<Switch>,
    /// Write a release record, so that `helm list`, `upgrade`, `rollback` and `uninstall` work on
    /// the installation; default true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub helm_record: Option<bool>,
    /// Additional values of the Helm chart.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    #[schemars(with = "Values")]
    pub values: Map<String, Value>,
}

/// Where the operator runs.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema, ValueEnum,
)]
#[serde(rename_all = "kebab-case")]
pub enum Host {
    /// On nodes outside of Tenon's NodePools.
    #[default]
    Nodes,
    /// On Fargate, with a profile that the installer creates. The subnets have to be private.
    Fargate,
}

/// Whether the installer manages something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Switch {
    /// The installer manages it.
    #[default]
    Manage,
    /// It is managed by other means.
    Skip,
}

/// `defaults`
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DefaultsConfig {
    /// Create a NodePool and an EC2NodeClass named `default`; default true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// Capacity types of the NodePool; default both.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub capacity_types: Vec<CapacityType>,
    /// Architectures of the NodePool; default amd64.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub arch: Vec<Architecture>,
    /// CPU limit of the NodePool in cores, 0 to launch nothing; default 1000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1_000_000))]
    pub cpu_limit: Option<u32>,
    /// AMI alias of the EC2NodeClass; default `al2023@latest`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ami_alias: Option<String>,
    /// Files with NodePools and EC2NodeClasses to apply instead; relative to this file.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub manifests: Vec<PathBuf>,
}

/// Values of `karpenter.sh/capacity-type`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum CapacityType {
    /// Spot instances.
    Spot,
    /// On-demand instances.
    OnDemand,
}

/// Values of `kubernetes.io/arch`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Architecture {
    /// x86.
    Amd64,
    /// ARM.
    Arm64,
}

/// `protect`
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Protect {
    /// Refuse `tenon uninstall`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prevent_uninstall: Option<bool>,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// `deploy.values` that become no values of the chart.
#[derive(Debug, thiserror::Error)]
pub enum ValuesError {
    /// A key that the chart has not, or a value of another type.
    #[error("{0}")]
    Unlike(serde_json::Error),
    /// What follows from other settings.
    #[error("settings.{0} is set by the installer")]
    Own(&'static str),
}

impl Config {
    /// The JSON schema of settings files.
    pub fn json_schema() -> Value {
        let mut schema = schemars::schema_for!(Self).to_value();
        chart::refuse_unknown_fields(&mut schema);
        chart::join_lines(&mut schema);
        if let Some(schema) = schema.as_object_mut() {
            schema.insert(
                "$id".to_owned(),
                "https://tenon.sh/schemas/installation-v1alpha1.json".into(),
            );
        }
        schema
    }

    /// The configuration as JSON.
    pub(super) fn to_json(&self) -> Value {
        serde_json::to_value(self)
            .expect("a configuration holds maps, lists and scalars, which always serialise")
    }

    /// The file's text.
    pub fn to_yaml(&self) -> String {
        serde_saphyr::to_string(self)
            .expect("a configuration holds maps, lists and scalars, which always serialise")
    }

    /// The operator's values: the chart's defaults, with `deploy.values` merged into them as Helm
    /// would, and the shortcuts of `deploy` over that.
    ///
    /// # Errors
    /// `deploy.values` has what the chart has not, or what only the installer sets.
    pub fn values(&self) -> Result<Values, ValuesError> {
        let mut values = Values::merged(&Value::Object(self.deploy.values.clone()))
            .map_err(ValuesError::Unlike)?;
        if let Some(replicas) = self.deploy.replicas {
            values.replicas = replicas;
        }
        if let Some(image) = &self.deploy.image {
            values.controller.image.repository.clone_from(image);
        }
        if let Some(version) = &self.deploy.version {
            values.controller.image.tag.clone_from(version);
        }
        let own = [
            ("clusterName", &values.settings.cluster_name),
            ("interruptionQueue", &values.settings.interruption_queue),
        ];
        if let Some((key, _)) = own.iter().find(|(_, value)| !value.is_empty()) {
            return Err(ValuesError::Own(key));
        }
        Ok(values)
    }
}
