//! Passes that are cut short.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::fixtures::*;
use crate::policy::Policy;
use crate::snapshot::{Placement, Snapshot};
use crate::testing::apply;
use crate::{check, provision};

fn unplaced(snapshot: &Snapshot) -> usize {
    snapshot.pods.iter().filter(|pod| pod.placement == Placement::Unschedulable).count()
}

#[test]
fn the_next_pass_goes_on_where_a_cancelled_one_stopped() {
    let mut world = builder().pool(on_demand("default"));
    for number in 0..60 {
        world = world.pending(&format!("pod-{number:02}"), shape(100 + 97 * number, number << 27));
    }
    let mut snapshot = world.build();
    let mut passes = 0;
    while unplaced(&snapshot) > 0 {
        let asked = AtomicUsize::new(0);
        let cancel = || asked.fetch_add(1, Ordering::Relaxed) >= 2;
        let plan = provision(&snapshot, &Policy::default(), now(), 1, &cancel);
        assert_eq!(check(&snapshot, &plan), []);
        assert!(plan.report.cancelled || passes > 0);
        let after = apply(&snapshot, &plan);
        assert!(unplaced(&after) < unplaced(&snapshot), "a pass that is cut short still gets on");
        snapshot = after;
        passes += 1;
    }
    assert!(passes > 1, "one pass was enough");
}
