//! NodeOverlays: prices and capacity that an administrator knows better.

use std::sync::Arc;

use super::fixtures::*;
use crate::overlays::conflicts;
use crate::snapshot::{NodeOverlay, Operator, PriceChange};
use crate::testing::usd;

const TYPE: &str = "node.kubernetes.io/instance-type";
const PRICE_APPLIED: &str = "karpenter.sh/price-overlay-applied";
const CAPACITY_APPLIED: &str = "karpenter.sh/capacity-overlay-applied";

pub(super) fn on_types(
    name: &str,
    weight: i32,
    kinds: &[&str],
    price: Option<PriceChange>,
) -> NodeOverlay {
    let requirements = vec![need(TYPE, Operator::In, kinds)];
    NodeOverlay { name: name.to_owned(), weight, requirements, price, ..NodeOverlay::default() }
}

pub(super) fn scale(percent: i64) -> PriceChange {
    PriceChange::Scale(percent * 10_000)
}

#[test]
fn a_price_decides_which_type_is_chosen_and_is_told_on_the_claim() {
    let mut snapshot = builder().pool(on_demand("default")).pending("web", shape(500, GI)).build();
    assert_eq!(plan(&snapshot).launches[0].instance_types[0], "c.large");
    snapshot.overlays = vec![on_types("cheap", 0, &["r.xlarge"], Some(scale(-99)))];
    let plan = plan(&snapshot);
    let launch = &plan.launches[0];
    assert_eq!(launch.instance_types[0], "r.xlarge");
    assert_eq!(launch.price, usd(0.063 * 4.0 * 0.01));
    assert_eq!(launch.annotations[PRICE_APPLIED], "true");
    assert!(!launch.annotations.contains_key(CAPACITY_APPLIED));
}

#[test]
fn capacity_is_added_for_resources_that_the_provider_does_not_know() {
    let mut pod = shape(500, GI);
    pod.requests.extended.insert("example.com/dongle".to_owned(), 2);
    let mut snapshot = builder().pool(on_demand("default")).pending("web", pod).build();
    assert_eq!(plan(&snapshot).launches, []);
    snapshot.overlays = vec![NodeOverlay {
        capacity: [("example.com/dongle".to_owned(), 2)].into(),
        ..on_types("dongles", 0, &["m.large"], None)
    }];
    let plan = plan(&snapshot);
    assert_eq!(plan.launches[0].instance_types, ["m.large"]);
    assert_eq!(plan.launches[0].annotations[CAPACITY_APPLIED], "true");
}

#[test]
fn an_overlay_is_about_pools_and_offerings_too() {
    let mut snapshot =
        builder().pool(pool("one")).pool(pool("two")).pending("web", shape(500, GI)).build();
    let mut overlay = on_types("spot-in-a", 0, &["m.large"], Some(PriceChange::Set(usd(0.000_1))));
    overlay.requirements.extend([
        need("karpenter.sh/nodepool", Operator::In, &["two"]),
        need("karpenter.sh/capacity-type", Operator::In, &["spot"]),
        need("topology.kubernetes.io/zone", Operator::In, &["zone-a"]),
    ]);
    snapshot.overlays = vec![overlay];
    let plan = plan(&snapshot);
    assert_eq!(plan.launches[0].node_pool, "two");
    assert_eq!(plan.launches[0].instance_types[0], "m.large");
    // The other pool is untouched.
    snapshot.node_pools.retain(|pool| pool.name == "one");
    let plan = super::fixtures::plan(&snapshot);
    assert_eq!(plan.launches[0].instance_types[0], "c.large");
    assert!(!plan.launches[0].annotations.contains_key(PRICE_APPLIED));
}

#[test]
fn the_heavier_overlay_counts_and_equal_weights_are_a_conflict() {
    let mut snapshot = builder().pool(on_demand("default")).pending("web", shape(500, GI)).build();
    snapshot.overlays = vec![
        on_types("heavy", 10, &["m.large"], Some(PriceChange::Set(usd(0.001)))),
        on_types("z-light", 1, &["m.large", "r.large"], Some(PriceChange::Set(usd(0.000_5)))),
        on_types("a-light", 1, &["r.large"], Some(PriceChange::Set(usd(0.000_1)))),
    ];
    assert_eq!(conflicts(&snapshot), [("a-light".to_owned(), "z-light".to_owned())]);
    let plan = plan(&snapshot);
    assert_eq!(plan.launches[0].instance_types[..2], ["r.large", "m.large"]);
    assert_eq!(plan.launches[0].price, usd(0.000_5));
}

