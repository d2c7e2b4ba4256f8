//! Registration: the machine's Node has joined; it gets the NodeClaim's labels, annotations and taints, an owner and a finalizer, and loses the taint that
//! kept pods away until then.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Taint;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde_json::{Value, json};
use tenon_crds::conditions::nodeclaim::REGISTERED;
use tenon_crds::{ConditionStatus, NodeClaim, labels};

use super::super::{conditions, pool_of};
use crate::cloud_provider::CloudProvider;
use crate::events::{Event, Reason};
use crate::operator::Operator;
use crate::state::cluster::name;
use crate::watch::wire::Node;
use crate::write::WriteError;

/// What came out of registration.
#[derive(Default)]
pub(super) struct Registered {
    /// The NodeClaim's Node, if there is exactly one.
    pub node: Option<Node>,
    /// It was registered just now, which is to be written down and then told ([`Self::tell`]).
    new: bool,
    /// It joined without the taint that keeps pods away until it is registered.
    unguarded: bool,
}

/// Registers the Node of a NodeClaim that has a machine.
pub(super) async fn register<P: CloudProvider>(
    operator: &Operator<P>,
    claim: &mut NodeClaim,
    nodes: &[Arc<Node>],
) -> Result<Registered, WriteError> {
    let now = operator.now();
    if claim.provider_id().is_none() {
        return Ok(Registered::default());
    }
    // A NodeClaim that was just launched had no Nodes when they were looked up.
    let late: Vec<Arc<Node>>;
    let nodes = if nodes.is_empty() {
        let state = operator.state.read();
        late = claim.provider_id().into_iter().flat_map(|id| state.nodes_of(id)).cloned().collect();
        &late
    } else {
        nodes
    };
    let known = conditions(claim, now).get(REGISTERED).cloned();
    let status = known.as_ref().map_or(ConditionStatus::Unknown, |known| known.status);
    match (status, nodes) {
        (ConditionStatus::Unknown, []) => {
            let message = "Node not registered with cluster";
            conditions(claim, now).set_unknown(REGISTERED, "NodeNotFound", message);
            Ok(Registered::default())
        }
        (ConditionStatus::Unknown, [node]) => {
            let unguarded = !has_joined_properly(node);
            let hold = operator.nominations.hold(&operator.state, claim);
            let node = match sync(claim, node, hold) {
                Some(body) => operator.write.patch_node(node, body).await?,
                None => (**node).clone(),
            };
            claim.status.get_or_insert_default().node_name = Some(node.name().to_owned());
            conditions(claim, now).set_true(REGISTERED);
            Ok(Registered { node: Some(node), new: true, unguarded })
        }
        (ConditionStatus::Unknown, [_, _, ..]) => {
            let message = "Invariant violated, matched multiple nodes";
            conditions(claim, now).set_false(REGISTERED, "MultipleNodesFound", message);
            Ok(Registered::default())
        }
        (ConditionStatus::True, nodes) => {
            confirm(claim, known.as_ref(), now);
            let node = match nodes {
                [node] => match class_label(claim, node) {
                    Some(body) => Some(operator.write.patch_node(node, body).await?),
                    None => Some((**node).clone()),
                },
                _ => None,
            };
            Ok(Registered { node, ..Registered::default() })
        }
        (ConditionStatus::False, _) => Ok(Registered::default()),
    }
}

impl Registered {
    /// Logs, counts and publishes that a Node was registered, once its NodeClaim's status says so.
    pub(super) fn tell<P: CloudProvider>(&self, operator: &Operator<P>, claim: &NodeClaim) {
        let Some(node) = self.node.as_ref().filter(|_| self.new) else { return };
        if self.unguarded {
            let message = format!(
                "Missing {} taint which prevents registration related race conditions on Tenon-managed nodes",
                labels::UNREGISTERED_TAINT
            );
            tracing::error!(nodeclaim = name(&claim.metadata), node = node.name(), "{message}");
            let event = Event::warning(claim, Reason::UnregisteredTaintMissing, message);
            operator.context.recorder.publish(event);
        }
        let zone = node.label(labels::ZONE).unwrap_or_default();
        operator.context.metrics.nodes_created.inc([pool_of(claim), zone]);
        tracing::info!(
            nodeclaim = name(&claim.metadata),
            node = node.name(),
            "registered nodeclaim"
        );
    }
}

/// Sets the condition again, so that it counts for this generation.
fn confirm(claim: &mut NodeClaim, known: Option<&tenon_crds::Condition>, now: jiff::Timestamp) {
    if let Some(known) = known {
        conditions(claim, now).set_true_because(REGISTERED, &known.reason, &known.message);
    }
}

/// The patch that names the NodeClass on a Node that registered with a version of Karpenter that did not.
fn class_label(claim: &NodeClaim, node: &Node) -> Option<Value> {
    let (key, value) = claim.spec.node_class_ref.label();
    let missing = node.label(&key).is_none() && !node.is_deleting();
    missing.then(|| json!({"metadata": {"labels": {key: value}}}))
}

/// Whether nothing can have been scheduled on the Node before its taints were complete.
fn has_joined_properly(node: &Node) -> bool {
    node.label(labels::REGISTERED).is_some()
        || node.has_taint(labels::UNREGISTERED_TAINT, "NoExecute")
}

