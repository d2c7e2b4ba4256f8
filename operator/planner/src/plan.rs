//! The planner's output: what to do, and for everything that was not done, why.
//!
//! A plan says everything that the actuator needs; the actuator makes no choices. Lists are in a fixed order (given with each field), so that the same
//! snapshot gives the same bytes.

mod device;
mod price;
mod score;
mod shared;
mod stay;

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Taint;
use serde::{Deserialize, Serialize};

use crate::policy::Resume;
use crate::resources::{MicroUsd, Resources};
use crate::snapshot::{
    CapacityType, DisruptionReason, NodeClassRef, Pod, RepairAction, Requirement,
};

pub use device::{ChosenDevice, ClaimDevices, PlacedDevices};
pub use price::PriceRange;
pub use score::Score;
pub use shared::Shared;
pub use stay::{Stay, StayingNode};

/// The version of the format.
pub const PLAN_VERSION: u32 = 1;

/// What to do.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Plan {
    /// [`PLAN_VERSION`].
    pub version: u32,
    /// NodeClaims to create for pending pods. In the order of planning.
    pub launches: Vec<Launch>,
    /// Pending pods that fit on machines that exist or are on their way. Sorted by pod.
    pub nominations: Vec<Nomination>,
    /// Virtual pods of CapacityBuffers that fit on machines that exist or are on their way. Sorted by pod.
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
    /// Why the rest waits or stays.
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

/// A NodeClaim to create. A plan has thousands of them that say mostly the same, so they share what they can.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Launch {
    /// The NodePool.
    pub node_pool: String,
    /// Its uid, for the owner reference.
    pub node_pool_uid: String,
    /// Labels of the NodeClaim, with a concrete value for each custom requirement of the pool. Without those that only the simulation uses.
    pub labels: Shared<BTreeMap<String, String>>,
    /// Annotations of the NodeClaim: the template's, the pool's hash and its version, `nodeclaim-min-values-relaxed`.
    pub annotations: Shared<BTreeMap<String, String>>,
    /// `spec.requirements`, with the instance types and the capacity types that are left; sorted by key.
    pub requirements: Shared<Vec<Requirement>>,
    /// Instance types that hold the pods, cheapest first, at most [`crate::Policy::max_instance_types`].
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
    /// The virtual pods of CapacityBuffers that it is for: counted in `requests`, and nothing is announced for them. Sorted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub buffer_pods: Vec<PodRef>,
    /// Devices for the claims of its pods, by instance types.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<PlacedDevices>,
    /// Price per hour of the cheapest offering.
    pub price: MicroUsd,
    /// Why this and not something else.
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
    /// The pod.
    pub pod: PodRef,
    /// [`crate::snapshot::Node::key`] of the machine.
    pub node: String,
}

/// Nodes to disrupt together.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Command {
    /// Why.
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
    /// The candidates go before anything comes in their place, because only what they leave makes room for it. Then there are no replacements.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub terminate_first: Option<TerminateFirst>,
    /// For [`Method::Repair`] what is to be done, and why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repair: Option<Repair>,
}

impl Command {
    /// Whether its node is to be rebooted, and so neither replaced nor deleted.
    pub fn is_reboot(&self) -> bool {
        self.repair.as_ref().is_some_and(|repair| repair.action == RepairAction::RebootNode)
    }
}

/// Why a node goes before there is another one in its place (feature gates TerminateFirstDrift and TerminateFirstRepair).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TerminateFirst {
    /// What is in short supply.
    pub reason: Shortage,
    /// What provisioning is expected to launch once the node has gone, with the pods that then have no place. Static pools launch what they always do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub launch: Option<Launch>,
}

/// What a replacement lacks as long as the node is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Shortage {
    /// Room in the capacity reservation that the node is in, and there is nothing else to buy.
    NoReservedCapacity,
    /// Room under the limit `nodes` of its static NodePool.
    StaticAtLimit,
}

impl Shortage {
    /// As metrics name it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NoReservedCapacity => "no-reserved-capacity",
            Self::StaticAtLimit => "static-at-limit",
        }
    }
}

/// What is done about a sick node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Repair {
    /// Type of the condition that drives it.
    pub condition: String,
    /// Its status.
    pub status: String,
    /// Its reason; empty when it has none.
    pub reason: String,
    /// [`crate::snapshot::RepairPolicy::reason`] of the policy that applies; empty for the one that applies where no other does.
    pub policy: String,
    /// What is to be done. With [`RepairAction::RebootNode`] the node stays: the command has no replacements, and its pods get no other places.
    pub action: RepairAction,
    /// It would be a reboot, had it not been rebooted twice within a day.
    pub escalated: bool,
    /// Since when the condition is tolerated no longer.
    pub eligible_at: Timestamp,
    /// How long draining may take from the deletion, or the beginning of the reboot, on; 0 does not wait for pods. `None` sets nothing: the NodeClaim's own
    /// period holds for a deletion, and there is none for a reboot.
    pub drain_bound: Option<SignedDuration>,
}

