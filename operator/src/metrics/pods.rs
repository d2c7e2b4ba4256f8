//! When the operator first saw a pod wait, and when it found a place for it: kept from then until
//! the pod runs or is gone. What was there before the first look is not measured.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use parking_lot::Mutex;
use tenon_planner::plan::{Plan, PodRef};
use tenon_state::change::ObjectKey;

use super::Metrics;

/// Remembers pods that wait. Clones share their memory.
#[derive(Clone, Debug, Default)]
pub struct Tracker(Arc<Mutex<BTreeMap<ObjectKey, Waiting>>>);

/// A pod that waits for the operator, or for its node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Waiting {
    /// When the operator first saw it wait.
    pub(crate) seen: Timestamp,
    /// A plan has said where it goes, or that it goes nowhere.
    pub(crate) decided: bool,
    /// When a plan first had a place for it.
    pub(crate) placed: Option<Timestamp>,
}

/// Takes in what a plan says about pods. Pods that don't exist are not known, and nothing is
/// measured of them.
pub fn decided(metrics: &Metrics, plan: &Plan, now: Timestamp) {
    let launched = plan.launches.iter().flat_map(|launch| &launch.pods);
    let nominated = plan.nominations.iter().map(|nomination| &nomination.pod);
    let placed = launched.chain(nominated).map(|pod| (pod, true));
    let left = plan.report.pods.iter().map(|waiting| (&waiting.pod, false));
    for (pod, placed) in placed.chain(left) {
        if let Some(seen) = metrics.pods.decide(pod, placed, now) {
            let took = now.duration_since(seen).as_secs_f64().max(0.0);
            metrics.pod_decision_duration.observe([], took);
        }
    }
}

impl Tracker {
    /// How many pods wait.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.0.lock().len()
    }

    /// What is known of a pod that waits.
    pub(crate) fn get(&self, key: &ObjectKey) -> Option<Waiting> {
        self.0.lock().get(key).copied()
    }

    /// Looks at a pod that was touched; `pending` is none when it is gone. Answers when a plan had
    /// a place for it.
    pub(crate) fn observe(
        &self,
        key: &ObjectKey,
        provisionable: bool,
        pending: Option<bool>,
        now: Timestamp,
    ) -> Option<Timestamp> {
        let mut waiting = self.0.lock();
        if pending != Some(true) {
            return waiting.remove(key)?.placed;
        }
        if provisionable && !waiting.contains_key(key) {
            waiting.insert(key.clone(), Waiting { seen: now, decided: false, placed: None });
        }
        waiting.get(key)?.placed
    }

    /// Since when the pod has been known, if this is the first decision about it.
    pub(crate) fn decide(&self, pod: &PodRef, placed: bool, now: Timestamp) -> Option<Timestamp> {
        let key = ObjectKey::from(pod);
        let mut waiting = self.0.lock();
        let waiting = waiting.get_mut(&key)?;
        if placed {
            waiting.placed.get_or_insert(now);
        }
        let first = !std::mem::replace(&mut waiting.decided, true);
        first.then_some(waiting.seen)
    }
}
