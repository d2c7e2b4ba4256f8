//! Counters, histograms and summaries of the operator, under upstream's names.
//!
//! [`Metrics`] owns the registry. Parts that measure something declare their families
//! ([`declare`]) and count by the values of the labels. What several parts share stands as a field
//! in [`Core`], which `Metrics` derefs to. Gauges that follow from state are not stored: they are
//! computed when scraped ([`Metrics::expose`]). Series of NodePools and NodeClasses that are gone
//! are forgotten ([`family`]).

mod core;
pub mod declare;
pub mod exposition;
pub mod family;
pub mod pods;
pub mod process;
pub mod queues;
pub mod summary;
pub mod transitions;
pub mod underway;

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text;
use prometheus_client::registry::Registry as Collectors;
use tokio::time::Instant;

pub use self::core::Core;
use self::exposition::{Exposed, Exposition, Gone, Type};
use self::family::{Amount, AnyFamily, Counter, Family, Gauge, Histogram, Key, Live, Value};
use self::pods::Tracker;
use self::queues::QueueMetrics;
use self::transitions::Transitions;

/// Buckets of durations in seconds (upstream's).
pub(crate) const DURATION_BUCKETS: &[f64] = &[
    0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8, 0.9,
    1.0, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 15.0, 20.0,
    25.0, 30.0, 40.0, 50.0, 60.0, 120.0, 150.0, 300.0, 450.0, 600.0,
];

/// How often series are looked through for those of something that is gone.
const SWEEP: Duration = Duration::from_mins(1);

/// A counter per combination of label values. Clones share their values.
#[derive(Clone, Debug)]
pub struct Counters<const N: usize>(Arc<Family<[String; N], Counter>>);

impl<const N: usize> Counters<N> {
    /// Exposes the counter before there is an event. Prometheus sees an increase between two values
    /// only: of a counter that begins at 1, an alert on the first event never fires.
    pub(crate) fn begin(&self, values: [&str; N]) {
        self.add(values, 0);
    }

    /// Counts one; `values` in the order of the label names.
    pub(crate) fn inc(&self, values: [&str; N]) {
        self.add(values, 1);
    }

    /// Counts `n`.
    pub fn add(&self, values: [&str; N], n: u64) {
        self.0.update(values.map(str::to_owned), |counter| counter.0 += n);
    }

    /// The value of the counter with these labels; 0 before the first event.
    pub fn get(&self, values: [&str; N]) -> u64 {
        self.0.get(&values.map(str::to_owned), |counter| counter.0).unwrap_or(0)
    }
}

/// A counter of amounts per combination of label values. Clones share their values.
#[derive(Clone, Debug)]
pub struct Amounts<const N: usize>(Arc<Family<[String; N], Amount>>);

impl<const N: usize> Amounts<N> {
    /// As [`Counters::begin`].
    pub(crate) fn begin(&self, values: [&str; N]) {
        self.add(values, 0.0);
    }

    /// Adds an amount that is not negative, in the unit that the metric's name says; `values` in
    /// the order of the label names.
    pub(crate) fn add(&self, values: [&str; N], amount: f64) {
        self.0.update(values.map(str::to_owned), |sum| sum.0 += amount);
    }

    /// The sum with these labels, if anything was added.
    #[cfg(test)]
    pub(crate) fn get(&self, values: [&str; N]) -> Option<f64> {
        self.0.get(&values.map(str::to_owned), |sum| sum.0)
    }
}

/// A gauge per combination of label values, for what does not follow from state. Clones share their
/// values.
#[derive(Clone, Debug)]
pub struct Gauges<const N: usize>(Arc<Family<[String; N], Gauge>>);

impl<const N: usize> Gauges<N> {
    /// Sets it; `values` in the order of the label names.
    pub fn set(&self, values: [&str; N], value: f64) {
        self.0.update(values.map(str::to_owned), |gauge| gauge.0 = value);
    }

    /// Its value, if it was set.
    pub fn get(&self, values: [&str; N]) -> Option<f64> {
        self.0.get(&values.map(str::to_owned), |gauge| gauge.0)
    }

    /// Forgets one combination of label values.
    pub fn remove(&self, values: [&str; N]) {
        self.0.remove(&values.map(str::to_owned));
    }

