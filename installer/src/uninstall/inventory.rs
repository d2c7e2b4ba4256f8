//! What there is to remove: everything that bears the installation's mark, and everything that its operator made.

use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{Api, DynamicObject};
use kube::{Client, ResourceExt};
use serde_json::json;

use super::resources;
use crate::apply::Context;
use crate::desired::Desired;
use crate::errors::{ExpectedError, count};
use crate::journal;
use crate::kubernetes::aws_auth;
use crate::kubernetes::client::KubeError;
use crate::kubernetes::object::{Object, label};
use crate::observe;
use crate::observe::world::World;
use crate::ownership::INSTALL_ID;

/// The Lease that the operator's replicas hold in turn.
const LEASE: &str = "karpenter-leader-election";

/// What there is to remove.
#[derive(Debug, Clone, Default)]
pub struct Inventory {
    /// All NodePools.
    pub node_pools: Vec<DynamicObject>,
    /// All NodeClaims.
    pub node_claims: Vec<DynamicObject>,
    /// All EC2NodeClasses.
    pub node_classes: Vec<DynamicObject>,
    /// Instances of the cluster's NodePools.
    pub instances: Vec<String>,
    /// Launch templates that the operator made.
    pub launch_templates: Vec<String>,
    /// Instance profiles that the operator made.
    pub instance_profiles: Vec<String>,
    /// Objects of the operator that are ours.
    pub operator: Vec<Object>,
    /// Secrets of the Helm release.
    pub releases: Vec<String>,
    /// The operator's Lease.
    pub lease: Option<Object>,
    /// CRDs that are ours.
    pub crds: Vec<Object>,
    /// The namespace, if it is ours.
    pub namespace: Option<Object>,
    /// Id of the association.
    pub association: Option<String>,
    /// ARN of the identity provider, if we made it and nobody else uses it.
    pub provider: Option<String>,
    /// Why an identity provider of ours stays.
    pub provider_stays: Option<String>,
    /// Principal of the access entry.
    pub access_entry: Option<String>,
    /// The role that we added to `aws-auth`.
    pub aws_auth: Option<String>,
    /// Name of the nodes' instance profile.
    pub profile: Option<String>,
    /// Name of the Fargate profile.
    pub fargate: Option<String>,
    /// Rules with the ids of their targets.
    pub rules: Vec<(String, Vec<String>)>,
    /// Name and URL of the queue.
    pub queue: Option<(String, String)>,
    /// Subnets and security groups that we tagged.
    pub marked: Vec<String>,
    /// Names of roles.
    pub roles: Vec<String>,
    /// The installation is recorded in the cluster.
    pub has_record: bool,
}

