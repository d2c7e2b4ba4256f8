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
    /// The NodePool.
    pub node_pool: String,
    /// In words.
    pub message: String,
    /// As data.
    pub reason: Exclusion,
}

/// Why a NodePool is nothing for a pod.
pub(super) fn why_not((pool, reason): &(String, Exclusion)) -> WhyNot {
    WhyNot { node_pool: pool.clone(), message: explain::exclusion(reason), reason: reason.clone() }
}
