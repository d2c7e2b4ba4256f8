//! The queue of pods that have to go: each is asked through the eviction API until its
//! PodDisruptionBudgets let it. When its deadline comes it is deleted, or left alone where it was
//! only to be asked.
//!
//! A pod is asked once: between the API server's consent and the watch that shows the pod
//! terminating, a drain that looks again must not have it evicted, logged and counted a second
//! time. Should it still not be terminating after [`ASK_AGAIN`], somebody has taken the consent
//! back, and it is asked anew.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;

use super::drain::{Urge, forced_from, must_be_forced};
use crate::cloud_provider::CloudProvider;
use crate::controller::{Affected, Controller, Reconciler, Reported};
use crate::events::{Event, Reason, pod as reference};
use crate::operator::Operator;
use crate::state::State;
use crate::state::change::{ObjectKey, Touched};
use crate::state::pod::Pod;
use crate::watch::wire::Node;
use crate::work_queue::{Action, Backoff, WorkQueue};
use crate::write::WriteError;

/// A pod that has consented to go and is not seen going is asked again after this time: far longer
/// than a watch is behind.
const ASK_AGAIN: SignedDuration = SignedDuration::from_secs(30);

/// Pods to evict. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Evictions {
    queue: WorkQueue<Key>,
    items: Arc<Mutex<BTreeMap<Key, Item>>>,
}

/// A pod, this very one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    pod: ObjectKey,
    uid: Arc<str>,
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.pod.fmt(f)
    }
}

/// What is to be done about a pod.
#[derive(Clone, Debug, PartialEq)]
struct Item {
    /// How hard it is made to go.
    urge: Urge,
    /// The node, for events.
    node: String,
    /// Why, for events and metrics.
    reason: String,
    /// What the API server has agreed to, and when.
    agreed: Option<(Agreed, Timestamp)>,
}

/// What the API server has agreed to about a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Agreed {
    /// It was evicted, or is gone.
    Evicted,
    /// It was deleted with a grace period that keeps to the deadline.
    Deleted,
}

impl Default for Evictions {
    fn default() -> Self {
        Self::new()
    }
}

impl Evictions {
    /// An empty queue.
    pub(crate) fn new() -> Self {
        Self { queue: WorkQueue::new(), items: Arc::default() }
    }

    /// Makes a pod go whose node goes. Of several deadlines the earliest counts.
    pub(crate) fn add(
        &self,
        key: ObjectKey,
        uid: &str,
        node: &str,
        deadline: Option<Timestamp>,
        reason: &str,
    ) {
        self.urge(key, uid, node, Urge::Force(deadline), reason);
    }

    /// Makes a pod go. What is being done about it already goes on, unless this replaces it
    /// ([`Urge::replaces`]).
    pub(crate) fn urge(&self, key: ObjectKey, uid: &str, node: &str, urge: Urge, reason: &str) {
        let key = Key { pod: key, uid: uid.into() };
        let mut items = self.items.lock();
        match items.get_mut(&key) {
            None => {
                let (node, reason) = (node.to_owned(), reason.to_owned());
                items.insert(key.clone(), Item { urge, node, reason, agreed: None });
                self.queue.add(key);
            }
            Some(known) if urge.replaces(known.urge) => {
                known.urge = urge;
                reason.clone_into(&mut known.reason);
                // It was given until the former deadline.
                known.agreed = known.agreed.filter(|(what, _)| *what != Agreed::Deleted);
                self.queue.add(key);
            }
            // It is being worked on, or has agreed to go; what holds it up is tried again by
            // itself, and a deadline is noticed then.
            Some(_) => {}
        }
    }

    /// What works on the queue.
    pub(crate) fn controller<P: CloudProvider>(
        &self,
        operator: Arc<Operator<P>>,
    ) -> Controller<EvictionQueue<P>> {
        let reconciler = EvictionQueue { operator, evictions: self.clone() };
        Controller::fed_by(reconciler, self.queue.clone())
    }
}

/// Works on the queue.
pub(crate) struct EvictionQueue<P> {
    operator: Arc<Operator<P>>,
    evictions: Evictions,
}

impl<P: CloudProvider> Reconciler for EvictionQueue<P> {
    const NAME: &'static str = "eviction-queue";
    /// A pod that may not go yet is asked again after a tenth of a second, at the latest after ten
    /// seconds.
    const BACKOFF: Backoff =
        Backoff { min: Duration::from_millis(100), max: Duration::from_secs(10) };
    type Key = Key;
    type Error = Reported;

    fn workers(&self) -> usize {
        self.operator.options.workers(100, 5000)
    }

