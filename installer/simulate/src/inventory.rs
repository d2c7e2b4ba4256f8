//! Every machine with its place, price and use, and the pods on it: what a map of the fleet is
//! drawn from. Sums are in [`super::fleet`].

use jiff::Timestamp;
use serde::Serialize;
use tenon_crds::labels;
use tenon_planner::Snapshot;
use tenon_planner::resources::Resources;
use tenon_planner::snapshot::{Node, NodePhase, Placement, Pod};

use super::explain::index;
use super::fleet::pool_of;
use super::prices::Billed;

/// How many pods of a machine are listed; kubelets allow fewer.
const LISTED: usize = 1000;

/// A Node, or a NodeClaim that has none yet.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Machine {
    /// Identifies it: the NodeClaim's name where there is one, else the Node's.
    pub key: String,
    /// Name of the Node; none until it has joined.
    pub node: Option<String>,
    /// It has a NodeClaim.
    pub claimed: bool,
    /// Its NodePool.
    pub node_pool: Option<String>,
    /// Progress of the launch.
    pub phase: NodePhase,
    /// Such as `m7i.large`.
    pub instance_type: Option<String>,
    /// Such as `eu-west-1a`.
    pub zone: Option<String>,
    /// `spot`, `on-demand` or `reserved`.
    pub capacity_type: Option<String>,
    /// In USD, if it is known.
    pub price_per_hour: Option<f64>,
    /// What pods request and what there is for pods, in millicores.
    pub cpu: [i64; 2],
    /// The same in bytes.
    pub memory: [i64; 2],
    /// Number of pods on it.
    pub pods: usize,
    /// `metadata.creationTimestamp`
    pub created_at: Timestamp,
}

/// The pods on a machine.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PodsOnNode {
    /// How many there are.
    pub count: usize,
    /// The first of them, by namespace and name.
    pub pods: Vec<PodOnNode>,
}

/// A pod on a machine.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PodOnNode {
    /// `metadata.namespace`
    pub namespace: String,
    /// `metadata.name`
    pub name: String,
    /// What it requests, in millicores.
    pub cpu: i64,
    /// The same in bytes.
    pub memory: i64,
    /// It belongs to a DaemonSet.
    pub daemon: bool,
}

pub(super) fn machines(snapshot: &Snapshot) -> Vec<Machine> {
    let mut used = vec![(0, Resources::default()); snapshot.nodes.len()];
    for pod in &snapshot.pods {
        if let Placement::Bound(id) = pod.placement {
            let (pods, requests) = &mut used[index(id.0)];
            *pods += 1;
            requests.add(requests_of(snapshot, pod));
        }
    }
    let billed = Billed::new(snapshot);
    let machines = snapshot.nodes.iter().zip(used);
    let machines =
        machines.map(|(node, (pods, requests))| machine(node, billed.of(node), pods, &requests));
    machines.collect()
}

fn machine(node: &Node, price: Option<f64>, pods: usize, requests: &Resources) -> Machine {
    let label = |key: &str| node.labels.get(key).cloned();
    let (free, asked) = (&node.allocatable, requests);
    Machine {
        key: node.key.clone(),
        node: node.name.clone(),
        claimed: node.claim.is_some(),
        node_pool: pool_of(node).map(str::to_owned),
        phase: node.phase,
        instance_type: label(labels::INSTANCE_TYPE),
        zone: label(labels::ZONE),
        capacity_type: label(labels::CAPACITY_TYPE),
        price_per_hour: price,
        cpu: [asked.cpu, free.cpu],
        memory: [asked.memory, free.memory],
        pods,
        created_at: node.created_at,
    }
}

fn requests_of<'a>(snapshot: &'a Snapshot, pod: &Pod) -> &'a Resources {
    &snapshot.shapes[index(pod.shape.0)].requests
}

pub(super) fn pods_on(snapshot: &Snapshot, key: &str) -> Option<PodsOnNode> {
    let position = snapshot.nodes.iter().position(|node| node.key == key)?;
    let bound = snapshot
        .pods
        .iter()
        .filter(|pod| matches!(pod.placement, Placement::Bound(id) if index(id.0) == position));
    let pods = bound.clone().take(LISTED).map(|pod| {
        let requests = requests_of(snapshot, pod);
        PodOnNode {
            namespace: pod.namespace.to_string(),
            name: pod.name.to_string(),
            cpu: requests.cpu,
            memory: requests.memory,
            daemon: pod.daemon,
        }
    });
    Some(PodsOnNode { count: bound.count(), pods: pods.collect() })
}
