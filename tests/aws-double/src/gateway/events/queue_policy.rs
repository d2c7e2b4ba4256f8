//! Whether a queue's policy lets EventBridge send to it.

use tenon_iam_policies::Document;

use super::super::policy::{
    Call, Caller, Context, NamedDocument, Verdict, evaluate_resource_policy,
};

/// EventBridge, as policies name it.
pub(super) const SERVICE: &str = "events.amazonaws.com";
const ACTION: &str = "sqs:SendMessage";

/// A queue whose policy does not let EventBridge send to it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the policy of the queue {queue} {why}")]
pub(super) struct QueueRefusal {
    queue: String,
    why: Why,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
enum Why {
    #[error("is missing: it has to allow {SERVICE} {ACTION}")]
    Missing,
    #[error("can't be read: {0}")]
    Unreadable(String),
    #[error("denies {SERVICE} {ACTION} (statement {0})")]
    Denied(String),
    #[error("does not allow {SERVICE} {ACTION} for the rule {0}")]
    NotAllowed(String),
}

/// Checks a queue's policy for a rule's delivery.
pub(super) fn allows(
    policy: Option<&str>,
    queue_arn: &str,
    rule_arn: &str,
    account: &str,
) -> Result<(), QueueRefusal> {
    let refuse = |why: Why| Err(QueueRefusal { queue: queue_arn.to_owned(), why });
    let Some(policy) = policy else {
        return refuse(Why::Missing);
    };
    let document: Document = match serde_json::from_str(policy) {
        Ok(document) => document,
        Err(error) => return refuse(Why::Unreadable(error.to_string())),
    };
    let policy = NamedDocument { name: queue_arn.to_owned(), document };
    let context = Context::new()
        .with("aws:SourceArn", rule_arn)
        .with("aws:SourceAccount", account)
        .with("aws:SecureTransport", "true");
    let call = Call { action: ACTION, resource: queue_arn, context: &context };
    match evaluate_resource_policy(&policy, Caller::Service(SERVICE), call) {
        Verdict::Allowed(_) => Ok(()),
        Verdict::Denied(statement) => refuse(Why::Denied(statement.sid.clone())),
        Verdict::NotAllowed | Verdict::Limited(_) => refuse(Why::NotAllowed(rule_arn.to_owned())),
    }
}
