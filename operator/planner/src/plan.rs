//! The planner's output: what to do, and for everything that was not done, why.
//!
//! A plan says everything that the actuator needs; the actuator makes no choices. Lists are in a
//! fixed order (given with each field), so that the same snapshot gives the same bytes.

mod device;
mod price;
mod score;
mod shared;
mod stay_reason;

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Taint;
use serde::{Deserialize, Serialize};

use crate::resources::{MicroUsd, Resources};
use crate::snapshot::{
    CapacityType, DisruptionReason, NodeClassRef, Pod, RepairAction, Requirement,
};

pub use device::{ChosenDevice, ClaimDevices, PlacedDevices};
pub use price::PriceRange;
pub use score::Score;
pub use shared::Shared;
pub use stay_reason::{StayReason, StayingNode};

/// The version of the format. Raised when a field changes its meaning.
pub const PLAN_VERSION: u32 = 1;

/// The decisions of one pass.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Plan {
    /// [`PLAN_VERSION`].
    pub version: u32,
    /// NodeClaims to create for pending pods. In the order of planning.
    pub launches: Vec<Launch>,
    /// Pending pods that fit on machines that exist or are on their way. Sorted by pod.
    pub nominations: Vec<Nomination>,
    /// Virtual pods of CapacityBuffers that fit on machines that exist or are on their way. Sorted
    /// by pod.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub buffered: Vec<Nomination>,
    /// Nodes to disrupt. Independent of each other; in the order of what they gain.
    pub commands: Vec<Command>,
    /// Machines of static NodePools beyond `spec.replicas`. The first to go first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub removals: Vec<Removal>,
    /// Devices for the claims of the pods of `nominations`, by machine.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<PlacedDevices>,
    /// The reasons for pods that wait and nodes that stay.
    pub report: Report,
}

/// A pod, by name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PodRef {
    /// `metadata.namespace`.
    pub namespace: Arc<str>,
    /// `metadata.name`.
    pub name: Arc<str>,
    /// `metadata.uid`.
    pub uid: Arc<str>,
}

impl From<&Pod> for PodRef {
    fn from(pod: &Pod) -> Self {
        Self {
            namespace: Arc::clone(&pod.namespace),
            name: Arc::clone(&pod.name),
            uid: Arc::clone(&pod.uid),
        }
    }
}

/// A NodeClaim to create. A plan may have thousands that are mostly equal, so they share data.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Launch {
    /// `metadata.name` of the NodePool.
    pub node_pool: String,
    /// `metadata.uid` of the NodePool, for the owner reference.
    pub node_pool_uid: String,
    /// Labels of the NodeClaim, with a concrete value for each custom requirement of the pool.
    /// Without those that only the simulation uses.
    pub labels: Shared<BTreeMap<String, String>>,
    /// Annotations of the NodeClaim: the template's, the pool's hash and its version,
    /// `nodeclaim-min-values-relaxed`.
    pub annotations: Shared<BTreeMap<String, String>>,
    /// `spec.requirements`, with the instance types and the capacity types that are left; sorted by
    /// key.
    pub requirements: Shared<Vec<Requirement>>,
    /// Instance types that hold the pods, cheapest first, at most
    /// [`crate::Policy::max_instance_types`].
    pub instance_types: Shared<Vec<String>>,
    /// The capacity types that available offerings of these types have.
    pub capacity_types: Vec<CapacityType>,
    /// Requests of the pods and the daemons.
    pub requests: Resources,
    /// `spec.taints`.
    pub taints: Shared<Vec<Taint>>,
    /// `spec.startupTaints`.
    pub startup_taints: Shared<Vec<Taint>>,
    /// `spec.nodeClassRef`.
    pub node_class: NodeClassRef,
    /// `spec.expireAfter`.
    pub expire_after: Option<String>,
    /// `spec.terminationGracePeriod`.
    pub termination_grace_period: Option<String>,
    /// The pods that it is for. Sorted.
    pub pods: Vec<PodRef>,
    /// The virtual pods of CapacityBuffers that it is for: counted in `requests`, and nothing is
    /// announced for them. Sorted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub buffer_pods: Vec<PodRef>,
    /// Devices for the claims of its pods, by instance types.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<PlacedDevices>,
    /// Price per hour of the cheapest offering.
    pub price: MicroUsd,
    /// Whether it is for pending pods or replaces disrupted nodes.
    pub reason: LaunchReason,
}

