//! The price of a node, shared out to its pods by what they request.
//!
//! A node's price is split between its processors, its memory and its accelerators in proportion to
//! what these cost elsewhere, and each part is split between pods by their requests. What nobody
//! requests is idle.

use tenon_planner::Snapshot;
use tenon_planner::resources::Resources;
use tenon_planner::snapshot::{Node, Pod};

use crate::explain::index;

/// USD per hour of a processor, of a GiB of memory and of an accelerator: OpenCost's defaults. Only
/// their proportion counts.
const WEIGHTS: [f64; 3] = [0.031_611, 0.004_237, 0.95];

const GIB: f64 = 1_073_741_824.0;

/// What the pods of a node cost, in USD per hour.
#[derive(Debug)]
pub(super) struct Shares {
    /// By position.
    pub(super) pods: Vec<f64>,
    /// What no pod requests.
    pub(super) idle: f64,
}

impl Shares {
    /// What all pods request.
    pub(super) fn requested(&self) -> f64 {
        self.pods.iter().sum()
    }

    /// What of the idle rest falls to a pod: in proportion to what pods request, or to each the
    /// same where none requests anything.
    pub(super) fn idle_of(&self, position: usize) -> f64 {
        let requested = self.requested();
        let share = if requested > 0.0 {
            self.pods[position] / requested
        } else {
            1.0 / count(self.pods.len())
        };
        self.idle * share
    }
}

/// Shares a price out.
pub(super) fn shares(snapshot: &Snapshot, node: &Node, pods: &[&Pod], price: f64) -> Shares {
    let requests: Vec<[f64; 3]> = pods
        .iter()
        .map(|pod| amounts(&snapshot.shapes[index(pod.shape.0)].requests, &node.allocatable))
        .collect();
    let available = amounts(&node.allocatable, &node.allocatable);
    let sum = |resource: usize| requests.iter().map(|amounts| amounts[resource]).sum::<f64>();
    // Nothing is given out twice where pods request more than there is.
    let units = [0, 1, 2].map(|resource| available[resource].max(sum(resource)));
    let worth = |amounts: [f64; 3]| -> f64 {
        amounts.iter().zip(WEIGHTS).map(|(amount, weight)| amount * weight).sum()
    };
    let all = worth(units);
    if all <= 0.0 {
        // Nothing is known of it yet.
        return Shares { pods: vec![0.0; pods.len()], idle: price };
    }
    let pods: Vec<f64> = requests.into_iter().map(|amounts| price * worth(amounts) / all).collect();
    let idle = (price - pods.iter().sum::<f64>()).max(0.0);
    Shares { pods, idle }
}

/// Processors, GiB, and accelerators as a node of this kind has them.
fn amounts(of: &Resources, node: &Resources) -> [f64; 3] {
    // The API names some accelerators twice: AWS Neuron devices and their cores.
    let counted = node
        .extended
        .iter()
        .filter(|(name, amount)| is_accelerator(name) && **amount > 0)
        .map(|(name, amount)| (name, *amount))
        .collect::<Vec<_>>();
    let devices = counted.iter().map(|(_, amount)| *amount).min().unwrap_or(0);
    let used = counted
        .iter()
        .map(|(name, amount)| {
            let requested = of.extended.get(*name).copied().unwrap_or(0);
            number(devices) * number(requested) / number(*amount)
        })
        .fold(0.0, f64::max);
    [number(of.cpu) / 1000.0, number(of.memory) / GIB, used]
}

/// Whether a resource is one of GPUs or machine learning chips.
fn is_accelerator(name: &str) -> bool {
    name.ends_with("/gpu") || name.ends_with("/gaudi") || name.starts_with("aws.amazon.com/neuron")
}

#[expect(clippy::cast_precision_loss, reason = "amounts of a node are far below 2^53")]
fn number(amount: i64) -> f64 {
    amount.max(0) as f64
}