    /// Forgets all.
    pub fn clear(&self) {
        self.0.clear();
    }
}

/// A histogram per combination of label values. Clones share their values.
#[derive(Clone, Debug)]
pub struct Histograms<const N: usize>(Arc<Family<[String; N], Histogram>>);

impl<const N: usize> Histograms<N> {
    /// Adds an observation, in the unit that the metric's name says; `values` in the order of the
    /// label names.
    pub fn observe(&self, values: [&str; N], value: f64) {
        self.0.update(values.map(str::to_owned), |histogram| histogram.observe(value));
    }
}

type LiveNow = Arc<dyn Fn() -> Option<Live> + Send + Sync>;

/// A family as it is exposed once it has series.
#[derive(Clone, Debug)]
pub struct Described {
    /// How its samples are to be read.
    pub kind: Type,
    /// Names of its labels.
    pub labels: Vec<&'static str>,
    /// What it measures.
    pub help: &'static str,
}

/// All that is exposed, and the families by name: those without series are not exposed.
#[derive(Default)]
struct Families {
    families: Vec<Arc<dyn AnyFamily>>,
    described: BTreeMap<String, Described>,
    exposed: Vec<Arc<dyn Exposed>>,
    collectors: Collectors,
    live: Option<LiveNow>,
    swept: Option<Instant>,
}

impl Debug for Families {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Families").field("described", &self.described).finish_non_exhaustive()
    }
}

/// Forgets series of what is gone, if that was not done a short while ago.
fn sweep(registry: &Mutex<Families>) {
    let now = Instant::now();
    let (live, families) = {
        let mut registry = registry.lock();
        if registry.swept.is_some_and(|swept| now.duration_since(swept) < SWEEP) {
            return;
        }
        registry.swept = Some(now);
        (registry.live.clone(), registry.families.clone())
    };
    let Some(live) = live.and_then(|live| live()) else { return };
    for family in families {
        family.retire(&live, now);
    }
}

/// Where families are registered. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Registry(Arc<Mutex<Families>>);

impl AsRef<Self> for Registry {
    fn as_ref(&self) -> &Self {
        self
    }
}

