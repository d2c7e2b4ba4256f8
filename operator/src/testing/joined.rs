//! A machine that has just joined, for tests of what makes its Node take pods.

use serde_json::{Value, json};
use tenon_crds::labels::LabelRules;

use super::{ApiServer, KINDS};
use crate::state::change::{Change, Object};
use crate::state::cluster::Cluster;

/// Where the NodeClaim is.
pub(crate) const CLAIM: &str = "/apis/karpenter.sh/v1/nodeclaims/a";

/// Where its Node is.
pub(crate) const NODE: &str = "/api/v1/nodes/n";

/// A server with the NodeClaim `a`, launched with these labels besides its NodePool and NodeClass,
/// and its Node `n`, which has joined and is ready or not; and a cluster that has seen both.
pub(crate) fn joined(labels: &[(&str, &str)], ready: bool) -> (ApiServer, Cluster) {
    let at = "1970-01-01T00:00:00Z";
    let mut claim = json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
        "metadata": {"name": "a", "uid": "1", "resourceVersion": "1", "creationTimestamp": at,
            "labels": {"karpenter.sh/nodepool": "default", "karpenter.kwok.sh/kwoknodeclass": "small"},
            "finalizers": ["karpenter.sh/termination"]},
        "spec": {"nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "small"}, "requirements": []},
        "status": {"providerID": "kwok://a", "conditions": [
            {"type": "Launched", "status": "True", "reason": "Launched", "message": "", "lastTransitionTime": at}]},
    });
    for &(key, value) in labels {
        claim["metadata"]["labels"][key] = json!(value);
    }
    let ready = if ready { "True" } else { "False" };
    let node = json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": "n", "uid": "2", "resourceVersion": "1", "creationTimestamp": at, "labels": {}},
        "spec": {"providerID": "kwok://a", "taints": [{"key": "karpenter.sh/unregistered", "effect": "NoExecute"}]},
        "status": {"conditions": [{"type": "Ready", "status": ready}]},
    });
    let mut cluster = Cluster::new(KINDS, LabelRules::core());
    let seen = |object: &Value| serde_json::from_value(object.clone()).unwrap();
    cluster.apply(Change::Applied(Object::NodeClaim(Box::new(seen(&claim)))));
    let seen = serde_json::from_value(node.clone()).unwrap();
    cluster.apply(Change::Applied(Object::Node(Box::new(seen))));
    let server = ApiServer::default();
    server.put_at(CLAIM, claim);
    server.put_at(NODE, node);
    (server, cluster)
}
