//! What the cluster looks like, as the watches and the operator's own writes say.
//!
//! One task ([`StateTask::run`]) mutates [`Cluster`]; everybody else reads it
//! through [`State::read`], for a moment and never across an await, or asks for a change through
//! [`State::apply`] and waits until it is in. After each change the task tells its subscribers what
//! was touched; the controllers' queues are such subscribers.

pub use tenon_state::{change, cluster, pod, resources, shape, snapshot, volumes};

use std::sync::Arc;

use futures::FutureExt as _;
use parking_lot::{Mutex, RwLock, RwLockReadGuard};
use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;

use self::change::{Change, Kind, ObjectKey, Touched};
use self::cluster::Cluster;
use crate::liveness;
use crate::tasks::{Panicked, isolated};

/// Two pages of a list per kind: watches are held back while the state is busy, instead of filling
/// the memory.
const CHANNEL_SIZE: usize = 1024;

/// A change on its way to the task that owns the state.
#[derive(Debug)]
pub struct Update {
    pub(crate) change: Change,
    done: Option<oneshot::Sender<()>>,
}

impl Update {
    /// A change that nobody waits for.
    pub fn new(change: Change) -> Self {
        Self { change, done: None }
    }
}

/// Hears of everything that changes. Called by the task that owns the state: it must not block.
pub type Subscriber = Box<dyn Fn(&Touched) + Send + Sync>;

/// Subscribers, and until when each of them hears of changes.
type Subscribers = Arc<Mutex<Vec<(CancellationToken, Subscriber)>>>;

/// How complete the state is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Completeness {
    /// [`Cluster::has_found_crds`].
    claims: bool,
    /// [`Cluster::has_listed_all`].
    listed: bool,
    /// [`Cluster::is_synced`].
    synced: bool,
}

/// Handle to the state; clones share it.
#[derive(Clone)]
pub struct State {
    cluster: Arc<RwLock<Cluster>>,
    updates: mpsc::Sender<Update>,
    subscribers: Subscribers,
    complete: watch::Receiver<Completeness>,
    /// Ends what subscribes through this handle.
    until: CancellationToken,
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("State").finish_non_exhaustive()
    }
}

impl State {
    /// A state, and the task that somebody has to run.
    pub fn new(cluster: Cluster) -> (Self, StateTask) {
        let (updates, receiver) = mpsc::channel(CHANNEL_SIZE);
        let cluster = Arc::new(RwLock::new(cluster));
        let subscribers = Arc::default();
        let (tell_complete, complete) = watch::channel(Completeness::default());
        let until = CancellationToken::new();
        let state = Self { cluster, updates, subscribers, complete, until };
        let task = StateTask {
            cluster: Arc::clone(&state.cluster),
            subscribers: Arc::clone(&state.subscribers),
            receiver,
            complete: tell_complete,
            take_in: Cluster::apply,
        };
        (state, task)
    }

    /// The same state for whoever works until `until` is cancelled: what subscribes through this
    /// handle hears of nothing after that.
    #[must_use]
    pub fn until(&self, until: CancellationToken) -> Self {
        Self { until, ..self.clone() }
    }

    /// The state as it is now. The guard must be gone before the next await.
    pub fn read(&self) -> RwLockReadGuard<'_, Cluster> {
        self.cluster.read()
    }

    /// Makes a change and waits until it is in.
    pub async fn apply(&self, change: Change) {
        let (done, applied) = oneshot::channel();
        let update = Update { change, done: Some(done) };
        // Both ends go away only when the operator stops; then nobody looks at the state any more.
        if self.updates.send(update).await.is_ok() {
            applied.await.ok();
        }
    }

    /// Waits until the state can be planned on ([`Cluster::is_synced`]).
    pub(crate) async fn synced(&self) {
        self.complete(|complete| complete.synced).await;
    }

    /// Waits until the state can't be planned on.
    pub(crate) async fn incomplete(&self) {
        self.complete(|complete| !complete.synced).await;
    }

    /// Waits until every kind was listed once ([`Cluster::has_listed_all`]): before that, what is
    /// not in the state may well be in the cluster.
    pub async fn listed(&self) {
        self.complete(|complete| complete.listed).await;
    }

    async fn complete(&self, is_enough: impl Fn(&Completeness) -> bool) {
        // The task ends only when the operator does; then nobody plans any more.
        if self.complete.clone().wait_for(is_enough).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Waits until NodeClaims were listed: until then one that is not here may exist.
    pub(crate) async fn claims_listed(&self) {
        self.complete(|complete| complete.claims).await;
    }

    /// Where watches put what they see.
    pub fn updates(&self) -> mpsc::Sender<Update> {
        self.updates.clone()
    }

    /// From now on `subscriber` hears of all changes, for as long as this handle is for
    /// ([`Self::until`]).
    pub fn subscribe(&self, subscriber: impl Fn(&Touched) + Send + Sync + 'static) {
        self.subscribers.lock().push((self.until.clone(), Box::new(subscriber)));
    }
}

