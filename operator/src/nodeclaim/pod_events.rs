//! `status.lastPodEventTime`: when a pod last came to a node or left it, for `consolidateAfter`.
//!
//! Every event counts at once; few are worth a write of their own. The time goes into the status
//! together with the condition Consolidatable, which follows from it, and by itself only as often
//! as the next leader has to know of it, to whom nothing else tells it.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use tenon_crds::conditions::nodeclaim::INITIALIZED;
use tenon_crds::{ConditionStatus, NodeClaim, NodePool};

use crate::state::cluster::{condition_of, name};

/// An event within this time after the one that is written, or after the initialisation where none
/// is, is not worth a write.
const PRECISION: SignedDuration = SignedDuration::from_secs(10);

/// The same where no decision depends on it; and the time after the initialisation by which the
/// first event is written in any case, since people look for it.
const LEISURE: SignedDuration = SignedDuration::from_mins(1);

/// When pods last came to the nodes of NodeClaims or left them, by the NodeClaims' names.
#[derive(Debug, Default)]
pub(super) struct PodEvents(Mutex<BTreeMap<String, Timestamp>>);

impl PodEvents {
    /// Takes an event in; answers whether it is news, to the second.
    pub(super) fn note(&self, claim: String, at: Timestamp) -> bool {
        // Whole seconds, because that is what will be read back.
        let at = Timestamp::from_second(at.as_second()).unwrap_or(at);
        self.0.lock().insert(claim, at) != Some(at)
    }

    /// The latest event of a NodeClaim, written or not.
    pub(super) fn latest(&self, claim: &NodeClaim) -> Option<Timestamp> {
        self.0.lock().get(&name(&claim.metadata)).copied().max(written(claim))
    }

    /// Forgets a NodeClaim that is gone or going.
    pub(super) fn forget(&self, claim: &str) {
        self.0.lock().remove(claim);
    }
}

/// How long writing the latest event of a NodeClaim by itself can wait; `None` when it need not be
/// written.
pub(super) fn can_wait(
    claim: &NodeClaim,
    pool: &NodePool,
    latest: Option<Timestamp>,
    now: Timestamp,
) -> Option<Duration> {
    let Some((ConditionStatus::True, initialized)) = condition_of(claim, INITIALIZED) else {
        return None;
    };
    let written = written(claim);
    let latest = latest.filter(|latest| Some(*latest) != written)?;
    if latest.duration_since(written.unwrap_or(initialized)) >= precision(pool) {
        return Some(Duration::ZERO);
    }
    let left = LEISURE - now.duration_since(initialized);
    written.is_none().then(|| left.try_into().unwrap_or_default())
}

fn precision(pool: &NodePool) -> SignedDuration {
    let after = pool.spec.disruption.consolidate_after.duration();
    let counts = !pool.is_static() && after.is_some_and(|after| after.as_nanos() > 0);
    if counts { PRECISION } else { LEISURE }
}

/// The event that the status has.
fn written(claim: &NodeClaim) -> Option<Timestamp> {
    Some(claim.status.as_ref()?.last_pod_event_time.as_ref()?.0)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::testing::idle;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    /// A NodeClaim that was initialised at 100.
    fn claim(written: Option<i64>) -> NodeClaim {
        let [claim, _] = idle::machine("a", "default");
        let mut claim: NodeClaim = serde_json::from_value(claim).unwrap();
        let status = claim.status.as_mut().unwrap();
        for condition in &mut status.conditions {
            condition.last_transition_time = at(100).into();
        }
        status.last_pod_event_time = written.map(|second| at(second).into());
        claim
    }

    #[test]
    fn the_latest_event_counts_whether_or_not_it_is_written() {
        let events = PodEvents::default();
        assert_eq!(events.latest(&claim(Some(110))), Some(at(110)));
        let noted = [1200, 1500, 2100].map(|millis| {
            events.note("a".to_owned(), Timestamp::from_millisecond(millis * 100).unwrap())
        });
        assert_eq!(noted, [true, true, true]);
        assert!(!events.note("a".to_owned(), Timestamp::from_millisecond(210_900).unwrap()));
        assert_eq!(events.latest(&claim(Some(110))), Some(at(210)));
        assert_eq!(events.latest(&claim(Some(220))), Some(at(220)));
        events.forget("a");
        assert_eq!(events.latest(&claim(None)), None);
    }

    #[test]
    fn an_event_is_written_by_itself_when_a_new_leader_would_miss_it_or_people_do() {
        let left = |seconds| Some(Duration::from_secs(seconds));
        for (consolidate_after, written, latest, now, expected) in [
            // Pods come when a node opens: that is known from its initialisation.
            ("30s", None, 103, 104, left(56)),
            ("30s", None, 103, 170, left(0)),
            ("30s", None, 111, 111, left(0)),
            ("30s", Some(200), 200, 900, None),
            ("30s", Some(200), 209, 900, None),
            ("30s", Some(200), 210, 210, left(0)),
            // Nothing depends on it.
            ("0s", Some(200), 259, 259, None),
            ("Never", Some(200), 259, 900, None),
            ("Never", Some(200), 260, 260, left(0)),
            ("0s", None, 103, 104, left(56)),
        ] {
            let disruption = json!({"disruption": {"consolidateAfter": consolidate_after}});
            let pool = serde_json::from_value(idle::pool("default", disruption)).unwrap();
            let wait = can_wait(&claim(written), &pool, Some(at(latest)), at(now));
            assert_eq!(wait, expected, "{consolidate_after} {written:?} {latest} {now}");
        }
    }

    #[test]
    fn nobody_asks_for_events_before_the_initialisation() {
        let mut claim = claim(None);
        claim.status.as_mut().unwrap().conditions.clear();
        let pool = serde_json::from_value(idle::pool("default", json!({}))).unwrap();
        assert_eq!(can_wait(&claim, &pool, Some(at(900)), at(900)), None);
    }
}
