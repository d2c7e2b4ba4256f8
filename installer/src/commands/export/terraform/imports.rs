//! Import blocks: Terraform takes over what the installation has made, instead of failing because
//! it exists.

use serde_json::{Map, Value, json};
use tenon_installer_core::desired::Desired;
use tenon_installer_core::observe::actual::Actual;
use tenon_installer_core::observe::state::AgentState;
use tenon_installer_core::ownership::DISCOVERY;

/// One block for each resource of the module that is in AWS and bears this installation's tag.
pub(super) fn imports(
    desired: &Desired,
    cloud: &Actual,
    resources: &Map<String, Value>,
) -> Vec<Value> {
    let all = resources.iter().flat_map(|(kind, labels)| {
        labels.as_object().into_iter().flatten().map(move |(label, body)| (kind, label, body))
    });
    all.filter_map(|(kind, label, body)| {
        let id = id(desired, cloud, kind, label, body)?;
        Some(json!({"to": format!("{kind}.{label}"), "id": id}))
    })
    .collect()
}

/// By which id Terraform imports a resource; none if it isn't there, or isn't this installation's.
fn id(desired: &Desired, cloud: &Actual, kind: &str, label: &str, body: &Value) -> Option<String> {
    let owns = |tags| desired.installation.owns(tags);
    let cluster = &desired.scope.cluster;
    let text = |key: &str| body[key].as_str().unwrap_or_default();
    // Parts of a role are labelled by it first.
    let role = || {
        let role = match label.split('_').next()? {
            "node" => &desired.node_role,
            "controller" => &desired.controller_role,
            _ => &desired.fargate_role,
        };
        let state = cloud.roles.get(&role.name).filter(|state| owns(&state.tags))?;
        Some((role.name.as_str(), state))
    };
    let rule = |name: &str| cloud.rules.get(name).filter(|rule| owns(&rule.tags));
    let queue = || cloud.queue.as_ref().filter(|queue| owns(&queue.tags));
    match kind {
        "aws_iam_role" => role().map(|(name, _)| name.to_owned()),
        "aws_iam_role_policy" => {
            let (name, state) = role()?;
            let policy = text("name");
            state.inline.contains_key(policy).then(|| format!("{name}:{policy}"))
        }
        "aws_iam_role_policy_attachment" => {
            let (name, state) = role()?;
            let arn = text("policy_arn");
            state.attached.contains(arn).then(|| format!("{name}/{arn}"))
        }
        "aws_eks_pod_identity_association" => {
            let association = cloud.association.as_ref().filter(|it| owns(&it.tags))?;
            Some(format!("{cluster},{}", association.id))
        }
        "aws_eks_access_entry" => {
            cloud.access_entry.as_ref().filter(|entry| owns(&entry.tags))?;
            Some(format!("{cluster}:{}", desired.node_role.arn))
        }
        "aws_eks_addon" => matches!(cloud.agent, AgentState::Addon(_))
            .then(|| format!("{cluster}:{}", text("addon_name"))),
        "aws_iam_instance_profile" => {
            cloud.profile.as_ref().filter(|profile| owns(&profile.tags))?;
            Some(text("name").to_owned())
        }
        "aws_eks_fargate_profile" => {
            cloud.fargate.as_ref().filter(|profile| owns(&profile.tags))?;
            Some(format!("{cluster}:{}", text("fargate_profile_name")))
        }
        "aws_sqs_queue" => Some(queue()?.url.clone()),
        "aws_sqs_queue_policy" => {
            let queue = queue()?;
            queue.attributes.contains_key("Policy").then(|| queue.url.clone())
        }
        "aws_cloudwatch_event_rule" => {
            rule(text("name"))?;
            Some(format!("default/{}", text("name")))
        }
        "aws_cloudwatch_event_target" => {
            let rule_of_label = desired.rules.iter().find(|rule| {
                rule.name.replace(|c: char| !c.is_ascii_alphanumeric(), "_") == label
            })?;
            let found = rule(&rule_of_label.name)?;
            let target = text("target_id");
            found.targets.contains_key(target).then(|| format!("{}/{target}", rule_of_label.name))
        }
        "aws_ec2_tag" => {
            let id = text("resource_id");
            let tags = cloud.network.get(id)?;
            tags.contains_key(DISCOVERY).then(|| format!("{id},{DISCOVERY}"))
        }
        _ => None,
    }
}
