//! Steps in EKS: who gets which role, and who may enter the cluster.

use super::{Context, wait};
use crate::aws::{Calling, IfThere};
use crate::desired::{AGENT, AccessEntry, Association};
use crate::errors::Failure;
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
    wait::until(
        &what(),
        std::time::Duration::from_mins(20),
        std::time::Duration::from_secs(2),
        || async {
            let status = eks::addon(&context.aws, cluster, AGENT).await?.unwrap_or_default();
            Ok(if status == "ACTIVE" { Ok(()) } else { Err(format!("it is {status}")) })
        },
    )
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
        // It was not there a moment ago, so somebody else made it: the next run will look whose it is.
        Err(error) if error.is_there_already() => {
            Err(Failure::Foreign { what: format!("Pod Identity {resource}") })
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
        Err(error) if error.is_there_already() => {
            Err(Failure::Foreign { what: format!("EKS {}", what()) })
        }
        Err(error) => Err(error.into()),
    }
}

/// Removes an association; one that is gone is no error.
pub(crate) async fn delete_association(context: &Context, id: &str) -> Result<(), Failure> {
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
pub(crate) async fn delete_access_entry(context: &Context, arn: &str) -> Result<(), Failure> {
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