#[expect(clippy::cast_precision_loss, reason = "a node has some hundred pods")]
pub(super) fn count(n: usize) -> f64 {
    n as f64
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tenon_planner::snapshot::{PodShape, ShapeId};

    use super::*;

    fn resources(cpu: i64, gib: i64, extended: &[(&str, i64)]) -> Resources {
        let extended = extended.iter().map(|(name, n)| ((*name).to_owned(), *n)).collect();
        Resources { cpu, memory: gib << 30, extended, ..Resources::default() }
    }

    /// Shares of a node of 1 USD per hour.
    fn shared(node: Resources, pods: &[Resources]) -> Shares {
        let shapes = pods.iter().map(|requests| {
            Arc::new(PodShape { requests: requests.clone(), ..PodShape::default() })
        });
        let snapshot = Snapshot { shapes: shapes.collect(), ..Snapshot::default() };
        let pods: Vec<Pod> = (0..u32::try_from(pods.len()).expect("few"))
            .map(|id| Pod { shape: ShapeId(id), ..Pod::default() })
            .collect();
        let node = Node { allocatable: node, ..Node::default() };
        shares(&snapshot, &node, &pods.iter().collect::<Vec<_>>(), 1.0)
    }

    fn close(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-9
    }

    #[test]
    fn what_nobody_requests_is_idle_and_nothing_is_lost() {
        let half = resources(1000, 4, &[]);
        let shares = shared(resources(2000, 8, &[]), &[half]);
        assert!(close(shares.pods[0], 0.5), "{shares:?}");
        assert!(close(shares.idle, 0.5), "{shares:?}");
        assert!(close(shares.idle_of(0), 0.5), "{shares:?}");
    }

    #[test]
    fn processors_and_memory_count_by_what_they_cost() {
        let cpu = shared(resources(1000, 8, &[]), &[resources(1000, 0, &[])]);
        let part = 0.031_611 / (0.031_611 + 8.0 * 0.004_237);
        assert!(close(cpu.pods[0], part), "{cpu:?}");
    }

    #[test]
    fn pods_that_request_more_than_there_is_pay_no_more_than_the_price() {
        let one = resources(1500, 8, &[]);
        let shares = shared(resources(2000, 16, &[]), &[one.clone(), one]);
        assert!(close(shares.requested(), 1.0), "{shares:?}");
        assert!(close(shares.idle, 0.0), "{shares:?}");
    }

    #[test]
    fn the_pod_with_the_accelerator_pays_for_it() {
        let node = resources(8000, 32, &[("nvidia.com/gpu", 1)]);
        let with = resources(1000, 4, &[("nvidia.com/gpu", 1)]);
        let without = resources(1000, 4, &[]);
        let shares = shared(node, &[with, without]);
        assert!(shares.pods[0] > 0.7 && shares.pods[1] < 0.05, "{shares:?}");
    }

    #[test]
    fn devices_that_are_named_twice_count_once() {
        let node = [("aws.amazon.com/neuron", 1), ("aws.amazon.com/neuroncore", 4)];
        let of_device = shared(resources(8000, 32, &node), &[resources(0, 0, &node[..1])]);
        let cores = [("aws.amazon.com/neuroncore", 4)];
        let of_cores = shared(resources(8000, 32, &node), &[resources(0, 0, &cores)]);
        assert!(close(of_device.pods[0], of_cores.pods[0]), "{of_device:?} {of_cores:?}");
        let half = [("aws.amazon.com/neuroncore", 2)];
        let of_half = shared(resources(8000, 32, &node), &[resources(0, 0, &half)]);
        assert!(close(2.0 * of_half.pods[0], of_device.pods[0]), "{of_half:?}");
    }

    #[test]
    fn pods_without_requests_share_the_idle_rest_alike() {
        let none = resources(0, 0, &[]);
        let shares = shared(resources(2000, 8, &[]), &[none.clone(), none]);
        assert!(close(shares.idle_of(0), 0.5) && close(shares.idle_of(1), 0.5), "{shares:?}");
    }
}
