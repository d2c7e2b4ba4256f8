//! Boots pretended machines: creates the Node of each launched NodeClaim once its registration
//! delay has passed.
//!
//! It works from the NodeClaims alone, so that a restart of the operator goes on where it stopped.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, NodeSpec, NodeStatus, Taint};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt as _;
use kube::api::PostParams;
use tenon_crds::{ConditionStatus, NodeClaim, ResourceList, labels};

use super::{Kwok, PROVIDER_ID_PREFIX};
use crate::clock::Clock;
use crate::controller::{Affected, Reconciler};
use crate::state::State;
use crate::state::change::Touched;
use crate::state::cluster::{Cluster, name};
use crate::work_queue::{Action, Backoff, Concern, Failure};

/// On the Node: the NodeClaim that it was made for.
pub(super) const CLAIM_ANNOTATION: &str = "karpenter.kwok.sh/nodeclaim";

/// The Node of a NodeClaim could not be created.
#[derive(Debug, thiserror::Error)]
#[error("creating the node of nodeclaim {claim}")]
pub(super) struct BootError {
    claim: String,
    source: kube::Error,
}

impl Failure for BootError {
    fn category(&self) -> &'static str {
        "boot"
    }

    fn is_conflict(&self) -> bool {
        false
    }

    fn concern(&self) -> Concern {
        Concern::Passing
    }
}

/// Creates the Nodes of launched NodeClaims.
pub(super) struct Boot {
    pub(super) kwok: Arc<Kwok>,
    pub(super) state: State,
    pub(super) clock: Clock,
}

impl Reconciler for Boot {
    const NAME: &'static str = "kwok.boot";
    const BACKOFF: Backoff = Backoff { min: Duration::from_secs(1), max: Duration::from_secs(10) };
    type Key = String;
    type Error = BootError;

    fn workers(&self) -> usize {
        32
    }

    fn affected(&self, touched: &Touched, _: &State) -> Affected<String> {
        match touched {
            Touched::NodeClaim(name) => Affected::One(name.clone()),
            _ => Affected::None,
        }
    }

    fn all(&self, state: &Cluster) -> Vec<String> {
        state.claims().map(|claim| name(&claim.metadata)).collect()
    }

    async fn reconcile(&self, name: &String) -> Result<Action, BootError> {
        let Some(claim) = self.waiting(name) else { return Ok(Action::Wait) };
        let Some(launched) = launched_at(&claim) else { return Ok(Action::Wait) };
        let delay = self.kwok.delay(&claim.spec.node_class_ref.name);
        let due = launched.saturating_add(delay).unwrap_or(launched);
        let left = due.duration_since(self.clock.now());
        if left.is_positive() {
            return Ok(Action::After(left.unsigned_abs()));
        }
        let Some(node) = node(&claim) else { return Ok(Action::Wait) };
        match self.kwok.nodes().create(&PostParams::default(), &node).await {
            Ok(_) => {
                tracing::debug!(
                    node = node.name_any(),
                    nodeclaim = name,
                    "booted a simulated instance"
                );
                Ok(Action::Wait)
            }
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(Action::Wait),
            Err(source) => Err(BootError { claim: name.clone(), source }),
        }
    }
}

impl Boot {
    /// The NodeClaim, unless its Node is known already.
    fn waiting(&self, name: &str) -> Option<Arc<NodeClaim>> {
        let state = self.state.read();
        let claim = state.claim(name)?;
        let booted = state.nodes_of(claim.provider_id()?).next().is_some();
        (!booted).then(|| Arc::clone(claim))
    }
}

/// Since when the claim is launched, if its Node is still to come.
fn launched_at(claim: &NodeClaim) -> Option<Timestamp> {
    if claim.metadata.deletion_timestamp.is_some()
        || !claim.provider_id()?.starts_with(PROVIDER_ID_PREFIX)
    {
        return None;
    }
    let conditions = &claim.status.as_ref()?.conditions;
    let is_true = |name: &str| {
        conditions
            .iter()
            .find(|condition| condition.type_ == name && condition.status == ConditionStatus::True)
    };
    if is_true("Registered").is_some() {
        return None;
    }
    is_true("Launched").map(|launched| launched.last_transition_time.0)
}

