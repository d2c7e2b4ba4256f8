//! The bed's clock: the system's time when it was made, moved on by tokio's clock, so that paused
//! tests control it.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, Time};
use tokio::time::Instant;

/// Tells the time. Cheap to copy; all copies agree.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    base: Timestamp,
    started: Instant,
}

impl Clock {
    /// A clock that starts at the system's time and moves with tokio's clock.
    #[expect(clippy::disallowed_methods, reason = "the one place that asks the system")]
    pub fn system() -> Self {
        Self { base: Timestamp::now(), started: Instant::now() }
    }

    /// The time now.
    pub fn now(&self) -> Timestamp {
        self.base.saturating_add(self.started.elapsed()).unwrap_or(Timestamp::MAX)
    }

    /// Now, in whole seconds, as Kubernetes writes times.
    pub fn time(&self) -> Time {
        let now = self.now();
        Time(Timestamp::from_second(now.as_second()).unwrap_or(now))
    }

    /// Now, in microseconds, as leases hold times.
    pub fn micro_time(&self) -> MicroTime {
        MicroTime(self.now())
    }

    /// How long until `at`; zero when it has passed.
    pub fn until(&self, at: Timestamp) -> Duration {
        Duration::try_from(at.duration_since(self.now())).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn moves_with_tokios_clock() {
        let clock = Clock::system();
        let before = clock.now();
        tokio::time::advance(Duration::from_secs(90)).await;
        assert_eq!(clock.now().duration_since(before).as_secs(), 90);
        assert_eq!(clock.until(before), Duration::ZERO);
    }
}
