//! Steps in EKS: who gets which role, and who may enter the cluster.

use std::time::Duration;

use aws_sdk_eks::types::FargateProfileSelector;

use super::{Context, check_owner, wait};
use crate::aws::{Calling, IfThere};
use crate::desired::{AccessEntry, Association, FargateProfile, ServiceAccount};
use crate::failure::Failure;
use crate::names::AGENT;
use crate::observe::eks;
use crate::ownership::Tags;
use crate::retry::{Lag, until_visible};

/// Installs the Pod Identity agent, and waits until it is active.
pub(super) async fn install_agent(context: &Context) -> Result<(), Failure> {
    let cluster = &context.cluster_name;
    let what = || format!("addon {AGENT} of cluster {cluster}");
    let call = || async {
        context
            .aws
            .eks
            .create_addon()
            .cluster_name(cluster)
            .addon_name(AGENT)
            .send()
            .await
            .calling("eks:CreateAddon", what())
    };
    match call().await {
        Err(error) if !error.is_there_already() => return Err(error.into()),
        _ => {}
    }
    wait::until(&what(), Duration::from_mins(20), Duration::from_secs(2), || async {
        let status = eks::addon(&context.aws, cluster, AGENT).await?.unwrap_or_default();
        Ok(if status == "ACTIVE" { Ok(()) } else { Err(format!("it is {status}")) })
    })
    .await
}

/// Makes an association.
pub(super) async fn create_association(
    context: &Context,
    association: &Association,
) -> Result<(), Failure> {
    let resource =
        format!("association of {}/{}", association.namespace, association.service_account);
    let call = || async {
        context
            .aws
            .eks
            .create_pod_identity_association()
            .cluster_name(&context.cluster_name)
            .namespace(&association.namespace)
            .service_account(&association.service_account)
            .role_arn(&association.role_arn)
            .set_tags(Some(association.tags.clone().into_iter().collect()))
            .send()
            .await
            .calling("eks:CreatePodIdentityAssociation", &resource)
    };
    match until_visible(Lag::RoleInAssociation, call).await {
        Ok(_) => Ok(()),
        // Made by a call whose answer was lost; or by somebody else, a moment ago. Another role in
        // it is the next run's business.
        Err(error) if error.is_there_already() => {
            let of = ServiceAccount {
                namespace: association.namespace.clone(),
                name: association.service_account.clone(),
            };
            let found = eks::association(&context.aws, &context.cluster_name, &of).await?;
            let tags = found.map(|association| association.tags).unwrap_or_default();
            check_owner(context, &format!("Pod Identity {resource}"), &tags)
        }
        Err(error) => Err(error.into()),
    }
}

/// Gives an association another role.
pub(super) async fn update_association(
    context: &Context,
    id: &str,
    arn: &str,
    association: &Association,
) -> Result<(), Failure> {
    let call = || async {
        context
            .aws
            .eks
            .update_pod_identity_association()
            .cluster_name(&context.cluster_name)
            .association_id(id)
            .role_arn(&association.role_arn)
            .send()
            .await
            .calling("eks:UpdatePodIdentityAssociation", format!("association {id}"))
    };
    until_visible(Lag::RoleInAssociation, call).await?;
    tag_eks(context, arn, &association.tags).await
}

/// Sets tags.
pub(super) async fn tag_eks(context: &Context, arn: &str, tags: &Tags) -> Result<(), Failure> {
    let call = context
        .aws
        .eks
        .tag_resource()
        .resource_arn(arn)
        .set_tags(Some(tags.clone().into_iter().collect()))
        .send()
        .await;
    call.calling("eks:TagResource", arn)?;
    Ok(())
}

