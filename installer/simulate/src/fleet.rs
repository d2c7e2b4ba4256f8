//! What `tenon status` and `tenon top` show of a cluster: nodes by NodePool with their price and
//! use, pending pods by reason, and disruptions.

mod node;
mod pending;
mod text;

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Serialize;
use tenon_crds::{ResourceList, labels};
use tenon_planner::Snapshot;
use tenon_planner::resources::{MicroUsd, Resources};
use tenon_planner::snapshot::{Node, NodePhase, Placement};
use tenon_state::resources::{amount, to_list};

pub use self::node::{FleetNode, Used};
pub use self::pending::Pending;
use super::explain::{Known, index};
use super::observed::{Observed, condition};
use super::prices::Billed;

/// A cluster at one moment.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Fleet {
    /// When.
    #[serde(skip)]
    pub now: Timestamp,
    /// NodeClaims, and how many of them are ready.
    #[serde(skip)]
    node_claims: (usize, usize),
    /// Every node, by key. Not part of the JSON, which has sums.
    #[serde(skip)]
    pub nodes: Vec<FleetNode>,
    /// The NodePools, by name.
    pub node_pools: Vec<FleetPool>,
    /// Nodes of no NodePool.
    pub other_nodes: FleetSum,
    /// All nodes.
    pub total: FleetSum,
    /// Pending pods by reason, the most frequent first.
    pub pending_pods: Vec<Pending>,
    /// Nodes that are being removed, by name.
    pub disrupting: Vec<Disrupting>,
    /// Why nodes that the operator would disrupt have to stay, by what it reports.
    pub blocked: Vec<Blocked>,
}

/// A NodePool.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FleetPool {
    /// `metadata.name`.
    pub name: String,
    /// `tenon freeze` has paused it.
    pub paused: bool,
    /// Why it launches nothing, as its conditions have it.
    pub problem: Option<String>,
    /// Sums over its nodes.
    #[serde(flatten)]
    pub nodes: FleetSum,
}

/// Some nodes together.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FleetSum {
    /// How many.
    pub nodes: usize,
    /// Of these, not yet initialized.
    pub starting: usize,
    /// Of these, spot instances.
    pub spot: usize,
    /// In USD, of those whose price is known.
    pub price_per_hour: f64,
    /// How many have no known price.
    pub without_price: usize,
    /// What the pods on them request.
    requests: ResourceList,
    /// What they have for pods.
    allocatable: ResourceList,
}

impl FleetSum {
    /// The processors of all of them, in thousandths.
    pub fn cpu(&self) -> Used {
        self.used("cpu")
    }

    /// The memory of all of them, in bytes.
    pub fn memory(&self) -> Used {
        self.used("memory")
    }

    fn used(&self, resource: &str) -> Used {
        let of = |list: &ResourceList| {
            list.get(resource).map_or(0, |quantity| amount(resource, *quantity))
        };
        Used { requested: of(&self.requests), allocatable: of(&self.allocatable) }
    }
}

/// A node that is being removed.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Disrupting {
    /// The NodeClaim, or the Node where there is none.
    pub node: String,
    /// The operator's reason; none where another program deleted it.
    pub reason: Option<String>,
    /// Since when.
    pub since: Option<Timestamp>,
    /// What it is at.
    pub step: &'static str,
}

/// Nodes that have to stay for one reason.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Blocked {
    /// What the operator reports.
    pub message: String,
    /// Their keys, by name.
    pub nodes: Vec<String>,
}

/// Sums over nodes.
#[derive(Default)]
struct Sum {
    nodes: FleetSum,
    price: i64,
    requests: Resources,
    allocatable: Resources,
}

impl Sum {
    fn add(&mut self, node: &Node, price: Option<f64>, requests: &Resources) {
        self.nodes.nodes += 1;
        self.nodes.starting += usize::from(node.phase != NodePhase::Initialized);
        let capacity_type = node.labels.get(labels::CAPACITY_TYPE);
        self.nodes.spot += usize::from(capacity_type.is_some_and(|it| it == "spot"));
        match price.map(MicroUsd::from_usd) {
            Some(MicroUsd(price)) => self.price += price,
            None => self.nodes.without_price += 1,
        }
        self.requests.add(requests);
        self.allocatable.add(&node.allocatable);
    }

    fn end(self) -> FleetSum {
        FleetSum {
            price_per_hour: MicroUsd(self.price).as_usd(),
            requests: to_list(&self.requests),
            allocatable: to_list(&self.allocatable),
            ..self.nodes
        }
    }
}

