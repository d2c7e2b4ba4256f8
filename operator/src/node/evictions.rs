//! The queue of pods that have to go: each is asked through the eviction API until its PodDisruptionBudgets let it. When its deadline comes it is deleted, or left
//! alone where it was only to be asked.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use super::drain::{Urge, forced_from, must_be_forced};
use crate::cloud_provider::CloudProvider;
use crate::events::{Event, Reason};
use crate::operator::Operator;
use crate::provisioning::pod as reference;
use crate::state::change::ObjectKey;
use crate::state::pod::Pod;
use crate::watch::wire::Node;
use crate::work::{Action, Backoff, WorkQueue};
use crate::write::WriteError;

/// A pod that may not go yet is asked again after a tenth of a second, at the latest after ten seconds.
const BACKOFF: Backoff = Backoff { min: Duration::from_millis(100), max: Duration::from_secs(10) };

/// Pods to evict. Clones share them.
#[derive(Clone, Debug)]
pub struct Evictions {
    queue: WorkQueue<Key>,
    items: Arc<Mutex<BTreeMap<Key, Item>>>,
}

/// A pod, this very one: namespace and name, and uid.
type Key = (ObjectKey, String);

/// What is to be done about a pod.
#[derive(Clone, Debug, PartialEq)]
struct Item {
    /// How hard it is made to go.
    urge: Urge,
    /// The node, for events.
    node: String,
    /// Why, for events and metrics.
    reason: String,
}

/// The pod may not go yet.
#[derive(Debug)]
struct Refused;

impl Default for Evictions {
    fn default() -> Self {
        Self::new()
    }
}

impl Evictions {
    /// An empty queue.
    pub fn new() -> Self {
        Self { queue: WorkQueue::new(), items: Arc::default() }
    }

    /// Makes a pod go whose node goes. Of several deadlines the earliest counts.
    pub fn add(
        &self,
        key: ObjectKey,
        uid: &str,
        node: &str,
        deadline: Option<Timestamp>,
        reason: &str,
    ) {
        self.urge(key, uid, node, Urge::Force(deadline), reason);
    }

    /// Makes a pod go. What is being done about it already goes on, unless this replaces it ([`Urge::replaces`]).
    pub fn urge(&self, key: ObjectKey, uid: &str, node: &str, urge: Urge, reason: &str) {
        let key = (key, uid.to_owned());
        let new = Item { urge, node: node.to_owned(), reason: reason.to_owned() };
        let mut items = self.items.lock();
        match items.get_mut(&key) {
            None => {
                items.insert(key.clone(), new);
                self.queue.add(key);
            }
            Some(known) if urge.replaces(known.urge) => {
                *known = new;
                self.queue.add(key);
            }
            // It is being worked on; what holds it up is tried again by itself, and a deadline is noticed then.
            Some(_) => {}
        }
    }

    /// Works on the queue until `stop`.
    pub async fn run<P: CloudProvider>(self, operator: Arc<Operator<P>>, stop: CancellationToken) {
        let workers = operator.options.workers(100, 5000);
        let items = Arc::clone(&self.items);
        let queue = self.queue.clone();
        self.queue
            .run(workers, BACKOFF, stop, |key| {
                let operator = Arc::clone(&operator);
                let items = Arc::clone(&items);
                let queue = queue.clone();
                async move {
                    let Some(item) = items.lock().get(&key).cloned() else {
                        return Ok(Action::Wait);
                    };
                    let result = evict(&operator, &key, &item).await;
                    if result.is_ok() {
                        items.lock().remove(&key);
                    } else if let Some(delay) = until_forced(&operator, &key, &item) {
                        // However long it has been refused, it is looked at again when it may be forced.
                        queue.add_after(key, delay);
                    }
                    result.map(|()| Action::Wait)
                }
            })
            .await;
    }
}

/// How long until the pod is forced to go, if it isn't yet.
fn until_forced<P: CloudProvider>(
    operator: &Operator<P>,
    (key, _): &Key,
    item: &Item,
) -> Option<Duration> {
    let from = forced_from(operator.state.read().pod(key)?, item.urge.forced_by())?;
    operator.now().duration_until(from).try_into().ok()
}

/// What has to be done about a pod now.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    /// Nothing: it is gone, or going, or may stay.
    Done,
    /// Nothing yet: it may not be asked.
    Protected,
    /// Ask it.
    Evict,
    /// Delete it with this grace period in seconds.
    Delete(u32),
}

fn step(pod: Option<&Pod>, uid: &str, urge: Urge, now: Timestamp) -> Step {
    let Some(pod) = pod.filter(|pod| pod.uid == uid && !urge.is_over(now)) else {
        return Step::Done;
    };
    let deadline = urge.forced_by();
    if must_be_forced(pod, deadline, now) {
        let left = deadline.map_or(0, |deadline| now.duration_until(deadline).as_secs());
        return Step::Delete(u32::try_from(left.max(1)).unwrap_or(1));
    }
    if pod.is_terminating() {
        Step::Done
    } else if pod.is_evictable(now) {
        Step::Evict
    } else {
        Step::Protected
    }
}

