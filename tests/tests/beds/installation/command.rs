//! A run of `tenon` to its end, or to a fault.

use tenon_bed::bed::{Bed, Finished};

/// Runs `tenon`, with a fault if `abort_after` says so.
pub(super) async fn tenon(bed: &Bed, args: &[&str], abort_after: Option<usize>) -> Finished {
    let mut command = bed.command(bed.tenon().expect("programs"));
    command.args(args);
    if let Some(steps) = abort_after {
        command.env("TENON_FAULT_EXIT_AFTER_STEP", steps.to_string());
    }
    let output = command.output().await.expect("tenon runs");
    Finished {
        code: output.status.code().unwrap_or(-1),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}
