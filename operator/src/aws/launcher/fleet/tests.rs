use super::*;
use crate::aws::catalog::tests::{mk_catalogs, mk_class};
use crate::aws::ec2::requests::{CreateLaunchTemplate, LaunchTemplateData};
use crate::aws::launcher::filters::{Wanted, candidates};
use crate::aws::launcher::reserved::tests::{reservation_of, world};
use crate::aws::matching::Requirements;
use crate::aws::tags::launch_tags;

fn mk_request(
    types: &[&str],
    subnets: &[(&str, &str)],
    capacity_type: CapacityType,
    by_priority: bool,
) -> Option<CreateFleet> {
    let class = mk_class();
    let catalog = mk_catalogs(types).catalog(&class, None).unwrap();
    let wanted = Wanted {
        requirements: Requirements::default(),
        requests: tenon_planner::resources::Resources::default(),
        min_values_relaxed: false,
    };
    let candidates = candidates(&catalog, &wanted).unwrap();
    let template = Template {
        request: CreateLaunchTemplate {
            launch_template_name: "karpenter.k8s.aws/1".to_owned(),
            launch_template_data: LaunchTemplateData {
                image_id: "ami-amd".to_owned(),
                ..LaunchTemplateData::default()
            },
            tag_specifications: Vec::new(),
        },
        instance_types: candidates.iter().map(|candidate| candidate.instance_type).collect(),
        reservation: None,
    };
    let subnets = subnets.iter().map(|&(zone, id)| (zone.to_owned(), id.to_owned())).collect();
    request(FleetScope {
        templates: &[template],
        candidates: &candidates,
        capacity_type,
        subnets: &subnets,
        tags: &launch_tags(&class, "my-cluster", "default").unwrap(),
        context: None,
        by_priority,
    })
}

const ZONE_A: &[(&str, &str)] = &[("eu-central-1a", "subnet-a")];

#[test]
fn the_spot_request_has_the_reference_shape() {
    insta::assert_json_snapshot!(
        "create_fleet_spot",
        mk_request(&["m5.large"], ZONE_A, CapacityType::Spot, false)
    );
}

#[test]
fn on_demand_takes_the_lowest_price() {
    let request = mk_request(&["m5.large"], ZONE_A, CapacityType::OnDemand, false).unwrap();
    assert_eq!(request.target_capacity_specification.default_target_capacity_type, "on-demand");
    assert_eq!(request.on_demand_options.unwrap().allocation_strategy, "lowest-price");
    assert_eq!(request.spot_options, None);
}

#[test]
fn overlaid_prices_turn_allocation_to_priorities() {
    let strategy = |capacity_type| {
        let request = mk_request(&["m5.large"], ZONE_A, capacity_type, true).unwrap();
        request.spot_options.or(request.on_demand_options).unwrap().allocation_strategy
    };
    assert_eq!(strategy(CapacityType::Spot), "capacity-optimized-prioritized");
    assert_eq!(strategy(CapacityType::OnDemand), "prioritized");
}

#[test]
fn each_type_has_one_place_per_zone_with_a_subnet() {
    let both = [("eu-central-1a", "subnet-a"), ("eu-central-1b", "subnet-b")];
    let request = mk_request(&["m5.large", "m6i.large"], &both, CapacityType::Spot, false).unwrap();
    let places: Vec<_> = request.launch_template_configs[0]
        .overrides
        .iter()
        .map(|place| (place.instance_type.as_str(), place.subnet_id.as_str()))
        .collect();
    assert_eq!(
        places,
        [
            ("m5.large", "subnet-a"),
            ("m5.large", "subnet-b"),
            ("m6i.large", "subnet-a"),
            ("m6i.large", "subnet-b"),
        ]
    );
    assert_eq!(mk_request(&["m5.large"], &[], CapacityType::Spot, false), None);
}

fn fleet_error(code: &str, instance_type: &str, zone: &str) -> FleetError {
    FleetError {
        code: code.to_owned(),
        message: "because".to_owned(),
        instance_type: Some(instance_type.to_owned()),
        zone: Some(zone.to_owned()),
        subnet_id: Some("subnet-a".to_owned()),
    }
}

