//! EC2 Auto Scaling. moto's groups launch instances of moto, which nobody else here knows: these
//! launch from the gateway's launch templates, and nothing happens to them by itself but that they
//! keep the number of instances that they should have.

use super::aws_state::AwsState;
use super::ec2;
use super::instance::State;
use super::request::{AwsRequest, Params};
use super::response::{AwsError, AwsResponse};
use super::scaling_groups::Group;
use super::service::{Principal, Service, signed};
use super::xml::{Element, render};

/// How many groups one answer has.
const PAGE: usize = 50;

/// Auto Scaling.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AutoScaling;

impl Service for AutoScaling {
    fn handles(&self, request: &AwsRequest) -> bool {
        request.service == "autoscaling"
    }

    async fn call(
        &self,
        request: &AwsRequest,
        caller: Option<&Principal>,
        aws_state: &AwsState,
    ) -> Result<AwsResponse, AwsError> {
        let principal = signed(caller)?;
        let name = request.params.get("AutoScalingGroupName").unwrap_or_default();
        let answer = match request.action.as_str() {
            "CreateLaunchConfiguration" => Vec::new(),
            "CreateAutoScalingGroup" => {
                let group = requested(&request.params)?;
                create(request, principal, aws_state, name, group).await?;
                Vec::new()
            }
            "DescribeAutoScalingGroups" => describe(request, aws_state),
            "UpdateAutoScalingGroup" => {
                let number = |key: &str| number(&request.params, key);
                let sizes = (number("MinSize"), number("MaxSize"), number("DesiredCapacity"));
                resize(request, principal, aws_state, name, sizes).await?;
                Vec::new()
            }
            "SetDesiredCapacity" => {
                let desired = number(&request.params, "DesiredCapacity");
                resize(request, principal, aws_state, name, (None, None, desired)).await?;
                Vec::new()
            }
            "DeleteAutoScalingGroup" => {
                delete(request, aws_state, name)?;
                Vec::new()
            }
            "TerminateInstanceInAutoScalingGroup" => {
                terminate(request, principal, aws_state).await?
            }
            action @ ("SuspendProcesses" | "ResumeProcesses") => {
                let processes = request.params.list("ScalingProcesses.member");
                let processes = processes.into_iter().map(str::to_owned);
                change(aws_state, name, |group| {
                    if action == "SuspendProcesses" {
                        group.suspended.extend(processes);
                    } else {
                        for process in processes {
                            group.suspended.remove(&process);
                        }
                    }
                })?;
                Vec::new()
            }
            "PutLifecycleHook" => {
                let text = |key: &str| request.params.get(key).unwrap_or_default().to_owned();
                let (hook, target) = (text("LifecycleHookName"), text("NotificationTargetARN"));
                change(aws_state, name, |group| drop(group.hooks.insert(hook, target)))?;
                Vec::new()
            }
            "DescribeLifecycleHooks" => {
                let group = change(aws_state, name, |group| group.clone())?;
                let hooks =
                    group.hooks.iter().map(|(hook, target)| hook_element(name, hook, target));
                vec![Element::node("LifecycleHooks", hooks.collect())]
            }
            "DeleteLifecycleHook" => {
                let hook = request.params.get("LifecycleHookName").unwrap_or_default();
                if change(aws_state, name, |group| group.hooks.remove(hook))?.is_none() {
                    return Err(invalid("No Lifecycle Hook found for the group and name"));
                }
                Vec::new()
            }
            _ => return Err(AwsError::not_implemented(request)),
        };
        Ok(AwsResponse::query(request, &render(&answer)))
    }
}

fn invalid(message: impl Into<String>) -> AwsError {
    AwsError::new("ValidationError", message)
}

fn number(params: &Params, key: &str) -> Option<usize> {
    params.get(key).and_then(|text| text.parse().ok())
}

fn requested(params: &Params) -> Result<Group, AwsError> {
    let size = |key: &str| {
        number(params, key).ok_or_else(|| invalid(format!("{key} is required and not negative")))
    };
    let (min, max) = (size("MinSize")?, size("MaxSize")?);
    let desired = number(params, "DesiredCapacity").unwrap_or(min);
    let subnets = params.get("VPCZoneIdentifier").unwrap_or_default().split(',');
    Ok(Group {
        min,
        max,
        desired,
        template: params.structure("LaunchTemplate"),
        subnets: subnets.filter(|id| !id.is_empty()).map(str::to_owned).collect(),
        tags: params.tags("Tags.member").into_iter().collect(),
        ..Group::default()
    })
}

/// Changes a group that exists.
fn change<T>(
    aws_state: &AwsState,
    name: &str,
    change: impl FnOnce(&mut Group) -> T,
) -> Result<T, AwsError> {
    let mut groups = aws_state.auto_scaling.lock();
    let group = groups.get_mut(name);
    let group = group.ok_or_else(|| invalid("AutoScalingGroup name not found - null"))?;
    Ok(change(group))
}