/// The one task that mutates the state.
///
/// An object that makes it panic is a defect of the operator, and must not take everything else
/// with it: whoever may create a pod could stop the whole cluster from being served. It is left as
/// it is known, and told.
pub struct StateTask {
    cluster: Arc<RwLock<Cluster>>,
    subscribers: Subscribers,
    receiver: mpsc::Receiver<Update>,
    complete: watch::Sender<Completeness>,
    /// [`Cluster::apply`].
    take_in: fn(&mut Cluster, Change) -> Vec<Touched>,
}

impl std::fmt::Debug for StateTask {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StateTask").finish_non_exhaustive()
    }
}

impl StateTask {
    /// Takes in changes until all handles are gone.
    pub async fn run(mut self) {
        while let Some(Update { change, done }) = self.receiver.recv().await {
            let _turn = liveness::begin(liveness::PASSING);
            let listed = matches!(change, Change::Listed(..));
            let subject = change.subject();
            let taken_in = isolated(async { (self.take_in)(&mut self.cluster.write(), change) });
            let touched = match taken_in.await {
                Ok(touched) => touched,
                Err(panicked) => {
                    tell(&panicked, subject.as_ref());
                    self.mend().await;
                    // Whoever works on the object finds that nothing has changed.
                    subject.into_iter().filter_map(|(kind, key)| touched_by(kind, &key)).collect()
                }
            };
            // Only these two can change the answer, and it costs a look at every NodeClaim.
            if listed || touched.iter().any(|touched| matches!(touched, Touched::NodeClaim(_))) {
                let now = {
                    let cluster = self.cluster.read();
                    Completeness {
                        claims: cluster.has_found_crds(),
                        listed: cluster.has_listed_all(),
                        synced: cluster.is_synced(),
                    }
                };
                self.complete.send_if_modified(|known| std::mem::replace(known, now) != now);
            }
            {
                let mut subscribers = self.subscribers.lock();
                subscribers.retain(|(until, _)| !until.is_cancelled());
                for touched in &touched {
                    for (_, subscriber) in subscribers.iter() {
                        // The others have to hear of it all the same.
                        let heard = isolated(async { subscriber(touched) }).now_or_never();
                        if let Some(Err(panicked)) = heard {
                            tell_deaf(&panicked, touched);
                        }
                    }
                }
            }
            if let Some(done) = done {
                done.send(()).ok();
            }
        }
    }
}

impl StateTask {
    /// Makes what is derived from objects anew: a change that broke off may have left it between
    /// two of them.
    async fn mend(&self) {
        let mended = isolated(async { self.cluster.write().rebuild() }).await;
        if let Err(panicked) = mended {
            tracing::error!(error = %panicked, "a defect of the operator: the indexes of the state \
                 could not be rebuilt");
        }
    }
}

fn tell(panicked: &Panicked, subject: Option<&(Kind, ObjectKey)>) {
    let object = subject.map(|(kind, key)| format!("{kind:?} {key}"));
    tracing::error!(
        object,
        error = %panicked,
        "a defect of the operator: applying a change panicked. The state of the object may be out \
         of date until it changes again; all other objects are handled. Please report it with the \
         preceding log line, which contains the location, and with the object"
    );
}

fn tell_deaf(panicked: &Panicked, touched: &Touched) {
    tracing::error!(
        ?touched,
        error = %panicked,
        "a defect of the operator: a controller panicked when it was notified of a change. Please \
         report it with the preceding log line, which contains the location"
    );
}

