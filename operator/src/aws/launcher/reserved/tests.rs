use tenon_crds::EC2NodeClass;
use tenon_crds::ec2nodeclass::{
    CapacityReservation, InstanceMatchCriteria, ReservationState, ReservationType,
};
use tenon_planner::snapshot::Catalog;

use super::*;
use crate::aws::catalog::Catalogs;
use crate::aws::catalog::tests::{mk_catalogs, mk_class};
use crate::aws::launcher::filters::{Wanted, candidates, capacity_type};
use crate::aws::matching::Requirements;

/// A reservation of a type in a zone.
fn reservation(id: &str, instance_type: &str, zone: &str) -> CapacityReservation {
    CapacityReservation {
        availability_zone: format!("eu-central-1{zone}"),
        end_time: None,
        id: id.to_owned(),
        instance_match_criteria: InstanceMatchCriteria::Targeted,
        instance_type: instance_type.to_owned(),
        interruptible: false,
        owner_id: "123456789012".to_owned(),
        reservation_type: ReservationType::Default,
        state: ReservationState::Active,
    }
}

fn block(id: &str, instance_type: &str, zone: &str) -> CapacityReservation {
    let reservation_type = ReservationType::CapacityBlock;
    CapacityReservation { reservation_type, ..reservation(id, instance_type, zone) }
}

/// A reservation of m5.large in zone a.
pub(in crate::aws::launcher) fn reservation_of(id: &str, terms: Terms) -> CapacityReservation {
    CapacityReservation {
        interruptible: terms == Terms::Interruptible,
        reservation_type: match terms {
            Terms::CapacityBlock => ReservationType::CapacityBlock,
            Terms::OnDemand | Terms::Interruptible => ReservationType::Default,
        },
        ..reservation(id, "m5.large", "a")
    }
}

/// Catalogs and a class with reservations, of which so many are left.
pub(in crate::aws::launcher) fn world(
    list: &[(CapacityReservation, u32)],
) -> (Catalogs, EC2NodeClass) {
    let catalogs = mk_catalogs(&["m5.large", "m5.xlarge", "c5.large"]);
    let mut class = mk_class();
    let status = class.status.as_mut().unwrap();
    for (reservation, left) in list {
        catalogs.reservations.observe(&reservation.id, *left);
        status.capacity_reservations.push(reservation.clone());
    }
    (catalogs, class)
}

fn launchable(catalog: &Catalog, requirements: &[tenon_crds::Requirement]) -> Vec<String> {
    let wanted = Wanted {
        requirements: Requirements::from_api(requirements),
        requests: tenon_planner::resources::Resources::default(),
        min_values_relaxed: false,
    };
    let found = candidates(catalog, &wanted).unwrap();
    let offered = found.iter().flat_map(|candidate| {
        let name = candidate.instance_type.name.as_str();
        candidate.offerings.iter().map(move |offering| {
            let id = Reservation::of(offering).map(|reservation| reservation.id);
            format!("{name} {} {}", offering.zone, id.unwrap_or_default())
        })
    });
    let mut offered: Vec<String> = offered.collect();
    offered.insert(0, capacity_type(&found).as_str().to_owned());
    offered
}

fn offered(list: &[(CapacityReservation, u32)]) -> Vec<String> {
    let (catalogs, class) = world(list);
    launchable(&catalogs.catalog(&class, None).unwrap(), &[])
}

#[test]
fn reserved_machines_go_first_and_of_two_reservations_in_a_zone_the_one_with_more_room() {
    assert_eq!(
        offered(&[
            (reservation("cr-1", "m5.large", "a"), 1),
            (reservation("cr-2", "m5.large", "a"), 3),
            (reservation("cr-3", "m5.large", "b"), 1),
            (reservation("cr-4", "m5.xlarge", "a"), 0),
        ]),
        ["reserved", "m5.large eu-central-1a cr-2", "m5.large eu-central-1b cr-3"]
    );
}

#[test]
fn without_room_in_a_reservation_machines_are_bought_as_if_there_were_none() {
    let list = offered(&[(reservation("cr-1", "m5.large", "a"), 0)]);
    assert_eq!(list[0], "spot", "{list:?}");
    assert!(list[1..].iter().all(|offering| offering.ends_with(' ')), "{list:?}");
}