/// The Node as it registers; `None` for a claim that is not launched.
fn node(claim: &NodeClaim) -> Option<Node> {
    let provider_id = claim.provider_id()?;
    let name = provider_id.strip_prefix(PROVIDER_ID_PREFIX)?;
    let status = claim.status.as_ref()?;
    let mut node_labels = claim.labels().clone();
    node_labels.insert(labels::HOSTNAME.into(), name.to_owned());
    let taint = Taint {
        key: labels::UNREGISTERED_TAINT.into(),
        effect: "NoExecute".into(),
        ..Taint::default()
    };
    Some(Node {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            labels: Some(node_labels),
            annotations: Some(BTreeMap::from([
                (labels::kwok::NODE.to_owned(), "fake".to_owned()),
                (CLAIM_ANNOTATION.to_owned(), claim.name_any()),
            ])),
            ..ObjectMeta::default()
        },
        spec: Some(NodeSpec {
            provider_id: Some(provider_id.to_owned()),
            taints: Some(vec![taint]),
            ..NodeSpec::default()
        }),
        status: Some(NodeStatus {
            capacity: Some(quantities(&status.capacity)),
            allocatable: Some(quantities(&status.allocatable)),
            phase: Some("Pending".to_owned()),
            ..NodeStatus::default()
        }),
    })
}

fn quantities(list: &ResourceList) -> BTreeMap<String, Quantity> {
    list.iter().map(|(name, quantity)| (name.clone(), Quantity(quantity.to_string()))).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::state::change::{Change, Object};
    use crate::testing::{ApiServer, idle};

    const NODE: &str = "/api/v1/nodes/a";

    /// A NodeClaim that was launched an hour ago, with these of its conditions.
    async fn boot(conditions: &[&str]) -> (Boot, ApiServer) {
        let [mut claim, _] = idle::machine("a", "default");
        claim["status"]["providerID"] = json!("kwok://a");
        let list = claim["status"]["conditions"].as_array_mut().unwrap();
        list.retain(|it| conditions.iter().any(|type_| it["type"] == *type_));
        let (operator, api) = idle::operator(vec![claim]).await;
        let kwok = Kwok::new(api.client(), None).unwrap();
        let state = operator.state.clone();
        (Boot { kwok: Arc::new(kwok), state, clock: operator.context.clock }, api)
    }

    #[tokio::test(start_paused = true)]
    async fn a_launched_nodeclaim_gets_its_node_once() {
        let (boot, api) = boot(&["Launched"]).await;
        boot.reconcile(&"a".to_owned()).await.unwrap();
        let node: Value = api.at(NODE).unwrap();
        assert_eq!(node["metadata"]["annotations"][CLAIM_ANNOTATION], "a");
        assert_eq!(node["spec"]["taints"][0]["key"], labels::UNREGISTERED_TAINT);
        // The next version of the NodeClaim may come before the Node is known.
        assert_eq!(boot.reconcile(&"a".to_owned()).await.unwrap(), Action::Wait);
        api.take_requests();
        let node = Object::Node(serde_json::from_value(node).unwrap());
        boot.state.apply(Change::Applied(node)).await;
        boot.reconcile(&"a".to_owned()).await.unwrap();
        assert_eq!(api.take_requests(), Vec::<String>::new());
    }

    #[tokio::test(start_paused = true)]
    async fn no_node_is_created_for_other_nodeclaims() {
        for conditions in [&[][..], &["Launched", "Registered"]] {
            let (boot, api) = boot(conditions).await;
            boot.reconcile(&"a".to_owned()).await.unwrap();
            boot.reconcile(&"gone".to_owned()).await.unwrap();
            assert_eq!(api.take_requests(), Vec::<String>::new(), "{conditions:?}");
        }
    }
}
