//! Pods that move between machines to come once all have a place, and how many machines are left.

use proptest::prelude::*;

use super::behaviour::{HOSTNAME, ZONE, app, near, spread};
use super::fixtures::*;
use crate::compile::Problem;
use crate::demands::demands;
use crate::pack::{Strategy as Way, pack, relocate};
use crate::policy::Policy;
use crate::snapshot::{PodShape, Snapshot};
use crate::solver::{Claim, Solver};
use crate::tables::add_times;
use crate::testing::Builder;
use crate::testing::mixes::{diverse, fake_types};
use crate::{lower_bound, provision};

/// Which pods share a machine to come after pods have moved, when these were their machines before;
/// and what is saved, in micro-dollars.
fn relocated(snapshot: &Snapshot, machines: &[&[usize]]) -> (Vec<Vec<usize>>, i64) {
    let policy = Policy::default();
    let problem = Problem::new(snapshot, &policy);
    let mut solver = Solver::new(&problem);
    let spec = solver.specs.base(&problem.tables, 0);
    for pods in machines {
        let shapes = pods.iter().map(|&pod| snapshot.pods[pod].shape.0 as usize);
        let shapes = shapes.map(|shape| &problem.tables.shapes[shape]);
        let mut used = vec![0; problem.tables.columns.len()];
        shapes.clone().for_each(|shape| add_times(&mut used, &shape.requests, 1));
        let ports: Vec<_> = shapes.flat_map(|shape| shape.ports.clone()).collect();
        let mut types = solver.specs[spec].types.clone();
        solver.keep_fitting(&mut types, 0, &used, &ports);
        let target = solver.specs[spec].cheapest(&types).expect("a type that holds them");
        let (pods, relaxed) = (pods.to_vec(), Vec::new());
        solver.claims.push(Claim { spec, used, types, ports, pods, relaxed, target });
    }
    let pods = solver.claims.iter().map(|claim| &claim.pods[..]);
    solver.counts.recount_claims(&problem.topology(), pods);
    let before = solver.cost();
    relocate(&mut solver, &());
    let after = solver.claims.iter().map(|claim| claim.pods.clone()).collect();
    (after, before - solver.cost())
}

/// Pods of the given shapes that wait; the smallest type has two cores.
fn waiting(shapes: &[PodShape]) -> Snapshot {
    let world = builder().pool(on_demand("default"));
    let pods = shapes.iter().enumerate();
    pods.fold(world, |world, (number, shape)| world.pending(&format!("{number}"), shape.clone()))
        .build()
}

#[test]
fn a_machine_whose_pods_fit_on_another_does_not_come() {
    let world = waiting(&[app("web", 500), app("db", 400), app("db", 700)]);
    let (machines, saved) = relocated(&world, &[&[0], &[1, 2]]);
    assert_eq!(machines, [[1, 2, 0]]);
    assert_eq!(saved, 85_000 + 500, "a c.large and the price of having it");
}

#[test]
fn another_machine_becomes_larger_as_long_as_that_costs_less() {
    let world = waiting(&[app("web", 1200), app("db", 1200), app("db", 1200)]);
    let (machines, saved) = relocated(&world, &[&[0], &[1], &[2]]);
    // Four cores cost as much as two and two, and save the price of a machine.
    assert_eq!(machines, [[2, 1, 0]]);
    assert_eq!(saved, 85_000 + 1_000);
    let world = waiting(&[app("web", 1200), app("db", 1500), app("db", 1500)]);
    assert_eq!(relocated(&world, &[&[0], &[1, 2]]).0, [vec![0], vec![1, 2]], "eight cores");
}

#[test]
fn a_pod_leaves_where_that_makes_the_machine_smaller() {
    // The others keep off each other's hosts.
    let alone = |cpu| near(app("db", cpu), HOSTNAME, "db", true);
    let world = waiting(&[app("web", 1200), alone(900), alone(300)]);
    let (machines, saved) = relocated(&world, &[&[0, 1], &[2]]);
    assert_eq!(machines, [vec![1], vec![2, 0]]);
    assert_eq!(saved, 85_000, "two cores instead of four");
}

#[test]
fn pods_that_want_to_share_a_host_stay_together() {
    let near_db = |cpu| near(app("db", cpu), HOSTNAME, "db", false);
    let world = waiting(&[near_db(1200), near_db(900), with_port(300)]);
    let (machines, _) = relocated(&world, &[&[0, 1], &[2]]);
    assert_eq!(machines, [vec![0, 1], vec![2]]);
}

fn with_port(cpu: i64) -> PodShape {
    let mut shape = app("web", cpu);
    shape.host_ports.push(("TCP".to_owned(), String::new(), 80));
    shape
}

