//! What plans cost, against the lower bound and against Karpenter's own way.

use proptest::prelude::*;

use super::behaviour::{HOSTNAME, ZONE, app, near, spread};
use super::fixtures::*;
use crate::compile::Problem;
use crate::demands::Demand;
use crate::demands::demands;
use crate::pack::{Strategy as Way, pack};
use crate::plan::{Launch, Plan};
use crate::policy::Policy;
use crate::resources::MicroUsd;
use crate::snapshot::{
    CapacityType, Catalog, InstanceType, NodeClassRef, Offering, Operator, PodShape, Snapshot,
};
use crate::solver::Solver;
use crate::testing::mixes::Draw;
use crate::testing::{Builder, instance_type, usd};
use crate::{lower_bound, lower_bound_within, provision};

const INSTANCE_TYPE: &str = "node.kubernetes.io/instance-type";

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
    assert!(excess < 0.03, "{excess}");
}

#[test]
fn pods_of_just_over_a_half_and_a_third_come_close_to_the_bound() {
    let world = batch(&[(1040, 4160), (700, 2800), (2080, 8320), (1400, 5600)], 60);
    let excess = excess(&world);
    assert!(excess < 0.03, "{excess}");
}

#[test]
fn pods_of_two_opposite_kinds_come_close_to_the_bound_whatever_they_are() {
    for seed in 1..9 {
        let mut draw = Draw(seed);
        let requests: Vec<(i64, i64)> = (0..12)
            .map(|number| match number % 2 {
                0 => (*draw.from(&[500, 900, 1_300, 1_900, 2_700]), *draw.from(&[200, 400, 600])),
                _ => {
                    (*draw.from(&[50, 100, 200, 400]), *draw.from(&[3_000, 5_000, 11_000, 14_000]))
                }
            })
            .collect();
        let excess = excess(&batch(&requests, 40));
        assert!(excess < 0.045, "{excess} of draw {seed}");
    }
}

#[test]
fn of_equally_heavy_pools_the_one_is_taken_in_which_pods_cost_least() {
    let plan = |weight: i32| {
        // Of equal names' order the later would come first.
        let (cheap, mut dear) = (on_demand("a-cheap"), on_demand("z-dear"));
        dear.weight = weight;
        dear.template.requirements.push(need(
            INSTANCE_TYPE,
            Operator::In,
            &["r.xlarge", "r.2xlarge"],
        ));
        let pod = shape(1_500, 2 * GI);
        plan(&builder().pool(cheap).pool(dear).pending("one", pod).build())
    };
    let (equal, heavier) = (plan(0), plan(1));
    assert_eq!(equal.launches[0].node_pool, "a-cheap");
    assert_eq!(equal.launches[0].price, usd(0.085));
    assert_eq!(heavier.launches[0].node_pool, "z-dear", "weights are absolute");
}

/// Types that cost a quarter in the last zone.
fn cheap_in_the_last_zone() -> Vec<InstanceType> {
    let mut kinds = kinds();
    for offer in kinds.iter_mut().flat_map(|kind| &mut kind.offerings) {
        if offer.zone == ZONES[2] {
            offer.price = MicroUsd(offer.price.0 / 4);
        }
    }
    kinds
}

#[test]
fn zones_are_chosen_by_price_where_rules_leave_a_choice() {
    let mut world = Builder::new(catalog(cheap_in_the_last_zone())).pool(on_demand("default"));
    for number in 0..5 {
        world = world.pending(&format!("web-{number}"), near(app("web", 300), ZONE, "web", false));
    }
    let near = plan(&world.build());
    let zones = |plan: &Plan| -> Vec<String> {
        let of = |launch: &Launch| {
            launch
                .requirements
                .iter()
                .find(|need| need.key == ZONE)
                .map(|need| need.values.concat())
        };
        plan.launches.iter().filter_map(of).collect()
    };
    assert_eq!(zones(&near), [ZONES[2]]);
    // One more than the zones: the cheapest gets it.
    let mut world = Builder::new(catalog(cheap_in_the_last_zone())).pool(on_demand("default"));
    for number in 0..4 {
        world = world.pending(&format!("web-{number}"), spread(app("web", 1_500), ZONE, 1));
    }
    let mut counts = zones(&plan(&world.build()));
    counts.sort_unstable();
    assert!(counts.iter().filter(|zone| **zone == ZONES[0]).count() == 1, "{counts:?}");
    assert!(counts.iter().filter(|zone| **zone == ZONES[1]).count() == 1, "{counts:?}");
}

