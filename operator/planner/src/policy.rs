//! What an administrator chose about planning, apart from the objects in the cluster.

use serde::{Deserialize, Serialize};

use crate::resources::MicroUsd;

/// Options of the planner. Defaults are Karpenter's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Policy {
    /// `--min-values-policy`: what to do when `minValues` can't be met.
    pub min_values: MinValuesPolicy,
    /// `--preference-policy`: whether preferences count.
    pub preferences: PreferencePolicy,
    /// Feature gate SpotToSpotConsolidation.
    pub spot_to_spot: bool,
    /// How many instance types a launch carries at most.
    pub max_instance_types: usize,
    /// What a further machine is taken to cost per hour beyond its price, when the planner weighs few large machines against many small ones.
    pub node_price: MicroUsd,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            min_values: MinValuesPolicy::Strict,
            preferences: PreferencePolicy::Respect,
            spot_to_spot: false,
            max_instance_types: 600,
            // A tenth of the cheapest machine on sale: breaks ties towards fewer machines and never outweighs a real difference in price.
            node_price: MicroUsd(500),
        }
    }
}

/// `--min-values-policy`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum MinValuesPolicy {
    /// A launch that can't meet `minValues` does not happen.
    Strict,
    /// `minValues` is lowered to what can be met.
    BestEffort,
}

/// `--preference-policy`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PreferencePolicy {
    /// Preferences are requirements that may be dropped one by one.
    Respect,
    /// Preferences are ignored.
    Ignore,
}
