//! Whether a queue's policy lets EventBridge send to it.

use serde_json::Value;

use super::super::filters::wildcard;

const SERVICE: &str = "events.amazonaws.com";
const ACTION: &str = "sqs:SendMessage";

/// Checks a queue's policy for a rule's delivery; the error says what is missing.
pub(super) fn allows(
    policy: Option<&str>,
    queue_arn: &str,
    rule_arn: &str,
    account: &str,
) -> Result<(), String> {
    let refuse = |reason: &str| Err(format!("the policy of the queue {queue_arn} {reason}"));
    let Some(policy) = policy else {
        return refuse(&format!("is missing: it has to allow {SERVICE} {ACTION}"));
    };
    let Ok(policy) = serde_json::from_str::<Value>(policy) else { return refuse("is not JSON") };
    let statements = match &policy["Statement"] {
        Value::Array(statements) => statements.clone(),
        one => vec![one.clone()],
    };
    let mut allowed = false;
    for statement in &statements {
        let applies = principal(&statement["Principal"])
            && texts(&statement["Action"])
                .iter()
                .any(|action| wildcard(&action.to_lowercase(), &ACTION.to_lowercase()))
            && (statement["Resource"].is_null()
                || texts(&statement["Resource"])
                    .iter()
                    .any(|resource| wildcard(resource, queue_arn)));
        if !applies || !conditions(&statement["Condition"], rule_arn, account)? {
            continue;
        }
        match statement["Effect"].as_str() {
            Some("Deny") => return refuse(&format!("denies {SERVICE} {ACTION}")),
            Some("Allow") => allowed = true,
            _ => {}
        }
    }
    if allowed {
        Ok(())
    } else {
        refuse(&format!("does not allow {SERVICE} {ACTION} for the rule {rule_arn}"))
    }
}

fn texts(value: &Value) -> Vec<String> {
    match value {
        Value::Array(items) => {
            items.iter().filter_map(|item| Some(item.as_str()?.to_owned())).collect()
        }
        Value::String(text) => vec![text.clone()],
        _ => vec![],
    }
}

fn principal(value: &Value) -> bool {
    value == "*"
        || texts(&value["Service"]).iter().any(|service| service == SERVICE)
        || texts(&value["AWS"]).iter().any(|aws| aws == "*")
}

fn conditions(condition: &Value, rule_arn: &str, account: &str) -> Result<bool, String> {
    for (operator, keys) in condition.as_object().into_iter().flatten() {
        for (key, wanted) in keys.as_object().into_iter().flatten() {
            let present = match key.to_lowercase().as_str() {
                "aws:sourcearn" => rule_arn,
                "aws:sourceaccount" => account,
                "aws:securetransport" => "true",
                _ => {
                    return Err(format!(
                        "the queue's policy has a condition on {key}, which the double doesn't know"
                    ));
                }
            };
            let wanted = match wanted {
                Value::Bool(flag) => vec![flag.to_string()],
                other => texts(other),
            };
            let met = match operator.trim_end_matches("IfExists") {
                "StringEquals" | "ArnEquals" | "ArnLike" | "StringLike" => {
                    let exact = operator.starts_with("StringEquals");
                    wanted.iter().any(|pattern| {
                        if exact { pattern == present } else { wildcard(pattern, present) }
                    })
                }
                "StringNotEquals" | "ArnNotEquals" | "ArnNotLike" => {
                    !wanted.iter().any(|pattern| wildcard(pattern, present))
                }
                "Bool" => wanted.iter().any(|flag| flag.eq_ignore_ascii_case(present)),
                _ => {
                    return Err(format!(
                        "the queue's policy has a condition with {operator}, which the double doesn't know"
                    ));
                }
            };
            if !met {
                return Ok(false);
            }
        }
    }
    Ok(true)
}
