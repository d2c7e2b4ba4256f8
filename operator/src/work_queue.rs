//! Keyed work: what has to be looked at again, once per key, with back-off, never twice at the same
//! time.
//!
//! Controllers put keys in ([`WorkQueue::add`], from the state's notifications) and run one
//! function per key ([`WorkQueue::run`]). A key that comes again while its work is under way is
//! done once more afterwards, so that no change is missed.
//!
//! Each piece of work is a task of its own: it runs on any core, and when it panics its key rests
//! like any that failed, while the others are worked on.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::Debug;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::field::Empty;
use tracing::{Instrument as _, Span};

use crate::liveness;
use crate::metrics::queues::QueueMeter;
use crate::tasks::{self, Panicked, Subtasks, isolated};
use crate::traces::{fail, span};

/// When a key is looked at again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// When something changes.
    Wait,
    /// After this time, or when something changes.
    After(Duration),
}

impl Action {
    /// The earlier of the two.
    #[must_use]
    pub(crate) fn min(self, other: Self) -> Self {
        match (self, other) {
            (Self::Wait, action) | (action, Self::Wait) => action,
            (Self::After(a), Self::After(b)) => Self::After(a.min(b)),
        }
    }
}

/// How long a key whose work failed rests: `min`, doubled with each further failure, at most `max`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Backoff {
    /// After the first failure.
    pub min: Duration,
    /// At most.
    pub max: Duration,
}

impl Backoff {
    /// The rest after so many failures in a row.
    pub(crate) fn delay(self, failures: u32) -> Duration {
        self.min.saturating_mul(1 << failures.saturating_sub(1).min(20)).min(self.max)
    }
}

/// An error of a reconciler.
pub(crate) trait Failure: std::error::Error + 'static {
    /// Which operation failed: label of a metric.
    fn category(&self) -> &'static str;

    /// The object has changed meanwhile: no failure, one has to look again.
    fn is_conflict(&self) -> bool;

    /// Who has to know.
    fn concern(&self) -> Concern {
        Concern::Administrator
    }

    /// They have been told: it is neither logged nor counted once more.
    fn is_reported(&self) -> bool {
        false
    }
}

/// Who has to know of a failure. Whatever it is, its work is tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Concern {
    /// Nobody: an object went while it was worked on.
    Nobody,
    /// Whoever looks into a problem: it usually passes by itself, such as an API server that is not
    /// reached or has too much to do.
    Passing,
    /// An administrator, for it does not go away by itself.
    Administrator,
}

/// Logs a failure for whoever has to know of it.
macro_rules! log_concern {
    ($concern:expr, $($fields:tt)*) => {
        match $concern {
            $crate::work_queue::Concern::Nobody => tracing::debug!($($fields)*),
            $crate::work_queue::Concern::Passing => tracing::warn!($($fields)*),
            $crate::work_queue::Concern::Administrator => tracing::error!($($fields)*),
        }
    };
}
pub(crate) use log_concern;

/// Keys to work on. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct WorkQueue<K: Ord> {
    shared: Arc<Shared<K>>,
}

#[derive(Debug)]
struct Shared<K: Ord> {
    queue: Mutex<Queue<K>>,
    changed: Notify,
}

#[derive(Debug)]
struct Queue<K: Ord> {
    /// Keys to work on now, in order of arrival. Disjoint from `running`.
    ready: VecDeque<K>,
    /// Those in `ready`, and since when.
    queued: BTreeMap<K, Instant>,
    /// How many have come since this was counted last.
    added: u64,
    /// Keys to work on later. The canonical time is here; `timers` is its index.
    due: BTreeMap<K, Instant>,
    timers: BTreeSet<(Instant, K)>,
    running: BTreeSet<K>,
    /// Keys that came while they were running.
    again: BTreeSet<K>,
    failures: BTreeMap<K, u32>,
}

impl<K: Ord> Default for Queue<K> {
    fn default() -> Self {
        Self {
            ready: VecDeque::new(),
            queued: BTreeMap::new(),
            added: 0,
            due: BTreeMap::new(),
            timers: BTreeSet::new(),
            running: BTreeSet::new(),
            again: BTreeSet::new(),
            failures: BTreeMap::new(),
        }
    }
}

impl<K: Ord + Clone + Debug + Send + 'static> Default for WorkQueue<K> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K: Ord + Clone + Debug + Send + 'static> WorkQueue<K> {
    /// An empty queue.
    pub(crate) fn new() -> Self {
        Self { shared: Arc::new(Shared { queue: Mutex::default(), changed: Notify::new() }) }
    }

