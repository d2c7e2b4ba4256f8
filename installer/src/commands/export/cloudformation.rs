//! A CloudFormation template with the names, tags and documents of `install`. It needs the
//! capability `CAPABILITY_NAMED_IAM`.

use serde_json::{Map, Value, json};
use tenon_installer_core::desired::{Desired, RoleUse};
use tenon_installer_core::names::AGENT;
use tenon_installer_core::ownership::Tags;

use super::word;

/// `has_provider`: IAM knows the cluster's issuer already; a second one of the same URL could not
/// be made.
pub(super) fn template(desired: &Desired, has_provider: bool) -> Value {
    let mut resources = Map::new();
    let fargate_role = desired.fargate.as_ref().map(|_| ("FargateRole", &desired.fargate_role));
    let roles = [("NodeRole", &desired.node_role), ("ControllerRole", &desired.controller_role)];
    for (id, role) in roles.into_iter().chain(fargate_role) {
        if let Some(body) = role_body(role) {
            resources.insert(id.to_owned(), body);
        }
    }
    let cluster = &desired.scope.cluster;
    let mut add = |id: String, kind: &str, properties: Value| {
        resources.insert(id, json!({"Type": kind, "Properties": properties}));
    };
    if let Some(association) = desired.association() {
        add(
            "ControllerAssociation".to_owned(),
            "AWS::EKS::PodIdentityAssociation",
            json!({
                "ClusterName": cluster,
                "Namespace": association.namespace,
                "ServiceAccount": association.service_account,
                "RoleArn": arn(&desired.controller_role, "ControllerRole"),
                "Tags": tags(&association.tags),
            }),
        );
    }
    if let Some(entry) = desired.access_entry() {
        add(
            "NodeAccess".to_owned(),
            "AWS::EKS::AccessEntry",
            json!({
                "ClusterName": cluster,
                "PrincipalArn": arn(&desired.node_role, "NodeRole"),
                "Type": entry.kind,
                "Tags": tags(&entry.tags),
            }),
        );
    }
    if let Some(queue) = &desired.queue {
        let mut properties = json!({
            "QueueName": queue.name,
            "MessageRetentionPeriod": tenon_iam_policies::interruption::MESSAGE_RETENTION_SECONDS,
            "Tags": tags(&queue.tags),
        });
        match queue.key() {
            Some((key, reuse_seconds)) => {
                properties["KmsMasterKeyId"] = key.into();
                properties["KmsDataKeyReusePeriodSeconds"] = reuse_seconds.into();
            }
            None => properties["SqsManagedSseEnabled"] = true.into(),
        }
        add("InterruptionQueue".to_owned(), "AWS::SQS::Queue", properties);
        add(
            "InterruptionQueuePolicy".to_owned(),
            "AWS::SQS::QueuePolicy",
            json!({
                "Queues": [{"Ref": "InterruptionQueue"}],
                "PolicyDocument": queue.policy,
            }),
        );
    }
    if let Some(provider) = desired.provider().filter(|_| !has_provider) {
        add(
            "ClusterIssuer".to_owned(),
            "AWS::IAM::OIDCProvider",
            json!({
                "Url": provider.url,
                "ClientIdList": [provider.audience],
                "Tags": tags(&provider.tags),
            }),
        );
    }
    if desired.installs_agent() && desired.association().is_some() {
        add(
            "PodIdentityAgent".to_owned(),
            "AWS::EKS::Addon",
            json!({"ClusterName": cluster, "AddonName": AGENT}),
        );
    }
    if let Some(profile) = &desired.profile {
        let role = match &desired.node_role.spec {
            Some(_) => json!({"Ref": "NodeRole"}),
            None => json!(profile.role),
        };
        add(
            "NodeProfile".to_owned(),
            "AWS::IAM::InstanceProfile",
            json!({"InstanceProfileName": profile.name, "Path": profile.path, "Roles": [role]}),
        );
    }
    if let Some(profile) = &desired.fargate {
        add(
            "ControllerFargate".to_owned(),
            "AWS::EKS::FargateProfile",
            json!({
                "ClusterName": cluster,
                "FargateProfileName": profile.name,
                "PodExecutionRoleArn": arn(&desired.fargate_role, "FargateRole"),
                "Subnets": profile.subnet_ids,
                "Selectors": [{"Namespace": profile.namespace, "Labels": tags(&profile.labels)}],
                "Tags": tags(&profile.tags),
            }),
        );
    }
    for rule in &desired.rules {
        let pattern: Value = serde_json::from_str(&rule.pattern).unwrap_or_default();
        add(
            format!("Rule{}", word(&rule.name)),
            "AWS::Events::Rule",
            json!({
                "Name": rule.name,
                "EventPattern": pattern,
                "Targets": [{"Id": rule.target_id, "Arn": {"Fn::GetAtt": ["InterruptionQueue", "Arn"]}}],
            }),
        );
    }
    json!({
        "AWSTemplateFormatVersion": "2010-09-09",
        "Description": format!("AWS resources of Tenon for cluster {cluster}"),
        "Resources": resources,
        "Outputs": {
            "ControllerRoleArn": {"Value": arn(&desired.controller_role, "ControllerRole")},
            "NodeRoleName": {"Value": desired.node_role.name},
        },
    })
}

fn tags(tags: &Tags) -> Vec<Value> {
    tags.iter().map(|(key, value)| json!({"Key": key, "Value": value})).collect()
}

fn arn(role: &RoleUse, id: &str) -> Value {
    if role.spec.is_some() { json!({"Fn::GetAtt": [id, "Arn"]}) } else { json!(role.arn) }
}

fn role_body(role: &RoleUse) -> Option<Value> {
    let spec = role.spec.as_ref()?;
    let policies = spec
        .inline
        .iter()
        .map(|(name, document)| json!({"PolicyName": name, "PolicyDocument": document}))
        .collect::<Vec<_>>();
    let mut properties = json!({
        "RoleName": spec.name,
        "Path": spec.path,
        "AssumeRolePolicyDocument": spec.trust,
        "ManagedPolicyArns": spec.attached,
        "Policies": policies,
        "Tags": tags(&spec.tags),
    });
    if let Some(boundary) = &spec.boundary {
        properties["PermissionsBoundary"] = json!(boundary);
    }
    Some(json!({"Type": "AWS::IAM::Role", "Properties": properties}))
}
