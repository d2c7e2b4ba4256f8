//! In which zones waiting pods may run.

use std::collections::BTreeMap;

use super::behaviour::{ZONE, app, near, spread};
use super::fixtures::*;
use crate::plan::{ANY_ZONE, NO_ZONE};
use crate::snapshot::{Operator, PodShape, Snapshot};

/// A cluster with a pod `web` in zone-a and one in zone-b.
fn world(pending: &[PodShape]) -> Snapshot {
    let mut world = builder().pool(on_demand("default"));
    for zone in ["zone-a", "zone-b"] {
        world = world.node(node(zone, "default", "c.large", zone)).pod(
            &format!("web-{zone}"),
            app("web", 100),
            Some(zone),
        );
    }
    for (i, shape) in pending.iter().enumerate() {
        world = world.pending(&format!("p{i}"), shape.clone());
    }
    world.build()
}

fn zones(pending: &[PodShape]) -> BTreeMap<String, u32> {
    plan(&world(pending)).report.zones
}

fn only(pending: PodShape) -> String {
    let zones = zones(&[pending]);
    assert_eq!(zones.values().sum::<u32>(), 1, "{zones:?}");
    zones.into_keys().next().expect("one pod waits")
}

fn asking(operator: Operator, values: &[&str]) -> PodShape {
    let mut shape = shape(100, GI / 4);
    shape.required_affinity = vec![vec![need(ZONE, operator, values)]];
    shape
}

#[test]
fn what_pods_ask_for_decides() {
    assert_eq!(zones(&[]), BTreeMap::new());
    assert_eq!(only(shape(100, GI)), ANY_ZONE);
    assert_eq!(only(asking(Operator::In, &["zone-a"])), "zone-a");
    assert_eq!(only(asking(Operator::In, &["zone-a", "zone-c"])), ANY_ZONE);
    assert_eq!(only(asking(Operator::NotIn, &["zone-a", "zone-c"])), ANY_ZONE, "as in Karpenter");
    assert_eq!(only(asking(Operator::In, &["zone-x"])), "zone-x", "whatever pools offer");
    let mut either = asking(Operator::In, &["zone-a"]);
    either.required_affinity.push(vec![need(ZONE, Operator::In, &["zone-b"])]);
    assert_eq!(only(either), ANY_ZONE, "one of two terms has to be met");
    let mut wish = shape(100, GI);
    wish.preferred_affinity.push((1, vec![need(ZONE, Operator::In, &["zone-a"])]));
    assert_eq!(only(wish), ANY_ZONE, "a preference leaves all zones");
}

#[test]
fn volumes_and_affinity_have_to_agree() {
    let on_volume = |mut shape: PodShape| {
        shape.volume_topology = vec![vec![need(ZONE, Operator::In, &["zone-b"])]];
        shape
    };
    assert_eq!(only(on_volume(shape(100, GI))), "zone-b");
    assert_eq!(only(on_volume(asking(Operator::In, &["zone-a", "zone-b"]))), "zone-b");
    assert_eq!(only(on_volume(asking(Operator::In, &["zone-a"]))), NO_ZONE);
}

#[test]
fn required_topology_rules_decide_by_what_runs() {
    assert_eq!(only(spread(app("web", 100), ZONE, 1)), "zone-c", "the others have one each");
    assert_eq!(only(spread(app("web", 100), ZONE, 2)), ANY_ZONE);
    assert_eq!(only(near(app("web", 100), ZONE, "web", true)), "zone-c");
    assert_eq!(only(near(app("api", 100), ZONE, "web", false)), ANY_ZONE, "zone-a or zone-b");
    assert_eq!(only(near(app("api", 100), ZONE, "cache", false)), NO_ZONE, "no such pod runs");
    let mut narrowed = near(app("api", 100), ZONE, "web", false);
    narrowed.required_affinity = vec![vec![need(ZONE, Operator::NotIn, &["zone-a"])]];
    assert_eq!(only(narrowed), "zone-b");
}

#[test]
fn pods_are_counted_not_shapes() {
    let pinned = asking(Operator::In, &["zone-a"]);
    let zones = zones(&[pinned.clone(), shape(100, GI), pinned]);
    assert_eq!(zones, [("flexible".to_owned(), 1), ("zone-a".to_owned(), 2)].into());
}

#[test]
fn pods_that_have_a_node_or_never_will_be_are_not_counted() {
    let mut snapshot = world(&[shape(100, GI)]);
    snapshot.pods.iter_mut().filter(|pod| *pod.name == *"p0").for_each(|pod| {
        pod.buffer = Some("spare".to_owned());
    });
    snapshot.nodes[0].deleting = true;
    assert_eq!(plan(&snapshot).report.zones, BTreeMap::new());
}
