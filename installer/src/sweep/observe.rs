//! Asks AWS, and the cluster if there is one, for everything with the cluster's tags.

use std::collections::BTreeSet;

use aws_sdk_ec2::types::{Filter, SpotInstanceState, Tag, VolumeState};
use jiff::Timestamp;
use kube::ResourceExt;
use serde_json::Value;
use tenon_iam_policies::Scope;
use tenon_installer_core::aws::{Aws, AwsError, Calling, IfThere, all};
use tenon_installer_core::kubernetes::client::{Cluster, KubeError};
use tenon_installer_core::kubernetes::resources;
use tenon_installer_core::observe::{ec2, iam, messaging};
use tenon_installer_core::ownership::Tags;

use super::find::{ClusterSeen, Instance, Interface, Seen, SpotRequest};

const CLAIM_TAG: &str = "karpenter.sh/nodeclaim";
const CNI_CLUSTER_TAG: &str = "cluster.k8s.amazonaws.com/name";
const CNI_CREATED_TAG: &str = "node.k8s.amazonaws.com/createdAt";

/// Everything in AWS with the cluster's tags, and what bears the installer's names.
pub(crate) async fn observe(
    aws: &Aws,
    scope: &Scope,
    queue: &str,
    rules: &[String],
    role_path: &str,
) -> Result<Seen, AwsError> {
    let profile_path = scope.instance_profile_path();
    let (
        instances,
        launch_templates,
        instance_profiles,
        volumes,
        interfaces,
        spot_requests,
        found_queue,
        rules,
        roles,
    ) = tokio::try_join!(
        instances(aws, scope),
        ec2::launch_templates(aws, scope),
        iam::instance_profiles(aws, &profile_path),
        volumes(aws, scope),
        interfaces(aws, scope),
        spot_requests(aws, scope),
        messaging::queue(aws, queue),
        messaging::rules(aws, rules),
        roles(aws, role_path),
    )?;
    Ok(Seen {
        instances,
        launch_templates,
        instance_profiles,
        volumes,
        interfaces,
        spot_requests,
        queue: found_queue.map(|found| (queue.to_owned(), found.url, found.tags)),
        rules: rules
            .into_iter()
            .map(|(name, rule)| (name, rule.targets.into_keys().collect(), rule.tags))
            .collect(),
        roles,
    })
}

/// What the cluster knows of its nodes.
pub(crate) async fn observe_cluster(
    cluster: &Cluster,
    install_id: &str,
) -> Result<ClusterSeen, KubeError> {
    let (claims, classes) = (resources::node_claims(), resources::node_classes());
    let (claims, classes) = tokio::try_join!(cluster.list(&claims), cluster.list(&classes))?;
    let instances = claims.iter().filter_map(|claim| {
        let provider_id = claim.data.pointer("/status/providerID").and_then(Value::as_str)?;
        provider_id.rsplit('/').next().map(str::to_owned)
    });
    Ok(ClusterSeen::There {
        install_id: install_id.to_owned(),
        instances: instances.collect(),
        claims: claims.iter().map(ResourceExt::name_any).collect::<BTreeSet<_>>(),
        has_classes: !classes.is_empty(),
    })
}

fn tag(tags: Option<&[Tag]>, key: &str) -> Option<String> {
    let found = tags?.iter().find(|tag| tag.key() == Some(key))?;
    found.value().map(str::to_owned)
}

fn time(at: Option<&aws_smithy_types::DateTime>) -> Option<Timestamp> {
    Timestamp::from_second(at?.secs()).ok()
}

fn filter(name: &str, values: &[&str]) -> Filter {
    let values = values.iter().map(|value| (*value).to_owned()).collect();
    Filter::builder().name(name).set_values(Some(values)).build()
}

fn of_nodes(scope: &Scope) -> Vec<Filter> {
    vec![ec2::of_cluster(scope), filter("tag-key", &[ec2::NODE_POOL_TAG])]
}

async fn instances(aws: &Aws, scope: &Scope) -> Result<Vec<Instance>, AwsError> {
    let found = ec2::node_instances(aws, &scope.cluster_tag(), ec2::Which::Alive).await?;
    let instance = |found: aws_sdk_ec2::types::Instance| {
        Some(Instance {
            claim: tag(found.tags.as_deref(), CLAIM_TAG).unwrap_or_default(),
            launched_at: time(found.launch_time()),
            id: found.instance_id?,
        })
    };
    Ok(found.into_iter().filter_map(instance).collect())
}

async fn volumes(aws: &Aws, scope: &Scope) -> Result<Vec<String>, AwsError> {
    let mut filters = of_nodes(scope);
    filters.push(filter("status", &[VolumeState::Available.as_str()]));
    let pages = aws.ec2.describe_volumes().set_filters(Some(filters)).into_paginator();
    let found = all(pages.items().send()).await;
    let found = found.calling("ec2:DescribeVolumes", "*")?;
    Ok(found.into_iter().filter_map(|volume| volume.volume_id).collect())
}

async fn interfaces(aws: &Aws, scope: &Scope) -> Result<Vec<Interface>, AwsError> {
    let filters = vec![
        filter(&format!("tag:{CNI_CLUSTER_TAG}"), &[&scope.cluster]),
        filter("status", &["available"]),
    ];
    let pages = aws.ec2.describe_network_interfaces().set_filters(Some(filters)).into_paginator();
    let found = all(pages.items().send()).await;
    let found = found.calling("ec2:DescribeNetworkInterfaces", "*")?;
    let interface = |found: aws_sdk_ec2::types::NetworkInterface| {
        let created = tag(found.tag_set.as_deref(), CNI_CREATED_TAG)?;
        Some(Interface { created_at: created.parse().ok(), id: found.network_interface_id? })
    };
    Ok(found.into_iter().filter_map(interface).collect())
}

async fn spot_requests(aws: &Aws, scope: &Scope) -> Result<Vec<SpotRequest>, AwsError> {
    let mut filters = of_nodes(scope);
    let open = [SpotInstanceState::Open.as_str(), SpotInstanceState::Active.as_str()];
    filters.push(filter("state", &open));
    let pages = aws.ec2.describe_spot_instance_requests().set_filters(Some(filters));
    let found = all(pages.into_paginator().items().send()).await;
    let found = found.calling("ec2:DescribeSpotInstanceRequests", "*")?;
    let request = |found: aws_sdk_ec2::types::SpotInstanceRequest| {
        Some(SpotRequest {
            created_at: time(found.create_time()),
            instance: found.instance_id,
            id: found.spot_instance_request_id?,
        })
    };
    Ok(found.into_iter().filter_map(request).collect())
}

/// Roles under a path. A list of roles has no tags, so each is read.
async fn roles(aws: &Aws, path: &str) -> Result<Vec<(String, Tags)>, AwsError> {
    // Under the root are everybody's roles: there is no telling by path there.
    if path == "/" {
        return Ok(Vec::new());
    }
    let pages = aws.iam.list_roles().path_prefix(path).into_paginator().items().send();
    let found = all(pages).await.calling("iam:ListRoles", path)?;
    let found = found.into_iter().filter(|role| role.path.starts_with(path));
    let read = found.map(|role| async move {
        let call = aws.iam.get_role().role_name(&role.role_name).send().await;
        let found = call.calling("iam:GetRole", format!("role {}", role.role_name)).if_there()?;
        let tags = found.and_then(|found| found.role).and_then(|role| role.tags);
        let tags = tags.unwrap_or_default().into_iter().map(|tag| (tag.key, tag.value)).collect();
        Ok((role.role_name, tags))
    });
    futures::future::try_join_all(read).await
}
