//! Volumes: where they are, and how many a machine can attach.

use super::behaviour::{ZONE, app, spread};
use super::fixtures::*;
use crate::check::{Violation, check};
use crate::plan::{Exclusion, Nomination};
use crate::snapshot::{InstanceType, NodePhase, Operator, PodShape, SharedVolume};
use crate::testing::Builder;
use crate::{Plan, Policy, provision};

const EBS: &str = "ebs.csi.aws.com";

/// Types on which ten volumes can be attached, the largest twenty.
fn limited() -> Vec<InstanceType> {
    let mut kinds = kinds();
    for kind in &mut kinds {
        let limit = if kind.name.ends_with("8xlarge") { 20 } else { 10 };
        kind.volume_limits.insert(EBS.to_owned(), limit);
    }
    kinds
}

fn with_volumes(count: u32) -> PodShape {
    let mut shape = shape(10, GI / 64);
    shape.volumes.insert(EBS.to_owned(), count);
    shape
}

fn sharing(claim: &str) -> PodShape {
    let mut shape = shape(10, GI / 64);
    shape.shared_volumes.push(SharedVolume { driver: EBS.to_owned(), claim: claim.to_owned() });
    shape
}

fn names(nominations: &[Nomination]) -> Vec<&str> {
    nominations.iter().map(|nomination| &*nomination.pod.name).collect()
}

#[test]
fn new_machines_take_no_more_volumes_than_their_types_attach() {
    let mut world = Builder::new(catalog(limited())).pool(on_demand("default"));
    for number in 0..25 {
        world = world.pending(&format!("pod-{number:02}"), with_volumes(1));
    }
    let snapshot = world.build();
    let plan = plan(&snapshot);
    assert!(plan.report.pods.is_empty());
    assert!(plan.launches.len() >= 2, "{:?}", loads(&plan));
    // The volumes are counted, not asked of the NodeClaim.
    assert!(plan.launches.iter().all(|launch| launch.requests.extended.is_empty()));
}

#[test]
fn a_pod_with_more_volumes_than_any_type_attaches_waits_with_the_reason() {
    let world = Builder::new(catalog(limited())).pool(on_demand("default"));
    let plan = plan(&world.pending("pod", with_volumes(21)).build());
    let Exclusion::Resources { resource, requested, largest, closest, missing } =
        only_reason(&plan)
    else {
        panic!("{:?}", plan.report.pods);
    };
    assert_eq!(resource, "attachable-volumes-csi-ebs.csi.aws.com");
    assert_eq!((*requested, *largest), (21, 20));
    assert_eq!(closest.as_deref(), Some("c.8xlarge"));
    assert_eq!(missing.get(resource), Some(&1));
}

#[test]
fn nodes_attach_as_many_as_their_csi_node_says_else_their_type() {
    let published = |limit: Option<Option<u32>>| {
        let mut node = node("a", "default", "m.large", "zone-a");
        node.volume_limits.extend(limit.map(|limit| (EBS.to_owned(), limit)));
        let mut world = Builder::new(catalog(limited())).pool(on_demand("default")).node(node);
        for number in 0..12 {
            world = world.pending(&format!("pod-{number:02}"), with_volumes(1));
        }
        plan(&world.build()).nominations.len()
    };
    assert_eq!(published(Some(Some(3))), 3);
    assert_eq!(published(None), 10);
    assert_eq!(published(Some(None)), 12);
}

#[test]
fn attached_volumes_count_and_shared_ones_count_once() {
    let mut node = node("a", "default", "m.large", "zone-a");
    node.volume_limits.insert(EBS.to_owned(), Some(4));
    let mut world = builder().pool(on_demand("default")).node(node);
    for number in 0..3 {
        world = world.pod(&format!("old-{number}"), sharing("data"), Some("a"));
    }
    let world = world.pod("own", with_volumes(2), Some("a"));
    let plan =
        plan(&world.pending("new", with_volumes(1)).pending("new-2", with_volumes(1)).build());
    assert_eq!(names(&plan.nominations), ["new"]);
    assert_eq!(loads(&plan), [["new-2"]]);
}

