//! Registration: the machine's Node has joined; it gets the NodeClaim's labels, annotations and
//! taints, an owner and a finalizer, and loses the taint that kept pods away until then. Where the
//! provider has hooks that are not done, the Node gets all of that but keeps the taint.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Taint;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde_json::{Value, json};
use tenon_crds::conditions::nodeclaim::REGISTERED;
use tenon_crds::{ConditionStatus, NodeClaim, labels};

use super::hooks;
use crate::claims::{conditions, pool_of};
use crate::cloud_provider::{CloudError, CloudProvider};
use crate::events::{Event, Reason};
use crate::operator::Operator;
use crate::state::cluster::name;
use crate::watch::wire::Node;
use crate::work_queue::Action;
use crate::write::WriteError;
use crate::write::create::CREATION;

/// What came out of registration.
#[derive(Default)]
pub(super) struct Registered {
    /// The NodeClaim's Node, if there is exactly one.
    pub node: Option<Node>,
    /// It was registered just now, which is to be written down and then told ([`Self::tell`]).
    new: bool,
    /// It joined without the taint that keeps pods away until it is registered.
    unguarded: bool,
    /// When the provider's hooks are to be asked again, if they are not done.
    again: Option<Duration>,
    /// A hook that failed, by its name.
    pub failed: Option<(&'static str, CloudError)>,
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
            let hooks = hooks::run(operator, claim).await?;
            let stage = if !hooks.is_done() {
                Stage::Waiting
            } else if operator.nominations.hold(&operator.state, claim) {
                Stage::Held
            } else {
                Stage::Registered
            };
            let node = match sync(claim, node, stage) {
                Some(body) => operator.write.patch_node(node, &body).await?,
                None => (**node).clone(),
            };
            if stage == Stage::Waiting {
                let message = hooks.pending.join(", ");
                conditions(claim, now).set_unknown(REGISTERED, HOOK_PENDING, &message);
                let (again, failed) = (hooks.again, hooks.failed);
                return Ok(Registered { again, failed, ..Registered::default() });
            }
            claim.status.get_or_insert_default().node_name = Some(node.name().to_owned());
            conditions(claim, now).set_true(REGISTERED);
            Ok(Registered { node: Some(node), new: true, unguarded, ..Registered::default() })
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
                    Some(body) => Some(operator.write.patch_node(node, &body).await?),
                    None => Some((**node).clone()),
                },
                _ => None,
            };
            Ok(Registered { node, ..Registered::default() })
        }
        (ConditionStatus::False, _) => Ok(Registered::default()),
    }
}

/// Reason of the condition while the provider's hooks are not done.
const HOOK_PENDING: &str = "RegistrationHookPending";

/// How far a Node is that has joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// It waits for the provider's hooks, and keeps the taint that keeps pods away.
    Waiting,
    /// Pods may come as soon as they are nominated.
    Held,
    /// Pods may come.
    Registered,
}

impl Registered {
    /// When to look again.
    pub(super) fn action(&self) -> Action {
        self.again.map_or(Action::Wait, Action::After)
    }

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

/// The patch that names the NodeClass on a Node that registered with a version of Karpenter that
/// did not.
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

/// The patch that makes a Node the NodeClaim's; `None` when it is already.
fn sync(claim: &NodeClaim, node: &Node, stage: Stage) -> Option<Value> {
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
    let mut annotations = claim.metadata.annotations.clone().unwrap_or_default();
    // Of no use to anybody there.
    annotations.remove(CREATION);
    let mut taints = synced_taints(claim, node);
    match stage {
        Stage::Registered | Stage::Held => {
            labels.insert(labels::REGISTERED.to_owned(), "true".to_owned());
            taints.retain(|taint| !is_unregistered(taint));
            if stage == Stage::Held && !node.has_taint(labels::NOT_NOMINATED_TAINT, "NoSchedule") {
                taints.push(Taint {
                    key: labels::NOT_NOMINATED_TAINT.to_owned(),
                    effect: "NoSchedule".to_owned(),
                    ..Taint::default()
                });
            }
        }
        // It is looked at again and again meanwhile, and written to once.
        Stage::Waiting
            if node.metadata.finalizers.as_ref() == Some(&finalizers)
                && node.metadata.owner_references.as_ref() == Some(&owners)
                && contains(node.metadata.labels.as_ref(), &labels)
                && contains(node.metadata.annotations.as_ref(), &annotations)
                && node.spec.taints == taints =>
        {
            return None;
        }
        Stage::Waiting => {}
    }
    Some(json!({
        "metadata": {
            "finalizers": finalizers,
            "ownerReferences": owners,
            "labels": labels,
            "annotations": annotations,
        },
        "spec": {"taints": taints},
    }))
}

/// Whether all of these are among those of an object.
fn contains(have: Option<&BTreeMap<String, String>>, wanted: &BTreeMap<String, String>) -> bool {
    wanted.iter().all(|(key, value)| have.and_then(|have| have.get(key)) == Some(value))
}

/// Whether it is the taint that kept pods away from the Node until it is registered.
fn is_unregistered(taint: &Taint) -> bool {
    taint.key == labels::UNREGISTERED_TAINT && taint.effect == "NoExecute"
}

/// The Node's taints and those of the NodeClaim that it lacks.
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
    taints
}

#[cfg(test)]
mod tests {
    use super::*;
    use json_patch::merge;
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
        let patch = sync(&claim(), &node, Stage::Registered).unwrap();
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
        let patch = sync(&claim(), &node, Stage::Registered).unwrap();
        assert_eq!(taint_keys(&patch), Vec::<&str>::new());
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
        assert_eq!(sync(&claim(), &node, Stage::Registered), None);
    }

    #[test]
    fn a_node_that_pods_were_planned_for_is_registered_and_kept_closed() {
        let joined = node(json!({
            "metadata": {"name": "n"},
            "spec": {"taints": [{"key": "karpenter.sh/unregistered", "effect": "NoExecute"}]},
        }));
        let patch = sync(&claim(), &joined, Stage::Held).unwrap();
        assert_eq!(taint_keys(&patch), ["kept", "start", "tenon.sh/not-nominated"]);
        assert_eq!(patch["metadata"]["labels"]["karpenter.sh/registered"], "true");
    }

    #[test]
    fn a_node_that_waits_for_a_hook_gets_everything_but_pods_and_is_written_to_once() {
        let joined = json!({
            "metadata": {"name": "n"},
            "spec": {"taints": [{"key": "karpenter.sh/unregistered", "effect": "NoExecute"}]},
        });
        let patch = sync(&claim(), &node(joined.clone()), Stage::Waiting).unwrap();
        assert_eq!(taint_keys(&patch), ["karpenter.sh/unregistered", "kept", "start"]);
        assert_eq!(patch["metadata"]["labels"], json!({"team": "a"}));
        assert_eq!(patch["metadata"]["finalizers"], json!(["karpenter.sh/termination"]));
        let mut written = joined;
        merge(&mut written, &patch);
        let written = node(written);
        assert_eq!(sync(&claim(), &written, Stage::Waiting), None);
        let patch = sync(&claim(), &written, Stage::Registered).unwrap();
        assert_eq!(taint_keys(&patch), ["kept", "start"]);
        assert_eq!(patch["metadata"]["labels"]["karpenter.sh/registered"], "true");
    }
}
