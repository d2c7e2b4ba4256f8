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
    /// The first reason that was found.
    pub reason: StayReason,
}

/// Why a node is not disrupted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum StayReason {
    /// Not managed by a NodePool that exists.
    NotManaged,
    /// Not initialized yet.
    NotInitialized,
    /// Being deleted already.
    Deleting,
    /// Pods are expected on it.
    Nominated,
    /// The API server refused to delete its NodeClaim, with this message; the deletion is retried
    /// later.
    DeletionRefused(String),
    /// `karpenter.sh/do-not-disrupt` on the node or its NodeClaim.
    DoNotDisrupt,
    /// A pod with `karpenter.sh/do-not-disrupt`.
    PodDoNotDisrupt(PodRef),
    /// A pod that its PodDisruptionBudget protects.
    Pdb {
        /// The first pod that its PodDisruptionBudget protects.
        pod: PodRef,
        /// `metadata.name` of the PodDisruptionBudget.
        budget: String,
    },
    /// Nodes that are being disrupted, or are disrupted by this plan, use up the evictions that the
    /// PodDisruptionBudget of its pods allows.
    PdbUsedUp {
        /// One of the pods.
        pod: PodRef,
        /// `metadata.name` of the PodDisruptionBudget.
        budget: String,
    },
    /// A label is missing without which the node can't be priced (instance type, zone, capacity
    /// type).
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
    /// It could be disrupted, but not in this plan: another command moves pods that share a
    /// topology rule with this node's pods, or the node could replace a machine that is launched
    /// for waiting pods.
    Later,
    /// It changed since the command was planned: it was deleted or replaced, or has a new pod that
    /// would have to move, too.
    Changed(String),
    /// The savings do not outweigh the evictions ([`crate::Policy::eviction_price`]), or it is one
    /// of few removable nodes whose pods would use up the free room ([`crate::Policy::few_nodes`]).
    SavesTooLittle,
    /// The savings do not outweigh the disruption, by the consolidation policy Balanced: the best
    /// score that was found.
    ScoresTooLow(Score),
    /// A pod would have to wait for a machine that is still starting.
    WaitsForMachine(PodRef),
    /// A static NodePool is at its limit, or none of its offerings can be launched: no replacement
    /// is possible.
    NoStaticReplacement,
    /// The capacity reservations of a static NodePool are full, and the node is in none of them: no
    /// replacement is possible.
    StaticReservationsFull,
    /// It could only be terminated first, but the static NodePool is not ready and would launch no
    /// replacement.
    StaticNotReady,
    /// It is being rebooted.
    Rebooting,
    /// It is unhealthy, and `karpenter.sh/do-not-repair` on the Node forbids the repair.
    DoNotRepair,
    /// It is unhealthy, and has no NodePool to construct a replacement from.
    RepairNeedsNodePool,
    /// It is unhealthy, but the pod must not be evicted, and neither the policy nor the NodeClaim
    /// limits the drain.
    RepairNeedsGracePeriod(PodRef),
    /// It is unhealthy, as are so many Nodes of its pool that the nodes are probably not the cause.
    TooManyUnhealthy {
        /// `metadata.name` of the NodePool.
        node_pool: String,
        /// The number of its unhealthy Nodes.
        unhealthy: u32,
        /// The number of all of its Nodes.
        nodes: u32,
    },
}
