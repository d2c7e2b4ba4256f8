//! How long a plan takes, and what it costs.
//!
//! `cargo bench -p tenon-planner --features testing --bench provision` times the batches; other
//! lines say how many machines each plan has, what it costs, and how far that is from the lower
//! bound of the relaxation.

mod fixtures;

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use fixtures::{
    awkward, aws_types, batch, checksum, cluster, constrained_services, full, is_common, lopsided,
    on_demand, pool, preferring, services,
};
use jiff::Timestamp;
use tenon_planner::policy::PreferencePolicy;
use tenon_planner::testing::mixes::{diverse, fake_types};
use tenon_planner::{Plan, Policy, Snapshot, lower_bound, provision};

/// Where the draw of the diverse mix begins.
const SEED: u64 = 42;

/// The operator's.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn plan(snapshot: &Snapshot, policy: &Policy) -> Plan {
    provision(snapshot, policy, Timestamp::UNIX_EPOCH, 1, &())
}

#[expect(
    clippy::disallowed_macros,
    clippy::print_stdout,
    reason = "a benchmark says what it measured"
)]
fn describe(name: &str, snapshot: &Snapshot, policy: &Policy, bound: bool) {
    let plan = plan(snapshot, policy);
    let price: f64 = plan.launches.iter().map(|launch| launch.price.as_usd()).sum();
    let (shapes, nodes) = (snapshot.shapes.len(), plan.launches.len());
    let waiting = plan.report.pods.len();
    print!("{name}: {shapes} shapes, {nodes} nodes, {waiting} waiting, {price:.2} USD per hour, ");
    print!("plan {:016x}", checksum(&plan));
    if bound {
        let bound = lower_bound(snapshot, policy).price.as_usd();
        print!(", {:.2} % above the bound", (price / bound - 1.0) * 100.0);
    }
    println!();
}

fn time(criterion: &mut Criterion, group: &str, worlds: &[(String, Snapshot, Policy)]) {
    let mut group = criterion.benchmark_group(group);
    group.sample_size(10);
    for (name, snapshot, policy) in worlds {
        describe(name, snapshot, policy, false);
        group.bench_with_input(BenchmarkId::from_parameter(name), snapshot, |bencher, snapshot| {
            bencher.iter(|| black_box(plan(snapshot, policy)));
        });
    }
    group.finish();
}

/// The curve over the number of pods.
fn growth(criterion: &mut Criterion) {
    let worlds = [1_000, 2_000, 5_000, 10_000, 20_000].map(|n| {
        (format!("{n}"), diverse(cluster(fake_types(400), pool()), n, SEED), Policy::default())
    });
    time(criterion, "diverse", &worlds);
}

fn sizes(criterion: &mut Criterion) {
    let policy = Policy::default;
    let ignoring = Policy { preferences: PreferencePolicy::Ignore, ..policy() };
    let fake = |n| cluster(fake_types(n), pool());
    let worlds = [
        (
            "diverse-aws-5000".to_owned(),
            diverse(cluster(aws_types(|_| true), pool()), 5_000, SEED),
            policy(),
        ),
        ("preferences-respected-4000".to_owned(), preferring(fake(400), 4_000), policy()),
        ("preferences-ignored-4000".to_owned(), preferring(fake(400), 4_000), ignoring),
        ("batch-100000".to_owned(), batch(fake(1_000), 100_000), policy()),
        ("100-more-on-a-full-cluster".to_owned(), full(), policy()),
    ];
    time(criterion, "sizes", &worlds);
}

fn prices(_: &mut Criterion) {
    let world = || cluster(aws_types(is_common), on_demand());
    for n in [5_000, 50_000] {
        for (name, snapshot) in [
            ("batch", batch(world(), n)),
            ("services", services(world(), n)),
            ("halves and thirds", awkward(world(), n)),
            ("processors and memory", lopsided(world(), n)),
            ("services with rules", constrained_services(world(), n)),
        ] {
            describe(&format!("{name} {n}"), &snapshot, &Policy::default(), true);
        }
    }
}

criterion_group!(benches, growth, sizes, prices);
criterion_main!(benches);
