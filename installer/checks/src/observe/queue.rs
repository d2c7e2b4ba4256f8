//! The interruption queue, the key that encrypts it, and the rules that lead to it.

use serde_json::json;
use tenon_iam_policies::Document;
use tenon_installer_core::audit;

use super::super::observed::{KeyView, QueueView, RuleView, Seen};
use super::raw::Call;
use super::unread::Unread;
use super::{Sources, iam};

const EVENTS: &str = "events.amazonaws.com";

/// Queue and rules, of what was read for the plan.
pub(super) fn read(sources: &Sources<'_>) -> (Seen<Option<QueueView>>, Seen<Vec<RuleView>>) {
    let (Some(actual), Ok(desired)) = (sources.actual, &sources.desired) else {
        return Default::default();
    };
    let queue = actual.queue.as_ref().map(|queue| {
        let number =
            |name: &str| queue.attributes.get(name).and_then(|text| text.parse().ok()).unwrap_or(0);
        let policy = queue.attributes.get("Policy").filter(|policy| !policy.is_empty());
        QueueView {
            waiting: number("ApproximateNumberOfMessages"),
            in_flight: number("ApproximateNumberOfMessagesNotVisible"),
            senders: policy.map(|policy| iam::senders(policy)).unwrap_or_default(),
        }
    });
    let rules = desired.rules.iter().map(|rule| {
        let live = actual.rules.get(&rule.name);
        RuleView {
            name: rule.name.clone(),
            exists: live.is_some(),
            enabled: live.is_some_and(|live| live.enabled),
            to_queue: live
                .is_some_and(|live| live.targets.values().any(|arn| *arn == rule.target_arn)),
        }
    });
    (Seen::Known(queue), Seen::Known(rules.collect()))
}

/// When a command on this machine last deleted the queue of that name, by what was written down of
/// it.
pub(super) fn deleted(sources: &Sources<'_>) -> Seen<Option<i64>> {
    let Some(file) = &sources.audit else {
        return Seen::Unknown("the location of the audit log is unknown".to_owned());
    };
    let name = sources.settings.queue_name.as_deref().unwrap_or_default();
    let last = audit::read(file).map(|entries| {
        let mut entries = entries.into_iter().rev();
        let found = entries.find(|entry| {
            // The URL ends with the name, and the request with the URL.
            entry.call == "SQS DeleteQueue"
                && entry.result == "ok"
                && entry.on.trim_end_matches(['"', '}']).ends_with(&format!("/{name}"))
        });
        found.map(|entry| entry.at.as_second())
    });
    last.into()
}

/// The key that the queue is to have, or, where the queue is not ours to change, the one that it
/// has.
pub(super) async fn key(sources: &Sources<'_>) -> Seen<Option<KeyView>> {
    let (Some(actual), Ok(desired)) = (sources.actual, &sources.desired) else {
        return Seen::default();
    };
    let id = match &desired.queue {
        Some(wanted) => wanted.key().map(|(key, _)| key.to_owned()),
        None => actual.queue.as_ref().and_then(|queue| {
            queue.attributes.get("KmsMasterKeyId").filter(|key| !key.is_empty()).cloned()
        }),
    };
    let Some(id) = id else { return Seen::Known(None) };
    let open_to_events = match policy(sources, &id).await {
        Ok(policy) => Seen::Known(is_open_to_events(&policy)),
        Err(why) => Seen::Unknown(format!("kms:GetKeyPolicy on {id}: {why}")),
    };
    Seen::Known(Some(KeyView { id, open_to_events }))
}

/// The key's policy. Only a caller of the key's own account can read it.
async fn policy(sources: &Sources<'_>, key: &str) -> Result<String, Unread> {
    let region = &sources.settings.region;
    let call = Call::new(
        region,
        "kms",
        "TrentService.GetKeyPolicy",
        json!({"KeyId": key, "PolicyName": "default"}),
    );
    let output = call.send(sources.aws).await?.output()?;
    let policy = output.get("Policy").and_then(serde_json::Value::as_str);
    policy.map(str::to_owned).ok_or_else(|| "the answer has no policy".into())
}

/// Whether a key's policy lets EventBridge write into a queue that the key encrypts. Conditions are
/// not looked at: they limit it to rules or accounts.
fn is_open_to_events(policy: &str) -> bool {
    let Ok(document) = Document::parse(policy) else { return false };
    let actions = ["kms:GenerateDataKey", "kms:Decrypt"];
    actions.into_iter().all(|action| iam::lets_act(&document, EVENTS, action))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_open_only_if_its_policy_lets_event_bridge_make_data_keys_and_decrypt() {
        let statement = |service: &str, actions: &[&str]| json!({"Effect": "Allow", "Principal": {"Service": service}, "Action": actions, "Resource": "*"});
        let root = json!({"Effect": "Allow", "Principal": {"AWS": "arn:aws:iam::1:root"}, "Action": "kms:*", "Resource": "*"});
        let open = |statements: serde_json::Value| {
            is_open_to_events(
                &json!({"Version": "2012-10-17", "Statement": statements}).to_string(),
            )
        };
        assert!(open(json!([root, statement(EVENTS, &["kms:GenerateDataKey*", "kms:Decrypt"])])));
        assert!(open(json!([
            statement(EVENTS, &["kms:Decrypt"]),
            statement(EVENTS, &["kms:GenerateDataKey"]),
        ])));
        assert!(!open(json!([root])), "the account's own users are not EventBridge");
        assert!(!open(json!([statement(EVENTS, &["kms:GenerateDataKey"])])));
        assert!(!open(json!([statement("sns.amazonaws.com", &["kms:*"])])));
        assert!(!is_open_to_events("no policy"));
    }
}