impl Fleet {
    pub(super) fn new(known: Known<'_>) -> Self {
        let Known { snapshot, observed, now, .. } = known;
        let mut requests = vec![Resources::default(); snapshot.nodes.len()];
        let mut pods = vec![0; snapshot.nodes.len()];
        for pod in &snapshot.pods {
            if let Placement::Bound(id) = pod.placement {
                let shape = &snapshot.shapes[index(pod.shape.0)];
                requests[index(id.0)].add(&shape.requests);
                pods[index(id.0)] += 1;
            }
        }
        let billed = Billed::new(snapshot);
        let nodes = snapshot.nodes.iter().zip(&requests).zip(pods);
        let nodes = nodes
            .map(|((node, requests), pods)| FleetNode::new(node, billed.of(node), requests, pods));
        let mut pools: BTreeMap<&str, Sum> =
            snapshot.node_pools.iter().map(|pool| (&*pool.name, Sum::default())).collect();
        let (mut other, mut total) = (Sum::default(), Sum::default());
        for (node, requests) in snapshot.nodes.iter().zip(&requests) {
            let price = billed.of(node);
            total.add(node, price, requests);
            match pool_of(node) {
                Some(pool) => pools.entry(pool).or_default().add(node, price, requests),
                None => other.add(node, price, requests),
            }
        }
        let node_pools = pools.into_iter().map(|(name, sum)| FleetPool {
            name: name.to_owned(),
            paused: observed.is_frozen(name),
            problem: observed.pool_state(name).map(condition),
            nodes: sum.end(),
        });
        let claims = snapshot.nodes.iter().filter(|node| node.claim.is_some());
        let ready = claims.clone().filter(|node| node.phase == NodePhase::Initialized);
        Self {
            now,
            node_claims: (claims.clone().count(), ready.count()),
            nodes: nodes.collect(),
            node_pools: node_pools.collect(),
            other_nodes: other.end(),
            total: total.end(),
            pending_pods: pending::pending(known),
            disrupting: disrupting(snapshot, observed),
            blocked: blocked(snapshot, observed),
        }
    }

    /// NodeClaims, and how many of them are ready.
    pub fn node_claims(&self) -> (usize, usize) {
        self.node_claims
    }
}

/// The NodePool of a machine.
pub(super) fn pool_of(node: &Node) -> Option<&str> {
    let of_claim = node.claim.as_ref().and_then(|claim| claim.node_pool.as_deref());
    of_claim.or_else(|| node.labels.get(labels::NODEPOOL).map(String::as_str))
}

fn disrupting(snapshot: &Snapshot, observed: &Observed) -> Vec<Disrupting> {
    let nodes = snapshot.nodes.iter().filter_map(|node| {
        let removal = observed.removal(&node.key);
        if removal.is_none() && !node.deleting {
            return None;
        }
        let (reason, since, step) = match removal {
            Some(removal) => (removal.reason, Some(removal.since), removal.step),
            None => (None, None, "being removed"),
        };
        Some(Disrupting { node: node.key.clone(), reason, since, step })
    });
    nodes.collect()
}

fn blocked(snapshot: &Snapshot, observed: &Observed) -> Vec<Blocked> {
    let mut by_message: BTreeMap<String, Vec<String>> = BTreeMap::new();
    // Both the Node and the NodeClaim have an event.
    let mut keys: BTreeMap<&str, &str> = BTreeMap::new();
    for node in &snapshot.nodes {
        keys.insert(&node.key, &node.key);
        keys.extend(node.name.as_deref().map(|name| (name, &*node.key)));
    }
    for (name, message) in observed.blocked() {
        let Some(&key) = keys.get(name) else { continue };
        // "Cannot disrupt Node: " or "Cannot disrupt NodeClaim: ".
        let message = message
            .strip_prefix("Cannot disrupt ")
            .map_or(&*message, |rest| rest.split_once(": ").map_or(rest, |(_, message)| message));
        let nodes = by_message.entry(message.to_owned()).or_default();
        if !nodes.iter().any(|node| node == key) {
            nodes.push(key.to_owned());
        }
    }
    let mut blocked: Vec<Blocked> = by_message
        .into_iter()
        .map(|(message, mut nodes)| {
            nodes.sort();
            Blocked { message, nodes }
        })
        .collect();
    blocked.sort_by_key(|it| std::cmp::Reverse(it.nodes.len()));
    blocked
}
