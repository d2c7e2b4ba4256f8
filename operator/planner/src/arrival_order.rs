//! Orders in which kube-scheduler may take pods that came at the same time.

/// Another order, the same in every pass so that what is at rest stays at rest; 0 leaves things as
/// they are.
pub(crate) fn shuffle<T>(pods: &mut [T], order: u64) {
    let mut draw = order;
    for at in (1..pods.len()).rev().filter(|_| order > 0) {
        draw = draw.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let other = usize::try_from(draw >> 33).unwrap_or(0) % (at + 1);
        pods.swap(at, other);
    }
}
