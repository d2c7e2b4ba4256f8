//! How fast EC2 is called: one token bucket per family of calls, shared by all who make them.
//!
//! EC2 counts calls per account and region. Whoever exceeds what it grants is throttled, and so is
//! everything else in the account: deployments, other clusters, people. So the operator keeps below
//! what EC2 documents, waits in order of arrival, and yields when EC2 says that it is too much all
//! the same, because others call too: a throttled call halves the rate, and every second without
//! one gives a twentieth of the full rate back.
//!
//! Families do not wait for each other: a burst of launches delays no termination.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::error::{Error, Kind};

/// Calls that EC2 counts together, or that must not wait for others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Family {
    /// Calls that only read.
    Describe,
    /// `CreateFleet`, and `RunInstances`, which is called as a dry run only.
    Launch,
    /// Launch templates, created and deleted.
    Template,
    /// `TerminateInstances`.
    Terminate,
    /// `CreateTags`.
    Tag,
}

/// What EC2 grants.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Grant {
    /// Calls at once after a rest.
    burst: f64,
    /// Calls per second for ever.
    rate: f64,
}

impl Family {
    const ALL: [Self; 5] =
        [Self::Describe, Self::Launch, Self::Template, Self::Terminate, Self::Tag];

    /// The family of an API operation.
    pub(super) fn of(operation: &str) -> Self {
        match operation {
            "CreateFleet" | "RunInstances" => Self::Launch,
            "CreateLaunchTemplate" | "DeleteLaunchTemplate" => Self::Template,
            "TerminateInstances" => Self::Terminate,
            "CreateTags" => Self::Tag,
            _ => Self::Describe,
        }
    }

    /// The sizes of the account's buckets, as EC2 documents them for the kinds of calls.
    fn grant(self) -> Grant {
        let (burst, rate) = match self {
            Self::Describe => (100.0, 20.0),
            Self::Launch | Self::Template => (50.0, 5.0),
            Self::Terminate => (100.0, 5.0),
            Self::Tag => (100.0, 10.0),
        };
        Grant { burst, rate }
    }

    fn index(self) -> usize {
        self as usize
    }
}

/// A rate never falls below this share of the full one.
const LEAST: f64 = 1.0 / 32.0;
/// What a second without a throttled call gives back, as a share of the full rate.
const REGAINED: f64 = 1.0 / 20.0;
/// Calls that were under way together are throttled together: that counts once.
const TOGETHER: Duration = Duration::from_secs(1);

/// The buckets of all families.
#[derive(Debug)]
pub(super) struct Pace {
    buckets: [Bucket; Family::ALL.len()],
}

impl Default for Pace {
    fn default() -> Self {
        Self { buckets: Family::ALL.map(|family| Bucket::new(family.grant())) }
    }
}

impl Pace {
    /// Waits until a call of the family may be made. Who comes first goes first.
    pub(super) async fn turn(&self, family: Family) {
        self.buckets[family.index()].turn().await;
    }

    /// Takes a turn without waiting for it: the calls that follow wait for longer.
    pub(super) fn take(&self, family: Family) {
        let bucket = &self.buckets[family.index()];
        let mut state = bucket.state.lock();
        state.advance(bucket.grant, Instant::now());
        state.tokens -= 1.0;
    }

    /// Gives back a turn that was not used.
    pub(super) fn give_back(&self, family: Family) {
        let bucket = &self.buckets[family.index()];
        let mut state = bucket.state.lock();
        state.tokens = (state.tokens + 1.0).min(bucket.grant.burst);
    }

    /// Takes note of how a call ended.
    pub(super) fn learn<T>(&self, family: Family, result: &Result<T, Error>) {
        if result.as_ref().is_err_and(|error| error.kind == Kind::Throttled) {
            self.throttled(family);
        }
    }

    /// Takes note of a throttled call.
    pub(super) fn throttled(&self, family: Family) {
        if let Some(rate) = self.buckets[family.index()].throttled() {
            tracing::warn!(?family, calls_per_second = rate, "EC2 throttles calls, slowing down");
        }
    }
}

/// A token bucket whose rate falls and grows.
#[derive(Debug)]
struct Bucket {
    grant: Grant,
    /// Whose turn it is; fair.
    queue: tokio::sync::Mutex<()>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    tokens: f64,
    rate: f64,
    at: Option<Instant>,
    throttled: Option<Instant>,
}

impl Bucket {
    fn new(grant: Grant) -> Self {
        let state = State { tokens: grant.burst, rate: grant.rate, at: None, throttled: None };
        Self { grant, queue: tokio::sync::Mutex::default(), state: Mutex::new(state) }
    }

    async fn turn(&self) {
        // Whoever goes away while it waits gives its place to the next.
        let _first = self.queue.lock().await;
        loop {
            let Err(wait) = self.state.lock().take(self.grant, Instant::now()) else { return };
            // The rate may have changed when the wait is over; then it is not over.
            tokio::time::sleep(wait).await;
        }
    }

