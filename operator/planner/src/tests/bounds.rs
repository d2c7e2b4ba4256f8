//! The bound with rules and whole pods against other ways to find what pods cost at least.

use k8s_openapi::api::core::v1::Taint;
use microlp::{ComparisonOp, OptimizationDirection, Problem, SolveOutcome, Variable};
use proptest::prelude::*;

use super::fixtures::pool;
use crate::lower_bound;
use crate::policy::Policy;
use crate::resources::Resources;
use crate::snapshot::{
    CapacityType, Catalog, InstanceType, Node, NodeClassRef, NodePhase, Offering, PodShape,
    Snapshot,
};
use crate::testing::mixes::{Draw, HOSTNAME, ZONE, shape, spread, term};
use crate::testing::{Builder, instance_type, usd};

const ZONES: [&str; 3] = ["a", "b", "c"];

/// A type in some zones: cores, memory in GiB, and the price in each.
#[derive(Clone, Debug)]
struct Sold {
    cores: i64,
    memory: i64,
    prices: [Option<f64>; 3],
}

impl Sold {
    /// What a machine has for pods.
    fn room(&self) -> [i64; 2] {
        [self.cores * 1000 - 100, (self.memory << 30) - (10 << 20)]
    }
}

/// Pods that are alike: how many wait and how many run in each zone, what one requests, and the
/// skew of their spread constraint if they have one; whether no two of them may share a host.
#[derive(Clone, Debug)]
struct Service {
    pods: i64,
    running: [i64; 3],
    requests: [i64; 2],
    max_skew: Option<i64>,
    min_domains: Option<i32>,
    alone: bool,
}

fn sold() -> impl Strategy<Value = Sold> {
    let dear = prop::array::uniform3(prop::option::weighted(0.85, 60..140_u32));
    (1..32_i64, 1..5_i64, dear).prop_map(|(cores, ratio, dear)| {
        let list = f64::from(i32::try_from(cores * (3 + ratio)).expect("few")) / 100.0;
        let price = |dear: u32| (list * f64::from(dear) * 1e4).round() / 1e6;
        Sold { cores, memory: cores * ratio * 2, prices: dear.map(|dear| dear.map(price)) }
    })
}

fn service(most: i64) -> impl Strategy<Value = Service> {
    let requests = (100..900_i64, 100..3_000_i64);
    (1..=most, prop::array::uniform3(0..2_i64), requests, prop::option::weighted(0.8, 1..4_i64))
        .prop_map(|(pods, running, (cpu, mebibytes), max_skew)| Service {
            pods,
            running,
            requests: [cpu, mebibytes << 20],
            max_skew,
            min_domains: None,
            alone: false,
        })
}

/// A few pods each, of which some keep off each other's hosts.
fn few() -> impl Strategy<Value = Service> {
    (service(3), prop::option::of(1..6_i32), any::<bool>())
        .prop_map(|(service, min_domains, alone)| Service { min_domains, alone, ..service })
}

/// A type that holds everything in every zone, so that all pods have a place.
fn large() -> Sold {
    Sold { cores: 48, memory: 192, prices: [Some(3.0), Some(3.3), Some(2.9)] }
}

fn snapshot(types: &[Sold], services: &[Service]) -> Snapshot {
    let mut kinds: Vec<InstanceType> = Vec::new();
    for (number, sold) in types.iter().enumerate() {
        let offered = ZONES.iter().zip(sold.prices);
        let offerings = offered.filter_map(|(zone, price)| {
            Some(Offering {
                zone: (*zone).to_owned(),
                capacity_type: CapacityType::OnDemand,
                requirements: Vec::new(),
                price: usd(price?),
                available: true,
                reservation_capacity: None,
                unpriced: None,
            })
        });
        let (name, memory) = (format!("type-{number}"), sold.memory << 30);
        kinds.push(instance_type(&name, sold.cores * 1000, memory, 1000, offerings.collect()));
    }
    let catalog = Catalog { node_class: NodeClassRef::default(), instance_types: kinds };
    let mut world = Builder::new(catalog).pool(pool("default"));
    for zone in ZONES {
        let name = Some(zone.to_owned());
        let mut full = Node { key: zone.to_owned(), name, ..Node::default() };
        full.labels.insert(ZONE.to_owned(), zone.to_owned());
        full.labels.insert("kubernetes.io/hostname".to_owned(), zone.to_owned());
        (full.ready, full.phase) = (true, NodePhase::Initialized);
        world = world.node(full);
    }
    for (number, service) in services.iter().enumerate() {
        let name = format!("service-{number}");
        let mut pod: PodShape = shape(service.requests[0], service.requests[1] >> 20);
        pod.labels.insert("my-label".to_owned(), name.clone());
        if let Some(max_skew) = service.max_skew {
            let mut rule = spread(ZONE, &name);
            rule.max_skew = i32::try_from(max_skew).expect("few");
            rule.min_domains = service.min_domains;
            pod.topology_spread.push(rule);
        }
        if service.alone {
            pod.pod_affinity.push(term(true, None, HOSTNAME, "my-label", &name));
        }
        for copy in 0..service.pods {
            world = world.pending(&format!("{name}-{copy}"), pod.clone());
        }
        for (zone, &running) in ZONES.iter().zip(&service.running) {
            for copy in 0..running {
                world = world.pod(&format!("{name}-{zone}-{copy}"), pod.clone(), Some(zone));
            }
        }
    }
    world.build()
}

