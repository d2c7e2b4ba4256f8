//! What EC2 Auto Scaling holds: lifecycle hooks.

use futures::stream::{self, StreamExt as _, TryStreamExt as _};

use crate::aws::{Aws, AwsError, Calling, all};

/// How many groups are asked for their hooks at once.
const PARALLEL: usize = 8;

/// A lifecycle hook that announces launches or terminations to a target.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct HookState {
    /// Name of the Auto Scaling group.
    pub group: String,
    /// Name of the hook, unique in its group.
    pub name: String,
}

/// Lifecycle hooks that announce to a target by its ARN, of all groups in the region.
///
/// A hook without a target announces to EventBridge, and nothing says who listens there: it is not
/// among them.
pub async fn hooks_to(aws: &Aws, target: &str) -> Result<Vec<HookState>, AwsError> {
    let groups = aws.auto_scaling.describe_auto_scaling_groups().into_paginator().items().send();
    let groups = all(groups).await.calling("autoscaling:DescribeAutoScalingGroups", "*")?;
    let names = groups.into_iter().filter_map(|group| group.auto_scaling_group_name);
    let hooks = stream::iter(names.map(|group| hooks_of(aws, group, target)));
    let mut hooks = hooks.buffered(PARALLEL).try_concat().await?;
    hooks.sort();
    Ok(hooks)
}

async fn hooks_of(aws: &Aws, group: String, target: &str) -> Result<Vec<HookState>, AwsError> {
    let call = aws.auto_scaling.describe_lifecycle_hooks().auto_scaling_group_name(&group).send();
    let found = call.await.calling("autoscaling:DescribeLifecycleHooks", "*")?;
    let hooks = found.lifecycle_hooks.unwrap_or_default().into_iter();
    let ours = hooks.filter(|hook| hook.notification_target_arn.as_deref() == Some(target));
    let named = ours.filter_map(|hook| hook.lifecycle_hook_name);
    Ok(named.map(|name| HookState { group: group.clone(), name }).collect())
}
