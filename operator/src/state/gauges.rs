//! Gauges that follow from the state, computed when they are scraped.

pub mod conditions;
pub mod transitions;

use std::collections::BTreeMap;

use jiff::Timestamp;
use parking_lot::Mutex;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;
use tenon_crds::labels;
use tenon_planner::resources::Resources;

use super::State;
use super::cluster::{Cluster, name};
use super::resources::{amount, from_list};
use crate::clock::Clock;
use crate::watch::wire::{Node, created_at};

/// Name and help of each gauge.
const GAUGES: [(&str, &str); 11] = [
    ("karpenter_cluster_state_synced", "1 when the cluster's state is complete"),
    (
        "karpenter_cluster_state_unsynced_time_seconds",
        "For how long the cluster's state has not been complete",
    ),
    ("karpenter_cluster_state_node_count", "Nodes in the cluster's state"),
    ("karpenter_cluster_utilization_percent", "Share of what nodes have that their pods request"),
    ("karpenter_nodepools_usage", "What the nodes of a nodepool have together"),
    ("karpenter_nodepools_limit", "What the nodes of a nodepool may have together"),
    ("karpenter_nodes_allocatable", "What pods may use of a node"),
    ("karpenter_nodes_system_overhead", "What a node keeps for itself"),
    ("karpenter_nodes_total_pod_requests", "What the pods of a node request"),
    ("karpenter_nodes_total_daemon_requests", "What the daemons of a node request"),
    ("karpenter_nodes_current_lifetime_seconds", "Age of a node"),
];

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

/// Labels and value.
type Sample = (Vec<(String, String)>, f64);

/// Samples by the gauge's name.
#[derive(Default)]
struct Samples(BTreeMap<&'static str, Vec<Sample>>);

impl Samples {
    fn add(&mut self, gauge: &'static str, labels: Vec<(String, String)>, value: f64) {
        self.0.entry(gauge).or_default().push((labels, value));
    }

    /// One sample per resource, CPU in cores.
    fn amounts(&mut self, gauge: &'static str, labels: &[(String, String)], amounts: &Resources) {
        for (resource, amount) in amounts.iter() {
            let mut labels = labels.to_vec();
            labels.push(pair("resource_type", resource));
            self.add(gauge, labels, base(resource, amount));
        }
    }
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
}

impl Collector for Gauges {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let now = self.clock.now();
        let mut samples = Samples::default();
        {
            let state = self.state.read();
            let synced = state.is_synced();
            samples.add("karpenter_cluster_state_synced", vec![], f64::from(u8::from(synced)));
            let unsynced = self.unsynced_seconds(synced, now);
            samples.add("karpenter_cluster_state_unsynced_time_seconds", vec![], unsynced);
            let n_nodes = i64::try_from(state.nodes().count()).unwrap_or(i64::MAX);
            samples.add("karpenter_cluster_state_node_count", vec![], base("nodes", n_nodes));
            node_pools(&state, &mut samples);
            nodes(&state, now, &mut samples);
        }
        for (name, help) in GAUGES {
            gauge(&mut encoder, name, help, samples.0.get(name).map_or(&[], Vec::as_slice))?;
        }
        Ok(())
    }
}

fn node_pools(state: &Cluster, samples: &mut Samples) {
    for pool in state.pools() {
        let pool_name = name(&pool.metadata);
        let labels =
            |resource: &str| vec![pair("resource_type", resource), pair("nodepool", &pool_name)];
        let (used, n_nodes) = state.pool_usage(&pool_name);
        for (resource, amount) in used.iter() {
            samples.add("karpenter_nodepools_usage", labels(resource), base(resource, amount));
        }
        samples.add("karpenter_nodepools_usage", labels("nodes"), base("nodes", n_nodes));
        for (resource, &limit) in pool.spec.limits.iter().flatten() {
            let limit = base(resource, amount(resource, limit));
            samples.add("karpenter_nodepools_limit", labels(resource), limit);
        }
    }
}

fn nodes(state: &Cluster, now: Timestamp, samples: &mut Samples) {
    let mut there = Resources::default();
    let mut asked = Resources::default();
    for node in state.nodes() {
        let labels = node_labels(state, node);
        let allocatable = from_list(&node.status.allocatable);
        let mut overhead = from_list(&node.status.capacity);
        overhead.subtract(&allocatable);
        samples.amounts("karpenter_nodes_allocatable", &labels, &allocatable);
        samples.amounts("karpenter_nodes_system_overhead", &labels, &overhead);
        let age = now.duration_since(created_at(&node.metadata)).as_secs_f64();
        samples.add("karpenter_nodes_current_lifetime_seconds", labels.clone(), age);
        there.add(&allocatable);
        if let Some(usage) = state.usage(node.name()) {
            samples.amounts("karpenter_nodes_total_pod_requests", &labels, &usage.requests);
            let daemons = &usage.daemon_requests;
            samples.amounts("karpenter_nodes_total_daemon_requests", &labels, daemons);
            asked.add(&usage.requests);
        }
    }
    for (resource, amount) in there.iter().filter(|(_, amount)| *amount > 0) {
        let share = 100.0 * base(resource, asked.get(resource)) / base(resource, amount);
        let labels = vec![pair("resource_type", resource)];
        samples.add("karpenter_cluster_utilization_percent", labels, share);
    }
}

/// Name, well-known labels (the part of the key after the slash), phase, and whether a NodeClaim is behind it.
fn node_labels(state: &Cluster, node: &Node) -> Vec<(String, String)> {
    let managed = state.claim_of(node).is_some();
    let mut all = vec![
        pair("node_name", node.name()),
        pair("nodepool", node.label(labels::NODEPOOL).unwrap_or_default()),
        pair("managed", if managed { "true" } else { "false" }),
    ];
    for key in [
        labels::ZONE,
        labels::REGION,
        labels::INSTANCE_TYPE,
        labels::ARCH,
        labels::OS,
        labels::CAPACITY_TYPE,
    ] {
        let short = key.rsplit('/').next().unwrap_or(key).replace('-', "_");
        all.push(pair(&short, node.label(key).unwrap_or_default()));
    }
    all
}

fn pair(name: &str, value: &str) -> (String, String) {
    (name.to_owned(), value.to_owned())
}

fn gauge(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    samples: &[Sample],
) -> Result<(), std::fmt::Error> {
    if samples.is_empty() {
        return Ok(());
    }
    let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    for (labels, value) in samples {
        let value = ConstGauge::new(*value);
        if labels.is_empty() {
            // A sample without labels is the metric itself; it is the only one then.
            return value.encode(metric);
        }
        value.encode(metric.encode_family(labels)?)?;
    }
    Ok(())
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
        metrics.collector(Box::new(Gauges::new(state, clock)));
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