    /// The order waits for kube-scheduler's word on replacements; nothing is looked at because of
    /// it.
    fn affected(&self, touched: &Touched, state: &State) -> Affected<Key> {
        if let Touched::Pod(key, event) = touched
            && (event.bound.is_some() || event.provisionable)
            && let Some(pod) = state.read().pod(key)
            && let Some(owner) = &pod.owner_path
        {
            self.operator.eviction_order.tried(&pod.uid, owner, pod.created_at);
        }
        Affected::None
    }

    async fn reconcile(&self, key: &Key) -> Result<Action, Reported> {
        let Evictions { queue, items } = &self.evictions;
        let item = items.lock().get(key).cloned();
        let Some(item) = item else { return Ok(Action::Wait) };
        let result = evict(&self.operator, key, &item).await;
        if let Ok(Progress::Done) = result {
            items.lock().remove(key);
            return Ok(Action::Wait);
        }
        if let Ok(Progress::Agreed(what)) = result
            && let Some(now) = items.lock().get_mut(key)
            && (what == Agreed::Evicted || now.urge == item.urge)
        {
            now.agreed = Some((what, self.operator.now()));
        }
        if let Some(delay) = until_forced(&self.operator, key, &item) {
            // However long it has been refused, it is looked at again when it may be forced.
            queue.add_after(key.clone(), delay);
        }
        result.map(|progress| match progress {
            Progress::Going(left) => Action::After(left),
            Progress::Held => Action::After(held_for(self.operator.eviction_order.len())),
            Progress::Agreed(_) => Action::After(ASK_AGAIN.unsigned_abs()),
            Progress::Done => Action::Wait,
        })
    }
}

/// How far a pod is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    /// It is gone, or seen going in time.
    Done,
    /// It has just agreed to go.
    Agreed(Agreed),
    /// It has agreed to go; if it is not seen going, it is asked again after this time.
    Going(Duration),
    /// Larger pods go first.
    Held,
}

/// When a pod that waits for larger ones is looked at again: the more wait, the later.
fn held_for(waiting: usize) -> Duration {
    const EACH: Duration = Duration::from_micros(200);
    Duration::from_millis(100) + EACH * u32::try_from(waiting).unwrap_or(u32::MAX).min(5_000)
}

/// How long until the pod is forced to go, if it isn't yet.
fn until_forced<P: CloudProvider>(
    operator: &Operator<P>,
    key: &Key,
    item: &Item,
) -> Option<Duration> {
    let from = forced_from(operator.state.read().pod(&key.pod)?, item.urge.forced_by())?;
    operator.now().duration_until(from).try_into().ok()
}

/// What has to be done about a pod now.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    /// Nothing: it is gone, or going, or may stay.
    Done,
    /// Nothing, for so long: it has agreed to go.
    Going(Duration),
    /// Nothing yet: it may not be asked.
    Protected,
    /// Ask it.
    Evict,
    /// Delete it with this grace period in seconds.
    Delete(u32),
}

fn step(pod: Option<&Pod>, uid: &str, item: &Item, now: Timestamp) -> Step {
    let Some(pod) = pod.filter(|pod| *pod.uid == *uid && !item.urge.is_over(now)) else {
        return Step::Done;
    };
    let agreed = item.agreed.and_then(|(what, since)| {
        let left = ASK_AGAIN - now.duration_since(since);
        left.is_positive().then_some((what, left.unsigned_abs()))
    });
    let deadline = item.urge.forced_by();
    if must_be_forced(pod, deadline, now) {
        if let Some((Agreed::Deleted, left)) = agreed {
            return Step::Going(left);
        }
        let left = deadline.map_or(0, |deadline| now.duration_until(deadline).as_secs());
        return Step::Delete(u32::try_from(left.max(1)).unwrap_or(1));
    }
    if pod.is_terminating() {
        Step::Done
    } else if let Some((_, left)) = agreed {
        Step::Going(left)
    } else if pod.is_evictable(now) {
        Step::Evict
    } else {
        Step::Protected
    }
}

