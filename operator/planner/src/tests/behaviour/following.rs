//! Pods that are expected on a machine and can't follow others there any more.

use super::*;
use crate::out_of_reach;

/// Machines `a1` and `b1`, in the zones of their names.
fn two_zones() -> Builder {
    builder().pool(pool("default")).node(node("a1", "default", "m.2xlarge", "zone-a")).node(node(
        "b1",
        "default",
        "m.2xlarge",
        "zone-b",
    ))
}

fn web() -> PodShape {
    near(app("web", 100), ZONE, "web", false)
}

/// The pods that can't get to their machine, where those of the names given are expected there and
/// the others bound.
fn lost(world: Builder, expected: &[&str]) -> Vec<String> {
    let snapshot = world.build();
    let pods = snapshot.pods.iter().enumerate();
    let expected: Vec<usize> =
        pods.filter(|(_, pod)| expected.contains(&&*pod.name)).map(|(index, _)| index).collect();
    let lost = out_of_reach(&snapshot, &expected);
    lost.into_iter().map(|pod| snapshot.pods[pod].name.to_string()).collect()
}

#[test]
fn pods_that_are_expected_do_not_vouch_for_each_other() {
    let elsewhere = two_zones().pod("x", web(), Some("a1")).pod("y", web(), Some("b1")).pod(
        "z",
        web(),
        Some("b1"),
    );
    assert_eq!(lost(elsewhere, &["y", "z"]), ["y", "z"]);
    let together = two_zones().pod("x", web(), Some("b1")).pod("y", web(), Some("b1")).pod(
        "z",
        web(),
        Some("b1"),
    );
    assert_eq!(lost(together, &["y", "z"]), [""; 0]);
}

#[test]
fn the_first_of_their_kind_may_come_and_the_others_follow_it() {
    let all = || two_zones().pod("x", web(), Some("b1")).pod("y", web(), Some("b1"));
    assert_eq!(lost(all(), &["x", "y"]), [""; 0]);
    assert_eq!(lost(all().pod("z", web(), Some("a1")), &["x", "y", "z"]), ["z"]);
    // Whom nobody matches can't be the first.
    let alone = two_zones().pod("x", near(app("web", 100), ZONE, "db", false), Some("b1"));
    assert_eq!(lost(alone, &["x"]), ["x"]);
}

#[test]
fn pods_follow_others_that_come_after_them_in_the_snapshot() {
    let follower = |name: &str, leader: &str| near(app(name, 100), ZONE, leader, false);
    let world = two_zones()
        .pod("x", follower("x", "y"), Some("b1"))
        .pod("y", follower("y", "z"), Some("b1"))
        .pod("z", app("z", 100), Some("b1"));
    assert_eq!(lost(world, &["x", "y", "z"]), [""; 0]);
    let world = two_zones()
        .pod("x", follower("x", "y"), Some("b1"))
        .pod("y", follower("y", "z"), Some("b1"))
        .pod("z", app("z", 100), Some("a1"));
    assert_eq!(lost(world, &["x", "y"]), ["x", "y"]);
}

#[test]
fn a_pod_has_to_match_all_terms_to_be_followed() {
    let both = || near(near(app("x", 100), ZONE, "web", false), HOSTNAME, "db", false);
    let world = two_zones()
        .pod("x", both(), Some("b1"))
        .pod("web", app("web", 100), Some("b1"))
        .pod("db", app("db", 100), Some("b1"));
    assert_eq!(lost(world, &["x"]), ["x"]);
    let both = || near(near(app("x", 100), ZONE, "web", false), HOSTNAME, "web", false);
    let world = |on: &str| {
        two_zones()
            .node(node("b2", "default", "m.2xlarge", "zone-b"))
            .pod("x", both(), Some("b1"))
            .pod("web", app("web", 100), Some(on))
    };
    assert_eq!(lost(world("b1"), &["x"]), [""; 0]);
    assert_eq!(lost(world("b2"), &["x"]), ["x"], "another host in the zone");
}

#[test]
fn nothing_is_held_against_a_machine_whose_zone_is_open() {
    let pending = |zones: &[&str]| {
        let mut machine = node("c", "default", "m.2xlarge", "zone-b");
        machine.labels.remove(ZONE);
        machine.requirements = vec![need(ZONE, Operator::In, zones)];
        two_zones().node(machine).pod("x", web(), Some("a1")).pod("y", web(), Some("c"))
    };
    assert_eq!(lost(pending(&["zone-a", "zone-b"]), &["y"]), [""; 0]);
    assert_eq!(lost(pending(&["zone-a"]), &["y"]), [""; 0]);
    assert_eq!(lost(pending(&["zone-b"]), &["y"]), ["y"]);
}

#[test]
fn pods_without_affinity_stay_where_they_are_expected() {
    let world = two_zones()
        .pod("x", near(app("web", 100), ZONE, "web", true), Some("a1"))
        .pod("y", near(app("web", 100), ZONE, "web", true), Some("b1"))
        .pod("z", spread(app("web", 100), ZONE, 1), Some("b1"));
    assert_eq!(lost(world, &["y", "z"]), [""; 0]);
}
