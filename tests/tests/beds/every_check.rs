//! Every check of the installer fails and passes on some bed.

use std::collections::BTreeSet;

/// The one check that nothing can be wrong about: without a Prometheus operator it doesn't apply.
const NEVER_FAILS: &str = "CL-15";

#[test]
fn every_check_fails_once_and_passes_once_on_a_bed() {
    // Written from the table of checks, which a test of the installer compares.
    let page = include_str!("../../../docs/src/reference/troubleshooting.md");
    let headings = page.lines().filter_map(|line| line.strip_prefix("### ")?.split_once(": "));
    let known: BTreeSet<_> = headings.map(|(id, _)| id).filter(|id| *id != NEVER_FAILS).collect();
    let broken = [crate::checks::BROKEN, crate::preflight::BROKEN, crate::inside::BROKEN];
    let broken: BTreeSet<_> = broken.into_iter().flatten().copied().collect();
    assert_eq!(broken, known, "left: broken on a bed; right: the table of checks");
}
