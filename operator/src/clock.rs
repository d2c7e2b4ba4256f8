//! The only source of time in the operator.
//!
//! It is tokio's clock, anchored once to the wall clock: when tests or the simulation pause or
//! advance tokio's time, everything that the operator does moves with it, and no part of it can see
//! two different times.

use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

/// Tells the time.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    anchor: Timestamp,
    started: Instant,
}

impl Clock {
    /// Anchored to the machine's wall clock at this moment. Called once, by `main`.
    #[expect(
        clippy::disallowed_methods,
        reason = "this is the one place that asks the system for the time"
    )]
    pub fn system() -> Self {
        Self::anchored(Timestamp::now())
    }

    /// Anchored to a given time: tokio's current instant is `anchor`.
    pub(crate) fn anchored(anchor: Timestamp) -> Self {
        Self { anchor, started: Instant::now() }
    }

    /// The current time, by tokio's clock.
    pub fn now(&self) -> Timestamp {
        let elapsed =
            SignedDuration::try_from(self.started.elapsed()).unwrap_or(SignedDuration::MAX);
        self.anchor.checked_add(elapsed).unwrap_or(Timestamp::MAX)
    }

    /// Waits until `deadline`; returns at once when it has passed.
    pub async fn sleep_until(&self, deadline: Timestamp) {
        let wait = self.now().duration_until(deadline);
        tokio::time::sleep(wait.try_into().unwrap_or_default()).await;
    }
}
