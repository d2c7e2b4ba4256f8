//! Summaries: quantiles over the most recent observations.
//!
//! The client library has no such type, but upstream exposes two summaries, and dashboards ask for their `quantile` series. The exposition calls their
//! type `unknown`; the series are the same.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;

use super::{Families, Labels};

/// Upstream's objectives.
const QUANTILES: [(f64, &str); 5] =
    [(0.0, "0.0"), (0.5, "0.5"), (0.9, "0.9"), (0.99, "0.99"), (1.0, "1.0")];

/// Quantiles are over so many of the latest observations: enough for p99 with ten observations above it, and 8 kB per series.
const WINDOW: usize = 1024;

/// A summary per combination of label values. Clones share their values.
#[derive(Clone, Debug)]
pub struct Summaries<const N: usize> {
    names: [&'static str; N],
    series: Arc<Mutex<BTreeMap<[String; N], Series>>>,
}

#[derive(Debug, Default)]
struct Series {
    latest: VecDeque<f64>,
    sum: f64,
    count: u64,
}

impl<const N: usize> Summaries<N> {
    /// Adds an observation, in the unit that the metric's name says; `values` in the order of the label names.
    pub fn observe(&self, values: [&str; N], value: f64) {
        let mut all = self.series.lock();
        let series = all.entry(values.map(str::to_owned)).or_default();
        if series.latest.len() == WINDOW {
            series.latest.pop_front();
        }
        series.latest.push_back(value);
        series.sum += value;
        series.count += 1;
    }
}

pub(super) fn summaries<const N: usize>(
    registry: &Mutex<Families>,
    name: &'static str,
    help: &'static str,
    names: [&'static str; N],
) -> Summaries<N> {
    let summaries = Summaries { names, series: Arc::default() };
    let exposition = Exposition {
        name,
        sum_name: format!("{name}_sum"),
        count_name: format!("{name}_count"),
        help,
        summaries: summaries.clone(),
    };
    let mut families = registry.lock();
    families.names.insert(name.to_owned());
    families.registry.register_collector(Box::new(exposition));
    summaries
}

#[derive(Debug)]
struct Exposition<const N: usize> {
    name: &'static str,
    sum_name: String,
    count_name: String,
    help: &'static str,
    summaries: Summaries<N>,
}

impl<const N: usize> Collector for Exposition<N> {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let all = self.summaries.series.lock();
        let labels =
            |values: &[String; N]| Labels { names: self.summaries.names, values: values.clone() };
        let mut metric =
            encoder.encode_descriptor(self.name, self.help, None, MetricType::Unknown)?;
        for (values, series) in all.iter() {
            let mut sorted: Vec<f64> = series.latest.iter().copied().collect();
            sorted.sort_by(f64::total_cmp);
            for (quantile, text) in QUANTILES {
                let labels = (labels(values), [("quantile", text)]);
                ConstGauge::new(rank(&sorted, quantile)).encode(family(&mut metric, &labels)?)?;
            }
        }
        let mut metric =
            encoder.encode_descriptor(&self.sum_name, self.help, None, MetricType::Unknown)?;
        for (values, series) in all.iter() {
            ConstGauge::new(series.sum).encode(family(&mut metric, &labels(values))?)?;
        }
        let mut metric =
            encoder.encode_descriptor(&self.count_name, self.help, None, MetricType::Unknown)?;
        for (values, series) in all.iter() {
            let count = i64::try_from(series.count).unwrap_or(i64::MAX);
            ConstGauge::new(count).encode(family(&mut metric, &labels(values))?)?;
        }
        Ok(())
    }
}

fn family<'s, S: EncodeLabelSet>(
    metric: &'s mut prometheus_client::encoding::MetricEncoder<'_>,
    labels: &'s S,
) -> Result<prometheus_client::encoding::MetricEncoder<'s>, std::fmt::Error> {
    metric.encode_family(labels)
}

/// The smallest observation that at least `quantile` of all are not larger than.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "at most WINDOW observations, quantiles from 0 to 1"
)]
fn rank(sorted: &[f64], quantile: f64) -> f64 {
    let rank = (quantile * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied().unwrap_or(f64::NAN)
}
