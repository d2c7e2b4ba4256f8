//! Whether the operator still gets on: which loops are in the middle of something, and since when
//! nothing came of it.
//!
//! A loop that waits for work is fine, however long it waits; one that has begun something has to
//! end it. So loops register their turns here ([`turn`], [`begin`]), and a turn in which nothing
//! happens for longer than its limit is stuck: `/healthz` fails and Kubernetes starts the operator
//! anew. A call to the API server that ends, well or not, counts as something that happened: calls
//! have deadlines, and a slow API server makes turns long but hangs none of them.
//!
//! A turn is registered under the name of the task that it runs in, in the registry that the task
//! was handed ([`of_task`]).

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// Turns that calculate and write: plans, and whatever is done about one object. A plan takes three
/// minutes at most, and calls of AWS up to four without an end.
pub(crate) const WORK: Duration = Duration::from_mins(15);

/// Turns that only pass something on: a change into the state, a page of a list out of the API
/// server, which has a minute for it.
pub(crate) const PASSING: Duration = Duration::from_mins(5);

tokio::task_local! {
    /// The task that this runs in, and the registry that it was handed.
    static TASK: (&'static str, Liveness);
    static CURRENT: Arc<Underway>;
}

/// Does the work of a task of this name, whose turns are registered in `liveness`.
pub(crate) async fn of_task<T>(
    name: &'static str,
    liveness: Option<Liveness>,
    work: impl Future<Output = T>,
) -> T {
    match liveness {
        Some(liveness) => TASK.scope((name, liveness), work).await,
        None => work.await,
    }
}

/// Does one turn of the loop that this task runs; it is stuck when nothing happens for `limit`.
pub(crate) async fn turn<T>(limit: Duration, work: impl Future<Output = T>) -> T {
    match begin(limit) {
        Some(underway) => CURRENT.scope(Arc::new(underway), work).await,
        None => work.await,
    }
}

/// Registers a turn of the loop that this task runs, until the answer is dropped. `None` outside of
/// a task that was handed a registry.
pub(crate) fn begin(limit: Duration) -> Option<Underway> {
    TASK.try_with(|(name, liveness)| liveness.begin(name, limit)).ok()
}

/// The turn that this runs in got on.
pub(crate) fn progressed() {
    CURRENT.try_with(|underway| underway.progressed()).ok();
}

/// The turns that are under way. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Liveness {
    turns: Arc<Mutex<Turns>>,
}

#[derive(Debug, Default)]
struct Turns {
    next: u64,
    underway: BTreeMap<u64, Turn>,
}

#[derive(Clone, Copy, Debug)]
struct Turn {
    name: &'static str,
    limit: Duration,
    began: Instant,
    progressed: Instant,
}

/// A turn that has begun; it ends when this is dropped.
#[derive(Debug)]
pub struct Underway {
    turns: Arc<Mutex<Turns>>,
    id: u64,
}

impl Underway {
    /// Something came of it.
    pub(crate) fn progressed(&self) {
        if let Some(turn) = self.turns.lock().underway.get_mut(&self.id) {
            turn.progressed = Instant::now();
        }
    }
}

impl Drop for Underway {
    fn drop(&mut self) {
        self.turns.lock().underway.remove(&self.id);
    }
}

/// A loop in whose turn nothing has happened for too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name} has been stuck for {} s (limit {} s)", lasting.as_secs(), limit.as_secs())]
pub struct Stuck {
    /// Name of the task, as `/healthz` reports it.
    pub name: &'static str,
    /// Since when nothing has happened.
    pub lasting: Duration,
    /// How long that may be.
    pub limit: Duration,
}

/// What is under way in one task.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Unfinished {
    /// How long all of its turns have lasted together.
    pub total: Duration,
    /// How long the longest has lasted.
    pub longest: Duration,
}

