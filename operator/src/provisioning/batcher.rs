//! When a batch of pending pods is complete.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

/// Collects triggers into batches. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Batcher {
    idle: Duration,
    max: Duration,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    collected: Mutex<Collected>,
    new: Notify,
}

/// The batch that is being collected.
#[derive(Debug, Default)]
struct Collected {
    /// What triggered it. A trigger that comes again does not keep it open.
    keys: BTreeSet<String>,
    /// Since when it is urgent, and when it was called so last.
    urgent: Option<(Instant, Instant)>,
}

/// An urgent batch waits for this part of the idle time, at most for the whole.
const URGENT_PART: u32 = 10;

impl Batcher {
    /// A batch is complete when nothing new came for `idle`, at the latest `max` after its first
    /// trigger.
    pub(crate) fn new(idle: Duration, max: Duration) -> Self {
        Self { idle, max, shared: Arc::default() }
    }

    /// Something needs planning.
    pub(crate) fn trigger(&self, key: &str) {
        if self.shared.collected.lock().keys.insert(key.to_owned()) {
            self.shared.new.notify_one();
        }
    }

    /// What was triggered is complete and must not wait: pods that come one by one are not what the
    /// batch is about. It waits only for more of this kind, for a tenth of the idle time after each
    /// and for the idle time in all. Without a trigger there is nothing to hurry.
    pub(crate) fn hurry(&self) {
        let mut collected = self.shared.collected.lock();
        if !collected.keys.is_empty() {
            let now = Instant::now();
            let since = collected.urgent.map_or(now, |(since, _)| since);
            collected.urgent = Some((since, now));
            self.shared.new.notify_one();
        }
    }

    /// Waits for the first trigger and then for the batch to be complete: also when `enough` says
    /// so, which is asked each time the idle time has passed. Triggers that come later start the
    /// next batch.
    pub(crate) async fn wait(&self, enough: impl Fn() -> bool) {
        while self.shared.collected.lock().keys.is_empty() {
            self.shared.new.notified().await;
        }
        let end = Instant::now() + self.max;
        let mut asked = Instant::now();
        loop {
            let quiet = Instant::now() + self.idle;
            let urgent = self.shared.collected.lock().urgent;
            let due =
                urgent.map(|(since, last)| (last + self.idle / URGENT_PART).min(since + self.idle));
            let complete = due.unwrap_or(quiet).min(quiet).min(end);
            tokio::select! {
                () = self.shared.new.notified() => {}
                () = tokio::time::sleep_until(complete) => break,
            }
            if asked.elapsed() >= self.idle {
                if enough() {
                    break;
                }
                asked = Instant::now();
            }
        }
        *self.shared.collected.lock() = Collected::default();
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
            () = batcher.wait(|| false) => {}
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
    async fn a_batch_ends_when_it_is_enough_which_is_asked_each_idle_time() {
        let batcher = Batcher::new(Duration::from_secs(1), Duration::from_secs(10));
        let began = Instant::now();
        let trigger = async {
            for number in 0.. {
                batcher.trigger(&number.to_string());
                tokio::time::sleep(Duration::from_millis(250)).await;
            }
        };
        let asked = std::cell::Cell::new(0);
        let enough = || {
            asked.set(asked.get() + 1);
            began.elapsed() > Duration::from_millis(2500)
        };
        tokio::select! {
            () = batcher.wait(enough) => {}
            () = trigger => {}
        }
        near(began.elapsed().as_secs_f64(), 3.0);
        assert_eq!(asked.get(), 3);
    }

    /// Triggers and hurries at the given milliseconds; returns when the first batch was complete,
    /// in seconds after the first trigger.
    async fn hurried(at: &[u64]) -> f64 {
        let batcher = Batcher::new(Duration::from_secs(1), Duration::from_secs(10));
        let began = Instant::now();
        let trigger = async {
            for at in at {
                tokio::time::sleep_until(began + Duration::from_millis(*at)).await;
                batcher.trigger(&at.to_string());
                batcher.hurry();
            }
            std::future::pending::<()>().await;
        };
        tokio::select! {
            () = batcher.wait(|| false) => {}
            () = trigger => {}
        }
        began.elapsed().as_secs_f64()
    }

    #[tokio::test(start_paused = true)]
    async fn an_urgent_batch_waits_a_tenth_of_the_idle_time_for_more_of_its_kind() {
        near(hurried(&[0]).await, 0.1);
        near(hurried(&[0, 80, 160]).await, 0.26);
        let endless: Vec<u64> = (0..100).map(|i| i * 50).collect();
        near(hurried(&endless).await, 1.0);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_urgent_takes_what_has_been_collected_with_it() {
        let batcher = Batcher::new(Duration::from_secs(1), Duration::from_secs(10));
        let began = Instant::now();
        batcher.trigger("pod");
        let later = async {
            tokio::time::sleep(Duration::from_millis(500)).await;
            batcher.trigger("machine");
            batcher.hurry();
            std::future::pending::<()>().await;
        };
        tokio::select! {
            () = batcher.wait(|| false) => {}
            () = later => {}
        }
        near(began.elapsed().as_secs_f64(), 0.6);
        // The next batch is an ordinary one.
        let began = Instant::now();
        batcher.trigger("pod");
        batcher.wait(|| false).await;
        near(began.elapsed().as_secs_f64(), 1.0);
    }

    #[tokio::test(start_paused = true)]
    async fn without_a_trigger_there_is_nothing_to_hurry() {
        let batcher = Batcher::new(Duration::from_secs(1), Duration::from_secs(10));
        batcher.hurry();
        let waited = tokio::time::timeout(Duration::from_secs(60), batcher.wait(|| false)).await;
        assert!(waited.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn a_trigger_between_two_batches_is_not_lost() {
        let batcher = Batcher::new(Duration::from_secs(1), Duration::from_secs(10));
        batcher.trigger("a");
        batcher.wait(|| false).await;
        batcher.trigger("a");
        tokio::time::timeout(Duration::from_secs(2), batcher.wait(|| false)).await.unwrap();
    }
}
