//! A Terraform module in JSON. Names, tags and documents are those of `install`, so that either can
//! take over from the other.

use serde_json::{Map, Value, json};
use tenon_installer_core::desired::{Desired, RoleUse};
use tenon_installer_core::names::AGENT;
use tenon_installer_core::observe::actual::Actual;

use super::word;

mod imports;

/// `cloud`: what is in AWS. What this installation has made there is imported. If IAM knows the
/// cluster's issuer already, a second provider of the same URL could not be made.
pub(super) fn module(desired: &Desired, cloud: &Actual) -> Value {
    let has_provider = cloud.provider.is_some();
    let mut resources = Resources::default();
    for (label, role) in [("node", &desired.node_role), ("controller", &desired.controller_role)] {
        add_role(&mut resources, label, role);
    }
    let cluster = &desired.scope.cluster;
    if let Some(association) = desired.association() {
        resources.add(
            "aws_eks_pod_identity_association",
            "controller",
            json!({
                "cluster_name": cluster,
                "namespace": association.namespace,
                "service_account": association.service_account,
                "role_arn": reference(&desired.controller_role, "controller"),
                "tags": association.tags,
            }),
        );
    }
    if let Some(entry) = desired.access_entry() {
        resources.add(
            "aws_eks_access_entry",
            "node",
            json!({
                "cluster_name": cluster,
                "principal_arn": reference(&desired.node_role, "node"),
                "type": entry.kind,
                "tags": entry.tags,
            }),
        );
    }
    add_queue(&mut resources, desired);
    add_identity(&mut resources, desired, has_provider);
    add_fargate(&mut resources, desired);
    for id in &desired.discovery {
        let label = id.replace('-', "_");
        resources.add(
            "aws_ec2_tag",
            &format!("discovery_{label}"),
            json!({
                "resource_id": id,
                "key": tenon_installer_core::ownership::DISCOVERY,
                "value": cluster,
            }),
        );
    }
    let imports = imports::imports(desired, cloud, &resources.0);
    let mut module = json!({
        "terraform": {"required_version": ">= 1.5", "required_providers": {"aws": {"source": "hashicorp/aws", "version": ">= 5.40"}}},
        "provider": {"aws": {"region": desired.scope.region}},
        "resource": resources.0,
        "output": {
            "controller_role_arn": {"value": reference(&desired.controller_role, "controller")},
            "node_role_name": {"value": desired.node_role.name},
            "queue_name": {"value": desired.queue.as_ref().map(|queue| queue.name.clone()).unwrap_or_default()},
        },
    });
    if !imports.is_empty() {
        module["import"] = imports.into();
    }
    module
}

#[derive(Default)]
struct Resources(Map<String, Value>);

impl Resources {
    fn add(&mut self, kind: &str, label: &str, body: Value) {
        let of_kind = self.0.entry(kind).or_insert_with(|| json!({}));
        of_kind[label] = body;
    }
}

/// A document as Terraform reads text: `${` would begin an expression.
fn literal(text: &str) -> String {
    text.replace("${", "$${").replace("%{", "%%{")
}

/// The role's ARN: of the resource, or of the role that somebody else made.
fn reference(role: &RoleUse, label: &str) -> String {
    if role.spec.is_some() { format!("${{aws_iam_role.{label}.arn}}") } else { role.arn.clone() }
}

fn add_role(resources: &mut Resources, label: &str, role: &RoleUse) {
    let Some(spec) = &role.spec else { return };
    resources.add(
        "aws_iam_role",
        label,
        json!({
            "name": spec.name,
            "path": spec.path,
            "assume_role_policy": literal(&spec.trust.to_json()),
            "permissions_boundary": spec.boundary,
            "tags": spec.tags,
        }),
    );
    let name = format!("${{aws_iam_role.{label}.name}}");
    for (policy, document) in &spec.inline {
        resources.add(
            "aws_iam_role_policy",
            &format!("{label}_{}", word(policy)),
            json!({
                "name": policy,
                "role": name,
                "policy": literal(&document.to_json()),
            }),
        );
    }
    for arn in &spec.attached {
        let policy = word(arn.rsplit('/').next().unwrap_or(arn));
        resources.add(
            "aws_iam_role_policy_attachment",
            &format!("{label}_{policy}"),
            json!({
                "role": name,
                "policy_arn": arn,
            }),
        );
    }
}

fn add_identity(resources: &mut Resources, desired: &Desired, has_provider: bool) {
    if let Some(provider) = desired.provider().filter(|_| !has_provider) {
        resources.add(
            "aws_iam_openid_connect_provider",
            "cluster",
            json!({
                "url": provider.url,
                "client_id_list": [provider.audience],
                "tags": provider.tags,
            }),
        );
    }
    if desired.installs_agent() && desired.association().is_some() {
        resources.add(
            "aws_eks_addon",
            "pod_identity_agent",
            json!({"cluster_name": desired.scope.cluster, "addon_name": AGENT}),
        );
    }
    if let Some(profile) = &desired.profile {
        let ours = desired.node_role.spec.is_some();
        resources.add(
            "aws_iam_instance_profile",
            "node",
            json!({
                "name": profile.name,
                "path": profile.path,
                "role": if ours { "${aws_iam_role.node.name}" } else { profile.role.as_str() },
                "tags": profile.tags,
            }),
        );
    }
}

fn add_fargate(resources: &mut Resources, desired: &Desired) {
    let Some(profile) = &desired.fargate else { return };
    add_role(resources, "fargate", &desired.fargate_role);
    resources.add(
        "aws_eks_fargate_profile",
        "controller",
        json!({
            "cluster_name": desired.scope.cluster,
            "fargate_profile_name": profile.name,
            "pod_execution_role_arn": reference(&desired.fargate_role, "fargate"),
            "subnet_ids": profile.subnet_ids,
            "selector": [{"namespace": profile.namespace, "labels": profile.labels}],
            "tags": profile.tags,
        }),
    );
}

fn add_queue(resources: &mut Resources, desired: &Desired) {
    let Some(queue) = &desired.queue else { return };
    let mut body = json!({
        "name": queue.name,
        "message_retention_seconds": tenon_iam_policies::interruption::MESSAGE_RETENTION_SECONDS,
        "tags": queue.tags,
    });
    match queue.key() {
        Some((key, reuse_seconds)) => {
            body["kms_master_key_id"] = key.into();
            body["kms_data_key_reuse_period_seconds"] = reuse_seconds.into();
        }
        None => body["sqs_managed_sse_enabled"] = true.into(),
    }
    resources.add("aws_sqs_queue", "interruption", body);
    resources.add(
        "aws_sqs_queue_policy",
        "interruption",
        json!({
            "queue_url": "${aws_sqs_queue.interruption.url}",
            "policy": literal(&queue.policy.to_json()),
        }),
    );
    for rule in &desired.rules {
        let label = rule.name.replace(|c: char| !c.is_ascii_alphanumeric(), "_");
        resources.add(
            "aws_cloudwatch_event_rule",
            &label,
            json!({
                "name": rule.name,
                "event_pattern": literal(&rule.pattern),
                "tags": rule.tags,
            }),
        );
        resources.add(
            "aws_cloudwatch_event_target",
            &label,
            json!({
                "rule": format!("${{aws_cloudwatch_event_rule.{label}.name}}"),
                "target_id": rule.target_id,
                "arn": "${aws_sqs_queue.interruption.arn}",
            }),
        );
    }
}
