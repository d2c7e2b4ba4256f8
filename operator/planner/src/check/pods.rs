//! Pods of a snapshot by index.

use crate::plan::PodRef;
use crate::snapshot::{PodShape, Snapshot};

pub(super) fn shape(snapshot: &Snapshot, pod: usize) -> &PodShape {
    &snapshot.shapes[snapshot.pods[pod].shape.0 as usize]
}

pub(super) fn reference(snapshot: &Snapshot, pod: usize) -> PodRef {
    let pod = &snapshot.pods[pod];
    PodRef::from(pod)
}