    /// Works on the key as soon as possible.
    pub(crate) fn add(&self, key: K) {
        self.shared.queue.lock().add(key);
        self.shared.changed.notify_one();
    }

    /// Works on the key after `delay`, or earlier if it is asked for earlier.
    pub(crate) fn add_after(&self, key: K, delay: Duration) {
        self.shared.queue.lock().add_at(key, Instant::now() + delay);
        self.shared.changed.notify_one();
    }

    /// Works on keys, at most `workers` at a time, until `stop`; then finishes what is under way.
    pub(crate) async fn run<F, R, E>(
        self,
        workers: usize,
        backoff: Backoff,
        stop: CancellationToken,
        mut work: F,
    ) where
        F: FnMut(K) -> R,
        R: Future<Output = Result<Action, E>> + Send + 'static,
        E: Send + 'static,
    {
        let metrics = tasks::observer().map(|observer| observer.metrics.queues.clone());
        let meter = QueueMeter::new(metrics, tasks::current());
        let mut running = Subtasks::default();
        loop {
            let mut wake_at = None;
            if !stop.is_cancelled() {
                self.shared.queue.lock().advance(Instant::now());
                while running.len() < workers {
                    // The lock is gone before `work` is called: it may add keys.
                    let Some((key, since)) = self.shared.queue.lock().start() else { break };
                    meter.started(since.elapsed());
                    // Boxed: what is wrapped around a future keeps a place for it in each layer,
                    // also when it has ended, and there may be a thousand.
                    let task = Box::pin(work(key.clone()));
                    let controller = tasks::current();
                    let span = span!(root: "reconcile", otel.name = %format_args!("reconcile {controller}"), ?key, otel.status_description = Empty);
                    let work = async move {
                        let began = Instant::now();
                        let result = isolated(liveness::turn(liveness::WORK, task)).await;
                        if !matches!(result, Ok(Ok(_))) {
                            fail(&Span::current(), "failed; see the log");
                        }
                        (key, result, began.elapsed())
                    };
                    running.spawn(work.instrument(span));
                }
                let (depth, added) = self.shared.queue.lock().count();
                meter.queued(depth, added);
                wake_at = self.shared.queue.lock().timers.first().map(|(at, _)| *at);
            } else if running.is_empty() {
                return;
            }
            tokio::select! {
                Some((key, result, took)) = running.next(), if !running.is_empty() => {
                    let action = match result {
                        Ok(result) => result.ok(),
                        Err(panicked) => {
                            tell(&key, &panicked);
                            None
                        }
                    };
                    meter.ended(took, action.is_none());
                    self.shared.queue.lock().finish(key, action, backoff);
                }
                () = self.shared.changed.notified() => {}
                () = tokio::time::sleep_until(wake_at.unwrap_or_else(Instant::now)), if wake_at.is_some() => {}
                () = stop.cancelled(), if !stop.is_cancelled() => {}
            }
        }
    }
}

impl<K: Ord + Clone> Queue<K> {
    fn add(&mut self, key: K) {
        if self.running.contains(&key) {
            self.again.insert(key);
            return;
        }
        self.unschedule(&key);
        if !self.queued.contains_key(&key) {
            self.queued.insert(key.clone(), Instant::now());
            self.ready.push_back(key);
            self.added += 1;
        }
    }

    fn add_at(&mut self, key: K, at: Instant) {
        if self.queued.contains_key(&key) || self.due.get(&key).is_some_and(|&due| due <= at) {
            return;
        }
        self.unschedule(&key);
        self.timers.insert((at, key.clone()));
        self.due.insert(key, at);
    }

    fn unschedule(&mut self, key: &K) {
        if let Some(at) = self.due.remove(key) {
            self.timers.remove(&(at, key.clone()));
        }
    }

    /// Moves what is due to `ready`.
    fn advance(&mut self, now: Instant) {
        while let Some((at, key)) = self.timers.first().cloned() {
            if at > now {
                break;
            }
            self.add(key.clone());
            // A key that is running is not scheduled again by `add`, its timer has done its duty
            // all the same.
            self.unschedule(&key);
        }
    }

    /// The key to work on next, and since when it has waited.
    fn start(&mut self) -> Option<(K, Instant)> {
        let key = self.ready.pop_front()?;
        let since = self.queued.remove(&key)?;
        self.running.insert(key.clone());
        Some((key, since))
    }

    /// How many keys wait, and how many have come since this was asked last.
    fn count(&mut self) -> (usize, u64) {
        (self.ready.len(), std::mem::take(&mut self.added))
    }

