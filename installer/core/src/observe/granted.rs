//! What is attached to a role, inline and managed, as documents.

use std::collections::BTreeMap;

use tenon_iam_policies::Document;

use crate::aws::{Aws, AwsError, Calling};
use crate::observe::state::RoleState;

/// Every policy of a role by its name. What IAM returns and can't be read as a policy is an error:
/// it would look like a missing permission otherwise.
pub async fn documents(
    aws: &Aws,
    role: &RoleState,
) -> Result<BTreeMap<String, Document>, AwsError> {
    let mut documents = inline(role)?;
    let managed = role.attached.iter().map(|arn| async move {
        let name = arn.rsplit('/').next().unwrap_or(arn).to_owned();
        Ok::<_, AwsError>((name, managed_policy(aws, arn).await?))
    });
    documents.extend(futures::future::try_join_all(managed).await?);
    Ok(documents)
}

/// The inline policies of a role by their names.
pub fn inline(role: &RoleState) -> Result<BTreeMap<String, Document>, AwsError> {
    role.inline.iter().map(|(name, text)| Ok((name.clone(), parse(name, text)?))).collect()
}

/// The default version of a managed policy.
pub async fn managed_policy(aws: &Aws, arn: &str) -> Result<Document, AwsError> {
    let policy = aws.iam.get_policy().policy_arn(arn).send().await.calling("iam:GetPolicy", arn)?;
    let version = policy.policy.and_then(|policy| policy.default_version_id).unwrap_or_default();
    let call = aws.iam.get_policy_version().policy_arn(arn).version_id(version).send().await;
    let found = call.calling("iam:GetPolicyVersion", arn)?;
    let text = found.policy_version.and_then(|version| version.document).unwrap_or_default();
    parse(arn, &text)
}

fn parse(name: &str, text: &str) -> Result<Document, AwsError> {
    Document::parse(text).map_err(|error| AwsError {
        action: "iam:GetPolicyVersion",
        resource: name.to_owned(),
        code: None,
        message: error.to_string(),
        no_answer: None,
    })
}
