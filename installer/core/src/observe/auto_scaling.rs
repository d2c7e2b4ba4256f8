//! What EC2 Auto Scaling holds: groups and their lifecycle hooks.

use std::collections::BTreeSet;

use aws_sdk_autoscaling::types::{
    AutoScalingGroup, InstancesDistribution, LaunchTemplateSpecification, MixedInstancesPolicy,
};
use futures::stream::{self, StreamExt as _, TryStreamExt as _};

use super::templates::TemplateRef;
use crate::aws::{Aws, AwsError, Calling, all};
use crate::ownership::Tags;

/// How many groups are asked for their hooks at once.
const PARALLEL: usize = 8;

/// The process that moves instances between zones: it launches and terminates them at will.
pub const REBALANCE: &str = "AZRebalance";

/// The tag that EKS puts on the group of a managed node group: the node group's name.
const NODE_GROUP: &str = "eks:nodegroup-name";

/// An Auto Scaling group.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct GroupState {
    /// Its name, unique in the region.
    pub name: String,
    /// The least number of instances that it may have.
    pub min: i32,
    /// The largest.
    pub max: i32,
    /// How many it should have now.
    pub desired: i32,
    /// Where it launches.
    pub subnet_ids: Vec<String>,
    /// Its tags, whether instances get them or not.
    pub tags: Tags,
    /// Ids of its instances that are not on their way out.
    pub instances: BTreeSet<String>,
    /// Ids of those that are. EC2 may say for hours that they run, while a lifecycle hook waits.
    pub leaving: BTreeSet<String>,
    /// What its instances are launched from; none with a launch configuration.
    pub template: Option<TemplateRef>,
    /// The types that replace the one of the template.
    pub instance_types: Vec<String>,
    /// Its types are chosen by their attributes.
    pub by_attributes: bool,
    /// How it buys, if it does not leave that to the template.
    pub market: Option<Market>,
    /// It does not move instances between zones.
    pub is_rebalance_suspended: bool,
}

/// How instances are bought.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Market {
    /// On demand only.
    OnDemand,
    /// Spot only.
    Spot,
    /// Some of each.
    Both,
}

impl GroupState {
    /// The managed node group that it belongs to.
    pub fn node_group(&self) -> Option<&str> {
        self.tags.get(NODE_GROUP).map(String::as_str)
    }
}

/// All groups in the region, by name.
pub async fn groups(aws: &Aws) -> Result<Vec<GroupState>, AwsError> {
    let groups = aws.auto_scaling.describe_auto_scaling_groups().into_paginator().items().send();
    let groups = all(groups).await.calling("autoscaling:DescribeAutoScalingGroups", "*")?;
    let mut groups = groups.into_iter().map(view).collect::<Vec<_>>();
    groups.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(groups)
}

/// One group; none if there is none of this name.
pub async fn group(aws: &Aws, name: &str) -> Result<Option<GroupState>, AwsError> {
    let call = aws.auto_scaling.describe_auto_scaling_groups().auto_scaling_group_names(name);
    let found = call.send().await.calling("autoscaling:DescribeAutoScalingGroups", "*")?;
    Ok(found.auto_scaling_groups.unwrap_or_default().into_iter().next().map(view))
}

fn view(group: AutoScalingGroup) -> GroupState {
    let mut state = GroupState {
        name: group.auto_scaling_group_name.unwrap_or_default(),
        min: group.min_size.unwrap_or_default(),
        max: group.max_size.unwrap_or_default(),
        desired: group.desired_capacity.unwrap_or_default(),
        template: group.launch_template.map(template),
        ..GroupState::default()
    };
    let subnets = group.vpc_zone_identifier.unwrap_or_default();
    let subnets = subnets.split(',').map(str::trim).filter(|id| !id.is_empty());
    state.subnet_ids = subnets.map(str::to_owned).collect();
    let tags = group.tags.unwrap_or_default().into_iter();
    state.tags =
        tags.map(|tag| (tag.key.unwrap_or_default(), tag.value.unwrap_or_default())).collect();
    for instance in group.instances.unwrap_or_default() {
        let stage = instance.lifecycle_state.as_ref().map_or("", |stage| stage.as_str());
        let leaves = stage.starts_with("Terminat") || stage.starts_with("Detach");
        let ids = if leaves { &mut state.leaving } else { &mut state.instances };
        ids.extend(instance.instance_id);
    }
    let suspended = group.suspended_processes.unwrap_or_default();
    state.is_rebalance_suspended =
        suspended.iter().any(|one| one.process_name.as_deref() == Some(REBALANCE));
    if let Some(policy) = group.mixed_instances_policy {
        mix(&mut state, policy);
    }
    state
}

