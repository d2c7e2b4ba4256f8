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

use self::change::{Change, Touched};
use self::cluster::Cluster;

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

/// Handle to the state; clones share it.
#[derive(Clone)]
pub struct State {
    cluster: Arc<RwLock<Cluster>>,
    updates: mpsc::Sender<Update>,
    subscribers: Arc<Mutex<Vec<Subscriber>>>,
    synced: watch::Receiver<bool>,
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
        let (tell_synced, synced) = watch::channel(false);
        let state = Self { cluster, updates, subscribers, synced };
        let task = StateTask {
            cluster: Arc::clone(&state.cluster),
            subscribers: Arc::clone(&state.subscribers),
            receiver,
            synced: tell_synced,
        };
        (state, task)
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
        // The task ends only when the operator does; then nobody plans any more.
        if self.synced.clone().wait_for(|synced| *synced).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Where watches put what they see.
    pub fn updates(&self) -> mpsc::Sender<Update> {
        self.updates.clone()
    }

    /// From now on `subscriber` hears of all changes.
    pub fn subscribe(&self, subscriber: impl Fn(&Touched) + Send + Sync + 'static) {
        self.subscribers.lock().push(Box::new(subscriber));
    }
}

/// The one task that mutates the state.
pub struct StateTask {
    cluster: Arc<RwLock<Cluster>>,
    subscribers: Arc<Mutex<Vec<Subscriber>>>,
    receiver: mpsc::Receiver<Update>,
    synced: watch::Sender<bool>,
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
            let listed = matches!(change, Change::Listed(..));
            let touched = self.cluster.write().apply(change);
            // Only these two can change the answer, and it costs a look at every NodeClaim.
            if listed || touched.iter().any(|touched| matches!(touched, Touched::NodeClaim(_))) {
                let now = self.cluster.read().is_synced();
                self.synced.send_if_modified(|synced| std::mem::replace(synced, now) != now);
            }
            {
                let subscribers = self.subscribers.lock();
                for touched in &touched {
                    for subscriber in subscribers.iter() {
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
