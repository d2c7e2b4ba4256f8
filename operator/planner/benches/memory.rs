//! How much memory a Snapshot of about 10,000 nodes and 100,000 pods takes.
//!
//! `cargo bench -p tenon-planner --features testing --bench memory` (Linux: it reads
//! `/proc/self/statm`).

mod fixtures;

use std::fs::File;
use std::io::{BufReader, BufWriter};
use std::process::Command;

use fixtures::full;
use tenon_planner::Snapshot;

/// Resident memory in MiB, with pages of 4 KiB.
#[expect(clippy::disallowed_methods, reason = "a benchmark measures its own process")]
fn resident() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("Linux has it");
    let pages = statm.split_whitespace().nth(1).and_then(|pages| pages.parse::<u64>().ok());
    pages.expect("the second number is the resident set") / 256
}

/// Names the file that the process is to read instead of writing one.
const FILE: &str = "TENON_BENCH_SNAPSHOT";

#[expect(
    clippy::disallowed_macros,
    clippy::print_stdout,
    reason = "a benchmark starts, and says what it measured"
)]
fn main() {
    if let Some(path) = std::env::var_os(FILE) {
        let before = resident();
        let file = BufReader::new(File::open(path).expect("the file that was written"));
        let snapshot: Snapshot = serde_json::from_reader(file).expect("as written");
        let (nodes, pods) = (snapshot.nodes.len(), snapshot.pods.len());
        println!("{nodes} nodes, {pods} pods: {} MiB", resident().saturating_sub(before));
        return;
    }
    // Read by a process that has not built it: pages that building has freed would be used again,
    // and nothing would seem to be needed.
    let path = std::env::temp_dir().join(format!("tenon-snapshot-{}.json", std::process::id()));
    let written = File::create(&path).expect("a temporary file");
    serde_json::to_writer(BufWriter::new(written), &full()).expect("snapshots are plain data");
    let this = std::env::current_exe().expect("it runs");
    let status = Command::new(this).env(FILE, &path).status();
    std::fs::remove_file(&path).expect("it was written");
    assert!(status.is_ok_and(|status| status.success()), "the reader failed");
}
