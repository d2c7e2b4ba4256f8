//! CapacityBuffers: room that is kept free for pods to come.

use super::behaviour::{ZONE, app, near, spread};
use super::disrupting::{commands, drifted, stay};
use super::fixtures::*;
use super::repairing::{fall_ill, policies};
use crate::check::{Violation, check};
use crate::plan::{Exclusion, StayReason};
use crate::snapshot::{DisruptionReason, Node, NodePool, PodShape, Snapshot};
use crate::testing::dealing::refused;
use crate::testing::{Builder, apply};
use crate::{Policy, provision};

fn virtual_pod(world: Builder, name: &str, shape: PodShape) -> Builder {
    world.pod_with(name, shape, None, |pod| {
        pod.buffer = Some("spare".to_owned());
        pod.priority = i32::MIN;
    })
}

fn again(snapshot: &Snapshot) -> crate::Plan {
    let plan = provision(snapshot, &Policy::default(), now(), 1, &());
    assert_eq!(check(snapshot, &plan), []);
    plan
}

#[test]
fn virtual_pods_launch_machines_and_are_never_announced() {
    let snapshot =
        virtual_pod(builder().pool(on_demand("default")), "buffer-0", shape(1500, GI)).build();
    let plan = plan(&snapshot);
    let launch = &plan.launches[0];
    assert!(launch.pods.is_empty() && plan.nominations.is_empty());
    assert_eq!(*launch.buffer_pods[0].name, *"buffer-0");
    assert_eq!(launch.requests.cpu, 1500);
    // Once it is up the buffer has its room and nothing more is launched.
    let after = apply(&snapshot, &plan);
    let plan = again(&after);
    assert_eq!((plan.launches.len(), plan.nominations.len(), plan.buffered.len()), (0, 0, 1));
}

#[test]
fn pods_take_the_room_before_virtual_ones_do() {
    let world = builder()
        .pool(on_demand("default"))
        .node(node("a", "default", "m.large", "zone-a"))
        .pending("small", shape(1000, GI));
    let plan = plan(&virtual_pod(world, "buffer-0", shape(1500, GI)).build());
    assert_eq!(*plan.nominations[0].pod.name, *"small");
    assert_eq!(plan.launches[0].buffer_pods.len(), 1);
}

#[test]
fn a_node_that_keeps_room_for_a_buffer_is_not_empty() {
    let world =
        builder().pool(on_demand("default")).node(node("a", "default", "c.large", "zone-a"));
    assert_eq!(disruption(&world.build()).commands.len(), 1);
    let world =
        builder().pool(on_demand("default")).node(node("a", "default", "c.large", "zone-a"));
    let plan = disruption(&virtual_pod(world, "buffer-0", shape(1500, GI)).build());
    assert_eq!(plan.commands, []);
    assert_eq!(plan.report.nodes[0].reason, StayReason::Nominated);
}

/// A pool of which nothing is consolidated.
fn quiet() -> NodePool {
    let mut pool = on_demand("default");
    pool.disruption.consolidate_after = None;
    pool
}

#[test]
fn room_for_a_buffer_keeps_nobody_from_renewing_a_node() {
    let with = |node: Node, busy: bool| {
        let key = node.key.clone();
        let mut world = builder().pool(quiet()).node(node);
        if busy {
            world = world.pod("web", shape(500, GI), Some(&key));
        }
        let mut snapshot = virtual_pod(world, "buffer-0", shape(1000, GI)).build();
        assert_eq!(again(&snapshot).buffered[0].node, key, "it has its room there");
        snapshot.repair_policies = policies();
        disruption(&snapshot)
    };
    let mut ill = node("ill", "default", "m.large", "zone-a");
    fall_ill(&mut ill, "NetworkingReady", "Down");
    for (node, reason) in
        [(drifted("old", 60), DisruptionReason::Drifted), (ill, DisruptionReason::Unhealthy)]
    {
        let key = node.key.clone();
        assert_eq!(commands(&with(node.clone(), true)), [(reason, key.as_str(), 1)]);
        // Room alone is made anew when the node has gone.
        assert_eq!(commands(&with(node, false)), [(reason, key.as_str(), 0)]);
    }
}

#[test]
fn pods_rely_on_no_virtual_ones() {
    let world = builder()
        .pool(on_demand("default"))
        .pending("web", near(app("web", 200), ZONE, "spare", false));
    let snapshot = virtual_pod(world, "buffer-0", app("spare", 500)).build();
    let mut plan = plan(&snapshot);
    assert!(matches!(only_reason(&plan), Exclusion::Topology { key, .. } if key == ZONE));
    assert_eq!(plan.launches.len(), 1, "the buffer has its room");
    // Nor does the checker take one for a neighbour.
    plan.launches[0].pods.push(plan.report.pods.remove(0).pod);
    let found = check(&snapshot, &plan);
    assert!(matches!(found[..], [Violation::Topology { .. }]), "{found:?}");
}

#[test]
fn pods_are_spread_without_virtual_ones_and_these_with_them() {
    let web = || spread(app("web", 1_500), ZONE, 1);
    let mut world = builder().pool(on_demand("default"));
    for number in 0..3 {
        world = world.pending(&format!("web-{number}"), web());
        let name = format!("buffer-{number}");
        world = virtual_pod(world, &name, web());
    }
    let snapshot = world.build();
    let plan = plan(&snapshot);
    assert_eq!(refused(&snapshot, &plan, 1), []);
    assert_eq!(plan.report.pods, []);
    let kept = |zone: &str| {
        let is_there = |launch: &&crate::plan::Launch| {
            launch.requirements.iter().any(|need| need.values == [zone])
        };
        let there = plan.launches.iter().filter(is_there);
        there
            .map(|launch| (launch.pods.len(), launch.buffer_pods.len()))
            .fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1))
    };
    assert_eq!(ZONES.map(kept), [(1, 1); 3]);
}

#[test]
fn where_room_is_kept_matters_to_no_spread() {
    let web = || spread(app("web", 200), ZONE, 1);
    let mut world = builder().pool(quiet()).node(drifted("a", 60));
    for (key, zone) in [("b", "zone-b"), ("c", "zone-c")] {
        world = world.node(node(key, "default", "m.large", zone));
    }
    let world = ["a", "b", "c"].into_iter().fold(world, |w, key| w.pod(key, web(), Some(key)));
    let plan = disruption(&virtual_pod(world, "buffer-0", web()).build());
    assert_eq!(commands(&plan), [(DisruptionReason::Drifted, "a", 1)]);
}

#[test]
fn a_node_that_keeps_room_for_a_buffer_is_not_consolidated() {
    let world = || {
        builder().pool(on_demand("default")).node(node("a", "default", "m.large", "zone-a")).pod(
            "web",
            shape(1500, 3 * GI),
            Some("a"),
        )
    };
    assert_eq!(disruption(&world().build()).commands.len(), 1);
    let plan = disruption(&virtual_pod(world(), "buffer-0", shape(200, GI)).build());
    assert_eq!((commands(&plan), stay(&plan, "a")), (vec![], &StayReason::Nominated));
}

#[test]
fn the_checker_finds_a_virtual_pod_that_is_announced() {
    let snapshot =
        virtual_pod(builder().pool(on_demand("default")), "buffer-0", shape(1500, GI)).build();
    let mut plan = plan(&snapshot);
    let launch = &mut plan.launches[0];
    launch.pods = std::mem::take(&mut launch.buffer_pods);
    let found = check(&snapshot, &plan);
    assert!(matches!(found[..], [Violation::Announced(_)]), "{found:?}");
}