/// What pieces of pods cost at least on parts of machines: pieces by type and zone, with a row for
/// each pair of zones that keeps to the skew.
fn by_another_solver(types: &[Sold], services: &[Service]) -> f64 {
    let mut problem = Problem::new(OptimizationDirection::Minimize);
    let mut rows: Vec<[Vec<(Variable, f64)>; 2]> = Vec::new();
    let mut places: Vec<(usize, usize)> = Vec::new();
    for (kind, sold) in types.iter().enumerate() {
        for (zone, price) in sold.prices.iter().enumerate() {
            let Some(price) = *price else { continue };
            let bought = problem.add_var(price, (0.0, f64::INFINITY));
            rows.push(sold.room().map(|room| vec![(bought, -float(room))]));
            places.push((kind, zone));
        }
    }
    for service in services {
        let most = i32::try_from(service.pods).expect("few");
        let in_zone = ZONES.map(|_| problem.add_var(0.0, (0.0, f64::from(most))));
        let all: Vec<_> = in_zone.iter().map(|&pods| (pods, 1.0)).collect();
        problem.add_constraint(all, ComparisonOp::Eq, float(service.pods));
        let mut pieces: [Vec<(Variable, f64)>; 3] = in_zone.map(|pods| vec![(pods, -1.0)]);
        for (row, &(kind, zone)) in rows.iter_mut().zip(&places) {
            if service.requests.iter().zip(types[kind].room()).any(|(&want, have)| want > have) {
                continue;
            }
            let piece = problem.add_var(0.0, (0.0, f64::INFINITY));
            pieces[zone].push((piece, 1.0));
            for (row, &amount) in row.iter_mut().zip(&service.requests) {
                row.push((piece, float(amount)));
            }
        }
        for pieces in pieces {
            problem.add_constraint(pieces, ComparisonOp::Eq, 0.0);
        }
        keep_even(&mut problem, service, in_zone);
    }
    for row in rows.into_iter().flatten() {
        problem.add_constraint(row, ComparisonOp::Le, 0.0);
    }
    solved(&problem)
}

/// A row for each pair of zones that keeps to a service's skew.
fn keep_even(problem: &mut Problem, service: &Service, in_zone: [Variable; 3]) {
    let Some(max_skew) = service.max_skew else { return };
    for full in 0..ZONES.len() {
        for empty in (0..ZONES.len()).filter(|&empty| empty != full) {
            let there = service.running[full] - service.running[empty];
            let difference = [(in_zone[full], 1.0), (in_zone[empty], -1.0)];
            problem.add_constraint(difference, ComparisonOp::Le, float(max_skew - there));
        }
    }
}

fn solved(problem: &Problem) -> f64 {
    match problem.solve().expect("one type holds everything") {
        SolveOutcome::Solution(solution) => solution.objective(),
        SolveOutcome::Interrupted(_) => unreachable!("there is no limit"),
    }
}

