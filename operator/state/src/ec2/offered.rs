//! The catalog of an EC2NodeClass for whoever can't ask EC2: types, zones and prices come from a
//! file or from list prices, everything else about the types from descriptions. What the operator
//! would compute from the same facts is the same, byte for byte.

use std::collections::{BTreeMap, BTreeSet};

use tenon_crds::ec2nodeclass::{CapacityReservation, EC2NodeClassSpec, Subnet};
use tenon_crds::labels::aws;
use tenon_planner::resources::{MicroUsd, Resources};
use tenon_planner::snapshot::{CapacityType, InstanceType, Offering};

use super::network::NetworkTable;
use super::type_info::TypeInfo;
use super::{
    TypeScope, define_ec2_labels, facts, instance_type, is_compatible, is_for_windows, license,
    offering_requirements, prices, reserved,
};

/// `--vm-memory-overhead-percent` when nobody sets it.
pub const VM_MEMORY_OVERHEAD: f64 = 0.075;

/// The NodeClass and the settings that shape its catalog.
#[derive(Clone, Copy, Debug)]
pub struct ClassScope<'a> {
    /// The NodeClass.
    pub class: &'a EC2NodeClassSpec,
    /// The subnets of its status. Empty stands for one in every zone.
    pub subnets: &'a [Subnet],
    /// The region; `None` when it is not known.
    pub region: Option<&'a str>,
    /// What EC2 says about types; what is not here is looked up in the table that comes with this
    /// version.
    pub described: &'a BTreeMap<String, TypeInfo>,
    /// `--vm-memory-overhead-percent`.
    pub vm_memory_overhead: f64,
    /// `--reserved-enis`.
    pub reserved_enis: u32,
    /// The least memory in bytes that nodes of a type showed, with an image of the NodeClass.
    pub seen_memory: &'a BTreeMap<String, i64>,
    /// The capacity reservations of its status.
    pub reservations: &'a [CapacityReservation],
    /// How many more instances they have room for, by id. What is not here counts as full.
    pub room: &'a BTreeMap<String, u32>,
}

/// A catalog, and the types that nothing is known about but what the file says.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OfferedTypes {
    /// The types, in the order of the file.
    pub instance_types: Vec<InstanceType>,
    /// Names of types whose labels and capacity are the file's, as far as it has them.
    pub unknown: Vec<String>,
}

/// The types of a file as an EC2NodeClass gets them. CPUs and memory are the file's, as are zones
/// and prices. Types that the file does not say are for Windows only have prices of Linux.
pub fn instance_types(offered: &[InstanceType], scope: &ClassScope<'_>) -> OfferedTypes {
    let network = NetworkTable::bundled();
    let mut found = OfferedTypes::default();
    for kind in offered {
        let described =
            scope.described.get(&kind.name).cloned().or_else(|| facts::find(&kind.name));
        let Some(info) = described else {
            found.unknown.push(kind.name.clone());
            found.instance_types.push(undescribed(kind, scope));
            continue;
        };
        found.instance_types.push(described_as(info, kind, scope, &network));
    }
    found
}

fn described_as(
    mut info: TypeInfo,
    kind: &InstanceType,
    scope: &ClassScope<'_>,
    network: &NetworkTable,
) -> InstanceType {
    info.vcpus = kind.capacity.cpu / 1000;
    info.memory_mib = kind.capacity.memory >> 20;
    let reserved_class = CapacityType::Reserved.as_str();
    if kind.offerings.iter().any(|offering| offering.capacity_type == CapacityType::Reserved)
        && !info.supports(reserved_class)
    {
        info.usage_classes.push(reserved_class.to_owned());
    }
    let zones: BTreeMap<String, Option<String>> = kind
        .offerings
        .iter()
        .filter_map(|offering| zone_id(&offering.zone, scope).map(|id| (offering.zone.clone(), id)))
        .collect();
    let mut built = instance_type(
        &info,
        &TypeScope {
            class: scope.class,
            network,
            region: scope.region,
            zones: &zones,
            placement_group: None,
            partitions: 0,
            vm_memory_overhead: scope.vm_memory_overhead,
            reserved_enis: scope.reserved_enis,
            seen_memory: scope.seen_memory.get(&kind.name).copied(),
        },
    );
    for (name, &amount) in &kind.capacity.extended {
        built.capacity.extended.entry(name.clone()).or_insert(amount);
    }
    let place =
        Place { compatible: is_compatible(&info, scope.class), license: surcharge(kind, scope) };
    built.offerings = kind
        .offerings
        .iter()
        .filter(|offering| info.supports(offering.capacity_type.as_str()))
        .map(|offering| offer(offering, scope, place))
        .collect();
    let reservations = reservations(kind, scope);
    reserved::extend(&mut built.requirements, &reservations);
    built.offerings.extend(reservations.iter().map(|it| reserve(it, kind, scope, place)));
    built.offerings.sort_by(|a, b| (&a.zone, a.capacity_type).cmp(&(&b.zone, b.capacity_type)));
    built
}

fn undescribed(kind: &InstanceType, scope: &ClassScope<'_>) -> InstanceType {
    let mut built = kind.clone();
    let place = Place { compatible: true, license: surcharge(kind, scope) };
    built.offerings = kind.offerings.iter().map(|offering| offer(offering, scope, place)).collect();
    define_ec2_labels(std::slice::from_mut(&mut built));
    built
}

