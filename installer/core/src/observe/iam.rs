//! What IAM holds.

use std::collections::BTreeMap;

use aws_sdk_iam::types::{ContextEntry, EvaluationResult};
use percent_encoding::percent_decode_str;

use super::state::{ProfileState, ProviderState, RoleState};
use crate::aws::{Aws, AwsError, Calling, IfThere, all};
use crate::ownership::Tags;

/// The service-linked role of EC2 Spot.
pub(crate) const SPOT_ROLE: &str = "AWSServiceRoleForEC2Spot";

/// The account's alias, if it has one.
pub async fn account_alias(aws: &Aws) -> Result<Option<String>, AwsError> {
    let found = aws.iam.list_account_aliases().send().await;
    let found = found.calling("iam:ListAccountAliases", "*")?;
    Ok(found.account_aliases.into_iter().next())
}

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
        all(pages).await.calling("iam:ListAttachedRolePolicies", what()).if_there()
    };
    let inline = async {
        let pages = aws.iam.list_role_policies().role_name(name).into_paginator().items().send();
        all(pages).await.calling("iam:ListRolePolicies", what()).if_there()
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
        tags: tags(role.tags),
    }))
}

/// Instance profiles under a path, which is where the operator makes its own.
pub async fn instance_profiles(aws: &Aws, path: &str) -> Result<Vec<String>, AwsError> {
    let pages = aws.iam.list_instance_profiles().path_prefix(path).into_paginator().items().send();
    let profiles = all(pages).await.calling("iam:ListInstanceProfiles", path)?;
    // Looked at again here: what is deleted by name must be under the path for certain.
    Ok(profiles
        .into_iter()
        .filter(|profile| profile.path.starts_with(path))
        .map(|profile| profile.instance_profile_name)
        .collect())
}

/// An instance profile by its name.
pub async fn profile(aws: &Aws, name: &str) -> Result<Option<ProfileState>, AwsError> {
    let call = aws.iam.get_instance_profile().instance_profile_name(name).send().await;
    let found =
        call.calling("iam:GetInstanceProfile", format!("instance profile {name}")).if_there()?;
    Ok(found.and_then(|found| found.instance_profile).map(|profile| ProfileState {
        arn: profile.arn,
        roles: profile.roles.into_iter().map(|role| role.role_name).collect(),
        tags: tags(profile.tags),
    }))
}

/// An identity provider by its ARN.
pub async fn provider(aws: &Aws, arn: &str) -> Result<Option<ProviderState>, AwsError> {
    let call =
        aws.iam.get_open_id_connect_provider().open_id_connect_provider_arn(arn).send().await;
    let found = call.calling("iam:GetOpenIDConnectProvider", arn).if_there()?;
    Ok(found.map(|provider| ProviderState {
        audiences: provider.client_id_list.unwrap_or_default(),
        tags: tags(provider.tags),
    }))
}

/// Names of the roles that trust an identity provider.
pub async fn roles_trusting(aws: &Aws, provider_arn: &str) -> Result<Vec<String>, AwsError> {
    let pages = aws.iam.list_roles().into_paginator().items().send();
    let roles = all(pages).await.calling("iam:ListRoles", "*")?;
    // IAM returns documents percent-encoded.
    let trusts =
        |document: &str| percent_decode_str(document).decode_utf8_lossy().contains(provider_arn);
    Ok(roles
        .into_iter()
        .filter(|role| role.assume_role_policy_document.as_deref().is_some_and(trusts))
        .map(|role| role.role_name)
        .collect())
}

/// Whether EC2 Spot has its service-linked role; not asked if it makes no difference.
pub async fn spot_role(aws: &Aws, matters: bool) -> Result<bool, AwsError> {
    if !matters {
        return Ok(false);
    }
    let call = aws.iam.get_role().role_name(SPOT_ROLE).send().await;
    Ok(call.calling("iam:GetRole", format!("role {SPOT_ROLE}")).if_there()?.is_some())
}

fn tags(tags: Option<Vec<aws_sdk_iam::types::Tag>>) -> Tags {
    tags.unwrap_or_default().into_iter().map(|tag| (tag.key, tag.value)).collect()
}

/// What IAM says about calls of a user or role on a resource, one result per action, of all pages.
pub async fn simulate(
    aws: &Aws,
    principal: &str,
    actions: Vec<String>,
    resource: &str,
    context: Vec<ContextEntry>,
) -> Result<Vec<EvaluationResult>, AwsError> {
    let call = aws
        .iam
        .simulate_principal_policy()
        .policy_source_arn(principal)
        .set_action_names(Some(actions))
        .resource_arns(resource)
        .set_context_entries((!context.is_empty()).then_some(context));
    let results = all(call.into_paginator().items().send()).await;
    results.calling("iam:SimulatePrincipalPolicy", principal)
}
