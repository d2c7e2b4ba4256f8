//! What a NodeClaim waits for is said when it lasts.
//!
//! A machine that joins goes through half a dozen reasons for not being ready yet, some of them for
//! milliseconds. Hundreds do so at once after a scale-out, when the API server has most to do, and
//! nobody could read what each write of it says. So a mere reason is written once it has stood for
//! some seconds; whatever comes to be true, or false, is written at once.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use tenon_crds::conditions::nodeclaim::LAUNCHED;
use tenon_crds::{Condition, ConditionStatus, NodeClaimStatus};

/// A reason is written when it has stood for so long.
pub(super) const STANDSTILL: SignedDuration = SignedDuration::from_secs(10);

/// Reasons that are not written yet, by the names of their NodeClaims.
#[derive(Debug, Default)]
pub(super) struct Reticence(Mutex<BTreeMap<String, Unsaid>>);

/// What a NodeClaim has waited for since when.
#[derive(Debug)]
struct Unsaid {
    reasons: Vec<(String, String)>,
    since: Timestamp,
}

impl Reticence {
    /// How long writing `after` can wait, where `before` is what the API server has; `None` when it
    /// is to be written now, if it differs at all.
    pub(super) fn can_wait(
        &self,
        claim: &str,
        before: Option<&NodeClaimStatus>,
        after: Option<&NodeClaimStatus>,
        now: Timestamp,
    ) -> Option<Duration> {
        let Some(reasons) = before.zip(after).and_then(|(before, after)| news(before, after))
        else {
            self.forget(claim);
            return None;
        };
        let mut unsaid = self.0.lock();
        let known = unsaid.get(claim).filter(|known| known.reasons == reasons);
        let since = known.map_or(now, |known| known.since);
        unsaid.insert(claim.to_owned(), Unsaid { reasons, since });
        let left = STANDSTILL - now.duration_since(since);
        Duration::try_from(left).ok().filter(|left| !left.is_zero())
    }

    /// Forgets a NodeClaim.
    pub(super) fn forget(&self, claim: &str) {
        self.0.lock().remove(claim);
    }
}

/// The reasons in `after`, if nothing but reasons differs.
fn news(before: &NodeClaimStatus, after: &NodeClaimStatus) -> Option<Vec<(String, String)>> {
    let mere = before != after && without_reasons(before) == without_reasons(after);
    mere.then(|| reasons(after))
}

/// Why unknown conditions are unknown.
fn reasons(status: &NodeClaimStatus) -> Vec<(String, String)> {
    let unknown = status.conditions.iter().filter(|it| is_passing(it));
    unknown.map(|it| (it.reason.clone(), it.message.clone())).collect()
}

/// Whether it says what is waited for. Why a launch failed is told with each attempt, which has its
/// own back-off.
fn is_passing(condition: &Condition) -> bool {
    condition.status == ConditionStatus::Unknown && condition.type_ != LAUNCHED
}

/// A status without what is waited for.
fn without_reasons(status: &NodeClaimStatus) -> NodeClaimStatus {
    let mut status = status.clone();
    for condition in &mut status.conditions {
        if is_passing(condition) {
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
        let reticence = Reticence::default();
        let at = |second| Timestamp::from_second(second).unwrap();
        let launched = ("Launched", "True", "Launched", 10);
        let waits = |reason| ("Registered", "Unknown", reason, 9);
        let none = json!({});
        let known = status(&[launched, waits("NodeNotFound")], &none);
        let other_reason = status(&[launched, waits("RegistrationHookPending")], &none);
        let left = |after: &NodeClaimStatus, now| {
            reticence.can_wait("a", Some(&known), Some(after), at(now))
        };
        let seconds = |seconds| Some(Duration::from_secs(seconds));
        assert_eq!(left(&other_reason, 50), seconds(10));
        assert_eq!(left(&other_reason, 53), seconds(7));
        let third_reason = status(&[launched, waits("Third")], &none);
        assert_eq!(left(&third_reason, 55), seconds(10), "it has not stood yet");
        assert_eq!(left(&third_reason, 65), None);
        assert_eq!(left(&known, 66), None, "nothing is to be said any more");
        assert_eq!(left(&third_reason, 67), seconds(10));

        let registered = status(&[launched, ("Registered", "True", "Registered", 11)], &none);
        assert_eq!(left(&registered, 11), None);
        let failed = status(&[("Launched", "True", "Other", 10), waits("NodeNotFound")], &none);
        assert_eq!(left(&failed, 11), None, "why something is true is no passing reason");
        let joined = status(&[launched, waits("NodeNotFound")], &json!({"nodeName": "n"}));
        assert_eq!(left(&joined, 11), None);
        let more = status(&[launched, waits("x"), ("Initialized", "Unknown", "y", 11)], &none);
        assert_eq!(left(&more, 11), None);
        let failing = |reason| status(&[("Launched", "Unknown", reason, 9)], &none);
        let (failed, again) = (failing("one"), failing("another"));
        assert_eq!(reticence.can_wait("a", Some(&failed), Some(&again), at(11)), None);
        assert_eq!(reticence.can_wait("a", None, Some(&known), at(11)), None);
    }
}
