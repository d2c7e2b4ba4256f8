//! How far plans are from the lower bound, and how long they take.
//!
//! `cargo bench -p tenon-planner --features testing --bench price` prints one line for each mix,
//! catalog and number of pods; words after `--` select the lines that contain all of them. With
//! `SEED=n`, pods of the diverse mix and how many there are of each service are other draws.

#![expect(clippy::disallowed_types, clippy::disallowed_methods, reason = "a benchmark measures")]

mod fixtures;

use std::time::Instant;

use fixtures::{
    awkward, aws_types, cluster, is_common, log_normal, on_demand, opposite, pool, spot_prices,
    with_services,
};
use jiff::Timestamp;
use tenon_planner::snapshot::{InstanceType, NodePool};
use tenon_planner::testing::Builder;
use tenon_planner::testing::mixes::diverse;
use tenon_planner::{Policy, Snapshot, lower_bound, provision};

/// The operator's.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// How often a plan is made; times are means, as the kernel counts in steps of some milliseconds.
const RUNS: u32 = 12;

/// What this thread has computed so far, in seconds: other programs make no difference. On the
/// clock where the kernel doesn't tell.
fn spent(begun: Instant) -> f64 {
    let told = std::fs::read_to_string("/proc/thread-self/schedstat").ok();
    let nanoseconds = told.and_then(|told| told.split(' ').next()?.parse::<f64>().ok());
    nanoseconds.map_or_else(|| begun.elapsed().as_secs_f64(), |nanoseconds| nanoseconds / 1e9)
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
    let (snapshot, policy) = (world(), Policy::default());
    let mut made = None;
    let begun = Instant::now();
    let before = spent(begun);
    for _ in 0..RUNS {
        made = Some(provision(&snapshot, &policy, Timestamp::UNIX_EPOCH, 1, &()));
    }
    let planning = (spent(begun) - before) / f64::from(RUNS);
    let plan = made.unwrap_or_default();
    let price: f64 = plan.launches.iter().map(|launch| launch.price.as_usd()).sum();
    let before = spent(begun);
    let bound = lower_bound(&snapshot, &policy).price.as_usd();
    let bounding = spent(begun) - before;
    // Bounds are about the bill: how close packing comes to them shows where a machine costs
    // nothing beyond it.
    let free = Policy { node_price: tenon_planner::testing::usd(0.0), ..Policy::default() };
    let of_bill = provision(&snapshot, &free, Timestamp::UNIX_EPOCH, 1, &());
    let bill: f64 = of_bill.launches.iter().map(|launch| launch.price.as_usd()).sum();
    println!(
        "{name:44} {:>4} shapes {:>5} nodes {} waiting {price:>9.3} USD, bound {bound:>9.3}, {:>6.2} % above ({:>6.2} % without node price), {:>7.1} ms (bound {:>7.1} ms)",
        snapshot.shapes.len(),
        plan.launches.len(),
        plan.report.pods.len(),
        (price / bound - 1.0) * 100.0,
        (bill / bound - 1.0) * 100.0,
        planning * 1e3,
        bounding * 1e3,
    );
}

/// Which draw of pods it is.
fn seed() -> u64 {
    std::env::var("SEED").ok().and_then(|it| it.parse().ok()).unwrap_or(0)
}

fn catalogs() -> Vec<(&'static str, Vec<InstanceType>, NodePool)> {
    let with_spot = || spot_prices(aws_types(is_common), 5);
    let all_with_spot = || spot_prices(aws_types(|_| true), 5);
    vec![
        ("all on-demand", aws_types(|_| true), on_demand()),
        ("all spot", all_with_spot(), pool()),
        ("cmr on-demand", aws_types(is_common), on_demand()),
        ("cmr spot", with_spot(), pool()),
    ]
}

fn main() {
    for (catalog, types, pool) in catalogs() {
        let world = || -> Builder { cluster(types.clone(), pool.clone()) };
        for n in [1_000, 5_000, 20_000, 50_000] {
            for shapes in [30, 150, 300] {
                line(&format!("log-normal {shapes} {catalog} {n}"), || {
                    log_normal(world(), n, shapes)
                });
            }
            line(&format!("halves-and-thirds {catalog} {n}"), || awkward(world(), n));
            line(&format!("opposite {catalog} {n}"), || opposite(world(), n, 1));
            line(&format!("rules 150 {catalog} {n}"), || with_services(world(), n, 150, seed()));
        }
        for draw in 2..13 {
            line(&format!("opposite-draw {draw} {catalog} 1000"), || {
                opposite(world(), 1_000, draw)
            });
        }
        for n in [20, 100, 500] {
            line(&format!("small rules 8 {catalog} {n}"), || with_services(world(), n, 8, seed()));
        }
        for n in [1_000, 5_000, 20_000] {
            line(&format!("diverse {catalog} {n}"), || diverse(world(), n, 42 + seed()));
        }
    }
    for n in [1_000, 5_000, 20_000] {
        line(&format!("diverse fake {n}"), || {
            diverse(cluster(tenon_planner::testing::mixes::fake_types(400), pool()), n, 42 + seed())
        });
    }
}
