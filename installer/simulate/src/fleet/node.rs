//! One node of a fleet, with what its pods request.

use jiff::Timestamp;
use tenon_crds::labels;
use tenon_planner::resources::Resources;
use tenon_planner::snapshot::{Node, NodePhase};

use super::pool_of;

/// What is requested of a resource: thousandths of processors, or bytes of memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Used {
    /// What pods request.
    pub requested: i64,
    /// What nodes have for pods.
    pub allocatable: i64,
}

impl Used {
    /// In percent, rounded down; more than 100 where pods request more than there is. `None` where
    /// there is nothing.
    pub fn percent(self) -> Option<i64> {
        let percent = || i128::from(self.requested) * 100 / i128::from(self.allocatable);
        (self.allocatable > 0).then(|| i64::try_from(percent()).unwrap_or(i64::MAX))
    }
}

/// A Node, or a NodeClaim that has none yet.
#[derive(Debug, Clone, PartialEq)]
pub struct FleetNode {
    /// Name of the NodeClaim, or of the Node where there is none; unique.
    pub key: String,
    /// Name of the Node, once it has joined.
    pub name: Option<String>,
    /// Whether a NodeClaim stands behind it.
    pub has_claim: bool,
    /// The NodePool.
    pub node_pool: Option<String>,
    /// Its label; none before the launch.
    pub instance_type: Option<String>,
    /// Its label; none before the launch.
    pub zone: Option<String>,
    /// Its label; none before the launch.
    pub capacity_type: Option<String>,
    /// In USD per hour, where it is known.
    pub price: Option<f64>,
    /// Whether it is initialized.
    pub is_initialized: bool,
    /// Whether the Node's condition Ready is True.
    pub is_ready: bool,
    /// `metadata.creationTimestamp` of the NodeClaim or, without one, of the Node.
    pub created_at: Timestamp,
    /// The number of pods on it, including those of DaemonSets.
    pub pods: usize,
    /// Processors, in thousandths.
    pub cpu: Used,
    /// Memory, in bytes.
    pub memory: Used,
}

impl FleetNode {
    /// Of a node at this price, on which so many pods request so much.
    pub(super) fn new(node: &Node, price: Option<f64>, requests: &Resources, pods: usize) -> Self {
        let label = |key: &str| node.labels.get(key).cloned();
        let used = |requested, allocatable| Used { requested, allocatable };
        Self {
            key: node.key.clone(),
            name: node.name.clone(),
            has_claim: node.claim.is_some(),
            node_pool: pool_of(node).map(str::to_owned),
            instance_type: label(labels::INSTANCE_TYPE),
            zone: label(labels::ZONE),
            capacity_type: label(labels::CAPACITY_TYPE),
            price,
            is_initialized: node.phase == NodePhase::Initialized,
            is_ready: node.ready,
            created_at: node.created_at,
            pods,
            cpu: used(requests.cpu, node.allocatable.cpu),
            memory: used(requests.memory, node.allocatable.memory),
        }
    }
}
