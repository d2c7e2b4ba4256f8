//! When something that failed is tried again: soon after the first failure, later after each
//! further one, never later than a bound.
//!
//! Whatever is wrong in an account is mended by people, who look at the result at once: what failed
//! must not be believed for long. What fails for days must not cost a call every second either.

use std::collections::BTreeMap;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// Waits between tries: doubled from the first to the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Waits {
    /// After the first failure.
    pub first: Duration,
    /// After any number of failures.
    pub last: Duration,
}

impl Waits {
    /// For questions to AWS: whoever has mended what was wrong sees it within a minute, and usually
    /// within seconds.
    pub(super) const QUESTIONS: Self =
        Self { first: Duration::from_secs(2), last: Duration::from_secs(60) };

    fn after(self, failures: u32) -> Duration {
        self.first.saturating_mul(1 << failures.saturating_sub(1).min(20)).min(self.last)
    }
}

/// Failures in a row, by what failed.
#[derive(Debug)]
pub(super) struct Backoff<K> {
    waits: Waits,
    failures: Mutex<BTreeMap<K, Failing>>,
}

#[derive(Clone, Copy, Debug)]
struct Failing {
    count: u32,
    due: Instant,
}

impl<K: Ord + Clone> Backoff<K> {
    /// Nothing has failed yet.
    pub(super) fn new(waits: Waits) -> Self {
        Self { waits, failures: Mutex::default() }
    }

    /// Takes note of a failure; returns how long to wait before the next try. Failures before that
    /// time has come do not prolong it: they are the same one, looked at again.
    pub(super) fn failed(&self, key: K) -> Duration {
        let now = Instant::now();
        let mut failures = self.failures.lock();
        // What has not failed again long after its time is not asked for any more.
        failures.retain(|_, failing| failing.due + self.waits.last * 2 > now);
        let failing = failures.entry(key).or_insert(Failing { count: 0, due: now });
        if failing.due <= now {
            failing.count += 1;
            failing.due = now + self.waits.after(failing.count);
        }
        failing.due - now
    }

    /// How long to wait still, if something failed and its time has not come.
    pub(super) fn wait(&self, key: &K) -> Option<Duration> {
        let due = self.failures.lock().get(key)?.due;
        due.checked_duration_since(Instant::now()).filter(|wait| !wait.is_zero())
    }

    /// Takes note of a success: the next failure is a first one.
    pub(super) fn succeeded(&self, key: &K) {
        self.failures.lock().remove(key);
    }

    /// Forgets the failures of some keys.
    pub(super) fn forget(&self, gone: impl Fn(&K) -> bool) {
        self.failures.lock().retain(|key, _| !gone(key));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn waits_double_up_to_the_last_and_start_over_after_a_success() {
        let backoff = Backoff::new(Waits::QUESTIONS);
        let mut waits = Vec::new();
        for _ in 0..8 {
            let wait = backoff.failed("a");
            waits.push(wait.as_secs());
            tokio::time::advance(wait).await;
        }
        assert_eq!(waits, [2, 4, 8, 16, 32, 60, 60, 60]);
        backoff.succeeded(&"a");
        assert_eq!(backoff.wait(&"a"), None);
        assert_eq!(backoff.failed("a").as_secs(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn looking_at_a_failure_early_does_not_prolong_the_wait() {
        let backoff = Backoff::new(Waits::QUESTIONS);
        backoff.failed("a");
        tokio::time::advance(Duration::from_millis(500)).await;
        assert_eq!(backoff.failed("a"), Duration::from_millis(1500));
        assert_eq!(backoff.wait(&"a"), Some(Duration::from_millis(1500)));
        assert_eq!(backoff.wait(&"b"), None);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_not_asked_for_any_more_is_forgotten() {
        let backoff = Backoff::new(Waits::QUESTIONS);
        backoff.failed("gone");
        tokio::time::advance(Duration::from_secs(3600)).await;
        backoff.failed("other");
        assert_eq!(backoff.failures.lock().len(), 1);
    }
}
