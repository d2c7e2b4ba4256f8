//! The checker itself: every way to spoil a good plan is found.

use super::behaviour::{HOSTNAME, ZONE, app, near, spread};
use super::fixtures::*;
use crate::check::{Violation, check};
use crate::plan::{Launch, Nomination, Plan, PodRef};
use crate::snapshot::{Operator, Snapshot};

/// A cluster of which every rule of scheduling is part, with a good plan.
fn scene() -> (Snapshot, Plan) {
    let mut tainted = node("dedicated", "default", "m.large", "zone-a");
    tainted.taints.push(taint("dedicated", "NoSchedule"));
    let mut going = node("going", "default", "m.large", "zone-a");
    going.deleting = true;
    let mut limited = on_demand("default");
    limited.limits.insert("nodes".to_owned(), 40);
    let mut many = need("node.kubernetes.io/instance-type", Operator::Exists, &[]);
    many.min_values = Some(2);
    limited.template.requirements.push(many);
    let mut port = shape(200, GI);
    port.host_ports.push(("TCP".to_owned(), String::new(), 8080));
    let mut picky = shape(200, GI);
    picky.node_selector.insert(ZONE.to_owned(), "zone-b".to_owned());
    let mut world = builder()
        .pool(limited)
        .node(tainted)
        .node(going)
        .node(node("full", "default", "c.large", "zone-a"))
        .node(node("other", "default", "m.large", "zone-b"))
        .pod("filler", shape(1800, GI), Some("full"))
        .pod("guard", near(app("guard", 100), HOSTNAME, "web", true), Some("other"))
        .pending("big", shape(30_000, 20 * GI))
        .pending("picky", picky)
        .pending("port-1", port.clone())
        .pending("port-2", port);
    for number in 0..3 {
        world = world.pending(&format!("web-{number}"), spread(app("web", 500), ZONE, 1));
    }
    let snapshot = world.build();
    let plan = plan(&snapshot);
    assert!(plan.report.pods.is_empty(), "{:?}", plan.report.pods);
    (snapshot, plan)
}

/// Takes a pod out of wherever it is.
fn take(plan: &mut Plan, name: &str) -> PodRef {
    for launch in &mut plan.launches {
        if let Some(at) = launch.pods.iter().position(|pod| *pod.name == *name) {
            return launch.pods.remove(at);
        }
    }
    let at = plan.nominations.iter().position(|nomination| *nomination.pod.name == *name);
    plan.nominations.remove(at.expect("the pod has a place")).pod
}

fn move_to(plan: &mut Plan, name: &str, node: &str) {
    let pod = take(plan, name);
    plan.nominations.push(Nomination { pod, node: node.to_owned() });
}

fn launch_of<'p>(plan: &'p mut Plan, name: &str) -> &'p mut Launch {
    let mut launches = plan.launches.iter_mut();
    let with = launches.find(|launch| launch.pods.iter().any(|pod| *pod.name == *name));
    with.expect("the pod is launched for")
}

