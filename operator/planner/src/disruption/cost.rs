//! What it costs to evict pods, in units of an ordinary pod.

use crate::snapshot::Pod;

/// The cost of a node without pods that anyone would miss.
pub(super) const LEAST_COST: f64 = 1.0;

/// One pod: 1, more with a higher deletion cost or priority, between -10 and 10.
pub(super) fn eviction_cost(pod: &Pod) -> f64 {
    let (deletion, priority) = (f64::from(pod.deletion_cost), f64::from(pod.priority));
    (1.0 + deletion / f64::from(1 << 27) + priority / f64::from(1 << 25)).clamp(-10.0, 10.0)
}

/// A node: [`LEAST_COST`] and what its pods cost, where pods that are glad to go don't make up for
/// others.
pub(super) fn reschedule_cost<'a>(pods: impl Iterator<Item = &'a Pod>) -> f64 {
    LEAST_COST + pods.map(|pod| eviction_cost(pod).max(0.0)).sum::<f64>()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mk_pod(deletion_cost: i32, priority: i32) -> Pod {
        Pod {
            namespace: "default".into(),
            name: "pod".into(),
            uid: "uid".into(),
            priority,
            deletion_cost,
            ..Pod::default()
        }
    }

    /// Appendix A.3.
    #[test]
    fn eviction_costs_follow_deletion_cost_and_priority() {
        for (deletion_cost, priority, expected) in [
            (0, 0, 1.0),
            (i32::MAX, 0, 10.0),
            (-i32::MAX, 0, -10.0),
            (1 << 27, 0, 2.0),
            (-(1 << 27), 0, 0.0),
            (1000, 0, 1.000_007_5),
            (0, 1_000_000_000, 10.0),
            (0, 2_000_000_000, 10.0),
            (0, -1_000_000, 0.970_2),
            (0, -(1 << 25), 0.0),
            (0, -1_000_000_000, -10.0),
        ] {
            let cost = eviction_cost(&mk_pod(deletion_cost, priority));
            assert!((cost - expected).abs() < 1e-4, "{deletion_cost} {priority}: {cost}");
        }
    }

    #[test]
    fn pods_that_are_glad_to_go_do_not_make_up_for_others() {
        let pods = [mk_pod(0, 0), mk_pod(1 << 27, 0), mk_pod(-(1 << 29), 0)];
        assert!((reschedule_cost(pods.iter()) - 4.0).abs() < 1e-9);
    }
}
