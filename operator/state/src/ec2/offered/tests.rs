use tenon_crds::ec2nodeclass::{
    AmiFamily, InstanceMatchCriteria, ReservationState, ReservationType,
};
use tenon_crds::labels::{self, aws};
use tenon_planner::resources::MicroUsd;
use tenon_planner::snapshot::{Operator, Requirement};

use super::*;

const GIB: i64 = 1 << 30;

fn offering(zone: &str, capacity_type: CapacityType) -> Offering {
    Offering {
        zone: zone.to_owned(),
        capacity_type,
        requirements: Vec::new(),
        price: MicroUsd(96_000),
        available: true,
        reservation_capacity: None,
        unpriced: None,
    }
}

fn of_file(name: &str) -> InstanceType {
    InstanceType {
        name: name.to_owned(),
        capacity: Resources { cpu: 2000, memory: 8 * GIB, pods: 32, ..Resources::default() },
        offerings: vec![
            offering("us-west-2a", CapacityType::Spot),
            offering("us-west-2b", CapacityType::OnDemand),
        ],
        ..InstanceType::default()
    }
}

fn plan(types: &[InstanceType], subnets: &[Subnet]) -> OfferedTypes {
    plan_with(types, subnets, &[], &BTreeMap::new())
}

fn plan_with(
    types: &[InstanceType],
    subnets: &[Subnet],
    reservations: &[CapacityReservation],
    room: &BTreeMap<String, u32>,
) -> OfferedTypes {
    let class = EC2NodeClassSpec::default();
    let scope = ClassScope { subnets, reservations, room, ..scope(&class) };
    instance_types(types, &scope)
}

fn scope(class: &EC2NodeClassSpec) -> ClassScope<'_> {
    ClassScope {
        class,
        subnets: &[],
        region: Some("us-west-2"),
        described: const { &BTreeMap::new() },
        vm_memory_overhead: VM_MEMORY_OVERHEAD,
        reserved_enis: 0,
        seen_memory: const { &BTreeMap::new() },
        reservations: &[],
        room: const { &BTreeMap::new() },
    }
}

fn label(kind: &InstanceType, key: &str) -> String {
    let requirement = kind.requirements.iter().find(|requirement| requirement.key == key);
    requirement.map(|requirement| requirement.values.join(",")).unwrap_or_default()
}

#[test]
fn a_type_that_ec2_describes_gets_its_labels_and_the_room_that_a_node_of_it_has() {
    let found = plan(&[of_file("m5.large")], &[]);
    let kind = &found.instance_types[0];
    assert_eq!(label(kind, aws::INSTANCE_HYPERVISOR), "nitro");
    assert_eq!(label(kind, labels::ZONE), "us-west-2a,us-west-2b");
    assert_eq!(kind.allocatable().memory >> 20, 6903, "the published figure");
    assert_eq!(kind.allocatable().pods, 29);
    assert_eq!(found.unknown, Vec::<String>::new());
}

#[test]
fn a_type_that_nobody_describes_keeps_what_the_file_says_and_is_named() {
    let found = plan(&[of_file("m99.large")], &[]);
    assert_eq!(found.unknown, ["m99.large"]);
    let kind = &found.instance_types[0];
    assert_eq!(label(kind, aws::INSTANCE_GENERATION), "99");
    assert_eq!((kind.capacity.memory, kind.capacity.pods), (8 * GIB, 32));
}

#[test]
fn offerings_are_available_where_the_node_class_has_a_subnet() {
    let subnets = [Subnet {
        id: "subnet-a".to_owned(),
        zone: "us-west-2a".to_owned(),
        zone_id: Some("usw2-az1".to_owned()),
    }];
    let found = plan(&[of_file("m5.large")], &subnets);
    let kind = &found.instance_types[0];
    let available: Vec<_> =
        kind.offerings.iter().map(|it| (it.zone.as_str(), it.available)).collect();
    assert_eq!(available, [("us-west-2a", true), ("us-west-2b", false)]);
    assert_eq!(label(kind, labels::ZONE), "us-west-2a");
    assert_eq!(label(kind, aws::ZONE_ID), "usw2-az1");
}

fn reservation(id: &str, zone: &str) -> CapacityReservation {
    CapacityReservation {
        availability_zone: zone.to_owned(),
        end_time: None,
        id: id.to_owned(),
        instance_match_criteria: InstanceMatchCriteria::Targeted,
        instance_type: "m5.large".to_owned(),
        interruptible: false,
        owner_id: "111122223333".to_owned(),
        reservation_type: ReservationType::Default,
        state: ReservationState::Active,
    }
}

