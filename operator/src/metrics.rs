//! Counters, histograms and summaries of the operator, under upstream's names.
//!
//! [`Metrics`] owns the registry. Parts that measure something ask it for a family once ([`Metrics::counters`], …), with the names of the labels, and
//! count by the values of the labels. What all parts share stands as a field in [`Core`], which `Metrics` derefs to. Gauges that follow from state are
//! not stored: they are computed when scraped, by a [`Collector`] ([`Metrics::collector`]).

pub mod summary;

use std::ops::Deref;
use std::sync::Arc;

use parking_lot::Mutex;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{EncodeLabelSet, LabelSetEncoder};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::{Family, MetricConstructor};
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use self::summary::Summaries;

/// Buckets of durations in seconds (upstream's).
pub const DURATION_BUCKETS: &[f64] = &[
    0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8, 0.9,
    1.0, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 15.0, 20.0,
    25.0, 30.0, 40.0, 50.0, 60.0, 120.0, 150.0, 300.0, 450.0, 600.0,
];

/// Buckets of node lifetimes in seconds: 15 minutes to 30 days.
const LIFETIME_BUCKETS: &[f64] = &[
    900.0,
    1800.0,
    2700.0,
    3600.0,
    7200.0,
    14_400.0,
    21_600.0,
    28_800.0,
    36_000.0,
    43_200.0,
    57_600.0,
    64_800.0,
    72_000.0,
    86_400.0,
    172_800.0,
    259_200.0,
    432_000.0,
    864_000.0,
    1_296_000.0,
    1_728_000.0,
    2_160_000.0,
    2_592_000.0,
];

/// 1·2^k seconds.
const TERMINATION_BUCKETS: &[f64] =
    &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0];

/// The names and values of a metric's labels; the names are the family's.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Labels<const N: usize> {
    names: [&'static str; N],
    values: [String; N],
}

impl<const N: usize> EncodeLabelSet for Labels<N> {
    fn encode(&self, encoder: &mut LabelSetEncoder<'_>) -> Result<(), std::fmt::Error> {
        for pair in self.names.iter().zip(&self.values) {
            use prometheus_client::encoding::EncodeLabel as _;
            (*pair.0, pair.1.as_str()).encode(encoder.encode_label())?;
        }
        Ok(())
    }
}

