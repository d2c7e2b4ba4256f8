//! Values of the operator's options that those take, too, who ask what it would do.

use std::collections::BTreeMap;
use std::str::FromStr;

use tenon_planner::resources::MicroUsd;

/// Karpenter's feature gates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FeatureGates(BTreeMap<&'static str, bool>);

impl FeatureGates {
    /// Gates with their defaults, in Karpenter's order.
    const DEFAULTS: [(&'static str, bool); 9] = [
        ("NodeRepair", false),
        ("ReservedCapacity", true),
        ("SpotToSpotConsolidation", false),
        ("NodeOverlay", false),
        ("StaticCapacity", false),
        ("CapacityBuffer", false),
        ("TerminateFirstDrift", false),
        ("TerminateFirstRepair", false),
        ("PodDeletionCostManagement", false),
    ];

    /// Whether a gate is on; an unknown one is off.
    pub fn is_on(&self, gate: &str) -> bool {
        self.0.get(gate).copied().unwrap_or(false)
    }
}

impl Default for FeatureGates {
    fn default() -> Self {
        Self(BTreeMap::from(Self::DEFAULTS))
    }
}

impl FromStr for FeatureGates {
    type Err = String;

    /// Reads `gate=true|false`, separated by commas. Gates that are not known are ignored, as in Karpenter.
    fn from_str(text: &str) -> Result<Self, String> {
        let Self(mut gates) = Self::default();
        for item in text.split(',').map(str::trim).filter(|item| !item.is_empty()) {
            let (gate, value) =
                item.split_once('=').ok_or_else(|| format!("`{item}` is not `gate=true|false`"))?;
            let value = value
                .trim()
                .parse()
                .map_err(|_| format!("gate {gate} is either `true` or `false`, not `{value}`"))?;
            if let Some(known) = gates.get_mut(gate.trim()) {
                *known = value;
            }
        }
        Ok(Self(gates))
    }
}

/// Reads a price: dollars, from 0 to 1000.
///
/// # Errors
/// What is allowed, for anything else.
pub fn dollars(text: &str) -> Result<MicroUsd, String> {
    match text.parse::<f64>() {
        Ok(dollars) if (0.0..=1000.0).contains(&dollars) => Ok(MicroUsd::from_usd(dollars)),
        _ => Err("is not a number of dollars from 0 to 1000".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gates_keep_their_default_unless_given_and_unknown_ones_are_ignored() {
        let gates: FeatureGates = "SpotToSpotConsolidation=true, Drift=true".parse().unwrap();
        assert!(gates.is_on("SpotToSpotConsolidation") && gates.is_on("ReservedCapacity"));
        assert!(!gates.is_on("Drift"));
    }
}