#[test]
fn every_mutation_that_breaks_a_rule_is_found() {
    let (snapshot, good) = scene();
    type Mutation = (&'static str, fn(&mut Plan), fn(&Violation) -> bool);
    let mutations: Vec<Mutation> = vec![
        ("version", |plan| plan.version += 1, |it| matches!(it, Violation::Version(_))),
        (
            "unknown pod",
            |plan| launch_of(plan, "big").pods[0].uid = "x".into(),
            |it| matches!(it, Violation::UnknownPod(_)),
        ),
        (
            "unknown machine",
            |plan| move_to(plan, "picky", "nowhere"),
            |it| matches!(it, Violation::Unknown { .. }),
        ),
        (
            "placed twice",
            |plan| plan.launches.push(plan.launches[0].clone()),
            |it| matches!(it, Violation::PlacedTwice(_)),
        ),
        (
            "a pod that runs",
            |plan| {
                let pod = |name: &str| PodRef {
                    namespace: "default".into(),
                    name: name.into(),
                    uid: format!("uid-{name}").into(),
                };
                let nomination = Nomination { pod: pod("filler"), node: "other".to_owned() };
                plan.nominations.push(nomination);
            },
            |it| matches!(it, Violation::NeedsNoPlace(_)),
        ),
        (
            "a machine that goes",
            |plan| move_to(plan, "port-1", "going"),
            |it| matches!(it, Violation::NoMachine { .. }),
        ),
        (
            "a full machine",
            |plan| move_to(plan, "port-1", "full"),
            |it| matches!(it, Violation::Overfull { .. }),
        ),
        (
            "a type that is too small",
            |plan| launch_of(plan, "big").instance_types.insert(0, "c.large".to_owned()),
            |it| matches!(it, Violation::Overfull { .. }),
        ),
        (
            "a taint",
            |plan| move_to(plan, "port-1", "dedicated"),
            |it| matches!(it, Violation::Taint { .. }),
        ),
        (
            "a node selector",
            |plan| move_to(plan, "picky", "full"),
            |it| matches!(it, Violation::Affinity { .. }),
        ),
        (
            "a host port",
            |plan| {
                move_to(plan, "port-1", "other");
                move_to(plan, "port-2", "other");
            },
            |it| matches!(it, Violation::HostPort { .. }),
        ),
        (
            "anti-affinity of a pod that runs",
            |plan| move_to(plan, "web-0", "other"),
            |it| matches!(it, Violation::Topology { .. }),
        ),
        (
            "spread",
            |plan| {
                let zone = launch_of(plan, "web-0").requirements.clone();
                for name in ["web-1", "web-2"] {
                    let pod = take(plan, name);
                    let launch = launch_of(plan, "web-0");
                    launch.pods.push(pod);
                    launch.requirements.clone_from(&zone);
                    launch.instance_types.retain(|kind| kind.ends_with("8xlarge"));
                }
                let launch = launch_of(plan, "web-0");
                launch.price = crate::testing::usd(0.0425 * 32.0);
            },
            |it| matches!(it, Violation::Topology { .. }),
        ),
        (
            "a zone that is left open",
            |plan| launch_of(plan, "web-0").requirements.retain(|need| need.key != ZONE),
            |it| matches!(it, Violation::Topology { .. } | Violation::Affinity { .. }),
        ),
        (
            "a pool that there is not",
            |plan| plan.launches[0].node_pool = "other".to_owned(),
            |it| matches!(it, Violation::Unknown { .. }),
        ),
        (
            "an offering that there is not",
            |plan| {
                for need in &mut plan.launches[0].requirements {
                    if need.key == ZONE || need.key == "karpenter.sh/capacity-type" {
                        need.values = vec!["reserved".to_owned()];
                    }
                }
            },
            |it| matches!(it, Violation::NotOffered { .. }),
        ),
        (
            "the order of types",
            |plan| plan.launches[0].instance_types.reverse(),
            |it| matches!(it, Violation::NotRanked(_)),
        ),
        (
            "the price",
            |plan| plan.launches[0].price.0 += 1,
            |it| matches!(it, Violation::NotRanked(_)),
        ),
        (
            "minValues",
            |plan| plan.launches[0].instance_types.truncate(1),
            |it| matches!(it, Violation::MinValues { .. }),
        ),
    ];
    for (name, mutate, expected) in mutations {
        let mut plan = good.clone();
        mutate(&mut plan);
        let found = check(&snapshot, &plan);
        assert!(found.iter().any(expected), "{name}: {found:?}");
    }
}

#[test]
fn limits_and_pools_that_are_not_ready_are_found() {
    let (snapshot, plan) = scene();
    let mut tight = snapshot.clone();
    tight.node_pools[0].limits.insert("nodes".to_owned(), 3);
    let found = check(&tight, &plan);
    assert!(found.iter().any(|it| matches!(it, Violation::Limit { .. })), "{found:?}");
    let mut broken = snapshot;
    broken.node_pools[0].not_ready = Some("no NodeClass".to_owned());
    let found = check(&broken, &plan);
    assert!(found.iter().any(|it| matches!(it, Violation::PoolNotReady(_))), "{found:?}");
}
