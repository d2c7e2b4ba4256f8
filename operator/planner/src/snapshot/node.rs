//! Machines that exist or are on their way.

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
    /// How far it has come.
    pub phase: NodePhase,
    /// Labels that scheduling sees: the NodeClaim's until registered, then the Node's.
    pub labels: BTreeMap<String, String>,
    /// Taints that scheduling has to respect: known ephemeral and startup taints of a machine that is still initialising are left out.
    pub taints: Vec<Taint>,
    /// What it has: of the Node, or of the NodeClaim until the Node says so. Zero in a claim that is not launched (its requests stand in `allocatable`).
    pub capacity: Resources,
    /// What pods may use, before any pod is subtracted.
    pub allocatable: Resources,
    /// Price per hour of the offering that it runs on, when known.
    pub price: Option<MicroUsd>,
    /// Being deleted, or chosen for deletion by an earlier plan: takes no pods; its pods have to go elsewhere.
    pub deleting: bool,
    /// Pods are expected on it until then, so it is not disrupted.
    pub nominated_until: Option<Timestamp>,
    /// `karpenter.sh/do-not-disrupt: "true"` on the NodeClaim until it is registered, on the Node from then on.
    pub do_not_disrupt: bool,
    /// The API server has refused to delete its NodeClaim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refusal: Option<Refusal>,
    /// Of the NodeClaim, else of the Node.
    pub created_at: Timestamp,
    /// The Node's condition Ready is True. Machines that are not count against disruption budgets.
    #[serde(default = "yes", skip_serializing_if = "is_yes")]
    pub ready: bool,
    /// `spec.requirements` of the NodeClaim while the phase is [`NodePhase::Pending`], empty afterwards: until the provider has chosen, these and not
    /// the labels say what the machine will be.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub requirements: Vec<Requirement>,
    /// How many volumes its CSINode says can be attached, by CSI driver; `None` is a driver that names no limit. What the instance type says
    /// ([`super::InstanceType::volume_limits`]) counts for drivers that are absent.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub volume_limits: BTreeMap<String, Option<u32>>,
    /// What repair goes by.
    #[serde(default, skip_serializing_if = "Health::is_unknown")]
    pub health: Health,
}

/// Why the API server did not let a NodeClaim be deleted, such as an admission webhook or a missing permission.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Refusal {
    /// The node is left alone until then.
    pub until: Timestamp,
    /// What the API server said.
    pub message: String,
}

fn yes() -> bool {
    true
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde calls")]
fn is_yes(value: &bool) -> bool {
    *value
}

/// How far a machine has come.
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

/// What the NodeClaim of a machine says.
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
    /// When its `expireAfter` ends; `None` is never.
    pub expires_at: Option<Timestamp>,
    /// `spec.expireAfter`; `None` is never.
    pub expire_after: Option<SignedDuration>,
    /// Whether `spec.terminationGracePeriod` is set: then pods that block eviction do not block drift.
    pub has_termination_grace_period: bool,
    /// `spec.terminationGracePeriod`; repair drains for no longer than this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub termination_grace_period: Option<SignedDuration>,
}
