//! Cluster Autoscaler: its flags, the node groups that it scales, their nodes, and what they are as
//! NodePools.
//!
//! Which groups it scales is read from its Deployment, as it does it itself; nothing is known by
//! names.

mod autoscaler;
pub(crate) mod fit;
pub(crate) mod propose;
mod size;
pub(crate) mod steps;

use std::collections::{BTreeMap, BTreeSet};

use futures::future::try_join_all;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::ResourceExt;
use kube::api::ListParams;
use tenon_installer_core::apply::drain::{must_leave, protection};
use tenon_installer_core::aws::{Aws, AwsError};
use tenon_installer_core::failure::Failure;
use tenon_installer_core::kubernetes::client::Cluster;
use tenon_installer_core::kubernetes::object::Object;
use tenon_installer_core::kubernetes::operator_deployment::{OperatorDeployment, has};
use tenon_installer_core::observe::auto_scaling::{self, GroupState, Market};
use tenon_installer_core::observe::ec2::{self, Selection, TypeSize};
use tenon_installer_core::observe::node_groups::{self, NodeGroup};
use tenon_installer_core::observe::templates::{self, TemplateState};
use tenon_installer_core::ownership::CORDONED_BY;

pub(crate) use self::autoscaler::Autoscaler;

/// A group of nodes that Cluster Autoscaler scales.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Group {
    /// Of the managed node group, else of the Auto Scaling group.
    pub name: String,
    /// Its Auto Scaling group.
    pub scaling: GroupState,
    /// What EKS knows of it, if EKS manages it.
    pub managed: Option<NodeGroup>,
    /// What the user gave to launch from, as far as it could be read.
    pub template: Option<TemplateState>,
    /// Its nodes, by name.
    pub nodes: Vec<Node>,
}

impl Group {
    fn subnet_ids(&self) -> &[String] {
        match &self.managed {
            Some(managed) if !managed.subnet_ids.is_empty() => &managed.subnet_ids,
            _ => &self.scaling.subnet_ids,
        }
    }

    /// EKS's name of its images; empty if EKS does not choose them.
    fn image(&self) -> &str {
        self.managed.as_ref().map_or("", |managed| managed.image.as_str())
    }

    fn instance_types(&self) -> BTreeSet<String> {
        let managed = self.managed.iter().flat_map(|managed| &managed.instance_types);
        let types = managed.chain(&self.scaling.instance_types).cloned().collect::<BTreeSet<_>>();
        if types.is_empty() && !self.scaling.by_attributes {
            let of_template = self.template.as_ref().and_then(|it| it.instance_type.clone());
            return of_template.into_iter().collect();
        }
        types
    }

    fn market(&self) -> Market {
        if let Some(managed) = &self.managed {
            return if managed.is_spot { Market::Spot } else { Market::OnDemand };
        }
        let of_template = self.template.as_ref().is_some_and(|template| template.is_spot);
        self.scaling.market.unwrap_or(if of_template { Market::Spot } else { Market::OnDemand })
    }

    /// Name of the node that an instance is.
    fn node_of(&self, instance: &str) -> Option<String> {
        let found = self.nodes.iter().find(|node| instance_of(node) == Some(instance));
        found.map(ResourceExt::name_any)
    }
}

/// The instance behind a node.
fn instance_of(node: &Node) -> Option<&str> {
    node.spec.as_ref()?.provider_id.as_deref()?.rsplit('/').next()
}

/// Cluster Autoscaler and its groups as they are.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Found {
    /// Its Deployments, stopped ones as well; usually one.
    pub autoscalers: Vec<Autoscaler>,
    /// The groups that it scales, by name.
    pub groups: Vec<Group>,
    /// Nodes that are not emptied, with the reason.
    pub stays: BTreeMap<String, String>,
    /// Zones, by subnet.
    pub zones: BTreeMap<String, String>,
    /// What the groups' instance types have.
    pub types: BTreeMap<String, TypeSize>,
    /// Pods that need no place, as `namespace/name`: those that wait for one already, and Cluster
    /// Autoscaler's own, which end.
    pub placeless: BTreeSet<String>,
    /// Nodes that an installation cordoned and whose instances are there, with its id.
    pub cordoned: BTreeMap<String, String>,
}

impl Found {
    /// Names of the nodes that are emptied.
    pub(crate) fn moving(&self) -> Vec<String> {
        let nodes = self.groups.iter().flat_map(|group| &group.nodes);
        let names = nodes.map(ResourceExt::name_any);
        names.filter(|name| !self.stays.contains_key(name)).collect()
    }
}

/// Its Deployments.
pub(crate) async fn autoscalers(kube: &Cluster) -> Result<Vec<Autoscaler>, Failure> {
    let deployments: Vec<Deployment> = kube.all().await?;
    Ok(deployments.iter().map(Object::new).filter_map(Autoscaler::of).collect())
}