/// Creates a group and launches its instances.
pub(crate) async fn create(
    request: &AwsRequest,
    principal: &Principal,
    aws_state: &AwsState,
    name: &str,
    group: Group,
) -> Result<(), AwsError> {
    check(&group)?;
    if group.subnets.is_empty() {
        return Err(invalid("At least one Availability Zone or VPC Subnet is required."));
    }
    {
        let mut groups = aws_state.auto_scaling.lock();
        if groups.contains_key(name) {
            let message = "AutoScalingGroup by this name already exists";
            return Err(AwsError::new("AlreadyExists", message));
        }
        groups.insert(name.to_owned(), group);
    }
    settle(request, principal, aws_state, name).await
}

fn check(group: &Group) -> Result<(), AwsError> {
    let Group { min, max, desired, .. } = group;
    if desired < min || desired > max {
        return Err(invalid(format!(
            "Desired capacity:{desired} must be between the specified min size:{min} and max \
             size:{max}"
        )));
    }
    Ok(())
}

/// Gives a group other sizes (least, largest, wanted), and as many instances as they ask for. A
/// wanted size that no longer fits follows the others.
pub(crate) async fn resize(
    request: &AwsRequest,
    principal: &Principal,
    aws_state: &AwsState,
    name: &str,
    (min, max, desired): (Option<usize>, Option<usize>, Option<usize>),
) -> Result<(), AwsError> {
    change(aws_state, name, |group| {
        let mut changed = group.clone();
        changed.min = min.unwrap_or(group.min);
        changed.max = max.unwrap_or(group.max).max(changed.min);
        let fitting = group.desired.clamp(changed.min, changed.max);
        changed.desired = desired.unwrap_or(fitting);
        check(&changed)?;
        *group = changed;
        Ok::<(), AwsError>(())
    })??;
    settle(request, principal, aws_state, name).await
}

/// The instances of a group that are not on their way out.
pub(crate) fn alive(aws_state: &AwsState, group: &Group) -> Vec<String> {
    let is_alive = |id: &&String| {
        let state = aws_state.instances().get(id).map(|instance| instance.state);
        matches!(state, Some(State::Pending | State::Running))
    };
    group.instances.iter().filter(is_alive).cloned().collect()
}

/// Launches or terminates as many instances as a group lacks or has too many.
async fn settle(
    request: &AwsRequest,
    principal: &Principal,
    aws_state: &AwsState,
    name: &str,
) -> Result<(), AwsError> {
    let group = change(aws_state, name, |group| group.clone())?;
    let alive = alive(aws_state, &group);
    for id in alive.iter().skip(group.desired) {
        end(aws_state, id);
    }
    for _ in alive.len()..group.desired {
        if group.template.is_empty() {
            return Err(AwsError::not_implemented(request));
        }
        let n = change(aws_state, name, |group| {
            group.launched += 1;
            group.launched - 1
        })?;
        let id = launch(request, principal, aws_state, (name, &group, n)).await?;
        change(aws_state, name, |group| group.instances.push(id))?;
    }
    Ok(())
}

fn end(aws_state: &AwsState, id: &str) {
    let reason =
        ("Client.UserInitiatedShutdown", "Client.UserInitiatedShutdown: User initiated shutdown");
    aws_state.instances().begin(id, State::ShuttingDown, Some(reason));
}

async fn launch(
    request: &AwsRequest,
    principal: &Principal,
    aws_state: &AwsState,
    (name, group, n): (&str, &Group, usize),
) -> Result<String, AwsError> {
    let mut params = Params::default();
    for (key, value) in group.template.iter() {
        params.set(format!("LaunchTemplate.{key}"), value);
    }
    params.set("SubnetId", &*group.subnets[n % group.subnets.len()]);
    params.set("TagSpecification.1.ResourceType", "instance");
    let own = ("aws:autoscaling:groupName".to_owned(), name.to_owned());
    let tags = group.tags.iter().map(|(key, value)| (key.clone(), value.clone()));
    for (n, (key, value)) in (1..).zip(tags.chain([own])) {
        params.set(format!("TagSpecification.1.Tag.{n}.Key"), key);
        params.set(format!("TagSpecification.1.Tag.{n}.Value"), value);
    }
    let launch = AwsRequest {
        service: "ec2".to_owned(),
        action: "RunInstances".to_owned(),
        params,
        ..request.clone()
    };
    let answer = ec2::run_instances(&launch, principal, aws_state).await?;
    answer.resources.into_iter().next().ok_or_else(|| AwsError::not_implemented(request))
}

