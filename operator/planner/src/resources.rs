//! Amounts of resources and money, in integers.
//!
//! Quantities are parsed at the border (`tenon_crds::quantity`); inside, every amount is an `i64`
//! in one unit per resource, so that sums are exact and comparisons are total: CPU in millicores,
//! memory and ephemeral storage in bytes, everything else in whole units.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Amounts per resource. A resource that is absent from `extended` is zero.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Resources {
    /// Millicores.
    pub cpu: i64,
    /// Bytes.
    pub memory: i64,
    /// Bytes.
    pub ephemeral_storage: i64,
    /// Number of pods.
    pub pods: i64,
    /// Every other resource (`nvidia.com/gpu`, `hugepages-2Mi`, …) in whole units.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub extended: BTreeMap<String, i64>,
}

impl Resources {
    /// Adds `other`, resource by resource, saturating.
    pub fn add(&mut self, other: &Self) {
        self.zip(other, i64::saturating_add);
    }

    /// Subtracts `other`, resource by resource; the result may be negative.
    pub fn subtract(&mut self, other: &Self) {
        self.zip(other, i64::saturating_sub);
    }

    /// Per resource the larger of the two.
    pub fn max(&mut self, other: &Self) {
        self.zip(other, i64::max);
    }

    /// Whether every amount of `self` is at most that of `total`. False when any amount of `total`
    /// is negative, as in kube-scheduler's own accounting a node that is over-committed on one
    /// resource takes nothing more.
    pub fn fits(&self, total: &Self) -> bool {
        let base = [
            (self.cpu, total.cpu),
            (self.memory, total.memory),
            (self.ephemeral_storage, total.ephemeral_storage),
            (self.pods, total.pods),
        ];
        base.iter().all(|&(want, have)| want <= have && have >= 0)
            && total.extended.values().all(|&have| have >= 0)
            && self
                .extended
                .iter()
                .all(|(name, &want)| want <= total.extended.get(name).copied().unwrap_or(0))
    }

    /// Whether no resource is asked for.
    pub fn is_zero(&self) -> bool {
        self.cpu == 0
            && self.memory == 0
            && self.ephemeral_storage == 0
            && self.pods == 0
            && self.extended.values().all(|&amount| amount == 0)
    }

    /// The amount of a resource by its Kubernetes name, in this type's unit.
    pub fn get(&self, name: &str) -> i64 {
        match name {
            "cpu" => self.cpu,
            "memory" => self.memory,
            "ephemeral-storage" => self.ephemeral_storage,
            "pods" => self.pods,
            _ => self.extended.get(name).copied().unwrap_or(0),
        }
    }

    /// Sets the amount of a resource by its Kubernetes name, in this type's unit.
    pub fn set(&mut self, name: &str, amount: i64) {
        match name {
            "cpu" => self.cpu = amount,
            "memory" => self.memory = amount,
            "ephemeral-storage" => self.ephemeral_storage = amount,
            "pods" => self.pods = amount,
            _ => {
                self.extended.insert(name.to_owned(), amount);
            }
        }
    }

    /// The resources that are not zero, by name, sorted.
    pub fn iter(&self) -> impl Iterator<Item = (&str, i64)> {
        let base = [
            ("cpu", self.cpu),
            ("ephemeral-storage", self.ephemeral_storage),
            ("memory", self.memory),
            ("pods", self.pods),
        ];
        base.into_iter()
            .chain(self.extended.iter().map(|(name, &amount)| (name.as_str(), amount)))
            .filter(|&(_, amount)| amount != 0)
    }

    fn zip(&mut self, other: &Self, combine: fn(i64, i64) -> i64) {
        self.cpu = combine(self.cpu, other.cpu);
        self.memory = combine(self.memory, other.memory);
        self.ephemeral_storage = combine(self.ephemeral_storage, other.ephemeral_storage);
        self.pods = combine(self.pods, other.pods);
        for (name, &amount) in &other.extended {
            let mine = self.extended.entry(name.clone()).or_default();
            *mine = combine(*mine, amount);
        }
    }
}

/// Millionths of a US dollar per hour.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct MicroUsd(pub i64);

impl MicroUsd {
    /// From dollars per hour, as price lists give it; rounded to the nearest millionth. Negative
    /// and non-finite prices become zero.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "hourly prices are far below 2^53 millionths"
    )]
    pub fn from_usd(usd: f64) -> Self {
        if usd.is_finite() && usd > 0.0 { Self((usd * 1e6).round() as i64) } else { Self(0) }
    }

    /// In dollars per hour, for people and for metrics.
    #[expect(clippy::cast_precision_loss, reason = "hourly prices are far below 2^53 millionths")]
    pub fn as_usd(self) -> f64 {
        self.0 as f64 / 1e6
    }
}

impl std::iter::Sum for MicroUsd {
    fn sum<I: Iterator<Item = Self>>(iter: I) -> Self {
        Self(iter.map(|price| price.0).sum())
    }
}