#[test]
fn only_a_lack_of_capacity_is_insufficient_capacity() {
    let ice = fleet_error("InsufficientInstanceCapacity", "m5.large", "a");
    let denied = fleet_error("UnauthorizedOperation", "m5.large", "a");
    let no_role = fleet_error(error::SPOT_ROLE_MISSING, "m5.large", "a");
    assert!(is_insufficient_capacity(std::slice::from_ref(&ice)));
    assert!(is_insufficient_capacity(&[ice.clone(), no_role]));
    assert!(!is_insufficient_capacity(&[ice.clone(), denied.clone()]));
    assert!(!is_insufficient_capacity(&[]));
    assert_eq!(reason(&[ice.clone(), denied]).0, "Unauthorized");
    assert_eq!(reason(&[]).0, "LaunchFailed");
    assert_eq!(summary(&[ice.clone(), ice]), "InsufficientInstanceCapacity: because");
}

#[test]
fn errors_teach_which_offerings_subnets_and_capacity_types_to_avoid() {
    let errors = [
        fleet_error("InsufficientInstanceCapacity", "m5.large", "a"),
        fleet_error("InsufficientInstanceCapacity", "m5.large", "a"),
        fleet_error("InsufficientFreeAddressesInSubnet", "m6i.large", "a"),
        fleet_error("UnauthorizedOperation", "c5.large", "a"),
        fleet_error(error::SPOT_ROLE_MISSING, "c5.large", "b"),
    ];
    let found = lessons(&errors);
    let offerings: Vec<_> =
        found.offerings.iter().map(|(name, zone, _)| (name.as_str(), zone.as_str())).collect();
    assert_eq!(offerings, [("m5.large", "a"), ("m6i.large", "a")]);
    assert_eq!(found.subnets, BTreeSet::from(["subnet-a".to_owned()]));
    assert!(found.no_spot);
}

#[test]
fn a_spread_group_that_is_full_in_a_zone_is_full_for_all_types() {
    let full = FleetError {
        message: "You have reached the limit of instances in this spread placement group"
            .to_owned(),
        ..fleet_error("InsufficientInstanceCapacity", "m5.large", "a")
    };
    assert_eq!(lessons(&[full]).full_zones, BTreeSet::from(["a".to_owned()]));
    let other = fleet_error("InsufficientInstanceCapacity", "m5.large", "a");
    assert_eq!(lessons(&[other]).full_zones, BTreeSet::new());
}

/// A fleet for one reservation of these terms.
fn reserved(terms: Terms) -> CreateFleet {
    let (catalogs, class) = world(&[(reservation_of("cr-1", terms), 1)]);
    let catalog = catalogs.catalog(&class, None).unwrap();
    let wanted = Wanted {
        requirements: Requirements::default(),
        requests: tenon_planner::resources::Resources::default(),
        min_values_relaxed: false,
    };
    let candidates = candidates(&catalog, &wanted).unwrap();
    let template = |id: &str| Template {
        request: CreateLaunchTemplate::default(),
        instance_types: candidates.iter().map(|candidate| candidate.instance_type).collect(),
        reservation: Some(Reservation { id: id.to_owned(), terms }),
    };
    let zones = ["eu-central-1a", "eu-central-1b"];
    request(FleetScope {
        templates: &[template("cr-1"), template("cr-2")],
        candidates: &candidates,
        capacity_type: CapacityType::Reserved,
        subnets: &zones.map(|zone| (zone.to_owned(), format!("subnet in {zone}"))).into(),
        tags: &launch_tags(&class, "my-cluster", "default").unwrap(),
        context: None,
        by_priority: false,
    })
    .unwrap()
}

#[test]
fn each_kind_of_reservation_is_asked_for_in_its_own_way() {
    for (terms, bought, on_demand, reservation_types) in [
        (Terms::OnDemand, "on-demand", true, None),
        (Terms::CapacityBlock, "capacity-block", false, None),
        (
            Terms::Interruptible,
            "reserved-capacity",
            false,
            Some(vec!["interruptible-capacity-reservation".to_owned()]),
        ),
    ] {
        let request = reserved(terms);
        let target = request.target_capacity_specification;
        assert_eq!(target.default_target_capacity_type, bought);
        assert_eq!(request.on_demand_options.is_some(), on_demand, "{bought}");
        assert_eq!(request.spot_options, None);
        let options = request.reserved_capacity_options.map(|options| options.reservation_types);
        assert_eq!(options, reservation_types, "{bought}");
    }
}

#[test]
fn a_template_is_used_only_where_its_reservation_is() {
    let request = reserved(Terms::OnDemand);
    let [config] = request.launch_template_configs.as_slice() else {
        panic!("the other reservation has no offering: {request:?}")
    };
    let places: Vec<_> =
        config.overrides.iter().map(|place| (&*place.instance_type, &*place.subnet_id)).collect();
    assert_eq!(places, [("m5.large", "subnet in eu-central-1a")]);
}
