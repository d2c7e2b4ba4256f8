//! Customer managed keys of KMS. moto keeps them with their policies and lets everybody use them;
//! whether somebody may is decided here, by the key's policy.
//!
//! Who calls in person also needs the action in their own policies, which is the gate's business.

use serde_json::json;
use tenon_iam_policies::Document;

use super::aws_state::AwsState;
use super::policy::{Call, Caller, Context, NamedDocument, evaluate_resource_policy};

/// What it takes to put a message into an encrypted queue.
pub(super) const ENCRYPT: [&str; 2] = ["kms:GenerateDataKey", "kms:Decrypt"];
/// What it takes to read one out of it.
pub(super) const DECRYPT: [&str; 1] = ["kms:Decrypt"];

/// The value of `kms:ViaService` for calls that SQS makes for somebody.
pub(super) fn via_sqs(aws_state: &AwsState) -> String {
    format!("sqs.{}.{}", aws_state.region(), aws_state.partition().dns_suffix())
}

/// Whether a key's policy lets somebody do all of this with it; the error says what is missing.
pub(super) async fn allows(
    aws_state: &AwsState,
    key: &str,
    caller: Caller<'_>,
    actions: &[&str],
    context: &Context,
) -> Result<(), String> {
    let body = json!({ "KeyId": key, "PolicyName": "default" });
    let answer = aws_state.moto().json("kms", "TrentService.GetKeyPolicy", &body).await;
    let answer = answer.map_err(|error| format!("the key {key} can't be used: {error}"))?;
    let text = answer["Policy"].as_str().unwrap_or_default();
    let document: Document = serde_json::from_str(text)
        .map_err(|error| format!("the policy of the key {key} can't be read: {error}"))?;
    let policy = NamedDocument { name: key.to_owned(), document };
    let missing = actions.iter().find(|action| {
        let call = Call { action, resource: key, context };
        !evaluate_resource_policy(&policy, caller, call).is_allowed()
    });
    match missing {
        None => Ok(()),
        Some(action) => {
            let who = match caller {
                Caller::Aws { arn, .. } => arn,
                Caller::Service(name) => name,
                Caller::Federated(provider) => provider,
            };
            Err(format!("the policy of the key {key} does not allow {who} {action}"))
        }
    }
}
