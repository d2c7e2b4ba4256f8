//! CapacityBuffers: room that is kept free for pods to come.

use super::world::*;
use crate::check::{Violation, check};
use crate::plan::Stay;
use crate::snapshot::{PodShape, Snapshot};
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
    assert_eq!(launch.buffer_pods[0].name, "buffer-0");
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
    assert_eq!(plan.nominations[0].pod.name, "small");
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
    assert_eq!(plan.report.nodes[0].reason, Stay::Nominated);
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
