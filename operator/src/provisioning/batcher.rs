//! When a batch of pending pods is complete.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

/// Collects triggers into batches. Clones share them.
#[derive(Clone, Debug)]
pub struct Batcher {
    idle: Duration,
    max: Duration,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    /// What triggered the batch that is being collected. A trigger that comes again does not keep the batch open.
    keys: Mutex<BTreeSet<String>>,
    new: Notify,
}

impl Batcher {
    /// A batch is complete when nothing new came for `idle`, at the latest `max` after its first trigger.
    pub fn new(idle: Duration, max: Duration) -> Self {
        Self { idle, max, shared: Arc::default() }
    }

    /// Something needs planning.
    pub fn trigger(&self, key: &str) {
        if self.shared.keys.lock().insert(key.to_owned()) {
            self.shared.new.notify_one();
        }
    }

    /// Waits for the first trigger and then for the batch to be complete. Triggers that come later start the next batch.
    pub async fn wait(&self) {
        while self.shared.keys.lock().is_empty() {
            self.shared.new.notified().await;
        }
        let end = Instant::now() + self.max;
        loop {
            let quiet = Instant::now() + self.idle;
            tokio::select! {
                () = self.shared.new.notified() => {}
                () = tokio::time::sleep_until(quiet.min(end)) => break,
            }
        }
        self.shared.keys.lock().clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Triggers at the given seconds; returns when the first batch was complete.
    async fn first_batch(triggers: &[(u64, &str)]) -> f64 {
        let batcher = Batcher::new(Duration::from_secs(1), Duration::from_secs(10));
        let began = Instant::now();
        let trigger = async {
            for (at, key) in triggers {
                tokio::time::sleep_until(began + Duration::from_millis(*at)).await;
                batcher.trigger(key);
            }
            std::future::pending::<()>().await;
        };
        tokio::select! {
            () = batcher.wait() => {}
            () = trigger => {}
        }
        began.elapsed().as_secs_f64()
    }

    fn near(time: f64, expected: f64) {
        assert!((time - expected).abs() < 0.01, "{time} is not {expected}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_batch_ends_a_second_after_the_last_new_trigger() {
        near(first_batch(&[(500, "a")]).await, 1.5);
        near(first_batch(&[(0, "a"), (900, "b"), (1800, "c")]).await, 2.8);
    }

    #[tokio::test(start_paused = true)]
    async fn a_trigger_that_comes_again_does_not_keep_the_batch_open() {
        near(first_batch(&[(0, "a"), (900, "a")]).await, 1.0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_batch_ends_after_ten_seconds_however_many_triggers_come() {
        let names: Vec<String> = (0..40).map(|i| i.to_string()).collect();
        let triggers: Vec<_> =
            (0..40_u64).map(|i| (i * 500, names[usize::try_from(i).unwrap()].as_str())).collect();
        near(first_batch(&triggers).await, 10.0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_trigger_between_two_batches_is_not_lost() {
        let batcher = Batcher::new(Duration::from_secs(1), Duration::from_secs(10));
        batcher.trigger("a");
        batcher.wait().await;
        batcher.trigger("a");
        tokio::time::timeout(Duration::from_secs(2), batcher.wait()).await.unwrap();
    }
}
