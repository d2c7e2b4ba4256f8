//! Rules that cannot bind.

use super::behaviour::{HOSTNAME, ZONE, app, near, spread};
use super::fixtures::*;
use crate::plan::Plan;
use crate::snapshot::PodShape;
use crate::testing::Builder;

/// What a service's pod with a name asks for in addition.
type Rule = dyn Fn(PodShape, &str) -> PodShape;

/// Services of one pod each among pods without rules.
fn single(world: Builder, rule: &Rule) -> Plan {
    let mut world = world;
    for number in 0..14_i64 {
        let name = format!("single-{number:02}");
        let mut shape = app(&name, 150 + 170 * (number % 9));
        shape.requests.memory = (300 + 900 * (number % 5)) << 20;
        world = world.pending(&name, rule(shape, &name));
    }
    for number in 0..60_i64 {
        world = world.pending(&format!("other-{number:02}"), shape(400 + 300 * (number % 3), GI));
    }
    let mut plan = plan(&world.build());
    // Where waiting pods may run is told of what rules say.
    plan.report.zones.clear();
    plan
}

fn world() -> Builder {
    builder().pool(on_demand("default")).node(node("a", "default", "m.xlarge", "zone-a"))
}

#[test]
fn a_rule_of_a_pod_that_is_alone_changes_nothing() {
    let without = single(world(), &|shape, _| shape);
    assert!(without.launches.len() > 1, "{}", without.launches.len());
    let rules: [&Rule; 6] = [
        &|shape, name| near(shape, HOSTNAME, name, true),
        &|shape, name| near(shape, ZONE, name, true),
        &|shape, _| spread(shape, ZONE, 1),
        &|shape, _| spread(shape, HOSTNAME, 2),
        &|shape, name| near(shape, HOSTNAME, name, false),
        &|shape, name| {
            let mut shape = spread(near(shape, HOSTNAME, name, true), ZONE, 1);
            shape.topology_spread[0].required = false;
            shape.pod_affinity[0].weight = Some(7);
            shape.topology_spread[0].min_domains = None;
            shape
        },
    ];
    for (number, rule) in rules.iter().enumerate() {
        assert_eq!(single(world(), rule), without, "rule {number}");
    }
}

#[test]
fn as_many_pods_as_the_skew_may_all_be_in_one_zone() {
    let with = |rule: &dyn Fn(PodShape) -> PodShape| {
        let mut world = world();
        for copy in 0..3 {
            world = world.pending(&format!("web-{copy}"), rule(app("web", 900)));
        }
        let mut plan = plan(&world.build());
        plan.report.zones.clear();
        plan
    };
    assert_eq!(with(&|shape| spread(shape, ZONE, 3)), with(&|shape| shape));
    assert_ne!(with(&|shape| spread(shape, ZONE, 2)), with(&|shape| shape));
}

#[test]
fn of_several_spread_constraints_the_one_that_cannot_bind_is_left_out() {
    const CAPACITY_TYPE: &str = "karpenter.sh/capacity-type";
    let with = |rule: &dyn Fn(PodShape) -> PodShape| {
        let mut world = world().pod("runs", app("web", 100), Some("a"));
        for copy in 0..3 {
            world = world.pending(&format!("web-{copy}"), rule(app("web", 900)));
        }
        let mut plan = plan(&world.build());
        plan.report.zones.clear();
        plan
    };
    let one = |shape| spread(shape, CAPACITY_TYPE, 1);
    assert_eq!(with(&|shape| spread(one(shape), ZONE, 4)), with(&one));
    assert_ne!(with(&|shape| spread(one(shape), ZONE, 1)), with(&one));
}

#[test]
fn a_pod_that_runs_is_somebody_to_keep_off() {
    let alone = near(app("db", 300), HOSTNAME, "db", true);
    let with = |runs: PodShape| {
        let world = world().pod("runs", runs, Some("a")).pending("waits", alone.clone());
        plan(&world.build()).nominations.len()
    };
    assert_eq!(with(app("other", 300)), 1);
    assert_eq!(with(app("db", 300)), 0);
    // It carries the rule itself, but is not of those that the rule is about.
    let carries = near(app("other", 300), HOSTNAME, "db", true);
    assert_eq!(with(carries), 0);
}

#[test]
fn spread_still_asks_for_a_node_with_the_label() {
    let mut bare = node("b", "default", "m.xlarge", "zone-a");
    bare.labels.remove(ZONE);
    let with = |rule: &dyn Fn(PodShape) -> PodShape| {
        let world = builder().pool(on_demand("default")).node(bare.clone());
        plan(&world.pending("one", rule(app("one", 300))).build()).nominations.len()
    };
    assert_eq!(with(&|shape| shape), 1);
    assert_eq!(with(&|shape| spread(shape, ZONE, 1)), 0);
}
