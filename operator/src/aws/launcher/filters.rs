//! Which types and offerings of a NodeClaim are handed to EC2, and which capacity type is asked
//! for.
//!
//! Pure. The planner has chosen what may be launched; here only what EC2's own allocation would do
//! badly with is taken out.

use std::collections::BTreeSet;

use tenon_planner::resources::Resources;
use tenon_planner::snapshot::{CapacityType, Catalog, InstanceType, Operator};

use super::candidate::Candidate;
use super::reserved;
use crate::aws::matching::Requirements;

/// EC2 is given at most so many types.
pub(crate) const MAX_TYPES: usize = 60;

/// With fewer types than this an on-demand fallback is likely to fail together with spot.
pub(crate) const FEW_TYPES: usize = 5;

/// What a claim asks for.
#[derive(Clone, Debug, Default)]
pub(crate) struct Wanted {
    /// `spec.requirements`.
    pub requirements: Requirements,
    /// `spec.resources.requests`.
    pub requests: Resources,
    /// `minValues` need not be met.
    pub min_values_relaxed: bool,
}

/// Nothing is left to launch.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Exhausted {
    /// No type and offering together meet the claim now.
    #[error("all requested instance types were unavailable during launch")]
    Unavailable,
    /// The types that are left have too few distinct values.
    #[error("minValues of {key} requires {required}, the {MAX_TYPES} cheapest types have {found}")]
    MinValues {
        /// Label.
        key: String,
        /// `minValues`.
        required: u32,
        /// Distinct values.
        found: usize,
    },
}

/// The types to hand to EC2, cheapest first.
pub(crate) fn candidates<'c>(
    catalog: &'c Catalog,
    wanted: &Wanted,
) -> Result<Vec<Candidate<'c>>, Exhausted> {
    let mut candidates = reserved::preferred(compatible_and_available(catalog, wanted));
    if !wanted.requirements.have_min_values() {
        candidates = without_exotic(candidates);
        candidates = without_dear_spot(candidates, &wanted.requirements);
    }
    if candidates.is_empty() {
        return Err(Exhausted::Unavailable);
    }
    candidates.sort_by(|a, b| {
        a.price().cmp(&b.price()).then_with(|| a.instance_type.name.cmp(&b.instance_type.name))
    });
    candidates.truncate(MAX_TYPES);
    if !wanted.min_values_relaxed {
        check_min_values(&candidates, &wanted.requirements)?;
    }
    Ok(candidates)
}

/// Reserved when the claim allows it and it can be had, else spot likewise, else on-demand.
pub(crate) fn capacity_type(candidates: &[Candidate<'_>]) -> CapacityType {
    let offerings = candidates.iter().flat_map(|candidate| &candidate.offerings);
    // In the order of the enum.
    offerings.map(|offering| offering.capacity_type).min().unwrap_or_default()
}

fn compatible_and_available<'c>(catalog: &'c Catalog, wanted: &Wanted) -> Vec<Candidate<'c>> {
    catalog
        .instance_types
        .iter()
        .filter(|instance_type| wanted.requirements.meet_type(instance_type))
        .filter(|instance_type| wanted.requests.fits(&instance_type.allocatable()))
        .filter_map(|instance_type| {
            let offerings: Vec<_> = instance_type
                .offerings
                .iter()
                .filter(|offering| {
                    offering.is_launchable() && wanted.requirements.meet_offering(offering)
                })
                .collect();
            (!offerings.is_empty()).then_some(Candidate { instance_type, offerings })
        })
        .collect()
}

/// Bare metal and accelerators only when there is nothing else.
fn without_exotic(candidates: Vec<Candidate<'_>>) -> Vec<Candidate<'_>> {
    if candidates.iter().all(|candidate| is_exotic(candidate.instance_type)) {
        return candidates;
    }
    candidates.into_iter().filter(|candidate| !is_exotic(candidate.instance_type)).collect()
}

fn is_exotic(instance_type: &InstanceType) -> bool {
    const ACCELERATORS: [&str; 5] = [
        "aws.amazon.com/neuron",
        "aws.amazon.com/neuroncore",
        "amd.com/gpu",
        "nvidia.com/gpu",
        "habana.ai/gaudi",
    ];
    let metal = instance_type.name.split_once('.').is_some_and(|(_, size)| size.contains("metal"));
    metal || ACCELERATORS.iter().any(|name| instance_type.capacity.get(name) > 0)
}

/// When spot and on-demand are both possible, spot that costs more than the cheapest on-demand
/// offering makes no sense.
fn without_dear_spot<'c>(
    mut candidates: Vec<Candidate<'c>>,
    requirements: &Requirements,
) -> Vec<Candidate<'c>> {
    if !requirements.allow_capacity_type(CapacityType::Spot)
        || !requirements.allow_capacity_type(CapacityType::OnDemand)
    {
        return candidates;
    }
    let cheapest = candidates
        .iter()
        .flat_map(|candidate| &candidate.offerings)
        .filter(|offering| offering.capacity_type == CapacityType::OnDemand)
        .map(|offering| offering.price)
        .min();
    let Some(cheapest) = cheapest else { return candidates };
    for candidate in &mut candidates {
        candidate.offerings.retain(|offering| {
            offering.capacity_type != CapacityType::Spot || offering.price <= cheapest
        });
    }
    candidates.retain(|candidate| !candidate.offerings.is_empty());
    candidates
}

fn check_min_values(
    candidates: &[Candidate<'_>],
    requirements: &Requirements,
) -> Result<(), Exhausted> {
    for (key, required) in requirements.min_values() {
        let values: BTreeSet<&str> = candidates
            .iter()
            .flat_map(|candidate| &candidate.instance_type.requirements)
            .filter(|defined| defined.key == key && defined.operator == Operator::In)
            .flat_map(|defined| &defined.values)
            .map(String::as_str)
            .filter(|value| requirements.allow(key, Some(value)))
            .collect();
        if values.len() < required as usize {
            return Err(Exhausted::MinValues {
                key: key.to_owned(),
                required,
                found: values.len(),
            });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
