//! SQS, EventBridge, SSM, STS, Pricing, and services that have one resource per call or none.

use serde_json::Value;

use super::{Check, Resolver};
use crate::gateway::kms::via_sqs;
use crate::gateway::response::AwsError;
use crate::gateway::scaling_groups::Group;
use crate::gateway::sqs::key_actions;

pub(super) async fn checks(resolver: &Resolver<'_>) -> Result<Vec<Check>, AwsError> {
    let request = resolver.request;
    let mut checks = match request.service.as_str() {
        "sqs" => sqs(resolver).await,
        "events" => vec![events(resolver).await],
        "autoscaling" => vec![auto_scaling(resolver)],
        "ssm" => ssm(resolver),
        "s3" => vec![s3(resolver)],
        // Keys are named by their ARNs here, as the installer does.
        "kms" => vec![resolver.own(request.json["KeyId"].as_str().unwrap_or("*"))],
        "sts" => match request.params.get("RoleArn") {
            Some(role) => vec![resolver.own(role)],
            None => vec![resolver.own("*")],
        },
        "arc-zonal-shift" => {
            let named = match request.action.as_str() {
                "GetManagedResource" => request.segments().get(1).cloned(),
                "StartZonalShift" => request.json["resourceIdentifier"].as_str().map(str::to_owned),
                // Shifts are all of the bed's only cluster.
                "CancelZonalShift" | "UpdateZonalShift" => resolver
                    .aws_state
                    .cluster()
                    .map(|cluster| resolver.arn("eks", &format!("cluster/{}", cluster.name))),
                _ => None,
            };
            let check = resolver.own(named.as_deref().unwrap_or("*"));
            vec![match named {
                Some(named) => check.with("arc-zonal-shift:ResourceIdentifier", named),
                None => check,
            }]
        }
        _ => vec![resolver.own("*")],
    };
    let tags = request.request_tags().into_iter().map(|(_, key, value)| (key, value));
    if let Some(first) = checks.first_mut() {
        let mut check = first.clone().tagging(tags);
        for key in
            request.json["TagKeys"].as_array().into_iter().flatten().filter_map(Value::as_str)
        {
            check = check.with("aws:TagKeys", key);
        }
        *first = check;
    }
    Ok(checks)
}

/// A call on messages of an encrypted queue is a call on its key as well.
async fn sqs(resolver: &Resolver<'_>) -> Vec<Check> {
    let mut checks = vec![queue(resolver).await];
    let url = resolver.request.json["QueueUrl"].as_str();
    let url = url.or_else(|| resolver.request.params.get("QueueUrl")).unwrap_or_default();
    let key = resolver.aws_state.queue_key(url.rsplit('/').next().unwrap_or_default());
    if let (Some(key), Some(actions)) = (key, key_actions(&resolver.request.action)) {
        let via = via_sqs(resolver.aws_state);
        checks.extend(
            actions.iter().map(|action| resolver.check(action, &key).with("kms:ViaService", &via)),
        );
    }
    checks
}

async fn queue(resolver: &Resolver<'_>) -> Check {
    let request = resolver.request;
    let param = |name: &str| request.json[name].as_str().or_else(|| request.params.get(name));
    let url = param("QueueUrl");
    let name = url.and_then(|url| url.rsplit('/').next()).or_else(|| param("QueueName"));
    let Some(name) = name else {
        return resolver.own(resolver.arn("sqs", "*"));
    };
    // A batch is authorized as what it is a batch of.
    let action = format!("sqs:{}", request.action.trim_end_matches("Batch"));
    let check = resolver.check(&action, resolver.arn("sqs", name));
    // Messages come by the second: their calls are not worth a question for tags, which no policy
    // of ours asks for.
    let hot = [
        "ReceiveMessage",
        "DeleteMessage",
        "DeleteMessageBatch",
        "SendMessage",
        "SendMessageBatch",
        "GetQueueUrl",
        "CreateQueue",
    ];
    let Some(url) = url.filter(|_| !hot.contains(&request.action.as_str())) else {
        return check;
    };
    let body = serde_json::json!({ "QueueUrl": url });
    let tags = resolver.aws_state.moto().json("sqs", "AmazonSQS.ListQueueTags", &body).await;
    let tags = tags.ok().and_then(|answer| answer["Tags"].as_object().cloned()).unwrap_or_default();
    check.tagged(tags.iter().map(|(key, value)| (key, value.as_str().unwrap_or_default())))
}

/// A bucket, or an object of it.
fn s3(resolver: &Resolver<'_>) -> Check {
    let partition = resolver.aws_state.partition();
    let path = resolver.request.segments().join("/");
    let check = resolver.own(match path.as_str() {
        "" => "*".to_owned(),
        path => format!("arn:{partition}:s3:::{path}"),
    });
    match resolver.request.params.get("prefix") {
        Some(prefix) => check.with("s3:prefix", prefix),
        None => check,
    }
}

