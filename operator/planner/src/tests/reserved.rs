//! Reserved capacity: counted down within a plan.

use super::behaviour::{ZONE, app, near, spread};
use super::fixtures::*;
use crate::check::{Violation, check};
use crate::plan::{Command, Exclusion, Launch, Method};
use crate::reservations::Reservations;
use crate::snapshot::{
    CapacityType, DisruptionReason, InstanceType, NodePhase, NodePool, Offering, Operator,
    PodShape, Snapshot,
};
use crate::testing::{Builder, apply, usd};
use crate::{Plan, Policy, provision};

pub(super) const CAPACITY_TYPE: &str = "karpenter.sh/capacity-type";
pub(super) const ID: &str = "karpenter.k8s.aws/capacity-reservation-id";

fn reservation(id: &str, zone: &str, left: u32) -> Offering {
    Offering {
        zone: zone.to_owned(),
        capacity_type: CapacityType::Reserved,
        requirements: vec![need(ID, Operator::In, &[id])],
        price: usd(0.000_1),
        available: true,
        reservation_capacity: Some(left),
        unpriced: None,
    }
}

/// Types with reservations: type, id and how many machines are left.
pub(super) fn with_reservations(list: &[(&str, &str, u32)]) -> Vec<InstanceType> {
    let mut kinds = kinds();
    for kind in &mut kinds {
        for &(_, id, left) in list.iter().filter(|(name, ..)| *name == kind.name) {
            kind.offerings.push(reservation(id, "zone-a", left));
            for need in kind.requirements.iter_mut().filter(|need| need.key == CAPACITY_TYPE) {
                need.values.insert(1, "reserved".to_owned());
                need.values.dedup();
            }
        }
    }
    kinds
}

/// A pool without spot, so that what is not reserved costs the list price.
pub(super) fn pool_of(name: &str, capacity_types: &[&str]) -> NodePool {
    let mut pool = pool(name);
    pool.template.requirements.push(need(CAPACITY_TYPE, Operator::In, capacity_types));
    pool
}

/// A pod that has a machine for itself.
fn alone() -> PodShape {
    let mut shape = shape(1500, GI);
    shape.host_ports.push(("TCP".to_owned(), String::new(), 8080));
    shape
}

fn pods(mut world: Builder, count: usize) -> Snapshot {
    for number in 0..count {
        world = world.pending(&format!("pod-{number}"), alone());
    }
    world.build()
}

fn reserved(plan: &Plan) -> usize {
    let is_reserved = |kinds: &[CapacityType]| kinds == [CapacityType::Reserved];
    plan.launches.iter().filter(|launch| is_reserved(&launch.capacity_types)).count()
}

#[test]
fn a_reserved_launch_is_pinned_to_reserved_and_its_reservation() {
    let world = Builder::new(catalog(with_reservations(&[("c.large", "cr-1", 2)])))
        .pool(pool_of("default", &["on-demand", "reserved"]));
    let plan = plan(&pods(world, 1));
    let launch = &plan.launches[0];
    let values = |key: &str| {
        let need = launch.requirements.iter().find(|need| need.key == key);
        need.map(|need| need.values.clone())
    };
    assert_eq!(values(CAPACITY_TYPE), Some(vec!["reserved".to_owned()]));
    assert_eq!(values(ID), Some(vec!["cr-1".to_owned()]));
    assert_eq!(launch.instance_types, ["c.large"]);
    assert_eq!(
        (launch.price, &launch.capacity_types[..]),
        (usd(0.000_1), &[CapacityType::Reserved][..])
    );
}

#[test]
fn what_a_reservation_does_not_hold_is_bought_on_other_terms_in_the_same_plan() {
    let world = Builder::new(catalog(with_reservations(&[("c.large", "cr-1", 2)])))
        .pool(pool_of("default", &["on-demand", "reserved"]));
    let snapshot = pods(world, 5);
    let plan = plan(&snapshot);
    assert_eq!((plan.launches.len(), reserved(&plan)), (5, 2));
    assert!(plan.report.pods.is_empty());
    let after = apply(&snapshot, &plan);
    let taken = after.nodes.iter().filter(|node| node.labels.contains_key(ID)).count();
    assert_eq!(taken, 2);
}

