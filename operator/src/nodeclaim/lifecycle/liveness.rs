//! Liveness: a NodeClaim whose machine is not launched or does not join in time is given up.

use jiff::{SignedDuration, Timestamp};
use tenon_crds::conditions::nodeclaim::{LAUNCHED, REGISTERED};
use tenon_crds::{ConditionStatus, NodeClaim};

use super::{LAUNCHING, REGISTERING};
use crate::state::cluster::condition_of;
use crate::watch::wire::created_at;
use crate::work_queue::Action;

/// Why a NodeClaim is given up whose machine was not launched in time, as metrics label it.
pub(super) const LAUNCH_TIMEOUT: &str = "launch_timeout";

/// Whether a NodeClaim is on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Liveness {
    /// It has joined.
    Registered,
    /// It may take so much longer.
    InTime(SignedDuration),
    /// It took too long: reason for metrics.
    TimedOut(&'static str),
}

impl Liveness {
    /// When to look again.
    pub(super) fn action(self) -> Action {
        match self {
            Self::Registered | Self::TimedOut(_) => Action::Wait,
            Self::InTime(left) => Action::After(left.unsigned_abs()),
        }
    }
}

/// How long the NodeClaim has been waiting for what it waits for. The clocks are those of the
/// conditions, which began with the NodeClaim.
pub(super) fn check(claim: &NodeClaim, now: Timestamp) -> Liveness {
    let condition = |type_| {
        condition_of(claim, type_)
            .unwrap_or((ConditionStatus::Unknown, created_at(&claim.metadata)))
    };
    let (registered, registering_since) = condition(REGISTERED);
    if registered == ConditionStatus::True {
        return Liveness::Registered;
    }
    let (launched, launching_since) = condition(LAUNCHED);
    let mut left = REGISTERING - now.duration_since(registering_since);
    if launched != ConditionStatus::True {
        let launch_left = LAUNCHING - now.duration_since(launching_since);
        if !launch_left.is_positive() {
            return Liveness::TimedOut(LAUNCH_TIMEOUT);
        }
        left = left.min(launch_left);
    }
    if left.is_positive() {
        Liveness::InTime(left)
    } else {
        Liveness::TimedOut("registration_timeout")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claims::conditions;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    const CREATED: Timestamp = Timestamp::UNIX_EPOCH;

    fn after(minutes: i64) -> Timestamp {
        CREATED.checked_add(SignedDuration::from_mins(minutes)).unwrap()
    }

    fn claim(reached: &[&str]) -> NodeClaim {
        let mut claim = NodeClaim::new("a", tenon_crds::NodeClaimSpec::default());
        claim.metadata.creation_timestamp = Some(Time(CREATED));
        let mut conditions = conditions(&mut claim, after(1));
        for condition in reached {
            conditions.set_true(condition);
        }
        claim
    }

    #[test]
    fn a_launch_may_take_five_minutes_and_joining_fifteen_from_the_creation_on() {
        for (reached, at, expected) in [
            (&[][..], 4, Liveness::InTime(SignedDuration::from_mins(1))),
            (&[], 5, Liveness::TimedOut("launch_timeout")),
            (&[LAUNCHED], 5, Liveness::InTime(SignedDuration::from_mins(10))),
            (&[LAUNCHED], 15, Liveness::TimedOut("registration_timeout")),
            (&[LAUNCHED, REGISTERED], 60, Liveness::Registered),
        ] {
            assert_eq!(check(&claim(reached), after(at)), expected, "{reached:?} {at}");
        }
    }

    #[test]
    fn a_failing_launch_does_not_restart_its_clock() {
        let mut claim = claim(&[]);
        conditions(&mut claim, after(4)).set_unknown(LAUNCHED, "LaunchFailed", "again");
        assert_eq!(check(&claim, after(5)), Liveness::TimedOut("launch_timeout"));
    }
}
