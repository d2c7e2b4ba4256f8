//! Waiting for a condition of the cluster, with a limit and an error that says what was waited for
//! and what was seen last.

use std::fmt;
use std::time::Duration;

use tokio::time::Instant;

use crate::failure::Failure;

/// A condition did not come true in time.
#[derive(Debug, thiserror::Error)]
#[error("{what}: not after {} s{}", .after.as_secs(), Seen(.last))]
pub struct NotYet {
    /// What was waited for.
    pub what: String,
    /// For how long.
    pub after: Duration,
    /// The last error or observation.
    pub last: Option<String>,
}

struct Seen<'a>(&'a Option<String>);

impl fmt::Display for Seen<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(last) => write!(f, "; last seen: {last}"),
            None => Ok(()),
        }
    }
}

/// Whether a condition holds: `Ok(true)`, or why not yet.
pub type Polled = Result<bool, Failure>;

/// Polls `condition` every 100 ms until it is true. An error counts as "not yet" and is reported if
/// time runs out, so that a poll may fail while a server restarts; `Err("3 of 5".into())` is a way
/// to report progress.
///
/// # Errors
/// When `limit` is over.
pub async fn eventually<F: Future<Output = Polled>>(
    what: &str,
    limit: Duration,
    mut condition: impl FnMut() -> F,
) -> Result<(), NotYet> {
    let deadline = Instant::now() + limit;
    let mut last = None;
    loop {
        let not_yet = |last| NotYet { what: what.to_owned(), after: limit, last };
        match tokio::time::timeout_at(deadline, condition()).await {
            Ok(Ok(true)) => return Ok(()),
            Ok(Ok(false)) => {}
            Ok(Err(error)) => last = Some(chain(error.as_ref())),
            Err(_) => return Err(not_yet(last)),
        }
        if Instant::now() >= deadline {
            return Err(not_yet(last));
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// The value, for tests: what they can't do without.
///
/// # Panics
/// When there is none; with the error and its causes.
#[track_caller]
pub fn must<T, E: Into<Box<dyn std::error::Error + Send + Sync>>>(result: Result<T, E>) -> T {
    result.unwrap_or_else(|error| panic!("{}", chain(error.into().as_ref())))
}

/// An error and its causes on one line.
pub fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.ends_with(&more) {
            text.push_str(": ");
            text.push_str(&more);
        }
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn tells_what_was_waited_for_and_the_last_error() {
        let error = eventually("pods run", Duration::from_secs(3), async || Err("2 of 5".into()))
            .await
            .expect_err("never true");
        assert_eq!(error.to_string(), "pods run: not after 3 s; last seen: 2 of 5");
    }

    #[tokio::test(start_paused = true)]
    async fn ends_as_soon_as_it_is_true() {
        let mut polls = 0;
        let started = Instant::now();
        let condition = || {
            polls += 1;
            let seen = polls == 4;
            async move { Ok(seen) }
        };
        eventually("the fourth poll", Duration::from_secs(9), condition).await.expect("true");
        assert_eq!(started.elapsed(), Duration::from_millis(300));
    }

    #[tokio::test(start_paused = true)]
    async fn a_poll_that_hangs_is_given_up() {
        let condition = async || std::future::pending::<Polled>().await;
        assert!(eventually("it", Duration::from_secs(1), condition).await.is_err());
    }
}
