//! Everything that bears a name of ours, ours or not, as it is right now.

use std::collections::{BTreeMap, BTreeSet};

use aws_sdk_ec2::types::Filter;
use aws_sdk_sqs::types::QueueAttributeName;
use kube::core::ApiResource;
use serde_json::Value;

use crate::aws::{Aws, AwsError, Calling, IfThere};
use crate::desired::{AGENT, Desired};
use crate::errors::Failure;
use crate::kubernetes::client::Cluster;
use crate::kubernetes::object::Key;
use crate::ownership::{DISCOVERY_MARK, Tags};

/// What is there.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct World {
    /// Roles by name.
    pub roles: BTreeMap<String, RoleState>,
    /// The Pod Identity agent.
    pub agent: AgentState,
    /// The association of the operator's service account.
    pub association: Option<AssociationState>,
    /// The access entry of the node role.
    pub access_entry: Option<AccessEntryState>,
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
    let ours = [&desired.node_role, &desired.controller_role]
        .into_iter()
        .filter(|role| role.spec.is_some());
    let names = ours.map(|role| role.name.clone()).collect::<Vec<_>>();
    let aws_side = async {
        tokio::try_join!(
            roles(aws, &names),
            addon(aws, desired),
            association(aws, desired),
            access_entry(aws, desired),
            queue(aws, desired),
            rules(aws, desired),
            network(aws, desired),
        )
        .map_err(Failure::from)
    };
    let kubernetes_side = async {
        let objects = desired
            .objects()
            .map(|object| (object.resource.clone(), object.key()))
            .collect::<Vec<_>>();
        tokio::try_join!(cluster.get_all(&objects), daemon_set(cluster)).map_err(Failure::from)
    };
    let (
        (roles, addon, association, access_entry, queue, rules, (network, marked)),
        (objects, daemon_set),
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
        access_entry,
        queue,
        rules,
        network,
        marked,
        objects: objects.into_iter().collect(),
    })
}

/// Reads roles by name, with everything that hangs on them.
pub async fn roles(aws: &Aws, names: &[String]) -> Result<BTreeMap<String, RoleState>, AwsError> {
    let states = futures::future::try_join_all(names.iter().map(|name| role(aws, name))).await?;
    Ok(names.iter().cloned().zip(states).filter_map(|(name, state)| Some((name, state?))).collect())
}

async fn role(aws: &Aws, name: &str) -> Result<Option<RoleState>, AwsError> {
    let what = || format!("role {name}");
    let Some(found) = aws
        .iam
        .get_role()
        .role_name(name)
        .send()
        .await
        .calling("iam:GetRole", what())
        .if_there()?
    else {
        return Ok(None);
    };
    let Some(role) = found.role else { return Ok(None) };
    let attached = async {
        let pages =
            aws.iam.list_attached_role_policies().role_name(name).into_paginator().items().send();
        pages
            .collect::<Result<Vec<_>, _>>()
            .await
            .calling("iam:ListAttachedRolePolicies", what())
            .if_there()
    };
    let inline = async {
        let pages = aws.iam.list_role_policies().role_name(name).into_paginator().items().send();
        pages
            .collect::<Result<Vec<_>, _>>()
            .await
            .calling("iam:ListRolePolicies", what())
            .if_there()
    };
    let (attached, inline_names) = tokio::try_join!(attached, inline)?;
    let inline_names = inline_names.unwrap_or_default();
    let documents = futures::future::try_join_all(inline_names.iter().map(|policy| async move {
        let call = aws.iam.get_role_policy().role_name(name).policy_name(policy).send().await;
        call.calling("iam:GetRolePolicy", format!("role {name}")).if_there()
    }))
    .await?;
    Ok(Some(RoleState {
        arn: role.arn,
        trust: role.assume_role_policy_document.unwrap_or_default(),
        attached: attached
            .unwrap_or_default()
            .into_iter()
            .filter_map(|policy| policy.policy_arn)
            .collect(),
        inline: inline_names
            .into_iter()
            .zip(documents)
            .filter_map(|(name, found)| Some((name, found?.policy_document)))
            .collect(),
        boundary: role.permissions_boundary.and_then(|boundary| boundary.permissions_boundary_arn),
        tags: role.tags.unwrap_or_default().into_iter().map(|tag| (tag.key, tag.value)).collect(),
    }))
}

async fn addon(aws: &Aws, desired: &Desired) -> Result<Option<String>, AwsError> {
    let cluster = &desired.scope.cluster;
    let call = aws.eks.describe_addon().cluster_name(cluster).addon_name(AGENT).send().await;
    let found = call
        .calling("eks:DescribeAddon", format!("addon {AGENT} of cluster {cluster}"))
        .if_there()?;
    Ok(found
        .and_then(|found| found.addon)
        .map(|addon| addon.status.map_or_else(String::new, |status| status.as_str().to_owned())))
}

