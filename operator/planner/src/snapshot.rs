//! The planner's input: everything that it may look at, as one immutable value.
//!
//! The operator builds a [`Snapshot`] from its watch state, `tenon simulate` from a file or a live
//! list. It is plain data: it can be written to a file, read back, and gives the same plan
//! anywhere. Names stand at its border; the planner interns them to dense ids for its own use.
//!
//! Invariants that a builder keeps, and that [`Snapshot::validate`] checks:
//! - every list is sorted by its key (given with each field) and has no duplicates;
//! - every index ([`ShapeId`], [`NodeId`], [`CatalogId`]) is within its list;
//! - amounts are in the units of [`crate::resources::Resources`].

mod catalog;
mod device;
mod node;
mod nodepool;
mod overlay;
mod pod;
mod repair;
mod requirement;

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

pub use catalog::{CapacityType, Catalog, InstanceType, Offering};
pub use device::{
    AllocatedDevice, AttributeBinding, AttributeValue, CapacityRange, Claim, ClaimAllocation,
    ClaimSpec, Device, DeviceAsk, DeviceCapacity, DeviceConstraint, DeviceKind, DevicePool,
    DeviceRequest, DeviceSlice, DeviceTemplate, Devices, NodeTerm, PoolState, Reach,
    TemplateDevice,
};
pub use node::{ClaimState, Node, NodePhase, Refusal};
pub use nodepool::{
    Budget, BudgetNodes, ConsolidationPolicy, DisruptionPolicy, DisruptionReason, NodeClassRef,
    NodePool, Template,
};
pub use overlay::{NodeOverlay, PriceChange};
pub use pod::{
    DaemonSet, Eviction, Owner, Placement, Pod, PodAffinityTerm, PodBudget, PodShape, SharedVolume,
    TopologySpread,
};
pub use repair::{Health, NodeCondition, Reboots, RepairAction, RepairPolicy};
pub use requirement::{Operator, Requirement};

/// The version of the format. Raised when a field changes its meaning; new optional fields don't
/// raise it.
pub const SNAPSHOT_VERSION: u32 = 1;

/// Index into [`Snapshot::shapes`].
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct ShapeId(pub u32);

/// Index into [`Snapshot::nodes`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct NodeId(pub u32);

/// Index into [`Snapshot::catalogs`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CatalogId(pub u32);

/// Everything that a decision may depend on, at one moment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Snapshot {
    /// [`SNAPSHOT_VERSION`].
    pub version: u32,
    /// The NodePools that are managed by this provider, whether ready or not. Sorted by name.
    pub node_pools: Vec<NodePool>,
    /// Instance types that can be launched, one catalog per NodeClass. Sorted by NodeClass.
    pub catalogs: Vec<Arc<Catalog>>,
    /// Machines: Kubernetes Nodes and NodeClaims that have no Node yet. Sorted by [`Node::key`].
    pub nodes: Vec<Node>,
    /// The distinct shapes of `pods`. In the order of first use by `pods`.
    pub shapes: Vec<Arc<PodShape>>,
    /// Pods that are pending or bound, without those that have ended. Sorted by namespace, then
    /// name.
    pub pods: Vec<Pod>,
    /// One representative pod per DaemonSet, for the overhead of new nodes. Sorted by namespace,
    /// then name.
    pub daemon_sets: Vec<DaemonSet>,
    /// Labels of namespaces, for selectors over namespaces. Sorted by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub namespaces: BTreeMap<String, BTreeMap<String, String>>,
    /// NodeOverlays; none while the feature gate is off. Sorted by weight, the heaviest first, then
    /// by name, the last first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub overlays: Vec<NodeOverlay>,
    /// Devices and the claims to them (dynamic resource allocation); `None` while
    /// `--ignore-dra-requests` holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub devices: Option<Arc<Devices>>,
    /// PodDisruptionBudgets that some pods' evictions count against now. In the order of first use
    /// by `pods`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pod_budgets: Vec<PodBudget>,
    /// The provider's repair policies; none while the feature gate NodeRepair is off.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub repair_policies: Vec<RepairPolicy>,
}

impl Default for Snapshot {
    /// An empty cluster, in the current format.
    fn default() -> Self {
        Self {
            version: SNAPSHOT_VERSION,
            node_pools: Vec::new(),
            catalogs: Vec::new(),
            nodes: Vec::new(),
            shapes: Vec::new(),
            pods: Vec::new(),
            daemon_sets: Vec::new(),
            namespaces: BTreeMap::new(),
            overlays: Vec::new(),
            devices: None,
            pod_budgets: Vec::new(),
            repair_policies: Vec::new(),
        }
    }
}