/// Why a machine is launched.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum LaunchReason {
    /// Pods are pending and fit nowhere else.
    Provisioned,
    /// It replaces disrupted nodes.
    Replacement(DisruptionReason),
}

/// A pod that is expected on a machine that exists.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Nomination {
    /// A pending pod, or one that moves.
    pub pod: PodRef,
    /// [`crate::snapshot::Node::key`] of the machine.
    pub node: String,
}

/// Nodes to disrupt together.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Command {
    /// The reason whose budgets it uses.
    pub reason: DisruptionReason,
    /// The method that found it.
    pub method: Method,
    /// The nodes, with what is needed to check the command against a later snapshot. Sorted by key.
    pub candidates: Vec<Candidate>,
    /// NodeClaims to create first; the candidates go only when these are initialised.
    pub replacements: Vec<Launch>,
    /// Where the candidates' pods go when they fit on machines that exist. Sorted by pod.
    pub nominations: Vec<Nomination>,
    /// Devices for the claims of the pods of `nominations`, by machine.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<PlacedDevices>,
    /// Price per hour of the candidates less that of the replacements.
    pub savings: MicroUsd,
    /// For consolidation: what pools with the policy Balanced make of it. Sorted by pool.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scores: Vec<Score>,
    /// Set if the candidates are terminated before their replacements are launched, because only
    /// their termination makes room for them. Then `replacements` is empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub terminate_first: Option<TerminateFirst>,
    /// For [`Method::Repair`] what is to be done, and why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repair: Option<Repair>,
}

impl Command {
    /// A command that only deletes its candidates: without replacements, nominations and savings.
    pub fn new(reason: DisruptionReason, method: Method, candidates: Vec<Candidate>) -> Self {
        Self {
            reason,
            method,
            candidates,
            replacements: Vec::new(),
            nominations: Vec::new(),
            devices: Vec::new(),
            savings: MicroUsd(0),
            scores: Vec::new(),
            terminate_first: None,
            repair: None,
        }
    }

    /// Whether its node is to be rebooted, and so neither replaced nor deleted.
    pub fn is_reboot(&self) -> bool {
        self.repair.as_ref().is_some_and(|repair| repair.action == RepairAction::RebootNode)
    }

    /// What is launched in place of the candidates: before they go, or after they are gone
    /// ([`Self::terminate_first`]).
    pub fn launches(&self) -> impl Iterator<Item = &Launch> {
        let later = self.terminate_first.as_ref().and_then(|first| first.launch.as_ref());
        self.replacements.iter().chain(later)
    }
}

/// Why a node is terminated before its replacement is launched (feature gates TerminateFirstDrift
/// and TerminateFirstRepair).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TerminateFirst {
    /// The resource that the replacement waits for.
    pub reason: Shortage,
    /// The launch that provisioning is expected to make after the termination, with the pods that
    /// then have no place. `None` for static pools, which launch by `spec.replicas`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub launch: Option<Launch>,
}

/// The capacity that a replacement lacks as long as the node exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Shortage {
    /// Room in the capacity reservation of the node, and no other offering can be launched.
    NoReservedCapacity,
    /// Room under the limit `nodes` of its static NodePool.
    StaticAtLimit,
}

impl Shortage {
    /// The value of the label in metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NoReservedCapacity => "no-reserved-capacity",
            Self::StaticAtLimit => "static-at-limit",
        }
    }
}

