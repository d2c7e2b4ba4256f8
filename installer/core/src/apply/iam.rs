//! Steps in IAM: roles and what hangs on them.

use aws_sdk_iam::types::Tag;

use super::{Context, check_owner, check_owner_id};
use crate::aws::{Aws, Calling, IfThere};
use crate::desired::{Profile, Provider, Role};
use crate::failure::Failure;
use crate::observe::iam;
use crate::ownership::Tags;
use crate::plan::RoleChanges;
use crate::retry::{Lag, until_visible};

fn iam_tags(tags: &Tags) -> Vec<Tag> {
    tags.iter()
        .map(|(key, value)| {
            Tag::builder().key(key).value(value).build().expect("key and value are set")
        })
        .collect()
}

/// Makes a role, or brings it to what it should be.
pub(super) async fn ensure_role(
    context: &Context,
    role: &Role,
    changes: &RoleChanges,
) -> Result<(), Failure> {
    let api = &context.aws.iam;
    let name = role.name.as_str();
    let what = || format!("role {name}");
    if changes.create {
        let create = || async {
            api.create_role()
                .role_name(name)
                .path(&role.path)
                .assume_role_policy_document(role.trust.to_json())
                .set_permissions_boundary(role.boundary.clone())
                .set_tags(Some(iam_tags(&role.tags)))
                .send()
                .await
                .calling("iam:CreateRole", what())
        };
        match until_visible(Lag::RoleInPolicy, create).await {
            Ok(_) => {}
            Err(error) if error.is_there_already() => {
                let found = iam::role(&context.aws, name).await?;
                let tags = found.map(|role| role.tags).unwrap_or_default();
                check_owner(context, &format!("IAM {}", what()), &tags)?;
            }
            Err(error) => return Err(error.into()),
        }
    }
    if changes.trust {
        let document = role.trust.to_json();
        let call = || async {
            api.update_assume_role_policy()
                .role_name(name)
                .policy_document(&document)
                .send()
                .await
                .calling("iam:UpdateAssumeRolePolicy", what())
        };
        until_visible(Lag::RoleInIam, call).await?;
    }
    if changes.boundary {
        if let Some(boundary) = &role.boundary {
            let call = api
                .put_role_permissions_boundary()
                .role_name(name)
                .permissions_boundary(boundary)
                .send()
                .await;
            call.calling("iam:PutRolePermissionsBoundary", what())?;
        } else {
            let call = api.delete_role_permissions_boundary().role_name(name).send().await;
            call.calling("iam:DeleteRolePermissionsBoundary", what()).if_there()?;
        }
    }
    if changes.tags {
        api.tag_role()
            .role_name(name)
            .set_tags(Some(iam_tags(&role.tags)))
            .send()
            .await
            .calling("iam:TagRole", what())?;
    }
    for arn in &changes.attach {
        let call = || async {
            api.attach_role_policy()
                .role_name(name)
                .policy_arn(arn)
                .send()
                .await
                .calling("iam:AttachRolePolicy", what())
        };
        until_visible(Lag::RoleInIam, call).await?;
    }
    for arn in &changes.detach {
        api.detach_role_policy()
            .role_name(name)
            .policy_arn(arn)
            .send()
            .await
            .calling("iam:DetachRolePolicy", what())
            .if_there()?;
    }
    for policy in &changes.put {
        let Some(document) = role.inline.get(policy).map(tenon_iam_policies::Document::to_json)
        else {
            continue;
        };
        let call = || async {
            api.put_role_policy()
                .role_name(name)
                .policy_name(policy)
                .policy_document(&document)
                .send()
                .await
                .calling("iam:PutRolePolicy", what())
        };
        until_visible(Lag::RoleInIam, call).await?;
    }
    for policy in &changes.delete {
        api.delete_role_policy()
            .role_name(name)
            .policy_name(policy)
            .send()
            .await
            .calling("iam:DeleteRolePolicy", what())
            .if_there()?;
    }
    Ok(())
}

/// Removes an instance profile, and its role from it.
pub async fn delete_instance_profile(aws: &Aws, name: &str) -> Result<(), Failure> {
    let api = &aws.iam;
    let what = || format!("instance profile {name}");
    let found = api
        .get_instance_profile()
        .instance_profile_name(name)
        .send()
        .await
        .calling("iam:GetInstanceProfile", what())
        .if_there()?;
    for role in found
        .and_then(|found| found.instance_profile)
        .map(|profile| profile.roles)
        .unwrap_or_default()
    {
        let call = api
            .remove_role_from_instance_profile()
            .instance_profile_name(name)
            .role_name(&role.role_name)
            .send()
            .await;
        call.calling("iam:RemoveRoleFromInstanceProfile", what()).if_there()?;
    }
    let call = || async {
        api.delete_instance_profile()
            .instance_profile_name(name)
            .send()
            .await
            .calling("iam:DeleteInstanceProfile", what())
    };
    until_visible(Lag::RoleInUse, call).await.if_there()?;
    Ok(())
}