/// What the nodes of a NodeClass make of a type's offerings.
#[derive(Clone, Copy)]
struct Place {
    /// Whether they can run on the type.
    compatible: bool,
    /// What their operating system costs there.
    license: MicroUsd,
}

/// What the NodeClass' operating system costs on top of the file's prices. Those of a type that
/// runs nothing but Windows are prices of Windows.
fn surcharge(kind: &InstanceType, scope: &ClassScope<'_>) -> MicroUsd {
    if is_for_windows(kind) {
        return MicroUsd(0);
    }
    let machine = (kind.name.as_str(), kind.capacity.cpu / 1000);
    license(scope.class, machine, scope.region.unwrap_or_default())
}

fn with_license(price: MicroUsd, license: MicroUsd) -> MicroUsd {
    MicroUsd(price.0 + license.0)
}

fn offer(offering: &Offering, scope: &ClassScope<'_>, place: Place) -> Offering {
    let zone_id = zone_id(&offering.zone, scope);
    let mut requirements = offering.requirements.clone();
    for requirement in offering_requirements(zone_id.as_ref().and_then(Option::as_deref)) {
        if !requirements.iter().any(|known| known.key == requirement.key) {
            requirements.push(requirement);
        }
    }
    requirements.sort();
    let price = offering.known_price().map(|price| with_license(price, place.license));
    Offering {
        requirements,
        price: price.unwrap_or(offering.price),
        available: offering.available && place.compatible && zone_id.is_some(),
        ..offering.clone()
    }
}

/// The NodeClass' reservations of a type, but those that the file offers itself.
fn reservations<'a>(kind: &InstanceType, scope: &ClassScope<'a>) -> Vec<&'a CapacityReservation> {
    let is_offered = |reservation: &CapacityReservation| {
        let mut requirements = kind.offerings.iter().flat_map(|offering| &offering.requirements);
        requirements
            .any(|it| it.key == aws::CAPACITY_RESERVATION_ID && it.values.contains(&reservation.id))
    };
    let of_kind = scope.reservations.iter().filter(|it| it.instance_type == kind.name);
    of_kind.filter(|reservation| !is_offered(reservation)).collect()
}

/// A reservation as a way to buy the type.
fn reserve(
    reservation: &CapacityReservation,
    kind: &InstanceType,
    scope: &ClassScope<'_>,
    place: Place,
) -> Offering {
    let zone = reservation.availability_zone.as_str();
    let on_demand = kind.offerings.iter().filter(|it| it.capacity_type == CapacityType::OnDemand);
    let price = on_demand.map(|offering| with_license(offering.price, place.license)).min();
    let offered = kind.offerings.iter().any(|offering| offering.zone == zone);
    let zone_id = zone_id(zone, scope);
    reserved::offering(
        reservation,
        scope.room.get(&reservation.id).copied().unwrap_or(0),
        price,
        place.compatible && offered && zone_id.is_some(),
        zone_id.flatten().as_deref(),
    )
}

/// The id of a zone, as far as it is known; `None` when the NodeClass has no subnet there.
#[expect(clippy::option_option, reason = "no zone and a zone without an id are two things")]
fn zone_id(zone: &str, scope: &ClassScope<'_>) -> Option<Option<String>> {
    if scope.subnets.is_empty() {
        return Some(None);
    }
    let subnet = scope.subnets.iter().find(|subnet| subnet.zone == zone)?;
    Some(subnet.zone_id.clone())
}

/// Every type with a list price that comes with this version, offered in these zones. Spot costs as
/// much as on-demand, as in an operator that has not seen spot prices.
pub fn list_priced<'a>(zones: impl IntoIterator<Item = &'a str>) -> Vec<InstanceType> {
    let zones: BTreeSet<&str> = zones.into_iter().collect();
    let mut types: Vec<InstanceType> = prices::on_demand()
        .filter_map(|(name, price)| {
            let info = facts::find(name)?;
            let offerings = zones.iter().flat_map(|zone| {
                let kinds = [CapacityType::OnDemand, CapacityType::Spot];
                kinds.into_iter().filter(|kind| info.supports(kind.as_str())).map(|kind| Offering {
                    zone: (*zone).to_owned(),
                    capacity_type: kind,
                    requirements: Vec::new(),
                    price,
                    available: true,
                    reservation_capacity: None,
                    unpriced: None,
                })
            });
            Some(InstanceType {
                name: info.name.clone(),
                capacity: Resources {
                    cpu: info.vcpus * 1000,
                    memory: info.memory_mib << 20,
                    ..Resources::default()
                },
                offerings: offerings.collect(),
                ..InstanceType::default()
            })
        })
        .collect();
    types.sort_by(|a, b| a.name.cmp(&b.name));
    types
}

/// The region of a zone by its name: `eu-west-1a` and `us-west-2-lax-1a` are in `eu-west-1` and
/// `us-west-2`. `None` when the name is no zone's of AWS.
pub fn region_of_zone(zone: &str) -> Option<&str> {
    let digit = zone.find(|c: char| c.is_ascii_digit())?;
    let digits = zone[digit..].find(|c: char| !c.is_ascii_digit())?;
    let is_zone = zone[..digit].ends_with('-') && zone[..digit].split('-').count() >= 3;
    is_zone.then(|| &zone[..digit + digits])
}

#[cfg(test)]
mod tests;
