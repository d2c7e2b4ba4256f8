//! The CreateFleet request for a claim, and what its errors mean.
//!
//! Pure.

use std::collections::{BTreeMap, BTreeSet};

use tenon_planner::snapshot::CapacityType;

use super::candidate::Candidate;
use super::reserved::{Reservation, Terms};
use super::template::{Template, tagged};
use crate::aws::ec2::requests::{
    AllocationOptions, CreateFleet, LaunchTemplateConfig, LaunchTemplateSpecification, Override,
    ReservedCapacityOptions, TargetCapacity,
};
use crate::aws::ec2::send::FleetError;
use crate::aws::error::{self, Kind, kind_of};
use crate::aws::tags::Tags;

/// What a fleet is made from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FleetScope<'a> {
    /// Templates with their types.
    pub templates: &'a [Template<'a>],
    /// Types with their offerings.
    pub candidates: &'a [Candidate<'a>],
    /// What is bought.
    pub capacity_type: CapacityType,
    /// Subnet per zone.
    pub subnets: &'a BTreeMap<String, String>,
    /// Tags of everything that is made.
    pub tags: &'a Tags,
    /// `spec.context`, unless `minValues` was relaxed.
    pub context: Option<&'a str>,
    /// Prices come from NodeOverlays: EC2 has to go by our priorities.
    pub by_priority: bool,
}

/// The request for one machine; `None` when no type has a place.
pub(crate) fn request(scope: FleetScope<'_>) -> Option<CreateFleet> {
    let offerings: BTreeMap<&str, &Candidate<'_>> = scope
        .candidates
        .iter()
        .map(|candidate| (candidate.instance_type.name.as_str(), candidate))
        .collect();
    let configs: Vec<LaunchTemplateConfig> = scope
        .templates
        .iter()
        .filter_map(|template| {
            let image = &template.request.launch_template_data.image_id;
            let overrides: Vec<Override> = template
                .instance_types
                .iter()
                .filter_map(|instance_type| offerings.get(instance_type.name.as_str()))
                .flat_map(|candidate| {
                    overrides(candidate, image, template.reservation.as_ref(), scope)
                })
                .collect();
            (!overrides.is_empty()).then(|| LaunchTemplateConfig {
                launch_template_specification: LaunchTemplateSpecification::latest(
                    &template.request.launch_template_name,
                ),
                overrides,
            })
        })
        .collect();
    if configs.is_empty() {
        return None;
    }
    let (spot_strategy, on_demand_strategy) = if scope.by_priority {
        ("capacity-optimized-prioritized", "prioritized")
    } else {
        ("price-capacity-optimized", "lowest-price")
    };
    let options =
        |strategy: &str| Some(AllocationOptions { allocation_strategy: strategy.to_owned() });
    let is_spot = scope.capacity_type == CapacityType::Spot;
    // All templates of a fleet are for reservations of one kind.
    let terms =
        scope.templates.iter().find_map(|template| Some(template.reservation.as_ref()?.terms));
    let is_on_demand = !is_spot && terms.is_none_or(|terms| terms == Terms::OnDemand);
    let bought = terms.map_or(scope.capacity_type.as_str(), Terms::target_capacity_type);
    Some(CreateFleet {
        kind: "instant".to_owned(),
        context: scope.context.map(str::to_owned),
        launch_template_configs: configs,
        target_capacity_specification: TargetCapacity {
            default_target_capacity_type: bought.to_owned(),
            total_target_capacity: 1,
        },
        spot_options: if is_spot { options(spot_strategy) } else { None },
        on_demand_options: if is_on_demand { options(on_demand_strategy) } else { None },
        reserved_capacity_options: terms
            .filter(|&terms| terms == Terms::Interruptible)
            .and_then(Terms::market_type)
            .map(|kind| ReservedCapacityOptions { reservation_types: vec![kind.to_owned()] }),
        tag_specifications: ["instance", "volume", "fleet"]
            .map(|kind| tagged(kind, scope.tags))
            .into(),
        dry_run: false,
    })
}

fn overrides(
    candidate: &Candidate<'_>,
    image: &str,
    reservation: Option<&Reservation>,
    scope: FleetScope<'_>,
) -> Vec<Override> {
    let mut zones = BTreeSet::new();
    candidate
        .offerings
        .iter()
        .filter(|offering| offering.capacity_type == scope.capacity_type)
        .filter(|offering| Reservation::of(offering).as_ref() == reservation)
        .filter(|offering| zones.insert(offering.zone.as_str()))
        .filter_map(|offering| {
            let subnet = scope.subnets.get(&offering.zone)?;
            Some(Override {
                instance_type: candidate.instance_type.name.clone(),
                subnet_id: subnet.clone(),
                image_id: Some(image.to_owned()),
                availability_zone: Some(offering.zone.clone()),
                priority: Some(offering.price.as_usd()),
            })
        })
        .collect()
}

/// What to remember of a fleet's errors.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Lessons {
    /// Type, zone, code: could not be had.
    pub offerings: Vec<(String, String, String)>,
    /// Subnets without free addresses.
    pub subnets: BTreeSet<String>,
    /// The account can't use spot.
    pub no_spot: bool,
    /// Zones in which the spread placement group has as many instances as it may.
    pub full_zones: BTreeSet<String>,
}

/// What a fleet's errors say about offerings, subnets and the account.
pub(crate) fn lessons(errors: &[FleetError]) -> Lessons {
    let mut lessons = Lessons::default();
    for fleet_error in errors {
        if fleet_error.code == error::SPOT_ROLE_MISSING {
            lessons.no_spot = true;
            continue;
        }
        if error::is_spread_limit(&fleet_error.message) {
            lessons.full_zones.extend(fleet_error.zone.clone());
        }
        if kind_of(&fleet_error.code) != Kind::InsufficientCapacity {
            continue;
        }
        if fleet_error.code == error::SUBNET_FULL {
            lessons.subnets.extend(fleet_error.subnet_id.clone());
        }
        if let (Some(instance_type), Some(zone)) = (&fleet_error.instance_type, &fleet_error.zone) {
            lessons.offerings.push((instance_type.clone(), zone.clone(), fleet_error.code.clone()));
        }
    }
    lessons.offerings.sort();
    lessons.offerings.dedup();
    lessons
}

/// Whether all that went wrong is that there is no capacity, so that the claim has to be planned
/// again. One other error among them needs a person.
pub(crate) fn is_insufficient_capacity(errors: &[FleetError]) -> bool {
    !errors.is_empty()
        && errors.iter().all(|error| {
            kind_of(&error.code) == Kind::InsufficientCapacity
                || error.code == error::SPOT_ROLE_MISSING
        })
}

/// The distinct errors in one line.
pub(crate) fn summary(errors: &[FleetError]) -> String {
    let distinct: BTreeSet<String> =
        errors.iter().map(|error| error::launch_reason(&error.code, &error.message).1).collect();
    if distinct.is_empty() {
        return "too few instances returned".to_owned();
    }
    distinct.into_iter().collect::<Vec<_>>().join("; ")
}

/// Reason and message of a condition for these errors: those of the first that is not a lack of
/// capacity.
pub(crate) fn reason(errors: &[FleetError]) -> (&'static str, String) {
    let first = errors
        .iter()
        .find(|error| kind_of(&error.code) != Kind::InsufficientCapacity)
        .or_else(|| errors.first());
    match first {
        Some(first) => error::launch_reason(&first.code, &first.message),
        None => ("LaunchFailed", summary(errors)),
    }
}

#[cfg(test)]
mod tests;
