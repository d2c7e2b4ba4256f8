//! Nodes that go before there is anything in their place, because only what they leave makes room
//! for it.

use jiff::Timestamp;

use super::disrupting::{commands, stay};
use super::fixtures::*;
use super::reserved::{CAPACITY_TYPE, ID, pool_of, with_reservations};
use crate::check::{Violation, check};
use crate::plan::{Plan, Shortage, StayReason};
use crate::policy::Policy;
use crate::snapshot::{DisruptionReason, Node, NodePool, PodShape, Snapshot};
use crate::testing::Builder;
use crate::{disrupt, revalidate};

fn policy() -> Policy {
    Policy { terminate_first_drift: true, ..Policy::default() }
}

fn planned(snapshot: &Snapshot, policy: &Policy) -> Plan {
    snapshot.validate().expect("a valid snapshot");
    let plan = disrupt(snapshot, policy, now(), 1, &());
    assert_eq!(check(snapshot, &plan), []);
    plan
}

/// A drifted node in a reservation.
fn reserved(key: &str, pool: &str, id: &str) -> Node {
    let mut node = node(key, pool, "m.large", "zone-a");
    node.labels.insert(CAPACITY_TYPE.to_owned(), "reserved".to_owned());
    node.labels.insert(ID.to_owned(), id.to_owned());
    let claim = node.claim.as_mut().expect("a claim");
    claim.drifted = Some(("NodePoolDrifted".to_owned(), Timestamp::UNIX_EPOCH));
    node
}

/// A drifted node in a reservation of one machine, with pods of these processors.
fn world(pool: NodePool, pods: &[i64]) -> Builder {
    let world = Builder::new(catalog(with_reservations(&[("m.large", "cr-1", 0)])))
        .pool(pool)
        .node(reserved("old", "default", "cr-1"));
    pods.iter().enumerate().fold(world, |world, (number, &cpu)| {
        world.pod(&format!("pod-{number}"), shape(cpu, GI), Some("old"))
    })
}

fn only_reserved() -> NodePool {
    pool_of("default", &["reserved"])
}

#[test]
fn the_only_machine_of_a_reservation_goes_first_when_the_gate_is_on() {
    let snapshot = world(only_reserved(), &[1500]).build();
    let without = planned(&snapshot, &Policy::default());
    assert!(matches!(stay(&without, "old"), StayReason::PodsDontFit(_)));
    let of_repair = Policy { terminate_first_repair: true, ..Policy::default() };
    assert!(matches!(stay(&planned(&snapshot, &of_repair), "old"), StayReason::PodsDontFit(_)));
    let plan = planned(&snapshot, &policy());
    assert_eq!(commands(&plan), [(DisruptionReason::Drifted, "old", 0)]);
    let first = plan.commands[0].terminate_first.as_ref().expect("it goes first");
    assert_eq!(first.reason, Shortage::NoReservedCapacity);
    let launch = first.launch.as_ref().expect("a machine for its pod");
    assert_eq!(
        (launch.instance_types.as_ref(), launch.pods.len()),
        (&["m.large".to_owned()][..], 1)
    );
    assert_eq!(revalidate(&plan.commands[0], &snapshot, &policy(), now()), Ok(()));
}

#[test]
fn pods_that_fit_elsewhere_are_moved_there_and_the_others_wait() {
    let mut other = node("other", "default", "m.large", "zone-a");
    other.claim.as_mut().expect("a claim").consolidatable = None;
    let snapshot = world(only_reserved(), &[900, 800])
        .node(other)
        .pod("there", shape(1000, GI), Some("other"))
        .build();
    let plan = planned(&snapshot, &policy());
    let command = &plan.commands[0];
    assert_eq!(command.nominations.len(), 1);
    let first = command.terminate_first.as_ref().expect("it goes first");
    assert_eq!(first.launch.as_ref().map(|launch| launch.pods.len()), Some(1));
}

