//! How much memory a Snapshot of about 10,000 nodes and 100,000 pods takes.
//!
//! `cargo bench -p tenon-planner --features testing --bench memory` (Linux: it reads `/proc/self/statm`).

mod worlds;

use worlds::full;

/// Resident memory in MiB, with pages of 4 KiB.
#[expect(clippy::disallowed_methods, reason = "a benchmark measures its own process")]
fn resident() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("Linux has it");
    let pages = statm.split_whitespace().nth(1).and_then(|pages| pages.parse::<u64>().ok());
    pages.expect("the second number is the resident set") / 256
}

#[expect(
    clippy::disallowed_macros,
    clippy::print_stdout,
    reason = "a benchmark says what it measured"
)]
fn main() {
    // Through bytes, so that nothing that was used to build it is left over.
    let bytes = serde_json::to_vec(&full()).expect("snapshots are plain data");
    let before = resident();
    let snapshot: tenon_planner::Snapshot = serde_json::from_slice(&bytes).expect("as written");
    let (nodes, pods) = (snapshot.nodes.len(), snapshot.pods.len());
    println!("{nodes} nodes, {pods} pods: {} MiB", resident().saturating_sub(before));
}