fn labels<const N: usize>(names: [&'static str; N], values: [&str; N]) -> Labels<N> {
    Labels { names, values: values.map(str::to_owned) }
}

/// A counter per combination of label values. Clones share their values.
#[derive(Clone, Debug)]
pub struct Counters<const N: usize> {
    names: [&'static str; N],
    family: Family<Labels<N>, Counter>,
}

impl<const N: usize> Counters<N> {
    /// Counts one; `values` in the order of the label names.
    pub fn inc(&self, values: [&str; N]) {
        self.add(values, 1);
    }

    /// Counts `n`.
    pub fn add(&self, values: [&str; N], n: u64) {
        self.family.get_or_create(&labels(self.names, values)).inc_by(n);
    }

    /// The count.
    pub fn get(&self, values: [&str; N]) -> u64 {
        self.family.get(&labels(self.names, values)).map_or(0, |counter| counter.get())
    }
}

/// A gauge per combination of label values, for what does not follow from state. Clones share their values.
#[derive(Clone, Debug)]
pub struct Gauges<const N: usize> {
    names: [&'static str; N],
    family: Family<Labels<N>, Gauge<f64, std::sync::atomic::AtomicU64>>,
}

impl<const N: usize> Gauges<N> {
    /// Sets it; `values` in the order of the label names.
    pub fn set(&self, values: [&str; N], value: f64) {
        self.family.get_or_create(&labels(self.names, values)).set(value);
    }

    /// Forgets one combination of label values.
    pub fn remove(&self, values: [&str; N]) {
        self.family.remove(&labels(self.names, values));
    }

    /// Forgets all.
    pub fn clear(&self) {
        self.family.clear();
    }
}

/// A histogram per combination of label values. Clones share their values.
#[derive(Clone, Debug)]
pub struct Histograms<const N: usize> {
    names: [&'static str; N],
    family: Family<Labels<N>, Histogram, Buckets>,
}

impl<const N: usize> Histograms<N> {
    /// Adds an observation, in the unit that the metric's name says; `values` in the order of the label names.
    pub fn observe(&self, values: [&str; N], value: f64) {
        self.family.get_or_create(&labels(self.names, values)).observe(value);
    }
}

/// Makes the histograms of a family.
#[derive(Clone, Copy, Debug)]
struct Buckets(&'static [f64]);

impl MetricConstructor<Histogram> for Buckets {
    fn new_metric(&self) -> Histogram {
        Histogram::new(self.0.iter().copied())
    }
}

/// Handle to the registry; clones share it.
#[derive(Clone, Debug)]
pub struct Metrics {
    registry: Arc<Mutex<Registry>>,
    core: Arc<Core>,
}

/// What several parts of the operator count. Labels are given in the order of the names in each comment.
#[derive(Debug)]
pub struct Core {
    /// `karpenter_nodeclaims_created_total{reason,nodepool,min_values_relaxed}`
    pub nodeclaims_created: Counters<3>,
    /// `karpenter_nodeclaims_terminated_total{nodepool,capacity_type,zone}`
    pub nodeclaims_terminated: Counters<3>,
    /// `karpenter_nodeclaims_disrupted_total{reason,nodepool,capacity_type,consolidation_policy,termination_mode}`
    pub nodeclaims_disrupted: Counters<5>,
    /// `karpenter_nodeclaims_instance_termination_duration_seconds{nodepool}`
    pub instance_termination_duration: Histograms<1>,
    /// `karpenter_nodeclaims_termination_duration_seconds{nodepool}`
    pub nodeclaim_termination_duration: Histograms<1>,
    /// `karpenter_nodes_created_total{nodepool,zone}`
    pub nodes_created: Counters<2>,
    /// `karpenter_nodes_terminated_total{nodepool,zone}`
    pub nodes_terminated: Counters<2>,
    /// `karpenter_nodes_drained_total{nodepool}`
    pub nodes_drained: Counters<1>,
    /// `karpenter_nodes_termination_duration_seconds{nodepool}`
    pub node_termination_duration: Summaries<1>,
    /// `karpenter_nodes_lifetime_duration_seconds{nodepool}`
    pub node_lifetime: Histograms<1>,
    /// `karpenter_pods_eviction_requests_total{code}`
    pub eviction_requests: Counters<1>,
    /// `karpenter_pods_drained_total{reason}`
    pub pods_drained: Counters<1>,
    /// `karpenter_pods_disruption_initiated_total{reason,nodepool,capacity_type,consolidation_policy,termination_mode}`
    pub pods_disruption_initiated: Counters<5>,
    /// `karpenter_pods_scheduling_decision_duration_seconds{}`
    pub scheduling_decision_duration: Histograms<0>,
    /// `karpenter_pods_startup_duration_seconds{}`
    pub pod_startup_duration: Summaries<0>,
    /// `karpenter_pods_bound_duration_seconds{dynamic_resources}`
    pub pod_bound_duration: Histograms<1>,
    /// `karpenter_scheduler_scheduling_duration_seconds{controller}`
    pub scheduling_duration: Histograms<1>,
    /// `karpenter_scheduler_unschedulable_pods_count{controller}`
    pub unschedulable_pods: Gauges<1>,
    /// `karpenter_scheduler_ignored_pods_count{}`
    pub ignored_pods: Gauges<0>,
    /// `karpenter_voluntary_disruption_decision_evaluation_duration_seconds{reason,consolidation_type}`
    pub disruption_evaluation_duration: Histograms<2>,
    /// `karpenter_voluntary_disruption_decisions_total{decision,reason,consolidation_type}`
    pub disruption_decisions: Counters<3>,
    /// `karpenter_voluntary_disruption_decisions_by_nodepool_total{nodepool,decision,reason,consolidation_type}`
    pub disruption_decisions_by_nodepool: Counters<4>,
    /// `karpenter_voluntary_disruption_failed_validations_total{consolidation_type}`
    pub failed_validations: Counters<1>,
    /// `karpenter_voluntary_disruption_queue_failures_total{decision,reason,consolidation_type}`
    pub disruption_queue_failures: Counters<3>,
    /// `karpenter_cloudprovider_duration_seconds{controller,method,provider}`
    pub cloudprovider_duration: Histograms<3>,
    /// `karpenter_cloudprovider_errors_total{controller,method,provider,error,nodepool}`
    pub cloudprovider_errors: Counters<5>,
    /// `tenon_watch_invalid_objects_total{kind}`: objects that a watch skipped because they did not parse.
    pub invalid_objects: Counters<1>,
    /// `tenon_reconcile_errors_total{controller,error}`
    pub reconcile_errors: Counters<2>,
}

impl Deref for Metrics {
    type Target = Core;

    fn deref(&self) -> &Core {
        &self.core
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    /// An empty registry with the shared families.
    pub fn new() -> Self {
        let registry = Arc::new(Mutex::new(Registry::default()));
        let core = Arc::new(Core::new(&registry));
        Self { registry, core }
    }

    /// A family of counters. `name` is the full name without `_total`, which the encoder appends.
    pub fn counters<const N: usize>(
        &self,
        name: &'static str,
        help: &'static str,
        names: [&'static str; N],
    ) -> Counters<N> {
        counters(&self.registry, name, help, names)
    }

    /// A family of gauges. `name` is the full name.
    pub fn gauges<const N: usize>(
        &self,
        name: &'static str,
        help: &'static str,
        names: [&'static str; N],
    ) -> Gauges<N> {
        gauges(&self.registry, name, help, names)
    }

    /// A family of histograms. `name` is the full name, with its unit.
    pub fn histograms<const N: usize>(
        &self,
        name: &'static str,
        help: &'static str,
        names: [&'static str; N],
        buckets: &'static [f64],
    ) -> Histograms<N> {
        histograms(&self.registry, name, help, names, buckets)
    }

    /// Adds something that is computed at each scrape.
    pub fn collector(&self, collector: Box<dyn Collector>) {
        self.registry.lock().register_collector(collector);
    }

    /// All metrics in the OpenMetrics text format.
    pub fn encode(&self) -> Result<String, std::fmt::Error> {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.registry.lock())?;
        Ok(text)
    }
}

impl Core {
    fn new(registry: &Mutex<Registry>) -> Self {
        const DISRUPTED: [&str; 5] =
            ["reason", "nodepool", "capacity_type", "consolidation_policy", "termination_mode"];
        Self {
            nodeclaims_created: counters(
                registry,
                "karpenter_nodeclaims_created",
                "Number of nodeclaims created in total by Tenon",
                ["reason", "nodepool", "min_values_relaxed"],
            ),
            nodeclaims_terminated: counters(
                registry,
                "karpenter_nodeclaims_terminated",
                "Number of nodeclaims terminated in total by Tenon",
                ["nodepool", "capacity_type", "zone"],
            ),
            nodeclaims_disrupted: counters(
                registry,
                "karpenter_nodeclaims_disrupted",
                "Number of nodeclaims disrupted in total by Tenon",
                DISRUPTED,
            ),
            instance_termination_duration: histograms(
                registry,
                "karpenter_nodeclaims_instance_termination_duration_seconds",
                "From the deletion of a nodeclaim until its instance is gone",
                ["nodepool"],
                &TERMINATION_BUCKETS[..11],
            ),
            nodeclaim_termination_duration: histograms(
                registry,
                "karpenter_nodeclaims_termination_duration_seconds",
                "From the deletion of a nodeclaim until its finalizer is removed",
                ["nodepool"],
                TERMINATION_BUCKETS,
            ),
            nodes_created: counters(
                registry,
                "karpenter_nodes_created",
                "Number of nodes that registered",
                ["nodepool", "zone"],
            ),
            nodes_terminated: counters(
                registry,
                "karpenter_nodes_terminated",
                "Number of nodes terminated in total by Tenon",
                ["nodepool", "zone"],
            ),
            nodes_drained: counters(
                registry,
                "karpenter_nodes_drained",
                "Number of nodes drained in total by Tenon",
                ["nodepool"],
            ),
            node_termination_duration: summary::summaries(
                registry,
                "karpenter_nodes_termination_duration_seconds",
                "From the deletion of a node until its finalizer is removed",
                ["nodepool"],
            ),
            node_lifetime: histograms(
                registry,
                "karpenter_nodes_lifetime_duration_seconds",
                "Age of nodes when they went",
                ["nodepool"],
                LIFETIME_BUCKETS,
            ),
            eviction_requests: counters(
                registry,
                "karpenter_pods_eviction_requests",
                "Number of eviction requests by response code",
                ["code"],
            ),
            pods_drained: counters(
                registry,
                "karpenter_pods_drained",
                "Number of pods evicted or deleted while draining",
                ["reason"],
            ),
            pods_disruption_initiated: counters(
                registry,
                "karpenter_pods_disruption_initiated",
                "Number of pods that had to move because their node was disrupted",
                DISRUPTED,
            ),
            scheduling_decision_duration: histograms(
                registry,
                "karpenter_pods_scheduling_decision_duration_seconds",
                "From the first sight of a pending pod until the first decision about it",
                [],
                DURATION_BUCKETS,
            ),
            pod_startup_duration: summary::summaries(
                registry,
                "karpenter_pods_startup_duration_seconds",
                "From the creation of a pod until it runs",
                [],
            ),
            pod_bound_duration: histograms(
                registry,
                "karpenter_pods_bound_duration_seconds",
                "From the creation of a pod until it is bound",
                ["dynamic_resources"],
                DURATION_BUCKETS,
            ),
            scheduling_duration: histograms(
                registry,
                "karpenter_scheduler_scheduling_duration_seconds",
                "Duration of planning",
                ["controller"],
                DURATION_BUCKETS,
            ),
            unschedulable_pods: gauges(
                registry,
                "karpenter_scheduler_unschedulable_pods_count",
                "Pods that no node and no nodepool can take",
                ["controller"],
            ),
            ignored_pods: gauges(
                registry,
                "karpenter_scheduler_ignored_pods_count",
                "Pods whose specification can't be planned for",
                [],
            ),
            disruption_evaluation_duration: histograms(
                registry,
                "karpenter_voluntary_disruption_decision_evaluation_duration_seconds",
                "Duration of a disruption decision",
                ["reason", "consolidation_type"],
                DURATION_BUCKETS,
            ),
            disruption_decisions: counters(
                registry,
                "karpenter_voluntary_disruption_decisions",
                "Number of disruption decisions performed",
                ["decision", "reason", "consolidation_type"],
            ),
            disruption_decisions_by_nodepool: counters(
                registry,
                "karpenter_voluntary_disruption_decisions_by_nodepool",
                "Number of disruption decisions performed, by nodepool",
                ["nodepool", "decision", "reason", "consolidation_type"],
            ),
            failed_validations: counters(
                registry,
                "karpenter_voluntary_disruption_failed_validations",
                "Number of commands that were void when checked again",
                ["consolidation_type"],
            ),
            disruption_queue_failures: counters(
                registry,
                "karpenter_voluntary_disruption_queue_failures",
                "Number of commands that failed after they were started",
                ["decision", "reason", "consolidation_type"],
            ),
            cloudprovider_duration: histograms(
                registry,
                "karpenter_cloudprovider_duration_seconds",
                "Duration of cloud provider calls",
                ["controller", "method", "provider"],
                DURATION_BUCKETS,
            ),
            cloudprovider_errors: counters(
                registry,
                "karpenter_cloudprovider_errors",
                "Number of failed cloud provider calls",
                ["controller", "method", "provider", "error", "nodepool"],
            ),
            invalid_objects: counters(
                registry,
                "tenon_watch_invalid_objects",
                "Number of objects that were skipped because they did not parse",
                ["kind"],
            ),
            reconcile_errors: counters(
                registry,
                "tenon_reconcile_errors",
                "Number of reconciles that failed and are tried again",
                ["controller", "error"],
            ),
        }
    }
}

fn counters<const N: usize>(
    registry: &Mutex<Registry>,
    name: &'static str,
    help: &'static str,
    names: [&'static str; N],
) -> Counters<N> {
    let family = Family::default();
    registry.lock().register(name, help, family.clone());
    Counters { names, family }
}

fn gauges<const N: usize>(
    registry: &Mutex<Registry>,
    name: &'static str,
    help: &'static str,
    names: [&'static str; N],
) -> Gauges<N> {
    let family = Family::default();
    registry.lock().register(name, help, family.clone());
    Gauges { names, family }
}

fn histograms<const N: usize>(
    registry: &Mutex<Registry>,
    name: &'static str,
    help: &'static str,
    names: [&'static str; N],
    buckets: &'static [f64],
) -> Histograms<N> {
    let family = Family::new_with_constructor(Buckets(buckets));
    registry.lock().register(name, help, family.clone());
    Histograms { names, family }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_are_exposed_under_upstreams_names_with_their_labels() {
        let metrics = Metrics::new();
        metrics.nodeclaims_created.inc(["provisioned", "default", "false"]);
        metrics.nodes_drained.add(["default"], 2);
        metrics.cloudprovider_duration.observe(["nodeclaim.lifecycle", "Create", "kwok"], 0.2);
        metrics.node_termination_duration.observe(["default"], 3.0);
        metrics.ignored_pods.set([], 1.0);
        let text = metrics.encode().unwrap();
        for line in [
            r#"karpenter_nodeclaims_created_total{reason="provisioned",nodepool="default",min_values_relaxed="false"} 1"#,
            r#"karpenter_nodes_drained_total{nodepool="default"} 2"#,
            r#"karpenter_cloudprovider_duration_seconds_count{controller="nodeclaim.lifecycle",method="Create",provider="kwok"} 1"#,
            r#"karpenter_nodes_termination_duration_seconds{nodepool="default",quantile="0.5"} 3.0"#,
            r#"karpenter_nodes_termination_duration_seconds_count{nodepool="default"} 1"#,
            "karpenter_scheduler_ignored_pods_count 1.0",
        ] {
            assert!(text.lines().any(|got| got == line), "no line {line} in\n{text}");
        }
    }
}