#[test]
fn one_kind_of_reservation_is_used_at_a_time_and_one_capacity_block() {
    let interruptible = |id, instance_type| CapacityReservation {
        interruptible: true,
        ..reservation(id, instance_type, "a")
    };
    let only = |list| ["reserved".to_owned()].into_iter().chain(list).collect::<Vec<String>>();
    assert_eq!(
        offered(&[
            (interruptible("cr-1", "m5.large"), 1),
            (block("cr-2", "m5.large", "b"), 1),
            (reservation("cr-3", "m5.large", "a"), 1),
        ]),
        only(vec!["m5.large eu-central-1a cr-3".to_owned()]),
        "at the same price"
    );
    assert_eq!(
        offered(&[
            (block("cr-1", "m5.large", "b"), 1),
            (block("cr-2", "m5.large", "a"), 1),
            (block("cr-3", "m5.xlarge", "a"), 1),
        ]),
        only(vec!["m5.large eu-central-1a cr-2".to_owned()]),
    );
}

#[test]
fn a_claim_that_forbids_reserved_machines_gets_none() {
    let (catalogs, class) = world(&[(reservation("cr-1", "m5.large", "a"), 1)]);
    let catalog = catalogs.catalog(&class, None).unwrap();
    let only = |value: &str| {
        let key = tenon_crds::labels::CAPACITY_TYPE;
        [tenon_crds::Requirement::new(key, tenon_crds::Operator::In, [value])]
    };
    assert_eq!(launchable(&catalog, &only("on-demand"))[0], "on-demand");
    assert_eq!(launchable(&catalog, &only("reserved"))[0], "reserved");
}

#[test]
fn a_type_says_which_reservations_its_machines_can_be_in() {
    let (catalogs, class) =
        world(&[(reservation("cr-2", "m5.large", "a"), 1), (block("cr-1", "m5.large", "b"), 0)]);
    let catalog = catalogs.catalog(&class, None).unwrap();
    let values = |name: &str, key: &str| {
        let kind = catalog.instance_types.iter().find(|kind| kind.name == name).unwrap();
        let requirement = kind.requirements.iter().find(|it| it.key == key).unwrap();
        requirement.values.join(",")
    };
    for (key, reserved, other) in [
        (tenon_crds::labels::CAPACITY_TYPE, "on-demand,reserved,spot", "on-demand,spot"),
        (keys::CAPACITY_RESERVATION_ID, "cr-1,cr-2", ""),
        (keys::CAPACITY_RESERVATION_TYPE, "capacity-block,default", ""),
        (keys::CAPACITY_RESERVATION_INTERRUPTIBLE, "false", ""),
    ] {
        assert_eq!((&*values("m5.large", key), &*values("c5.large", key)), (reserved, other));
    }
    let kind = catalog.instance_types.iter().find(|kind| kind.name == "m5.large").unwrap();
    let left: Vec<_> = kind.offerings.iter().filter_map(|it| it.reservation_capacity).collect();
    assert_eq!(left, [1, 0]);
    let dearest = kind.offerings.iter().filter(|it| it.reservation_capacity.is_some());
    let cheapest = kind.offerings.iter().filter(|it| it.reservation_capacity.is_none());
    let price = |it: &Offering| it.price;
    assert!(dearest.map(price).max() < cheapest.map(price).min());
}

#[test]
fn a_reservation_that_is_about_to_end_or_has_no_subnet_is_not_launched_into() {
    let expiring = |mut it: CapacityReservation| {
        it.state = ReservationState::Expiring;
        it
    };
    let list = offered(&[
        (expiring(block("cr-1", "m5.large", "a")), 1),
        (reservation("cr-2", "m5.large", "c"), 1),
    ]);
    assert_eq!(list[0], "spot", "{list:?}");
}

#[test]
fn catalogs_follow_what_is_launched() {
    let (catalogs, class) = world(&[(reservation("cr-1", "m5.large", "a"), 1)]);
    let before = catalogs.catalog(&class, None).unwrap();
    assert_eq!(launchable(&before, &[])[0], "reserved");
    catalogs.reservations.take("cr-1");
    let after = catalogs.catalog(&class, None).unwrap();
    assert_eq!(launchable(&after, &[])[0], "spot");
}
