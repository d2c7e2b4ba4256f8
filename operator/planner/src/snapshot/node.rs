//! Machines that exist or are being launched.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Taint;
use serde::{Deserialize, Serialize};

use super::{Health, Requirement};
use crate::resources::{MicroUsd, Resources};

/// A machine: a Kubernetes Node, or a NodeClaim that has none yet.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Node {
    /// Sorts and identifies: the NodeClaim's name when there is one, else the Node's name.
    pub key: String,
    /// `metadata.name` of the Node; `None` until it has joined.
    pub name: Option<String>,
    /// The NodeClaim; `None` for machines that are not ours.
    pub claim: Option<ClaimState>,
    /// Progress of the launch; scheduling of a machine depends on it.
    pub phase: NodePhase,
    /// Labels that scheduling sees: the NodeClaim's until registered, then the Node's.
    pub labels: BTreeMap<String, String>,
    /// Taints that scheduling has to respect: without the known ephemeral and startup taints of a
    /// machine that is still initializing.
    pub taints: Vec<Taint>,
    /// `status.capacity` of the Node, or of the NodeClaim until the Node reports it. Zero for a
    /// NodeClaim that is not launched (`allocatable` has its requests).
    pub capacity: Resources,
    /// `status.allocatable`, before the requests of any pod are subtracted.
    pub allocatable: Resources,
    /// Price per hour of the offering that it runs on, when known.
    pub price: Option<MicroUsd>,
    /// Being deleted, or chosen for deletion by an earlier plan: it accepts no pods, and its pods
    /// have to move.
    pub deleting: bool,
    /// Pods are expected on it until then, so it is not disrupted.
    pub nominated_until: Option<Timestamp>,
    /// `karpenter.sh/do-not-disrupt: "true"` on the NodeClaim until it is registered, on the Node
    /// from then on.
    pub do_not_disrupt: bool,
    /// The API server has refused to delete its NodeClaim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refusal: Option<Refusal>,
    /// `metadata.creationTimestamp` of the NodeClaim or, without one, of the Node.
    pub created_at: Timestamp,
    /// The Node's condition Ready is True. Machines that are not count against disruption budgets.
    #[serde(default = "yes", skip_serializing_if = "is_yes")]
    pub ready: bool,
    /// `spec.requirements` of the NodeClaim while the phase is [`NodePhase::Pending`], empty
    /// afterwards: until the provider has chosen, these and not the labels say what the machine
    /// will be.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub requirements: Vec<Requirement>,
    /// Attachable volumes by CSI driver, from the CSINode; `None` for a driver without a limit. For
    /// absent drivers, [`super::InstanceType::volume_limits`] applies.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub volume_limits: BTreeMap<String, Option<u32>>,
    /// Conditions and reboots, for the repair policies.
    #[serde(default, skip_serializing_if = "Health::is_unknown")]
    pub health: Health,
}

/// The API server refused to delete a NodeClaim, because of an admission webhook or a missing
/// permission, for example.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Refusal {
    /// The node is no candidate for disruption until this time.
    pub until: Timestamp,
    /// The message of the API server.
    pub message: String,
}

fn yes() -> bool {
    true
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde calls")]
fn is_yes(value: &bool) -> bool {
    *value
}

/// Phases of a machine, in their order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum NodePhase {
    /// The NodeClaim exists; no instance is known.
    #[default]
    Pending,
    /// The instance exists, no Node yet.
    Launched,
    /// The Node has joined, is not ready for pods yet.
    Registered,
    /// Ready once; also every machine that is not ours.
    Initialized,
}

/// The NodeClaim of a machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClaimState {
    /// `metadata.name`.
    pub name: String,
    /// `metadata.uid`.
    pub uid: String,
    /// Label `karpenter.sh/nodepool`.
    pub node_pool: Option<String>,
    /// `status.providerID`.
    pub provider_id: Option<String>,
    /// Reason of the condition Drifted when True, e.g. `NodePoolDrifted`, and since when.
    pub drifted: Option<(String, Timestamp)>,
    /// Since when the condition Consolidatable is True.
    pub consolidatable: Option<Timestamp>,
    /// Creation plus `spec.expireAfter`; `None` is never.
    pub expires_at: Option<Timestamp>,
    /// `spec.expireAfter`; `None` is never.
    pub expire_after: Option<SignedDuration>,
    /// Whether `spec.terminationGracePeriod` is set: then pods that block eviction do not block
    /// drift.
    pub has_termination_grace_period: bool,
    /// `spec.terminationGracePeriod`; repair drains for no longer than this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub termination_grace_period: Option<SignedDuration>,
}
