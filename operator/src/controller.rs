//! Controllers, written once: which keys a change affects, which there are at the start, how many
//! are worked on at a time, and what is said of a failure.
//!
//! A [`Reconciler`] says what is particular to it; [`Controller::run`] subscribes it to the state,
//! seeds its queue, works on it and settles each result. Which controllers there are stands in one
//! table ([`crate::run`]).

use std::convert::Infallible;
use std::fmt::{self, Debug, Display};
use std::future::{Future, pending, ready};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::{self, BoxStream, SelectAll};
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

use crate::metrics::Metrics;
use crate::state::State;
use crate::state::change::Touched;
use crate::state::cluster::Cluster;
use crate::text::chain;
use crate::work_queue::{Action, Backoff, Failure, WorkQueue, log_concern};

/// Brings objects of one kind to what they should be, one key at a time.
pub(crate) trait Reconciler: Send + Sync + 'static {
    /// Name of the task, and label of logs and metrics.
    const NAME: &'static str;

    /// How long a key rests whose reconcile failed.
    const BACKOFF: Backoff = Backoff { min: Duration::from_secs(1), max: Duration::from_mins(1) };

    /// What is reconciled, usually an object's name.
    type Key: Ord + Clone + Debug + Display + Send + Sync + 'static;

    /// Why a reconcile fails.
    type Error: Failure + Send;

    /// How many keys are worked on at a time.
    fn workers(&self) -> usize;

    /// What has to be looked at because of a change. Called by the task that owns the state: it
    /// must not block.
    fn affected(&self, _touched: &Touched, _state: &State) -> Affected<Self::Key> {
        Affected::None
    }

    /// Every key that there is, to begin with and for [`Affected::All`].
    fn all(&self, _state: &Cluster) -> Vec<Self::Key> {
        Vec::new()
    }

    /// Looks at one key: dereference, validate, build, apply, update the status.
    fn reconcile(
        &self,
        key: &Self::Key,
    ) -> impl Future<Output = Result<Action, Self::Error>> + Send;

    /// What goes on beside the reconciles, such as a regular sweep that adds keys. It ends with the
    /// controller, at its next await.
    fn beside(&self, _queue: &WorkQueue<Self::Key>) -> impl Future<Output = ()> + Send {
        pending()
    }
}

/// Something that is done again and again.
pub(crate) trait Periodic: Send + 'static {
    /// Name of the task.
    const NAME: &'static str;

    /// What comes first; answers how long the first pass waits.
    fn begin(&mut self) -> impl Future<Output = Duration> + Send {
        ready(Duration::ZERO)
    }

    /// Does it once; answers how long to rest before it is done again.
    fn pass(&mut self) -> impl Future<Output = Duration> + Send;
}

/// Does it again and again, for ever.
pub(crate) async fn repeat(mut periodic: impl Periodic) {
    let mut rest = periodic.begin().await;
    loop {
        tokio::time::sleep(rest).await;
        rest = periodic.pass().await;
    }
}

/// Does it again and again until `stop`; a pass that is under way then is finished.
pub(crate) async fn repeat_until(stop: CancellationToken, mut periodic: impl Periodic) {
    let mut rest = periodic.begin().await;
    while stop.run_until_cancelled(tokio::time::sleep(rest)).await.is_some() {
        rest = periodic.pass().await;
    }
}

/// The keys that a change affects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Affected<K> {
    /// None.
    None,
    /// This one.
    One(K),
    /// These.
    Many(Vec<K>),
    /// All that there are ([`Reconciler::all`]), once for changes that come in quick succession.
    All,
}

impl<K> From<Option<K>> for Affected<K> {
    fn from(key: Option<K>) -> Self {
        key.map_or(Self::None, Self::One)
    }
}

impl<K> FromIterator<K> for Affected<K> {
    fn from_iter<I: IntoIterator<Item = K>>(keys: I) -> Self {
        Self::Many(keys.into_iter().collect())
    }
}

/// The one key of a controller that looks at everything at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Everything;

impl Display for Everything {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("all")
    }
}