/// What whole pods cost at least on parts of machines: how often each load is bought that a type
/// holds, and whole numbers of pods in each zone.
fn by_loads(types: &[Sold], services: &[Service]) -> f64 {
    let mut problem = Problem::new(OptimizationDirection::Minimize);
    let mut held: Vec<[Vec<(Variable, f64)>; 3]> = vec![<[_; 3]>::default(); services.len()];
    let loads = loads(services);
    for sold in types {
        for (zone, price) in sold.prices.iter().enumerate() {
            let Some(price) = *price else { continue };
            for load in &loads {
                let used = |at: usize| -> i64 {
                    services.iter().zip(load).map(|(it, pods)| it.requests[at] * pods).sum()
                };
                if [0, 1].iter().any(|&at| used(at) > sold.room()[at]) {
                    continue;
                }
                let bought = problem.add_var(price, (0.0, f64::INFINITY));
                for (held, &pods) in held.iter_mut().zip(load) {
                    held[zone].push((bought, float(pods)));
                }
            }
        }
    }
    for (service, held) in services.iter().zip(held) {
        let most = i32::try_from(service.pods).expect("few");
        let in_zone = ZONES.map(|_| problem.add_integer_var(0.0, (0, most)));
        let all: Vec<_> = in_zone.iter().map(|&pods| (pods, 1.0)).collect();
        problem.add_constraint(all, ComparisonOp::Eq, float(service.pods));
        for (mut held, &pods) in held.into_iter().zip(&in_zone) {
            held.push((pods, -1.0));
            problem.add_constraint(held, ComparisonOp::Ge, 0.0);
        }
        keep_even(&mut problem, service, in_zone);
    }
    solved(&problem)
}

/// All that may share a machine, as far as rules about hosts are concerned: numbers of pods by
/// service.
fn loads(services: &[Service]) -> Vec<Vec<i64>> {
    services.iter().fold(vec![Vec::new()], |loads, service| {
        let most = if service.alone { 1 } else { service.pods };
        let more = |load: Vec<i64>| (0..=most).map(move |pods| [&load[..], &[pods]].concat());
        loads.into_iter().flat_map(more).collect()
    })
}

#[expect(clippy::cast_precision_loss, reason = "small amounts")]
fn float(amount: i64) -> f64 {
    amount as f64
}

/// What whole pods cost at least on whole machines, by trying everything.
struct Exhaustive<'t> {
    types: &'t [Sold],
    services: &'t [Service],
    /// The machines so far: zone, what their pods request, and the service that came last.
    machines: Vec<(usize, [i64; 2], usize)>,
    /// By service and zone: pods that are new there.
    placed: Vec<[i64; 3]>,
    best: f64,
}

impl Exhaustive<'_> {
    fn cheapest(types: &[Sold], services: &[Service]) -> f64 {
        let placed = vec![[0; 3]; services.len()];
        let mut search =
            Exhaustive { types, services, machines: Vec::new(), placed, best: f64::INFINITY };
        search.place(0, 0);
        search.best
    }

    fn place(&mut self, service: usize, copy: i64) {
        let Some(next) = self.services.get(service) else {
            if (0..self.services.len()).all(|service| self.is_in_order(service)) {
                let price: Option<f64> =
                    self.machines.iter().map(|&(zone, used, _)| self.price(zone, used)).sum();
                self.best = self.best.min(price.unwrap_or(f64::INFINITY));
            }
            return;
        };
        if copy == next.pods {
            return self.place(service + 1, 0);
        }
        let requests = next.requests;
        for machine in 0..self.machines.len() + ZONES.len() {
            let opens = machine >= self.machines.len();
            let before = self.machines.clone();
            if opens {
                self.machines.push((machine - before.len(), [0, 0], usize::MAX));
            }
            let at = machine.min(before.len());
            let (zone, used, last) = &mut self.machines[at];
            let zone = *zone;
            if next.alone && *last == service {
                continue;
            }
            *last = service;
            used.iter_mut().zip(requests).for_each(|(used, more)| *used += more);
            self.placed[service][zone] += 1;
            if self.price(zone, self.machines[at].1).is_some() {
                self.place(service, copy + 1);
            }
            self.placed[service][zone] -= 1;
            self.machines = before;
        }
    }

    fn price(&self, zone: usize, used: [i64; 2]) -> Option<f64> {
        let holds = |sold: &&Sold| used.iter().zip(sold.room()).all(|(&used, room)| used <= room);
        let prices = self.types.iter().filter(holds).filter_map(|sold| sold.prices[zone]);
        prices.min_by(f64::total_cmp)
    }

    /// Whether a service's pods can come to their zones one after the other, each of them within
    /// the skew when it comes.
    fn is_in_order(&self, service: usize) -> bool {
        let Service { running, max_skew: Some(max_skew), min_domains, .. } = self.services[service]
        else {
            return true;
        };
        let (mut there, mut left) = (running, self.placed[service]);
        while left.iter().any(|&pods| pods > 0) {
            let short = min_domains.is_some_and(|least| least > 3);
            let least = if short { 0 } else { there.into_iter().min().unwrap_or(0) };
            // The emptiest first: that opens the others.
            let open = |&zone: &usize| left[zone] > 0 && there[zone] + 1 - least <= max_skew;
            let Some(zone) = (0..3).filter(open).min_by_key(|&zone| there[zone]) else {
                return false;
            };
            there[zone] += 1;
            left[zone] -= 1;
        }
        true
    }
}

