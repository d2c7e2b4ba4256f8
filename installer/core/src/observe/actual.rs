//! The actual state of everything that has one of our names, whether or not it is ours.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Secret;
use kube::core::ApiResource;
use serde_json::Value;
use tenon_iam_policies::identity::ServiceAccount;

use super::state::{
    AccessEntryState, AgentState, AssociationState, FargateState, ProfileState, ProviderState,
    QueueState, RoleState, RuleState,
};
use super::{ec2, eks, iam, labelled, messaging};
use crate::aws::{Aws, AwsError};
use crate::failure::Failure;
use crate::kubernetes::aws_auth;
use crate::kubernetes::client::{Cluster, KubeError};
use crate::kubernetes::helm::{self, Revision};
use crate::kubernetes::object::{Key, Object};
use crate::names::AGENT;
use crate::ownership::Tags;

/// The actual state of AWS and Kubernetes, which a plan compares with the desired one.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Actual {
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
    /// The queue of the name that is looked up.
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

/// What is looked for, by name. Whoever says what should be there gives the names; what is made of
/// the answer is not decided here.
#[derive(Debug, Clone, PartialEq)]
pub struct Lookup {
    /// Name of the cluster.
    pub cluster: String,
    /// The installation's id.
    pub install_id: String,
    /// Names of the roles that are ours to make.
    pub roles: Vec<String>,
    /// ARN of the nodes' role, ours or not.
    pub node_role_arn: String,
    /// The operator's service account.
    pub service_account: ServiceAccount,
    /// ARN of the cluster's identity provider, where IRSA is used: a caller without IRSA needs no
    /// permission to read providers.
    pub provider_arn: Option<String>,
    /// Name of the instance profile.
    pub profile: String,
    /// Whether EC2 Spot's service-linked role matters.
    pub spot_role: bool,
    /// Name of the Fargate profile.
    pub fargate: String,
    /// Name of the queue.
    pub queue: String,
    /// Names of the rules.
    pub rules: Vec<String>,
    /// Ids of subnets and security groups.
    pub network: Vec<String>,
    /// Kubernetes objects.
    pub objects: Vec<(ApiResource, Key)>,
    /// Whether Helm is to know the installation: a caller who may not read Secrets can still work
    /// without a release.
    pub helm_record: bool,
}

/// Reads what is in AWS, concurrently, and nothing of the cluster's objects.
pub async fn cloud(aws: &Aws, wanted: &Lookup) -> Result<Actual, AwsError> {
    let mut actual = Actual::default();
    tokio::try_join!(
        put(&mut actual.roles, iam::roles(aws, &wanted.roles)),
        put(&mut actual.agent, agent(aws, &wanted.cluster)),
        put(
            &mut actual.association,
            eks::association(aws, &wanted.cluster, &wanted.service_account)
        ),
        put(&mut actual.provider, provider(aws, wanted)),
        put(
            &mut actual.access_entry,
            eks::access_entry(aws, &wanted.cluster, &wanted.node_role_arn)
        ),
        put(&mut actual.profile, iam::profile(aws, &wanted.profile)),
        put(&mut actual.spot_role, iam::spot_role(aws, wanted.spot_role)),
        put(&mut actual.fargate, eks::fargate(aws, &wanted.cluster, &wanted.fargate)),
        put(&mut actual.queue, messaging::queue(aws, &wanted.queue)),
        put(&mut actual.rules, messaging::rules(aws, &wanted.rules)),
        put(&mut actual.network, network(aws, &wanted.network)),
        put(&mut actual.marked, marked(aws, &wanted.install_id)),
    )?;
    Ok(actual)
}

/// Stores what a call reads.
async fn put<T>(
    field: &mut T,
    read: impl Future<Output = Result<T, AwsError>>,
) -> Result<(), AwsError> {
    *field = read.await?;
    Ok(())
}

/// Reads everything, concurrently.
pub async fn read(aws: &Aws, cluster: &Cluster, wanted: &Lookup) -> Result<Actual, Failure> {
    let aws_side = async { cloud(aws, wanted).await.map_err(Failure::from) };
    let kubernetes_side = async {
        let (aws_auth, key) = aws_auth::place();
        tokio::try_join!(
            cluster.get_all(&wanted.objects),
            daemon_set(cluster),
            cluster.get(&aws_auth, &key),
            releases(cluster, wanted),
            labelled::read(cluster, &wanted.install_id),
        )
        .map_err(Failure::from)
    };
    let (cloud, (objects, daemon_set, aws_auth, releases, labelled)) =
        tokio::try_join!(aws_side, kubernetes_side)?;
    let agent = match cloud.agent {
        AgentState::Missing if daemon_set => AgentState::BuiltIn,
        agent => agent,
    };
    Ok(Actual {
        agent,
        aws_auth,
        objects: objects.into_iter().collect(),
        labelled,
        releases,
        ..cloud
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

async fn releases(cluster: &Cluster, wanted: &Lookup) -> Result<Vec<Revision>, KubeError> {
    let namespace = &wanted.service_account.namespace;
    match cluster.metadata::<Secret>(namespace, &helm::selector()).await {
        Ok(found) => Ok(found.iter().filter_map(helm::revision).collect()),
        Err(error) if error.is_denied() && !wanted.helm_record => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

async fn provider(aws: &Aws, wanted: &Lookup) -> Result<Option<ProviderState>, AwsError> {
    match &wanted.provider_arn {
        Some(arn) => iam::provider(aws, arn).await,
        None => Ok(None),
    }
}

async fn agent(aws: &Aws, cluster: &str) -> Result<AgentState, AwsError> {
    let addon = eks::addon(aws, cluster, AGENT).await?;
    Ok(addon.map_or(AgentState::Missing, AgentState::Addon))
}

async fn network(aws: &Aws, ids: &[String]) -> Result<BTreeMap<String, Tags>, AwsError> {
    Ok(ec2::network(aws, ids).await?.into_iter().collect())
}

async fn marked(aws: &Aws, install_id: &str) -> Result<BTreeSet<String>, AwsError> {
    Ok(ec2::marked(aws, install_id).await?.into_iter().collect())
}
