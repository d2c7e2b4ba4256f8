//! Gauges that follow from the state, computed when they are scraped.
//!
//! They are written while the state is walked, a page at a time: no list of samples comes to be in
//! between, the state is locked for a page only, and nobody waits for a scraper meanwhile.

pub mod conditions;
pub mod pods;
pub mod transitions;

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use parking_lot::Mutex;
use tenon_crds::labels;
use tenon_planner::resources::Resources;

use crate::clock::Clock;
use crate::metrics::declare::Declared;
use crate::metrics::exposition::{Exposed, Exposition, Gone, LabelText, Number, Type};
use crate::metrics::family::Live;
use crate::state::State;
use crate::state::cluster::{Cluster, label, name};
use crate::state::resources::{amount, from_list};
use tenon_state::wire::{Node, created_at};

/// Objects that are looked at while the state is locked once.
const PAGE: usize = 200;

/// Labels of what a node has of a resource; the well-known ones are named by the part of their key
/// after the slash.
const OF_RESOURCE: &[&str] = &[
    "node_name",
    "nodepool",
    "managed",
    "zone",
    "zone_id",
    "region",
    "instance_type",
    "arch",
    "os",
    "capacity_type",
    "resource_type",
];

/// Those of a node itself.
const OF_NODE: &[&str] = OF_RESOURCE.split_at(OF_RESOURCE.len() - 1).0;

const SYNCED: Declared = Declared {
    name: "karpenter_cluster_state_synced",
    labels: &[],
    help: "1 when the cluster's state is complete",
};
const UNSYNCED: Declared = Declared {
    name: "karpenter_cluster_state_unsynced_time_seconds",
    labels: &[],
    help: "Time for which the cluster's state has been incomplete",
};
const NODE_COUNT: Declared = Declared {
    name: "karpenter_cluster_state_node_count",
    labels: &[],
    help: "Number of nodes in the cluster's state",
};
const UTILIZATION: Declared = Declared {
    name: "karpenter_cluster_utilization_percent",
    labels: &["resource_type"],
    help: "Share of the nodes' resources that their pods request",
};
const USAGE: Declared = Declared {
    name: "karpenter_nodepools_usage",
    labels: &["resource_type", "nodepool"],
    help: "Total resources of the nodes of a nodepool",
};
const LIMIT: Declared = Declared {
    name: "karpenter_nodepools_limit",
    labels: &["resource_type", "nodepool"],
    help: "Limit of the total resources of the nodes of a nodepool",
};
const ALLOCATABLE: Declared = Declared {
    name: "karpenter_nodes_allocatable",
    labels: OF_RESOURCE,
    help: "Allocatable resources of a node",
};
const OVERHEAD: Declared = Declared {
    name: "karpenter_nodes_system_overhead",
    labels: OF_RESOURCE,
    help: "Resources that a node reserves for the system",
};
const POD_REQUESTS: Declared = Declared {
    name: "karpenter_nodes_total_pod_requests",
    labels: OF_RESOURCE,
    help: "Requests of the pods of a node",
};
const DAEMON_REQUESTS: Declared = Declared {
    name: "karpenter_nodes_total_daemon_requests",
    labels: OF_RESOURCE,
    help: "Requests of the daemons of a node",
};
const LIFETIME: Declared = Declared {
    name: "karpenter_nodes_current_lifetime_seconds",
    labels: OF_NODE,
    help: "Age of a node",
};
const POD_LIMITS: Declared = Declared {
    name: "karpenter_nodes_total_pod_limits",
    labels: OF_RESOURCE,
    help: "Limits of the pods of a node",
};
const DAEMON_LIMITS: Declared = Declared {
    name: "karpenter_nodes_total_daemon_limits",
    labels: OF_RESOURCE,
    help: "Limits of the daemons of a node",
};

/// All of them.
#[cfg(test)]
pub(crate) const DECLARED: [Declared; 13] = [
    SYNCED,
    UNSYNCED,
    NODE_COUNT,
    UTILIZATION,
    USAGE,
    LIMIT,
    ALLOCATABLE,
    OVERHEAD,
    POD_REQUESTS,
    DAEMON_REQUESTS,
    LIFETIME,
    POD_LIMITS,
    DAEMON_LIMITS,
];

/// Computes the gauges.
#[derive(Debug)]
pub struct Gauges {
    state: State,
    clock: Clock,
    /// Since when scrapes have found the state incomplete.
    unsynced_since: Mutex<Option<Timestamp>>,
}