#[test]
fn a_report_tells_what_each_launch_may_come_to_cost() {
    let pod = || shape(1_500, 2 * GI);
    let on_demand = plan(
        &Builder::new(catalog(cheap_in_the_last_zone()))
            .pool(on_demand("default"))
            .pending("one", pod())
            .build(),
    );
    let [range] = on_demand.report.prices[..] else { panic!("{:?}", on_demand.report.prices) };
    let cheapest = usd(0.085 / 4.0);
    assert_eq!(
        (range.cheapest, range.expected),
        (cheapest, cheapest),
        "a fleet takes the cheapest"
    );
    assert_eq!(range.dearest, usd(0.063 * 32.0), "the largest type in a dear zone");
    assert_eq!(on_demand.launches[0].price, range.cheapest);
    let spot = plan(&builder().pool(pool("default")).pending("one", pod()).build());
    let [range] = spot.report.prices[..] else { panic!("{:?}", spot.report.prices) };
    assert_eq!(range.cheapest, usd(0.085 * 0.4));
    // 2 to 32 cores of three families: 62 cores of each, over 15 types.
    let mean = (0.0425 + 0.048 + 0.063) * 62.0 / 15.0 * 0.4;
    assert!((range.expected.as_usd() - mean).abs() < 1e-5, "{range:?}");
    assert_eq!(range.dearest, usd(0.063 * 32.0 * 0.4));
}

#[derive(PartialEq)]
enum Rule {
    /// The pods of each service are spread over zones.
    ZoneSpread,
    /// Every third service has one pod per host.
    AntiAffinity,
}

/// Two dozen services of 15 pods each.
fn services(rules: &[Rule]) -> Snapshot {
    let mut world = builder().pool(on_demand("default"));
    for service in 0..24_i64 {
        let name = format!("service-{service:02}");
        let mut shape = app(&name, 150 + 130 * (service % 7));
        shape.requests.memory = (300 + 700 * (service % 5)) << 20;
        if rules.contains(&Rule::ZoneSpread) {
            shape = spread(shape, ZONE, 1);
        }
        if rules.contains(&Rule::AntiAffinity) && service % 3 == 0 {
            shape = near(shape, HOSTNAME, &name, true);
        }
        for copy in 0..15 {
            world = world.pending(&format!("{name}-{copy:02}"), shape.clone());
        }
    }
    world.build()
}

#[test]
fn rules_cost_little() {
    use Rule::{AntiAffinity, ZoneSpread};
    let all = [&[][..], &[ZoneSpread], &[AntiAffinity], &[ZoneSpread, AntiAffinity]];
    let costs = all.map(|rules| excess(&services(rules)));
    let allowed = [0.03, 0.04, 0.08, 0.1];
    assert!(costs.iter().zip(allowed).all(|(&cost, allowed)| cost < allowed), "{costs:?}");
}