fn mix(state: &mut GroupState, policy: MixedInstancesPolicy) {
    // Without a distribution, all are on demand.
    state.market = Some(policy.instances_distribution.as_ref().map_or(Market::OnDemand, market));
    let Some(launch) = policy.launch_template else { return };
    state.template = launch.launch_template_specification.map(template);
    for one in launch.overrides.unwrap_or_default() {
        state.by_attributes |= one.instance_requirements.is_some();
        state.instance_types.extend(one.instance_type);
    }
}

fn market(distribution: &InstancesDistribution) -> Market {
    let base = distribution.on_demand_base_capacity.unwrap_or(0);
    match distribution.on_demand_percentage_above_base_capacity.unwrap_or(100) {
        100 => Market::OnDemand,
        0 if base == 0 => Market::Spot,
        _ => Market::Both,
    }
}

fn template(specification: LaunchTemplateSpecification) -> TemplateRef {
    TemplateRef {
        id: specification.launch_template_id.unwrap_or_default(),
        version: specification.version.unwrap_or_else(|| "$Default".to_owned()),
    }
}

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
    let names = groups(aws).await?.into_iter().map(|group| group.name);
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

#[cfg(test)]
mod tests {
    use aws_sdk_autoscaling::types::{
        Instance, LaunchTemplate, LaunchTemplateOverrides, LifecycleState, SuspendedProcess,
        TagDescription,
    };

    use super::*;

    #[test]
    fn a_group_says_what_it_launches_how_and_where() {
        let instance =
            |id: &str, stage| Instance::builder().instance_id(id).lifecycle_state(stage).build();
        let specification = LaunchTemplateSpecification::builder().launch_template_id("lt-1");
        let launch = LaunchTemplate::builder()
            .launch_template_specification(specification.version("3").build())
            .overrides(LaunchTemplateOverrides::builder().instance_type("m5.large").build());
        let distribution =
            InstancesDistribution::builder().on_demand_percentage_above_base_capacity(30);
        let policy = MixedInstancesPolicy::builder()
            .launch_template(launch.build())
            .instances_distribution(distribution.build());
        let found = view(
            AutoScalingGroup::builder()
                .auto_scaling_group_name("workers")
                .min_size(1)
                .max_size(5)
                .desired_capacity(2)
                .vpc_zone_identifier("subnet-a, subnet-b")
                .tags(TagDescription::builder().key(NODE_GROUP).value("apps").build())
                .instances(instance("i-1", LifecycleState::InService))
                .instances(instance("i-2", LifecycleState::TerminatingWait))
                .suspended_processes(SuspendedProcess::builder().process_name(REBALANCE).build())
                .mixed_instances_policy(policy.build())
                .build(),
        );
        let expected = GroupState {
            name: "workers".to_owned(),
            min: 1,
            max: 5,
            desired: 2,
            subnet_ids: vec!["subnet-a".to_owned(), "subnet-b".to_owned()],
            tags: Tags::from([(NODE_GROUP.to_owned(), "apps".to_owned())]),
            instances: BTreeSet::from(["i-1".to_owned()]),
            leaving: BTreeSet::from(["i-2".to_owned()]),
            template: Some(TemplateRef { id: "lt-1".to_owned(), version: "3".to_owned() }),
            instance_types: vec!["m5.large".to_owned()],
            by_attributes: false,
            market: Some(Market::Both),
            is_rebalance_suspended: true,
        };
        assert_eq!(found, expected);
        assert_eq!(found.node_group(), Some("apps"));
    }

    #[test]
    fn a_distribution_says_how_instances_are_bought() {
        let of = |base, percent| {
            let distribution = InstancesDistribution::builder().on_demand_base_capacity(base);
            market(&distribution.set_on_demand_percentage_above_base_capacity(percent).build())
        };
        assert_eq!(of(0, None), Market::OnDemand);
        assert_eq!(of(2, Some(100)), Market::OnDemand);
        assert_eq!(of(0, Some(0)), Market::Spot);
        assert_eq!(of(1, Some(0)), Market::Both);
    }
}
