//! Watches of the Kubernetes API: they decode only what the operator uses, and hand it to the task
//! that owns the state.
//!
//! One task per kind. A list that was interrupted starts over; objects that are gone since the last
//! list are found by comparing names, once the list is complete. An object that does not parse is
//! skipped loudly (log, event, metric), the others of its kind go on.

mod encoded;

pub(crate) use tenon_state::change::Watched;
pub(crate) use tenon_state::wire;

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::time::Duration;

use futures::{Stream, StreamExt as _, pin_mut};
use k8s_openapi::api::core::v1::ObjectReference;
use kube::runtime::watcher::{self, Event as WatchEvent, watcher};
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use tokio::sync::mpsc;

use crate::context::Context;
use crate::events::{Event, EventType, Reason};
use crate::liveness::{self, Underway};
use crate::state::Update;
use crate::state::change::{Change, Kind, ObjectKey, version};
use crate::tasks::Tasks;
use crate::work_queue::Backoff;
use tenon_state::guarded::{Guarded, Invalid};
use tenon_state::protobuf::Encoded;

/// Rest after errors of a watch.
const BACKOFF: Backoff = Backoff { min: Duration::from_millis(800), max: Duration::from_secs(30) };

/// Starts the watches of these kinds.
pub(crate) fn start(
    context: &Context,
    changes: &mpsc::Sender<Update>,
    kinds: &BTreeSet<Kind>,
    tasks: &mut Tasks,
) {
    use tenon_crds::{CapacityBuffer, NodeClaim, NodeOverlay, NodePool};
    let mut watches = Watches { context, changes, kinds, tasks };
    watches.add::<NodePool>("watch.nodepools");
    watches.add::<NodeClaim>("watch.nodeclaims");
    watches.add_encoded::<wire::Node>("watch.nodes");
    watches.add_encoded::<wire::Pod>("watch.pods");
    watches.add::<wire::DaemonSet>("watch.daemonsets");
    watches.add::<wire::PodDisruptionBudget>("watch.poddisruptionbudgets");
    watches.add::<wire::Namespace>("watch.namespaces");
    watches.add::<wire::PersistentVolumeClaim>("watch.persistentvolumeclaims");
    watches.add::<wire::PersistentVolume>("watch.persistentvolumes");
    watches.add::<wire::StorageClass>("watch.storageclasses");
    watches.add::<wire::VolumeAttachment>("watch.volumeattachments");
    watches.add::<wire::CSINode>("watch.csinodes");
    watches.add::<NodeOverlay>("watch.nodeoverlays");
    watches.add::<CapacityBuffer>("watch.capacitybuffers");
    watches.add::<wire::PodTemplate>("watch.podtemplates");
    watches.add::<wire::Deployment>("watch.deployments");
    watches.add::<wire::StatefulSet>("watch.statefulsets");
    watches.add::<wire::ReplicaSet>("watch.replicasets");
    watches.add::<wire::ResourceQuota>("watch.resourcequotas");
    watches.add::<wire::Service>("watch.services");
    watches.add::<wire::ReplicationController>("watch.replicationcontrollers");
    watches.add::<wire::DeviceClass>("watch.deviceclasses");
    watches.add::<wire::ResourceClaim>("watch.resourceclaims");
    watches.add::<wire::ResourceClaimTemplate>("watch.resourceclaimtemplates");
    watches.add::<wire::ResourceSlice>("watch.resourceslices");
}

/// Whether the API server serves devices and claims (`resource.k8s.io/v1`, from Kubernetes 1.34).
/// One that does not answer is taken to serve them: the watches try until it does.
pub(crate) async fn serves_devices(client: &Client) -> bool {
    let found = client.list_api_group_resources("resource.k8s.io/v1").await;
    !matches!(found, Err(kube::Error::Api(status)) if status.code == 404)
}

