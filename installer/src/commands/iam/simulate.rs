//! Asks IAM what a role may do: calls that must be allowed, and calls that break one condition and
//! must not be.

use std::collections::BTreeMap;

use aws_sdk_iam::types::{ContextEntry, ContextKeyTypeEnum};
use serde::Serialize;
use tenon_iam_policies::cases::{Case, Expected};
use tenon_installer_core::aws::{Aws, AwsError};
use tenon_installer_core::observe::iam;

/// A call that came out otherwise than it has to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Surprise {
    /// The statement that the call was made from.
    pub(super) statement: Option<String>,
    pub(super) action: String,
    /// On what.
    pub(super) resource: String,
    /// What is wrong.
    pub(super) problem: String,
}

/// Calls with the same resource and facts are asked about together.
type Group = (String, Vec<(String, Vec<String>)>);

/// Simulates all cases; the surprises among them, and how many were asked.
pub(super) async fn run(
    aws: &Aws,
    role_arn: &str,
    cases: &[Case],
) -> Result<(Vec<Surprise>, usize), AwsError> {
    let mut groups: BTreeMap<Group, Vec<&Case>> = BTreeMap::new();
    for case in cases {
        groups.entry((case.resource.clone(), case.context.clone())).or_default().push(case);
    }
    let mut surprises = Vec::new();
    for ((resource, context), cases) in &groups {
        let mut actions = cases.iter().map(|case| case.action.clone()).collect::<Vec<_>>();
        actions.sort();
        actions.dedup();
        let context = context.iter().map(entry).collect();
        let results = iam::simulate(aws, role_arn, actions, resource, context).await?;
        let allowed = results
            .iter()
            .map(|result| {
                (result.eval_action_name().to_owned(), result.eval_decision().as_str() == "allowed")
            })
            .collect::<BTreeMap<_, _>>();
        surprises.extend(
            cases.iter().filter_map(|case| surprise(case, allowed.get(&case.action).copied())),
        );
    }
    Ok((surprises, cases.len()))
}

fn entry((key, values): &(String, Vec<String>)) -> ContextEntry {
    let kind = match (key.as_str(), values.len()) {
        ("kms:GrantIsForAWSResource", _) => ContextKeyTypeEnum::Boolean,
        ("aws:TagKeys", _) => ContextKeyTypeEnum::StringList,
        _ => ContextKeyTypeEnum::String,
    };
    ContextEntry::builder()
        .context_key_name(key)
        .set_context_key_values(Some(values.clone()))
        .context_key_type(kind)
        .build()
}

/// What is wrong when a call is allowed or not; `None` when IAM says neither.
fn surprise(case: &Case, allowed: Option<bool>) -> Option<Surprise> {
    let problem = match (&case.expected, allowed) {
        (_, None) => "IAM's simulation returned no result for it".to_owned(),
        (Expected::Allowed, Some(true)) | (Expected::Refused { .. }, Some(false)) => return None,
        (Expected::Allowed, Some(false)) => "it is denied, but the operator needs it".to_owned(),
        (Expected::Refused { key }, Some(true)) => {
            format!("it is allowed without {key}: some policy grants more than is needed")
        }
    };
    Some(Surprise {
        statement: case.sid.clone(),
        action: case.action.clone(),
        resource: case.resource.clone(),
        problem,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_a_denied_need_and_a_needless_grant_are_surprises() {
        let case = |expected| Case {
            sid: Some("S".into()),
            action: "ec2:TerminateInstances".into(),
            resource: "*".into(),
            context: vec![],
            expected,
        };
        assert_eq!(surprise(&case(Expected::Allowed), Some(true)), None);
        assert!(
            surprise(&case(Expected::Allowed), Some(false)).unwrap().problem.contains("denied")
        );
        let refused = || case(Expected::Refused { key: "aws:ResourceTag/x".into() });
        assert_eq!(surprise(&refused(), Some(false)), None);
        assert!(
            surprise(&refused(), Some(true)).unwrap().problem.contains("without aws:ResourceTag/x")
        );
        for case in [case(Expected::Allowed), refused()] {
            assert!(surprise(&case, None).unwrap().problem.contains("returned no result"));
        }
    }
}
