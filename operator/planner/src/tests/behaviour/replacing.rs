//! What may take the place of a node: prices, capacity types, numbers of types.

use super::*;
use crate::plan::StayReason;
use crate::snapshot::{Budget, BudgetNodes, DisruptionReason, InstanceType, Node, Offering};
use crate::testing::{Builder, instance_type};

const CAPACITY_TYPE: &str = "karpenter.sh/capacity-type";

/// Appendix A.6: one type with an offering of each kind. The node's own type is not on sale any
/// more.
fn worst_prices(reserved: u32) -> Vec<InstanceType> {
    let offer = |capacity_type, zone: &str, price| Offering {
        zone: zone.to_owned(),
        capacity_type,
        requirements: Vec::new(),
        price: usd(price),
        available: true,
        reservation_capacity: None,
        unpriced: None,
    };
    let id = need("example.com/reservation-id", Operator::In, &["cr-1"]);
    let offers = vec![
        Offering {
            requirements: vec![id],
            reservation_capacity: Some(reserved),
            ..offer(CapacityType::Reserved, "zone-a", 0.0)
        },
        offer(CapacityType::Spot, "zone-a", 0.3),
        offer(CapacityType::Spot, "zone-b", 0.5),
        offer(CapacityType::OnDemand, "zone-a", 1.0),
    ];
    let mut kinds = vec![instance_type("c.new", 2000, 4 * GI, 29, offers)];
    kinds.extend(kinds_of("m.large").into_iter().map(|mut kind| {
        kind.offerings.iter_mut().for_each(|offer| offer.available = false);
        kind
    }));
    kinds
}

fn kinds_of(name: &str) -> Vec<InstanceType> {
    kinds().into_iter().filter(|kind| kind.name == name).collect()
}

fn priced(price: f64) -> Node {
    let mut node = node("a", "default", "m.large", "zone-a");
    node.price = Some(usd(price));
    node
}

#[test]
fn a_replacement_is_cheaper_at_its_worst_launch_price() {
    use CapacityType::{OnDemand, Reserved, Spot};
    for (allowed, reserved, price, expected) in [
        (&["on-demand", "spot"][..], 1, 0.5, None),
        (&["on-demand", "spot"], 1, 0.51, Some(Spot)),
        (&["on-demand"], 1, 1.0, None),
        (&["on-demand"], 1, 1.01, Some(OnDemand)),
        (&[], 1, 0.2, Some(Reserved)),
        (&[], 0, 0.5, None),
        (&[], 0, 0.51, Some(Spot)),
    ] {
        let mut open = pool("default");
        if !allowed.is_empty() {
            open.template.requirements.push(need(CAPACITY_TYPE, Operator::In, allowed));
        }
        let snapshot = Builder::new(catalog(worst_prices(reserved)))
            .pool(open)
            .node(priced(price))
            .pod("web", shape(1000, GI), Some("a"))
            .build();
        let plan = disruption(&snapshot);
        let found = plan.commands.first().map(|command| command.replacements[0].capacity_types[0]);
        assert_eq!(found, expected, "{allowed:?}, {reserved} reserved, {price}");
    }
}

#[test]
fn min_values_stay_strict_when_prices_are_compared() {
    let replaced = |min_values| {
        let mut diverse = on_demand("default");
        let mut many = need(TYPE, Operator::Exists, &[]);
        many.min_values = Some(min_values);
        diverse.template.requirements.push(many);
        let snapshot = builder()
            .pool(diverse)
            .node(node("a", "default", "m.xlarge", "zone-a"))
            .pod("web", shape(1500, 3 * GI), Some("a"))
            .build();
        let policy = Policy { min_values: MinValuesPolicy::BestEffort, ..Policy::default() };
        disruption_with(&snapshot, &policy).commands.len()
    };
    // c.large, m.large, r.large and c.xlarge are cheaper than m.xlarge.
    assert_eq!((replaced(4), replaced(5)), (1, 0));
}

#[test]
fn spot_to_spot_keeps_the_fifteen_cheapest_types() {
    let mut many = kinds();
    for number in 0..20_i32 {
        let price = 0.1 + 0.001 * f64::from(number);
        let name = format!("x{number:02}.large");
        many.push(instance_type(&name, 4000, 16 * GI, 29, offerings(price)));
    }
    let mut spot = node("a", "default", "m.8xlarge", "zone-a");
    spot.labels.insert(CAPACITY_TYPE.to_owned(), "spot".to_owned());
    spot.price = spot.price.map(|price| crate::resources::MicroUsd(price.0 * 4 / 10));
    let snapshot = Builder::new(catalog(many))
        .pool(pool("default"))
        .node(spot)
        .pod("web", shape(1500, 3 * GI), Some("a"))
        .build();
    let plan = disruption_with(&snapshot, &Policy { spot_to_spot: true, ..Policy::default() });
    let replacement = &plan.commands[0].replacements[0];
    assert_eq!(replacement.capacity_types, [CapacityType::Spot]);
    assert_eq!(replacement.instance_types.len(), 15);
    // Two of the families are cheaper than the new ones.
    assert_eq!(replacement.instance_types[..3], ["c.large", "m.large", "x00.large"]);
}

#[test]
fn pods_of_a_node_that_goes_may_wait_for_a_machine_that_starts() {
    let mut going = node("going", "default", "m.large", "zone-a");
    going.deleting = true;
    let mut starting = node("starting", "default", "m.large", "zone-b");
    starting.phase = NodePhase::Registered;
    let mut leaving = shape(1500, GI);
    leaving.node_selector.insert(ZONE.to_owned(), "zone-b".to_owned());
    let snapshot = builder()
        .pool(on_demand("default"))
        .node(node("a", "default", "m.4xlarge", "zone-a"))
        .node(going)
        .node(starting)
        .pod("web", shape(1500, 3 * GI), Some("a"))
        .pod("leaving", leaving, Some("going"))
        .build();
    let plan = disruption(&snapshot);
    let going: Vec<_> = plan.commands.iter().map(|it| it.candidates[0].node.as_str()).collect();
    assert_eq!(going, ["a"], "{:?}", plan.report.nodes);
}

/// Appendix A.4: the smaller of 20 % of 19 nodes and 5 is 4; three go already.
#[test]
fn of_two_budgets_the_smaller_counts_less_what_goes_already() {
    let mut careful = on_demand("default");
    careful.disruption.budgets = [BudgetNodes::Percent(20), BudgetNodes::Count(5)]
        .map(|nodes| Budget { nodes, reasons: Vec::new() })
        .into();
    let mut world = builder().pool(careful);
    for number in 0..19 {
        let mut node = node(&format!("n{number:02}"), "default", "m.large", "zone-a");
        node.deleting = number < 3;
        world = world.node(node);
    }
    let plan = disruption(&world.build());
    assert_eq!(plan.commands.len(), 1);
    let kept = StayReason::Budget(DisruptionReason::Empty);
    assert_eq!(plan.report.nodes.iter().filter(|node| node.reason == kept).count(), 15);
}