async fn terminate(
    request: &AwsRequest,
    principal: &Principal,
    aws_state: &AwsState,
) -> Result<Vec<Element>, AwsError> {
    let id = request.params.get("InstanceId").unwrap_or_default().to_owned();
    let smaller = request.params.get("ShouldDecrementDesiredCapacity") == Some("true");
    let groups = aws_state.auto_scaling.lock().clone();
    let found = groups.iter().find(|(_, group)| alive(aws_state, group).contains(&id));
    let Some((name, group)) = found else {
        return Err(invalid(format!("Instance Id not found - No managed instance found for {id}")));
    };
    if smaller && group.desired == group.min {
        return Err(invalid(format!(
            "Currently, desiredSize equals minSize ({}). Terminating instance without replacement \
             will violate group's min size constraint.",
            group.min
        )));
    }
    end(aws_state, &id);
    if smaller {
        change(aws_state, name, |group| group.desired -= 1)?;
    }
    settle(request, principal, aws_state, name).await?;
    let activity = vec![
        Element::leaf("ActivityId", aws_state.id("activity")),
        Element::leaf("AutoScalingGroupName", name),
        Element::leaf("Cause", "instance was taken out of service by user request"),
        Element::leaf("StartTime", aws_state.clock().now().to_string()),
        Element::leaf("StatusCode", "InProgress"),
    ];
    Ok(vec![Element::node("Activity", activity)])
}

fn delete(request: &AwsRequest, aws_state: &AwsState, name: &str) -> Result<(), AwsError> {
    let group = change(aws_state, name, |group| group.clone())?;
    let alive = alive(aws_state, &group);
    if !alive.is_empty() && request.params.get("ForceDelete") != Some("true") {
        let message = "You cannot delete an AutoScalingGroup while there are instances still in \
                       the group.";
        return Err(AwsError::new("ResourceInUse", message));
    }
    for id in &alive {
        end(aws_state, id);
    }
    aws_state.auto_scaling.lock().remove(name);
    Ok(())
}

fn describe(request: &AwsRequest, aws_state: &AwsState) -> Vec<Element> {
    let wanted = request.params.list("AutoScalingGroupNames.member");
    let groups = aws_state.auto_scaling.lock().clone();
    let from = request.params.get("NextToken").unwrap_or_default();
    let mut found = groups.iter().filter(|(name, _)| {
        name.as_str() >= from && (wanted.is_empty() || wanted.contains(&name.as_str()))
    });
    let page = found.by_ref().take(PAGE).map(|(name, group)| element(aws_state, name, group));
    let page = Element::node("AutoScalingGroups", page.collect());
    let next = found.next().map(|(name, _)| Element::leaf("NextToken", name));
    [page].into_iter().chain(next).collect()
}

fn element(aws_state: &AwsState, name: &str, group: &Group) -> Element {
    let member = |children| Element::node("member", children);
    let leaf = |name: &str, number: usize| Element::leaf(name, number.to_string());
    let text = |name: &str, value: &str| Element::leaf(name, value);
    let instances = group.instances.iter().filter_map(|id| {
        let instance = aws_state.instances().get(id)?;
        let stage = match instance.state {
            State::Pending => "Pending",
            State::Running => "InService",
            State::Terminated => return None,
            _ => "Terminating",
        };
        Some(member(vec![
            text("InstanceId", id),
            text("InstanceType", &instance.instance_type),
            text("AvailabilityZone", &instance.zone),
            text("LifecycleState", stage),
            text("HealthStatus", "Healthy"),
            text("ProtectedFromScaleIn", "false"),
        ]))
    });
    let tags = group.tags.iter().map(|(key, value)| {
        member(vec![
            text("Key", key),
            text("Value", value),
            text("ResourceId", name),
            text("ResourceType", "auto-scaling-group"),
            text("PropagateAtLaunch", "true"),
        ])
    });
    let suspended =
        group.suspended.iter().map(|process| member(vec![text("ProcessName", process)]));
    let template = group.template.iter().map(|(key, value)| text(key, value));
    let mut children = vec![
        text("AutoScalingGroupName", name),
        text("AutoScalingGroupARN", &aws_state.arn("autoscaling", name)),
        leaf("MinSize", group.min),
        leaf("MaxSize", group.max),
        leaf("DesiredCapacity", group.desired),
        leaf("DefaultCooldown", 300),
        text("HealthCheckType", "EC2"),
        text("VPCZoneIdentifier", &group.subnets.join(",")),
        Element::node("AvailabilityZones", vec![]),
        Element::node("Instances", instances.collect()),
        Element::node("Tags", tags.collect()),
        Element::node("SuspendedProcesses", suspended.collect()),
    ];
    if !group.template.is_empty() {
        children.push(Element::node("LaunchTemplate", template.collect()));
    }
    member(children)
}

fn hook_element(group: &str, name: &str, target: &str) -> Element {
    let mut children = vec![
        Element::leaf("AutoScalingGroupName", group),
        Element::leaf("LifecycleHookName", name),
        Element::leaf("LifecycleTransition", "autoscaling:EC2_INSTANCE_TERMINATING"),
    ];
    if !target.is_empty() {
        children.push(Element::leaf("NotificationTargetARN", target));
    }
    Element::node("member", children)
}