async fn evict<P: CloudProvider>(
    operator: &Operator<P>,
    Key { pod: key, uid }: &Key,
    item: &Item,
) -> Result<Progress, Reported> {
    let now = operator.now();
    let step = step(operator.state.read().pod(key), uid, item, now);
    let order = &operator.eviction_order;
    if step == Step::Evict && order.holds(uid, now) {
        return Ok(Progress::Held);
    }
    let owner = operator.state.read().pod(key).and_then(|pod| pod.owner_path.clone());
    let pod = reference(&key.pod(Arc::clone(uid)));
    let recorder = &operator.context.recorder;
    match step {
        Step::Done => {
            order.forget(uid);
            Ok(Progress::Done)
        }
        Step::Going(left) => Ok(Progress::Going(left)),
        Step::Protected => {
            order.forget(uid);
            Err(Reported)
        }
        Step::Delete(grace) => match operator.write.delete_pod(key, uid, grace).await {
            Ok(()) => {
                let message =
                    "Deleted the pod to accommodate the terminationGracePeriod of the node.";
                recorder.publish(Event::normal(&pod, Reason::Disrupted, message));
                operator.context.metrics.pods_drained.inc([&item.reason]);
                tracing::info!(pod = %key, node = item.node, grace, "deleted pod, its node's terminationGracePeriod ends");
                Ok(Progress::Agreed(Agreed::Deleted))
            }
            Err(error) => {
                judge(operator, &pod, item, &error).map(|()| Progress::Agreed(Agreed::Deleted))
            }
        },
        Step::Evict => {
            let answer = operator.write.evict_pod(key, uid).await;
            match answer {
                Ok(()) => order.evicted(uid, owner.as_ref(), operator.now()),
                Err(_) => order.forget(uid),
            }
            let code = answer.as_ref().map_or_else(|error| error.code().unwrap_or(500), |()| 200);
            operator.context.metrics.eviction_requests.inc([&code.to_string()]);
            match answer {
                Ok(()) => {
                    let message = format!("Evicted pod: {}", item.reason);
                    recorder.publish(Event::normal(&pod, Reason::Evicted, message));
                    operator.context.metrics.pods_drained.inc([&item.reason]);
                    tracing::debug!(pod = %key, node = item.node, reason = item.reason, "evicted pod");
                    Ok(Progress::Agreed(Agreed::Evicted))
                }
                Err(error) => {
                    judge(operator, &pod, item, &error).map(|()| Progress::Agreed(Agreed::Evicted))
                }
            }
        }
    }
}

/// What an answer of the API server means: gone or made again is done, a PodDisruptionBudget is a
/// reason to wait.
fn judge<P: CloudProvider>(
    operator: &Operator<P>,
    pod: &crate::watch::wire::Pod,
    item: &Item,
    error: &WriteError,
) -> Result<(), Reported> {
    /// What the eviction API says, with status 500, when more than one PodDisruptionBudget selects
    /// a pod.
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
            // The drain itself says every minute how many pods it waits for: that must not hide
            // which budget holds up which of them.
            let event = Event::warning::<Node>(&node, Reason::FailedDraining, text);
            operator.context.recorder.publish(event.distinct_by(format!("{namespace}/{name}")));
        }
    } else {
        tracing::warn!(error = %crate::text::chain(&error), "failed to evict a pod");
    }
    Err(Reported)
}

