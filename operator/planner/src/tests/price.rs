//! What plans cost, against the lower bound and against Karpenter's own way.

use proptest::prelude::*;

use super::world::*;
use crate::compile::Problem;
use crate::pack::{Strategy as Way, pack};
use crate::policy::Policy;
use crate::provision::demands;
use crate::resources::MicroUsd;
use crate::snapshot::Snapshot;
use crate::solver::{Demand, Solver};
use crate::{lower_bound, lower_bound_within, provision};

/// What a plan costs above the lower bound, as a share of it.
fn excess(snapshot: &Snapshot) -> f64 {
    let policy = Policy::default();
    let plan = provision(snapshot, &policy, now(), 1, &());
    assert_eq!(plan.report.pods, []);
    assert_eq!(crate::check(snapshot, &plan), []);
    let price: MicroUsd = plan.launches.iter().map(|launch| launch.price).sum();
    let bound = lower_bound(snapshot, &policy).price;
    assert!(bound <= price, "the bound {bound:?} is above a plan's price {price:?}");
    price.as_usd() / bound.as_usd() - 1.0
}

fn batch(requests: &[(i64, i64)], copies: usize) -> Snapshot {
    let mut world = builder().pool(on_demand("default"));
    for (number, &(cpu, mebibytes)) in requests.iter().enumerate() {
        for copy in 0..copies {
            world = world.pending(&format!("pod-{number}-{copy:03}"), shape(cpu, mebibytes << 20));
        }
    }
    world.build()
}

#[test]
fn pods_that_use_processors_and_pods_that_use_memory_come_close_to_the_bound() {
    let world = batch(&[(1900, 800), (900, 500), (250, 3500), (500, 7000), (900, 14_000)], 60);
    let excess = excess(&world);
    assert!(excess < 0.05, "{excess}");
}

#[test]
fn pods_of_just_over_a_half_and_a_third_come_close_to_the_bound() {
    let world = batch(&[(1040, 4160), (700, 2800), (2080, 8320), (1400, 5600)], 60);
    let excess = excess(&world);
    assert!(excess < 0.06, "{excess}");
}

/// Pods that wait and the price, when machines are filled as Karpenter fills them.
fn karpenters_way(snapshot: &Snapshot, policy: &Policy) -> (usize, i64) {
    let problem = Problem::new(snapshot, policy);
    let mut solver = Solver::new(&problem);
    let (mut demands, _) = demands(&problem, |_| true);
    pack(&mut solver, &mut demands, Way::Fill, &|_| true, &());
    let price = solver.claims.iter().map(|claim| solver.price(claim) + policy.node_price.0);
    (demands.iter().map(Demand::left).sum(), price.sum())
}

proptest! {

    #[test]
    fn a_plan_lies_between_the_bound_and_karpenters_way(
        requests in prop::collection::vec((50..8000_i64, 64..30_000_i64), 1..10),
        copies in 1..30_usize,
    ) {
        let (snapshot, policy) = (batch(&requests, copies), Policy::default());
        let plan = provision(&snapshot, &policy, now(), 1, &());
        let nodes = i64::try_from(plan.launches.len()).expect("few");
        let price: i64 = plan.launches.iter().map(|launch| launch.price.0).sum();
        let waiting = plan.report.pods.len();
        prop_assert!((waiting, price + nodes * policy.node_price.0) <= karpenters_way(&snapshot, &policy));
        let bound = lower_bound(&snapshot, &policy).price;
        prop_assert!(bound.0 <= price);
        let hasty = lower_bound_within(&snapshot, &policy, 5_000_000);
        prop_assert!(hasty.is_none_or(|hasty| hasty.price.0 <= price));
        prop_assert_eq!(lower_bound_within(&snapshot, &policy, 1), None, "one look is no round");
        prop_assert_eq!(lower_bound_within(&snapshot, &policy, u64::MAX).map(|it| it.price), Some(bound));
    }
}