#[test]
fn a_reservation_is_found_among_hundreds_of_types_of_about_the_same_size() {
    let free = with_reservations(&[("c.large", "cr-1", 1)]);
    let like = free.iter().find(|kind| kind.name == "c.large").unwrap();
    let mut kinds = vec![like.clone()];
    // Each a little larger and dearer than the one before, so that none is better than another.
    for step in 1..=200 {
        let mut kind = like.clone();
        kind.name = format!("d.{step:03}");
        for need in &mut kind.requirements {
            if need.key == "node.kubernetes.io/instance-type" {
                need.values = vec![kind.name.clone()];
            }
        }
        kind.capacity.cpu += step * 20;
        kind.capacity.memory += step * (like.capacity.memory / 100);
        kind.offerings.retain(|offer| offer.capacity_type != CapacityType::Reserved);
        for offer in &mut kind.offerings {
            offer.price.0 += offer.price.0 * step / 100;
        }
        kinds.push(kind);
    }
    let world = Builder::new(catalog(kinds)).pool(pool_of("default", &["on-demand", "reserved"]));
    let world = world.pending("a", shape(1500, GI)).pending("b", shape(1500, GI));
    assert_eq!(reserved(&plan(&world.build())), 1);
}

#[test]
fn each_launch_gets_one_reservation_before_any_gets_two() {
    let kinds = with_reservations(&[("c.large", "cr-1", 1), ("m.large", "cr-2", 1)]);
    let world = Builder::new(catalog(kinds)).pool(pool_of("default", &["on-demand", "reserved"]));
    assert_eq!(reserved(&plan(&pods(world, 2))), 2);
}

#[test]
fn a_launch_that_nobody_competes_with_may_use_every_reservation() {
    let kinds = with_reservations(&[("c.large", "cr-1", 1), ("m.large", "cr-2", 1)]);
    let world = Builder::new(catalog(kinds)).pool(pool_of("default", &["on-demand", "reserved"]));
    let plan = plan(&pods(world, 1));
    assert_eq!(plan.launches[0].instance_types, ["c.large", "m.large"]);
}

#[test]
fn strict_a_pool_with_nothing_but_reservations_lets_pods_wait_for_the_next_pass() {
    let world = Builder::new(catalog(with_reservations(&[("c.large", "cr-1", 2)])))
        .pool(pool_of("default", &["reserved"]));
    let snapshot = pods(world, 3);
    let plan = plan(&snapshot);
    assert_eq!(reserved(&plan), 2);
    assert_eq!(*only_reason(&plan), Exclusion::Reserved { reservations: vec!["cr-1".to_owned()] });
    // Full by then: the pool has nothing to offer.
    let after = apply(&snapshot, &plan);
    let again = provision(&after, &Policy::default(), now(), 1, &());
    assert_eq!(again.launches, []);
    assert!(matches!(only_reason(&again), Exclusion::PoolNotReady(_)), "{:?}", again.report.pods);
}

#[test]
fn a_full_reservation_leaves_the_pods_to_the_next_pool() {
    let mut first = pool_of("first", &["reserved"]);
    first.weight = 10;
    let world = Builder::new(catalog(with_reservations(&[("c.large", "cr-1", 0)])))
        .pool(first)
        .pool(pool_of("second", &["on-demand"]));
    let plan = plan(&pods(world, 1));
    assert_eq!(plan.launches[0].node_pool, "second");
}

#[test]
fn a_claim_that_is_being_launched_holds_its_reservation() {
    let mut pending = node("a", "default", "c.large", "zone-a");
    (pending.phase, pending.name) = (NodePhase::Pending, None);
    pending.allocatable.cpu = 10;
    pending.requirements = vec![
        need(ID, Operator::In, &["cr-1"]),
        need("node.kubernetes.io/instance-type", Operator::In, &["c.large"]),
    ];
    let world = Builder::new(catalog(with_reservations(&[("c.large", "cr-1", 1)])))
        .pool(pool_of("default", &["on-demand", "reserved"]))
        .node(pending);
    let plan = plan(&pods(world, 1));
    assert_eq!((plan.launches.len(), reserved(&plan)), (1, 0));
}

