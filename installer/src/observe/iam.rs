//! What IAM holds.

use std::collections::BTreeMap;

use super::world::RoleState;
use crate::aws::{Aws, AwsError, Calling, IfThere};

/// Reads roles by name, with everything that hangs on them.
pub async fn roles(aws: &Aws, names: &[String]) -> Result<BTreeMap<String, RoleState>, AwsError> {
    let states = futures::future::try_join_all(names.iter().map(|name| role(aws, name))).await?;
    Ok(names.iter().cloned().zip(states).filter_map(|(name, state)| Some((name, state?))).collect())
}

/// Reads one role.
pub async fn role(aws: &Aws, name: &str) -> Result<Option<RoleState>, AwsError> {
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

/// Instance profiles under a path, which is where the operator makes its own.
pub async fn instance_profiles(aws: &Aws, path: &str) -> Result<Vec<String>, AwsError> {
    let pages =
        aws.iam.list_instance_profiles().path_prefix(path).into_paginator().items().send();
    let profiles =
        pages.collect::<Result<Vec<_>, _>>().await.calling("iam:ListInstanceProfiles", path)?;
    // Looked at again here: what is deleted by name must be under the path for certain.
    Ok(profiles
        .into_iter()
        .filter(|profile| profile.path.starts_with(path))
        .map(|profile| profile.instance_profile_name)
        .collect())
}

