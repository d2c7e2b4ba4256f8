//! Which nodes nobody would drain without Node Termination Handler.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Node;

/// Of nodes that Tenon, or Karpenter before it, launched.
const NODE_POOL: &str = "karpenter.sh/nodepool";
/// Of nodes of a managed node group: EKS drains them itself when they are interrupted.
const NODE_GROUP: &str = "eks.amazonaws.com/nodegroup";
/// Of Fargate's and of nodes of Auto Mode: nothing interrupts the first, and AWS drains the others.
const COMPUTE_TYPE: &str = "eks.amazonaws.com/compute-type";

/// Names of the nodes that only Node Termination Handler drains.
pub(super) fn unhandled(nodes: &[Node]) -> BTreeSet<String> {
    let drained = [NODE_POOL, NODE_GROUP, COMPUTE_TYPE];
    let is_drained = |node: &&Node| {
        let labels = node.metadata.labels.as_ref();
        labels.is_some_and(|labels| drained.iter().any(|label| labels.contains_key(*label)))
    };
    let unhandled = nodes.iter().filter(|node| !is_drained(node));
    unhandled.filter_map(|node| node.metadata.name.clone()).collect()
}