/// The watches that are started.
struct Watches<'a> {
    context: &'a Context,
    changes: &'a mpsc::Sender<Update>,
    kinds: &'a BTreeSet<Kind>,
    tasks: &'a mut Tasks,
}

impl Watches<'_> {
    fn add<K: Watched>(&mut self, name: &'static str) {
        if self.kinds.contains(&K::KIND) {
            self.tasks.spawn(name, watch::<K>(self.context.clone(), self.changes.clone()));
        }
    }

    /// The same, where lists come in the Protobuf encoding.
    fn add_encoded<K: Encoded>(&mut self, name: &'static str) {
        if self.kinds.contains(&K::KIND) {
            let (context, sink) = (self.context.clone(), ToState(self.changes.clone()));
            self.tasks.spawn(name, async move {
                let events = encoded::events(context.client.clone());
                let accept = |object| accept::<K>(&context, object);
                follow(events, accept, K::KIND.may_be_missing(), sink).await;
            });
        }
    }
}

/// What a watch sees of a kind.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Seen<K> {
    /// A list begins.
    ListBegan,
    /// An object of the list.
    InList(K),
    /// The list is complete: what is not among these is gone. What does not parse is among them.
    Listed(BTreeSet<ObjectKey>),
    /// An object came or changed.
    Applied(K),
    /// An object went, at this resource version.
    Deleted(ObjectKey, u64),
}

/// Who takes what a watch sees.
pub(crate) trait Sink<K>: Send {
    /// Takes it; false when nothing is taken any more.
    fn take(&mut self, seen: Seen<K>) -> impl Future<Output = bool> + Send;
}

/// The state takes it.
struct ToState(mpsc::Sender<Update>);

impl<K: Watched> Sink<K> for ToState {
    async fn take(&mut self, seen: Seen<K>) -> bool {
        let change = match seen {
            Seen::ListBegan => Change::ListBegan(K::KIND),
            Seen::InList(object) => Change::InList(object.into_object()),
            Seen::Listed(names) => Change::Listed(K::KIND, names),
            Seen::Applied(object) => Change::Applied(object.into_object()),
            Seen::Deleted(key, version) => Change::Deleted(K::KIND, key, version),
        };
        self.0.send(Update::new(change)).await.is_ok()
    }
}

/// Watches one kind until nobody takes the changes any more.
async fn watch<K: Watched>(context: Context, changes: mpsc::Sender<Update>) {
    keep::<K>(&context, K::KIND.may_be_missing(), ToState(changes)).await;
}

/// Watches one kind, whose CRD may be missing, until `sink` takes nothing any more.
pub(crate) async fn keep<K>(context: &Context, may_be_missing: bool, sink: impl Sink<K>)
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
{
    context.metrics.invalid_objects.begin([&K::kind(&())]);
    let api = Api::<Guarded<K>>::all(context.client.clone());
    let stream = watcher(api, watcher::Config::default());
    follow(stream, |object| accept(context, object), may_be_missing, sink).await;
}

