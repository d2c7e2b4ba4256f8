//! `NodePool` (`karpenter.sh/v1`): what nodes of a kind look like, how many there may be, and when
//! they may be disrupted.

use std::collections::BTreeMap;

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::budget::Budget;
use crate::conditions::Condition;
use crate::duration::{Duration, NillableDuration};
use crate::quantity::ResourceList;
use crate::requirement::Requirement;
use crate::taint::Taint;
use crate::text_enum::text_enum;

/// Configuration of the nodes of the NodePool.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "karpenter.sh",
    version = "v1",
    kind = "NodePool",
    plural = "nodepools",
    category = "karpenter",
    status = "NodePoolStatus",
    derive = "PartialEq",
    doc = "NodePool describes the nodes that can be launched for pending pods, and when they can be disrupted."
)]
#[serde(rename_all = "camelCase")]
pub struct NodePoolSpec {
    /// Conditions and budgets for the disruption of nodes.
    #[serde(default)]
    pub disruption: Disruption,
    /// Limits on the total resources of all nodes of the NodePool. The resource `nodes` counts
    /// nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<ResourceList>,
    /// Number of nodes to keep, regardless of pods (static NodePool, alpha).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i64>,
    /// Template of the NodeClaims.
    pub template: NodeClaimTemplate,
    /// NodePools of greater weight are tried first; absent counts as 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight: Option<i32>,
}

/// The template of the NodeClaims that a pool makes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeClaimTemplate {
    /// Labels and annotations of the nodes.
    #[serde(default, skip_serializing_if = "TemplateMetadata::is_absent")]
    pub metadata: TemplateMetadata,
    /// Specification of the NodeClaims.
    pub spec: NodeClaimTemplateSpec,
}

// Absent and empty maps differ in the drift hash, and so they differ here.
/// Labels and annotations of the nodes of a pool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TemplateMetadata {
    /// Annotations of the nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub annotations: Option<BTreeMap<String, String>>,
    /// Labels of the nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub labels: Option<BTreeMap<String, String>>,
}

// Absent and empty lists differ in the drift hash, and so they differ here.
/// Specification of the NodeClaims of a pool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeClaimTemplateSpec {
    /// Age at which a node is replaced, or `Never`.
    #[serde(default = "default_expire_after")]
    pub expire_after: NillableDuration,
    /// The NodeClass that holds the settings of the cloud provider.
    pub node_class_ref: NodeClassReference,
    /// Requirements on the labels of the nodes.
    pub requirements: Vec<Requirement>,
    /// Taints that another component removes once the node is ready for pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub startup_taints: Option<Vec<Taint>>,
    /// Taints that stay on the nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub taints: Option<Vec<Taint>>,
    /// Limit on the drain of a node, after which its remaining pods are deleted. Absent sets no
    /// limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub termination_grace_period: Option<Duration>,
}

/// Names a NodeClass.
#[derive(
    Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
pub struct NodeClassReference {
    /// API group of the NodeClass, such as `karpenter.k8s.aws`.
    pub group: String,
    /// Kind of the NodeClass, such as `EC2NodeClass`.
    pub kind: String,
    /// Name of the NodeClass.
    pub name: String,
}

/// When nodes of a pool may be disrupted, and how many at once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Disruption {
    /// Limits on the number of nodes that may be disrupted at once; the strictest active one
    /// counts. An empty list sets no limit.
    #[serde(default = "Disruption::default_budgets")]
    pub budgets: Vec<Budget>,
    /// Time without added or removed pods after which a node is considered for consolidation, or
    /// `Never`.
    #[serde(default = "Disruption::default_consolidate_after")]
    pub consolidate_after: NillableDuration,
    /// Nodes that are considered for consolidation.
    #[serde(default)]
    pub consolidation_policy: ConsolidationPolicy,
}

text_enum! {
    /// Nodes that are considered for consolidation.
    #[derive(Default)]
    pub enum ConsolidationPolicy {
        /// Only nodes without pods that count.
        WhenEmpty = "WhenEmpty",
        /// Also nodes whose pods fit elsewhere or on a cheaper node.
        #[default]
        WhenEmptyOrUnderutilized = "WhenEmptyOrUnderutilized",
        /// As before, when the savings outweigh the disruption.
        Balanced = "Balanced",
    }
}

/// Observed state of the NodePool.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodePoolStatus {
    /// Conditions: `ValidationSucceeded` and `NodeClassReady` feed `Ready`;
    /// `NodeRegistrationHealthy` and `PlanningActive` stand for themselves.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// Generation of the NodeClass for which nodes registered last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_class_observed_generation: Option<i64>,
    /// Number of nodes of the NodePool.
    #[serde(default)]
    pub nodes: i64,
    /// Total resources of the nodes of the NodePool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<ResourceList>,
}

/// 30 days: old enough to be no bother, young enough that machines get patched.
pub(crate) fn default_expire_after() -> NillableDuration {
    NillableDuration::After("720h".parse().expect("a literal in Go's notation"))
}

impl TemplateMetadata {
    fn is_absent(&self) -> bool {
        self.annotations.is_none() && self.labels.is_none()
    }
}

impl Disruption {
    fn default_budgets() -> Vec<Budget> {
        vec![Budget::default()]
    }

    fn default_consolidate_after() -> NillableDuration {
        NillableDuration::After(Duration::zero())
    }
}

impl Default for Disruption {
    fn default() -> Self {
        Self {
            budgets: Self::default_budgets(),
            consolidate_after: Self::default_consolidate_after(),
            consolidation_policy: ConsolidationPolicy::default(),
        }
    }
}

impl Default for NodeClaimTemplateSpec {
    fn default() -> Self {
        Self {
            expire_after: default_expire_after(),
            node_class_ref: NodeClassReference::default(),
            requirements: Vec::new(),
            startup_taints: None,
            taints: None,
            termination_grace_period: None,
        }
    }
}

impl NodeClaimTemplate {
    /// Labels of the nodes, none if absent.
    pub fn labels(&self) -> impl Iterator<Item = (&str, &str)> {
        self.metadata.labels.iter().flatten().map(|(key, value)| (key.as_str(), value.as_str()))
    }

    /// Annotations of the nodes, none if absent.
    pub fn annotations(&self) -> impl Iterator<Item = (&str, &str)> {
        self.metadata
            .annotations
            .iter()
            .flatten()
            .map(|(key, value)| (key.as_str(), value.as_str()))
    }
}

impl NodeClaimTemplateSpec {
    /// Taints that stay, none if absent.
    pub fn taints(&self) -> &[Taint] {
        self.taints.as_deref().unwrap_or_default()
    }

    /// Taints that are removed after the start, none if absent.
    pub fn startup_taints(&self) -> &[Taint] {
        self.startup_taints.as_deref().unwrap_or_default()
    }
}

impl NodeClassReference {
    /// The label that names the NodeClass on its nodes: key and value.
    pub fn label(&self) -> (String, &str) {
        (self.label_key(), &self.name)
    }

    /// The key of the label that names the NodeClass on its nodes, such as
    /// `karpenter.k8s.aws/ec2nodeclass`.
    pub fn label_key(&self) -> String {
        format!("{}/{}", self.group, self.kind.to_lowercase())
    }
}

impl NodePool {
    /// Whether the pool keeps a fixed number of nodes.
    pub fn is_static(&self) -> bool {
        self.spec.replicas.is_some()
    }

    /// Weight, where absent counts as 0.
    pub fn weight(&self) -> i32 {
        self.spec.weight.unwrap_or(0)
    }
}

#[cfg(test)]
mod tests;
