//! The statements of the controller's policies, and what needed them: a permission that nothing
//! ever needs is one too many, unless there is a reason.

use std::collections::BTreeSet;

use serde::Serialize;
use tenon_aws_double::authorization::usage::StatementUse;
use tenon_iam_policies::controller::ControllerPolicy;

/// Statements that the demo does not need, and why they are shipped all the same. The test of the
/// demo holds the two together.
const UNNEEDED: &[(&str, &str)] = &[(
    "AllowScopedInstanceProfileTagActions",
    "for profiles that another version made with fewer tags; those of the demo have all tags from the start",
)];

/// A statement and what it was needed for.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Statement {
    /// Name of the policy.
    pub policy: String,
    /// Id of the statement.
    pub sid: String,
    /// The calls that needed it: `ec2:CreateFleet`.
    pub calls: BTreeSet<String>,
    /// Why it is shipped although nothing needed it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shipped_because: Option<&'static str>,
}

/// The controller's statements, of all that the gate has seen.
pub(crate) fn of_controller(used: Vec<StatementUse>) -> Vec<Statement> {
    let names: BTreeSet<&str> = ControllerPolicy::ALL.iter().map(|part| part.name()).collect();
    used.into_iter()
        .filter(|statement| names.contains(statement.policy.as_str()))
        .map(|StatementUse { role: _, policy, sid, checks: _, calls }| {
            let known = UNNEEDED.iter().find(|(unneeded, _)| *unneeded == sid);
            let shipped_because = known.filter(|_| calls.is_empty()).map(|(_, why)| *why);
            Statement { policy, sid, calls, shipped_because }
        })
        .collect()
}

/// What does not fit: statements that nothing needed, without a reason, and reasons for what is
/// needed or not there.
pub fn problems(statements: &[Statement]) -> Vec<String> {
    let unneeded = statements.iter().filter(|it| it.calls.is_empty());
    let without_reason = unneeded.filter(|it| it.shipped_because.is_none());
    let found = without_reason.map(|it| format!("nothing needed {} of {}", it.sid, it.policy));
    let stale =
        UNNEEDED.iter().filter_map(|(sid, _)| match statements.iter().find(|it| it.sid == *sid) {
            None => Some(format!("{sid} is not shipped any more")),
            Some(it) if !it.calls.is_empty() => Some(format!("{sid} was needed by {:?}", it.calls)),
            Some(_) => None,
        });
    found.chain(stale).collect()
}
