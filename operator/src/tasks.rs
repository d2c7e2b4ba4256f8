//! The one place where the operator spawns tasks: named, counted, and stopped together.
//!
//! A task that panics ends the process. Where the work is about one object of many it is
//! [`isolated`], so that the others are still served.

use std::any::Any;
use std::future::Future;
use std::panic::AssertUnwindSafe;

use futures::FutureExt as _;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

use crate::liveness::{self, Liveness};
use crate::metrics::Metrics;

tokio::task_local! {
    static TASK: Task;
}

/// What a task knows about itself, and hands on to its own tasks.
#[derive(Clone, Default)]
struct Task {
    name: &'static str,
    observer: Option<Observer>,
}

impl Task {
    /// Has the turns of its work registered.
    fn watch<T>(self, work: impl Future<Output = T>) -> impl Future<Output = T> {
        let liveness = self.observer.map(|observer| observer.liveness);
        liveness::of_task(self.name, liveness, work)
    }
}

/// Who is told what tasks do.
#[derive(Clone, Debug)]
pub(crate) struct Observer {
    /// Counts it, panics that it survives among it.
    pub metrics: Metrics,
    /// Notices what does not end.
    pub liveness: Liveness,
}

/// Who observes the task that this runs in; `None` outside of [`Tasks`], and of those that nobody
/// observes.
pub(crate) fn observer() -> Option<Observer> {
    TASK.try_with(|task| task.observer.clone()).ok().flatten()
}

/// The name of the task that this runs in; empty outside of [`Tasks`].
pub(crate) fn current() -> &'static str {
    TASK.try_with(|task| task.name).unwrap_or_default()
}

/// Tasks that live and end together.
///
/// The first task that ends while it was not told to stop ends all of them: a controller that has
/// lost one of its loops is worse than one that restarts.
#[derive(Debug)]
pub(crate) struct Tasks {
    set: JoinSet<&'static str>,
    stop: CancellationToken,
    observer: Option<Observer>,
}

impl Tasks {
    /// An empty set that stops when `stop` is cancelled.
    pub(crate) fn new(stop: CancellationToken) -> Self {
        Self { set: JoinSet::new(), stop, observer: None }
    }

    /// Tells `observer` what the tasks do that are spawned from now on.
    #[must_use]
    pub(crate) fn observed(mut self, observer: Observer) -> Self {
        self.observe(observer);
        self
    }

    /// [`Self::observed`] for tasks that somebody else has made.
    pub(crate) fn observe(&mut self, observer: Observer) {
        self.observer = Some(observer);
    }

    /// The token that tells the tasks to stop.
    pub(crate) fn stop_token(&self) -> &CancellationToken {
        &self.stop
    }

    /// Spawns a task that runs until the token is cancelled; it is dropped at its next await then.
    /// A task that has something to finish on shutdown takes a clone of [`Self::stop_token`] and is
    /// spawned with [`Self::spawn_graceful`].
    pub(crate) fn spawn(
        &mut self,
        name: &'static str,
        task: impl Future<Output = ()> + Send + 'static,
    ) {
        let (stop, task) = (self.stop.clone(), task.boxed());
        self.spawn_graceful(name, async move {
            stop.run_until_cancelled(task).await;
        });
    }

    /// Spawns a task that watches [`Self::stop_token`] itself.
    pub(crate) fn spawn_graceful(
        &mut self,
        name: &'static str,
        task: impl Future<Output = ()> + Send + 'static,
    ) {
        if let Some(observer) = &self.observer {
            observer.metrics.panics.begin([name]);
        }
        let span = tracing::info_span!("task", name);
        let own = Task { name, observer: self.observer.clone() };
        // Boxed, as in [`Self::spawn`]: what is wrapped around a future keeps a place for it in
        // each layer, and is compiled once for each kind of future.
        let task = own.clone().watch(task.boxed());
        self.set.spawn(
            TASK.scope(own, async move {
                task.await;
                name
            })
            .instrument(span),
        );
    }

    /// Ends all tasks where they stand, and waits until they are gone: each at its next await.
    pub(crate) async fn abort(&mut self) {
        self.stop.cancel();
        self.set.shutdown().await;
    }

    /// Waits until all tasks have ended. When one ends or panics before the token was cancelled,
    /// cancels it and returns that task's name.
    pub(crate) async fn join(&mut self) -> Result<(), TaskEnded> {
        let first = self.supervise().await;
        while self.set.join_next().await.is_some() {}
        first
    }

    /// Waits until a task ends or panics before the token was cancelled: cancels it, and returns
    /// that task's name while the others still stop. `Ok` when all have ended because they were
    /// told to.
    pub(crate) async fn supervise(&mut self) -> Result<(), TaskEnded> {
        while let Some(ended) = self.set.join_next().await {
            if self.stop.is_cancelled() {
                continue;
            }
            self.stop.cancel();
            return Err(match ended {
                Ok(name) => TaskEnded::Early(name),
                Err(error) => TaskEnded::Panicked(error),
            });
        }
        Ok(())
    }
}

