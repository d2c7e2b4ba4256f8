//! What the operator made in AWS, and the removal of what the installer made.

use aws_sdk_ec2::types::Filter;

use crate::apply::Context;
use crate::aws::{AwsError, Calling, IfThere};
use crate::desired::Desired;
use crate::errors::Failure;
use crate::retry::{Lag, until_visible};

const NODE_POOL_TAG: &str = "karpenter.sh/nodepool";
const CLUSTER_NAME_TAG: &str = "eks:eks-cluster-name";

/// Instances that NodePools of this cluster launched and that are not terminated.
pub(super) async fn instances(
    context: &Context,
    desired: &Desired,
) -> Result<Vec<String>, AwsError> {
    let cluster = Filter::builder()
        .name(format!("tag:{}", desired.scope.cluster_tag()))
        .values("owned")
        .build();
    let pool = Filter::builder().name("tag-key").values(NODE_POOL_TAG).build();
    let states =
        ["pending", "running", "stopping", "stopped", "shutting-down"].map(str::to_owned).to_vec();
    let states = Filter::builder().name("instance-state-name").set_values(Some(states)).build();
    let pages = context
        .aws
        .ec2
        .describe_instances()
        .filters(cluster)
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
        .filter_map(|instance| instance.instance_id)
        .collect())
}

/// Launch templates that the operator made for this cluster: they carry both of its tags.
pub(super) async fn launch_templates(
    context: &Context,
    desired: &Desired,
) -> Result<Vec<String>, AwsError> {
    let cluster = Filter::builder()
        .name(format!("tag:{}", desired.scope.cluster_tag()))
        .values("owned")
        .build();
    let name = Filter::builder()
        .name(format!("tag:{CLUSTER_NAME_TAG}"))
        .values(&desired.scope.cluster)
        .build();
    let pages = context
        .aws
        .ec2
        .describe_launch_templates()
        .filters(cluster)
        .filters(name)
        .max_results(200)
        .into_paginator()
        .items()
        .send();
    let templates =
        pages.collect::<Result<Vec<_>, _>>().await.calling("ec2:DescribeLaunchTemplates", "*")?;
    Ok(templates.into_iter().filter_map(|template| template.launch_template_id).collect())
}

/// Instance profiles that the operator made: under the cluster's path.
pub(super) async fn instance_profiles(
    context: &Context,
    desired: &Desired,
) -> Result<Vec<String>, AwsError> {
    let path = desired.scope.instance_profile_path();
    let pages =
        context.aws.iam.list_instance_profiles().path_prefix(&path).into_paginator().items().send();
    let profiles =
        pages.collect::<Result<Vec<_>, _>>().await.calling("iam:ListInstanceProfiles", &path)?;
    // Looked at again here: what is deleted by name must be under the path for certain.
    Ok(profiles
        .into_iter()
        .filter(|profile| profile.path.starts_with(&path))
        .map(|profile| profile.instance_profile_name)
        .collect())
}

pub(super) async fn delete_launch_template(context: &Context, id: &str) -> Result<(), Failure> {
    let call = context.aws.ec2.delete_launch_template().launch_template_id(id).send().await;
    call.calling("ec2:DeleteLaunchTemplate", id).if_there()?;
    Ok(())
}

pub(super) async fn delete_instance_profile(context: &Context, name: &str) -> Result<(), Failure> {
    let iam = &context.aws.iam;
    let what = || format!("instance profile {name}");
    let found = iam
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
        let call = iam
            .remove_role_from_instance_profile()
            .instance_profile_name(name)
            .role_name(&role.role_name)
            .send()
            .await;
        call.calling("iam:RemoveRoleFromInstanceProfile", what()).if_there()?;
    }
    let call = || async {
        iam.delete_instance_profile()
            .instance_profile_name(name)
            .send()
            .await
            .calling("iam:DeleteInstanceProfile", what())
    };
    until_visible(Lag::RoleInUse, call).await.if_there()?;
    Ok(())
}

pub(super) async fn delete_association(context: &Context, id: &str) -> Result<(), Failure> {
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

pub(super) async fn delete_access_entry(context: &Context, arn: &str) -> Result<(), Failure> {
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

/// Removes a role with everything that hangs on it. A profile that is not the operator's stays, and so does the role then.
pub(super) async fn delete_role(
    context: &Context,
    desired: &Desired,
    name: &str,
) -> Result<(), Failure> {
    let iam = &context.aws.iam;
    let what = || format!("role {name}");
    let Some(state) =
        crate::observe::world::roles(&context.aws, &[name.to_owned()]).await?.remove(name)
    else {
        return Ok(());
    };
    if !desired.installation.owns(&state.tags) {
        return Err(Failure::Foreign { what: format!("IAM {}", what()) });
    }
    for arn in &state.attached {
        iam.detach_role_policy()
            .role_name(name)
            .policy_arn(arn)
            .send()
            .await
            .calling("iam:DetachRolePolicy", what())
            .if_there()?;
    }
    for policy in state.inline.keys() {
        iam.delete_role_policy()
            .role_name(name)
            .policy_name(policy)
            .send()
            .await
            .calling("iam:DeleteRolePolicy", what())
            .if_there()?;
    }
    let call = || async {
        iam.delete_role().role_name(name).send().await.calling("iam:DeleteRole", what())
    };
    until_visible(Lag::RoleInUse, call).await.if_there()?;
    Ok(())
}

/// Asks EC2 to terminate instances; those that are gone already are no error.
pub(super) async fn terminate(context: &Context, ids: &[String]) -> Result<(), Failure> {
    for id in ids {
        context
            .aws
            .ec2
            .terminate_instances()
            .instance_ids(id)
            .send()
            .await
            .calling("ec2:TerminateInstances", id)
            .if_there()?;
    }
    Ok(())
}