#[test]
fn machines_that_run_cost_what_the_overlay_says() {
    let mut snapshot = builder()
        .pool(on_demand("default"))
        .node(node("a", "default", "m.large", "zone-a"))
        .pod("web", shape(1500, GI), Some("a"))
        .build();
    let replaced = |snapshot: &crate::Snapshot| disruption(snapshot).commands.len();
    assert_eq!(replaced(&snapshot), 1);
    // Now nothing is cheaper than what it runs on.
    snapshot.overlays = vec![on_types("paid", 0, &["m.large"], Some(PriceChange::Set(usd(0.0))))];
    assert_eq!(replaced(&snapshot), 0);
}

#[test]
fn labels_of_a_pool_can_be_asked_for_and_missing_ones_do_not_match() {
    let mut team = on_demand("default");
    team.template.labels.insert("team".to_owned(), "a".to_owned());
    let mut snapshot = builder().pool(team).pending("web", shape(500, GI)).build();
    for (value, first) in [("a", "r.large"), ("b", "c.large")] {
        let mut overlay = on_types("team", 0, &["r.large"], Some(scale(-99)));
        overlay.requirements.push(need("team", Operator::In, &[value]));
        snapshot.overlays = vec![overlay];
        assert_eq!(plan(&snapshot).launches[0].instance_types[0], first, "team {value}");
    }
}

#[test]
fn a_type_without_a_price_can_be_had_once_an_overlay_sets_one() {
    let mut snapshot = builder().pool(on_demand("default")).pending("web", shape(500, GI)).build();
    let catalog = Arc::make_mut(&mut snapshot.catalogs[0]);
    catalog.instance_types.retain(|kind| kind.name == "m.large");
    for offering in &mut catalog.instance_types[0].offerings {
        offering.price = usd(0.0);
        offering.available = false;
        offering.unpriced = Some(offering.zone == "zone-b");
    }
    assert_eq!(plan(&snapshot).launches, []);
    let overlay = |name, weight, price| on_types(name, weight, &["m.large"], Some(price));
    for adjusted in [scale(100), PriceChange::Add(usd(0.3))] {
        snapshot.overlays = vec![overlay("adjusted", 0, adjusted)];
        assert_eq!(plan(&snapshot).launches, [], "nobody knows what {adjusted:?} starts from");
    }
    // The heavier one says nothing about it.
    snapshot.overlays =
        vec![overlay("adjusted", 9, scale(100)), overlay("set", 1, PriceChange::Set(usd(0.3)))];
    let plan = plan(&snapshot);
    let [launch] = plan.launches.as_slice() else { panic!("{:?}", plan.launches) };
    assert_eq!(launch.price, usd(0.3));
    assert_eq!(launch.annotations[PRICE_APPLIED], "true");
}

#[test]
fn machines_of_a_type_without_a_price_cost_what_the_overlay_says_and_else_nobody_knows_what() {
    let mut snapshot = builder()
        .pool(on_demand("default"))
        .node(node("a", "default", "m.large", "zone-a"))
        .build();
    let catalog = Arc::make_mut(&mut snapshot.catalogs[0]);
    for kind in catalog.instance_types.iter_mut().filter(|kind| kind.name == "m.large") {
        for offering in &mut kind.offerings {
            (offering.price, offering.available) = (usd(0.0), false);
            offering.unpriced = Some(true);
        }
    }
    snapshot.nodes[0].price = None;
    let price =
        |snapshot: &crate::Snapshot| crate::overlays::applied(snapshot.clone()).nodes[0].price;
    assert_eq!(price(&snapshot), None);
    snapshot.overlays = vec![on_types("set", 0, &["m.large"], Some(PriceChange::Set(usd(0.3))))];
    assert_eq!(price(&snapshot), Some(usd(0.3)));
}
