//! A CloudFormation template with the names, tags and documents of `install`. It needs the capability `CAPABILITY_NAMED_IAM`.

use serde_json::{Map, Value, json};

use super::word;
use crate::desired::{Desired, RoleUse};
use crate::ownership::Tags;

pub(super) fn template(desired: &Desired) -> Value {
    let mut resources = Map::new();
    for (id, role) in
        [("NodeRole", &desired.node_role), ("ControllerRole", &desired.controller_role)]
    {
        if let Some(body) = role_body(role) {
            resources.insert(id.to_owned(), body);
        }
    }
    let cluster = &desired.scope.cluster;
    let mut add = |id: String, kind: &str, properties: Value| {
        resources.insert(id, json!({"Type": kind, "Properties": properties}));
    };
    if let Some(association) = &desired.association {
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
    if let Some(entry) = &desired.access_entry {
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
        add(
            "InterruptionQueue".to_owned(),
            "AWS::SQS::Queue",
            json!({
                "QueueName": queue.name,
                "MessageRetentionPeriod": tenon_iam_policies::interruption::MESSAGE_RETENTION_SECONDS,
                "SqsManagedSseEnabled": true,
                "Tags": tags(&queue.tags),
            }),
        );
        add(
            "InterruptionQueuePolicy".to_owned(),
            "AWS::SQS::QueuePolicy",
            json!({
                "Queues": [{"Ref": "InterruptionQueue"}],
                "PolicyDocument": queue.policy,
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
        "Description": format!("What Tenon needs in AWS for cluster {cluster}"),
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