/// Everything about it. `is_forced`: protected pods don't keep their nodes.
pub(crate) async fn read(
    (aws, kube): (&Aws, &Cluster),
    cluster: &str,
    operator: Option<&OperatorDeployment>,
    is_forced: bool,
) -> Result<Found, Failure> {
    let autoscalers = autoscalers(kube).await?;
    let nodes: Vec<Node> = kube.all().await?;
    let mut found = Found { autoscalers, ..Found::default() };
    let scaled = |group: &GroupState| found.autoscalers.iter().any(|one| one.scales(group));
    if !found.autoscalers.iter().any(Autoscaler::selects_any) {
        found.cordoned = cordoned(aws, &nodes, &[]).await?;
        return Ok(found);
    }
    let scaling = auto_scaling::groups(aws).await?.into_iter().filter(scaled).collect::<Vec<_>>();
    let managed = if scaling.iter().any(|group| group.node_group().is_some()) {
        node_groups::read(aws, cluster).await?
    } else {
        Vec::new()
    };
    let groups = scaling.into_iter().map(|scaling| {
        let of = |name: &str| managed.iter().find(|group| group.name == name).cloned();
        group(aws, scaling.node_group().and_then(of), scaling, &nodes)
    });
    found.groups = try_join_all(groups).await?;
    found.groups.sort_by(|a, b| a.name.cmp(&b.name));
    found.cordoned = cordoned(aws, &nodes, &found.groups).await?;
    let subnets = found.groups.iter().flat_map(|group| group.subnet_ids().to_vec());
    let subnets = subnets.collect::<BTreeSet<_>>().into_iter().collect();
    let types = found.groups.iter().flat_map(Group::instance_types).collect::<BTreeSet<_>>();
    let (subnets, types) =
        tokio::try_join!(ec2::subnets(aws, Selection::Ids(subnets)), ec2::type_sizes(aws, &types))?;
    let zones = subnets.into_iter();
    found.zones =
        zones.filter_map(|subnet| Some((subnet.subnet_id?, subnet.availability_zone?))).collect();
    found.types = types;
    let pods = kube.pods("pods", &ListParams::default()).await?;
    let ends = |pod: &Pod| found.autoscalers.iter().any(|one| has(&one.live.body, pod));
    let placeless = pods.iter().filter(|pod| must_leave(pod));
    let placeless = placeless.filter(|pod| node_of(pod).is_none() || ends(pod));
    found.placeless = placeless.map(path).collect();
    found.stays = stays(&found.groups, &pods, operator, is_forced);
    Ok(found)
}

/// A Node outlives its instance for a while, and pods that are scheduled to it then don't run until
/// it is gone.
async fn cordoned(
    aws: &Aws,
    nodes: &[Node],
    groups: &[Group],
) -> Result<BTreeMap<String, String>, AwsError> {
    let marked = nodes.iter().filter_map(|node| {
        Some((instance_of(node)?, node.name_any(), node.annotations().get(CORDONED_BY)?))
    });
    let marked = marked.collect::<Vec<_>>();
    let ids = marked.iter().map(|(id, ..)| *id).collect();
    let mut there = ec2::alive(aws, &ids).await?;
    there.retain(|id| groups.iter().all(|group| !group.scaling.leaving.contains(id)));
    let marked = marked.into_iter().filter(|(id, ..)| there.contains(*id));
    Ok(marked.map(|(_, name, by)| (name, by.clone())).collect())
}

async fn group(
    aws: &Aws,
    managed: Option<NodeGroup>,
    scaling: GroupState,
    nodes: &[Node],
) -> Result<Group, AwsError> {
    // EKS makes a template of its own for a managed group: what it says beside the user's is EKS's
    // business.
    let template = match &managed {
        Some(managed) => managed.template.as_ref(),
        None => scaling.template.as_ref(),
    };
    let template = match template {
        Some(template) => templates::read(aws, template).await?,
        None => None,
    };
    let is_in = |node: &&Node| instance_of(node).is_some_and(|id| scaling.instances.contains(id));
    let mut nodes = nodes.iter().filter(is_in).cloned().collect::<Vec<_>>();
    nodes.sort_by_key(ResourceExt::name_any);
    for node in &mut nodes {
        // Differs whenever one looks.
        node.metadata.managed_fields = None;
        node.metadata.resource_version = None;
        if let Some(status) = &mut node.status {
            status.conditions = None;
        }
    }
    let name = managed.as_ref().map_or_else(|| scaling.name.clone(), |group| group.name.clone());
    Ok(Group { name, scaling, managed, template, nodes })
}

/// Nodes that are not emptied: the operator must not run on nodes that it launches, and protected
/// pods keep theirs until they have ended.
fn stays(
    groups: &[Group],
    pods: &[Pod],
    operator: Option<&OperatorDeployment>,
    is_forced: bool,
) -> BTreeMap<String, String> {
    let nodes = groups.iter().flat_map(|group| &group.nodes).map(ResourceExt::name_any);
    let nodes = nodes.collect::<BTreeSet<_>>();
    let on_them = |pod: &&Pod| node_of(pod).is_some_and(|node| nodes.contains(node));
    let mut stays = BTreeMap::new();
    for pod in pods.iter().filter(on_them).filter(|pod| must_leave(pod)) {
        let node = node_of(pod).unwrap_or_default().to_owned();
        if operator.is_some_and(|operator| operator.has(pod)) {
            stays.insert(node, "Tenon's operator runs there".to_owned());
        } else if let Some(why) = protection(pod).filter(|_| !is_forced) {
            stays.entry(node).or_insert_with(|| format!("pod {}: {why}", path(pod)));
        }
    }
    stays
}

fn node_of(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.node_name.as_deref()
}

fn path(pod: &Pod) -> String {
    format!("{}/{}", pod.namespace().unwrap_or_default(), pod.name_any())
}

#[cfg(test)]
mod tests;
