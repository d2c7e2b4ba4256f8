//! Steps that may be taken at once: each is noted before it is taken, and all are waited for.

use futures::future::LocalBoxFuture;
use futures::stream::{FuturesUnordered, StreamExt};
use tenon_installer_core::apply::StepError;
use tenon_installer_core::failure::Failure;
use tenon_installer_core::journal::State;
use tokio::time::Instant;

use super::Remover;
use crate::errors::ExpectedError;

/// How many steps are taken at once: what the API server and AWS's rate limits for these calls bear
/// without a retry.
const AT_ONCE: usize = 8;

/// One thing to remove.
pub(super) struct Task<'t> {
    id: String,
    what: String,
    action: LocalBoxFuture<'t, Result<(), Failure>>,
}

impl<'t> Task<'t> {
    /// `id` for the record, `what` for people.
    pub(super) fn new(
        id: impl Into<String>,
        what: impl Into<String>,
        action: impl Future<Output = Result<(), Failure>> + 't,
    ) -> Self {
        Self { id: id.into(), what: what.into(), action: Box::pin(action) }
    }
}

impl Remover<'_> {
    /// Takes one step.
    pub(super) async fn step(
        &mut self,
        id: &str,
        what: &str,
        action: impl Future<Output = Result<(), Failure>>,
    ) -> Result<(), ExpectedError> {
        self.steps(vec![Task::new(id, what, action)]).await
    }

    /// Takes steps, several at once. After a failure none is begun, and those that are under way
    /// are waited for.
    pub(super) async fn steps(&mut self, tasks: Vec<Task<'_>>) -> Result<(), ExpectedError> {
        if tasks.is_empty() {
            return Ok(());
        }
        let ids = tasks.iter().map(|task| task.id.clone()).collect::<Vec<_>>();
        if let Err(error) = self.journal.note_all(&ids, State::Begun).await {
            return Err(self.failed(&ids[0], Failure::Journal(error)));
        }
        // One at a time when a test counts them.
        let at_once = if self.options.fault_after.is_some() { 1 } else { AT_ONCE };
        let mut waiting = tasks.into_iter();
        let mut under_way = FuturesUnordered::new();
        let mut done = Vec::new();
        let mut failure = None;
        loop {
            while failure.is_none() && under_way.len() < at_once {
                let Some(task) = waiting.next() else { break };
                let began = Instant::now();
                let Task { id, what, action } = task;
                under_way.push(async move { (id, what, began, action.await) });
            }
            let Some((id, what, began, result)) = under_way.next().await else { break };
            match result {
                Ok(()) => {
                    self.counter.step_done();
                    self.printer.done(&what, "removed", began.elapsed());
                    self.removed.push(what);
                    done.push(id);
                }
                Err(error) => {
                    let _ = self.journal.note(&id, State::Failed).await;
                    // The first failure is the cause; others may follow from it.
                    failure.get_or_insert((id, error));
                }
            }
        }
        // They are done whether or not that can be noted; the next step's note will fail and say
        // so.
        let _ = self.journal.note_all(&done, State::Done).await;
        match failure {
            Some((id, error)) => Err(self.failed(&id, error)),
            None => Ok(()),
        }
    }

    /// A step could not be taken.
    pub(super) fn failed(&self, step: &str, source: Failure) -> ExpectedError {
        ExpectedError::Step(StepError { step: step.to_owned(), done: self.counter.done(), source })
    }
}
