//! Auto Scaling groups that are emptied or filled again: their sizes, their instances, and the
//! process that would move instances between zones in the meantime.

use std::time::Duration;

use aws_sdk_eks::types::{NodegroupScalingConfig, NodegroupStatus};

use super::{Context, wait};
use crate::aws::{Aws, AwsError, Calling};
use crate::failure::Failure;
use crate::observe::auto_scaling::{self, REBALANCE};
use crate::plan::GroupSize;

/// How often EKS is asked whether a node group has changed.
const EVERY: Duration = Duration::from_secs(2);

/// Keeps a group from moving instances between zones, or lets it do so again.
pub(super) async fn set_rebalance(
    aws: &Aws,
    group: &str,
    is_suspended: bool,
) -> Result<(), Failure> {
    let what = format!("Auto Scaling group {group}");
    if is_suspended {
        let call = aws.auto_scaling.suspend_processes().auto_scaling_group_name(group);
        let done = call.scaling_processes(REBALANCE).send().await;
        done.calling("autoscaling:SuspendProcesses", what)?;
    } else {
        let call = aws.auto_scaling.resume_processes().auto_scaling_group_name(group);
        let done = call.scaling_processes(REBALANCE).send().await;
        done.calling("autoscaling:ResumeProcesses", what)?;
    }
    Ok(())
}

/// Changes the sizes of a group. Those of a managed node group are EKS's to change: it would set
/// its own again.
pub(super) async fn resize(context: &Context, size: &GroupSize) -> Result<(), Failure> {
    let Some(node_group) = &size.node_group else {
        let call = context.aws.auto_scaling.update_auto_scaling_group();
        let call = call.auto_scaling_group_name(&size.group).min_size(size.min);
        let done = call.set_desired_capacity(size.desired).send().await;
        let what = format!("Auto Scaling group {}", size.group);
        done.calling("autoscaling:UpdateAutoScalingGroup", what)?;
        return Ok(());
    };
    let what = format!("node group {node_group}");
    let scaling = NodegroupScalingConfig::builder();
    let scaling = scaling.min_size(size.min).set_desired_size(size.desired).build();
    let at_most = Duration::from_secs(size.seconds);
    // Another update may be under way; EKS does one at a time.
    wait::until(&format!("{what} to be changed"), at_most, EVERY, || async {
        let call = context.aws.eks.update_nodegroup_config().cluster_name(&context.cluster_name);
        let call = call.nodegroup_name(node_group).scaling_config(scaling.clone());
        match call.send().await.calling("eks:UpdateNodegroupConfig", what.as_str()) {
            Err(error) if error.has_code(&["ResourceInUseException"]) => Ok(Err(error.message)),
            answer => answer.map(|_| Ok(())).map_err(Failure::from),
        }
    })
    .await?;
    wait::until(&format!("{what} to be active"), at_most, EVERY, || async {
        let call = context.aws.eks.describe_nodegroup().cluster_name(&context.cluster_name);
        let found = call.nodegroup_name(node_group).send().await;
        let found = found.calling("eks:DescribeNodegroup", what.as_str())?;
        let status = found.nodegroup.and_then(|group| group.status);
        Ok(match status {
            Some(NodegroupStatus::Updating) => Err("it is being updated".to_owned()),
            _ => Ok(()),
        })
    })
    .await
}

/// Whether an instance is in a group and not on its way out.
pub(super) async fn has(aws: &Aws, group: &str, instance: &str) -> Result<bool, AwsError> {
    let group = auto_scaling::group(aws, group).await?;
    Ok(group.is_some_and(|group| group.instances.contains(instance)))
}

/// Terminates an instance of a group, which gets smaller by it. One that is gone is no error.
pub(super) async fn terminate(aws: &Aws, group: &str, instance: &str) -> Result<(), Failure> {
    let call = aws.auto_scaling.terminate_instance_in_auto_scaling_group();
    let call = call.instance_id(instance).should_decrement_desired_capacity(true);
    let action = "autoscaling:TerminateInstanceInAutoScalingGroup";
    match call.send().await.calling(action, format!("instance {instance}")) {
        // Also when the group would get smaller than it may be.
        Err(error) if error.has_code(&["ValidationError"]) => {
            if has(aws, group, instance).await? {
                Err(error.into())
            } else {
                Ok(())
            }
        }
        answer => Ok(answer.map(drop)?),
    }
}
