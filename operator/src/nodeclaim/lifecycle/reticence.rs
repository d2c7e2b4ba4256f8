//! What a NodeClaim waits for is said when it lasts.
//!
//! A machine that joins goes through half a dozen reasons for not being ready yet, some of them for milliseconds. Hundreds do so at once after a scale-out, when the API
//! server has most to do, and nobody could read what each write of it says. So a change of mere reasons is written once a NodeClaim has stood still for some seconds; whatever
//! comes to be true, or false, is written at once.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tenon_crds::{ConditionStatus, NodeClaimStatus};

/// So long after the last condition changed its status reasons are not written.
const STANDSTILL: SignedDuration = SignedDuration::from_secs(3);

/// How long writing `after` can wait, where `before` is what the API server has.
pub(super) fn not_yet(
    before: Option<&NodeClaimStatus>,
    after: Option<&NodeClaimStatus>,
    now: Timestamp,
) -> Option<Duration> {
    let (before, after) = (before?, after?);
    if without_reasons(before) != without_reasons(after) {
        return None;
    }
    let changes = before.conditions.iter().map(|it| it.last_transition_time.0);
    let until = changes.max()?.checked_add(STANDSTILL).ok()?;
    Duration::try_from(until.duration_since(now)).ok().filter(|left| !left.is_zero())
}

/// A status without why its unknown conditions are.
fn without_reasons(status: &NodeClaimStatus) -> NodeClaimStatus {
    let mut status = status.clone();
    for condition in &mut status.conditions {
        if condition.status == ConditionStatus::Unknown {
            condition.reason.clear();
            condition.message.clear();
        }
    }
    status
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn status(conditions: &[(&str, &str, &str, i64)], rest: &Value) -> NodeClaimStatus {
        let condition = |&(kind, status, reason, at): &(&str, &str, &str, i64)| {
            let at = Timestamp::from_second(at).unwrap().to_string();
            json!({"type": kind, "status": status, "reason": reason, "message": reason, "lastTransitionTime": at})
        };
        let mut status = rest.clone();
        status["conditions"] = conditions.iter().map(condition).collect();
        serde_json::from_value(status).unwrap()
    }

    #[test]
    fn reasons_are_said_when_they_last_and_all_else_at_once() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let launched = ("Launched", "True", "Launched", 10);
        let waits = |reason| ("Registered", "Unknown", reason, 9);
        let none = json!({});
        let known = status(&[launched, waits("NodeNotFound")], &none);
        let other_reason = status(&[launched, waits("RegistrationHookPending")], &none);
        let left = |after: &NodeClaimStatus, now| not_yet(Some(&known), Some(after), at(now));
        assert_eq!(left(&other_reason, 11), Some(Duration::from_secs(2)));
        assert_eq!(left(&other_reason, 13), None);
        let registered = status(&[launched, ("Registered", "True", "Registered", 11)], &none);
        assert_eq!(left(&registered, 11), None);
        let failed = status(&[("Launched", "True", "Other", 10), waits("NodeNotFound")], &none);
        assert_eq!(left(&failed, 11), None, "why something is true is no passing reason");
        let joined = status(&[launched, waits("NodeNotFound")], &json!({"nodeName": "n"}));
        assert_eq!(left(&joined, 11), None);
        let more = status(&[launched, waits("x"), ("Initialized", "Unknown", "y", 11)], &none);
        assert_eq!(left(&more, 11), None);
        assert_eq!(not_yet(None, Some(&known), at(11)), None);
    }
}
