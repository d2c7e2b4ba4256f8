//! Boots pretended machines: creates the Node of each launched NodeClaim once its registration
//! delay has passed.
//!
//! It works from the NodeClaims alone, so that a restart of the operator goes on where it stopped.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, NodeSpec, NodeStatus, Taint};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::PostParams;
use kube::core::DeserializeGuard;
use kube::runtime::watcher;
use kube::{Api, ResourceExt as _};
use tenon_crds::{ConditionStatus, NodeClaim, ResourceList, labels};

use super::{Kwok, PROVIDER_ID_PREFIX};
use crate::clock::Clock;
use crate::context::Context;

/// Rest after a Node could not be created.
const RETRY: jiff::SignedDuration = jiff::SignedDuration::from_secs(1);

/// Nodes that are created at once.
const CONCURRENCY: usize = 32;

/// On the Node: the NodeClaim that it was made for.
pub(super) const CLAIM_ANNOTATION: &str = "karpenter.kwok.sh/nodeclaim";

/// Creates the Nodes of launched claims until the task is stopped.
pub(super) async fn run(kwok: Arc<Kwok>, context: Context) {
    let api: Api<DeserializeGuard<NodeClaim>> = Api::all(context.client.clone());
    let mut events = watcher(api, watcher::Config::default()).boxed();
    // Claims on their way, by name; a claim that ends before its time is not booted.
    let mut waiting: BTreeMap<String, NodeClaim> = BTreeMap::new();
    let mut boots = FuturesUnordered::new();
    let mut creations = FuturesUnordered::new();
    loop {
        tokio::select! {
            event = events.next() => match event {
                Some(Ok(watcher::Event::Apply(object) | watcher::Event::InitApply(object))) => {
                    let name = object.name_any();
                    let Ok(claim) = object.0 else { continue };
                    let Some(launched) = launched_at(&claim) else {
                        waiting.remove(&name);
                        continue;
                    };
                    if waiting.insert(name.clone(), claim.clone()).is_none() {
                        let delay = kwok.delay(&claim.spec.node_class_ref.name);
                        let due = launched.saturating_add(delay).unwrap_or(launched);
                        boots.push(wait_until(context.clock, due, name));
                    }
                }
                Some(Ok(watcher::Event::Delete(object))) => {
                    waiting.remove(&object.name_any());
                }
                Some(Ok(watcher::Event::Init | watcher::Event::InitDone)) => {}
                Some(Err(error)) => {
                    tracing::warn!(error = %crate::text::chain(&error), "watch of NodeClaims interrupted");
                    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
                }
                None => return,
            },
            Some(name) = boots.next(), if !boots.is_empty() && creations.len() < CONCURRENCY => {
                let Some(claim) = waiting.get(&name).cloned() else { continue };
                let kwok = &kwok;
                creations.push(async move { (create(kwok, &claim).await, name) });
            }
            Some((created, name)) = creations.next(), if !creations.is_empty() => {
                if created {
                    waiting.remove(&name);
                } else {
                    boots.push(wait_until(context.clock, context.clock.now() + RETRY, name));
                }
            }
        }
    }
}

async fn wait_until(clock: Clock, due: Timestamp, name: String) -> String {
    clock.sleep_until(due).await;
    name
}

/// Creates the claim's Node; false when that has to be tried again.
async fn create(kwok: &Kwok, claim: &NodeClaim) -> bool {
    let Some(node) = node(claim) else { return true };
    let name = node.name_any();
    match kwok.nodes().create(&PostParams::default(), &node).await {
        Ok(_) => {
            tracing::debug!(
                node = name,
                nodeclaim = claim.name_any(),
                "booted a simulated instance"
            );
            true
        }
        Err(kube::Error::Api(status)) if status.code == 409 => true,
        Err(error) => {
            tracing::warn!(
                node = name,
                error = %crate::text::chain(&error),
                "could not create the node"
            );
            false
        }
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