async fn events(resolver: &Resolver<'_>) -> Check {
    let request = resolver.request;
    let body = |field: &str| request.json[field].as_str();
    let bus = body("EventBusName")
        .filter(|bus| *bus != "default")
        .map_or(String::new(), |bus| format!("{bus}/"));
    // `Name` is the rule itself, `Rule` the rule whose targets are meant.
    let name = match request.action.as_str() {
        "PutTargets" | "RemoveTargets" | "ListTargetsByRule" => body("Rule"),
        _ => body("Name"),
    };
    let arn = match (request.action.as_str(), body("ResourceARN")) {
        (_, Some(arn)) => arn.to_owned(),
        ("ListRules" | "ListRuleNamesByTarget", _) => {
            resolver.arn("events", &format!("rule/{bus}*"))
        }
        ("PutEvents", _) => resolver.arn("events", "event-bus/default"),
        _ => match name {
            Some(name) => resolver.arn("events", &format!("rule/{bus}{name}")),
            None => "*".to_owned(),
        },
    };
    let mut check = resolver.own(&arn);
    for target in request.json["Targets"].as_array().into_iter().flatten() {
        check = check.with("events:TargetArn", target["Arn"].as_str().unwrap_or_default());
    }
    if let Some(pattern) =
        body("EventPattern").and_then(|text| serde_json::from_str::<Value>(text).ok())
    {
        for (key, field) in [("events:source", "source"), ("events:detail-type", "detail-type")] {
            for value in pattern[field].as_array().into_iter().flatten().filter_map(Value::as_str) {
                check = check.with(key, value);
            }
        }
    }
    let on_a_rule = arn.contains(":rule/") && !arn.ends_with('*');
    if !on_a_rule || matches!(request.action.as_str(), "DescribeRule" | "ListTargetsByRule") {
        return check;
    }
    let body = serde_json::json!({ "ResourceARN": arn });
    let tags =
        resolver.aws_state.moto().json("events", "AWSEvents.ListTagsForResource", &body).await;
    let tags = tags.ok().and_then(|answer| answer["Tags"].as_array().cloned()).unwrap_or_default();
    check.tagged(tags.iter().filter_map(|tag| Some((tag["Key"].as_str()?, tag["Value"].as_str()?))))
}

/// A group, by its name or by that of an instance; what only describes has no resource.
fn auto_scaling(resolver: &Resolver<'_>) -> Check {
    let request = resolver.request;
    if request.action.starts_with("Describe") {
        return resolver.own("*");
    }
    let groups = resolver.aws_state.auto_scaling.lock();
    let by_instance = || {
        let instance = request.params.get("InstanceId")?;
        let of = |group: &Group| group.instances.iter().any(|it| it == instance);
        groups.iter().find(|(_, group)| of(group)).map(|(name, _)| name.as_str())
    };
    let name = request.params.get("AutoScalingGroupName").or_else(by_instance);
    let group = name.and_then(|name| groups.get(name));
    // The middle is an id that nobody names in a policy.
    let arn = format!("autoScalingGroup:*:autoScalingGroupName/{}", name.unwrap_or("*"));
    let check = resolver.own(resolver.arn("autoscaling", &arn));
    let tags = group.into_iter().flat_map(|group| &group.tags);
    check.tagged(tags.map(|(key, value)| (key.as_str(), value.as_str())))
}

fn ssm(resolver: &Resolver<'_>) -> Vec<Check> {
    let body = &resolver.request.json;
    let names: Vec<&str> = match resolver.request.action.as_str() {
        "GetParameters" => {
            body["Names"].as_array().into_iter().flatten().filter_map(Value::as_str).collect()
        }
        "GetParametersByPath" => body["Path"].as_str().into_iter().collect(),
        _ => body["Name"].as_str().into_iter().collect(),
    };
    if names.is_empty() {
        return vec![resolver.own("*")];
    }
    names.into_iter().map(|name| resolver.own(parameter_arn(resolver, name))).collect()
}

/// ARN of a parameter. Parameters of AWS belong to no account.
fn parameter_arn(resolver: &Resolver<'_>, name: &str) -> String {
    if name.starts_with("arn:") {
        return name.to_owned();
    }
    let name = name.trim_start_matches('/');
    if name.starts_with("aws/") {
        return format!(
            "arn:{}:ssm:{}::parameter/{name}",
            resolver.aws_state.partition(),
            resolver.request.region
        );
    }
    resolver.arn("ssm", &format!("parameter/{name}"))
}