impl Gauges {
    /// Of this state.
    pub fn new(state: State, clock: Clock) -> Self {
        Self { state, clock, unsynced_since: Mutex::default() }
    }

    fn unsynced_seconds(&self, synced: bool, now: Timestamp) -> f64 {
        let mut since = self.unsynced_since.lock();
        if synced {
            *since = None;
            return 0.0;
        }
        now.duration_since(*since.get_or_insert(now)).as_secs_f64()
    }

    /// Writes the amounts that nodes have in one respect.
    fn amounts(
        &self,
        gauge: Declared,
        nodes: &[Arc<Node>],
        out: &mut Exposition<'_>,
        amounts: impl Fn(&Cluster, &Node) -> Resources,
    ) -> Result<(), Gone> {
        let (mut family, mut labels) = (Family::new(gauge), LabelText::default());
        for page in nodes.chunks(PAGE) {
            {
                let state = self.state.read();
                for node in page {
                    labels.clear();
                    node_labels(&state, node, &mut labels);
                    family.amounts(&mut labels, &amounts(&state, node), out);
                }
            }
            out.rest()?;
        }
        Ok(())
    }

    fn lifetimes(
        &self,
        nodes: &[Arc<Node>],
        now: Timestamp,
        out: &mut Exposition<'_>,
    ) -> Result<(), Gone> {
        let (mut family, mut labels) = (Family::new(LIFETIME), LabelText::default());
        for page in nodes.chunks(PAGE) {
            {
                let state = self.state.read();
                for node in page {
                    labels.clear();
                    node_labels(&state, node, &mut labels);
                    let age = now.duration_since(created_at(&node.metadata)).as_secs_f64();
                    family.add(&labels, age, out);
                }
            }
            out.rest()?;
        }
        Ok(())
    }
}

impl Exposed for Gauges {
    fn expose(&self, out: &mut Exposition<'_>) -> Result<(), Gone> {
        let now = self.clock.now();
        let mut labels = LabelText::default();
        let (synced, nodes, pools) = {
            let state = self.state.read();
            let nodes: Vec<Arc<Node>> = state.nodes().cloned().collect();
            (state.is_synced(), nodes, pools(&state))
        };
        let unsynced = self.unsynced_seconds(synced, now);
        let n_nodes = i64::try_from(nodes.len()).unwrap_or(i64::MAX);
        let values = [f64::from(u8::from(synced)), unsynced, base("nodes", n_nodes)];
        for (gauge, value) in [SYNCED, UNSYNCED, NODE_COUNT].into_iter().zip(values) {
            Family::new(gauge).add(&labels, value, out);
        }
        self.utilization(&nodes, out)?;
        for (gauge, amounts) in [(USAGE, &pools.usage), (LIMIT, &pools.limits)] {
            let mut family = Family::new(gauge);
            for ((pool, resource), amount) in amounts {
                labels.clear();
                labels.push("resource_type", resource);
                labels.push("nodepool", pool);
                family.add(&labels, base(resource, *amount), out);
            }
            out.rest()?;
        }
        self.amounts(ALLOCATABLE, &nodes, out, |_, node| from_list(&node.status.allocatable))?;
        self.amounts(OVERHEAD, &nodes, out, |_, node| {
            let mut overhead = from_list(&node.status.capacity);
            overhead.subtract(&from_list(&node.status.allocatable));
            overhead
        })?;
        self.amounts(POD_REQUESTS, &nodes, out, |state, node| {
            state.usage(node.name()).map(|usage| usage.requests.clone()).unwrap_or_default()
        })?;
        self.amounts(DAEMON_REQUESTS, &nodes, out, |state, node| {
            state.usage(node.name()).map(|usage| usage.daemon_requests.clone()).unwrap_or_default()
        })?;
        self.amounts(POD_LIMITS, &nodes, out, |state, node| {
            state.usage(node.name()).map(|usage| usage.limits.clone()).unwrap_or_default()
        })?;
        self.amounts(DAEMON_LIMITS, &nodes, out, |state, node| {
            state.usage(node.name()).map(|usage| usage.daemon_limits.clone()).unwrap_or_default()
        })?;
        self.lifetimes(&nodes, now, out)
    }
}