/// Registering a family: `name` is the full name as it is exposed, `labels` are the names of its
/// labels. [`families!`](declare::families) calls these.
impl Registry {
    /// A family of counters, whose names end in `_total`.
    pub fn counters<const N: usize>(
        &self,
        name: &str,
        help: &'static str,
        labels: [&'static str; N],
    ) -> Counters<N> {
        Counters(self.family(name, help, &labels, |_| Counter::default(), &[]))
    }

    /// A family of counters of amounts, whose names end in `_total`.
    pub(crate) fn amounts<const N: usize>(
        &self,
        name: &str,
        help: &'static str,
        labels: [&'static str; N],
    ) -> Amounts<N> {
        Amounts(self.family(name, help, &labels, |_| Amount::default(), &[]))
    }

    /// A family of gauges.
    pub fn gauges<const N: usize>(
        &self,
        name: &str,
        help: &'static str,
        labels: [&'static str; N],
    ) -> Gauges<N> {
        Gauges(self.family(name, help, &labels, |_| Gauge::default(), &[]))
    }

    /// A family of histograms, whose names say the unit.
    pub(crate) fn histograms<const N: usize>(
        &self,
        name: &str,
        help: &'static str,
        labels: [&'static str; N],
        buckets: &'static [f64],
    ) -> Histograms<N> {
        Histograms(self.family(name, help, &labels, Histogram::new, buckets))
    }

    fn family<K: Key, V: Value>(
        &self,
        name: &str,
        help: &'static str,
        labels: &[&'static str],
        make: fn(&'static [f64]) -> V,
        buckets: &'static [f64],
    ) -> Arc<Family<K, V>> {
        // OpenMetrics appends the ending of counters to the samples, not to the family's name.
        let base = match V::TYPE {
            Type::Counter => name.strip_suffix("_total").unwrap_or(name),
            _ => name,
        };
        let family = Arc::new(Family::new(base, help, labels, make, buckets));
        let mut registry = self.0.lock();
        let described = Described { kind: V::TYPE, labels: labels.to_vec(), help };
        registry.described.insert(name.to_owned(), described);
        registry.families.push(Arc::clone(&family) as _);
        family
    }
}

/// Handle to all metrics; clones share them.
#[derive(Clone, Debug)]
pub struct Metrics {
    registry: Registry,
    core: Arc<Core>,
    /// Pods that wait.
    pub pods: Tracker,
    /// How the conditions of objects change.
    pub transitions: Transitions,
    /// What work queues count.
    pub queues: QueueMetrics,
}

impl AsRef<Registry> for Metrics {
    fn as_ref(&self) -> &Registry {
        &self.registry
    }
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
    /// A registry with the shared families.
    pub fn new() -> Self {
        let registry = Registry::default();
        let core = Arc::new(Core::new(&registry));
        let commit = option_env!("TENON_COMMIT").unwrap_or("unknown");
        // The label is Go's; dashboards group by it.
        let labels = [env!("CARGO_PKG_VERSION"), "none", std::env::consts::ARCH, commit];
        core.build_info.set(labels, 1.0);
        let (transitions, queues) = (Transitions::new(&registry), QueueMetrics::new(&registry));
        Self { registry, core, pods: Tracker::default(), transitions, queues }
    }

    /// Adds something small that is computed at each scrape.
    pub fn collector(&self, collector: Box<dyn Collector>) {
        self.registry.0.lock().collectors.register_collector(collector);
    }

    /// Adds something that is computed at each scrape, however large.
    pub fn expose(&self, exposed: Arc<dyn Exposed>) {
        self.registry.0.lock().exposed.push(exposed);
    }

    /// From now on series of what `live` does not name are forgotten after a while
    /// ([`family::KEPT`]). It is asked at scrapes, at most once a minute, and answers `None` as
    /// long as it does not know.
    pub(crate) fn forget_all_but(&self, live: impl Fn() -> Option<Live> + Send + Sync + 'static) {
        self.registry.0.lock().live = Some(Arc::new(live));
    }

    /// All families by their full names. What is computed at each scrape is not among them.
    pub fn described(&self) -> BTreeMap<String, Described> {
        self.registry.0.lock().described.clone()
    }

    /// Hands all metrics in the OpenMetrics text format to `sink`, piece by piece. No lock is held
    /// while it is called: it may wait for the scraper.
    pub fn write(&self, sink: &mut dyn FnMut(String) -> Result<(), Gone>) -> Result<(), Gone> {
        sweep(&self.registry.0);
        let mut out = Exposition::new(sink);
        let mut collected = String::new();
        let (families, exposed) = {
            let registry = self.registry.0.lock();
            // What can't be written is left out, and the rest is told.
            text::encode_registry(&mut collected, &registry.collectors).ok();
            (registry.families.clone(), registry.exposed.clone())
        };
        for family in families {
            family.expose(&mut out)?;
        }
        out.raw(format_args!("{collected}"));
        out.rest()?;
        for exposed in exposed {
            exposed.expose(&mut out)?;
        }
        out.finish()
    }

    /// All metrics in the OpenMetrics text format, in one piece: for tests, and where there are
    /// few.
    pub fn encode(&self) -> Result<String, Gone> {
        let mut text = String::new();
        self.write(&mut |piece| {
            text.push_str(&piece);
            Ok(())
        })?;
        Ok(text)
    }
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

    #[test]
    fn a_replica_that_leads_no_more_says_nothing_of_what_only_a_leader_measures() {
        let metrics = Metrics::new();
        metrics.unschedulable_pods.set(["provisioner"], 7.0);
        metrics.allowed_disruptions.set(["default", "empty"], 1.0);
        metrics.leader.set(["karpenter-leader-election"], 1.0);
        metrics.nodes_drained.inc(["default"]);
        metrics.forget_leading();
        let text = metrics.encode().unwrap();
        let is_told = |line: &&str| !line.starts_with('#') && !line.contains("build_info");
        let told: Vec<&str> = text.lines().filter(is_told).collect();
        assert_eq!(
            told,
            [
                r#"karpenter_nodes_drained_total{nodepool="default"} 1"#,
                r#"leader_election_master_status{name="karpenter-leader-election"} 1.0"#,
            ]
        );
    }
}