/// A reconciler, with what makes it run.
pub(crate) struct Controller<R: Reconciler> {
    reconciler: Arc<R>,
    queue: WorkQueue<R::Key>,
    signals: SelectAll<BoxStream<'static, ()>>,
}

impl<R: Reconciler> Controller<R> {
    /// A controller with a queue of its own.
    pub(crate) fn new(reconciler: R) -> Self {
        Self::fed_by(reconciler, WorkQueue::new())
    }

    /// A controller that others put keys into as well.
    pub(crate) fn fed_by(reconciler: R, queue: WorkQueue<R::Key>) -> Self {
        Self { reconciler: Arc::new(reconciler), queue, signals: SelectAll::new() }
    }

    /// Looks at every key whenever this changes, too.
    #[must_use]
    pub(crate) fn on<T: Send + Sync + 'static>(mut self, signal: watch::Receiver<T>) -> Self {
        let changes = stream::unfold(signal, |mut signal| async move {
            let changed = signal.changed().await;
            changed.is_ok().then_some(((), signal))
        });
        self.signals.push(changes.boxed());
        self
    }

    /// Reconciles until `stop`; what is under way then is finished.
    pub(crate) async fn run(self, state: State, metrics: Metrics, stop: CancellationToken) {
        let Self { reconciler, queue, mut signals } = self;
        let all = Arc::new(Notify::new());
        subscribe(&reconciler, &queue, &all, &state);
        let seed = || {
            let keys = reconciler.all(&state.read());
            for key in keys {
                queue.add(key);
            }
        };
        seed();
        let seeding = async {
            loop {
                tokio::select! {
                    Some(()) = signals.next() => {}
                    () = all.notified() => {}
                }
                seed();
            }
        };
        let work = queue.clone().run(reconciler.workers(), R::BACKOFF, stop, |key| {
            let (reconciler, metrics) = (Arc::clone(&reconciler), metrics.clone());
            async move {
                let result = reconciler.reconcile(&key).await;
                settle(&metrics, R::NAME, &key, result)
            }
        });
        tokio::select! {
            () = work => {}
            () = seeding => {}
            () = reconciler.beside(&queue) => {}
        }
    }
}

fn subscribe<R: Reconciler>(
    reconciler: &Arc<R>,
    queue: &WorkQueue<R::Key>,
    all: &Arc<Notify>,
    state: &State,
) {
    let (reconciler, queue, all) = (Arc::clone(reconciler), queue.clone(), Arc::clone(all));
    let read = state.clone();
    state.subscribe(move |touched| match reconciler.affected(touched, &read) {
        Affected::None => {}
        Affected::One(key) => queue.add(key),
        Affected::Many(keys) => {
            for key in keys {
                queue.add(key);
            }
        }
        Affected::All => all.notify_one(),
    });
}

/// The one place where the result of a reconcile is logged and counted. The error has been dealt
/// with then; `Err` only asks for back-off.
fn settle<E: Failure>(
    metrics: &Metrics,
    controller: &'static str,
    key: &impl Display,
    result: Result<Action, E>,
) -> Result<Action, Reported> {
    /// The newer version is on its way through the watch, and brings the key back by itself; this
    /// is for the case that it was there already.
    const SOON: Duration = Duration::from_millis(250);
    result.or_else(|error| {
        let key = key.to_string();
        if error.is_conflict() {
            tracing::debug!(controller, key, error = %error, "has changed in the meantime, retrying");
            return Ok(Action::After(SOON));
        }
        if error.is_reported() {
            return Err(Reported);
        }
        let category = error.category();
        metrics.reconcile_errors.inc([controller, category]);
        let concern = error.concern();
        let error = chain(&error);
        log_concern!(concern, controller, key, category, error, "reconcile failed");
        Err(Reported)
    })
}

/// A reconcile failed, and whoever has to know has been told: the key rests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("failed, as was reported")]
pub(crate) struct Reported;

impl Failure for Reported {
    fn category(&self) -> &'static str {
        "reported"
    }

    fn is_conflict(&self) -> bool {
        false
    }

    fn is_reported(&self) -> bool {
        true
    }
}