async fn daemon_set(cluster: &Cluster) -> Result<bool, crate::kubernetes::client::KubeError> {
    let resource = ApiResource::erase::<k8s_openapi::api::apps::v1::DaemonSet>(&());
    let key = Key {
        api_version: resource.api_version.clone(),
        kind: resource.kind.clone(),
        namespace: Some("kube-system".to_owned()),
        name: AGENT.to_owned(),
    };
    Ok(cluster.get(&resource, &key).await?.is_some())
}

async fn association(aws: &Aws, desired: &Desired) -> Result<Option<AssociationState>, AwsError> {
    let cluster = &desired.scope.cluster;
    let wanted = &desired.association;
    let pages = aws
        .eks
        .list_pod_identity_associations()
        .cluster_name(cluster)
        .namespace(&wanted.namespace)
        .service_account(&wanted.service_account)
        .into_paginator()
        .items()
        .send();
    let found = pages
        .collect::<Result<Vec<_>, _>>()
        .await
        .calling("eks:ListPodIdentityAssociations", format!("cluster {cluster}"))?;
    // Also filtered here: a second association for another account must never be taken for ours.
    let ours = found.into_iter().find(|item| {
        item.namespace.as_deref() == Some(&wanted.namespace)
            && item.service_account.as_deref() == Some(&wanted.service_account)
    });
    let Some(id) = ours.and_then(|item| item.association_id) else { return Ok(None) };
    let call = aws
        .eks
        .describe_pod_identity_association()
        .cluster_name(cluster)
        .association_id(&id)
        .send()
        .await;
    let found = call
        .calling("eks:DescribePodIdentityAssociation", format!("association {id}"))
        .if_there()?;
    Ok(found.and_then(|found| found.association).map(|association| AssociationState {
        id,
        arn: association.association_arn.unwrap_or_default(),
        role_arn: association.role_arn.unwrap_or_default(),
        tags: association.tags.unwrap_or_default().into_iter().collect(),
    }))
}

async fn access_entry(aws: &Aws, desired: &Desired) -> Result<Option<AccessEntryState>, AwsError> {
    let arn = &desired.access_entry.principal_arn;
    let call = aws
        .eks
        .describe_access_entry()
        .cluster_name(&desired.scope.cluster)
        .principal_arn(arn)
        .send()
        .await;
    let found =
        call.calling("eks:DescribeAccessEntry", format!("access entry of {arn}")).if_there()?;
    Ok(found.and_then(|found| found.access_entry).map(|entry| AccessEntryState {
        arn: entry.access_entry_arn.unwrap_or_default(),
        kind: entry.r#type.unwrap_or_default(),
        tags: entry.tags.unwrap_or_default().into_iter().collect(),
    }))
}

async fn queue(aws: &Aws, desired: &Desired) -> Result<Option<QueueState>, AwsError> {
    let name = &desired.queue_name;
    let what = || format!("queue {name}");
    let found = aws
        .sqs
        .get_queue_url()
        .queue_name(name)
        .send()
        .await
        .calling("sqs:GetQueueUrl", what())
        .if_there()?;
    let Some(url) = found.and_then(|found| found.queue_url) else { return Ok(None) };
    let attributes = async {
        let call = aws
            .sqs
            .get_queue_attributes()
            .queue_url(&url)
            .attribute_names(QueueAttributeName::All)
            .send()
            .await;
        call.calling("sqs:GetQueueAttributes", what()).if_there()
    };
    let tags = async {
        aws.sqs
            .list_queue_tags()
            .queue_url(&url)
            .send()
            .await
            .calling("sqs:ListQueueTags", what())
            .if_there()
    };
    let (Some(attributes), Some(tags)) = tokio::try_join!(attributes, tags)? else {
        return Ok(None);
    };
    let attributes = attributes
        .attributes
        .unwrap_or_default()
        .into_iter()
        .map(|(name, value)| (name.as_str().to_owned(), value))
        .collect();
    Ok(Some(QueueState {
        url,
        attributes,
        tags: tags.tags.unwrap_or_default().into_iter().collect(),
    }))
}

async fn rules(aws: &Aws, desired: &Desired) -> Result<BTreeMap<String, RuleState>, AwsError> {
    let states =
        futures::future::try_join_all(desired.rule_names.iter().map(|name| rule(aws, name)))
            .await?;
    Ok(desired
        .rule_names
        .iter()
        .cloned()
        .zip(states)
        .filter_map(|(name, state)| Some((name, state?)))
        .collect())
}