#[test]
fn a_node_with_too_many_volumes_still_takes_pods_without() {
    let mut node = node("a", "default", "m.large", "zone-a");
    node.volume_limits.insert(EBS.to_owned(), Some(1));
    let world = builder().pool(on_demand("default")).node(node);
    let world = world.pod("old", with_volumes(3), Some("a"));
    let plan = plan(&world.pending("new", shape(10, GI / 64)).build());
    assert_eq!(names(&plan.nominations), ["new"]);
}

#[test]
fn a_claim_without_an_instance_attaches_what_the_least_of_its_types_does() {
    let mut pending = node("a", "default", "m.large", "zone-a");
    (pending.phase, pending.name) = (NodePhase::Pending, None);
    pending.requirements =
        vec![need("node.kubernetes.io/instance-type", Operator::In, &["m.large", "m.8xlarge"])];
    let mut world = Builder::new(catalog(limited())).pool(on_demand("default")).node(pending);
    for number in 0..12 {
        world = world.pending(&format!("pod-{number:02}"), with_volumes(1));
    }
    assert_eq!(plan(&world.build()).nominations.len(), 10);
}

#[test]
fn alternatives_of_volumes_are_tried_one_after_the_other() {
    let mut shape = shape(100, GI / 4);
    shape.volume_topology = vec![
        vec![need(ZONE, Operator::In, &["zone-x"])],
        vec![need(ZONE, Operator::In, &["zone-b"])],
    ];
    let plan = plan(&builder().pool(on_demand("default")).pending("web", shape).build());
    let zones = plan.launches[0].requirements.iter().find(|need| need.key == ZONE);
    assert_eq!(zones.expect("pinned").values, ["zone-b"]);
}

#[test]
fn a_volume_whose_zone_has_no_machine_keeps_its_pod_waiting() {
    let mut shape = shape(100, GI / 4);
    shape.volume_topology = vec![vec![need(ZONE, Operator::In, &["zone-x"])]];
    let plan = plan(&builder().pool(on_demand("default")).pending("web", shape).build());
    assert!(
        matches!(
            only_reason(&plan),
            Exclusion::NoInstanceType { differs, .. } if *differs == [ZONE.to_owned()]
        ),
        "{:?}",
        plan.report.pods
    );
}

#[test]
fn zones_of_volumes_do_not_leak_into_what_spread_counts() {
    let mut world = builder().pool(on_demand("default"));
    for (number, zone) in ["zone-a", "zone-a", "zone-b", "zone-c"].into_iter().enumerate() {
        let mut shape = spread(app("web", 100), ZONE, 1);
        shape.volume_topology = vec![vec![need(ZONE, Operator::In, &[zone])]];
        world = world.pending(&format!("web-{number}"), shape);
    }
    assert!(plan(&world.build()).report.pods.is_empty());
}

#[test]
fn the_checker_finds_a_machine_with_too_many_volumes() {
    let mut node = node("a", "default", "m.large", "zone-a");
    node.volume_limits.insert(EBS.to_owned(), Some(5));
    let world = Builder::new(catalog(limited())).pool(on_demand("default")).node(node);
    let snapshot =
        world.pod("own", with_volumes(3), Some("a")).pending("new", with_volumes(3)).build();
    let good = provision(&snapshot, &Policy::default(), now(), 1, &());
    assert_eq!(check(&snapshot, &good), []);
    let pod = good.launches[0].pods[0].clone();
    let bad = Plan {
        launches: Vec::new(),
        nominations: vec![Nomination { pod, node: "a".to_owned() }],
        ..good
    };
    let found = check(&snapshot, &bad);
    assert!(found.iter().any(|it| matches!(it, Violation::Volumes { .. })), "{found:?}");
}
