//! The checker, before consolidations that the documentation forbids.

use jiff::SignedDuration;

use super::fixtures::*;
use crate::plan::Plan;
use crate::policy::Policy;
use crate::snapshot::{CapacityType, ConsolidationPolicy, Snapshot};
use crate::testing::{Builder, instance_type};
use crate::{Violation, check};

const CAPACITY_TYPE: &str = "karpenter.sh/capacity-type";

/// A good plan, what is done to it or to the snapshot, and what the checker has to say.
type Spoiled =
    (&'static str, (Snapshot, Plan), fn(&mut Snapshot, &mut Plan), fn(&Violation) -> bool);

/// Full nodes, the first of which could be a little cheaper.
fn one_cheaper() -> (Snapshot, Plan) {
    let mut world = builder().pool(on_demand("default"));
    for number in 0..10 {
        let (name, kind) = (format!("n{number}"), if number == 0 { "m.large" } else { "c.large" });
        world = world.node(node(&name, "default", kind, "zone-a"));
        world = world.pod(&format!("web-{number}"), shape(1700, 3 * GI), Some(&name));
    }
    planned(world.build(), &Policy::default())
}

/// Three nodes that one could replace.
fn three_for_one() -> (Snapshot, Plan) {
    let mut world = builder().pool(on_demand("default"));
    for name in ["a", "b", "c"] {
        world = world.node(node(name, "default", "r.large", "zone-a"));
        world = world.pod(name, shape(1200, 9 * GI), Some(name));
    }
    planned(world.build(), &Policy::default())
}

/// Two nodes of which one is enough.
fn one_too_many() -> (Snapshot, Plan) {
    let mut world = builder().pool(on_demand("default"));
    for name in ["a", "b"] {
        world = world.node(node(name, "default", "m.large", "zone-a"));
        world = world.pod(name, shape(500, GI), Some(name));
    }
    planned(world.build(), &Policy::default())
}

/// A large spot node for a small pod, with many types to choose from.
fn on_spot() -> (Snapshot, Plan) {
    let mut many = kinds();
    for number in 0..20_i32 {
        let price = 0.1 + 0.001 * f64::from(number);
        let name = format!("x{number:02}.large");
        many.push(instance_type(&name, 4000, 16 * GI, 29, offerings(price)));
    }
    let mut spot = node("a", "default", "m.8xlarge", "zone-a");
    spot.labels.insert(CAPACITY_TYPE.to_owned(), "spot".to_owned());
    spot.price = spot.price.map(|price| crate::resources::MicroUsd(price.0 * 4 / 10));
    let world = Builder::new(catalog(many)).pool(pool("default")).node(spot);
    let snapshot = world.pod("web", shape(1500, 3 * GI), Some("a")).build();
    planned(snapshot, &Policy { spot_to_spot: true, ..Policy::default() })
}

fn planned(snapshot: Snapshot, policy: &Policy) -> (Snapshot, Plan) {
    let plan = disruption_with(&snapshot, policy);
    assert_eq!(plan.commands.len(), 1, "{:?}", plan.report.nodes);
    (snapshot, plan)
}

/// Full nodes, the first of which could be cheaper, and empty ones whose price is unknown.
fn one_cheaper_once_others_are_gone() -> (Snapshot, Plan) {
    let mut world = builder().pool(on_demand("default"));
    for number in 0..13 {
        let name = format!("n{number:02}");
        let mut node =
            node(&name, "default", if number == 0 { "r.large" } else { "c.large" }, "zone-a");
        if number < 10 {
            world = world.pod(&format!("web-{number}"), shape(1700, GI), Some(&name));
        } else {
            node.price = None;
        }
        world = world.node(node);
    }
    let snapshot = world.build();
    let plan = disruption(&snapshot);
    assert_eq!(plan.commands.len(), 4, "{:?}", plan.report.nodes);
    (snapshot, plan)
}

/// A node with nothing on it.
fn one_empty() -> (Snapshot, Plan) {
    let world = builder().pool(on_demand("default"));
    let snapshot = world.node(node("a", "default", "m.large", "zone-a")).build();
    planned(snapshot, &Policy::default())
}

/// The node that goes has had its last change within `consolidateAfter`.
fn not_consolidatable(snapshot: &mut Snapshot, plan: &mut Plan) {
    let goes = &plan.commands[0].candidates[0].node;
    let node = snapshot.nodes.iter_mut().find(|node| node.key == *goes);
    node.and_then(|node| node.claim.as_mut()).expect("a claim").consolidatable = None;
}

fn add_type(plan: &mut Plan, kind: &str) {
    plan.commands[0].replacements[0].instance_types.push(kind.to_owned());
}

#[test]
fn consolidations_that_may_not_be_are_found() {
    let saves_nothing = |it: &Violation| matches!(it, Violation::SavesNothing(_));
    let must_stay = |it: &Violation| matches!(it, Violation::MustStay { .. });
    let spoiled: Vec<Spoiled> = vec![
        (
            "a replacement that may cost as much",
            one_cheaper(),
            |_, plan| add_type(plan, "m.large"),
            saves_nothing,
        ),
        (
            "one of the nodes again in place of all",
            three_for_one(),
            |_, plan| add_type(plan, "r.large"),
            saves_nothing,
        ),
        (
            "fewer than 15 types for a spot node",
            on_spot(),
            |_, plan| drop(plan.commands[0].replacements[0].instance_types.pop()),
            must_stay,
        ),
        (
            "on-demand as a way out for a spot node",
            on_spot(),
            |_, plan| plan.commands[0].replacements[0].capacity_types.push(CapacityType::OnDemand),
            must_stay,
        ),
        (
            "several replacements",
            one_cheaper(),
            |_, plan| {
                let mut more = plan.commands[0].replacements[0].clone();
                more.pods.clear();
                plan.commands[0].replacements.push(more);
            },
            must_stay,
        ),
        (
            "WhenEmpty",
            one_too_many(),
            |snapshot, _| {
                snapshot.node_pools[0].disruption.consolidation_policy =
                    ConsolidationPolicy::WhenEmpty;
            },
            must_stay,
        ),
        (
            "consolidateAfter: Never",
            one_too_many(),
            |snapshot, _| snapshot.node_pools[0].disruption.consolidate_after = None,
            must_stay,
        ),
        (
            "a node that goes though its own pods have just changed",
            one_too_many(),
            |snapshot, plan| not_consolidatable(snapshot, plan),
            must_stay,
        ),
        (
            "an empty node whose pods have just gone",
            one_empty(),
            |snapshot, plan| not_consolidatable(snapshot, plan),
            must_stay,
        ),
        (
            "Balanced, and hardly anything is saved",
            one_cheaper(),
            |snapshot, _| {
                snapshot.node_pools[0].disruption.consolidation_policy =
                    ConsolidationPolicy::Balanced;
            },
            must_stay,
        ),
        (
            "Balanced, and it saves enough only as long as nodes are there that go before",
            one_cheaper_once_others_are_gone(),
            |snapshot, _| {
                snapshot.node_pools[0].disruption.consolidation_policy =
                    ConsolidationPolicy::Balanced;
            },
            must_stay,
        ),
        (
            "a node whose own pods have just come",
            one_too_many(),
            |snapshot, plan| {
                snapshot.node_pools[0].disruption.consolidate_after =
                    Some(SignedDuration::from_secs(60));
                let to = &plan.commands[0].nominations[0].node;
                let to = snapshot.nodes.iter_mut().find(|node| node.key == *to);
                to.and_then(|node| node.claim.as_mut()).expect("a claim").consolidatable = None;
            },
            must_stay,
        ),
    ];
    for (what, (mut snapshot, mut plan), spoil, is_it) in spoiled {
        assert_eq!(check(&snapshot, &plan), [], "{what}");
        spoil(&mut snapshot, &mut plan);
        let found = check(&snapshot, &plan);
        assert!(found.iter().any(is_it), "{what}: {found:?}");
    }
}

#[test]
fn balanced_moves_that_save_enough_are_accepted() {
    let (mut snapshot, plan) = one_too_many();
    snapshot.node_pools[0].disruption.consolidation_policy = ConsolidationPolicy::Balanced;
    assert_eq!(check(&snapshot, &plan), []);
}
