//! What EC2 holds: the network that nodes are to use, and what the operator made.

use aws_sdk_ec2::types::{Filter, Instance};
use tenon_iam_policies::Scope;

use crate::aws::{Aws, AwsError, Calling};
use crate::ownership::{DISCOVERY_MARK, Tags};

/// The tag of what belongs to a node: the name of its NodePool.
pub const NODE_POOL_TAG: &str = "karpenter.sh/nodepool";
const CLUSTER_NAME_TAG: &str = "eks:eks-cluster-name";

/// What the cluster's operator made carries this tag.
pub fn of_cluster(scope: &Scope) -> Filter {
    Filter::builder().name(format!("tag:{}", scope.cluster_tag())).values("owned").build()
}

/// Ids of the instances that NodePools of this cluster launched and that are not terminated.
pub async fn instances(aws: &Aws, scope: &Scope) -> Result<Vec<String>, AwsError> {
    let found = node_instances(aws, scope).await?;
    Ok(found.into_iter().filter_map(|instance| instance.instance_id).collect())
}

/// The same with all that EC2 says of them.
pub async fn node_instances(aws: &Aws, scope: &Scope) -> Result<Vec<Instance>, AwsError> {
    let pool = Filter::builder().name("tag-key").values(NODE_POOL_TAG).build();
    let states =
        ["pending", "running", "stopping", "stopped", "shutting-down"].map(str::to_owned).to_vec();
    let states = Filter::builder().name("instance-state-name").set_values(Some(states)).build();
    let pages = aws
        .ec2
        .describe_instances()
        .filters(of_cluster(scope))
        .filters(pool)
        .filters(states)
        .into_paginator()
        .items()
        .send();
    let reservations =
        pages.collect::<Result<Vec<_>, _>>().await.calling("ec2:DescribeInstances", "*")?;
    Ok(reservations
        .into_iter()
        .flat_map(|reservation| reservation.instances.unwrap_or_default())
        .collect())
}

/// Launch templates that the operator made for this cluster: they carry both of its tags.
pub async fn launch_templates(aws: &Aws, scope: &Scope) -> Result<Vec<String>, AwsError> {
    let name =
        Filter::builder().name(format!("tag:{CLUSTER_NAME_TAG}")).values(&scope.cluster).build();
    let pages = aws
        .ec2
        .describe_launch_templates()
        .filters(of_cluster(scope))
        .filters(name)
        .max_results(200)
        .into_paginator()
        .items()
        .send();
    let templates =
        pages.collect::<Result<Vec<_>, _>>().await.calling("ec2:DescribeLaunchTemplates", "*")?;
    Ok(templates.into_iter().filter_map(|template| template.launch_template_id).collect())
}

/// Tags of subnets and security groups by id; what does not exist is an error of EC2's.
pub async fn network(aws: &Aws, ids: &[String]) -> Result<Vec<(String, Tags)>, AwsError> {
    let (groups, subnets): (Vec<_>, Vec<_>) =
        ids.iter().cloned().partition(|id| id.starts_with("sg-"));
    let (mut found, groups) =
        tokio::try_join!(describe_subnets(aws, subnets, None), describe_groups(aws, groups, None))?;
    found.extend(groups);
    Ok(found)
}

/// Ids of the subnets and security groups whose discovery tag an installation set.
pub async fn marked(aws: &Aws, install_id: &str) -> Result<Vec<String>, AwsError> {
    let mark =
        || Filter::builder().name(format!("tag:{DISCOVERY_MARK}")).values(install_id).build();
    let (subnets, groups) = tokio::try_join!(
        describe_subnets(aws, Vec::new(), Some(mark())),
        describe_groups(aws, Vec::new(), Some(mark()))
    )?;
    Ok(subnets.into_iter().chain(groups).map(|(id, _)| id).collect())
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
