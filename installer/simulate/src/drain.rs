//! Nodes that are taken as drained: they are gone, and their pods wait for another place.
//!
//! What `kubectl drain` would leave or lose is told: pods that nothing would start again, and those
//! that an annotation or a PodDisruptionBudget keeps where they are.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use tenon_crds::{labels, selector};
use tenon_planner::Snapshot;
use tenon_state::wire;

use super::complete;
use super::error::SimulateError;
use super::input::Input;
use super::options::{self, Which};
use super::parts::PodName;
use super::prices::Prices;

/// By which Cluster Autoscaler knows pods that must not be evicted, with the value `false`.
const SAFE_TO_EVICT: &str = "cluster-autoscaler.kubernetes.io/safe-to-evict";

/// A static pod's; its kubelet runs it.
const MIRROR: &str = "kubernetes.io/config.mirror";

/// What is left out of the input.
#[derive(Debug, Clone)]
pub(super) struct Drain {
    /// Names and labels of the nodes.
    nodes: Vec<(String, BTreeMap<String, String>)>,
    pods: usize,
    lost: Vec<PodName>,
    held: Vec<Held>,
}

/// Nodes that were taken as drained.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Drained {
    /// Their names.
    pub nodes: Vec<String>,
    /// US dollars per hour of those whose price is known.
    pub price_per_hour: f64,
    /// How many have no known price.
    pub without_price: usize,
    /// How many of their pods wait for another place.
    pub pods: usize,
    /// Pods that no controller would start again.
    pub lost: Vec<PodName>,
    /// Pods that would wait for another place, but are not evicted as they are.
    pub held: Vec<Held>,
}

/// A pod that is not evicted.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Held {
    /// `metadata.namespace`.
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
    /// Why, in words.
    pub reason: String,
}

/// Takes nodes out of the input and lets their pods wait. Nothing if none are to be drained.
pub(super) fn drain(
    input: &mut Input,
    drains: &[options::Drain],
) -> Result<Option<Drain>, SimulateError> {
    if drains.is_empty() {
        return Ok(None);
    }
    let none = BTreeMap::new();
    let has = |node: &wire::Node, drain: &options::Drain| match &drain.which {
        Which::Labels(selector) => {
            selector::selects(selector, node.metadata.labels.as_ref().unwrap_or(&none))
        }
        Which::Names(names) => names.contains(node.name()),
    };
    for drain in drains {
        let is_by_label = matches!(drain.which, Which::Labels(_));
        if is_by_label && !input.nodes.iter().any(|node| has(node, drain)) {
            return Err(SimulateError::NothingToDrain { selector: drain.text.clone() });
        }
    }
    let blocking = blocking(input);
    let is_drained = |node: &wire::Node| drains.iter().any(|drain| has(node, drain));
    let (gone, stay) = std::mem::take(&mut input.nodes).into_iter().partition(is_drained);
    input.nodes = stay;
    let gone: Vec<wire::Node> = gone;
    let names: BTreeSet<&str> = gone.iter().map(wire::Node::name).collect();
    let ids: BTreeSet<&str> = gone.iter().filter_map(wire::Node::provider_id).collect();
    input.claims.retain(|claim| !claim.provider_id().is_some_and(|id| ids.contains(id)));
    let mut drain = Drain { nodes: Vec::new(), pods: 0, lost: Vec::new(), held: Vec::new() };
    input.pods.retain_mut(|pod| {
        let is_on = pod.spec.node_name.as_deref().is_some_and(|node| names.contains(node));
        !is_on || drain.takes(pod, &blocking)
    });
    drain.lost.sort();
    drain.held.sort();
    drain.nodes = gone
        .iter()
        .map(|node| (node.name().to_owned(), node.metadata.labels.clone().unwrap_or_default()))
        .collect();
    drain.nodes.sort();
    Ok(Some(drain))
}

/// PodDisruptionBudgets that allow no disruption as things are.
fn blocking(input: &Input) -> Vec<wire::PodDisruptionBudget> {
    let budgets = input.budgets.iter().filter(|budget| {
        // Of one that was read from a cluster the disruption controller knows more.
        let is_read = budget.metadata.resource_version.is_some();
        let allowed = if is_read {
            budget.status.disruptions_allowed
        } else {
            complete::allowed(budget, &input.pods)
        };
        allowed <= 0
    });
    budgets.cloned().collect()
}

impl Drain {
    /// Lets a pod of a drained node wait; false for one that does not come back.
    fn takes(&mut self, pod: &mut wire::Pod, blocking: &[wire::PodDisruptionBudget]) -> bool {
        let is_mirror = annotation(pod, MIRROR).is_some();
        let has_ended = matches!(pod.status.phase.as_deref(), Some("Succeeded" | "Failed"));
        let goes = pod.metadata.deletion_timestamp.is_some();
        let controller = wire::controller(&pod.metadata).map(|owner| owner.kind.as_str());
        if is_mirror || has_ended || goes || matches!(controller, Some("DaemonSet" | "Node")) {
            return false;
        }
        let (namespace, name) = (
            pod.metadata.namespace.clone().unwrap_or_default(),
            pod.metadata.name.clone().unwrap_or_default(),
        );
        if controller.is_none() {
            self.lost.push(PodName { namespace, name });
            return false;
        }
        if let Some(reason) = held(pod, blocking) {
            self.held.push(Held { namespace, name, reason });
        }
        self.pods += 1;
        pod.spec.node_name = None;
        pod.status = wire::PodStatus::default();
        true
    }

    /// With what its nodes cost.
    pub(super) fn priced(&self, snapshot: &Snapshot) -> Drained {
        let known = Prices::new(snapshot);
        let prices = self.nodes.iter().map(|(_, labels)| known.listed(labels));
        let prices: Vec<Option<f64>> = prices.collect();
        Drained {
            nodes: self.nodes.iter().map(|(name, _)| name.clone()).collect(),
            price_per_hour: prices.iter().flatten().sum(),
            without_price: prices.iter().filter(|price| price.is_none()).count(),
            pods: self.pods,
            lost: self.lost.clone(),
            held: self.held.clone(),
        }
    }
}

fn annotation<'a>(pod: &'a wire::Pod, key: &str) -> Option<&'a str> {
    pod.metadata.annotations.as_ref()?.get(key).map(String::as_str)
}

/// Why a pod is not evicted.
fn held(pod: &wire::Pod, blocking: &[wire::PodDisruptionBudget]) -> Option<String> {
    for (key, value) in [(labels::DO_NOT_DISRUPT, "true"), (SAFE_TO_EVICT, "false")] {
        if annotation(pod, key) == Some(value) {
            return Some(format!("the annotation {key}={value}"));
        }
    }
    let none = BTreeMap::new();
    let labels = pod.metadata.labels.as_ref().unwrap_or(&none);
    let selects = |budget: &&wire::PodDisruptionBudget| {
        let selector = budget.spec.selector.as_ref();
        budget.metadata.namespace == pod.metadata.namespace
            && selector.is_some_and(|selector| selector::selects(selector, labels))
    };
    let budget = blocking.iter().find(selects)?;
    let name = budget.metadata.name.as_deref().unwrap_or_default();
    Some(format!("PodDisruptionBudget {name} allows no disruption"))
}