impl Liveness {
    /// Registers a turn.
    pub fn begin(&self, name: &'static str, limit: Duration) -> Underway {
        let now = Instant::now();
        let mut turns = self.turns.lock();
        turns.next += 1;
        let id = turns.next;
        turns.underway.insert(id, Turn { name, limit, began: now, progressed: now });
        Underway { turns: Arc::clone(&self.turns), id }
    }

    /// The loops that are stuck, each with the turn in which nothing has happened for longest.
    pub fn stuck(&self) -> Vec<Stuck> {
        let mut stuck: BTreeMap<&'static str, Stuck> = BTreeMap::new();
        for &Turn { name, limit, progressed, .. } in self.turns.lock().underway.values() {
            let lasting = progressed.elapsed();
            if lasting <= limit || stuck.get(name).is_some_and(|it| it.lasting >= lasting) {
                continue;
            }
            stuck.insert(name, Stuck { name, lasting, limit });
        }
        stuck.into_values().collect()
    }

    /// What is under way, by task.
    pub fn unfinished(&self) -> BTreeMap<&'static str, Unfinished> {
        let mut tasks: BTreeMap<&'static str, Unfinished> = BTreeMap::new();
        for turn in self.turns.lock().underway.values() {
            let task = tasks.entry(turn.name).or_default();
            let lasted = turn.began.elapsed();
            task.total += lasted;
            task.longest = task.longest.max(lasted);
        }
        tasks
    }
}

#[cfg(test)]
mod tests {
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::metrics::Metrics;
    use crate::tasks::{Observer, Tasks};

    const LIMIT: Duration = Duration::from_secs(60);

    async fn pass(seconds: u64) {
        tokio::time::sleep(Duration::from_secs(seconds)).await;
    }

    /// Runs a task for `seconds`; answers what is stuck afterwards.
    async fn stuck_after(
        seconds: u64,
        task: impl Future<Output = ()> + Send + 'static,
    ) -> Vec<String> {
        let liveness = Liveness::default();
        let observer = Observer { metrics: Metrics::new(), liveness: liveness.clone() };
        let mut tasks = Tasks::new(CancellationToken::new()).observed(observer);
        tasks.spawn("provisioner", task);
        pass(seconds).await;
        liveness.stuck().iter().map(ToString::to_string).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn a_turn_that_does_not_end_is_stuck_once_its_limit_is_over() {
        let hang = || turn(LIMIT, std::future::pending());
        assert_eq!(stuck_after(60, hang()).await, [""; 0]);
        assert_eq!(
            stuck_after(61, hang()).await,
            ["provisioner has been stuck for 61 s (limit 60 s)"]
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_loop_that_waits_for_work_is_not_stuck() {
        let waits = async {
            loop {
                turn(LIMIT, pass(59)).await;
                pass(1000).await;
            }
        };
        assert_eq!(stuck_after(100_000, waits).await, [""; 0]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_long_turn_in_which_calls_end_is_not_stuck() {
        let busy = |calls: u32| {
            turn(LIMIT, async move {
                for _ in 0..calls {
                    pass(30).await;
                    progressed();
                }
                std::future::pending::<()>().await;
            })
        };
        assert_eq!(stuck_after(600, busy(20)).await, [""; 0]);
        assert_eq!(
            stuck_after(600, busy(10)).await,
            ["provisioner has been stuck for 300 s (limit 60 s)"]
        );
    }

    #[tokio::test(start_paused = true)]
    async fn turns_at_the_same_time_are_told_apart() {
        let liveness = Liveness::default();
        let old = liveness.begin("queue", LIMIT);
        pass(100).await;
        let young = liveness.begin("queue", LIMIT);
        pass(10).await;
        let unfinished = liveness.unfinished();
        let secs = Duration::from_secs;
        assert_eq!(unfinished["queue"], Unfinished { total: secs(120), longest: secs(110) });
        assert_eq!(liveness.stuck(), [Stuck { name: "queue", lasting: secs(110), limit: LIMIT }]);
        drop(old);
        assert_eq!(liveness.stuck(), []);
        drop(young);
        assert!(liveness.unfinished().is_empty());
    }
}
