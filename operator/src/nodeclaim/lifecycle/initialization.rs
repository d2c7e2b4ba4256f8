//! Initialisation: the Node is ready for pods. Once said it is not taken back.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Taint;
use serde_json::{Value, json};
use tenon_crds::conditions::nodeclaim::{INITIALIZED, REBOOTING, REGISTERED};
use tenon_crds::{ConditionStatus, NodeClaim, labels};
use tenon_state::decision::State;

use crate::claims::conditions;
use crate::cloud_provider::CloudProvider;
use crate::operator::Operator;
use crate::state::cluster::name;
use crate::state::resources;
use crate::state::snapshot::is_ephemeral;
use crate::watch::wire::Node;
use crate::write::WriteError;

/// A Node is held back no longer than this after its registration, and not once something else than
/// its readiness keeps it from being initialised.
const HELD: SignedDuration = SignedDuration::from_mins(1);

/// What came out of initialisation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Initialized {
    /// It was initialised just now, which is to be written down and then told ([`tell`]).
    pub new: bool,
    /// Until when its Node may be held back, if it is.
    pub held_until: Option<Timestamp>,
}

/// Initialises a registered NodeClaim, and lets pods onto its Node that was held back for them.
pub(super) async fn initialize<P: CloudProvider>(
    operator: &Operator<P>,
    claim: &mut NodeClaim,
    node: Option<&Node>,
) -> Result<Initialized, WriteError> {
    let now = operator.now();
    let mut set = conditions(claim, now);
    if !set.is_true(REGISTERED) {
        return Ok(Initialized::default());
    }
    let registered = set.get(REGISTERED).map(|known| known.last_transition_time.0);
    let Some(known) = set.get(INITIALIZED).cloned() else { return Ok(Initialized::default()) };
    match known.status {
        ConditionStatus::Unknown => {}
        ConditionStatus::True => {
            set.set_true_because(INITIALIZED, &known.reason, &known.message);
            if let Some(node) = node.filter(|node| is_held(node)) {
                operator.write.patch_node(node, &open(node)).await?;
            }
            return Ok(Initialized::default());
        }
        ConditionStatus::False => return Ok(Initialized::default()),
    }
    // The boot that is about to end would satisfy the checks.
    if set.is_true(REBOOTING) {
        return Ok(Initialized::default());
    }
    let waits = match node {
        None => Some(("NodeNotFound", "Node not registered with cluster".to_owned())),
        Some(node) => waits_for(claim, node).or_else(|| waits_for_driver(operator, claim, node)),
    };
    if let Some((reason, message)) = waits {
        conditions(claim, now).set_unknown(INITIALIZED, reason, &message);
        let Some(node) = node.filter(|node| is_held(node)) else {
            return Ok(Initialized::default());
        };
        let until = registered.and_then(|since| since.checked_add(HELD).ok()).unwrap_or(now);
        let passes = matches!(reason, "NodeNotReady" | "KnownEphemeralTaintsExist");
        if passes && now < until {
            return Ok(Initialized { new: false, held_until: Some(until) });
        }
        operator.write.patch_node(node, &open(node)).await?;
        return Ok(Initialized::default());
    }
    let Some(node) = node else { return Ok(Initialized::default()) };
    let turn = if is_held(node) {
        operator.nominations.turn(&operator.state, claim, node).await
    } else {
        None
    };
    // It may have changed meanwhile.
    let newest = operator.state.read().node(node.name()).cloned();
    let newest = newest.filter(|newest| newest.metadata.uid == node.metadata.uid);
    let node = newest.as_deref().unwrap_or(node);
    if node.label(labels::INITIALIZED) != Some("true") || is_held(node) {
        let mut body = open(node);
        body["metadata"] = json!({"labels": {labels::INITIALIZED: "true"}});
        operator.write.patch_node(node, &body).await?;
    }
    drop(turn);
    conditions(claim, now).set_true(INITIALIZED);
    Ok(Initialized { new: true, held_until: None })
}

/// Whether a Node is held back until its pods are nominated.
fn is_held(node: &Node) -> bool {
    node.has_taint(labels::NOT_NOMINATED_TAINT, "NoSchedule")
}

/// The patch that holds a Node back no longer; nothing where it is not.
fn open(node: &Node) -> Value {
    if !is_held(node) {
        return json!({});
    }
    let taints = node.spec.taints.iter().filter(|taint| !is_our_hold(taint));
    json!({"spec": {"taints": taints.collect::<Vec<_>>()}})
}

fn is_our_hold(taint: &Taint) -> bool {
    taint.key == labels::NOT_NOMINATED_TAINT && taint.effect == "NoSchedule"
}

