//! Gauges that follow from the state, computed when they are scraped.

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;
use tenon_planner::resources::Resources;

use super::State;
use super::cluster::name;
use super::resources::{amount, from_list};
use crate::clock::Clock;

/// Computes the gauges.
#[derive(Debug)]
pub struct Gauges {
    state: State,
    clock: Clock,
}

impl Gauges {
    /// Of this state.
    pub fn new(state: State, clock: Clock) -> Self {
        Self { state, clock }
    }
}

type Sample = (Vec<(&'static str, String)>, f64);

impl Collector for Gauges {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let _ = self.clock;
        let state = self.state.read();
        let synced = f64::from(u8::from(state.is_synced()));
        let n_nodes = state.nodes().count();
        let mut usage = Vec::new();
        let mut limits = Vec::new();
        for pool in state.pools() {
            let pool_name = name(&pool.metadata);
            let sample = |resource: &str, value: f64| -> Sample {
                (
                    vec![("resource_type", resource.to_owned()), ("nodepool", pool_name.clone())],
                    value,
                )
            };
            let (used, n_nodes) = state.pool_usage(&pool_name);
            usage.extend(
                used.iter().map(|(resource, amount)| sample(resource, base(resource, amount))),
            );
            usage.push(sample("nodes", base("nodes", n_nodes)));
            for (resource, &limit) in pool.spec.limits.iter().flatten() {
                limits.push(sample(resource, base(resource, amount(resource, limit))));
            }
        }
        let mut allocatable = Vec::new();
        let mut requested = Vec::new();
        let mut daemons = Vec::new();
        for node in state.nodes() {
            let labels = |resource: &str| {
                vec![
                    ("node_name", node.name().to_owned()),
                    (
                        "nodepool",
                        node.label(tenon_crds::labels::NODEPOOL).unwrap_or_default().to_owned(),
                    ),
                    ("resource_type", resource.to_owned()),
                ]
            };
            let samples = |amounts: &Resources| -> Vec<Sample> {
                amounts.iter().map(|(r, amount)| (labels(r), base(r, amount))).collect()
            };
            allocatable.extend(samples(&from_list(&node.status.allocatable)));
            if let Some(usage) = state.usage(node.name()) {
                requested.extend(samples(&usage.requests));
                daemons.extend(samples(&usage.daemon_requests));
            }
        }
        drop(state);
        #[expect(clippy::cast_precision_loss, reason = "there are fewer nodes than 2^53")]
        let count = n_nodes as f64;
        for (name, help, samples) in [
            (
                "karpenter_cluster_state_synced",
                "1 when the cluster's state is complete",
                vec![(vec![], synced)],
            ),
            (
                "karpenter_cluster_state_node_count",
                "Nodes in the cluster's state",
                vec![(vec![], count)],
            ),
            ("karpenter_nodepools_usage", "What the nodes of a nodepool have together", usage),
            ("karpenter_nodepools_limit", "What the nodes of a nodepool may have together", limits),
            ("karpenter_nodes_allocatable", "What pods may use of a node", allocatable),
            ("karpenter_nodes_total_pod_requests", "What the pods of a node request", requested),
            (
                "karpenter_nodes_total_daemon_requests",
                "What the daemons of a node request",
                daemons,
            ),
        ] {
            gauge(&mut encoder, name, help, &samples)?;
        }
        Ok(())
    }
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
