//! What every scenario begins with.

use std::sync::Arc;

use serde_json::json;
use tenon_aws_double::control::Control;
use tenon_bed::bed::Bed;
use tenon_bed::installation::Installation;
use tenon_bed::wait::must;

/// Tenon, and no fault that an earlier scenario has left behind.
pub(super) async fn installed(bed: &Arc<Bed>) -> Installation {
    control(bed).heal_all();
    must(bed.aws()).machines().heal();
    let tenon = must(Installation::ensure(bed, &json!({})).await);
    must(tenon.user().ready("EC2NodeClass", "default").await);
    tenon
}

pub(super) fn control(bed: &Bed) -> &Control {
    must(bed.aws()).gateway().control()
}
