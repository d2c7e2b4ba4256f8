//! NodeClaims whose nodes come to rest: when they will be `Consolidatable`, unless a pod comes or
//! goes before that.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

/// Nobody waits longer for a condition that is due: the API server may refuse it every time.
const OVERDUE: SignedDuration = SignedDuration::from_secs(10);

/// NodeClaims that have yet to be `Consolidatable`, by name, and from when on they will be.
#[derive(Debug, Default)]
pub(crate) struct Settling {
    claims: Mutex<BTreeMap<String, Timestamp>>,
    changed: Notify,
}

impl Settling {
    /// A NodeClaim will be `Consolidatable` at `when`; with `None` it already is, or won't be
    /// before something else changes.
    pub(crate) fn note(&self, claim: &str, when: Option<Timestamp>) {
        let mut claims = self.claims.lock();
        let before = match when {
            Some(when) => claims.insert(claim.to_owned(), when),
            None => claims.remove(claim),
        };
        if before.is_some() && before != when {
            self.changed.notify_waiters();
        }
    }

    /// Until when, at most, a NodeClaim is waited for that will be `Consolidatable` at `time` or
    /// before; `None` when there is none. One that is due counts for a while: its condition is
    /// being written.
    pub(crate) fn settles_until(&self, now: Timestamp, time: Timestamp) -> Option<Timestamp> {
        let claims = self.claims.lock();
        let due = claims.values().filter(|when| **when <= time);
        let waited_for = due.filter_map(|when| when.checked_add(OVERDUE).ok());
        waited_for.max().filter(|until| *until > now)
    }

    /// Ends when a NodeClaim is not expected any more, or at another time, from when this is
    /// called.
    pub(crate) fn progress(&self) -> Notified<'_> {
        self.changed.notified()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_nodeclaim_counts_until_its_condition_is_written() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let settling = Settling::default();
        let by = |seconds: [i64; 4]| {
            seconds.map(|by| settling.settles_until(at(0), at(by)).map(Timestamp::as_second))
        };
        assert_eq!(by([100; 4]), [None; 4]);
        settling.note("a", Some(at(20)));
        settling.note("b", Some(at(30)));
        assert_eq!(by([19, 20, 25, 40]), [None, Some(30), Some(30), Some(40)]);
        // A pod came.
        settling.note("a", Some(at(50)));
        settling.note("b", None);
        assert_eq!(by([29, 30, 49, 50]), [None, None, None, Some(60)]);
    }

    #[test]
    fn a_condition_that_is_not_written_is_not_waited_for_for_ever() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let settling = Settling::default();
        settling.note("refused", Some(at(20)));
        let until = [25, 29, 30].map(|now| settling.settles_until(at(now), at(now + 15)));
        assert_eq!(until, [Some(at(30)), Some(at(30)), None]);
    }
}