impl Inventory {
    /// Looks for everything. What only bears our names, and not our mark, is not in it.
    pub async fn read(
        context: &Context,
        desired: &Desired,
        world: &World,
        namespace: &str,
    ) -> Result<Self, ExpectedError> {
        let kubernetes_side = async {
            let (pools, claims, classes) =
                (resources::node_pools(), resources::node_claims(), resources::node_classes());
            tokio::try_join!(
                context.cluster.list(&pools),
                context.cluster.list(&claims),
                context.cluster.list(&classes),
                lease(context.cluster.client(), namespace),
                journal::read_cluster(&context.cluster, namespace),
            )
            .map_err(|error| ExpectedError::Observe(error.into()))
        };
        let profile_path = desired.scope.instance_profile_path();
        let aws_side = async {
            tokio::try_join!(
                observe::ec2::instances(&context.aws, &desired.scope),
                observe::ec2::launch_templates(&context.aws, &desired.scope),
                observe::iam::instance_profiles(&context.aws, &profile_path)
            )
            .map_err(|error| ExpectedError::Observe(error.into()))
        };
        let (
            (node_pools, node_claims, node_classes, lease, record),
            (instances, launch_templates, instance_profiles),
        ) = tokio::try_join!(kubernetes_side, aws_side)?;
        let installation = &desired.installation;
        let (provider, provider_stays) = provider(context, desired, world).await?;
        let is_ours = |object: &&Object| {
            world
                .objects
                .get(&object.key())
                .is_some_and(|live| label(live, INSTALL_ID) == Some(&installation.id))
        };
        let ours = |objects: &[Object]| objects.iter().filter(is_ours).cloned().collect::<Vec<_>>();
        let mut operator = ours(&desired.operator);
        operator.extend(desired.canary().filter(|canary| is_ours(&canary)));
        // Nobody wrote our mark on the Lease, but it is the operator's: it goes with the record of an operator of ours.
        let has_record = record.is_some_and(|(id, _)| id == installation.id);
        let lease = lease.filter(|_| has_record || !operator.is_empty());
        Ok(Self {
            lease,
            has_record,
            crds: ours(&desired.crds),
            namespace: ours(std::slice::from_ref(&desired.namespace)).pop(),
            association: world
                .association
                .as_ref()
                .filter(|found| installation.owns(&found.tags))
                .map(|found| found.id.clone()),
            access_entry: world
                .access_entry
                .as_ref()
                .filter(|found| installation.owns(&found.tags))
                .map(|_| desired.node_role.arn.clone()),
            // Helm's own revisions follow on ours.
            releases: if world
                .releases
                .iter()
                .any(|revision| revision.install_id.as_deref() == Some(&installation.id))
            {
                world.releases.iter().map(|revision| revision.secret.clone()).collect()
            } else {
                Vec::new()
            },
            provider,
            provider_stays,
            aws_auth: world
                .aws_auth
                .as_ref()
                .and_then(|live| aws_auth::added_by(live, &installation.id)),
            profile: world
                .profile
                .as_ref()
                .filter(|found| installation.owns(&found.tags))
                .map(|_| desired.profile_name.clone()),
            fargate: world
                .fargate
                .as_ref()
                .filter(|found| installation.owns(&found.tags))
                .map(|_| desired.fargate_name.clone()),
            rules: world
                .rules
                .iter()
                .filter(|(_, rule)| installation.owns(&rule.tags))
                .map(|(name, rule)| (name.clone(), rule.targets.keys().cloned().collect()))
                .collect(),
            queue: world
                .queue
                .as_ref()
                .filter(|found| installation.owns(&found.tags))
                .map(|found| (desired.queue_name.clone(), found.url.clone())),
            marked: world.marked.iter().cloned().collect(),
            roles: world
                .roles
                .iter()
                .filter(|(_, role)| installation.owns(&role.tags))
                .map(|(name, _)| name.clone())
                .collect(),
            node_pools,
            node_claims,
            node_classes,
            instances,
            launch_templates,
            instance_profiles,
            operator,
        }
        .of_ours_only())
    }

    /// Without an installation of ours, NodePools and what hangs on them are somebody else's.
    fn of_ours_only(mut self) -> Self {
        let is_installed = self.has_record
            || !self.operator.is_empty()
            || !self.crds.is_empty()
            || !self.roles.is_empty()
            || self.association.is_some();
        if !is_installed {
            for list in [&mut self.node_pools, &mut self.node_claims, &mut self.node_classes] {
                list.clear();
            }
            for list in
                [&mut self.instances, &mut self.launch_templates, &mut self.instance_profiles]
            {
                list.clear();
            }
        }
        self
    }

    /// There are NodePools, NodeClaims or NodeClasses.
    pub fn has_node_objects(&self) -> bool {
        !(self.node_pools.is_empty() && self.node_claims.is_empty() && self.node_classes.is_empty())
    }

    /// There are nodes, or claims to some.
    pub fn has_nodes(&self) -> bool {
        !(self.node_claims.is_empty() && self.instances.is_empty())
    }

    /// There is nothing to remove.
    pub fn is_empty(&self) -> bool {
        self.lines().is_empty()
    }