/// Makes an access entry.
pub(super) async fn create_access_entry(
    context: &Context,
    entry: &AccessEntry,
    replace: bool,
) -> Result<(), Failure> {
    let arn = &entry.principal_arn;
    let what = || format!("access entry of {arn}");
    let api = &context.aws.eks;
    if replace {
        let call = api
            .delete_access_entry()
            .cluster_name(&context.cluster_name)
            .principal_arn(arn)
            .send()
            .await;
        call.calling("eks:DeleteAccessEntry", what()).if_there()?;
    }
    let call = || async {
        api.create_access_entry()
            .cluster_name(&context.cluster_name)
            .principal_arn(arn)
            .r#type(entry.kind)
            .set_tags(Some(entry.tags.clone().into_iter().collect()))
            .send()
            .await
            .calling("eks:CreateAccessEntry", what())
    };
    match until_visible(Lag::RoleInAccessEntry, call).await {
        Ok(_) => Ok(()),
        // Made by a call whose answer was lost; or by somebody else, a moment ago.
        Err(error) if error.is_there_already() => {
            let found = eks::access_entry(&context.aws, &context.cluster_name, arn).await?;
            let tags = found.map(|entry| entry.tags).unwrap_or_default();
            check_owner(context, &format!("EKS {}", what()), &tags)
        }
        Err(error) => Err(error.into()),
    }
}

/// Removes an association; one that is gone is no error.
pub async fn delete_association(context: &Context, id: &str) -> Result<(), Failure> {
    let call = context
        .aws
        .eks
        .delete_pod_identity_association()
        .cluster_name(&context.cluster_name)
        .association_id(id)
        .send()
        .await;
    call.calling("eks:DeletePodIdentityAssociation", format!("association {id}")).if_there()?;
    Ok(())
}

/// Removes an access entry; one that is gone is no error.
pub async fn delete_access_entry(context: &Context, arn: &str) -> Result<(), Failure> {
    let call = context
        .aws
        .eks
        .delete_access_entry()
        .cluster_name(&context.cluster_name)
        .principal_arn(arn)
        .send()
        .await;
    call.calling("eks:DeleteAccessEntry", format!("access entry of {arn}")).if_there()?;
    Ok(())
}

/// How long EKS may take over a Fargate profile.
const FARGATE_TIME: Duration = Duration::from_mins(20);

/// Makes a Fargate profile and waits until it is active. One that differs is removed first: nothing
/// of it can be changed.
pub(super) async fn create_fargate(
    context: &Context,
    profile: &FargateProfile,
    replace: bool,
) -> Result<(), Failure> {
    let name = profile.name.as_str();
    let what = || format!("Fargate profile {name}");
    if replace {
        delete_fargate(context, name).await?;
    }
    let call = || async {
        let selector = FargateProfileSelector::builder()
            .namespace(&profile.namespace)
            .set_labels(Some(profile.labels.clone().into_iter().collect()))
            .build();
        context
            .aws
            .eks
            .create_fargate_profile()
            .cluster_name(&context.cluster_name)
            .fargate_profile_name(name)
            .pod_execution_role_arn(&profile.role_arn)
            .set_subnets(Some(profile.subnet_ids.clone()))
            .selectors(selector)
            .set_tags(Some(profile.tags.clone().into_iter().collect()))
            .send()
            .await
            .calling("eks:CreateFargateProfile", what())
    };
    match until_visible(Lag::FargateProfile, call).await {
        Ok(_) => {}
        Err(error) => {
            // An interrupted run made it; or somebody else did.
            let found = eks::fargate(&context.aws, &context.cluster_name, name).await?;
            let Some(found) = found else { return Err(error.into()) };
            check_owner(context, &what(), &found.tags)?;
        }
    }
    let made = || async {
        let found = eks::fargate(&context.aws, &context.cluster_name, name).await?;
        let status = found.map_or_else(|| "missing".to_owned(), |found| found.status);
        Ok(if status == "ACTIVE" { Ok(()) } else { Err(format!("it is {status}")) })
    };
    wait::until(&what(), FARGATE_TIME, Duration::from_secs(2), made).await
}

/// Removes a Fargate profile and waits until it is gone.
pub async fn delete_fargate(context: &Context, name: &str) -> Result<(), Failure> {
    let what = || format!("Fargate profile {name}");
    let call = || async {
        let api = context.aws.eks.delete_fargate_profile();
        let call = api.cluster_name(&context.cluster_name).fargate_profile_name(name).send().await;
        call.calling("eks:DeleteFargateProfile", what())
    };
    until_visible(Lag::OtherChange, call).await.if_there()?;
    let gone = || async {
        let found = eks::fargate(&context.aws, &context.cluster_name, name).await?;
        Ok(found.map_or(Ok(()), |found| Err(format!("it is {}", found.status))))
    };
    wait::until(&format!("{} to be gone", what()), FARGATE_TIME, Duration::from_secs(2), gone).await
}
