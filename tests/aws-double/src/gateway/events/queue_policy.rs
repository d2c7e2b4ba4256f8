//! Whether a queue's policy lets EventBridge send to it.

use tenon_iam_policies::Document;

use super::super::policy::{
    Call, Caller, Context, NamedDocument, Verdict, evaluate_resource_policy,
};

/// EventBridge, as policies name it.
pub(super) const SERVICE: &str = "events.amazonaws.com";
const ACTION: &str = "sqs:SendMessage";

/// Checks a queue's policy for a rule's delivery; the error says what is missing.
pub(super) fn allows(
    policy: Option<&str>,
    queue_arn: &str,
    rule_arn: &str,
    account: &str,
) -> Result<(), String> {
    let refuse = |reason: String| Err(format!("the policy of the queue {queue_arn} {reason}"));
    let Some(policy) = policy else {
        return refuse(format!("is missing: it has to allow {SERVICE} {ACTION}"));
    };
    let document: Document = match serde_json::from_str(policy) {
        Ok(document) => document,
        Err(error) => return refuse(format!("can't be read: {error}")),
    };
    let policy = NamedDocument { name: queue_arn.to_owned(), document };
    let context = Context::new()
        .with("aws:SourceArn", rule_arn)
        .with("aws:SourceAccount", account)
        .with("aws:SecureTransport", "true");
    let call = Call { action: ACTION, resource: queue_arn, context: &context };
    match evaluate_resource_policy(&policy, Caller::Service(SERVICE), call) {
        Verdict::Allowed(_) => Ok(()),
        Verdict::Denied(statement) => {
            refuse(format!("denies {SERVICE} {ACTION} (statement {})", statement.sid))
        }
        Verdict::NotAllowed | Verdict::Limited(_) => {
            refuse(format!("does not allow {SERVICE} {ACTION} for the rule {rule_arn}"))
        }
    }
}
