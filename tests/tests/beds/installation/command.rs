//! A run of `tenon` to its end, or to a fault.

use serde_json::Value;
use tenon_bed::bed::{Bed, Finished};

/// Runs `tenon`, with a fault if `abort_after` says so.
pub(super) async fn tenon(bed: &Bed, args: &[&str], abort_after: Option<usize>) -> Finished {
    let mut command = bed.command(bed.tenon().expect("programs"));
    command.args(args);
    if let Some(steps) = abort_after {
        command.env("TENON_FAULT_EXIT_AFTER_STEP", steps.to_string());
    }
    command.output().await.expect("tenon runs").into()
}

/// One check of `tenon doctor`, by its id.
pub(super) async fn check(bed: &Bed, id: &str) -> Value {
    let target = ["--cluster", bed.cluster(), "--region", bed.region()];
    let finished = tenon(bed, &[&["doctor", "-o", "json"][..], &target].concat(), None).await;
    let report: Value = serde_json::from_str(&finished.stdout).expect("one document");
    let categories = report["categories"].as_array().expect("categories").iter();
    let mut checks = categories.flat_map(|one| one["checks"].as_array().expect("checks"));
    checks.find(|check| check["id"] == id).expect("the check").clone()
}