#[test]
fn min_values_outweigh_a_reservation() {
    let mut pool = pool_of("default", &["on-demand", "reserved"]);
    let mut many = need("node.kubernetes.io/instance-type", Operator::Exists, &[]);
    many.min_values = Some(3);
    pool.template.requirements.push(many);
    let kinds = with_reservations(&[("c.large", "cr-1", 5)]);
    let plan = plan(&pods(Builder::new(catalog(kinds)).pool(pool), 1));
    assert_eq!((plan.launches.len(), reserved(&plan)), (1, 0));
    assert!(plan.launches[0].instance_types.len() >= 3);
}

/// Two nodes whose pods would do with a machine of a reservation that has room for one.
fn two_nodes_and_one_reservation() -> Builder {
    let mut world = Builder::new(catalog(with_reservations(&[("c.large", "cr-1", 1)])))
        .pool(pool_of("default", &["on-demand", "reserved"]));
    for name in ["a", "b"] {
        world = world.node(node(name, "default", "m.large", "zone-a"));
        world = world.pod(&format!("on-{name}"), alone(), Some(name));
    }
    world
}

/// The capacity types of all replacements, sorted.
fn replacements(plan: &Plan) -> Vec<Vec<CapacityType>> {
    let all = plan.commands.iter().flat_map(|command| &command.replacements);
    let mut kinds: Vec<_> = all.map(|launch| launch.capacity_types.clone()).collect();
    kinds.sort_unstable();
    kinds
}

#[test]
fn a_replacement_is_bought_on_other_terms_once_another_holds_the_reservation() {
    let plan = disruption(&two_nodes_and_one_reservation().build());
    let expected = [[CapacityType::Reserved], [CapacityType::OnDemand]];
    assert_eq!(replacements(&plan), expected, "{:?}", plan.report.nodes);
}

#[test]
fn a_replacement_is_bought_on_other_terms_while_a_claim_holds_the_reservation() {
    let mut pending = node("pending", "default", "c.large", "zone-a");
    (pending.phase, pending.name) = (NodePhase::Pending, None);
    pending.allocatable.cpu = 10;
    pending.requirements = vec![
        need(ID, Operator::In, &["cr-1"]),
        need("node.kubernetes.io/instance-type", Operator::In, &["c.large"]),
    ];
    let plan = disruption(&two_nodes_and_one_reservation().node(pending).build());
    let expected = [[CapacityType::OnDemand], [CapacityType::OnDemand]];
    assert_eq!(replacements(&plan), expected, "{:?}", plan.report.nodes);
}

#[test]
fn the_checker_finds_a_reservation_that_is_used_twice() {
    let world = Builder::new(catalog(with_reservations(&[("c.large", "cr-1", 2)])))
        .pool(pool_of("default", &["reserved"]));
    let mut snapshot = pods(world, 2);
    let plan = plan(&snapshot);
    assert_eq!(reserved(&plan), 2);
    let catalog = std::sync::Arc::make_mut(&mut snapshot.catalogs[0]);
    for offer in catalog.instance_types.iter_mut().flat_map(|kind| &mut kind.offerings) {
        offer.reservation_capacity = offer.reservation_capacity.map(|_| 1);
    }
    assert_eq!(check(&snapshot, &plan), [Violation::Reservation("cr-1".to_owned())]);
}