/// What to look at again when an object could not be taken in.
fn touched_by(kind: Kind, key: &ObjectKey) -> Option<Touched> {
    match kind {
        Kind::NodePool => Some(Touched::NodePool(key.name.to_string())),
        Kind::NodeClaim => Some(Touched::NodeClaim(key.name.to_string())),
        Kind::Node => Some(Touched::Node(key.name.to_string())),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};
    use std::sync::atomic::{AtomicUsize, Ordering};

    use serde_json::json;
    use tenon_crds::labels::LabelRules;
    use tokio_util::sync::CancellationToken;

    use super::change::Object;
    use super::*;
    use crate::liveness::Liveness;
    use crate::metrics::Metrics;
    use crate::tasks::{Observer, Tasks};

    fn state() -> State {
        let (state, task) = State::new(Cluster::new(&[], LabelRules::core()));
        crate::testing::spawn(task.run());
        state
    }

    #[tokio::test]
    async fn it_is_listed_when_the_last_kind_was() {
        let state = state();
        for kind in Kind::ALL {
            assert_eq!(state.listed().now_or_never(), None, "{kind:?} was not listed yet");
            state.apply(Change::Listed(kind, BTreeSet::new())).await;
        }
        state.listed().await;
    }

    #[tokio::test]
    async fn who_subscribes_for_a_time_hears_of_nothing_after_it() {
        let state = state();
        let until = CancellationToken::new();
        let heard = Arc::new(AtomicUsize::new(0));
        for handle in [state.clone(), state.until(until.clone())] {
            let heard = Arc::clone(&heard);
            handle.subscribe(move |_| {
                heard.fetch_add(1, Ordering::Relaxed);
            });
        }
        let change =
            || Change::Marked { claims: ["a".to_owned()].into(), replacements: BTreeMap::new() };
        state.apply(change()).await;
        assert_eq!(heard.load(Ordering::Relaxed), 2);
        until.cancel();
        state.apply(change()).await;
        assert_eq!(heard.load(Ordering::Relaxed), 3);
        assert_eq!(state.subscribers.lock().len(), 1);
    }

    /// A NodeClaim whose machine has this ID.
    fn claim(name: &str, version: u32, machine: &str) -> Change {
        let claim = json!({
            "metadata": {"name": name, "uid": name, "resourceVersion": version.to_string()},
            "spec": {"requirements": [],
                "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "c"}},
            "status": {"providerID": machine},
        });
        Change::Applied(Object::NodeClaim(Box::new(serde_json::from_value(claim).unwrap())))
    }

    /// A state whose task can't cope with version 2 of the object `bad`, and breaks off in the
    /// middle.
    fn fragile() -> (State, Metrics, Tasks) {
        let cluster = Cluster::new(crate::testing::KINDS, LabelRules::core());
        let (state, mut task) = State::new(cluster);
        task.take_in = |cluster, change| {
            let bad = change.subject().is_some_and(|(_, key)| *key.name == *"bad");
            let touched = cluster.apply(change);
            let second = cluster
                .claim("bad")
                .is_some_and(|claim| claim.metadata.resource_version.as_deref() == Some("2"));
            assert!(!(bad && second), "it is odd");
            touched
        };
        let metrics = Metrics::new();
        let observer = Observer { metrics: metrics.clone(), liveness: Liveness::default() };
        let mut tasks = Tasks::new(CancellationToken::new()).observed(observer);
        tasks.spawn("state", task.run());
        (state, metrics, tasks)
    }

    #[tokio::test]
    async fn an_object_that_can_not_be_taken_in_leaves_all_others_right() {
        let (state, metrics, _tasks) = fragile();
        let (logs, _collecting) = crate::testing::Logs::collect();
        state.apply(claim("good", 1, "kwok://a")).await;
        state.apply(claim("bad", 1, "kwok://b")).await;
        state.apply(claim("bad", 2, "kwok://c")).await;
        assert_eq!(metrics.panics.get(["state"]), 1);
        assert_eq!(logs.with("NodeClaim bad").len(), 1);
        state.apply(claim("good", 2, "kwok://d")).await;
        state.apply(claim("bad", 3, "kwok://e")).await;
        let state = state.read();
        let machines =
            |name: &str| state.claim(name).and_then(|claim| claim.provider_id().map(str::to_owned));
        assert_eq!(machines("good").as_deref(), Some("kwok://d"));
        assert_eq!(machines("bad").as_deref(), Some("kwok://e"));
        for (machine, n_claims) in [("a", 0), ("b", 0), ("c", 0), ("d", 1), ("e", 1)] {
            assert_eq!(
                state.claims_of(&format!("kwok://{machine}")).count(),
                n_claims,
                "{machine}"
            );
        }
    }

    #[tokio::test]
    async fn a_subscriber_that_panics_keeps_nobody_from_hearing() {
        let (state, metrics, _tasks) = fragile();
        let heard = Arc::new(AtomicUsize::new(0));
        state.subscribe(|touched| assert_ne!(*touched, Touched::NodeClaim("odd".to_owned())));
        let counted = Arc::clone(&heard);
        state.subscribe(move |_| {
            counted.fetch_add(1, Ordering::Relaxed);
        });
        for name in ["odd", "even"] {
            state.apply(claim(name, 1, "kwok://a")).await;
        }
        assert_eq!(heard.load(Ordering::Relaxed), 2);
        assert_eq!(metrics.panics.get(["state"]), 1);
    }
}