/// The tasks of a task: they bear its name, run on any thread, and are gone when it is.
#[derive(Debug)]
pub(crate) struct Subtasks<T> {
    set: JoinSet<T>,
}

impl<T> Default for Subtasks<T> {
    fn default() -> Self {
        Self { set: JoinSet::new() }
    }
}

impl<T: Send + 'static> Subtasks<T> {
    /// How many have not been taken by [`Self::next`] yet.
    pub(crate) fn len(&self) -> usize {
        self.set.len()
    }

    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.set.is_empty()
    }

    /// Spawns one.
    pub(crate) fn spawn(&mut self, work: impl Future<Output = T> + Send + 'static) {
        let own = TASK.try_with(Task::clone).unwrap_or_default();
        let work = own.clone().watch(work);
        self.set.spawn(TASK.scope(own, work).in_current_span());
    }

    /// What the next one that ends comes to; `None` when there are none. A panic goes on here.
    pub(crate) async fn next(&mut self) -> Option<T> {
        loop {
            match self.set.join_next().await? {
                Ok(result) => return Some(result),
                Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
                // The runtime is going away.
                Err(_) => {}
            }
        }
    }
}

/// Does work whose panic must not reach others: it is counted, and the caller tells what it was
/// about. Where it happened the log says already ([`crate::logging::start`]).
///
/// What the work shares with others has to be whole at each step: locks are released, not poisoned.
pub(crate) async fn isolated<T>(work: impl Future<Output = T>) -> Result<T, Panicked> {
    AssertUnwindSafe(work).catch_unwind().await.map_err(|payload| {
        TASK.try_with(|task| {
            if let Some(observer) = &task.observer {
                observer.metrics.panics.inc([task.name]);
            }
        })
        .ok();
        Panicked::new(payload.as_ref())
    })
}

/// Work panicked: a defect of the program, met by certain data.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("panicked: {message}")]
pub(crate) struct Panicked {
    message: String,
}

impl Panicked {
    /// From what a panic carries.
    pub(crate) fn new(payload: &(dyn Any + Send)) -> Self {
        let text = payload.downcast_ref::<&str>().copied();
        let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
        Self { message: text.unwrap_or("without a message").to_owned() }
    }
}

/// Does heavy work where it holds nobody up; `None` when the runtime is going away. A panic goes on
/// in the caller.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    let ended = tokio::task::spawn_blocking(work).await;
    liveness::progressed();
    match ended {
        Ok(result) => Some(result),
        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        Err(_) => None,
    }
}

/// A task ended although nobody told it to.
#[derive(Debug, thiserror::Error)]
pub enum TaskEnded {
    /// It returned.
    #[error("task {0} ended early")]
    Early(&'static str),
    /// It panicked.
    #[error("a task panicked")]
    Panicked(#[source] tokio::task::JoinError),
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::Metrics;

    #[tokio::test]
    async fn a_panic_that_is_isolated_is_counted_by_task_and_ends_nothing() {
        let metrics = Metrics::new();
        let stop = CancellationToken::new();
        let mut tasks = Tasks::new(stop.clone())
            .observed(Observer { metrics: metrics.clone(), liveness: Liveness::default() });
        let (told, heard) = tokio::sync::oneshot::channel();
        let (begin, begun) = tokio::sync::oneshot::channel();
        tasks.spawn("careful", async move {
            begun.await.unwrap();
            let there = isolated(async { panic!("{} is odd", 3) }).await;
            let elsewhere =
                isolated(blocking(|| panic!("so is this"))).await.map(|_: Option<()>| ());
            let mut subtasks = Subtasks::default();
            subtasks.spawn(async { (current(), isolated(async { panic!("and this") }).await) });
            let below = subtasks.next().await;
            told.send((there, elsewhere, below)).ok();
            std::future::pending::<()>().await;
        });
        let none = "tenon_panics_total{controller=\"careful\"} 0";
        assert!(metrics.encode().unwrap().contains(none), "exposed before the first panic");
        begin.send(()).unwrap();
        let (there, elsewhere, below): (Result<(), _>, _, _) = heard.await.unwrap();
        let panicked = |message: &str| Err(Panicked { message: message.to_owned() });
        assert_eq!(there, panicked("3 is odd"));
        assert_eq!(elsewhere, panicked("so is this"));
        let (name, below): (_, Result<(), _>) = below.unwrap();
        assert_eq!((name, below), ("careful", panicked("and this")));
        assert_eq!(metrics.panics.get(["careful"]), 3);
        stop.cancel();
        tasks.join().await.unwrap();
    }

    #[tokio::test]
    async fn a_task_that_panics_ends_all() {
        let mut tasks = Tasks::new(CancellationToken::new());
        tasks.spawn("careless", async { panic!("odd") });
        tasks.spawn("other", std::future::pending());
        assert!(matches!(tasks.join().await, Err(TaskEnded::Panicked(_))));
    }
}