#[test]
fn the_bound_counts_the_places_that_hosts_have_for_pods_that_keep_apart() {
    let with = |rule: &dyn Fn(PodShape) -> PodShape| {
        let mut world = builder().pool(on_demand("default"));
        for number in 0..20 {
            let mut shape = rule(app("db", 10));
            shape.requests.memory = 10 << 20;
            world = world.pending(&format!("db-{number:02}"), shape);
        }
        let snapshot = world.build();
        let plan = plan(&snapshot);
        let price: MicroUsd = plan.launches.iter().map(|launch| launch.price).sum();
        (lower_bound(&snapshot, &Policy::default()).price.as_usd(), price.as_usd())
    };
    // Twenty machines of the cheapest type.
    let (bound, price) = with(&|shape| near(shape, HOSTNAME, "db", true));
    assert!((price - 20.0 * 0.085).abs() < 1e-6, "{price}");
    assert!(bound <= price && bound > price * 0.99, "{bound} of {price}");
    let (bound, price) = with(&|shape| spread(shape, HOSTNAME, 2));
    assert!((price - 10.0 * 0.085).abs() < 1e-6, "{price}");
    assert!(bound <= price && bound > price * 0.99, "{bound} of {price}");
    let (bound, _) = with(&|shape| shape);
    assert!(bound < 0.02, "{bound}");
}

/// Prices per hour and numbers of machines under a policy.
fn bought(policy: &Policy) -> (f64, Vec<usize>) {
    // Four of these fill the smallest machine or, at the same price per core, a larger one.
    let mut world = builder().pool(on_demand("default")).daemon_set("agent", shape(50, GI / 8));
    for number in 0..50 {
        world = world.pending(&format!("web-{number:02}"), shape(440, GI / 2));
    }
    let plan = plan_with(&world.build(), policy);
    assert!(plan.report.pods.is_empty());
    let price = plan.launches.iter().map(|launch| launch.price.as_usd()).sum();
    (price, plan.launches.iter().map(|launch| launch.pods.len()).collect())
}

#[test]
fn a_price_per_node_and_hour_makes_for_fewer_nodes() {
    let with = |price: f64| bought(&Policy { node_price: usd(price), ..Policy::default() });
    let ((cheap, swarm), (dear, few)) = (with(0.0), with(1.0));
    assert!(few.len() <= swarm.len() && cheap <= dear, "{swarm:?} {few:?}");
    assert_eq!(few.len(), 1, "one machine holds them all");
}

#[test]
fn no_machine_gets_more_than_the_largest_share_of_the_pods() {
    let with = |largest_share| bought(&Policy { largest_share, ..Policy::default() }).1;
    assert!(with(100).into_iter().max() > Some(5));
    assert!(with(10).into_iter().all(|pods| pods <= 5), "a tenth of 50 pods");
    assert_eq!(with(0), [1; 50], "one pod is always planned for");
}

#[test]
fn machines_that_exist_are_filled_up_whatever_the_largest_share_is() {
    let mut world =
        builder().pool(on_demand("default")).node(node("a", "default", "m.large", "zone-a"));
    for name in ["one", "two", "three"] {
        world = world.pending(name, shape(100, GI / 8));
    }
    let policy = Policy { largest_share: 10, ..Policy::default() };
    assert_eq!(plan_with(&world.build(), &policy).nominations.len(), 3);
}

/// What 300 pods cost, and how many wait, where a NodePool may have so many cores: the larger a
/// type, the dearer are its cores, up to four times.
fn within(cores: Option<i64>, memory: i64) -> (usize, f64) {
    let types = [2, 4, 8, 16, 32, 64, 128, 256, 448, 896].map(|cores| {
        let size = f64::from(i32::try_from(cores).expect("few"));
        let price = usd(0.05 * size * (1.0 + size.log2() / 3.0));
        let offering = Offering {
            zone: "zone-a".to_owned(),
            capacity_type: CapacityType::OnDemand,
            requirements: Vec::new(),
            price,
            available: true,
            reservation_capacity: None,
            unpriced: None,
        };
        instance_type(
            &format!("type-{cores}"),
            cores * 1000,
            4 * cores * GI,
            8 * cores,
            vec![offering],
        )
    });
    let mut limited = on_demand("default");
    limited.limits.extend(cores.map(|cores| ("cpu".to_owned(), cores * 1000)));
    let catalog = Catalog { node_class: NodeClassRef::default(), instance_types: types.to_vec() };
    let mut world = Builder::new(catalog).pool(limited);
    for number in 0..300 {
        world = world.pending(&format!("pod-{number:03}"), shape(900, memory));
    }
    // What fits nowhere takes nothing of what there is for others.
    world = world.pending("huge", shape(10_000_000, GI));
    let snapshot = world.build();
    let plan = provision(&snapshot, &Policy::default(), now(), 1, &());
    assert_eq!(crate::check(&snapshot, &plan), []);
    (plan.report.pods.len() - 1, plan.launches.iter().map(|launch| launch.price.as_usd()).sum())
}

