//! Several scenarios on one bed, one after the other or all at once: for test files whose scenarios
//! don't disturb each other, as a bed takes seconds to start and a gigabyte to run.
//!
//! ```text
//! use std::sync::Arc;
//! use tenon_bed::bed::{Bed, BedConfig};
//! use tenon_bed::scenarios;
//! use tenon_bed::scenarios::play;
//!
//! async fn pods_run(bed: Arc<Bed>) {
//!     assert!(bed.client().apiserver_version().await.is_ok());
//! }
//!
//! #[tokio::main]
//! async fn main() {
//!     play(BedConfig::default(), &scenarios![pods_run]).await;
//! }
//! ```

use std::sync::Arc;

use futures::future::BoxFuture;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::bed::{Bed, BedConfig};
use crate::environment::Environment;
use crate::wait::chain;

/// A scenario, which is handed what it plays on: panics when an expectation fails.
#[derive(Clone, Copy, Debug)]
pub struct Scenario<C = Arc<Bed>> {
    name: &'static str,
    play: fn(C) -> BoxFuture<'static, ()>,
}

/// Scenarios of these functions, under their names: an array of [`Scenario`]. Each function takes
/// what it is played on.
#[macro_export]
macro_rules! scenarios {
    ($($play:ident),+ $(,)?) => {
        [$($crate::scenarios::Scenario::new(stringify!($play), |on| Box::pin($play(on)))),+]
    };
}

impl<C: Clone + Send + 'static> Scenario<C> {
    /// A scenario, named by a sentence about behaviour.
    pub const fn new(name: &'static str, play: fn(C) -> BoxFuture<'static, ()>) -> Self {
        Self { name, play }
    }

    /// Plays it in a task of its own, so that a panic ends the scenario and not the bed; answers
    /// its name if it failed.
    async fn outcome(self, context: C) -> Option<&'static str> {
        let started = Instant::now();
        let mut task = JoinSet::new();
        task.spawn((self.play)(context));
        let passed = task.join_next().await.is_some_and(|result| result.is_ok());
        let word = if passed { "ok" } else { "FAILED" };
        let seconds = started.elapsed().as_secs_f64();
        anstream::println!("scenario {} ... {word} ({seconds:.1} s)", self.name);
        (!passed).then_some(self.name)
    }
}

/// Starts a bed and plays on it all scenarios (of those that `TENON_SCENARIO` names), one after the
/// other, also after one has failed. The bed's directory stays if one fails.
///
/// # Panics
/// When the bed does not start or stop, and at the end when scenarios failed, naming them.
pub async fn play(config: BedConfig, scenarios: &[Scenario]) {
    let chosen = wanted(scenarios);
    if chosen.is_empty() {
        return;
    }
    let bed = Bed::start(config).await.unwrap_or_else(|error| panic!("{}", chain(&error)));
    let bed = Arc::new(bed);
    let mut failed = Vec::new();
    for scenario in chosen {
        failed.extend(scenario.outcome(Arc::clone(&bed)).await);
    }
    let bed = Arc::into_inner(bed).expect("a scenario that has ended holds no bed");
    end(bed, &failed).await;
}

/// Plays all scenarios (of those that `TENON_SCENARIO` names) at the same time, for those that
/// mostly wait; answers the names of those that failed.
pub async fn at_once<C: Clone + Send + 'static>(
    context: &C,
    scenarios: &[Scenario<C>],
) -> Vec<&'static str> {
    let playing = wanted(scenarios).into_iter().map(|scenario| scenario.outcome(context.clone()));
    futures::future::join_all(playing).await.into_iter().flatten().collect()
}

/// Stops the bed; its directory stays if scenarios failed.
///
/// # Panics
/// When the bed does not stop, and when scenarios failed, naming them.
pub async fn end(bed: Bed, failed: &[&'static str]) {
    if failed.is_empty() {
        bed.stop().await.unwrap_or_else(|error| panic!("{}", chain(&error)));
        return;
    }
    let dir = bed.stop_and_keep().await;
    panic!(
        "{} scenarios failed: {}; the logs are in {}",
        failed.len(),
        failed.join(", "),
        dir.join("logs").display()
    );
}

fn wanted<C: Clone>(scenarios: &[Scenario<C>]) -> Vec<Scenario<C>> {
    let wanted = Environment::read().unwrap_or_else(|error| panic!("{error}")).scenario;
    scenarios.iter().filter(|it| it.name.contains(&wanted)).cloned().collect()
}