#[test]
fn what_can_be_replaced_first_is_and_what_can_not_be_replaced_at_all_stays() {
    let replaced = |pool: NodePool| planned(&world(pool, &[1500]).build(), &policy());
    let plan = replaced(pool_of("default", &["reserved", "on-demand"]));
    assert_eq!(commands(&plan), [(DisruptionReason::Drifted, "old", 1)], "by on-demand");
    assert_eq!(plan.commands[0].terminate_first, None);

    let room = Builder::new(catalog(with_reservations(&[("m.large", "cr-1", 1)])))
        .pool(only_reserved())
        .node(reserved("old", "default", "cr-1"))
        .pod("pod", shape(1500, GI), Some("old"));
    let plan = planned(&room.build(), &policy());
    assert_eq!(commands(&plan), [(DisruptionReason::Drifted, "old", 1)], "there is room for both");

    let refused = |snapshot: &Snapshot| {
        let plan = planned(snapshot, &policy());
        assert_eq!(commands(&plan), []);
        assert!(matches!(stay(&plan, "old"), StayReason::PodsDontFit(_)));
    };
    // More than one machine of the reservation holds.
    let apart =
        PodShape { host_ports: vec![("TCP".to_owned(), String::new(), 80)], ..shape(900, GI) };
    let mut two = world(only_reserved(), &[]);
    for name in ["a", "b"] {
        two = two.pod(name, apart.clone(), Some("old"));
    }
    refused(&two.build());
    // A label from former times.
    let mut moved = world(only_reserved(), &[1500]).build();
    moved.nodes[0].labels.insert(CAPACITY_TYPE.to_owned(), "on-demand".to_owned());
    refused(&moved);
    let mut ended = world(only_reserved(), &[1500]).build();
    let catalog = std::sync::Arc::make_mut(&mut ended.catalogs[0]);
    for offer in catalog.instance_types.iter_mut().flat_map(|kind| &mut kind.offerings) {
        offer.available &= offer.reservation().is_none();
    }
    refused(&ended);
}

#[test]
fn of_a_full_reservation_one_machine_after_the_other_goes_within_the_budgets() {
    let mut careful = only_reserved();
    careful.disruption.budgets[0].nodes = crate::snapshot::BudgetNodes::Count(1);
    let both = |pool| {
        world(pool, &[1500])
            .node(reserved("second", "default", "cr-1"))
            .pod("more", shape(1500, GI), Some("second"))
            .build()
    };
    assert_eq!(planned(&both(careful), &policy()).commands.len(), 1);
    assert_eq!(planned(&both(only_reserved()), &policy()).commands.len(), 2);
}

#[test]
fn what_other_commands_launch_counts_for_the_limits_of_what_goes_first() {
    let n_commands = |cpu: i64| {
        let mut pool = only_reserved();
        pool.limits.insert("cpu".to_owned(), cpu * 1000);
        let on = |kind: &str| {
            let mut shape = shape(1500, GI);
            let key = "node.kubernetes.io/instance-type".to_owned();
            shape.node_selector.insert(key, kind.to_owned());
            shape
        };
        // Both pods need a larger machine now; the reservation of one has room for it.
        let rooms = [("m.xlarge", "cr-1", 0), ("c.xlarge", "cr-2", 1)];
        let snapshot = Builder::new(catalog(with_reservations(&rooms)))
            .pool(pool)
            .node(reserved("first", "default", "cr-2"))
            .node(reserved("second", "default", "cr-1"))
            .pod("a", on("c.xlarge"), Some("first"))
            .pod("b", on("m.xlarge"), Some("second"))
            .build();
        let plan = planned(&snapshot, &policy());
        let first = |command: &crate::plan::Command| command.terminate_first.is_some();
        (plan.commands.len(), plan.commands.iter().filter(|it| first(it)).count())
    };
    // Two nodes have two cores each, and each of the new machines has four.
    assert_eq!(n_commands(8), (2, 1));
    assert_eq!(n_commands(7), (1, 0));
    assert_eq!(n_commands(6), (1, 0));
    assert_eq!(n_commands(5), (0, 0));
}