impl Gauges {
    /// The share of what all nodes have that is asked for.
    fn utilization(&self, nodes: &[Arc<Node>], out: &mut Exposition<'_>) -> Result<(), Gone> {
        let (mut there, mut asked) = (Resources::default(), Resources::default());
        for page in nodes.chunks(PAGE) {
            let state = self.state.read();
            for node in page {
                there.add(&from_list(&node.status.allocatable));
                if let Some(usage) = state.usage(node.name()) {
                    asked.add(&usage.requests);
                }
            }
        }
        let (mut family, mut labels) = (Family::new(UTILIZATION), LabelText::default());
        for (resource, amount) in there.iter().filter(|(_, amount)| *amount > 0) {
            labels.clear();
            labels.push("resource_type", resource);
            let share = 100.0 * base(resource, asked.get(resource)) / base(resource, amount);
            family.add(&labels, share, out);
        }
        out.rest()
    }
}

/// A gauge that is being written: what it is has to be said before its first sample.
struct Family {
    gauge: Declared,
    begun: bool,
}

impl Family {
    fn new(gauge: Declared) -> Self {
        Self { gauge, begun: false }
    }

    fn add(&mut self, labels: &LabelText, value: f64, out: &mut Exposition<'_>) {
        let Declared { name, help, .. } = self.gauge;
        if !std::mem::replace(&mut self.begun, true) {
            out.family(name, Type::Gauge, help);
        }
        out.sample(name, "", labels, Number::Real(value));
    }

    /// One sample per resource, CPU in cores.
    fn amounts(&mut self, labels: &mut LabelText, amounts: &Resources, out: &mut Exposition<'_>) {
        let own = labels.len();
        for (resource, amount) in amounts.iter() {
            labels.push("resource_type", resource);
            self.add(labels, base(resource, amount), out);
            labels.truncate(own);
        }
    }
}

/// Amounts by NodePool and resource.
type Amounts = BTreeMap<(String, String), i64>;

/// What the nodes of NodePools have together, and may have.
#[derive(Debug, Default)]
struct Pools {
    usage: Amounts,
    limits: Amounts,
}

/// Looks at each NodeClaim once, however many NodePools there are.
fn pools(state: &Cluster) -> Pools {
    let mut used: BTreeMap<String, (Resources, i64)> =
        state.pools().map(|pool| (name(&pool.metadata), Default::default())).collect();
    for claim in state.claims().filter(|claim| !state.is_going(claim)) {
        let pool = label(claim, labels::NODEPOOL);
        if let Some((sum, n_nodes)) = pool.and_then(|pool| used.get_mut(pool)) {
            sum.add(&state.capacity(claim));
            *n_nodes += 1;
        }
    }
    let mut pools = Pools::default();
    for (pool, (sum, n_nodes)) in used {
        let amounts = sum.iter().map(|(resource, amount)| (resource.to_owned(), amount));
        let amounts = amounts.chain([("nodes".to_owned(), n_nodes)]);
        pools.usage.extend(amounts.map(|(resource, amount)| ((pool.clone(), resource), amount)));
    }
    for pool in state.pools() {
        for (resource, &limit) in pool.spec.limits.iter().flatten() {
            let key = (name(&pool.metadata), resource.clone());
            pools.limits.insert(key, amount(resource, limit));
        }
    }
    pools
}

/// Name, well-known labels (the part of the key after the slash), and whether a NodeClaim is behind
/// it.
fn node_labels(state: &Cluster, node: &Node, text: &mut LabelText) {
    const WELL_KNOWN: [(&str, &str); 7] = [
        ("zone", labels::ZONE),
        ("zone_id", labels::aws::ZONE_ID),
        ("region", labels::REGION),
        ("instance_type", labels::INSTANCE_TYPE),
        ("arch", labels::ARCH),
        ("os", labels::OS),
        ("capacity_type", labels::CAPACITY_TYPE),
    ];
    let managed = state.claim_of(node).is_some();
    text.push("node_name", node.name());
    text.push("nodepool", node.label(labels::NODEPOOL).unwrap_or_default());
    text.push("managed", if managed { "true" } else { "false" });
    for (name, key) in WELL_KNOWN.iter().filter(|(_, key)| state.rules().is_well_known(key)) {
        text.push(name, node.label(key).unwrap_or_default());
    }
}

/// What metrics are still to tell of; `None` as long as not everything was listed.
pub fn live(state: &State) -> Option<Live> {
    let state = state.read();
    if !state.has_listed_all() {
        return None;
    }
    let of_pools = state.pools().map(|pool| &pool.spec.template.spec.node_class_ref);
    let of_claims = state.claims().map(|claim| &claim.spec.node_class_ref);
    let mut live = Live::default();
    for class in of_pools.chain(of_claims) {
        if !live.node_classes.contains(&class.name) {
            live.node_classes.insert(class.name.clone());
        }
    }
    live.node_pools = state.pools().map(|pool| name(&pool.metadata)).collect();
    Some(live)
}

