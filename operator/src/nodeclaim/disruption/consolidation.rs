//! Consolidatable: no pod came or went for as long as the NodePool says.

use jiff::Timestamp;
use tenon_crds::conditions::nodeclaim::{CONSOLIDATABLE, INITIALIZED};
use tenon_crds::{ConditionStatus, NodeClaim, NodePool};

use crate::claims::conditions;
use crate::state::cluster::condition_of;
use crate::work_queue::Action;

/// Sets or clears the condition, and says when to look again. `last_pod_event` is when a pod last
/// came or went.
pub(super) fn update(
    claim: &mut NodeClaim,
    pool: &NodePool,
    last_pod_event: Option<Timestamp>,
    now: Timestamp,
) -> Action {
    let wait = until(claim, pool, last_pod_event, now);
    let mut set = conditions(claim, now);
    match wait {
        Wait::Nothing => {
            set.set_true(CONSOLIDATABLE);
            Action::Wait
        }
        Wait::Time(left) => {
            set.clear(CONSOLIDATABLE).expect("Consolidatable is independent");
            Action::After(left.unsigned_abs())
        }
        Wait::Change => {
            set.clear(CONSOLIDATABLE).expect("Consolidatable is independent");
            Action::Wait
        }
    }
}

/// What a NodeClaim waits for before it may be consolidated.
enum Wait {
    Nothing,
    Time(jiff::SignedDuration),
    Change,
}

fn until(
    claim: &NodeClaim,
    pool: &NodePool,
    last_pod_event: Option<Timestamp>,
    now: Timestamp,
) -> Wait {
    if pool.is_static() {
        return Wait::Change;
    }
    let Some(after) = pool.spec.disruption.consolidate_after.duration() else {
        return Wait::Change;
    };
    let initialized = condition_of(claim, INITIALIZED);
    let Some((ConditionStatus::True, initialized)) = initialized else { return Wait::Change };
    let quiet_since = last_pod_event.unwrap_or(initialized);
    let left = after.as_signed() - now.duration_since(quiet_since);
    if left.is_positive() { Wait::Time(left) } else { Wait::Nothing }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};
    use std::time::Duration;

    fn pool(disruption: &Value) -> NodePool {
        serde_json::from_value(json!({
            "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "default"},
            "spec": {"disruption": disruption, "template": {"spec": {
                "requirements": [], "nodeClassRef": {"group": "g", "kind": "k", "name": "n"}}}},
        }))
        .unwrap()
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn claim(initialized: bool) -> NodeClaim {
        let mut claim = NodeClaim::new("a", tenon_crds::NodeClaimSpec::default());
        if initialized {
            conditions(&mut claim, at(100)).set_true(INITIALIZED);
            for condition in &mut claim.status.as_mut().unwrap().conditions {
                condition.last_transition_time = at(100).into();
            }
        }
        claim
    }

    #[test]
    fn it_is_consolidatable_when_quiet_for_as_long_as_the_pool_says() {
        let soon = |seconds| Action::After(Duration::from_secs(seconds));
        for (after, last_pod_event, initialized, now, expected, action) in [
            ("30s", None, true, 129, false, soon(1)),
            ("30s", None, true, 130, true, Action::Wait),
            ("30s", Some(120), true, 140, false, soon(10)),
            ("30s", Some(120), true, 150, true, Action::Wait),
            ("0s", None, true, 100, true, Action::Wait),
            ("0s", None, false, 500, false, Action::Wait),
            ("Never", None, true, 9999, false, Action::Wait),
        ] {
            let mut claim = claim(initialized);
            let pool = pool(&json!({"consolidateAfter": after}));
            let next = update(&mut claim, &pool, last_pod_event.map(at), at(now));
            let is = conditions(&mut claim, at(now)).is_true(CONSOLIDATABLE);
            assert_eq!((is, next), (expected, action), "{after} {last_pod_event:?} {now}");
        }
    }

    #[test]
    fn a_pod_that_comes_takes_it_back() {
        let pool = pool(&json!({"consolidateAfter": "30s"}));
        let mut claim = claim(true);
        update(&mut claim, &pool, None, at(200));
        update(&mut claim, &pool, Some(at(200)), at(201));
        assert!(conditions(&mut claim, at(201)).get(CONSOLIDATABLE).is_none());
    }
}
