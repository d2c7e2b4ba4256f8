//! Why nodes stay.

use serde::{Deserialize, Serialize};

use super::{PodRef, Score};
use crate::snapshot::DisruptionReason;

/// A node that stays.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StayingNode {
    /// [`crate::snapshot::Node::key`].
    pub node: String,
    /// Why.
    pub reason: Stay,
}

/// Why a node is not disrupted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Stay {
    /// Not managed by a NodePool that exists.
    NotManaged,
    /// Not initialised yet.
    NotInitialized,
    /// Being deleted already.
    Deleting,
    /// Pods are expected on it.
    Nominated,
    /// The API server refused to delete its NodeClaim, and said this; it is asked again later.
    DeletionRefused(String),
    /// `karpenter.sh/do-not-disrupt` on the node or its NodeClaim.
    DoNotDisrupt,
    /// A pod with `karpenter.sh/do-not-disrupt`.
    PodDoNotDisrupt(PodRef),
    /// A pod that its PodDisruptionBudget protects.
    Pdb {
        /// The pod.
        pod: PodRef,
        /// The PDB.
        budget: String,
    },
    /// The evictions that the PodDisruptionBudget of its pods allows are used up by nodes that are going already, or go by this plan.
    PdbUsedUp {
        /// One of the pods.
        pod: PodRef,
        /// The PDB.
        budget: String,
    },
    /// A label is missing without which the node can't be priced (instance type, zone, capacity type).
    MissingLabel(String),
    /// `consolidateAfter` has not passed, or is `Never`, or consolidation is off for its kind.
    NotConsolidatable,
    /// The pool's budget is used up.
    Budget(DisruptionReason),
    /// Its pods would not all find a place: the first one that would not.
    PodsDontFit(PodRef),
    /// The pods would need more than one new machine.
    NeedsSeveralReplacements,
    /// No cheaper machine holds the pods.
    NothingCheaper,
    /// Replacing spot by spot is not enabled, or too few cheaper types are left.
    SpotToSpot,
    /// It could go, but what another command of this plan does comes first: it moves pods that share a topology rule with this node's; or it is as
    /// good as a machine that is launched for pods which wait.
    Later,
    /// It changed since the command was planned: gone, replaced, or a pod came that has to move too.
    Changed(String),
    /// What it would save is too little for the pods that it would evict ([`crate::Policy::eviction_price`]), or it would be one of few nodes that take
    /// what room there is ([`crate::Policy::few_nodes`]).
    SavesTooLittle,
    /// What it would save is too little for what it would disrupt, by the NodePool's consolidation policy Balanced: the score of the best that could be done.
    ScoresTooLow(Score),
    /// A pod would have to wait for a machine that is still starting.
    WaitsForMachine(PodRef),
    /// A static NodePool has as many machines as its limit allows, or none can be launched: nothing could come in the node's place.
    NoStaticReplacement,
    /// The capacity reservations of a static NodePool are full, and the node is in none of them: nothing could come in its place.
    StaticReservationsFull,
    /// It could only go first, and the static NodePool would launch nothing afterwards: it is not ready.
    StaticNotReady,
    /// It is being rebooted.
    Rebooting,
    /// It is sick, and `karpenter.sh/do-not-repair` on the Node forbids to do something about it.
    DoNotRepair,
    /// It is sick, but no NodePool says what to replace it with.
    RepairNeedsNodePool,
    /// It is sick, but the pod may not be evicted, and neither the policy nor the NodeClaim say when that ends.
    RepairNeedsGracePeriod(PodRef),
    /// It is sick, like so many Nodes of its pool that the nodes are not to blame.
    TooManyUnhealthy {
        /// The NodePool.
        node_pool: String,
        /// How many of its Nodes are sick.
        unhealthy: u32,
        /// How many it has.
        nodes: u32,
    },
}
