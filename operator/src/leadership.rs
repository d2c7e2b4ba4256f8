//! From standby to leader and back, in one process.
//!
//! A replica campaigns only when its caches are filled: a leader that does not know the cluster yet
//! would take what it has not read for gone. While it leads it runs the controllers, until it is
//! told to stop or can no longer be sure that it leads. Either way its controllers are gone before
//! anybody else may begin; whoever leads next finds what was under way, as after a crash.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::leader::{Election, Lost};
use crate::tasks::{TaskEnded, Tasks};

/// How long work that is under way may take to finish when the replica is told to stop. What takes
/// longer is cut off, because nobody works until the lease is given up.
const GRACE: Duration = Duration::from_millis(700);
/// A lease that could not be renewed for ten seconds runs out after fifteen: by then the
/// controllers have to be gone.
const ABORT_DEADLINE: Duration = Duration::from_secs(4);

/// Why a replica can't go on.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A controller ended.
    #[error(transparent)]
    Task(#[from] TaskEnded),
    /// The lease was lost, and a controller could not be stopped before another replica may take
    /// over.
    #[error("the controllers did not stop in time after the lease was lost")]
    Stuck(#[source] Lost),
}

/// What a replica does in its turn.
pub(crate) trait Replica: Sync {
    /// Waits until this replica knows the cluster.
    fn warm_up(&self) -> impl Future<Output = ()> + Send;

    /// This replica leads: starts the controllers, which stop when the tasks' token is cancelled.
    /// Dropped where it stands when the lease is lost meanwhile.
    fn lead(&self, tasks: &mut Tasks) -> impl Future<Output = ()> + Send;

    /// This replica does not lead any more, and its controllers are gone.
    fn step_down(&self);
}

/// Why a replica does not lead any more.
enum Ended {
    Stopped,
    Lost(Lost),
    Task(TaskEnded),
}

/// Takes part in the election and leads whenever it is won, until `stop`. Without an election the
/// replica always leads.
pub(crate) async fn run(
    election: Option<&Election>,
    replica: &impl Replica,
    stop: &CancellationToken,
) -> Result<(), Error> {
    while stop.run_until_cancelled(campaign(election, replica)).await.is_some() {
        let mut tasks = Tasks::new(stop.child_token());
        let ended = hold(election, replica, &mut tasks, stop).await;
        if let Ended::Lost(lost) = ended {
            tracing::warn!(%lost, "stopped leading; campaigning again");
            if tokio::time::timeout(ABORT_DEADLINE, tasks.abort()).await.is_err() {
                return Err(Error::Stuck(lost));
            }
            replica.step_down();
            release(election).await;
            continue;
        }
        if tokio::time::timeout(GRACE, tasks.join()).await.is_err() {
            tracing::info!("aborting the work in progress to release the lease");
            tasks.abort().await;
        }
        replica.step_down();
        if let Ended::Task(ended) = ended {
            release(election).await;
            return Err(ended.into());
        }
    }
    // Also when the campaign was broken off: its last request may have won the lease.
    release(election).await;
    Ok(())
}

async fn campaign(election: Option<&Election>, replica: &impl Replica) {
    replica.warm_up().await;
    if let Some(election) = election {
        election.acquire().await;
    }
}

/// Leads until that has to end. The lease is renewed from the first moment: what a replica has to
/// do before its controllers start may take as long as it likes.
async fn hold(
    election: Option<&Election>,
    replica: &impl Replica,
    tasks: &mut Tasks,
    stop: &CancellationToken,
) -> Ended {
    let lost = async {
        match election {
            Some(election) => election.hold().await,
            None => std::future::pending().await,
        }
    };
    let work = async {
        replica.lead(tasks).await;
        tasks.supervise().await
    };
    tokio::select! {
        biased;
        lost = lost => Ended::Lost(lost),
        () = stop.cancelled() => Ended::Stopped,
        ended = work => ended.map_or_else(Ended::Task, |()| Ended::Stopped),
    }
}

async fn release(election: Option<&Election>) {
    if let Some(election) = election {
        election.release().await;
    }
}

#[cfg(test)]
mod tests;
