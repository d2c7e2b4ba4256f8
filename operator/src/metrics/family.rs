//! A metric by the values of its labels, and which of its series are still worth keeping.
//!
//! Names of NodePools and NodeClasses come from users. A series whose NodePool or NodeClass is gone
//! goes, too, once it has not changed for [`KEPT`]: until then scrapers see its last value. And no
//! family grows without bound: the combination of values that would be one too many is counted
//! under the value `other` of every label.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::ops::Bound;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::exposition::{Exposition, Gone, LabelText, Number, Type};

/// How long what belongs to something that is gone is still told: many times the usual interval of
/// scrapes, half a minute.
pub const KEPT: Duration = Duration::from_mins(10);

/// The value of labels under which what exceeds a family's bound is counted.
pub const OTHER: &str = "other";

/// Series that are written at once, while nobody can count.
const PAGE: usize = 500;

/// Names of NodePools and NodeClasses that are still of interest.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Live {
    /// NodePools that exist.
    pub node_pools: BTreeSet<String>,
    /// NodeClasses that NodePools or NodeClaims name.
    pub node_classes: BTreeSet<String>,
}

impl Live {
    /// Whether what this label says still exists.
    fn has(&self, label: &str, value: &str) -> bool {
        if value.is_empty() || value == OTHER {
            true
        } else if matches!(label, "nodepool" | "karpenter_sh_nodepool") {
            self.node_pools.contains(value)
        } else if label.ends_with("nodeclass") {
            self.node_classes.contains(value)
        } else {
            true
        }
    }
}