#[test]
fn rules_about_hosts_and_ports_keep_pods_apart() {
    let alone = |name: &str| near(app(name, 300), HOSTNAME, name, true);
    let cases = [
        ("anti-affinity", alone("web"), alone("web"), 2),
        (
            "anti-affinity of another",
            app("web", 300),
            near(app("db", 300), HOSTNAME, "web", true),
            2,
        ),
        ("spread", spread(app("web", 300), HOSTNAME, 1), spread(app("web", 300), HOSTNAME, 1), 2),
        ("spread that has room", spread(app("web", 300), HOSTNAME, 2), app("web", 300), 1),
        ("spread of another", spread(app("web", 300), HOSTNAME, 1), app("web", 300), 2),
        ("ports", with_port(300), with_port(300), 2),
        ("others", alone("web"), alone("db"), 1),
    ];
    for (name, one, other, left) in cases {
        let (machines, _) = relocated(&waiting(&[one, other]), &[&[0], &[1]]);
        assert_eq!(machines.len(), left, "{name}");
    }
}

/// The mix of Karpenter's own benchmark, where a fifth of the pods needs a host each.
fn diverse_mix(pods: usize, seed: u64) -> Snapshot {
    diverse(Builder::new(catalog(fake_types(400))).pool(pool("default")), pods, seed)
}

#[test]
fn the_diverse_mix_takes_hardly_more_machines_than_pods_that_keep_off_each_others_hosts() {
    let draws = (1..=8).chain([42]).map(|seed| (1_000, seed));
    let large = [(5_000, 1), (5_000, 2), (5_000, 42), (20_000, 42)];
    for (pods, seed) in draws.chain(large) {
        let plan = provision(&diverse_mix(pods, seed), &Policy::default(), now(), 1, &());
        assert_eq!(plan.report.pods, []);
        // Two smaller machines may be cheaper than one.
        let (machines, apart) = (plan.launches.len(), pods / 5);
        let expected = apart..=apart + apart / 500;
        assert!(expected.contains(&machines), "{machines} for {pods} pods, draw {seed}");
    }
    plan(&diverse_mix(500, 42));
}

#[test]
fn the_diverse_mix_costs_little_more_than_its_bound() {
    for (pods, most) in [(1_000, 1.06), (5_000, 1.08)] {
        let (snapshot, policy) = (diverse_mix(pods, 42), Policy::default());
        let plan = provision(&snapshot, &policy, now(), 1, &());
        assert_eq!(plan.report.pods, []);
        let price: f64 = plan.launches.iter().map(|launch| launch.price.as_usd()).sum();
        let bound = lower_bound(&snapshot, &policy).price.as_usd();
        assert!(price < bound * most, "{price} of {bound} for {pods} pods");
    }
}

proptest! {

    #[test]
    fn moving_pods_costs_nothing_and_loses_nobody(
        services in prop::collection::vec((50..3000_i64, 64..9_000_i64, 1..15_usize, 0..6_u8), 1..9),
        fill in any::<bool>(),
    ) {
        let mut world = builder().pool(on_demand("default"));
        for (service, &(cpu, mebibytes, copies, rule)) in services.iter().enumerate() {
            let name = format!("service-{}", service / 2);
            let mut shape = app(&name, cpu);
            shape.requests.memory = mebibytes << 20;
            let shape = match rule {
                0 | 1 => shape,
                2 => near(shape, HOSTNAME, &name, true),
                3 => spread(shape, HOSTNAME, 1),
                4 => spread(shape, ZONE, 1),
                _ => near(shape, HOSTNAME, &name, false),
            };
            for copy in 0..copies {
                world = world.pending(&format!("pod-{service}-{copy:02}"), shape.clone());
            }
        }
        let (snapshot, policy) = (world.build(), Policy::default());
        let problem = Problem::new(&snapshot, &policy);
        let mut solver = Solver::new(&problem);
        let (mut demands, _) = demands(&problem, |_| true);
        let way = if fill { Way::Fill } else { Way::Cheapest };
        pack(&mut solver, &mut demands, way, &|_| true, &());
        let pods = |solver: &Solver<'_, '_>| {
            let mut pods: Vec<_> = solver.claims.iter().flat_map(|claim| claim.pods.clone()).collect();
            pods.sort_unstable();
            pods
        };
        let before = (pods(&solver), solver.claims.len(), solver.cost());
        relocate(&mut solver, &());
        prop_assert_eq!(pods(&solver), before.0);
        prop_assert!(solver.claims.len() <= before.1 && solver.cost() <= before.2);
        for claim in &solver.claims {
            prop_assert!(claim.types[claim.target] && !claim.pods.is_empty());
        }
    }
}
