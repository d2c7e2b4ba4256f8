//! What EKS knows of a cluster beside the cluster itself.

use aws_sdk_eks::types::AccessEntry;
use tenon_iam_policies::identity::ServiceAccount;

use super::state::{AccessEntryState, AssociationState, FargateState};
use crate::aws::{Aws, AwsError, Calling, IfThere, all};

/// An add-on's status.
pub async fn addon(aws: &Aws, cluster: &str, name: &str) -> Result<Option<String>, AwsError> {
    let call = aws.eks.describe_addon().cluster_name(cluster).addon_name(name).send().await;
    let found = call
        .calling("eks:DescribeAddon", format!("addon {name} of cluster {cluster}"))
        .if_there()?;
    Ok(found
        .and_then(|found| found.addon)
        .map(|addon| addon.status.map_or_else(String::new, |status| status.as_str().to_owned())))
}

/// Names of all clusters in the region.
pub async fn clusters(aws: &Aws) -> Result<Vec<String>, AwsError> {
    let pages = aws.eks.list_clusters().into_paginator().items().send();
    all(pages).await.calling("eks:ListClusters", "*")
}

/// The Pod Identity association of a service account.
pub async fn association(
    aws: &Aws,
    cluster: &str,
    of: &ServiceAccount,
) -> Result<Option<AssociationState>, AwsError> {
    let pages = aws
        .eks
        .list_pod_identity_associations()
        .cluster_name(cluster)
        .namespace(&of.namespace)
        .service_account(&of.name)
        .into_paginator()
        .items()
        .send();
    let found = all(pages)
        .await
        .calling("eks:ListPodIdentityAssociations", format!("cluster {cluster}"))?;
    // Also filtered here: a second association for another account must never be taken for ours.
    let ours = found.into_iter().find(|item| {
        item.namespace.as_deref() == Some(&of.namespace)
            && item.service_account.as_deref() == Some(&of.name)
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

/// The access entry of a role.
pub async fn access_entry(
    aws: &Aws,
    cluster: &str,
    arn: &str,
) -> Result<Option<AccessEntryState>, AwsError> {
    let found = described_entry(aws, cluster, arn).await?;
    Ok(found.map(|entry| AccessEntryState {
        arn: entry.access_entry_arn.unwrap_or_default(),
        kind: entry.r#type.unwrap_or_default(),
        tags: entry.tags.unwrap_or_default().into_iter().collect(),
    }))
}

/// The principals of all access entries.
pub async fn principals(aws: &Aws, cluster: &str) -> Result<Vec<String>, AwsError> {
    let pages = aws.eks.list_access_entries().cluster_name(cluster).into_paginator().items().send();
    let found = all(pages).await;
    match found.calling("eks:ListAccessEntries", format!("cluster {cluster}")) {
        Err(error) if knows_no_entries(&error) => Ok(Vec::new()),
        found => found,
    }
}

/// The access entry of a role, as EKS describes it.
pub async fn described_entry(
    aws: &Aws,
    cluster: &str,
    arn: &str,
) -> Result<Option<AccessEntry>, AwsError> {
    let call =
        aws.eks.describe_access_entry().cluster_name(cluster).principal_arn(arn).send().await;
    match call.calling("eks:DescribeAccessEntry", format!("access entry of {arn}")) {
        Err(error) if knows_no_entries(&error) => Ok(None),
        found => Ok(found.if_there()?.and_then(|found| found.access_entry)),
    }
}

/// A cluster of the mode CONFIG_MAP has no access entries, and refuses to be asked for any.
fn knows_no_entries(error: &AwsError) -> bool {
    error.has_code(&["InvalidRequestException"]) && error.message.contains("authentication mode")
}

/// A Fargate profile by its name.
pub async fn fargate(
    aws: &Aws,
    cluster: &str,
    name: &str,
) -> Result<Option<FargateState>, AwsError> {
    let call = aws.eks.describe_fargate_profile().cluster_name(cluster).fargate_profile_name(name);
    let found = call
        .send()
        .await
        .calling("eks:DescribeFargateProfile", format!("Fargate profile {name}"))
        .if_there()?;
    Ok(found.and_then(|found| found.fargate_profile).map(|profile| FargateState {
        arn: profile.fargate_profile_arn.unwrap_or_default(),
        status: profile.status.map_or_else(String::new, |status| status.as_str().to_owned()),
        role_arn: profile.pod_execution_role_arn.unwrap_or_default(),
        subnet_ids: profile.subnets.unwrap_or_default().into_iter().collect(),
        selectors: profile
            .selectors
            .unwrap_or_default()
            .into_iter()
            .map(|selector| {
                let labels = selector.labels.unwrap_or_default().into_iter().collect();
                (selector.namespace.unwrap_or_default(), labels)
            })
            .collect(),
        tags: profile.tags.unwrap_or_default().into_iter().collect(),
    }))
}
