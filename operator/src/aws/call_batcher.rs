//! Collects calls that can be made as one: the first caller waits a moment for others and makes the
//! call for all of them.
//!
//! There is no task behind it. The first caller of a bucket is its leader; when its future is
//! dropped, the others of the bucket notice and start over.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

/// How long and how much is collected.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    /// The batch closes when nothing came for this long.
    pub idle: Duration,
    /// It closes after this time in any case.
    pub max: Duration,
    /// It closes with this many items.
    pub max_items: usize,
}

/// Batches of items `I`, per bucket `K`, each answered with an `O`.
#[derive(Debug)]
pub(super) struct CallBatcher<K, I, O> {
    window: Window,
    open: Mutex<BTreeMap<K, Arc<Batch<I, O>>>>,
}

/// A batch that collects. Its leader and, until it is closed, the map own it.
#[derive(Debug)]
struct Batch<I, O> {
    members: Mutex<Members<I, O>>,
    full: Notify,
}

#[derive(Debug)]
struct Members<I, O> {
    items: Vec<I>,
    followers: Vec<oneshot::Sender<O>>,
    last: Instant,
}

/// What a finished batch looked like, for metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BatchSize {
    /// Number of items.
    pub items: usize,
    /// How long it was open.
    pub open: Duration,
}

impl<K: Ord + Clone, I: Clone, O> CallBatcher<K, I, O> {
    /// An idle batcher.
    pub(super) fn new(window: Window) -> Self {
        Self { window, open: Mutex::default() }
    }

    /// Answers `item` with its part of one call of `call` for all items of the bucket. `call` must
    /// answer with as many values as it is given, in the same order. `observe` is told once per
    /// batch.
    pub(super) async fn submit<F, Fut>(
        &self,
        bucket: K,
        item: I,
        observe: impl FnOnce(BatchSize),
        call: F,
    ) -> O
    where
        F: FnOnce(Vec<I>) -> Fut,
        Fut: Future<Output = Vec<O>>,
    {
        let batch = loop {
            match self.join(&bucket, &item) {
                Role::Leader(batch) => break batch,
                // An error means that the leader went away before it had an answer: somebody else
                // has to lead.
                Role::Follower(answer) => {
                    if let Ok(answer) = answer.await {
                        return answer;
                    }
                }
            }
        };
        let closing = Closing { batcher: self, bucket: &bucket, batch: &batch };
        let started = Instant::now();
        self.collect(&batch, started).await;
        drop(closing);
        let (items, followers) = {
            let mut members = batch.members.lock();
            (std::mem::take(&mut members.items), std::mem::take(&mut members.followers))
        };
        observe(BatchSize { items: items.len(), open: started.elapsed() });
        // A call is large. Followers have room for a pointer to one only, since they make none.
        let mut answers = Box::pin(call(items)).await.into_iter();
        let own = answers.next().expect("one answer per item");
        for (follower, answer) in followers.into_iter().zip(answers) {
            // A follower that no longer waits has no use for its answer.
            let _gone = follower.send(answer);
        }
        own
    }

    fn join(&self, bucket: &K, item: &I) -> Role<I, O> {
        let mut open = self.open.lock();
        let Some(batch) = open.get(bucket).map(Arc::clone) else {
            let members =
                Members { items: vec![item.clone()], followers: Vec::new(), last: Instant::now() };
            let batch = Arc::new(Batch { members: Mutex::new(members), full: Notify::new() });
            if self.window.max_items > 1 {
                open.insert(bucket.clone(), Arc::clone(&batch));
            } else {
                batch.full.notify_one();
            }
            return Role::Leader(batch);
        };
        let (sender, receiver) = oneshot::channel();
        let mut members = batch.members.lock();
        members.items.push(item.clone());
        members.followers.push(sender);
        members.last = Instant::now();
        if members.items.len() >= self.window.max_items {
            open.remove(bucket);
            batch.full.notify_one();
        }
        Role::Follower(receiver)
    }

    async fn collect(&self, batch: &Batch<I, O>, started: Instant) {
        loop {
            let last = batch.members.lock().last;
            let until = (last + self.window.idle).min(started + self.window.max);
            if until <= Instant::now() {
                return;
            }
            tokio::select! {
                () = tokio::time::sleep_until(until) => {}
                () = batch.full.notified() => return,
            }
        }
    }
}

enum Role<I, O> {
    Leader(Arc<Batch<I, O>>),
    Follower(oneshot::Receiver<O>),
}

/// Takes the leader's batch out of the map: when it has collected, and when the leader is dropped
/// before.
struct Closing<'b, K: Ord, I, O> {
    batcher: &'b CallBatcher<K, I, O>,
    bucket: &'b K,
    batch: &'b Arc<Batch<I, O>>,
}

impl<K: Ord, I, O> Drop for Closing<'_, K, I, O> {
    fn drop(&mut self) {
        let mut open = self.batcher.open.lock();
        if open.get(self.bucket).is_some_and(|batch| Arc::ptr_eq(batch, self.batch)) {
            open.remove(self.bucket);
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::future::join_all;

    use super::*;

    const WINDOW: Window =
        Window { idle: Duration::from_millis(35), max: Duration::from_secs(1), max_items: 3 };

    fn calls() -> Arc<Mutex<Vec<Vec<u32>>>> {
        Arc::default()
    }

    async fn submit(
        batcher: &CallBatcher<&'static str, u32, u32>,
        calls: &Mutex<Vec<Vec<u32>>>,
        bucket: &'static str,
        item: u32,
    ) -> u32 {
        batcher
            .submit(
                bucket,
                item,
                |_| {},
                |items| async {
                    let answers = items.iter().map(|item| item * 10).collect();
                    calls.lock().push(items);
                    answers
                },
            )
            .await
    }

    #[tokio::test(start_paused = true)]
    async fn calls_of_a_bucket_become_one_and_keep_their_order() {
        let (batcher, calls) = (CallBatcher::new(WINDOW), calls());
        let answers = join_all([
            submit(&batcher, &calls, "a", 1),
            submit(&batcher, &calls, "a", 2),
            submit(&batcher, &calls, "b", 3),
        ])
        .await;
        assert_eq!(answers, [10, 20, 30]);
        let mut calls = calls.lock().clone();
        calls.sort();
        assert_eq!(calls, [vec![1, 2], vec![3]]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_full_batch_closes_at_once_and_the_rest_makes_another() {
        let (batcher, calls) = (CallBatcher::new(WINDOW), calls());
        let answers = join_all((1..=4).map(|item| submit(&batcher, &calls, "a", item))).await;
        assert_eq!(answers, [10, 20, 30, 40]);
        assert_eq!(*calls.lock(), [vec![1, 2, 3], vec![4]]);
    }

    #[tokio::test(start_paused = true)]
    async fn followers_survive_a_leader_that_goes_away() {
        let (batcher, calls) = (CallBatcher::new(WINDOW), calls());
        let follower = async {
            tokio::time::sleep(Duration::from_millis(5)).await;
            submit(&batcher, &calls, "a", 2).await
        };
        let leader =
            tokio::time::timeout(Duration::from_millis(10), submit(&batcher, &calls, "a", 1));
        let (leader, follower) = tokio::join!(leader, follower);
        assert!(leader.is_err());
        assert_eq!(follower, 20);
        assert_eq!(*calls.lock(), [vec![2]]);
    }
}