async fn evict<P: CloudProvider>(
    operator: &Operator<P>,
    (key, uid): &Key,
    item: &Item,
) -> Result<(), Refused> {
    let step = step(operator.state.read().pod(key), uid, item.urge, operator.now());
    let pod = reference(&tenon_planner::plan::PodRef {
        namespace: key.namespace.clone(),
        name: key.name.clone(),
        uid: uid.clone(),
    });
    let recorder = &operator.context.recorder;
    match step {
        Step::Done => Ok(()),
        Step::Protected => Err(Refused),
        Step::Delete(grace) => match operator.write.delete_pod(key, uid, grace).await {
            Ok(()) => {
                let message =
                    "Deleted the pod to accommodate the terminationGracePeriod of the node.";
                recorder.publish(Event::normal(&pod, Reason::Disrupted, message));
                operator.context.metrics.pods_drained.inc([&item.reason]);
                tracing::info!(pod = %key, node = item.node, grace, "deleted pod, its node's terminationGracePeriod ends");
                Ok(())
            }
            Err(error) => judge(operator, &pod, item, &error),
        },
        Step::Evict => {
            let answer = operator.write.evict_pod(key, uid).await;
            let code = answer.as_ref().map_or_else(|error| error.code().unwrap_or(500), |()| 200);
            operator.context.metrics.eviction_requests.inc([&code.to_string()]);
            match answer {
                Ok(()) => {
                    let message = format!("Evicted pod: {}", item.reason);
                    recorder.publish(Event::normal(&pod, Reason::Evicted, message));
                    operator.context.metrics.pods_drained.inc([&item.reason]);
                    tracing::debug!(pod = %key, node = item.node, reason = item.reason, "evicted pod");
                    Ok(())
                }
                Err(error) => judge(operator, &pod, item, &error),
            }
        }
    }
}

/// What an answer of the API server means: gone or made again is done, a PodDisruptionBudget is a reason to wait.
fn judge<P: CloudProvider>(
    operator: &Operator<P>,
    pod: &crate::watch::wire::Pod,
    item: &Item,
    error: &WriteError,
) -> Result<(), Refused> {
    /// What the eviction API says, with status 500, when more than one PodDisruptionBudget selects a pod.
    const SEVERAL: &str = "more than one PodDisruptionBudget";
    if error.is_not_found() || error.code() == Some(409) {
        return Ok(());
    }
    let message = error.message();
    if error.code() == Some(429) || message.contains(SEVERAL) {
        let name = pod.metadata.name.as_deref().unwrap_or_default();
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        let node = operator.state.read().node(&item.node).cloned();
        if let Some(node) = node {
            let text = format!("Failed to drain node, evicting pod {namespace}/{name}: {message}");
            // The drain itself says every minute how many pods it waits for: that must not hide which budget holds up which of them.
            let event = Event::warning::<Node>(&node, Reason::FailedDraining, text);
            operator.context.recorder.publish(event.distinct_by(format!("{namespace}/{name}")));
        }
    } else {
        tracing::warn!(error = %crate::logging::chain(&error), "failed to evict a pod");
    }
    Err(Refused)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn pod(extra: &Value) -> Pod {
        let mut value =
            json!({"metadata": {"uid": "1"}, "spec": {"terminationGracePeriodSeconds": 30}});
        for (key, extra) in extra.as_object().unwrap() {
            value["metadata"][key] = extra.clone();
        }
        Pod::from_wire(&serde_json::from_value(value).unwrap(), 1, Arc::default()).unwrap()
    }

    #[test]
    fn a_pod_is_asked_until_its_deadline_and_then_deleted() {
        let plain = pod(&json!({}));
        let protected = pod(&json!({"annotations": {"karpenter.sh/do-not-disrupt": "true"}}));
        let terminating = pod(&json!({"deletionTimestamp": "1970-01-01T00:01:00Z"}));
        for (pod, uid, deadline, now, expected) in [
            (Some(&plain), "1", None, 0, Step::Evict),
            (Some(&plain), "2", None, 0, Step::Done),
            (None, "1", None, 0, Step::Done),
            (Some(&protected), "1", None, 0, Step::Protected),
            (Some(&protected), "1", Some(100), 69, Step::Protected),
            (Some(&protected), "1", Some(100), 71, Step::Delete(29)),
            (Some(&plain), "1", Some(100), 200, Step::Delete(1)),
            (Some(&terminating), "1", Some(100), 0, Step::Done),
            (Some(&terminating), "1", Some(50), 20, Step::Delete(30)),
        ] {
            assert_eq!(
                step(pod, uid, Urge::Force(deadline.map(at)), at(now)),
                expected,
                "{uid} {deadline:?} {now}"
            );
        }
    }

    #[test]
    fn a_pod_that_is_only_asked_is_never_deleted_and_left_alone_after_its_deadline() {
        let (plain, ask) = (pod(&json!({})), Urge::Ask(Some(at(100))));
        let protected = pod(&json!({"annotations": {"karpenter.sh/do-not-disrupt": "true"}}));
        assert_eq!(step(Some(&plain), "1", ask, at(99)), Step::Evict);
        assert_eq!(step(Some(&protected), "1", ask, at(99)), Step::Protected);
        assert_eq!(step(Some(&plain), "1", ask, at(100)), Step::Done);
        assert_eq!(step(Some(&plain), "1", Urge::Ask(None), at(1 << 30)), Step::Evict);
    }

    #[test]
    fn of_several_deadlines_the_earliest_counts() {
        let evictions = Evictions::new();
        let key = ObjectKey::new("default", "a");
        let deadline = || evictions.items.lock().values().next().unwrap().urge.forced_by();
        for (deadline_of, expected) in [
            (None, None),
            (Some(20), Some(20)),
            (Some(30), Some(20)),
            (Some(10), Some(10)),
            (None, Some(10)),
        ] {
            evictions.add(key.clone(), "1", "n", deadline_of.map(at), "r");
            assert_eq!(deadline(), expected.map(at));
        }
    }
}
