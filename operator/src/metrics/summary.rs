//! Summaries: quantiles over the most recent observations.

use std::collections::VecDeque;
use std::sync::Arc;

use super::Registry;
use super::exposition::{Exposition, LabelText, Number, Type};
use super::family::{Family, Value};

/// Upstream's objectives.
const QUANTILES: [(f64, &str); 5] =
    [(0.0, "0.0"), (0.5, "0.5"), (0.9, "0.9"), (0.99, "0.99"), (1.0, "1.0")];

/// Quantiles are over so many of the latest observations: enough for p99 with ten observations
/// above it, and 8 kB per series.
const WINDOW: usize = 1024;

/// A summary per combination of label values. Clones share their values.
#[derive(Clone, Debug)]
pub struct Summaries<const N: usize>(Arc<Family<[String; N], Summary>>);

impl<const N: usize> Summaries<N> {
    /// Adds an observation, in the unit that the metric's name says; `values` in the order of the
    /// label names.
    pub fn observe(&self, values: [&str; N], value: f64) {
        self.0.update(values.map(str::to_owned), |summary| summary.observe(value));
    }
}

impl Registry {
    /// A family of summaries.
    pub fn summaries<const N: usize>(
        &self,
        name: &str,
        help: &'static str,
        labels: [&'static str; N],
    ) -> Summaries<N> {
        Summaries(self.family(name, help, &labels, |_| Summary::default(), &[]))
    }
}

/// Quantiles, sum and number of observations.
#[derive(Debug, Default)]
pub(super) struct Summary {
    latest: VecDeque<f64>,
    sum: f64,
    count: u64,
}

impl Summary {
    fn observe(&mut self, value: f64) {
        if self.latest.len() == WINDOW {
            self.latest.pop_front();
        }
        self.latest.push_back(value);
        self.sum += value;
        self.count += 1;
    }
}

impl Value for Summary {
    const TYPE: Type = Type::Summary;
    const SERIES: usize = 1_000;

    fn expose(&self, name: &str, labels: &mut LabelText, out: &mut Exposition<'_>) {
        let mut sorted: Vec<f64> = self.latest.iter().copied().collect();
        sorted.sort_by(f64::total_cmp);
        let own = labels.len();
        for (quantile, text) in QUANTILES {
            labels.push("quantile", text);
            out.sample(name, "", labels, Number::Real(rank(&sorted, quantile)));
            labels.truncate(own);
        }
        out.sample(name, "_sum", labels, Number::Real(self.sum));
        out.sample(name, "_count", labels, Number::Count(self.count));
    }
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