    /// `action` is `None` when the work failed.
    fn finish(&mut self, key: K, action: Option<Action>, backoff: Backoff) {
        self.running.remove(&key);
        let again = self.again.remove(&key);
        if let Some(action) = action {
            self.failures.remove(&key);
            if again {
                self.add(key);
            } else if let Action::After(delay) = action {
                self.add_at(key, Instant::now() + delay);
            }
        } else {
            // Also when it came again meanwhile: what fails rests.
            let failures = self.failures.entry(key.clone()).or_default();
            *failures += 1;
            let delay = backoff.delay(*failures);
            self.add_at(key, Instant::now() + delay);
        }
    }
}

/// Says which object met a defect. The panic itself was logged where it happened, and is counted.
fn tell(key: &impl Debug, panicked: &Panicked) {
    tracing::error!(
        controller = tasks::current(),
        key = ?key,
        error = %panicked,
        "a defect of the operator: reconciling this object panicked. Other objects are reconciled; \
         this one is retried with back-off. Please report it with the object's YAML and the \
         preceding log line, which contains the location"
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::liveness::Liveness;
    use crate::metrics::Metrics;
    use crate::tasks::{Observer, Tasks};

    const BACKOFF: Backoff = Backoff { min: Duration::from_secs(1), max: Duration::from_secs(60) };

    type Log = Arc<Mutex<Vec<(u64, &'static str)>>>;

    /// Runs the queue for `seconds`; each key takes one second and answers what `answer` says.
    /// Returns when which key was started.
    async fn starts(
        queue: &WorkQueue<&'static str>,
        seconds: u64,
        mut answer: impl FnMut(&'static str) -> Result<Action, ()>,
    ) -> Vec<(u64, &'static str)> {
        let log: Log = Arc::default();
        let began = Instant::now();
        let stop = CancellationToken::new();
        let run = queue.clone().run(10, BACKOFF, stop.clone(), |key| {
            log.lock().push((began.elapsed().as_secs(), key));
            let answer = answer(key);
            async move {
                tokio::time::sleep(Duration::from_secs(1)).await;
                answer
            }
        });
        let timer = async {
            tokio::time::sleep(Duration::from_secs(seconds)).await;
            stop.cancel();
        };
        futures::join!(run, timer);
        let log = log.lock();
        log.clone()
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_that_is_added_twice_is_worked_on_once() {
        let queue = WorkQueue::new();
        queue.add("a");
        queue.add("a");
        queue.add("b");
        assert_eq!(starts(&queue, 5, |_| Ok(Action::Wait)).await, [(0, "a"), (0, "b")]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_that_comes_while_it_is_running_runs_once_more_afterwards() {
        let queue = WorkQueue::new();
        queue.add("a");
        let mut first = true;
        let handle = queue.clone();
        let starts = starts(&queue, 5, |key| {
            if std::mem::take(&mut first) {
                handle.add(key);
                handle.add(key);
            }
            Ok(Action::Wait)
        });
        assert_eq!(starts.await, [(0, "a"), (1, "a")]);
    }

    #[tokio::test(start_paused = true)]
    async fn failures_rest_twice_as_long_each_time_and_success_forgets_them() {
        let queue = WorkQueue::new();
        queue.add("a");
        let mut n = 0;
        let starts = starts(&queue, 30, |_| {
            n += 1;
            if n == 4 { Ok(Action::After(Duration::from_secs(5))) } else { Err(()) }
        });
        // Each run takes a second: 0 +1+1= 2, +1+2= 5, +1+4= 10 succeeds, +1+5= 16 fails as the
        // first time, +1+1= 18, ….
        assert_eq!(
            starts.await.iter().map(|(at, _)| *at).collect::<Vec<_>>(),
            [0, 2, 5, 10, 16, 18, 21, 26]
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_queue_that_is_observed_counts_under_the_name_of_its_task() {
        let observer = Observer { metrics: Metrics::new(), liveness: Liveness::default() };
        let metrics = observer.metrics.clone();
        let stop = CancellationToken::new();
        let mut tasks = Tasks::new(stop.clone()).observed(observer);
        let queue = WorkQueue::new();
        queue.add("a");
        queue.add("b");
        tasks.spawn_graceful("node.termination", async move {
            // The first takes a second and fails, while the second waits for it.
            let run = queue.run(1, BACKOFF, stop.clone(), async |key| {
                tokio::time::sleep(Duration::from_secs(1)).await;
                if key == "a" { Err(()) } else { Ok(Action::Wait) }
            });
            let timer = async {
                tokio::time::sleep(Duration::from_millis(1900)).await;
                stop.cancel();
            };
            futures::join!(run, timer);
        });
        tasks.join().await.unwrap();
        let text = metrics.encode().unwrap();
        for line in [
            r#"workqueue_adds_total{name="node.termination",controller="node.termination"} 2"#,
            r#"workqueue_depth{name="node.termination",controller="node.termination"} 0.0"#,
            r#"workqueue_retries_total{name="node.termination",controller="node.termination"} 1"#,
            r#"workqueue_queue_duration_seconds_sum{name="node.termination",controller="node.termination"} 1.0"#,
            r#"workqueue_work_duration_seconds_sum{name="node.termination",controller="node.termination"} 2.0"#,
        ] {
            assert!(text.lines().any(|got| got == line), "no line {line} in\n{text}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_change_is_not_held_up_by_a_timer() {
        let queue = WorkQueue::new();
        queue.add_after("a", Duration::from_secs(20));
        queue.add_after("a", Duration::from_secs(3));
        queue.add_after("b", Duration::from_secs(20));
        queue.add("b");
        assert_eq!(starts(&queue, 30, |_| Ok(Action::Wait)).await, [(0, "b"), (3, "a")]);
    }

    #[tokio::test(start_paused = true)]
    async fn stopping_finishes_what_is_under_way_and_starts_nothing() {
        let queue = WorkQueue::new();
        queue.add("a");
        let stop = CancellationToken::new();
        let done: Log = Arc::default();
        let run = queue.clone().run(10, BACKOFF, stop.clone(), |key| {
            let done = Arc::clone(&done);
            async move {
                tokio::time::sleep(Duration::from_secs(3)).await;
                done.lock().push((3, key));
                Ok::<_, ()>(Action::After(Duration::ZERO))
            }
        });
        let stopper = async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            stop.cancel();
            queue.add("b");
        };
        futures::join!(run, stopper);
        assert_eq!(*done.lock(), [(3, "a")]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_whose_work_panics_rests_like_one_that_failed_and_the_others_go_on() {
        let queue = WorkQueue::new();
        queue.add("bad");
        queue.add("good");
        let stop = CancellationToken::new();
        let done: Log = Arc::default();
        let began = Instant::now();
        let run = queue.clone().run(10, BACKOFF, stop.clone(), |key| {
            let done = Arc::clone(&done);
            async move {
                done.lock().push((began.elapsed().as_secs(), key));
                assert_ne!(key, "bad", "an object that nobody expected");
                Ok::<_, ()>(Action::After(Duration::from_secs(3)))
            }
        });
        let stopper = async {
            tokio::time::sleep(Duration::from_millis(7500)).await;
            stop.cancel();
        };
        futures::join!(run, stopper);
        let done = done.lock();
        let of = |key| done.iter().filter(|it| it.1 == key).map(|it| it.0).collect::<Vec<_>>();
        assert_eq!(of("bad"), [0, 1, 3, 7]);
        assert_eq!(of("good"), [0, 3, 6]);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn work_that_holds_a_core_holds_up_no_other_key() {
        let queue = WorkQueue::new();
        queue.add("first");
        queue.add("second");
        let stop = CancellationToken::new();
        // Each waits, without an await, for the other to be under way.
        let under_way = Arc::new((Mutex::new(0), parking_lot::Condvar::new()));
        let run = queue.clone().run(10, BACKOFF, stop.clone(), |_| {
            let (under_way, stop) = (Arc::clone(&under_way), stop.clone());
            async move {
                let (count, changed) = &*under_way;
                let mut count = count.lock();
                *count += 1;
                changed.notify_all();
                let patience = Duration::from_secs(10);
                changed.wait_while_for(&mut count, |count| *count < 2, patience);
                stop.cancel();
                Ok::<_, ()>(Action::Wait)
            }
        });
        run.await;
        assert_eq!(*under_way.0.lock(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn work_ends_with_the_queue_that_is_dropped() {
        let queue = WorkQueue::new();
        queue.add("a");
        let alive = Arc::new(());
        let run = queue.clone().run(10, BACKOFF, CancellationToken::new(), |_| {
            let held = Arc::clone(&alive);
            async move {
                std::future::pending::<()>().await;
                drop(held);
                Ok::<_, ()>(Action::Wait)
            }
        });
        tokio::time::timeout(Duration::from_secs(1), run).await.unwrap_err();
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(Arc::strong_count(&alive), 1);
    }
}