/// The patch that makes a Node the NodeClaim's; `None` when it is already. `hold` keeps pods away until they are nominated.
fn sync(claim: &NodeClaim, node: &Node, hold: bool) -> Option<Value> {
    if node.label(labels::REGISTERED) == Some("true") {
        return None;
    }
    let mut finalizers = node.metadata.finalizers.clone().unwrap_or_default();
    if !finalizers.iter().any(|finalizer| finalizer == labels::TERMINATION_FINALIZER) {
        finalizers.push(labels::TERMINATION_FINALIZER.to_owned());
    }
    let mut owners = node.metadata.owner_references.clone().unwrap_or_default();
    if !owners.iter().any(|owner| Some(&owner.uid) == claim.metadata.uid.as_ref()) {
        owners.push(OwnerReference {
            api_version: "karpenter.sh/v1".to_owned(),
            kind: "NodeClaim".to_owned(),
            name: name(&claim.metadata),
            uid: claim.metadata.uid.clone().unwrap_or_default(),
            block_owner_deletion: Some(true),
            controller: None,
        });
    }
    let mut labels = claim.metadata.labels.clone().unwrap_or_default();
    labels.insert(labels::REGISTERED.to_owned(), "true".to_owned());
    let mut taints = synced_taints(claim, node);
    if hold && !node.has_taint(labels::NOT_NOMINATED_TAINT, "NoSchedule") {
        taints.push(Taint {
            key: labels::NOT_NOMINATED_TAINT.to_owned(),
            effect: "NoSchedule".to_owned(),
            ..Taint::default()
        });
    }
    Some(json!({
        "metadata": {
            "finalizers": finalizers,
            "ownerReferences": owners,
            "labels": labels,
            "annotations": claim.metadata.annotations.clone().unwrap_or_default(),
        },
        "spec": {"taints": taints},
    }))
}

/// The Node's taints and those of the NodeClaim that it lacks, without the one that says that it is not registered.
fn synced_taints(claim: &NodeClaim, node: &Node) -> Vec<Taint> {
    let mut taints = node.spec.taints.clone();
    if node.label(labels::DO_NOT_SYNC_TAINTS) != Some("true") {
        for taint in claim.spec.taints.iter().chain(&claim.spec.startup_taints) {
            let taint = Taint::from(taint.clone());
            if !taints.iter().any(|t| t.key == taint.key && t.effect == taint.effect) {
                taints.push(taint);
            }
        }
    }
    taints.retain(|t| !(t.key == labels::UNREGISTERED_TAINT && t.effect == "NoExecute"));
    taints
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenon_crds::TaintEffect;

    fn claim() -> NodeClaim {
        let mut claim = NodeClaim::new("claim", tenon_crds::NodeClaimSpec::default());
        claim.metadata.uid = Some("uid".to_owned());
        claim.metadata.labels = Some([("team".to_owned(), "a".to_owned())].into());
        claim.spec.taints = vec![tenon_crds::Taint::new("kept", TaintEffect::NoSchedule)];
        claim.spec.startup_taints = vec![tenon_crds::Taint::new("start", TaintEffect::NoExecute)];
        claim
    }

    fn node(value: Value) -> Node {
        serde_json::from_value(value).unwrap()
    }

    fn taint_keys(patch: &Value) -> Vec<&str> {
        let taints = patch["spec"]["taints"].as_array().unwrap();
        taints.iter().map(|taint| taint["key"].as_str().unwrap()).collect()
    }

    #[test]
    fn a_joined_node_gets_what_the_nodeclaim_has_and_loses_the_unregistered_taint() {
        let node = node(json!({
            "metadata": {"name": "n", "labels": {"team": "b"}, "finalizers": ["other"]},
            "spec": {"taints": [
                {"key": "karpenter.sh/unregistered", "effect": "NoExecute"},
                {"key": "kept", "effect": "NoSchedule", "value": "already"},
            ]},
        }));
        let patch = sync(&claim(), &node, false).unwrap();
        assert_eq!(patch["metadata"]["labels"]["team"], "a");
        assert_eq!(patch["metadata"]["labels"]["karpenter.sh/registered"], "true");
        assert_eq!(patch["metadata"]["finalizers"], json!(["other", "karpenter.sh/termination"]));
        assert_eq!(patch["metadata"]["ownerReferences"][0]["uid"], "uid");
        assert_eq!(taint_keys(&patch), ["kept", "start"]);
    }

    #[test]
    fn taints_are_left_alone_where_the_node_says_so() {
        let node = node(json!({
            "metadata": {"name": "n", "labels": {"karpenter.sh/do-not-sync-taints": "true"}},
            "spec": {"taints": [{"key": "karpenter.sh/unregistered", "effect": "NoExecute"}]},
        }));
        assert_eq!(taint_keys(&sync(&claim(), &node, false).unwrap()), Vec::<&str>::new());
    }

    #[test]
    fn a_node_of_an_old_version_gets_the_label_of_its_nodeclass() {
        let mut claim = claim();
        claim.spec.node_class_ref.group = "karpenter.k8s.aws".to_owned();
        claim.spec.node_class_ref.kind = "EC2NodeClass".to_owned();
        claim.spec.node_class_ref.name = "default".to_owned();
        let old = node(json!({"metadata": {"name": "n"}}));
        let patch = class_label(&claim, &old).unwrap();
        assert_eq!(patch["metadata"]["labels"]["karpenter.k8s.aws/ec2nodeclass"], "default");
        let labels = &patch["metadata"]["labels"];
        let new = node(json!({"metadata": {"name": "n", "labels": labels}}));
        assert_eq!(class_label(&claim, &new), None);
    }

    #[test]
    fn a_registered_node_is_not_touched_again() {
        let node =
            node(json!({"metadata": {"name": "n", "labels": {"karpenter.sh/registered": "true"}}}));
        assert_eq!(sync(&claim(), &node, true), None);
    }
}
