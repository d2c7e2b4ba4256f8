//! Counters, histograms and summaries of the operator, under upstream's names.
//!
//! [`Metrics`] owns the registry. Parts that measure something ask it for a family once ([`Metrics::counters`], …), with the names of the labels, and
//! count by the values of the labels. What all parts share stands as a field in [`Core`], which `Metrics` derefs to. Gauges that follow from state are
//! not stored: they are computed when scraped, by a [`Collector`] ([`Metrics::collector`]).

mod core;
pub mod pods;
pub mod summary;
pub mod transitions;

use std::collections::BTreeSet;
use std::ops::Deref;
use std::sync::Arc;

use parking_lot::Mutex;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{EncodeLabelSet, LabelSetEncoder};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::{Family, MetricConstructor};
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Metric, Registry};

pub use self::core::Core;

/// Buckets of durations in seconds (upstream's).
pub const DURATION_BUCKETS: &[f64] = &[
    0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8, 0.9,
    1.0, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 15.0, 20.0,
    25.0, 30.0, 40.0, 50.0, 60.0, 120.0, 150.0, 300.0, 450.0, 600.0,
];

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

/// The registry, and the names of what is in it: families without values are not exposed.
#[derive(Debug, Default)]
struct Families {
    registry: Registry,
    names: BTreeSet<String>,
}

impl Families {
    fn register(&mut self, name: &str, suffix: &str, help: &str, metric: impl Metric) {
        self.names.insert(format!("{name}{suffix}"));
        self.registry.register(name, help, metric);
    }
}

/// Handle to the registry; clones share it.
#[derive(Clone, Debug)]
pub struct Metrics {
    registry: Arc<Mutex<Families>>,
    core: Arc<Core>,
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
        let registry = Arc::new(Mutex::new(Families::default()));
        let core = Arc::new(Core::new(&registry));
        let commit = option_env!("TENON_COMMIT").unwrap_or("unknown");
        // The label is Go's; dashboards group by it.
        let labels = [env!("CARGO_PKG_VERSION"), "none", std::env::consts::ARCH, commit];
        core.build_info.set(labels, 1.0);
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
        self.registry.lock().registry.register_collector(collector);
    }

    /// The names of all families, as they are exposed once they have values. Those of collectors are not among them.
    pub fn names(&self) -> BTreeSet<String> {
        self.registry.lock().names.clone()
    }

    /// All metrics in the OpenMetrics text format.
    pub fn encode(&self) -> Result<String, std::fmt::Error> {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.registry.lock().registry)?;
        Ok(text)
    }
}

fn counters<const N: usize>(
    registry: &Mutex<Families>,
    name: &'static str,
    help: &'static str,
    names: [&'static str; N],
) -> Counters<N> {
    let family = Family::default();
    registry.lock().register(name, "_total", help, family.clone());
    Counters { names, family }
}

fn gauges<const N: usize>(
    registry: &Mutex<Families>,
    name: &'static str,
    help: &'static str,
    names: [&'static str; N],
) -> Gauges<N> {
    let family = Family::default();
    registry.lock().register(name, "", help, family.clone());
    Gauges { names, family }
}

fn histograms<const N: usize>(
    registry: &Mutex<Families>,
    name: &'static str,
    help: &'static str,
    names: [&'static str; N],
    buckets: &'static [f64],
) -> Histograms<N> {
    let family = Family::new_with_constructor(Buckets(buckets));
    registry.lock().register(name, "", help, family.clone());
    Histograms { names, family }
}

#[cfg(test)]
mod names;

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
            "karpenter_scheduler_ignored_pods_count{} 1.0",
        ] {
            assert!(text.lines().any(|got| got == line), "no line {line} in\n{text}");
        }
    }
}