/// Removes an installation's role with everything that hangs on it. A profile that is not the
/// operator's stays, and so does the role then.
pub async fn delete_role(aws: &Aws, install_id: &str, name: &str) -> Result<(), Failure> {
    let api = &aws.iam;
    let what = || format!("role {name}");
    let Some(state) = iam::role(aws, name).await? else { return Ok(()) };
    check_owner_id(install_id, &format!("IAM {}", what()), &state.tags)?;
    for arn in &state.attached {
        api.detach_role_policy()
            .role_name(name)
            .policy_arn(arn)
            .send()
            .await
            .calling("iam:DetachRolePolicy", what())
            .if_there()?;
    }
    for policy in state.inline.keys() {
        api.delete_role_policy()
            .role_name(name)
            .policy_name(policy)
            .send()
            .await
            .calling("iam:DeleteRolePolicy", what())
            .if_there()?;
    }
    let call = || async {
        api.delete_role().role_name(name).send().await.calling("iam:DeleteRole", what())
    };
    until_visible(Lag::RoleInUse, call).await.if_there()?;
    Ok(())
}

/// Makes an instance profile, or puts its role into it.
pub(super) async fn ensure_profile(
    context: &Context,
    profile: &Profile,
    create: bool,
    replaces: Option<&str>,
) -> Result<(), Failure> {
    let api = &context.aws.iam;
    let name = profile.name.as_str();
    if create {
        let call = api
            .create_instance_profile()
            .instance_profile_name(name)
            .path(&profile.path)
            .set_tags(Some(iam_tags(&profile.tags)))
            .send()
            .await;
        match call.calling("iam:CreateInstanceProfile", &profile.arn) {
            Ok(_) => {}
            Err(error) if error.is_there_already() => {
                let found = iam::profile(&context.aws, name).await?;
                let tags = found.map(|profile| profile.tags).unwrap_or_default();
                check_owner(context, &format!("instance profile {name}"), &tags)?;
            }
            Err(error) => return Err(error.into()),
        }
    }
    if let Some(role) = replaces {
        let call =
            api.remove_role_from_instance_profile().instance_profile_name(name).role_name(role);
        let call = call.send().await;
        call.calling("iam:RemoveRoleFromInstanceProfile", &profile.arn).if_there()?;
    }
    let call = || async {
        api.add_role_to_instance_profile()
            .instance_profile_name(name)
            .role_name(&profile.role)
            .send()
            .await
            .calling("iam:AddRoleToInstanceProfile", &profile.arn)
    };
    match until_visible(Lag::RoleInIam, call).await {
        Ok(_) => Ok(()),
        Err(error) => {
            // One role is all that fits: that is ours already when an interrupted run is repeated.
            let found = iam::profile(&context.aws, name).await?;
            if found.is_some_and(|found| found.roles == [profile.role.clone()]) {
                Ok(())
            } else {
                Err(error.into())
            }
        }
    }
}

/// Makes the service-linked role of EC2 Spot.
pub(super) async fn create_spot_role(context: &Context) -> Result<(), Failure> {
    let call = context.aws.iam.create_service_linked_role();
    let call = call.aws_service_name("spot.amazonaws.com").send().await;
    match call.calling("iam:CreateServiceLinkedRole", iam::SPOT_ROLE) {
        // IAM's way to say that it is there.
        Err(error) if !error.has_code(&["InvalidInput", "InvalidInputException"]) => {
            Err(error.into())
        }
        _ => Ok(()),
    }
}

/// Makes an identity provider, or lets it take our audience. Somebody else's will do: it says the
/// same.
pub(super) async fn ensure_provider(
    context: &Context,
    provider: &Provider,
    create: bool,
) -> Result<(), Failure> {
    let api = &context.aws.iam;
    if create {
        let call = api
            .create_open_id_connect_provider()
            .url(&provider.url)
            .client_id_list(&provider.audience)
            .set_tags(Some(iam_tags(&provider.tags)))
            .send()
            .await;
        match call.calling("iam:CreateOpenIDConnectProvider", &provider.arn) {
            Ok(_) => return Ok(()),
            Err(error) if error.is_there_already() => {}
            Err(error) => return Err(error.into()),
        }
    }
    let call = || async {
        api.add_client_id_to_open_id_connect_provider()
            .open_id_connect_provider_arn(&provider.arn)
            .client_id(&provider.audience)
            .send()
            .await
            .calling("iam:AddClientIDToOpenIDConnectProvider", &provider.arn)
    };
    until_visible(Lag::RoleInIam, call).await?;
    Ok(())
}

/// Removes an identity provider; one that is gone is no error.
pub async fn delete_provider(context: &Context, arn: &str) -> Result<(), Failure> {
    let call = context.aws.iam.delete_open_id_connect_provider().open_id_connect_provider_arn(arn);
    call.send().await.calling("iam:DeleteOpenIDConnectProvider", arn).if_there()?;
    Ok(())
}
