//! Plans where pods are not nominated: kube-scheduler deals them out as it likes.

use super::behaviour::{HOSTNAME, app, near};
use super::fixtures::*;
use crate::policy::Policy;
use crate::provision;
use crate::resources::MicroUsd;
use crate::snapshot::{PodShape, Snapshot};
use crate::testing::Builder;
use crate::testing::dealing::{Outcome, Scheduler, carry_out};
use crate::testing::mixes::{self, kwok_types};

const SEEDS: u64 = 4;

fn dealt_out() -> Policy {
    Policy { nominations: false, ..Policy::default() }
}

/// As many pods of each shape on some types of the provider `kwok`.
fn mix(cores: i64, copies: usize, requests: &[(i64, i64)]) -> Snapshot {
    let mut world = Builder::new(catalog(kwok_types(cores))).pool(on_demand("default"));
    for (number, &(cpu, mebibytes)) in requests.iter().enumerate() {
        for copy in 0..copies {
            let shape = mixes::shape(cpu, mebibytes);
            world = world.pending(&format!("pod-{number}-{copy:03}"), shape);
        }
    }
    world.build()
}

/// What comes of plans for several orders of the pods.
fn outcomes(snapshot: &Snapshot, policy: &Policy) -> Vec<Outcome> {
    let one = |seed| carry_out(snapshot, policy, Scheduler::new(seed));
    (1..=SEEDS).map(one).collect()
}

fn price(outcomes: &[Outcome]) -> f64 {
    outcomes.iter().map(|it| it.price).sum::<MicroUsd>().as_usd()
}

const HALVES: [(i64, i64); 2] = [(900, 3_100), (3_500, 28 << 10)];
const OPPOSITE: [(i64, i64); 4] = [(1_900, 600), (2_700, 800), (200, 7_000), (100, 11_000)];

#[test]
fn fleets_for_being_dealt_out_cost_less_in_the_end_and_come_in_fewer_rounds() {
    let mixes = [mix(256, 150, &HALVES), mix(256, 60, &OPPOSITE), mix(16, 40, &HALVES)];
    let (mut planned, mut rehearsed) = (Vec::new(), Vec::new());
    for mix in &mixes {
        planned.push(outcomes(mix, &Policy::default()));
        rehearsed.push(outcomes(mix, &dealt_out()));
    }
    for (planned, rehearsed) in planned.iter().zip(&rehearsed) {
        assert!(rehearsed.iter().all(|it| it.waiting == 0), "{rehearsed:?}");
        // Where nothing is gained nothing is lost but noise.
        assert!(price(rehearsed) < price(planned) * 1.02, "{planned:?} {rehearsed:?}");
    }
    let (planned, rehearsed) = (planned.concat(), rehearsed.concat());
    assert!(price(&rehearsed) < price(&planned) * 0.985, "{planned:?} {rehearsed:?}");
    let rounds = |outcomes: &[Outcome]| outcomes.iter().map(|it| it.rounds).sum::<usize>();
    assert!(rounds(&rehearsed) < rounds(&planned), "{planned:?} {rehearsed:?}");
}

#[test]
fn machines_keep_the_room_that_dealing_needs_whatever_type_they_become() {
    let snapshot = mix(256, 150, &HALVES);
    let plan = |policy: &Policy| provision(&snapshot, policy, now(), 1, &());
    let (rehearsed, tight) = (plan(&dealt_out()), plan(&Policy::default()));
    assert_eq!(crate::check(&snapshot, &rehearsed), []);
    // Of every thousand processors of the smallest types, so many are asked for.
    let used = |plan: &crate::Plan| {
        let smallest = plan.launches.iter().map(|launch| {
            let kinds = &snapshot.catalogs[0].instance_types;
            let kinds = kinds.iter().filter(|it| launch.instance_types.contains(&it.name));
            kinds.map(|it| it.allocatable().cpu).min().unwrap_or(0)
        });
        let asked: i64 = plan.launches.iter().map(|launch| launch.requests.cpu).sum();
        asked * 1000 / smallest.sum::<i64>()
    };
    let (rehearsed, tight) = (used(&rehearsed), used(&tight));
    assert!(rehearsed + 5 < tight, "{rehearsed} and {tight}");
}

#[test]
fn pods_that_rules_are_about_stay_where_they_are_planned() {
    let mut world = Builder::new(catalog(kwok_types(256))).pool(on_demand("default"));
    for number in 0..20 {
        let shape = near(app("db", 500), HOSTNAME, "db", true);
        world = world.pending(&format!("db-{number:02}"), shape);
    }
    let snapshot = world.build();
    let plan = |policy: &Policy| provision(&snapshot, policy, now(), 1, &());
    assert_eq!(plan(&dealt_out()), plan(&Policy::default()));
}

#[test]
fn the_model_of_kube_scheduler_keeps_to_its_filters() {
    let deal = |snapshot: &Snapshot| carry_out(snapshot, &Policy::default(), Scheduler::new(1));
    let pods = |shape: &dyn Fn(usize) -> PodShape| {
        let mut world = Builder::new(catalog(kwok_types(256))).pool(on_demand("default"));
        for number in 0..12 {
            world = world.pending(&format!("pod-{number:02}"), shape(number));
        }
        world.build()
    };
    let apart = deal(&pods(&|_| near(app("db", 100), HOSTNAME, "db", true)));
    assert_eq!((apart.launches, apart.rounds, apart.waiting), (12, 1, 0));
    let ports = deal(&pods(&|_| {
        let port = ("TCP".to_owned(), String::new(), 8080);
        PodShape { host_ports: vec![port], ..mixes::shape(100, 100) }
    }));
    assert_eq!((ports.launches, ports.rounds, ports.waiting), (12, 1, 0));
    let huge = deal(&pods(&|number| mixes::shape(if number == 0 { 999_000 } else { 100 }, 100)));
    assert_eq!((huge.rounds, huge.waiting), (1, 1), "what no type holds waits");
}
