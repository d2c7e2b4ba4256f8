//! What both answers name: pods, and why a NodePool is nothing for one.

use serde::Serialize;
use tenon_planner::plan::{Exclusion, PodRef};
use tenon_state::explain;

/// A pod, by name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct PodName {
    /// `metadata.namespace`.
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
}

impl From<&PodRef> for PodName {
    fn from(pod: &PodRef) -> Self {
        Self { namespace: pod.namespace.to_string(), name: pod.name.to_string() }
    }
}

/// The first thing that keeps a pod off a NodePool.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WhyNot {
    /// The NodePool; none if the pod itself is what keeps it pending.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_pool: Option<String>,
    /// In words.
    pub message: String,
    /// As data.
    pub reason: Exclusion,
}

/// Why a NodePool is nothing for a pod.
pub(super) fn why_not((pool, reason): &(String, Exclusion)) -> WhyNot {
    let node_pool = Some(pool.clone()).filter(|pool| !pool.is_empty());
    WhyNot { node_pool, message: explain::exclusion(reason), reason: reason.clone() }
}