/// Hands on what the events of one kind come to, until they end or nobody takes it any more.
/// `accept` leaves out what does not parse.
async fn follow<K: Resource<DynamicType = ()>>(
    events: impl Stream<Item = watcher::Result<WatchEvent<Guarded<K>>>>,
    accept: impl Fn(Guarded<K>) -> Option<K>,
    may_be_missing: bool,
    mut sink: impl Sink<K>,
) {
    let kind = K::kind(&());
    let mut listed = BTreeSet::new();
    let (mut failures, mut missing) = (0, false);
    // A list that is under way has to get on. A watch that is open may be silent for as long as
    // nothing happens: its connection is looked after elsewhere.
    let mut listing: Option<Underway> = None;
    pin_mut!(events);
    while let Some(event) = events.next().await {
        let seen = match event {
            // Every try begins with it, before the request is sent, so it is no success.
            Ok(WatchEvent::Init) => {
                listed.clear();
                listing = liveness::begin(liveness::PASSING);
                if !sink.take(Seen::ListBegan).await {
                    return;
                }
                continue;
            }
            Ok(WatchEvent::InitApply(object)) => {
                // Also one that does not parse is there: what was known of it before stays.
                listed.insert(ObjectKey::of(&object));
                if let Some(listing) = &listing {
                    listing.progressed();
                }
                accept(object).map(Seen::InList)
            }
            Ok(WatchEvent::InitDone) => {
                listing = None;
                Some(Seen::Listed(std::mem::take(&mut listed)))
            }
            Ok(WatchEvent::Apply(object)) => accept(object).map(Seen::Applied),
            Ok(WatchEvent::Delete(object)) => {
                let version = version(object.meta().resource_version.as_deref());
                Some(Seen::Deleted(ObjectKey::of(&object), version))
            }
            Err(error) => {
                failures += 1;
                listing = None;
                let was_missing = std::mem::replace(&mut missing, is_missing(&error));
                let newly = missing && !was_missing;
                report(&kind, &error, failures, may_be_missing && !newly);
                // What the API server does not serve has no objects; the watch goes on in case that
                // its CRD is installed.
                if newly && may_be_missing && !sink.take(Seen::Listed(BTreeSet::new())).await {
                    return;
                }
                tokio::time::sleep(BACKOFF.delay(failures)).await;
                continue;
            }
        };
        (failures, missing) = (0, false);
        if let Some(seen) = seen
            && !sink.take(seen).await
        {
            return;
        }
    }
}

fn accept<K: Resource<DynamicType = ()>>(context: &Context, object: Guarded<K>) -> Option<K> {
    match object.into_result() {
        Ok(object) => Some(object),
        Err(invalid) => {
            skip::<K>(context, *invalid);
            None
        }
    }
}

/// Says that an object does not parse: in the log, in the metric, and on the object itself.
fn skip<K: Resource<DynamicType = ()>>(context: &Context, invalid: Invalid) {
    let Invalid { error, metadata } = &invalid;
    let kind = K::kind(&());
    let name = metadata.name.as_deref().unwrap_or_default();
    tracing::warn!(%kind, namespace = metadata.namespace, name, %error, "skipping an object that does not parse");
    context.metrics.invalid_objects.inc([&kind]);
    context.recorder.publish(event::<K>(invalid));
}

/// What is said on an object that does not parse. Its kind is known from the watch, the rest from
/// its metadata.
fn event<K: Resource<DynamicType = ()>>(Invalid { error, metadata }: Invalid) -> Event {
    let regarding = ObjectReference {
        api_version: Some(K::api_version(&()).into_owned()),
        kind: Some(K::kind(&()).into_owned()),
        name: metadata.name,
        namespace: metadata.namespace,
        uid: metadata.uid,
        ..ObjectReference::default()
    };
    let message = format!("This object is ignored, because it does not parse: {error}");
    Event::about(regarding, EventType::Warning, Reason::Invalid, message)
}

/// The API server does not serve the kind.
fn is_missing(error: &watcher::Error) -> bool {
    use watcher::Error::{InitialListFailed, WatchStartFailed};
    match error {
        InitialListFailed(kube::Error::Api(status))
        | WatchStartFailed(kube::Error::Api(status)) => status.is_not_found(),
        _ => false,
    }
}

/// Logs a failure, the last of so many in a row. `expected` is one of a kind that was missing
/// before, and may be.
fn report(kind: &str, error: &watcher::Error, failures: u32, expected: bool) {
    if is_missing(error) && expected {
        tracing::debug!(%kind, "the API server still does not know this kind");
    } else if is_missing(error) {
        tracing::warn!(%kind, "the API server does not know this kind; are the CRDs installed?");
    } else if failures == 1 {
        // Watches end all the time, e.g. when the API server restarts: one failure is nothing to
        // report.
        tracing::debug!(%kind, error = %crate::text::chain(&error), "watch interrupted");
    } else {
        tracing::warn!(%kind, failures, error = %crate::text::chain(&error), "watch failed");
    }
}