fn bound(types: &[Sold], services: &[Service]) -> f64 {
    lower_bound(&snapshot(types, services), &Policy::default()).price.as_usd()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn pieces_of_pods_in_zones_cost_no_more_than_the_bound(
        types in prop::collection::vec(sold(), 1..6),
        services in prop::collection::vec(service(12), 1..6),
    ) {
        let types = [types, vec![large()]].concat();
        let ours = bound(&types, &services);
        let pieces = by_another_solver(&types, &services);
        prop_assert!(ours >= pieces * 0.995, "{ours} instead of {pieces}");
    }

    #[test]
    fn whole_pods_cost_no_less_than_the_bound_on_parts_of_machines(
        types in prop::collection::vec(sold(), 1..5),
        services in prop::collection::vec(few(), 1..4),
    ) {
        let types = [types, vec![large()]].concat();
        let services: Vec<Service> =
            services.into_iter().map(|it| Service { min_domains: None, ..it }).collect();
        let (ours, whole) = (bound(&types, &services), by_loads(&types, &services));
        prop_assert!(ours <= whole * (1.0 + 1e-6), "{ours} is no bound of {whole}");
    }

    #[test]
    fn no_way_to_buy_whole_machines_is_cheaper_than_the_bound(
        types in prop::collection::vec(sold(), 1..3),
        services in prop::collection::vec(few(), 1..3),
    ) {
        let types = [types, vec![large()]].concat();
        let all = Exhaustive::cheapest(&types, &services);
        let ours = bound(&types, &services);
        prop_assert!(ours <= all * (1.0 + 1e-6), "{ours} is no bound of {all}");
    }
}

#[test]
fn pods_that_are_spread_pay_for_dear_zones() {
    let types = [Sold { cores: 8, memory: 32, prices: [Some(1.0), Some(2.0), Some(4.0)] }];
    let with = |max_skew, running| {
        let requests = [790, 1 << 30];
        let one =
            Service { pods: 30, running, requests, max_skew, min_domains: None, alone: false };
        bound(&types, &[one])
    };
    // Ten of them fill a machine.
    assert!((with(None, [0; 3]) - 3.0).abs() < 0.01, "{}", with(None, [0; 3]));
    assert!((with(Some(1), [0; 3]) - 7.0).abs() < 0.02, "{}", with(Some(1), [0; 3]));
    // 11, 10 and 9.
    assert!((with(Some(2), [0; 3]) - 6.7).abs() < 0.02, "{}", with(Some(2), [0; 3]));
    // 12, 12 and 6.
    assert!((with(Some(6), [0; 3]) - 6.0).abs() < 0.02, "{}", with(Some(6), [0; 3]));
    // The dear zones have three already, so that 12, 9 and 9 come.
    assert!((with(Some(1), [0, 3, 3]) - 6.6).abs() < 0.02, "{}", with(Some(1), [0, 3, 3]));
}

