//! Draining: which pods of a node are asked to go now.
//!
//! Pods go in four tiers, and one tier begins when the former has gone: first what is neither
//! critical nor a daemon, then daemons, then what is critical, then critical daemons. With a
//! deadline a pod is deleted, whatever protects it and whatever its tier, when its own grace period
//! would otherwise end after the deadline.

use jiff::{SignedDuration, Timestamp};

use crate::state::change::ObjectKey;
use crate::state::pod::Pod;

/// What to do about the pods of a node now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Drain {
    /// Pods to ask, or force, to go.
    pub go: Vec<ObjectKey>,
    /// How many pods are still waited for.
    pub waiting: usize,
}

/// How hard a pod is made to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Urge {
    /// Its node goes: it is asked, and deleted when its own grace period would otherwise end after
    /// this deadline.
    Force(Option<Timestamp>),
    /// Its node comes back: it is only ever asked, and after this deadline left where it is.
    Ask(Option<Timestamp>),
}

impl Urge {
    /// Whether this takes the place of what is being done about the same pod: the earlier deadline
    /// does, and that a pod has to go in any case.
    pub(crate) fn replaces(self, known: Self) -> bool {
        match (self, known) {
            (Self::Force(_), Self::Ask(_)) => true,
            (Self::Ask(_), Self::Force(_)) => false,
            (Self::Force(new), Self::Force(known)) | (Self::Ask(new), Self::Ask(known)) => {
                match (new, known) {
                    (Some(new), Some(known)) => new < known,
                    (Some(_), None) => true,
                    (None, _) => false,
                }
            }
        }
    }

    /// By when the pod has to be gone, whatever protects it.
    pub(crate) fn forced_by(self) -> Option<Timestamp> {
        match self {
            Self::Force(deadline) => deadline,
            Self::Ask(_) => None,
        }
    }

    /// Whether it is not to be asked any more.
    pub(crate) fn is_over(self, now: Timestamp) -> bool {
        matches!(self, Self::Ask(Some(deadline)) if now >= deadline)
    }
}

/// Decides about the pods of a node that has to be empty by `deadline`, if there is one.
pub(crate) fn drain<'a>(
    pods: impl Iterator<Item = (&'a ObjectKey, &'a Pod)>,
    deadline: Option<Timestamp>,
    now: Timestamp,
) -> Drain {
    let mut tiers: [Vec<ObjectKey>; 4] = Default::default();
    let mut go = Vec::new();
    let mut waiting = 0;
    for (key, pod) in pods.filter(|(_, pod)| pod.is_waited_for(now)) {
        waiting += 1;
        if must_be_forced(pod, deadline, now) {
            go.push(key.clone());
        } else {
            tiers[tier(pod)].push(key.clone());
        }
    }
    if let Some(tier) = tiers.into_iter().find(|tier| !tier.is_empty()) {
        go.extend(tier);
    }
    Drain { go, waiting }
}

/// Whether the pod would not be gone by the deadline if it were only asked.
pub(crate) fn must_be_forced(pod: &Pod, deadline: Option<Timestamp>, now: Timestamp) -> bool {
    let Some(deadline) = deadline else { return false };
    match (pod.deletion, pod.grace_period) {
        (Some(deletion), _) => deletion > deadline,
        (None, Some(grace)) => now.duration_until(deadline) < SignedDuration::from_secs(grace),
        (None, None) => false,
    }
}

/// From when on a pod that stays as it is has to be forced; `None` when nothing will change about
/// that.
pub(crate) fn forced_from(pod: &Pod, deadline: Option<Timestamp>) -> Option<Timestamp> {
    /// It is forced when less than its grace period is left, not when that is just left.
    const JUST_AFTER: SignedDuration = SignedDuration::from_millis(1);
    let grace = pod.grace_period.filter(|_| pod.deletion.is_none())?;
    deadline?.checked_sub(SignedDuration::from_secs(grace)).ok()?.checked_add(JUST_AFTER).ok()
}

