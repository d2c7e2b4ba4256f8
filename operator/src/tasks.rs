//! The one place where the operator spawns tasks: named, counted, and stopped together.

use std::future::Future;

use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

tokio::task_local! {
    static NAME: &'static str;
}

/// The name of the task that this runs in; empty outside of [`Tasks`].
pub fn current() -> &'static str {
    NAME.try_with(|name| *name).unwrap_or_default()
}

/// Tasks that live and end together.
///
/// The first task that ends while it was not told to stop ends all of them: a controller that has lost one of its loops is worse than one that
/// restarts.
#[derive(Debug)]
pub struct Tasks {
    set: JoinSet<&'static str>,
    stop: CancellationToken,
}

impl Tasks {
    /// An empty set that stops when `stop` is cancelled.
    pub fn new(stop: CancellationToken) -> Self {
        Self { set: JoinSet::new(), stop }
    }

    /// The token that tells the tasks to stop.
    pub fn stop_token(&self) -> &CancellationToken {
        &self.stop
    }

    /// Spawns a task that runs until the token is cancelled; it is dropped at its next await then. A task that has something to finish on shutdown
    /// takes a clone of [`Self::stop_token`] and is spawned with [`Self::spawn_graceful`].
    pub fn spawn(&mut self, name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        let stop = self.stop.clone();
        self.spawn_graceful(name, async move {
            stop.run_until_cancelled(task).await;
        });
    }

    /// Spawns a task that watches [`Self::stop_token`] itself.
    pub fn spawn_graceful(
        &mut self,
        name: &'static str,
        task: impl Future<Output = ()> + Send + 'static,
    ) {
        use tracing::Instrument as _;
        let span = tracing::info_span!("task", name);
        self.set.spawn(
            NAME.scope(name, async move {
                task.await;
                name
            })
            .instrument(span),
        );
    }

    /// Ends all tasks where they stand, and waits until they are gone: each at its next await.
    pub async fn abort(&mut self) {
        self.stop.cancel();
        self.set.shutdown().await;
    }

    /// Waits until all tasks have ended. When one ends or panics before the token was cancelled, cancels it and returns that task's name.
    pub async fn join(&mut self) -> Result<(), TaskEnded> {
        let first = self.supervise().await;
        while self.set.join_next().await.is_some() {}
        first
    }

    /// Waits until a task ends or panics before the token was cancelled: cancels it, and returns that task's name while the others still stop. `Ok` when all
    /// have ended because they were told to.
    pub async fn supervise(&mut self) -> Result<(), TaskEnded> {
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

/// Does heavy work where it holds nobody up; `None` when the runtime is going away.
pub async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    match tokio::task::spawn_blocking(work).await {
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