#[test]
fn reservations_of_the_node_class_are_offered_as_long_as_they_have_room() {
    let room = BTreeMap::from([("cr-b".to_owned(), 3)]);
    let given = [
        reservation("cr-b", "us-west-2b"),
        reservation("cr-unknown", "us-west-2b"),
        reservation("cr-far", "us-west-2c"),
    ];
    let found = plan_with(&[of_file("m5.large"), of_file("c5.large")], &[], &given, &room);
    let reserved = |kind: &InstanceType| -> Vec<(String, Option<u32>, bool, i64)> {
        let offerings = kind.offerings.iter();
        let reserved = offerings.filter(|it| it.capacity_type == CapacityType::Reserved);
        let id = |offering: &Offering| {
            let key = aws::CAPACITY_RESERVATION_ID;
            let requirement = offering.requirements.iter().find(|it| it.key == key).unwrap();
            requirement.values[0].clone()
        };
        reserved.map(|it| (id(it), it.reservation_capacity, it.available, it.price.0)).collect()
    };
    assert_eq!(
        reserved(&found.instance_types[0]),
        [
            ("cr-b".to_owned(), Some(3), true, 1),
            ("cr-unknown".to_owned(), Some(0), true, 1),
            ("cr-far".to_owned(), Some(0), false, 1),
        ]
    );
    assert_eq!(
        label(&found.instance_types[0], labels::CAPACITY_TYPE),
        "on-demand,reserved,spot",
        "the label that machines of the type can have"
    );
    assert_eq!(reserved(&found.instance_types[1]), [], "of another type");
}

#[test]
fn a_reservation_that_the_file_offers_is_not_offered_twice() {
    let mut kind = of_file("m5.large");
    let mut own = offering("us-west-2b", CapacityType::Reserved);
    own.requirements =
        reserved::offering(&reservation("cr-b", "us-west-2b"), 1, None, true, None).requirements;
    own.reservation_capacity = Some(7);
    kind.offerings.push(own);
    let given = [reservation("cr-b", "us-west-2b")];
    let found = plan_with(&[kind], &[], &given, &BTreeMap::from([("cr-b".to_owned(), 3)]));
    let offerings = found.instance_types[0].offerings.iter();
    let left: Vec<_> = offerings.filter_map(|it| it.reservation_capacity).collect();
    assert_eq!(left, [7]);
}

#[test]
fn a_windows_node_class_adds_the_license_to_prices_of_linux_and_to_no_others() {
    let of_windows =
        EC2NodeClassSpec { ami_family: Some(AmiFamily::Windows2022), ..Default::default() };
    let only = |os: &[&str], kind: InstanceType| {
        let requirement = Requirement {
            key: labels::OS.to_owned(),
            operator: Operator::In,
            values: os.iter().copied().map(str::to_owned).collect(),
            min_values: None,
        };
        InstanceType { requirements: vec![requirement], ..kind }
    };
    for (kind, expected) in [
        (of_file("m5.large"), 96_000 + 92_000),
        (of_file("t3.large"), 96_000 + 27_600),
        // Nothing is known about it but what the file says.
        (of_file("z99.large"), 96_000 + 92_000),
        (only(&["linux", "windows"], of_file("m5.large")), 96_000 + 92_000),
        (only(&["windows"], of_file("m5.large")), 96_000),
    ] {
        let price = |class: &EC2NodeClassSpec, region: &str| -> Vec<i64> {
            let scope = ClassScope { region: Some(region), ..scope(class) };
            let found = instance_types(std::slice::from_ref(&kind), &scope);
            found.instance_types[0].offerings.iter().map(|offering| offering.price.0).collect()
        };
        assert_eq!(price(&of_windows, "us-west-2"), [expected; 2], "{kind:?}");
        assert_eq!(price(&of_windows, "cn-north-1"), [96_000; 2], "{kind:?}");
        assert_eq!(price(&EC2NodeClassSpec::default(), "us-west-2"), [96_000; 2], "{kind:?}");
    }
}

#[test]
fn list_prices_offer_what_a_type_can_be_bought_as() {
    let types = list_priced(["us-west-2a"]);
    let kinds = |name: &str| -> Vec<CapacityType> {
        let kind = types.iter().find(|kind| kind.name == name).unwrap();
        kind.offerings.iter().map(|offering| offering.capacity_type).collect()
    };
    assert_eq!(kinds("m5.large"), [CapacityType::OnDemand, CapacityType::Spot]);
    assert!(types.len() > 700, "{} types", types.len());
    assert!(types.windows(2).all(|pair| pair[0].name < pair[1].name));
}

#[test]
fn regions_follow_from_zones() {
    for (zone, region) in [
        ("eu-west-1a", Some("eu-west-1")),
        ("us-gov-west-1b", Some("us-gov-west-1")),
        ("us-west-2-lax-1a", Some("us-west-2")),
        ("test-zone-a", None),
        ("zone-1", None),
        ("here", None),
    ] {
        assert_eq!(region_of_zone(zone), region, "{zone}");
    }
}
