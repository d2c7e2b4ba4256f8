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

/// A key that somebody may not use.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum KeyRefusal {
    /// There is none, or none that can be used.
    #[error("the key {key} can't be used: {why}")]
    Unusable {
        /// As the caller names it.
        key: String,
        /// What moto says.
        why: String,
    },
    /// Its policy is no policy.
    #[error("the policy of the key {key} can't be read: {why}")]
    Unreadable {
        /// As the caller names it.
        key: String,
        /// What is wrong with it.
        why: String,
    },
    /// Its policy lacks a permission.
    #[error("the policy of the key {key} does not allow {who} {action}")]
    NotAllowed {
        /// As the caller names it.
        key: String,
        /// Who calls.
        who: String,
        /// What is missing.
        action: String,
    },
}

/// Whether a key's policy lets somebody do all of this with it.
pub(super) async fn allows(
    aws_state: &AwsState,
    key: &str,
    caller: Caller<'_>,
    actions: &[&str],
    context: &Context,
) -> Result<(), KeyRefusal> {
    let body = json!({ "KeyId": key, "PolicyName": "default" });
    let answer = aws_state.moto().json("kms", "TrentService.GetKeyPolicy", &body).await;
    let named = || key.to_owned();
    let answer =
        answer.map_err(|error| KeyRefusal::Unusable { key: named(), why: error.to_string() })?;
    let text = answer["Policy"].as_str().unwrap_or_default();
    let document: Document = serde_json::from_str(text)
        .map_err(|error| KeyRefusal::Unreadable { key: named(), why: error.to_string() })?;
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
            let (who, action) = (who.to_owned(), (*action).to_owned());
            Err(KeyRefusal::NotAllowed { key: named(), who, action })
        }
    }
}