#[test]
fn a_limit_that_leaves_room_for_all_pods_makes_no_plan_dearer() {
    for memory in [GI, 3 * GI, 7 * GI] {
        let (waiting, free) = within(None, memory);
        assert_eq!(waiting, 0);
        for cores in [700, 1000, 2000, 10_000] {
            let (waiting, price) = within(Some(cores), memory);
            assert_eq!(waiting, 0, "{cores} cores, {memory} bytes");
            assert!(price < free * 1.03, "{cores} cores: {price} instead of {free}");
        }
    }
}

#[test]
fn a_pod_that_a_port_keeps_off_a_machine_leaves_it_the_cheap_zones() {
    let with_port = |cpu: i64| {
        let mut pod = shape(cpu, GI / 8);
        pod.host_ports.push(("TCP".to_owned(), String::new(), 8080));
        pod
    };
    let mut pinned = with_port(100);
    pinned.node_selector.insert(ZONE.to_owned(), ZONES[0].to_owned());
    let snapshot = Builder::new(catalog(cheap_in_the_last_zone()))
        .pool(on_demand("default"))
        .pending("anywhere", with_port(200))
        .pending("pinned", pinned)
        .build();
    let policy = Policy::default();
    let problem = Problem::new(&snapshot, &policy);
    let (mut demands, _) = demands(&problem, |_| true);
    let mut solver = Solver::new(&problem);
    pack(&mut solver, &mut demands, Way::Cheapest, &|_| true, &());
    let prices: Vec<i64> = solver.claims.iter().map(|claim| solver.price(claim)).collect();
    assert_eq!(prices.len(), 2);
    assert!(prices[0] * 3 < prices[1], "{prices:?}");
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
    fn no_plan_is_cheaper_than_the_bound_with_rules_about_hosts(
        services in prop::collection::vec((50..3000_i64, 64..9_000_i64, 1..15_usize, 0..5_u8), 1..7),
        nodes in 0..4_usize,
    ) {
        let mut world = builder().pool(on_demand("default"));
        for number in 0..nodes {
            world = world.node(node(&format!("n{number}"), "default", "m.xlarge", ZONES[number % 3]));
        }
        for (service, &(cpu, mebibytes, copies, rule)) in services.iter().enumerate() {
            // Some services share their name, and so their rules.
            let name = format!("service-{}", service / 2);
            let mut shape = app(&name, cpu);
            shape.requests.memory = mebibytes << 20;
            let shape = match rule {
                0 => shape,
                1 => near(shape, HOSTNAME, &name, true),
                2 => spread(shape, HOSTNAME, 1),
                3 => spread(near(shape, HOSTNAME, &name, true), ZONE, 1),
                _ => spread(shape, HOSTNAME, 3),
            };
            for copy in 0..copies {
                world = world.pending(&format!("pod-{service}-{copy:02}"), shape.clone());
            }
        }
        let snapshot = world.build();
        let policy = Policy::default();
        let plan = plan(&snapshot);
        prop_assert_eq!(&plan.report.pods, &vec![]);
        let price: i64 = plan.launches.iter().map(|launch| launch.price.0).sum();
        let bound = lower_bound(&snapshot, &policy).price;
        prop_assert!(bound.0 <= price, "{} > {price}", bound.0);
    }

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
