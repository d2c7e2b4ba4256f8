//! The score by which the consolidation policy Balanced judges a move.

use serde::{Deserialize, Serialize};

/// What a move saves of a NodePool's price and disrupts of its pods: the consolidation policy
/// Balanced approves of a move with a [`Score::value`] of [`Score::THRESHOLD`] or more.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Score {
    /// `metadata.name` of the NodePool, which has the policy Balanced.
    pub node_pool: String,
    /// The saved share of the price of all its nodes, in billionths; 0 without a saving.
    pub savings: u64,
    /// The share of the disruption cost of all its nodes, in billionths.
    pub disruption: u64,
}

impl Score {
    /// A move has to save at least half of what it disrupts (Karpenter: k = 2).
    pub const THRESHOLD: f64 = 0.5;

    /// The share that is saved over the share that is disrupted; infinite when nothing is
    /// disrupted.
    pub fn value(&self) -> f64 {
        if self.savings == 0 {
            return 0.0;
        }
        fraction(self.savings) / fraction(self.disruption)
    }

    /// The saved share of the price of the pool's nodes, from 0 to 1.
    pub fn savings_share(&self) -> f64 {
        fraction(self.savings)
    }

    /// The share of the disruption cost of the pool's nodes, from 0 to 1.
    pub fn disruption_share(&self) -> f64 {
        fraction(self.disruption)
    }

    pub(crate) fn is_approved(&self) -> bool {
        self.value() >= Self::THRESHOLD
    }
}

#[expect(clippy::cast_precision_loss, reason = "a few billions at most")]
fn fraction(billionths: u64) -> f64 {
    billionths as f64 / 1e9
}