#[test]
fn pods_that_leave_room_for_nothing_pay_for_the_whole_machine() {
    let types = [Sold { cores: 2, memory: 8, prices: [Some(1.0), None, None] }];
    let of = |services: &[(i64, i64)]| {
        let service = |&(pods, cpu): &(i64, i64)| {
            let requests = [cpu, 100 << 20];
            Service {
                pods,
                running: [0; 3],
                requests,
                max_skew: None,
                min_domains: None,
                alone: false,
            }
        };
        bound(&types, &services.iter().map(service).collect::<Vec<_>>())
    };
    // A machine has 1.9 processors for pods.
    assert!((of(&[(10, 960)]) - 10.0).abs() < 0.02, "{}", of(&[(10, 960)]));
    assert!((of(&[(10, 640)]) - 5.0).abs() < 0.02, "{}", of(&[(10, 640)]));
    assert!((of(&[(10, 630)]) - 10.0 / 3.0).abs() < 0.02, "{}", of(&[(10, 630)]));
    // With each of the large pods goes one of the small ones.
    let both = of(&[(10, 960), (20, 640)]);
    assert!((both - 15.0).abs() < 0.1, "{both}");
}

#[test]
fn many_spread_services_are_bounded_within_a_percent_of_another_solver() {
    let mut draw = Draw(17);
    let types: Vec<Sold> = (0..12_i64)
        .map(|number| {
            let (cores, ratio) = (2_i64 << (number % 4), 2 + number % 3 * 3);
            let list = float(cores) * (0.03 + 0.005 * float(ratio));
            let prices = [0; 3].map(|_| Some(list * (0.3 + 0.7 * draw.share())));
            Sold { cores, memory: cores * ratio, prices }
        })
        .collect();
    let services: Vec<Service> = (0..40)
        .map(|_| Service {
            pods: 1 + i64::from(draw.number() % 12),
            running: [0; 3],
            requests: [
                50 + i64::from(draw.number() % 1500),
                (100 + i64::from(draw.number() % 6000)) << 20,
            ],
            max_skew: Some(1 + i64::from(draw.number() % 3)),
            min_domains: None,
            alone: false,
        })
        .collect();
    let ours = bound(&types, &services);
    let pieces = by_another_solver(&types, &services);
    assert!(ours >= pieces * 0.995, "{ours} instead of {pieces}");
}

#[test]
fn machines_count_only_for_pods_that_they_take() {
    let offered = |zone: &str| Offering {
        zone: zone.to_owned(),
        capacity_type: CapacityType::OnDemand,
        requirements: Vec::new(),
        price: usd(1.0),
        available: true,
        reservation_capacity: None,
        unpriced: None,
    };
    let kind = instance_type("type", 8000, 32 << 30, 1000, vec![offered("a")]);
    let catalog = Catalog { node_class: NodeClassRef::default(), instance_types: vec![kind] };
    // Two NodePools whose nodes no pod of the other one can use.
    let label = |pool: &str| ("team".to_owned(), pool.to_owned());
    let with = |nodes: &[Node]| {
        let mut world = Builder::new(catalog.clone());
        for team in ["red", "blue"] {
            let mut pool = pool(team);
            pool.template.labels.extend([label(team)]);
            world = world.pool(pool);
            let mut pod = shape(790, 1 << 10);
            pod.node_selector.extend([label(team)]);
            for copy in 0..20 {
                world = world.pending(&format!("{team}-{copy}"), pod.clone());
            }
        }
        let world = nodes.iter().cloned().fold(world, Builder::node);
        lower_bound(&world.build(), &Policy::default()).price.as_usd()
    };
    let node = |team: Option<&str>, taints: &[&str]| {
        let taint = |key: &&str| Taint {
            key: (*key).to_owned(),
            value: None,
            effect: "NoSchedule".to_owned(),
            time_added: None,
        };
        let room = Resources { cpu: 3950, memory: 16 << 30, pods: 58, ..Resources::default() };
        let mut node = Node {
            key: "one".to_owned(),
            name: Some("one".to_owned()),
            taints: taints.iter().map(taint).collect(),
            capacity: room.clone(),
            allocatable: room,
            ready: true,
            phase: NodePhase::Initialized,
            ..Node::default()
        };
        node.labels.insert(ZONE.to_owned(), "a".to_owned());
        node.labels.extend(team.map(label));
        node
    };
    // Ten of them fill a machine.
    let alone = with(&[]);
    assert!((alone - 4.0).abs() < 0.01, "{alone}");
    for closed in [node(None, &[]), node(Some("red"), &["closed"]), node(Some("green"), &[])] {
        let there = with(&[closed]);
        assert!((there - alone).abs() < 1e-6, "{there}");
    }
    // Half as large as those that are for sale.
    let open = with(&[node(Some("red"), &[])]);
    assert!((open - 3.5).abs() < 0.01, "{open}");
}
