//! Values of the operator's options that those take, too, who ask what it would do.

use std::collections::BTreeMap;
use std::str::FromStr;

use tenon_planner::Policy;
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

    /// The planner's options as far as gates decide about them; otherwise the defaults.
    pub fn policy(&self) -> Policy {
        Policy {
            spot_to_spot: self.is_on("SpotToSpotConsolidation"),
            terminate_first_drift: self.is_on("TerminateFirstDrift"),
            terminate_first_repair: self.is_on("TerminateFirstRepair"),
            ..Policy::default()
        }
    }
}

impl Default for FeatureGates {
    fn default() -> Self {
        Self(BTreeMap::from(Self::DEFAULTS))
    }
}

impl FromStr for FeatureGates {
    type Err = String;

    /// Reads `gate=true|false`, separated by commas. Gates that are not known are ignored, as in
    /// Karpenter.
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

    #[test]
    fn each_gate_of_the_planner_sets_its_own_option() {
        let policy = |gate: &str| format!("{gate}=true").parse::<FeatureGates>().unwrap().policy();
        let default = Policy::default();
        assert_eq!(FeatureGates::default().policy(), default);
        let spot_to_spot = Policy { spot_to_spot: true, ..default.clone() };
        assert_eq!(policy("SpotToSpotConsolidation"), spot_to_spot);
        let drift = Policy { terminate_first_drift: true, ..default.clone() };
        assert_eq!(policy("TerminateFirstDrift"), drift);
        let repair = Policy { terminate_first_repair: true, ..default };
        assert_eq!(policy("TerminateFirstRepair"), repair);
    }
}