async fn rule(aws: &Aws, name: &str) -> Result<Option<RuleState>, AwsError> {
    let what = || format!("rule {name}");
    let Some(rule) = aws
        .events
        .describe_rule()
        .name(name)
        .send()
        .await
        .calling("events:DescribeRule", what())
        .if_there()?
    else {
        return Ok(None);
    };
    let targets = async {
        aws.events
            .list_targets_by_rule()
            .rule(name)
            .send()
            .await
            .calling("events:ListTargetsByRule", what())
            .if_there()
    };
    let tags = async {
        let call = aws
            .events
            .list_tags_for_resource()
            .resource_arn(rule.arn.as_deref().unwrap_or_default())
            .send()
            .await;
        call.calling("events:ListTagsForResource", what()).if_there()
    };
    let (targets, tags) = tokio::try_join!(targets, tags)?;
    Ok(Some(RuleState {
        pattern: rule.event_pattern.clone(),
        enabled: rule.state == Some(aws_sdk_eventbridge::types::RuleState::Enabled),
        targets: targets
            .and_then(|found| found.targets)
            .unwrap_or_default()
            .into_iter()
            .map(|target| (target.id, target.arn))
            .collect(),
        tags: tags
            .and_then(|found| found.tags)
            .unwrap_or_default()
            .into_iter()
            .map(|tag| (tag.key, tag.value))
            .collect(),
    }))
}

type Network = (BTreeMap<String, Tags>, BTreeSet<String>);

async fn network(aws: &Aws, desired: &Desired) -> Result<Network, AwsError> {
    let is_group = |id: &&String| id.starts_with("sg-");
    let groups = desired.discovery.iter().filter(is_group).cloned().collect::<Vec<_>>();
    let subnets = desired.discovery.iter().filter(|id| !is_group(id)).cloned().collect::<Vec<_>>();
    let mark = || {
        Filter::builder()
            .name(format!("tag:{DISCOVERY_MARK}"))
            .values(&desired.installation.id)
            .build()
    };
    let (wanted_subnets, marked_subnets, wanted_groups, marked_groups) = tokio::try_join!(
        describe_subnets(aws, subnets, None),
        describe_subnets(aws, Vec::new(), Some(mark())),
        describe_groups(aws, groups, None),
        describe_groups(aws, Vec::new(), Some(mark())),
    )?;
    let wanted = wanted_subnets.into_iter().chain(wanted_groups).collect();
    let marked = marked_subnets.into_iter().chain(marked_groups).map(|(id, _)| id).collect();
    Ok((wanted, marked))
}

fn ec2_tags(tags: Option<Vec<aws_sdk_ec2::types::Tag>>) -> Tags {
    tags.unwrap_or_default()
        .into_iter()
        .map(|tag| (tag.key.unwrap_or_default(), tag.value.unwrap_or_default()))
        .collect()
}

async fn describe_subnets(
    aws: &Aws,
    ids: Vec<String>,
    filter: Option<Filter>,
) -> Result<Vec<(String, Tags)>, AwsError> {
    if ids.is_empty() && filter.is_none() {
        return Ok(Vec::new());
    }
    let what = if ids.is_empty() { "*".to_owned() } else { ids.join(", ") };
    let call = aws
        .ec2
        .describe_subnets()
        .set_subnet_ids((!ids.is_empty()).then_some(ids))
        .set_filters(filter.map(|filter| vec![filter]));
    let subnets = call
        .into_paginator()
        .items()
        .send()
        .collect::<Result<Vec<_>, _>>()
        .await
        .calling("ec2:DescribeSubnets", what)?;
    Ok(subnets
        .into_iter()
        .map(|subnet| (subnet.subnet_id.unwrap_or_default(), ec2_tags(subnet.tags)))
        .collect())
}

async fn describe_groups(
    aws: &Aws,
    ids: Vec<String>,
    filter: Option<Filter>,
) -> Result<Vec<(String, Tags)>, AwsError> {
    if ids.is_empty() && filter.is_none() {
        return Ok(Vec::new());
    }
    let what = if ids.is_empty() { "*".to_owned() } else { ids.join(", ") };
    let call = aws
        .ec2
        .describe_security_groups()
        .set_group_ids((!ids.is_empty()).then_some(ids))
        .set_filters(filter.map(|filter| vec![filter]));
    let groups = call
        .into_paginator()
        .items()
        .send()
        .collect::<Result<Vec<_>, _>>()
        .await
        .calling("ec2:DescribeSecurityGroups", what)?;
    Ok(groups
        .into_iter()
        .map(|group| (group.group_id.unwrap_or_default(), ec2_tags(group.tags)))
        .collect())
}
