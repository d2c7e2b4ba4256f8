//! What the cluster looks like, as the watches and the operator's own writes say.
//!
//! One task ([`StateTask::run`]) mutates [`Cluster`](cluster::Cluster); everybody else reads it through [`State::read`], for a moment and never across an
//! await, or asks for a change through [`State::apply`] and waits until it is in. After each change the task tells its subscribers what was touched; the
//! controllers' queues are such subscribers.

pub mod gauges;

pub use tenon_state::{change, cluster, pod, resources, selector, shape, snapshot, volumes};

use std::sync::Arc;

use parking_lot::{Mutex, RwLock, RwLockReadGuard};
use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;

use self::change::{Change, Touched};
use self::cluster::Cluster;
use crate::liveness;

/// Two pages of a list per kind: watches are held back while the state is busy, instead of filling the memory.
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
        };
        (state, task)
    }

    /// The same state for whoever works until `until` is cancelled: what subscribes through this handle hears of nothing after that.
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
    pub async fn synced(&self) {
        self.complete(|complete| complete.synced).await;
    }

    /// Waits until every kind was listed once ([`Cluster::has_listed_all`]): before that, what is not in the state may well be in the cluster.
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
    pub async fn claims_listed(&self) {
        self.complete(|complete| complete.claims).await;
    }

    /// Where watches put what they see.
    pub fn updates(&self) -> mpsc::Sender<Update> {
        self.updates.clone()
    }

    /// From now on `subscriber` hears of all changes, for as long as this handle is for ([`Self::until`]).
    pub fn subscribe(&self, subscriber: impl Fn(&Touched) + Send + Sync + 'static) {
        self.subscribers.lock().push((self.until.clone(), Box::new(subscriber)));
    }
}

/// The one task that mutates the state.
pub struct StateTask {
    cluster: Arc<RwLock<Cluster>>,
    subscribers: Subscribers,
    receiver: mpsc::Receiver<Update>,
    complete: watch::Sender<Completeness>,
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
            let touched = self.cluster.write().apply(change);
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
                        subscriber(touched);
                    }
                }
            }
            if let Some(done) = done {
                done.send(()).ok();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures::FutureExt as _;
    use tenon_crds::labels::LabelRules;

    use super::change::Kind;
    use super::*;

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
        let change = || Change::Marked(BTreeSet::from(["a".to_owned()]));
        state.apply(change()).await;
        assert_eq!(heard.load(Ordering::Relaxed), 2);
        until.cancel();
        state.apply(change()).await;
        assert_eq!(heard.load(Ordering::Relaxed), 3);
        assert_eq!(state.subscribers.lock().len(), 1);
    }
}
