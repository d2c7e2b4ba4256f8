//! Several scenarios on one bed, one after the other: for test files whose scenarios don't disturb each other, as a bed takes seconds
//! to start and a gigabyte to run.
//!
//! ```text
//! use std::sync::Arc;
//! use tenon_tests::bed::{Bed, BedConfig};
//! use tenon_tests::scenarios::{Scenario, play};
//!
//! async fn pods_run(bed: Arc<Bed>) {
//!     assert!(bed.client().apiserver_version().await.is_ok());
//! }
//!
//! #[tokio::main]
//! async fn main() {
//!     play(BedConfig::default(), &[Scenario::new("pods_run", |bed| Box::pin(pods_run(bed)))]).await;
//! }
//! ```

use std::sync::Arc;

use futures::future::BoxFuture;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::bed::{Bed, BedConfig};
use crate::environment::Environment;
use crate::wait::chain;

type Play = fn(Arc<Bed>) -> BoxFuture<'static, ()>;

/// A scenario: panics when an expectation fails.
#[derive(Clone, Copy, Debug)]
pub struct Scenario {
    name: &'static str,
    play: Play,
}

impl Scenario {
    /// A scenario, named by a sentence about behaviour.
    pub const fn new(name: &'static str, play: Play) -> Self {
        Self { name, play }
    }
}

/// Starts a bed and plays on it all scenarios (of those that `TENON_SCENARIO` names), also after one has failed. The bed's directory stays if
/// one fails.
///
/// # Panics
/// When the bed does not start or stop, and at the end when scenarios failed, naming them.
pub async fn play(config: BedConfig, scenarios: &[Scenario]) {
    let wanted = Environment::read().unwrap_or_else(|error| panic!("{error}")).scenario;
    let chosen: Vec<&Scenario> = scenarios.iter().filter(|it| it.name.contains(&wanted)).collect();
    if chosen.is_empty() {
        return;
    }
    let bed = Bed::start(config).await.unwrap_or_else(|error| panic!("{}", chain(&error)));
    let bed = Arc::new(bed);
    let mut failed = Vec::new();
    for scenario in chosen {
        let started = Instant::now();
        // A task of its own, so that a panic ends the scenario and not the bed.
        let mut task = JoinSet::new();
        task.spawn((scenario.play)(Arc::clone(&bed)));
        let passed = task.join_next().await.is_some_and(|result| result.is_ok());
        if !passed {
            failed.push(scenario.name);
        }
        let word = if passed { "ok" } else { "FAILED" };
        anstream::println!(
            "scenario {} ... {word} ({:.1} s)",
            scenario.name,
            started.elapsed().as_secs_f64()
        );
    }
    let bed = Arc::into_inner(bed).expect("a scenario that has ended holds no bed");
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