    /// Halves the rate, unless that was done for a call that was under way at the same time;
    /// returns the new one.
    fn throttled(&self) -> Option<f64> {
        let now = Instant::now();
        let mut state = self.state.lock();
        state.advance(self.grant, now);
        if state.throttled.is_some_and(|at| now.duration_since(at) < TOGETHER) {
            return None;
        }
        state.throttled = Some(now);
        state.rate = (state.rate / 2.0).max(self.grant.rate * LEAST);
        // EC2's bucket is empty: ours was wrong.
        state.tokens = state.tokens.min(0.0);
        Some(state.rate)
    }
}

impl State {
    /// Takes a token, or tells when there may be one.
    fn take(&mut self, grant: Grant, now: Instant) -> Result<(), Duration> {
        self.advance(grant, now);
        // Sums of fractions: almost a token is one.
        if self.tokens >= 1.0 - 1e-6 {
            self.tokens -= 1.0;
            return Ok(());
        }
        Err(Duration::from_secs_f64((1.0 - self.tokens) / self.rate).max(Duration::from_millis(1)))
    }

    fn advance(&mut self, grant: Grant, now: Instant) {
        let before = self.at.replace(now).unwrap_or(now);
        let passed = now.duration_since(before).as_secs_f64();
        self.tokens = (self.tokens + passed * self.rate).min(grant.burst);
        self.rate = (self.rate + passed * grant.rate * REGAINED).min(grant.rate);
    }
}

#[cfg(test)]
mod tests {
    use futures::future::join_all;

    use super::*;

    async fn times(pace: &Pace, family: Family, count: usize) -> Vec<Duration> {
        let started = Instant::now();
        let call = async || {
            pace.turn(family).await;
            started.elapsed()
        };
        join_all((0..count).map(|_| call())).await
    }

    /// The most calls in any window, less what the window grants.
    fn excess(times: &[Duration], grant: Grant) -> f64 {
        let mut worst = f64::MIN;
        for (first, from) in times.iter().enumerate() {
            for (last, until) in times.iter().enumerate().skip(first) {
                #[expect(clippy::cast_precision_loss, reason = "a thousand calls")]
                let calls = (last - first + 1) as f64;
                let window = until.saturating_sub(*from).as_secs_f64();
                worst = worst.max(calls - grant.burst - window * grant.rate);
            }
        }
        worst
    }

    #[tokio::test(start_paused = true)]
    async fn a_thousand_launches_never_exceed_what_ec2_grants() {
        let times = times(&Pace::default(), Family::Launch, 1000).await;
        assert!(times.is_sorted(), "who comes first goes first");
        let excess = excess(&times, Family::Launch.grant());
        assert!(excess <= 1e-3, "{excess} calls too many");
        let last = times.last().unwrap().as_secs_f64();
        assert!((189.9..192.0).contains(&last), "and none is held back for longer: {last}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_throttled_call_halves_the_rate_and_time_gives_it_back() {
        let pace = Pace::default();
        pace.throttled(Family::Launch);
        // Calls that were under way with it.
        pace.throttled(Family::Launch);
        let rate = || {
            let bucket = &pace.buckets[Family::Launch.index()];
            bucket.state.lock().advance(bucket.grant, Instant::now());
            bucket.state.lock().rate
        };
        assert!((rate() - 2.5).abs() < 1e-6, "{}", rate());
        tokio::time::advance(Duration::from_secs(4)).await;
        assert!((rate() - 3.5).abs() < 1e-6, "{}", rate());
        tokio::time::advance(Duration::from_secs(60)).await;
        assert!((rate() - 5.0).abs() < 1e-6, "{}", rate());
    }

    #[tokio::test(start_paused = true)]
    async fn after_a_throttled_call_the_burst_is_over() {
        let pace = Pace::default();
        pace.throttled(Family::Launch);
        let times = times(&pace, Family::Launch, 2).await;
        assert!(times[0] > Duration::from_millis(300), "{times:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn throttling_without_end_leaves_a_trickle() {
        let pace = Pace::default();
        for _ in 0..20 {
            pace.throttled(Family::Terminate);
            tokio::time::advance(TOGETHER).await;
        }
        let started = Instant::now();
        pace.turn(Family::Terminate).await;
        assert!(started.elapsed() < Duration::from_secs(7), "{:?}", started.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn launches_do_not_delay_terminations() {
        let pace = Pace::default();
        let terminations = async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            times(&pace, Family::Terminate, 100).await
        };
        let burst = times(&pace, Family::Launch, 1000);
        tokio::select! {
            terminated = terminations => assert_eq!(terminated.last(), Some(&Duration::ZERO)),
            _ = burst => panic!("a thousand launches take minutes"),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn who_goes_away_while_it_waits_takes_no_turn() {
        let pace = Pace::default();
        times(&pace, Family::Launch, 50).await;
        for _ in 0..10 {
            let gone = tokio::time::timeout(Duration::from_millis(1), pace.turn(Family::Launch));
            assert!(gone.await.is_err());
        }
        let started = Instant::now();
        pace.turn(Family::Launch).await;
        assert!(started.elapsed() <= Duration::from_millis(201), "{:?}", started.elapsed());
    }
}
