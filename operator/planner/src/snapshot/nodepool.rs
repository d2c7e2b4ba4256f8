//! NodePools with their effective values.

use std::collections::BTreeMap;

use jiff::SignedDuration;
use k8s_openapi::api::core::v1::Taint;
use serde::{Deserialize, Serialize};

use super::{CatalogId, Requirement};

/// A NodePool with its effective values.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodePool {
    /// `metadata.name`.
    pub name: String,
    /// `metadata.uid`.
    pub uid: String,
    /// Why nothing may be launched from this pool now, if so: not Ready, being deleted, its
    /// NodeClass not ready.
    pub not_ready: Option<String>,
    /// `spec.weight`, 0 when unset. Heavier pools come first; of equally heavy ones that in which a
    /// pod costs least, then the lexicographically later name.
    pub weight: i32,
    /// `spec.replicas`: set on static pools, which take part neither in provisioning nor in
    /// consolidation.
    pub replicas: Option<i64>,
    /// What can be launched with the pool's NodeClass. `None` while it is unknown.
    pub catalog: Option<CatalogId>,
    /// Values that every machine of the pool carries.
    pub template: Template,
    /// `spec.limits` in the units of [`crate::resources::Resources`], `nodes` counts
    /// machines. An absent key is unlimited.
    pub limits: BTreeMap<String, i64>,
    /// `spec.disruption`.
    pub disruption: DisruptionPolicy,
}

/// The values that a NodePool gives to each NodeClaim.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Template {
    /// `spec.template.metadata.labels`, plus the pool's and the NodeClass's own label.
    pub labels: BTreeMap<String, String>,
    /// `spec.template.metadata.annotations`, plus the pool's hash and its version.
    pub annotations: BTreeMap<String, String>,
    /// `spec.template.spec.requirements`.
    pub requirements: Vec<Requirement>,
    /// `spec.template.spec.taints`.
    pub taints: Vec<Taint>,
    /// `spec.template.spec.startupTaints`: never counted in scheduling.
    pub startup_taints: Vec<Taint>,
    /// `spec.template.spec.nodeClassRef`.
    pub node_class: NodeClassRef,
    /// `spec.template.spec.expireAfter` as written (`720h`, `Never`).
    pub expire_after: Option<String>,
    /// `spec.template.spec.terminationGracePeriod` as written.
    pub termination_grace_period: Option<String>,
}

/// Reference to a NodeClass.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct NodeClassRef {
    /// API group, e.g. `karpenter.k8s.aws`.
    pub group: String,
    /// Kind, e.g. `EC2NodeClass`.
    pub kind: String,
    /// `metadata.name`; NodeClasses are cluster-scoped.
    pub name: String,
}

/// `spec.disruption` of a NodePool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DisruptionPolicy {
    /// `consolidationPolicy`.
    pub consolidation_policy: ConsolidationPolicy,
    /// `consolidateAfter`; `None` is `Never`.
    pub consolidate_after: Option<SignedDuration>,
    /// `budgets`, each already reduced to what is in force at the snapshot's moment: budgets whose
    /// schedule is not active are left out.
    pub budgets: Vec<Budget>,
}

/// `consolidationPolicy` of a NodePool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ConsolidationPolicy {
    /// Only nodes without pods.
    WhenEmpty,
    /// Also nodes that can be replaced by cheaper ones or whose pods fit elsewhere.
    WhenEmptyOrUnderutilized,
    /// The same, if the savings outweigh the disruption.
    Balanced,
}

/// A disruption budget that is in force.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Budget {
    /// How many nodes of the pool may be disrupted at once.
    pub nodes: BudgetNodes,
    /// The reasons that it covers; empty covers all.
    pub reasons: Vec<DisruptionReason>,
}

/// The amount of a [`Budget`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum BudgetNodes {
    /// A number of nodes.
    Count(u32),
    /// Percent of the pool's nodes, rounded up.
    Percent(u32),
}

/// Why a node is disrupted voluntarily.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum DisruptionReason {
    /// Nothing but daemons runs on it.
    Empty,
    /// It differs from the current NodePool or NodeClass.
    Drifted,
    /// Its pods can run for less.
    Underutilized,
    /// A repair policy applies to one of its conditions.
    Unhealthy,
}
