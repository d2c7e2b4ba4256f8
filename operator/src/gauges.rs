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
use crate::metrics::exposition::{Exposed, Exposition, Gone, LabelText, Number, Type};
use crate::metrics::family::Live;
use crate::state::State;
use crate::state::cluster::{Cluster, label, name};
use crate::state::resources::{amount, from_list};
use tenon_state::wire::{Node, created_at};

/// Objects that are looked at while the state is locked once.
const PAGE: usize = 200;

/// Name and help of each gauge.
const GAUGES: [(&str, &str); 13] = [
    ("karpenter_cluster_state_synced", "1 when the cluster's state is complete"),
    (
        "karpenter_cluster_state_unsynced_time_seconds",
        "Time for which the cluster's state has been incomplete",
    ),
    ("karpenter_cluster_state_node_count", "Number of nodes in the cluster's state"),
    (
        "karpenter_cluster_utilization_percent",
        "Share of the nodes' resources that their pods \
         request",
    ),
    ("karpenter_nodepools_usage", "Total resources of the nodes of a nodepool"),
    ("karpenter_nodepools_limit", "Limit of the total resources of the nodes of a nodepool"),
    ("karpenter_nodes_allocatable", "Allocatable resources of a node"),
    ("karpenter_nodes_system_overhead", "Resources that a node reserves for the system"),
    ("karpenter_nodes_total_pod_requests", "Requests of the pods of a node"),
    ("karpenter_nodes_total_daemon_requests", "Requests of the daemons of a node"),
    ("karpenter_nodes_current_lifetime_seconds", "Age of a node"),
    ("karpenter_nodes_total_pod_limits", "Limits of the pods of a node"),
    ("karpenter_nodes_total_daemon_limits", "Limits of the daemons of a node"),
];

/// Where each of them stands in [`GAUGES`].
const SYNCED: usize = 0;
const UNSYNCED: usize = 1;
const NODE_COUNT: usize = 2;
const UTILIZATION: usize = 3;
const USAGE: usize = 4;
const LIMIT: usize = 5;
const ALLOCATABLE: usize = 6;
const OVERHEAD: usize = 7;
const POD_REQUESTS: usize = 8;
const DAEMON_REQUESTS: usize = 9;
const LIFETIME: usize = 10;
const POD_LIMITS: usize = 11;
const DAEMON_LIMITS: usize = 12;

/// The names of the gauges.
pub const NAMES: [&str; GAUGES.len()] = {
    let mut names = [""; GAUGES.len()];
    let mut index = 0;
    while index < GAUGES.len() {
        names[index] = GAUGES[index].0;
        index += 1;
    }
    names
};

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
        gauge: usize,
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
    gauge: usize,
    begun: bool,
}

impl Family {
    fn new(gauge: usize) -> Self {
        Self { gauge, begun: false }
    }

    fn add(&mut self, labels: &LabelText, value: f64, out: &mut Exposition<'_>) {
        let (name, help) = GAUGES[self.gauge];
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

    use super::*;
    use crate::metrics::Metrics;
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
}