fn tier(pod: &Pod) -> usize {
    match (pod.critical, pod.is_daemon()) {
        (false, false) => 0,
        (false, true) => 1,
        (true, false) => 2,
        (true, true) => 3,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};
    use std::sync::Arc;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn pod(name: &str, value: Value) -> (ObjectKey, Pod) {
        let wire = serde_json::from_value(value).unwrap();
        (ObjectKey::new("default", name), Pod::from_wire(&wire, 1, Arc::default()).unwrap())
    }

    fn daemon(name: &str, class: &str) -> (ObjectKey, Pod) {
        pod(
            name,
            json!({
                "metadata": {"ownerReferences": [
                    {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "d", "controller": true},
                ]},
                "spec": {"priorityClassName": class},
            }),
        )
    }

    fn names(pods: &[(ObjectKey, Pod)], deadline: Option<i64>, now: i64) -> (Vec<String>, usize) {
        let pods = pods.iter().map(|(key, pod)| (key, pod));
        let drain = drain(pods, deadline.map(at), at(now));
        (drain.go.into_iter().map(|key| key.name.to_string()).collect(), drain.waiting)
    }

    #[test]
    fn tiers_go_one_after_the_other() {
        let mut pods = vec![
            pod("app", json!({})),
            daemon("daemon", ""),
            pod("critical", json!({"spec": {"priorityClassName": "system-cluster-critical"}})),
            daemon("critical-daemon", "system-node-critical"),
        ];
        for expected in ["app", "daemon", "critical", "critical-daemon"] {
            assert_eq!(names(&pods, None, 0), (vec![expected.to_owned()], pods.len()));
            pods.remove(0);
        }
    }

    #[test]
    fn what_has_to_go_is_not_merely_asked_and_the_earlier_deadline_counts() {
        use Urge::{Ask, Force};
        let (early, late) = (Some(at(1)), Some(at(2)));
        for (new, known, replaces) in [
            (Force(early), Force(late), true),
            (Force(late), Force(early), false),
            (Force(early), Force(None), true),
            (Force(None), Force(early), false),
            (Ask(early), Ask(late), true),
            (Ask(late), Ask(early), false),
            (Ask(None), Ask(None), false),
            (Force(None), Ask(early), true),
            (Force(late), Ask(early), true),
            (Ask(early), Force(None), false),
            (Ask(early), Force(late), false),
        ] {
            assert_eq!(new.replaces(known), replaces, "{new:?} after {known:?}");
        }
    }

    #[test]
    fn a_pod_that_is_only_asked_is_never_forced_and_left_alone_after_the_deadline() {
        let ask = Urge::Ask(Some(at(100)));
        assert_eq!(ask.forced_by(), None);
        assert!(!ask.is_over(at(99)) && ask.is_over(at(100)));
        assert!(!Urge::Ask(None).is_over(at(1 << 30)));
        let force = Urge::Force(Some(at(100)));
        assert_eq!(force.forced_by(), Some(at(100)));
        assert!(!force.is_over(at(1 << 30)));
    }

    #[test]
    fn pods_that_stay_are_not_waited_for() {
        let pods = [
            pod("tolerating", json!({"spec": {"tolerations": [{"operator": "Exists"}]}})),
            pod(
                "static",
                json!({"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "n"}]}}),
            ),
            pod("stuck", json!({"metadata": {"deletionTimestamp": "1970-01-01T00:00:00Z"}})),
        ];
        assert_eq!(names(&pods, None, 61), (vec![], 0));
        assert_eq!(names(&pods, None, 59).1, 1, "it is not stuck yet");
    }

    #[test]
    fn a_pod_is_forced_from_the_moment_that_is_told() {
        let asked = pod("app", json!({"spec": {"terminationGracePeriodSeconds": 5}})).1;
        let going =
            pod("late", json!({"metadata": {"deletionTimestamp": "1970-01-01T00:03:00Z"}})).1;
        let deadline = Some(at(100));
        let from = forced_from(&asked, deadline).unwrap();
        assert!(must_be_forced(&asked, deadline, from));
        assert!(!must_be_forced(&asked, deadline, at(95)));
        assert_eq!((forced_from(&asked, None), forced_from(&going, deadline)), (None, None));
    }

    #[test]
    fn the_deadline_crosses_tiers_and_protection() {
        let grace = |seconds: i64, protected: &str| {
            json!({"metadata": {"annotations": {"karpenter.sh/do-not-disrupt": protected}},
                "spec": {"terminationGracePeriodSeconds": seconds, "priorityClassName": "system-node-critical"}})
        };
        let pods = [
            pod("app", json!({"spec": {"terminationGracePeriodSeconds": 5}})),
            pod("slow", grace(60, "true")),
            pod("late", json!({"metadata": {"deletionTimestamp": "1970-01-01T00:03:00Z"}})),
        ];
        assert_eq!(names(&pods, Some(100), 30).0, ["late", "app"]);
        assert_eq!(names(&pods, Some(100), 41).0, ["slow", "late", "app"]);
        assert_eq!(names(&pods, None, 41).0, ["app", "late"]);
    }
}