fn fixed(replicas: i64, types: &[&str], limit: Option<i64>) -> NodePool {
    let mut pool = pool_of("fixed", types);
    pool.replicas = Some(replicas);
    pool.limits.extend(limit.map(|limit| ("nodes".to_owned(), limit)));
    pool
}

fn fixed_world(pool: NodePool) -> Snapshot {
    Builder::new(catalog(with_reservations(&[("m.large", "cr-1", 0)])))
        .pool(pool)
        .node(reserved("old", "fixed", "cr-1"))
        .node(reserved("foreign", "fixed", "cr-9"))
        .pod("web", shape(100, GI), Some("old"))
        .build()
}

#[test]
fn a_static_pool_lets_holders_of_its_full_reservations_go_first() {
    let plan = planned(&fixed_world(fixed(2, &["reserved"], None)), &policy());
    assert_eq!(commands(&plan), [(DisruptionReason::Drifted, "old", 0)]);
    let first = plan.commands[0].terminate_first.as_ref().expect("it goes first");
    assert_eq!((first.reason, &first.launch), (Shortage::NoReservedCapacity, &None));
    assert_eq!(*stay(&plan, "foreign"), StayReason::StaticReservationsFull);
    let mut unready = fixed(2, &["reserved"], None);
    unready.not_ready = Some("its NodeClass is not".to_owned());
    let plan = planned(&fixed_world(unready), &policy());
    assert_eq!(*stay(&plan, "old"), StayReason::StaticNotReady);
    let without = planned(&fixed_world(fixed(2, &["reserved"], None)), &Policy::default());
    assert_eq!(*stay(&without, "old"), StayReason::NoStaticReplacement);
}

#[test]
fn a_static_pool_at_its_limit_lets_nodes_go_first() {
    let types = ["reserved", "on-demand"];
    let plan = planned(&fixed_world(fixed(2, &types, Some(2))), &policy());
    let first = |index: usize| {
        let first = plan.commands[index].terminate_first.as_ref();
        first.map(|first| first.reason)
    };
    assert_eq!(plan.commands.len(), 2);
    assert_eq!(
        (first(0), first(1)),
        (Some(Shortage::StaticAtLimit), Some(Shortage::StaticAtLimit))
    );
    let plan = planned(&fixed_world(fixed(2, &types, Some(3))), &policy());
    assert_eq!(plan.commands.len(), 2);
    let before = plan.commands.iter().filter(|command| command.terminate_first.is_none());
    assert_eq!(before.count(), 1, "as long as there is room for another one");
}

#[test]
fn the_checker_sees_nodes_that_go_first_without_need() {
    let snapshot = world(only_reserved(), &[1500]).build();
    let plan = planned(&snapshot, &policy());
    let wrong = |change: &dyn Fn(&mut Snapshot, &mut Plan)| {
        let (mut snapshot, mut plan) = (snapshot.clone(), plan.clone());
        change(&mut snapshot, &mut plan);
        let found = check(&snapshot, &plan);
        assert!(!found.is_empty());
        found
    };
    let must_stay = |found: Vec<Violation>, why: &str| {
        let is_it = |it: &Violation| matches!(it, Violation::MustStay { reason, .. } if reason.contains(why));
        assert!(found.iter().any(is_it), "{found:?}");
    };
    must_stay(
        wrong(&|snapshot, _| {
            let catalog = std::sync::Arc::make_mut(&mut snapshot.catalogs[0]);
            let offers = catalog.instance_types.iter_mut().flat_map(|kind| &mut kind.offerings);
            offers
                .filter(|offer| offer.reservation().is_some())
                .for_each(|offer| offer.reservation_capacity = Some(1));
        }),
        "has room",
    );
    must_stay(
        wrong(&|snapshot, _| {
            snapshot.nodes[0].labels.insert(ID.to_owned(), "cr-2".to_owned());
        }),
        "not offered",
    );
    wrong(&|_, plan| {
        let first = plan.commands[0].terminate_first.as_mut().expect("it goes first");
        first.launch = None;
    });
    wrong(&|_, plan| plan.commands[0].terminate_first = None);
}