/// What a launch asks of an offering by comparing counts when it is carried out.
#[test]
fn a_launch_becomes_a_machine_of_an_offering_that_it_admits() {
    const GENERATION: &str = "example.com/generation";
    let bought = |operator: Operator, bound: &str, cheap: &str, dear: &str| {
        let mut kinds = kinds();
        kinds.retain(|kind| kind.name == "c.large");
        let offer = kinds[0].offerings[0].clone();
        kinds[0].offerings = [(cheap, 0.1), (dear, 0.2)]
            .map(|(generation, price)| Offering {
                requirements: vec![need(GENERATION, Operator::In, &[generation])],
                price: usd(price),
                ..offer.clone()
            })
            .into();
        let mut pool = pool("default");
        pool.template.requirements.push(need(GENERATION, operator, &[bound]));
        let snapshot =
            Builder::new(catalog(kinds)).pool(pool).pending("web", shape(500, GI)).build();
        let after = apply(&snapshot, &plan(&snapshot));
        after.nodes[0].labels[GENERATION].clone()
    };
    assert_eq!(bought(Operator::Gt, "3", "2", "5"), "5");
    assert_eq!(bought(Operator::Gte, "5", "2", "5"), "5");
    assert_eq!(bought(Operator::Lt, "5", "5", "2"), "2");
    assert_eq!(bought(Operator::Lte, "2", "5", "2"), "2");
    assert_eq!(bought(Operator::NotIn, "2", "2", "5"), "5");
}

/// The first of two launches takes the only reservation, where the other one would have made a
/// place for pods in a third domain.
#[test]
fn no_pod_is_spread_as_if_pods_ran_for_which_no_reservation_is_left() {
    let mut kinds = with_reservations(&[("r.2xlarge", "cr-1", 1)]);
    for kind in &mut kinds {
        let large = kind.name == "r.8xlarge";
        for offer in &mut kind.offerings {
            let is_reserved = offer.capacity_type == CapacityType::Reserved;
            offer.available = is_reserved || large && offer.zone == "zone-c";
        }
    }
    let mut old = node("old", "default", "r.8xlarge", "zone-c");
    old.labels.insert(CAPACITY_TYPE.to_owned(), "spot".to_owned());
    let mut batch = app("batch", 100);
    batch.requests.memory = 6 * GI;
    batch.node_selector.insert(ZONE.to_owned(), "zone-a".to_owned());
    let mut web = spread(app("web", 100), CAPACITY_TYPE, 1);
    web.requests.memory = 20 * GI;
    let mut apart = near(app("web", 100), ZONE, "batch", true);
    apart.pod_affinity[0].weight = Some(1);
    let mut world = Builder::new(catalog(kinds)).pool(pool("default")).node(old);
    world = world.pod("web-old", app("web", 100), Some("old")).pending("web-apart", apart);
    for number in 0..4 {
        world = world.pending(&format!("batch-{number}"), batch.clone());
    }
    for number in 0..6 {
        world = world.pending(&format!("web-{number}"), web.clone());
    }
    let plan = plan(&world.build());
    assert_eq!(reserved(&plan), 1);
    assert_eq!(plan.report.pods.len(), 2, "{:?}", plan.report.pods);
    for waiting in &plan.report.pods {
        assert!(matches!(waiting.reasons[..], [(_, Exclusion::Reserved { .. })]), "{waiting:?}");
    }
}

#[test]
fn a_command_that_is_dropped_leaves_its_reservations_to_later_ones() {
    let pool = pool_of("default", &["reserved"]);
    let world = |small, large| {
        let kinds = with_reservations(&[("c.large", "cr-1", small), ("c.xlarge", "cr-2", large)]);
        Builder::new(catalog(kinds)).pool(pool.clone())
    };
    let [small, large] = [(9, 0), (0, 9)].map(|(small, large)| {
        let plan = plan(&pods(world(small, large), 1));
        plan.launches.into_iter().next().expect("a launch")
    });
    let command = |replacements: &[&Launch]| {
        let mut command = Command::new(DisruptionReason::Drifted, Method::Drift, Vec::new());
        command.replacements = replacements.iter().map(|launch| (*launch).clone()).collect();
        command
    };
    // Two machines of a reservation that has room for one.
    let commands = vec![command(&[&small, &large, &large]), command(&[&small])];
    let mut plan = Plan { commands, ..Plan::default() };
    Reservations::new(&world(1, 1).build()).settle_commands(&mut plan);
    let kept: Vec<usize> = plan.commands.iter().map(|it| it.replacements.len()).collect();
    assert_eq!(kept, [1]);
    assert_eq!(plan.commands[0].replacements[0].instance_types, ["c.large"]);
}