/// The repair of an unhealthy node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Repair {
    /// Type of the condition that drives it.
    pub condition: String,
    /// `status` of the condition.
    pub status: String,
    /// `reason` of the condition; empty without one.
    pub reason: String,
    /// [`crate::snapshot::RepairPolicy::reason`] of the policy that applies; `None` for the one
    /// that applies where no other does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
    /// With [`RepairAction::RebootNode`] the node stays: the command has no replacements, and its
    /// pods get no other places.
    pub action: RepairAction,
    /// A reboot that became a replacement because the node was rebooted twice within a day.
    pub escalated: bool,
    /// The end of the condition's toleration.
    pub eligible_at: Timestamp,
    /// Limit on draining, from the deletion or the start of the reboot; 0 does not wait for pods.
    /// `None` sets no limit: a deletion has the NodeClaim's own period, and a reboot none.
    pub drain_bound: Option<SignedDuration>,
}

/// One node of a [`Command`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Candidate {
    /// [`crate::snapshot::Node::key`].
    pub node: String,
    /// `metadata.name` of the NodeClaim to delete.
    pub claim: String,
    /// Label `karpenter.sh/nodepool` of the NodeClaim.
    pub node_pool: String,
    /// Pods that have to move. Sorted. An additional pod in a later snapshot invalidates the
    /// command.
    pub pods: Vec<PodRef>,
    /// Price per hour, when known.
    pub price: Option<MicroUsd>,
}

/// A surplus machine of a static NodePool. It is removed regardless of budgets; draining respects
/// PodDisruptionBudgets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Removal {
    /// [`crate::snapshot::Node::key`].
    pub node: String,
    /// `metadata.name` of the NodeClaim to delete.
    pub claim: String,
    /// Label `karpenter.sh/nodepool` of the NodeClaim.
    pub node_pool: String,
}

/// How a command was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Method {
    /// An unhealthy node.
    Repair,
    /// Nodes without pods.
    Emptiness,
    /// A node that differs from its NodePool or NodeClass.
    Drift,
    /// Several nodes at once, for at most one new one.
    MultiNodeConsolidation,
    /// One node, for nothing or for a cheaper one.
    SingleNodeConsolidation,
}

/// The reasons for everything that is not in the plan.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// Pods that stay pending. Sorted by pod.
    pub pods: Vec<WaitingPod>,
    /// Nodes that a disruption pass evaluated and left alone. Sorted by key.
    pub nodes: Vec<StayingNode>,
    /// NodePools that were skipped. Sorted by name.
    pub node_pools: Vec<SkippedPool>,
    /// Possible prices of each of [`Plan::launches`], in their order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub prices: Vec<PriceRange>,
    /// The number of waiting pods that can run in one zone only, by zone; [`ANY_ZONE`] counts pods
    /// that can run in several, [`NO_ZONE`] pods that can run in none. Their own requirements,
    /// their volumes, and required topology rules before the plan decide. Only for provisioning.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub zones: BTreeMap<String, u32>,
    /// Whether the pass was cut short by its cancel hook: the plan is valid, the rest was not
    /// considered.
    pub cancelled: bool,
    /// For [`crate::Policy::resume`] of the next disruption pass, when this one was cut short
    /// before every node had its turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resume: Option<Resume>,
}

/// In [`Report::zones`]: pods that may run in several zones.
pub const ANY_ZONE: &str = "flexible";

/// In [`Report::zones`]: pods that may run in no zone.
pub const NO_ZONE: &str = "none";

/// A place in a disruption pass.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Resume {
    /// The method that had candidates left.
    pub method: Method,
    /// [`crate::snapshot::Node::key`] of the first of them. It need not exist any more.
    pub node: String,
}

/// A pod that stays pending.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WaitingPod {
    /// A pending pod, or one that moves.
    pub pod: PodRef,
    /// Per NodePool, in the order tried, the first thing that excludes the pod. Empty when there is
    /// no NodePool.
    pub reasons: Vec<(String, Exclusion)>,
}