/// One node of a [`Command`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Candidate {
    /// [`crate::snapshot::Node::key`].
    pub node: String,
    /// The NodeClaim to delete.
    pub claim: String,
    /// Its NodePool.
    pub node_pool: String,
    /// Pods that have to move. Sorted. A later snapshot with a pod more than these makes the command void.
    pub pods: Vec<PodRef>,
    /// Price per hour, when known.
    pub price: Option<MicroUsd>,
}

/// A machine that a static NodePool has too many. Neither budgets nor PodDisruptionBudgets are asked; draining respects the latter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Removal {
    /// [`crate::snapshot::Node::key`].
    pub node: String,
    /// The NodeClaim to delete.
    pub claim: String,
    /// Its NodePool.
    pub node_pool: String,
}

/// How a command was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Method {
    /// A node that is sick.
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

/// Why what did not happen did not.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// Pods that stay pending. Sorted by pod.
    pub pods: Vec<WaitingPod>,
    /// Nodes that stay, among those that a disruption pass looked at. Sorted by key.
    pub nodes: Vec<StayingNode>,
    /// NodePools that took no part. Sorted by name.
    pub node_pools: Vec<SkippedPool>,
    /// What each of [`Plan::launches`] may come to cost, in their order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub prices: Vec<PriceRange>,
    /// How many waiting pods may run in one zone only, by zone; [`ANY_ZONE`] for those that may in several, [`NO_ZONE`] for those that may in none. What they and their
    /// volumes ask for counts, and what required topology rules leave them before anything is planned. Only of provisioning.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub zones: BTreeMap<String, u32>,
    /// Whether the pass was cut short by its cancel hook: what is in the plan is valid, the rest was not looked at.
    pub cancelled: bool,
    /// For [`crate::Policy::resume`] of the next disruption pass, when this one was cut short before every node had its turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resume: Option<Resume>,
}

/// In [`Report::zones`]: pods that may run in several zones.
pub const ANY_ZONE: &str = "flexible";

/// In [`Report::zones`]: pods that may run in no zone.
pub const NO_ZONE: &str = "none";

/// A pod that stays pending.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WaitingPod {
    /// The pod.
    pub pod: PodRef,
    /// Per NodePool, in the order tried, the first thing that excludes the pod. Empty when there is no NodePool.
    pub reasons: Vec<(String, Exclusion)>,
}

/// The first constraint that keeps a pod off a NodePool, and how far off it was.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Exclusion {
    /// The pool does not take part.
    PoolNotReady(String),
    /// A taint that the pod does not tolerate.
    Taint {
        /// Taint's key.
        key: String,
        /// Taint's value.
        value: Option<String>,
        /// Taint's effect.
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
    /// Instance types match, but none is large enough. Amounts are in the units of [`Resources`]; `attachable-volumes-csi-DRIVER` counts volumes.
    Resources {
        /// The resource that is shortest.
        resource: String,
        /// How much of it is asked for.
        requested: i64,
        /// The most that a matching type has left next to its daemons; where each resource alone could be had, what the closest type has.
        largest: i64,
        /// The type that comes closest.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        closest: Option<String>,
        /// What that type has too little of, and by how much.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        missing: BTreeMap<String, i64>,
    },
    /// Types match, but none of them has an available offering that matches.
    NoOffering {
        /// The first of these types.
        closest: Option<String>,
        /// Offerings that would match, as `spot/zone`, that this type does not have now; the first six.
        sold_out: Vec<String>,
    },
    /// Nothing but reservations would do, and other launches of this plan take what is left of them. The next plan knows what they have really taken.
    Reserved {
        /// Their ids.
        reservations: Vec<String>,
    },
    /// The pool's limit for a resource leaves no room.
    Limit {
        /// Resource name, or `nodes`.
        resource: String,
        /// The limit.
        limit: i64,
        /// In use.
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
    /// Devices that a claim asks for can't be had together with what else it and the pod's other claims ask for.
    Devices {
        /// The claim.
        claim: String,
        /// The request, as `request` or `request/subrequest`.
        request: String,
        /// Its DeviceClass.
        class: String,
        /// How many it asks for; 0 is all that match.
        requested: u32,
        /// How many of them are found where the most are.
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
        /// The claim.
        claim: String,
    },
    /// The pod's own specification can't be planned for (reason in Karpenter's words), e.g. a restricted label.
    Pod(String),
}

/// A NodePool that took no part.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SkippedPool {
    /// Its name.
    pub name: String,
    /// Why.
    pub reason: String,
}
