//! How the planner is run: on a thread for heavy work, until its time is over or the operator is
//! told to stop.
//!
//! What was planned when the operator is told to stop is not carried out: whoever leads next plans
//! anew. A pass that panics ends nothing but itself; pods and NodePools that make provisioning
//! panic are left out for a while ([`quarantine`](crate::quarantine), [`pools`]), so that the
//! others are planned for. What holds planning up is told on the NodePools
//! ([`pauses`](crate::pauses)).

pub(crate) mod pools;

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tenon_planner::{Cancel, Snapshot};
use tokio_util::sync::CancellationToken;
use tracing::Span;

use crate::clock::Clock;
use crate::cloud_provider::CloudProvider;
use crate::operator::Operator;
use crate::quarantine::Work;
use crate::tasks::{self, Panicked, blocking};
use crate::traces::{number, span};

/// So long it is searched what makes the planner panic.
pub(crate) const SEARCH: Duration = Duration::from_mins(5);

/// Says when planning has to end: its time is over, or the operator is told to stop.
#[derive(Clone, Debug)]
pub(crate) struct Until {
    clock: Clock,
    end: Timestamp,
    stop: CancellationToken,
}

impl Until {
    /// After so much time, or with `stop`.
    pub(crate) fn new(clock: Clock, time: Duration, stop: &CancellationToken) -> Self {
        let now = clock.now();
        let end = now.checked_add(time).unwrap_or(Timestamp::MAX);
        Self { clock, end, stop: stop.clone() }
    }
}

impl Cancel for Until {
    fn is_cancelled(&self) -> bool {
        self.stop.is_cancelled() || self.clock.now() > self.end
    }
}

/// Does heavy work. `None` as soon as `stop` says so, whatever came of the work, or when the
/// runtime is going away. A panic goes on in the caller.
pub(crate) async fn unless_stopped<T: Send + 'static>(
    stop: &CancellationToken,
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    let result = stop.run_until_cancelled(blocking(work)).await??;
    // What ended early because it was told to is no result.
    (!stop.is_cancelled()).then_some(result)
}

/// Plans on a snapshot of this moment; `None` as [`unless_stopped`].
pub(crate) async fn on_snapshot<P: CloudProvider, T: Send + 'static>(
    operator: &Arc<Operator<P>>,
    stop: &CancellationToken,
    work: impl FnOnce(&Operator<P>, Snapshot) -> T + Send + 'static,
) -> Option<T> {
    on_snapshot_for(Work::All, operator, stop, work).await
}

/// The same without the NodePools that are left out of some work.
pub(crate) async fn on_snapshot_for<P: CloudProvider, T: Send + 'static>(
    purpose: Work,
    operator: &Arc<Operator<P>>,
    stop: &CancellationToken,
    work: impl FnOnce(&Operator<P>, Snapshot) -> T + Send + 'static,
) -> Option<T> {
    let (operator, pass) = (Arc::clone(operator), Span::current());
    unless_stopped(stop, move || {
        let _pass = pass.enter();
        let snapshot = span!("snapshot").in_scope(|| operator.snapshot_for(purpose, |_| true));
        let (nodes, pods) = (snapshot.nodes.len(), snapshot.pods.len());
        span!("plan", nodes = number(nodes), pods = number(pods))
            .in_scope(|| work(&operator, snapshot))
    })
    .await
}

/// Says that a pass panicked. The panic itself was logged where it happened, and is counted.
pub(crate) fn tell(panicked: &Panicked) {
    tracing::error!(
        controller = tasks::current(),
        error = %panicked,
        "a defect of the operator: this pass panicked, and its remaining steps are left to the \
         next one. Please report it with the preceding log line, which contains the location, and \
         with the planner's input: tenon simulate --live --save snapshot.json"
    );
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[tokio::test]
    async fn planning_ends_at_once_when_the_operator_is_told_to_stop_and_nothing_comes_of_it() {
        let stop = CancellationToken::new();
        let until = Until::new(Clock::system(), Duration::from_hours(1), &stop);
        let (begin, begun) = tokio::sync::oneshot::channel();
        let (end, ended) = mpsc::channel();
        let planning = unless_stopped(&stop, move || {
            begin.send(()).ok();
            while !until.is_cancelled() {
                std::thread::yield_now();
            }
            end.send(()).ok();
            "half a plan"
        });
        let stopping = async {
            begun.await.unwrap();
            stop.cancel();
        };
        let (plan, ()) = tokio::join!(planning, stopping);
        assert_eq!(plan, None);
        // The thread is free, too: the end of the process does not wait for it.
        tokio::task::spawn_blocking(move || ended.recv().unwrap()).await.unwrap();
        assert_eq!(unless_stopped(&stop, || "a plan").await, None);
    }

    #[tokio::test]
    async fn planning_that_is_not_told_to_stop_has_its_time() {
        let stop = CancellationToken::new();
        let until = |time| Until::new(Clock::system(), time, &stop);
        assert!(!until(Duration::from_hours(1)).is_cancelled());
        let short = until(Duration::ZERO);
        let plan = unless_stopped(&stop, move || {
            while !short.is_cancelled() {
                std::thread::yield_now();
            }
            "what fits into the time"
        });
        assert_eq!(plan.await, Some("what fits into the time"));
    }
}