#[cfg(test)]
mod tests {
    use kube::core::Status;
    use serde_json::json;
    use tenon_crds::{EC2NodeClass, NodeOverlay, NodeOverlaySpec, NodePool};

    use super::*;

    type Events<K> = Vec<watcher::Result<WatchEvent<Guarded<K>>>>;

    fn refused<K>(code: u16) -> watcher::Result<WatchEvent<Guarded<K>>> {
        let reason = if code == 404 { "NotFound" } else { "ServiceUnavailable" };
        let status = Status::failure("refused", reason).with_code(code);
        Err(watcher::Error::InitialListFailed(kube::Error::Api(status.boxed())))
    }

    /// What the state is told to have been listed: how many objects each time.
    async fn lists<K: Watched>(events: Events<K>) -> Vec<usize> {
        let (changes, mut updates) = mpsc::channel(10);
        let accept = |object: Guarded<K>| object.into_result().ok();
        let may_be_missing = K::KIND.may_be_missing();
        follow(futures::stream::iter(events), accept, may_be_missing, ToState(changes)).await;
        let mut lists = Vec::new();
        while let Some(update) = updates.recv().await {
            if let Change::Listed(kind, names) = update.change {
                assert_eq!(kind, K::KIND);
                lists.push(names.len());
            }
        }
        lists
    }

    #[tokio::test(start_paused = true)]
    async fn a_kind_that_need_not_be_installed_counts_as_listed_once_the_api_server_does_not_know_it()
     {
        let tries = |codes: &[u16]| -> Events<NodeOverlay> {
            codes.iter().flat_map(|&code| [Ok(WatchEvent::Init), refused(code)]).collect()
        };
        assert_eq!(lists(tries(&[404, 404])).await, [0]);
        assert_eq!(lists(tries(&[503, 404, 404])).await, [0]);
        assert_eq!(lists(tries(&[503, 503])).await, [0_usize; 0]);
        // It was installed, had an object, and was taken away again.
        let overlay = NodeOverlay::new("a", NodeOverlaySpec::default());
        let overlay: Guarded<NodeOverlay> =
            serde_json::from_value(serde_json::to_value(overlay).unwrap()).unwrap();
        let listed =
            [WatchEvent::Init, WatchEvent::InitApply(overlay), WatchEvent::InitDone].map(Ok);
        let mut events = tries(&[404]);
        events.extend(listed);
        events.extend(tries(&[404]));
        assert_eq!(lists(events).await, [0, 1, 0]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_kind_that_has_to_be_installed_is_waited_for() {
        let tries: Events<NodePool> = vec![refused(503), refused(404), refused(404)];
        assert_eq!(lists(tries).await, [0_usize; 0]);
    }

    #[test]
    fn an_event_about_an_object_that_does_not_parse_names_it_as_kubectl_describe_looks_it_up() {
        let class: Guarded<EC2NodeClass> = serde_json::from_value(json!({
            "apiVersion": "karpenter.k8s.aws/v1", "kind": "EC2NodeClass",
            "metadata": {"name": "broken", "uid": "4711"},
            "spec": {"kubelet": {"maxPods": 3_000_000_000_u64}},
        }))
        .unwrap();
        let event = event::<EC2NodeClass>(*class.into_result().unwrap_err());
        let expected = ObjectReference {
            api_version: Some("karpenter.k8s.aws/v1".to_owned()),
            kind: Some("EC2NodeClass".to_owned()),
            name: Some("broken".to_owned()),
            uid: Some("4711".to_owned()),
            ..ObjectReference::default()
        };
        assert_eq!(*event.regarding(), expected);
        assert_eq!(event.reason(), Reason::Invalid);
        assert!(event.message().contains("3000000000"), "{}", event.message());
    }
}
