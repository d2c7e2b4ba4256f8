//! Everything that bears a name of ours, ours or not, as it is right now.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Secret;
use kube::core::ApiResource;
use serde_json::Value;

use super::{ec2, eks, iam, labelled, messaging};
use crate::aws::{Aws, AwsError};
use crate::desired::{AGENT, Desired};
use crate::errors::Failure;
use crate::kubernetes::aws_auth;
use crate::kubernetes::client::{Cluster, KubeError};
use crate::kubernetes::helm::{self, Revision};
use crate::kubernetes::object::{Key, Object};
use crate::ownership::Tags;

/// What is there.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct World {
    /// Roles by name.
    pub roles: BTreeMap<String, RoleState>,
    /// The Pod Identity agent.
    pub agent: AgentState,
    /// The association of the operator's service account.
    pub association: Option<AssociationState>,
    /// The identity provider of the cluster's issuer.
    pub provider: Option<ProviderState>,
    /// The access entry of the node role.
    pub access_entry: Option<AccessEntryState>,
    /// The ConfigMap `aws-auth`.
    pub aws_auth: Option<Value>,
    /// The instance profile under our name.
    pub profile: Option<ProfileState>,
    /// EC2 Spot has its service-linked role.
    pub spot_role: bool,
    /// The Fargate profile under our name.
    pub fargate: Option<FargateState>,
    /// The queue.
    pub queue: Option<QueueState>,
    /// Rules by name.
    pub rules: BTreeMap<String, RuleState>,
    /// Tags of the subnets and security groups that nodes are to use, by id.
    pub network: BTreeMap<String, Tags>,
    /// Subnets and security groups that carry our mark.
    pub marked: BTreeSet<String>,
    /// Kubernetes objects.
    pub objects: BTreeMap<Key, Value>,
    /// Where objects are that carry our label, of the operator's types, asked for or not.
    pub labelled: Vec<Object>,
    /// Revisions of the Helm release of our name.
    pub releases: Vec<Revision>,
}

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
    /// Its tags.
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
    /// Its id.
    pub id: String,
    /// Its ARN.
    pub arn: String,
    /// Its role.
    pub role_arn: String,
    /// Its tags.
    pub tags: Tags,
}

/// An identity provider as it is.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ProviderState {
    /// Audiences whose tokens it takes.
    pub audiences: Vec<String>,
    /// Its tags.
    pub tags: Tags,
}

/// An instance profile as it is.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ProfileState {
    /// Its ARN.
    pub arn: String,
    /// Names of the roles in it: none or one.
    pub roles: Vec<String>,
    /// Its tags.
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
    /// Its tags.
    pub tags: Tags,
}

/// An access entry as it is.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AccessEntryState {
    /// Its ARN.
    pub arn: String,
    /// `EC2_LINUX`, `STANDARD`, ….
    pub kind: String,
    /// Its tags.
    pub tags: Tags,
}

/// A queue as it is.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct QueueState {
    /// How it is called.
    pub url: String,
    /// Its attributes.
    pub attributes: BTreeMap<String, String>,
    /// Its tags.
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
    /// Its tags.
    pub tags: Tags,
}

/// Reads everything, side by side.
pub async fn read(aws: &Aws, cluster: &Cluster, desired: &Desired) -> Result<World, Failure> {
    let ours = [&desired.node_role, &desired.controller_role, &desired.fargate_role]
        .into_iter()
        .filter(|role| role.spec.is_some());
    let names = ours.map(|role| role.name.clone()).collect::<Vec<_>>();
    let aws_side = async {
        tokio::try_join!(
            iam::roles(aws, &names),
            eks::addon(aws, &desired.scope.cluster, AGENT),
            eks::association(aws, &desired.scope.cluster, &desired.service_account),
            provider(aws, desired),
            eks::access_entry(aws, &desired.scope.cluster, &desired.node_role.arn),
            iam::profile(aws, &desired.profile_name),
            iam::spot_role(aws, desired.spot_role),
            eks::fargate(aws, &desired.scope.cluster, &desired.fargate_name),
            messaging::queue(aws, &desired.queue_name),
            messaging::rules(aws, &desired.rule_names),
            network(aws, desired),
        )
        .map_err(Failure::from)
    };
    let kubernetes_side = async {
        let canary = desired.canary();
        let objects = desired
            .objects()
            .chain(&canary)
            .map(|object| (object.resource.clone(), object.key()))
            .collect::<Vec<_>>();
        let (aws_auth, key) = aws_auth::place();
        tokio::try_join!(
            cluster.get_all(&objects),
            daemon_set(cluster),
            cluster.get(&aws_auth, &key),
            releases(cluster, desired),
            labelled::read(cluster, &desired.installation.id),
        )
        .map_err(Failure::from)
    };
    let (
        (
            roles,
            addon,
            association,
            provider,
            access_entry,
            profile,
            spot_role,
            fargate,
            queue,
            rules,
            (network, marked),
        ),
        (objects, daemon_set, aws_auth, releases, labelled),
    ) = tokio::try_join!(aws_side, kubernetes_side)?;
    let agent = match addon {
        Some(status) => AgentState::Addon(status),
        None if daemon_set => AgentState::BuiltIn,
        None => AgentState::Missing,
    };
    Ok(World {
        roles,
        agent,
        association,
        provider,
        access_entry,
        aws_auth,
        profile,
        spot_role,
        fargate,
        queue,
        rules,
        network,
        marked,
        objects: objects.into_iter().collect(),
        labelled,
        releases,
    })
}

async fn daemon_set(cluster: &Cluster) -> Result<bool, KubeError> {
    let resource = ApiResource::erase::<k8s_openapi::api::apps::v1::DaemonSet>(&());
    let key = Key {
        api_version: resource.api_version.clone(),
        kind: resource.kind.clone(),
        namespace: Some("kube-system".to_owned()),
        name: AGENT.to_owned(),
    };
    Ok(cluster.get(&resource, &key).await?.is_some())
}

/// A caller who may not read Secrets can still work without a release.
async fn releases(cluster: &Cluster, desired: &Desired) -> Result<Vec<Revision>, KubeError> {
    let namespace = &desired.service_account.namespace;
    match cluster.metadata::<Secret>(namespace, &helm::selector()).await {
        Ok(found) => Ok(found.iter().filter_map(helm::revision).collect()),
        Err(error) if error.is_denied() && desired.helm.is_none() => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// Only asked for where it is used: a caller without IRSA needs no permission to read providers.
async fn provider(aws: &Aws, desired: &Desired) -> Result<Option<ProviderState>, AwsError> {
    match &desired.provider {
        Some(provider) => iam::provider(aws, &provider.arn).await,
        None => Ok(None),
    }
}

type Network = (BTreeMap<String, Tags>, BTreeSet<String>);

async fn network(aws: &Aws, desired: &Desired) -> Result<Network, AwsError> {
    let (wanted, marked) = tokio::try_join!(
        ec2::network(aws, &desired.discovery),
        ec2::marked(aws, &desired.installation.id)
    )?;
    Ok((wanted.into_iter().collect(), marked.into_iter().collect()))
}