impl Failure for Infallible {
    fn category(&self) -> &'static str {
        match *self {}
    }

    fn is_conflict(&self) -> bool {
        match *self {}
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use parking_lot::Mutex;
    use serde_json::json;
    use tenon_crds::labels::LabelRules;

    use super::*;
    use crate::state::change::{Change, Kind, Object};
    use crate::testing::{Logs, spawn};

    #[derive(Clone, Copy, Debug, thiserror::Error)]
    #[error("it went wrong")]
    enum Odd {
        Conflict,
        Reported,
        Other,
    }

    impl Failure for Odd {
        fn category(&self) -> &'static str {
            "odd"
        }

        fn is_conflict(&self) -> bool {
            matches!(self, Self::Conflict)
        }

        fn is_reported(&self) -> bool {
            matches!(self, Self::Reported)
        }
    }

    /// Looks at Nodes, at all of them when one of them is called `all`, and remembers it.
    #[derive(Default)]
    struct Looks(Arc<Mutex<Vec<String>>>);

    impl Reconciler for Looks {
        const NAME: &'static str = "looks";
        type Key = String;
        type Error = Odd;

        fn workers(&self) -> usize {
            1
        }

        fn affected(&self, touched: &Touched, _: &State) -> Affected<String> {
            match touched {
                Touched::Node(name) if name == "all" => Affected::All,
                Touched::Node(name) => Affected::One(name.clone()),
                _ => Affected::None,
            }
        }

        fn all(&self, state: &Cluster) -> Vec<String> {
            state.nodes().map(|node| node.name().to_owned()).collect()
        }

        async fn reconcile(&self, name: &String) -> Result<Action, Odd> {
            self.0.lock().push(name.clone());
            Ok(Action::Wait)
        }
    }

    fn node(name: &str) -> Change {
        let node = json!({"metadata": {"name": name}});
        Change::Applied(Object::Node(Box::new(serde_json::from_value(node).unwrap())))
    }

    #[tokio::test(start_paused = true)]
    async fn what_there_is_what_changes_and_everything_on_a_signal_is_looked_at() {
        let mut cluster = Cluster::new(&[], LabelRules::core());
        cluster.apply(node("a"));
        let (state, task) = State::new(cluster);
        spawn(task.run());
        let looks = Looks::default();
        let looked = Arc::clone(&looks.0);
        let seen = async || {
            tokio::time::sleep(Duration::from_secs(1)).await;
            std::mem::take(&mut *looked.lock())
        };
        let (signal, signalled) = watch::channel(0);
        let (metrics, stop) = (Metrics::new(), CancellationToken::new());
        let controller = Controller::new(looks).on(signalled);
        let running = spawn(controller.run(state.clone(), metrics, stop.clone()));
        assert_eq!(seen().await, ["a"]);
        state.apply(node("b")).await;
        assert_eq!(seen().await, ["b"]);
        let none = Change::Listed(Kind::Pod, BTreeSet::new());
        state.apply(none).await;
        assert_eq!(seen().await, [""; 0]);
        signal.send_replace(1);
        assert_eq!(seen().await, ["a", "b"]);
        // It is looked at with all others, and by itself like them: once.
        state.apply(node("all")).await;
        assert_eq!(seen().await, ["a", "all", "b"]);
        // Nobody signals any more; that is no reason to end.
        drop(signal);
        state.apply(node("b")).await;
        assert_eq!(seen().await, ["b"]);
        stop.cancel();
        running.await.unwrap();
    }

    #[test]
    fn a_failure_is_told_once_unless_it_is_a_conflict_or_was_told() {
        let metrics = Metrics::new();
        let (logs, _collecting) = Logs::collect();
        let settled = |error| settle(&metrics, "looks", &"a", Err(error));
        assert!(matches!(settled(Odd::Conflict), Ok(Action::After(_))));
        assert_eq!(settled(Odd::Reported), Err(Reported));
        assert_eq!(metrics.reconcile_errors.get(["looks", "odd"]), 0);
        assert_eq!(logs.with("reconcile failed").len(), 0);
        assert_eq!(settled(Odd::Other), Err(Reported));
        assert_eq!(metrics.reconcile_errors.get(["looks", "odd"]), 1);
        assert_eq!(logs.with("reconcile failed").len(), 1);
    }
}