#[cfg(test)]
mod tests {
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::state::change::{Change, Object};
    use crate::state::cluster::Cluster;
    use crate::testing::{self, ApiServer};
    use serde_json::{Value, json};
    use tenon_crds::labels::LabelRules;
    use tenon_state::node_class;

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
            let item = item(deadline, None);
            assert_eq!(step(pod, uid, &item, at(now)), expected, "{uid} {deadline:?} {now}");
        }
    }

    fn item(deadline: Option<i64>, agreed: Option<(Agreed, i64)>) -> Item {
        Item {
            urge: Urge::Force(deadline.map(at)),
            node: "n".to_owned(),
            reason: "r".to_owned(),
            agreed: agreed.map(|(what, since)| (what, at(since))),
        }
    }

    #[test]
    fn a_pod_that_has_agreed_to_go_is_asked_again_only_when_it_is_not_seen_going_for_long() {
        use Agreed::{Deleted, Evicted};
        let plain = pod(&json!({}));
        let late = pod(&json!({"deletionTimestamp": "1970-01-01T00:02:00Z"}));
        let left = |seconds| Step::Going(Duration::from_secs(seconds));
        for (pod, deadline, agreed, now, expected) in [
            (&plain, None, (Evicted, 0), 2, left(28)),
            (&plain, None, (Evicted, 0), 30, Step::Evict),
            (&late, None, (Evicted, 0), 2, Step::Done),
            // Consent to an eviction does not answer for the deadline.
            (&plain, Some(20), (Evicted, 0), 2, Step::Delete(18)),
            (&late, Some(100), (Evicted, 0), 2, Step::Delete(98)),
            (&late, Some(100), (Deleted, 0), 2, left(28)),
            (&late, Some(100), (Deleted, 0), 30, Step::Delete(70)),
            (&late, Some(200), (Deleted, 0), 2, Step::Done),
        ] {
            let item = item(deadline, Some(agreed));
            assert_eq!(step(Some(pod), "1", &item, at(now)), expected, "{item:?} {now}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_pod_is_evicted_and_counted_once_however_late_the_watch_is() {
        let server =
            ApiServer::answering(|_| (201, json!({"kind": "Status", "status": "Success"})));
        let seen = |extra: &Value| {
            let mut pod = json!({"metadata": {"namespace": "default", "name": "a", "uid": "1", "resourceVersion": "1"},
                "spec": {"nodeName": "n"}});
            for (key, extra) in extra.as_object().unwrap() {
                pod["metadata"][key] = extra.clone();
            }
            let pod = serde_json::from_value(pod).unwrap();
            Change::Applied(Object::Pod(Box::new(pod)))
        };
        let mut cluster = Cluster::new(&[node_class::KWOK], LabelRules::core());
        cluster.apply(seen(&json!({})));
        let (operator, mut publisher) = testing::operator(&server, cluster);
        let (evictions, stop) = (Evictions::new(), CancellationToken::new());
        let controller = evictions.controller(Arc::clone(&operator));
        let worker = testing::spawn(operator.run(controller, stop.clone()));
        let drain_for = async |seconds: u64| {
            for _ in 0..seconds {
                evictions.add(ObjectKey::new("default", "a"), "1", "n", None, "Drifted");
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        };
        drain_for(25).await;
        assert_eq!(server.requests().len(), 1);
        assert_eq!(operator.context.metrics.pods_drained.get(["Drifted"]), 1);
        assert_eq!(publisher.try_next().unwrap().reason(), Reason::Evicted);
        // Somebody has taken the consent back.
        drain_for(10).await;
        assert_eq!(server.requests().len(), 2);
        let going = json!({"deletionTimestamp": "1970-01-01T00:01:00Z", "resourceVersion": "2"});
        operator.state.apply(seen(&going)).await;
        drain_for(60).await;
        assert_eq!(server.requests().len(), 2);
        stop.cancel();
        worker.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_small_pod_is_evicted_once_the_replacement_of_a_larger_one_is_placed() {
        let server =
            ApiServer::answering(|_| (201, json!({"kind": "Status", "status": "Success"})));
        let seen = |name: &str, owner: &str, node: Option<&str>| {
            let owner = json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": owner, "uid": owner, "controller": true}]);
            let metadata = json!({"namespace": "default", "name": name, "uid": name,
                "resourceVersion": "1", "creationTimestamp": "2100-01-01T00:00:00Z", "ownerReferences": owner});
            let pod = json!({"metadata": metadata, "spec": {"nodeName": node}});
            Change::Applied(Object::Pod(Box::new(serde_json::from_value(pod).unwrap())))
        };
        let mut cluster = Cluster::new(&[node_class::KWOK], LabelRules::core());
        cluster.apply(seen("large", "large", Some("n")));
        cluster.apply(seen("small", "small", Some("n")));
        let (operator, _publisher) = testing::operator(&server, cluster);
        let (evictions, stop) = (Evictions::new(), CancellationToken::new());
        let controller = evictions.controller(Arc::clone(&operator));
        let worker = testing::spawn(operator.run(controller, stop.clone()));
        let classes = [("small".into(), 1), ("large".into(), 9)];
        operator.eviction_order.expect(classes.into_iter(), operator.now());
        for name in ["small", "large"] {
            evictions.add(ObjectKey::new("default", name), name, "n", None, "Underutilized");
        }
        let asked = || {
            let requests = server.requests();
            requests.iter().map(|it| it.path.split('/').nth(6).unwrap().to_owned()).collect()
        };
        tokio::time::sleep(Duration::from_secs(2)).await;
        let requests: Vec<String> = asked();
        assert_eq!(requests, ["large"]);
        operator.state.apply(seen("large-again", "large", None)).await;
        operator.state.apply(seen("large-again", "large", Some("m"))).await;
        tokio::time::sleep(Duration::from_millis(500)).await;
        let requests: Vec<String> = asked();
        assert_eq!(requests, ["large", "small"]);
        stop.cancel();
        worker.await.unwrap();
    }

    #[test]
    fn a_pod_that_is_only_asked_is_never_deleted_and_left_alone_after_its_deadline() {
        let asked = |by| Item { urge: Urge::Ask(by), ..item(None, None) };
        let (plain, ask) = (pod(&json!({})), asked(Some(at(100))));
        let protected = pod(&json!({"annotations": {"karpenter.sh/do-not-disrupt": "true"}}));
        assert_eq!(step(Some(&plain), "1", &ask, at(99)), Step::Evict);
        assert_eq!(step(Some(&protected), "1", &ask, at(99)), Step::Protected);
        assert_eq!(step(Some(&plain), "1", &ask, at(100)), Step::Done);
        assert_eq!(step(Some(&plain), "1", &asked(None), at(1 << 30)), Step::Evict);
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