/// The values of a series' labels.
pub trait Key: Ord + Clone + Debug + Send + Sync + 'static {
    /// Calls `with` for the name and the value of each label.
    fn each(&self, names: &[&'static str], with: &mut dyn FnMut(&str, &str));

    /// The same labels, each with the value [`OTHER`].
    #[must_use]
    fn other(&self) -> Self;
}

impl<const N: usize> Key for [String; N] {
    fn each(&self, names: &[&'static str], with: &mut dyn FnMut(&str, &str)) {
        for (name, value) in names.iter().zip(self) {
            with(name, value);
        }
    }

    fn other(&self) -> Self {
        std::array::from_fn(|_| OTHER.to_owned())
    }
}

/// Labels whose names differ from series to series.
impl Key for Vec<(String, String)> {
    fn each(&self, _: &[&'static str], with: &mut dyn FnMut(&str, &str)) {
        for (name, value) in self {
            with(name, value);
        }
    }

    fn other(&self) -> Self {
        self.iter().map(|(name, _)| (name.clone(), OTHER.to_owned())).collect()
    }
}

/// What is measured.
pub(super) trait Value: Debug + Send + Sync + 'static {
    /// As scrapers are told.
    const TYPE: Type;
    /// Series of a family at most: it is tens of megabytes large then.
    const SERIES: usize;

    /// Writes the samples of a series. `labels` is as it was when this returns.
    fn expose(&self, name: &str, labels: &mut LabelText, out: &mut Exposition<'_>);
}

/// Something that has series, whatever they are.
pub(super) trait AnyFamily: Debug + Send + Sync {
    fn expose(&self, out: &mut Exposition<'_>) -> Result<(), Gone>;

    /// Forgets series of what is gone.
    fn retire(&self, live: &Live, now: Instant);
}

#[derive(Debug)]
struct Series<V> {
    value: V,
    touched: Instant,
}

/// A metric by the values of its labels.
#[derive(Debug)]
pub(super) struct Family<K, V> {
    name: String,
    help: &'static str,
    names: Vec<&'static str>,
    make: fn(&'static [f64]) -> V,
    /// Upper bounds of histograms.
    buckets: &'static [f64],
    series: Mutex<BTreeMap<K, Series<V>>>,
}

impl<K: Key, V: Value> Family<K, V> {
    pub(super) fn new(
        name: &str,
        help: &'static str,
        names: &[&'static str],
        make: fn(&'static [f64]) -> V,
        buckets: &'static [f64],
    ) -> Self {
        let (name, names) = (name.to_owned(), names.to_vec());
        Self { name, help, names, make, buckets, series: Mutex::default() }
    }

    /// Changes the series with these labels, which is made if it is not there.
    pub(super) fn update(&self, key: K, change: impl FnOnce(&mut V)) {
        let now = Instant::now();
        let mut series = self.series.lock();
        let full = series.len() >= V::SERIES && !series.contains_key(&key);
        let key = if full { key.other() } else { key };
        let make = || Series { value: (self.make)(self.buckets), touched: now };
        let series = series.entry(key).or_insert_with(make);
        change(&mut series.value);
        series.touched = now;
    }

    /// What the series with these labels says.
    pub(super) fn get<T>(&self, key: &K, read: impl FnOnce(&V) -> T) -> Option<T> {
        self.series.lock().get(key).map(|series| read(&series.value))
    }

    pub(super) fn remove(&self, key: &K) {
        self.series.lock().remove(key);
    }

    pub(super) fn clear(&self) {
        self.series.lock().clear();
    }
}

impl<K: Key, V: Value> AnyFamily for Family<K, V> {
    fn expose(&self, out: &mut Exposition<'_>) -> Result<(), Gone> {
        let mut last: Option<K> = None;
        let mut labels = LabelText::default();
        loop {
            {
                let series = self.series.lock();
                if last.is_none() && !series.is_empty() {
                    out.family(&self.name, V::TYPE, self.help);
                }
                let from = last.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
                let mut page = series.range::<K, _>((from, Bound::Unbounded));
                let mut latest = None;
                for (key, series) in page.by_ref().take(PAGE) {
                    labels.clear();
                    key.each(&self.names, &mut |name, value| labels.push(name, value));
                    series.value.expose(&self.name, &mut labels, out);
                    latest = Some(key);
                }
                let Some(latest) = latest else { return Ok(()) };
                last = Some(latest.clone());
            }
            out.rest()?;
        }
    }

    fn retire(&self, live: &Live, now: Instant) {
        self.series.lock().retain(|key, series| {
            let mut wanted = true;
            key.each(&self.names, &mut |name, value| wanted &= live.has(name, value));
            wanted || now.duration_since(series.touched) < KEPT
        });
    }
}

/// Counts.
#[derive(Debug, Default)]
pub(super) struct Counter(pub u64);

impl Value for Counter {
    const TYPE: Type = Type::Counter;
    const SERIES: usize = 50_000;

    fn expose(&self, name: &str, labels: &mut LabelText, out: &mut Exposition<'_>) {
        out.sample(name, "_total", labels, Number::Count(self.0));
    }
}

/// Adds up amounts.
#[derive(Debug, Default)]
pub(super) struct Amount(pub f64);

impl Value for Amount {
    const TYPE: Type = Type::Counter;
    const SERIES: usize = 50_000;

    fn expose(&self, name: &str, labels: &mut LabelText, out: &mut Exposition<'_>) {
        out.sample(name, "_total", labels, Number::Real(self.0));
    }
}

/// Is set.
#[derive(Debug, Default)]
pub(super) struct Gauge(pub f64);

impl Value for Gauge {
    const TYPE: Type = Type::Gauge;
    const SERIES: usize = 50_000;

    fn expose(&self, name: &str, labels: &mut LabelText, out: &mut Exposition<'_>) {
        out.sample(name, "", labels, Number::Real(self.0));
    }
}

/// Counts observations by size.
#[derive(Debug)]
pub(super) struct Histogram {
    bounds: &'static [f64],
    /// Of observations up to each bound, and above the one before.
    counts: Box<[u64]>,
    sum: f64,
    count: u64,
}

impl Histogram {
    pub(super) fn new(bounds: &'static [f64]) -> Self {
        Self { bounds, counts: vec![0; bounds.len()].into(), sum: 0.0, count: 0 }
    }

    pub(super) fn observe(&mut self, value: f64) {
        let bucket = self.bounds.partition_point(|bound| *bound < value);
        if let Some(count) = self.counts.get_mut(bucket) {
            *count += 1;
        }
        self.sum += value;
        self.count += 1;
    }
}

impl Value for Histogram {
    const TYPE: Type = Type::Histogram;
    const SERIES: usize = 5_000;

    fn expose(&self, name: &str, labels: &mut LabelText, out: &mut Exposition<'_>) {
        out.sample(name, "_sum", labels, Number::Real(self.sum));
        out.sample(name, "_count", labels, Number::Count(self.count));
        let own = labels.len();
        let mut so_far = 0;
        for (bound, count) in self.bounds.iter().zip(&self.counts) {
            so_far += count;
            labels.push("le", &Number::Real(*bound).to_string());
            out.sample(name, "_bucket", labels, Number::Count(so_far));
            labels.truncate(own);
        }
        labels.push("le", "+Inf");
        out.sample(name, "_bucket", labels, Number::Count(self.count));
        labels.truncate(own);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Pools = Family<[String; 2], Counter>;

    fn family() -> Pools {
        Family::new("made", "Made", &["nodepool", "zone"], |_| Counter::default(), &[])
    }

    fn key(pool: &str, zone: &str) -> [String; 2] {
        [pool.to_owned(), zone.to_owned()]
    }

    fn live(pools: &[&str], classes: &[&str]) -> Live {
        let names = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
        Live { node_pools: names(pools), node_classes: names(classes) }
    }

    #[tokio::test(start_paused = true)]
    async fn a_series_of_a_nodepool_that_is_gone_goes_when_it_has_not_changed_for_a_while() {
        let family = family();
        for pool in ["kept", "gone", "busy", ""] {
            family.update(key(pool, "a"), |count| count.0 += 1);
        }
        let pools = |family: &Pools| -> Vec<String> {
            family.series.lock().keys().map(|[pool, _]| pool.clone()).collect()
        };
        tokio::time::advance(KEPT.saturating_sub(Duration::from_secs(1))).await;
        family.update(key("busy", "a"), |count| count.0 += 1);
        family.retire(&live(&["kept"], &[]), Instant::now());
        assert_eq!(pools(&family), ["", "busy", "gone", "kept"], "scrapers see the last value");
        tokio::time::advance(Duration::from_secs(1)).await;
        family.retire(&live(&["kept"], &[]), Instant::now());
        assert_eq!(pools(&family), ["", "busy", "kept"]);
        tokio::time::advance(KEPT).await;
        family.retire(&live(&["kept"], &[]), Instant::now());
        assert_eq!(pools(&family), ["", "kept"]);
    }

    #[tokio::test(start_paused = true)]
    async fn histograms_of_a_nodeclass_that_nobody_names_go_too() {
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let family: Family<Vec<(String, String)>, Histogram> =
            Family::new("took", "Took", &[], Histogram::new, &[1.0]);
        for class in ["old", "new"] {
            let labels =
                [("karpenter_sh_nodepool", "default"), ("karpenter_k8s_aws_ec2nodeclass", class)];
            family.update(labels.map(|(name, value)| pair(name, value)).to_vec(), |histogram| {
                histogram.observe(0.5);
            });
        }
        tokio::time::advance(KEPT).await;
        family.retire(&live(&["default"], &["new"]), Instant::now());
        let left = family.series.lock();
        let left: Vec<_> = left.keys().map(|labels| labels[1].1.as_str()).collect();
        assert_eq!(left, ["new"]);
    }

    #[test]
    fn a_family_does_not_grow_without_bound() {
        let family: Family<[String; 1], Histogram> =
            Family::new("took", "Took", &["reason"], Histogram::new, &[]);
        for i in 0..Histogram::SERIES + 10 {
            family.update([i.to_string()], |histogram| histogram.observe(1.0));
        }
        family.update(["0".to_owned()], |histogram| histogram.observe(1.0));
        assert_eq!(family.series.lock().len(), Histogram::SERIES + 1);
        assert_eq!(family.get(&[OTHER.to_owned()], |it| it.count), Some(10));
        assert_eq!(family.get(&["0".to_owned()], |it| it.count), Some(2));
    }

    #[test]
    fn an_observation_counts_in_the_bucket_of_its_bound_and_in_all_larger_ones() {
        let family: Family<[String; 1], Histogram> =
            Family::new("took", "Took", &["a"], Histogram::new, &[0.5, 1.0]);
        for value in [0.5, 0.7, 3.0] {
            family.update(["x".to_owned()], |histogram| histogram.observe(value));
        }
        let mut text = String::new();
        let mut sink = |piece: String| {
            text.push_str(&piece);
            Ok(())
        };
        let mut out = Exposition::new(&mut sink);
        family.expose(&mut out).unwrap();
        out.finish().unwrap();
        let expected = "# HELP took Took.\n# TYPE took histogram\ntook_sum{a=\"x\"} 4.2\ntook_count{a=\"x\"} 3\n\
            took_bucket{a=\"x\",le=\"0.5\"} 1\ntook_bucket{a=\"x\",le=\"1.0\"} 2\ntook_bucket{a=\"x\",le=\"+Inf\"} 3\n# EOF\n";
        assert_eq!(text, expected);
    }
}
