//! Objects of AWS as they are, as far as a plan compares them with what should be there.

use std::collections::{BTreeMap, BTreeSet};

use crate::ownership::Tags;

/// A role as it is.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RoleState {
    /// Its ARN.
    pub arn: String,
    /// Its trust policy, as IAM returns it.
    pub trust: String,
    /// ARNs of attached policies.
    pub attached: BTreeSet<String>,
    /// Inline policies, as IAM returns them.
    pub inline: BTreeMap<String, String>,
    /// ARN of its boundary.
    pub boundary: Option<String>,
    /// Tags as AWS lists them; the mark tells whether it is ours.
    pub tags: Tags,
}

/// The Pod Identity agent.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum AgentState {
    /// There is none.
    #[default]
    Missing,
    /// The EKS add-on, with its status.
    Addon(String),
    /// Auto Mode, or a DaemonSet that somebody runs.
    BuiltIn,
}

/// An association as it is.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AssociationState {
    /// Id that EKS gave it, by which it is changed and deleted.
    pub id: String,
    /// Its ARN.
    pub arn: String,
    /// Its role.
    pub role_arn: String,
    /// Tags as AWS lists them; the mark tells whether it is ours.
    pub tags: Tags,
}

/// An identity provider as it is.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ProviderState {
    /// Audiences whose tokens it takes.
    pub audiences: Vec<String>,
    /// Tags as AWS lists them; the mark tells whether it is ours.
    pub tags: Tags,
}

/// An instance profile as it is.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ProfileState {
    /// Its ARN.
    pub arn: String,
    /// Names of the roles in it: none or one.
    pub roles: Vec<String>,
    /// Tags as AWS lists them; the mark tells whether it is ours.
    pub tags: Tags,
}

/// A Fargate profile as it is.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FargateState {
    /// Its ARN.
    pub arn: String,
    /// `ACTIVE`, `CREATING`, ….
    pub status: String,
    /// The role of its pods.
    pub role_arn: String,
    /// Its subnets.
    pub subnet_ids: BTreeSet<String>,
    /// Namespace and labels of its pods.
    pub selectors: Vec<(String, BTreeMap<String, String>)>,
    /// Tags as AWS lists them; the mark tells whether it is ours.
    pub tags: Tags,
}

/// An access entry as it is.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AccessEntryState {
    /// Its ARN.
    pub arn: String,
    /// `EC2_LINUX`, `STANDARD`, ….
    pub kind: String,
    /// Tags as AWS lists them; the mark tells whether it is ours.
    pub tags: Tags,
}

/// A queue as it is.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct QueueState {
    /// How it is called.
    pub url: String,
    /// By SQS's names, such as `VisibilityTimeout`.
    pub attributes: BTreeMap<String, String>,
    /// Tags as AWS lists them; the mark tells whether it is ours.
    pub tags: Tags,
}

/// A rule as it is.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RuleState {
    /// Its ARN.
    pub arn: String,
    /// Which events, as JSON.
    pub pattern: Option<String>,
    /// It is enabled.
    pub enabled: bool,
    /// Ids and ARNs of its targets.
    pub targets: BTreeMap<String, String>,
    /// Tags as AWS lists them; the mark tells whether it is ours.
    pub tags: Tags,
}
