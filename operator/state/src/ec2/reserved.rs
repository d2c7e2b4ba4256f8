//! What capacity reservations add to an instance type: an offering each, and the values of its
//! labels.

use std::collections::BTreeSet;

use tenon_crds::ec2nodeclass::{CapacityReservation, ReservationState};
use tenon_crds::labels::{self as core, aws as keys};
use tenon_planner::resources::MicroUsd;
use tenon_planner::snapshot::{CapacityType, Offering, Operator, Requirement};

/// A reservation is paid for, used or not: what is launched into it costs next to nothing. That is
/// still more than nothing, so that among reservations the smaller machine goes first.
const PRICE_DIVISOR: i64 = 100_000;

/// What is left of a list price when the machine is reserved.
pub fn price(on_demand: Option<MicroUsd>) -> MicroUsd {
    let MicroUsd(price) = on_demand.unwrap_or_default();
    MicroUsd((price + PRICE_DIVISOR - 1) / PRICE_DIVISOR)
}

/// The way to buy a type by launching into a reservation of which so many are left. `usable` is
/// whether a machine could run there at all.
pub fn offering(
    reservation: &CapacityReservation,
    left: u32,
    on_demand: Option<MicroUsd>,
    usable: bool,
    zone_id: Option<&str>,
) -> Offering {
    let mut requirements: Vec<Requirement> =
        labels(reservation).into_iter().map(|(key, value)| is_in(key, [value])).collect();
    requirements.extend(zone_id.map(|id| is_in(keys::ZONE_ID, [id.to_owned()])));
    requirements.sort();
    Offering {
        zone: reservation.availability_zone.clone(),
        capacity_type: CapacityType::Reserved,
        requirements,
        price: price(on_demand),
        available: usable && reservation.state == ReservationState::Active,
        reservation_capacity: Some(left),
        unpriced: None,
    }
}

/// Adds to a type's requirements what machines in these reservations are labelled with. They stay
/// sorted by key.
pub fn extend(requirements: &mut [Requirement], reservations: &[&CapacityReservation]) {
    if reservations.is_empty() {
        return;
    }
    for requirement in requirements.iter_mut() {
        let mut values: BTreeSet<String> = reservations
            .iter()
            .flat_map(|reservation| labels(reservation))
            .filter(|(key, _)| *key == requirement.key)
            .map(|(_, value)| value)
            .collect();
        if requirement.key == core::CAPACITY_TYPE {
            values.insert(CapacityType::Reserved.as_str().to_owned());
        }
        if !values.is_empty() {
            values.extend(std::mem::take(&mut requirement.values));
            *requirement = is_in(&requirement.key, values);
        }
    }
}

/// The labels of machines in a reservation.
fn labels(reservation: &CapacityReservation) -> [(&'static str, String); 3] {
    [
        (keys::CAPACITY_RESERVATION_ID, reservation.id.clone()),
        (keys::CAPACITY_RESERVATION_TYPE, reservation.reservation_type.as_str().to_owned()),
        (keys::CAPACITY_RESERVATION_INTERRUPTIBLE, reservation.interruptible.to_string()),
    ]
}

fn is_in(key: &str, values: impl IntoIterator<Item = String>) -> Requirement {
    Requirement {
        key: key.to_owned(),
        operator: Operator::In,
        values: values.into_iter().collect(),
        min_values: None,
    }
}