/// CPU in cores, everything else in its own unit.
#[expect(clippy::cast_precision_loss, reason = "a gauge is a float")]
fn base(resource: &str, amount: i64) -> f64 {
    if resource == "cpu" { amount as f64 / 1000.0 } else { amount as f64 }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tenon_crds::labels::LabelRules;
    use tenon_state::node_class;

    use super::*;
    use crate::metrics::Metrics;
    use crate::metrics::declare::assert_exposed_as_declared;
    use crate::state::change::{Change, Object};

    #[tokio::test(start_paused = true)]
    async fn nodes_tell_what_they_have_keep_and_how_old_they_are() {
        let mut cluster = Cluster::new(&[], LabelRules::core());
        let node = serde_json::from_value(json!({
            "metadata": {
                "name": "n", "creationTimestamp": "2026-11-20T00:00:00Z",
                "labels": {"topology.kubernetes.io/zone": "a", "karpenter.sh/capacity-type": "spot"},
            },
            "status": {"capacity": {"cpu": "4"}, "allocatable": {"cpu": "3500m"}},
        }));
        cluster.apply(Change::Applied(Object::Node(Box::new(node.unwrap()))));
        let (state, _task) = State::new(cluster);
        let metrics = Metrics::new();
        let clock = Clock::anchored("2026-11-20T01:00:00Z".parse().unwrap());
        metrics.expose(Arc::new(Gauges::new(state, clock)));
        metrics.encode().unwrap();
        tokio::time::advance(std::time::Duration::from_secs(30)).await;
        let text = metrics.encode().unwrap();
        let labels = r#"node_name="n",nodepool="",managed="false",zone="a",region="",instance_type="",arch="",os="",capacity_type="spot""#;
        for line in [
            format!(r#"karpenter_nodes_allocatable{{{labels},resource_type="cpu"}} 3.5"#),
            format!(r#"karpenter_nodes_system_overhead{{{labels},resource_type="cpu"}} 0.5"#),
            format!("karpenter_nodes_current_lifetime_seconds{{{labels}}} 3630.0"),
            r#"karpenter_cluster_utilization_percent{resource_type="cpu"} 0.0"#.to_owned(),
            "karpenter_cluster_state_unsynced_time_seconds 30.0".to_owned(),
        ] {
            assert!(text.lines().any(|got| got == line), "no line {line} in\n{text}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn all_gauges_have_the_labels_that_are_declared() {
        let mut cluster = Cluster::new(&[node_class::EC2], LabelRules::aws());
        let node = serde_json::from_value(json!({
            "metadata": {"name": "n", "labels": {"karpenter.sh/nodepool": "p"}},
            "status": {"capacity": {"cpu": "4"}, "allocatable": {"cpu": "3500m"}},
        }));
        cluster.apply(Change::Applied(Object::Node(Box::new(node.unwrap()))));
        let pool = serde_json::from_value(json!({
            "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "p"},
            "spec": {
                "limits": {"cpu": "10"},
                "template": {"spec": {
                    "requirements": [],
                    "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "c"},
                }},
            },
        }));
        cluster.apply(Change::Applied(Object::NodePool(Box::new(pool.unwrap()))));
        for (name, kind) in [("web", "ReplicaSet"), ("agent", "DaemonSet")] {
            let cpu = json!({"cpu": "1"});
            let pod = serde_json::from_value(json!({
                "metadata": {
                    "namespace": "default", "name": name, "uid": name,
                    "ownerReferences": [
                        {"apiVersion": "apps/v1", "kind": kind, "name": name, "uid": "o", "controller": true},
                    ],
                },
                "spec": {
                    "nodeName": "n",
                    "containers": [{"name": "c", "resources": {"requests": cpu, "limits": cpu}}],
                },
                "status": {"phase": "Running"},
            }));
            cluster.apply(Change::Applied(Object::Pod(Box::new(pod.unwrap()))));
        }
        let (state, _task) = State::new(cluster);
        let metrics = Metrics::new();
        metrics.expose(Arc::new(Gauges::new(state, Clock::anchored(Timestamp::UNIX_EPOCH))));
        assert_exposed_as_declared(&metrics.encode().unwrap(), &DECLARED);
    }
}
