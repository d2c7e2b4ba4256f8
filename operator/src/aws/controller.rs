//! Runs a reconciler over the names of objects: at once when one changes, again when it asks for it, later and later when it fails.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::Instant;

/// What a reconciler wants next for its object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// To be called when the object changes.
    OnChange,
    /// To be called after this time, if not before.
    After(Duration),
    /// It failed: to be called again soon, later each time in a row.
    Failed,
}

/// Waits between failures in a row: doubled from the first to the last.
const FIRST_RETRY: Duration = Duration::from_millis(100);
const LAST_RETRY: Duration = Duration::from_secs(60);

/// What is to be done when.
#[derive(Debug, Default)]
struct Queue {
    due: BTreeMap<String, Instant>,
    failures: BTreeMap<String, u32>,
    running: BTreeSet<String>,
    /// Changed while being reconciled.
    dirty: BTreeSet<String>,
}

impl Queue {
    fn changed(&mut self, name: String) {
        if self.running.contains(&name) {
            self.dirty.insert(name);
        } else {
            self.due.insert(name, Instant::now());
        }
    }

    fn next_due(&self) -> Option<Instant> {
        self.due.values().min().copied()
    }

    fn start_due(&mut self, room: usize) -> Vec<String> {
        let now = Instant::now();
        let names: Vec<String> = self
            .due
            .iter()
            .filter(|(_, at)| **at <= now)
            .map(|(name, _)| name.clone())
            .take(room)
            .collect();
        for name in &names {
            self.due.remove(name);
            self.running.insert(name.clone());
        }
        names
    }

    fn finished(&mut self, name: String, next: Next) {
        self.running.remove(&name);
        let wait = match next {
            Next::OnChange => {
                self.failures.remove(&name);
                None
            }
            Next::After(wait) => {
                self.failures.remove(&name);
                Some(wait)
            }
            Next::Failed => {
                let failures = self.failures.entry(name.clone()).or_default();
                let wait = FIRST_RETRY.saturating_mul(1 << (*failures).min(10));
                *failures += 1;
                Some(wait.min(LAST_RETRY))
            }
        };
        if self.dirty.remove(&name) && next != Next::Failed {
            self.due.insert(name, Instant::now());
        } else if let Some(wait) = wait {
            self.due.insert(name, Instant::now() + wait);
        }
    }
}

/// Runs for ever. `all` names every object; it is asked at the start and when changes were missed.
pub async fn run<F, Fut>(
    mut changes: broadcast::Receiver<String>,
    all: impl Fn() -> Vec<String>,
    workers: usize,
    reconcile: F,
) where
    F: Fn(String) -> Fut,
    Fut: Future<Output = Next>,
{
    let mut queue = Queue::default();
    for name in all() {
        queue.changed(name);
    }
    let mut running = FuturesUnordered::new();
    loop {
        for name in queue.start_due(workers - running.len()) {
            let work = reconcile(name.clone());
            running.push(async move { (name, work.await) });
        }
        let room = running.len() < workers;
        let next_due = queue.next_due().filter(|_| room);
        tokio::select! {
            change = changes.recv() => match change {
                Ok(name) => queue.changed(name),
                Err(RecvError::Lagged(_)) => all().into_iter().for_each(|name| queue.changed(name)),
                // The store is gone, and the operator is about to stop.
                Err(RecvError::Closed) => std::future::pending().await,
            },
            Some((name, next)) = running.next() => queue.finished(name, next),
            () = sleep_until(next_due) => {}
        }
    }
}

async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;

    use super::*;

    type Calls = Mutex<Vec<(String, u64)>>;

    /// Runs a reconciler for so many seconds and returns what was called at which second.
    async fn record(
        seconds: u64,
        changes: Vec<(u64, &'static str)>,
        answer: impl Fn(&str, usize) -> Next,
    ) -> Vec<(String, u64)> {
        let (sender, receiver) = broadcast::channel(2);
        let calls: Calls = Mutex::default();
        let started = Instant::now();
        let changer = async {
            for (at, name) in changes {
                tokio::time::sleep_until(started + Duration::from_secs(at)).await;
                sender.send(name.to_owned()).unwrap();
            }
            std::future::pending::<()>().await;
        };
        let controller = run(
            receiver,
            || vec!["a".to_owned()],
            2,
            |name| {
                let count = {
                    let mut calls = calls.lock();
                    calls.push((name.clone(), started.elapsed().as_secs()));
                    calls.iter().filter(|(known, _)| *known == name).count()
                };
                let next = answer(&name, count);
                async move { next }
            },
        );
        let limit = tokio::time::sleep(Duration::from_secs(seconds));
        tokio::select! { () = changer => {}, () = controller => {}, () = limit => {} }
        calls.into_inner()
    }

    fn call(name: &str, at: u64) -> (String, u64) {
        (name.to_owned(), at)
    }

    #[tokio::test(start_paused = true)]
    async fn reconciles_at_the_start_on_change_and_when_asked_for() {
        let calls = record(50, vec![(10, "a"), (10, "b")], |name, _| match name {
            "a" => Next::After(Duration::from_secs(30)),
            _ => Next::OnChange,
        })
        .await;
        assert_eq!(calls, [call("a", 0), call("a", 10), call("b", 10), call("a", 40)]);
    }

    #[tokio::test(start_paused = true)]
    async fn failures_wait_longer_each_time() {
        let calls =
            record(30, vec![], |_, count| if count < 8 { Next::Failed } else { Next::OnChange })
                .await;
        let seconds: Vec<u64> = calls.into_iter().map(|(_, at)| at).collect();
        assert_eq!(seconds, [0, 0, 0, 0, 1, 3, 6, 12]);
    }
}
