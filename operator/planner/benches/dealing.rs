//! What plans cost once kube-scheduler has dealt their pods out as it likes and what was left over
//! has been launched for, too.
//!
//! `cargo bench -p tenon-planner --features testing --bench dealing` prints one line for each mix,
//! catalog and number of pods: sums over several orders of the pods. Words after `--` select the
//! lines that contain all of them. `--old` scores as kube-scheduler does before Kubernetes 1.35,
//! with `--alone` no pods belong to Deployments.

#![expect(clippy::disallowed_types, clippy::disallowed_methods, reason = "a benchmark measures")]

mod fixtures;

use std::time::Instant;

use fixtures::{aws_types, cluster, is_common, log_normal, on_demand, opposite, with_services};
use jiff::Timestamp;
use tenon_planner::snapshot::{InstanceType, NodePool};
use tenon_planner::testing::Builder;
use tenon_planner::testing::dealing::{Outcome, Scheduler, carry_out};
use tenon_planner::testing::mixes::{diverse, halves, kwok_types, thirds};
use tenon_planner::{Policy, Snapshot, provision};

/// The operator's.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Orders of the pods.
const SEEDS: u64 = 4;

/// How often a plan is made to time it.
const RUNS: u32 = 5;

/// What is measured of one policy, means over the orders.
fn measured(snapshot: &Snapshot, policy: &Policy) -> String {
    let begun = Instant::now();
    for _ in 0..RUNS {
        provision(snapshot, policy, Timestamp::UNIX_EPOCH, 1, &());
    }
    let milliseconds = begun.elapsed().as_secs_f64() * 1e3 / f64::from(RUNS);
    let words: Vec<String> = std::env::args().collect();
    let old = words.iter().any(|word| word == "--old");
    let alone = words.iter().any(|word| word == "--alone");
    let outcomes: Vec<Outcome> = (1..=SEEDS)
        .map(|seed| {
            let scheduler = Scheduler::new(seed);
            let scheduler = Scheduler {
                scores_change: scheduler.scores_change && !old,
                has_workloads: scheduler.has_workloads && !alone,
                ..scheduler
            };
            carry_out(snapshot, policy, scheduler)
        })
        .collect();
    let mean = |of: &dyn Fn(&Outcome) -> f64| {
        outcomes.iter().map(of).sum::<f64>() / f64::from(u32::try_from(SEEDS).unwrap_or(1))
    };
    let count = |n: usize| f64::from(u32::try_from(n).unwrap_or(u32::MAX));
    format!(
        "{:>8.3} in {:>5.0}, dealt {:>8.3} in {:>6.1}, {:>4.1} rounds, {} waiting, {milliseconds:>6.1} ms",
        mean(&|it| it.planned.as_usd()),
        mean(&|it| count(it.planned_launches)),
        mean(&|it| it.price.as_usd()),
        mean(&|it| count(it.launches)),
        mean(&|it| count(it.rounds)),
        outcomes[0].waiting,
    )
}

#[expect(
    clippy::disallowed_macros,
    clippy::print_stdout,
    reason = "a benchmark says what it measured"
)]
fn line(name: &str, world: impl FnOnce() -> Snapshot) {
    let words: Vec<String> = std::env::args().skip(1).filter(|it| !it.starts_with('-')).collect();
    if !words.iter().all(|word| name.split(' ').any(|part| part == word)) {
        return;
    }
    let snapshot = world();
    for (nominations, what) in [(true, "as planned"), (false, "rehearsed")] {
        let policy = Policy { nominations, ..Policy::default() };
        println!("{name:24} {what}: {}", measured(&snapshot, &policy));
    }
}

fn catalogs() -> Vec<(&'static str, Vec<InstanceType>, NodePool)> {
    vec![
        ("kwok", kwok_types(256), on_demand()),
        ("kwok-16", kwok_types(16), on_demand()),
        ("cmr", aws_types(is_common), on_demand()),
        ("all", aws_types(|_| true), on_demand()),
    ]
}

fn main() {
    for (catalog, types, pool) in catalogs() {
        let world = || -> Builder { cluster(types.clone(), pool.clone()) };
        for n in [100, 300, 1_000, 5_000] {
            line(&format!("halves {catalog} {n}"), || halves(world(), n));
            line(&format!("thirds {catalog} {n}"), || thirds(world(), n));
            line(&format!("log-normal {catalog} {n}"), || log_normal(world(), n, 30));
            line(&format!("opposite {catalog} {n}"), || opposite(world(), n, 1));
        }
        line(&format!("rules {catalog} 300"), || with_services(world(), 300, 30, 0));
        line(&format!("diverse {catalog} 300"), || diverse(world(), 300, 42));
    }
}