/// Says that a NodeClaim has been initialised, once its status does.
pub(super) fn tell<P: CloudProvider>(operator: &Operator<P>, claim: &NodeClaim, node: &Node) {
    let label = |key| node.label(key).unwrap_or("unknown");
    let what = format!(
        "node {}: {} in {}, {}",
        node.name(),
        label(labels::INSTANCE_TYPE),
        label(labels::ZONE),
        label(labels::CAPACITY_TYPE)
    );
    operator.context.decisions.progress(&name(&claim.metadata), State::Done, &what);
    tracing::info!(
        nodeclaim = name(&claim.metadata),
        node = node.name(),
        allocatable = %resources::text(&resources::from_list(&node.status.allocatable)),
        "initialized nodeclaim"
    );
}

/// The driver whose devices the Node was launched for and has not published: reason and message.
fn waits_for_driver<P: CloudProvider>(
    operator: &Operator<P>,
    claim: &NodeClaim,
    node: &Node,
) -> Option<(&'static str, String)> {
    let state = operator.state.read();
    let driver = state.unpublished_driver(claim, node.name())?;
    let message = format!("DRA driver \"{driver}\" has not published a complete resource pool");
    Some(("DRADriverPoolsNotPublished", message))
}

/// What the Node lacks before pods can run on it: reason and message.
fn waits_for(claim: &NodeClaim, node: &Node) -> Option<(&'static str, String)> {
    if !node.is_ready() {
        return Some(("NodeNotReady", "Node status is NotReady".to_owned()));
    }
    let is_startup = |taint: &&Taint| {
        let startup = &claim.spec.startup_taints;
        startup.iter().any(|s| s.key == taint.key && s.effect.as_str() == taint.effect)
    };
    if let Some(taint) = node.spec.taints.iter().find(is_startup) {
        let message = format!("StartupTaint \"{}\" still exists", text(taint));
        return Some(("StartupTaintsExist", message));
    }
    let is_passing = |taint: &&Taint| is_ephemeral(taint) && !is_our_hold(taint);
    if let Some(taint) = node.spec.taints.iter().find(is_passing) {
        let message = format!("KnownEphemeralTaint \"{}\" still exists", text(taint));
        return Some(("KnownEphemeralTaintsExist", message));
    }
    let missing = claim.spec.resources.requests.iter().find(|(resource, requested)| {
        let there = node.status.allocatable.get(*resource);
        !requested.is_zero() && there.is_none_or(|there| there.is_zero())
    });
    missing.map(|(resource, _)| {
        (
            "ResourceNotRegistered",
            format!("Resource \"{resource}\" was requested but not registered"),
        )
    })
}

fn text(taint: &Taint) -> String {
    let value = taint.value.as_deref().filter(|value| !value.is_empty());
    let value = value.map(|value| format!("={value}")).unwrap_or_default();
    format!("{}{value}:{}", taint.key, taint.effect)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenon_crds::TaintEffect;

    #[test]
    fn a_node_is_initialised_when_ready_without_passing_taints_and_with_all_resources() {
        let mut claim = NodeClaim::new("claim", tenon_crds::NodeClaimSpec::default());
        claim.spec.startup_taints = vec![tenon_crds::Taint::new("start", TaintEffect::NoExecute)];
        let requests = std::sync::Arc::make_mut(&mut claim.spec.resources.requests);
        requests.insert("cpu".to_owned(), "1".parse().unwrap());
        requests.insert("nvidia.com/gpu".to_owned(), "1".parse().unwrap());
        let ready = json!([{"type": "Ready", "status": "True"}]);
        let full = json!({"cpu": "4", "nvidia.com/gpu": "1"});
        let node = |conditions: &Value, taints: Value, allocatable: &Value| -> Node {
            serde_json::from_value(json!({
                "metadata": {"name": "n"}, "spec": {"taints": taints},
                "status": {"conditions": conditions, "allocatable": allocatable},
            }))
            .unwrap()
        };
        for (node, expected) in [
            (
                node(&json!([{"type": "Ready", "status": "False"}]), json!([]), &full),
                Some("NodeNotReady"),
            ),
            (
                node(&ready, json!([{"key": "start", "effect": "NoExecute"}]), &full),
                Some("StartupTaintsExist"),
            ),
            (
                node(
                    &ready,
                    json!([{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}]),
                    &full,
                ),
                Some("KnownEphemeralTaintsExist"),
            ),
            (
                node(&ready, json!([]), &json!({"cpu": "4", "nvidia.com/gpu": "0"})),
                Some("ResourceNotRegistered"),
            ),
            (node(&ready, json!([{"key": "start", "effect": "NoSchedule"}]), &full), None),
        ] {
            assert_eq!(waits_for(&claim, &node).map(|(reason, _)| reason), expected);
        }
    }
}