    /// One line per kind of thing.
    pub fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        let names = |objects: &[DynamicObject]| {
            objects.iter().map(ResourceExt::name_any).collect::<Vec<_>>()
        };
        let keys = |objects: &[Object]| {
            objects.iter().map(|object| object.key().to_string()).collect::<Vec<_>>()
        };
        let mut add = |noun: &str, names: Vec<String>| {
            if !names.is_empty() {
                lines.push(format!(" - {}: {}", count(names.len(), noun), names.join(", ")));
            }
        };
        add("NodePool", names(&self.node_pools));
        add("NodeClaim", names(&self.node_claims));
        add("EC2 instance", self.instances.clone());
        // In words that have an ordinary plural.
        add("node class", names(&self.node_classes));
        add("operator object", keys(&self.operator));
        add("Helm revision", self.releases.clone());
        add("lease", self.lease.iter().map(|lease| lease.key().to_string()).collect());
        add("CRD", self.crds.iter().map(|crd| crd.name.clone()).collect());
        add("launch template", self.launch_templates.clone());
        add("instance profile", self.instance_profiles.clone());
        add("Pod Identity association", self.association.iter().cloned().collect());
        add("identity provider", self.provider.iter().cloned().collect());
        add("Fargate profile", self.fargate.iter().cloned().collect());
        add("aws-auth role", self.aws_auth.iter().cloned().collect());
        add("node instance profile", self.profile.iter().cloned().collect());
        add("EKS access entr", self.access_entry.iter().cloned().collect());
        add("EventBridge rule", self.rules.iter().map(|(name, _)| name.clone()).collect());
        add("SQS queue", self.queue.iter().map(|(name, _)| name.clone()).collect());
        add("discovery tag", self.marked.clone());
        add("IAM role", self.roles.clone());
        add("namespace", self.namespace.iter().map(|namespace| namespace.name.clone()).collect());
        if self.has_record {
            lines.push(" - the record of the installation".to_owned());
        }
        lines
            .into_iter()
            .map(|line| {
                line.replace("access entr:", "access entry:")
                    .replace("access entrs:", "access entries:")
            })
            .collect()
    }

    /// NodePools and NodeClasses as YAML that `kubectl apply` takes. NodeClaims are not in it: applied, they would launch instances.
    pub fn backup(&self) -> String {
        let objects = self.node_classes.iter().chain(&self.node_pools);
        objects.flat_map(|object| ["---\n".to_owned(), without_server_fields(object)]).collect()
    }
}

/// An object as its author wrote it: without what the API server and we added.
fn without_server_fields(object: &DynamicObject) -> String {
    let mut body = json!(object);
    if let Some(body) = body.as_object_mut() {
        body.remove("status");
    }
    if let Some(metadata) = body["metadata"].as_object_mut() {
        metadata.retain(|key, _| matches!(key.as_str(), "name" | "labels" | "annotations"));
        for section in ["labels", "annotations"] {
            if let Some(entries) =
                metadata.get_mut(section).and_then(serde_json::Value::as_object_mut)
            {
                entries.retain(|key, _| !key.starts_with("tenon.sh/"));
                if entries.is_empty() {
                    metadata.remove(section);
                }
            }
        }
    }
    serde_saphyr::to_string(&body).expect("JSON always goes into YAML")
}

/// An identity provider that we made goes only when no role but ours trusts it.
async fn provider(
    context: &Context,
    desired: &Desired,
    world: &World,
) -> Result<(Option<String>, Option<String>), ExpectedError> {
    let Some(wanted) = &desired.provider else { return Ok((None, None)) };
    let ours = world.provider.as_ref().is_some_and(|found| desired.installation.owns(&found.tags));
    if !ours {
        return Ok((None, None));
    }
    let users = match observe::iam::roles_trusting(&context.aws, &wanted.arn).await {
        Ok(users) => users,
        Err(error) if error.is_denied() => {
            let why = format!("{}: who else uses it can't be seen ({error})", wanted.arn);
            return Ok((None, Some(why)));
        }
        Err(error) => return Err(ExpectedError::Observe(error.into())),
    };
    let others: Vec<_> =
        users.into_iter().filter(|role| *role != desired.controller_role.name).collect();
    Ok(if others.is_empty() {
        (Some(wanted.arn.clone()), None)
    } else {
        (None, Some(format!("{}: {} trust it", wanted.arn, others.join(", "))))
    })
}

async fn lease(client: Client, namespace: &str) -> Result<Option<Object>, KubeError> {
    let api: Api<Lease> = Api::namespaced(client, namespace);
    let found = api.get_opt(LEASE).await;
    let found = found.map_err(|source| KubeError {
        verb: "get",
        resource: format!("Lease {namespace}/{LEASE}"),
        source: Box::new(source),
    })?;
    Ok(found.map(|lease| Object::new(&lease)))
}