/// The first constraint that keeps a pod off a NodePool, and how far off it was.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Exclusion {
    /// The pool is skipped, for this reason.
    PoolNotReady(String),
    /// A taint that the pod does not tolerate.
    Taint {
        /// `key` of the taint.
        key: String,
        /// `value` of the taint.
        value: Option<String>,
        /// `effect` of the taint: `NoSchedule` or `NoExecute`, or `PreferNoSchedule` as a
        /// preference.
        effect: String,
    },
    /// A requirement of the pod that the pool's requirements cannot meet.
    Requirement {
        /// Label key.
        key: String,
        /// What the pod asks for.
        pod: String,
        /// What the pool offers.
        pool: String,
    },
    /// No instance type of the pool meets the pool's and the pod's requirements together.
    NoInstanceType {
        /// The type that misses the fewest of them.
        closest: Option<String>,
        /// The labels of which that type has no value that is asked for. Sorted.
        differs: Vec<String>,
    },
    /// Instance types match, but none is large enough. Amounts are in the units of [`Resources`];
    /// `attachable-volumes-csi-DRIVER` counts volumes.
    Resources {
        /// The resource with the largest shortage.
        resource: String,
        /// The requested amount.
        requested: i64,
        /// The largest amount that a matching type has left next to its daemons; if each resource
        /// alone suffices on some type, the amount of the closest type.
        largest: i64,
        /// The type with the smallest shortage.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        closest: Option<String>,
        /// Shortages of that type, by resource.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        missing: BTreeMap<String, i64>,
    },
    /// Types match, but none of them has an available offering that matches.
    NoOffering {
        /// The first of the matching types.
        closest: Option<String>,
        /// Matching offerings of this type that are not available, as `spot/zone`; the first six.
        sold_out: Vec<String>,
    },
    /// The pod can only use reservations, and other launches of this plan hold all of their
    /// remaining capacity. The next plan sees which of it they have used.
    Reserved {
        /// Ids of the reservations.
        reservations: Vec<String>,
    },
    /// The pool's limit for a resource leaves no room.
    Limit {
        /// Resource name, or `nodes`.
        resource: String,
        /// `spec.limits` of the NodePool, in the units of [`Resources`].
        limit: i64,
        /// The amount in use, launches of this plan included.
        used: i64,
    },
    /// Fewer distinct values than `minValues` asks for.
    MinValues {
        /// Label key.
        key: String,
        /// `minValues`.
        required: u32,
        /// Distinct values left.
        found: u32,
    },
    /// A topology rule (spread, pod affinity or anti-affinity) leaves no domain.
    Topology {
        /// Topology key.
        key: String,
        /// Which rule, in Kubernetes' words.
        rule: String,
    },
    /// No machine has the devices that a claim requests together with the devices for its other
    /// requests and the pod's other claims.
    Devices {
        /// `metadata.name` of the ResourceClaim, in the pod's namespace.
        claim: String,
        /// The request, as `request` or `request/subrequest`.
        request: String,
        /// `deviceClassName` of the request.
        class: String,
        /// The requested number; 0 for all that match.
        requested: u32,
        /// The largest number of them on one machine.
        found: u32,
        /// The instance type that comes closest.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        closest: Option<String>,
        /// The attribute of a constraint of the claim that refused further devices there.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        constraint: Option<String>,
    },
    /// A claim is allocated, or planned to be, where no machine of the pool can reach its devices.
    ClaimElsewhere {
        /// `metadata.name` of the ResourceClaim, in the pod's namespace.
        claim: String,
    },
    /// The pod's own specification can't be planned for (reason in Karpenter's words), e.g. a
    /// restricted label.
    Pod(String),
}

/// A NodePool that was skipped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SkippedPool {
    /// `metadata.name` of the NodePool.
    pub name: String,
    /// [`crate::snapshot::NodePool::not_ready`], or why its template can never launch a node.
    pub reason: String,
}
