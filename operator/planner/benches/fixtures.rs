//! What is measured on: catalogs, clusters and batches of pods, the same in every run.

#![allow(
    dead_code,
    unreachable_pub,
    clippy::allow_attributes,
    reason = "every benchmark uses a part of it"
)]

use tenon_planner::snapshot::{
    CapacityType, Catalog, InstanceType, NodeClassRef, NodePool, Offering, Operator, Placement,
    PodShape, Requirement,
};
use tenon_planner::testing::mixes::{Draw, HOSTNAME, ZONE, fake_types, shape, spread, term};
use tenon_planner::testing::{Builder, apply, instance_type, node_pool, usd};
use tenon_planner::{Plan, Policy, Snapshot, provision};

/// Name, architecture, cores, memory in MiB and price of Linux instance types of one region.
const AWS_TYPES: &str = include_str!("fixtures/aws-types.csv");

/// A pool without requirements.
pub fn pool() -> NodePool {
    let mut pool = node_pool("default");
    pool.limits = [("cpu".to_owned(), 10_000_000_000), ("memory".to_owned(), i64::MAX)].into();
    pool.disruption.consolidate_after = None;
    pool.disruption.budgets.clear();
    pool
}

/// An empty cluster with one pool that may launch all types.
pub fn cluster(instance_types: Vec<InstanceType>, pool: NodePool) -> Builder {
    Builder::new(Catalog { node_class: NodeClassRef::default(), instance_types }).pool(pool)
}

/// Types of EC2 in four zones, spot at 0.7 of the list price.
pub fn aws_types(wanted: impl Fn(&str) -> bool) -> Vec<InstanceType> {
    let rows = AWS_TYPES.lines().filter(|line| !line.starts_with('#'));
    let kinds = rows.filter_map(|line| {
        let fields: Vec<&str> = line.split(',').collect();
        let number = |at: usize| fields[at].parse::<i32>().expect("a number");
        let (name, cores, memory) = (fields[0], number(2), number(3));
        if !wanted(name) {
            return None;
        }
        let price = f64::from(number(4)) / 1e6;
        let mut offerings = Vec::new();
        for zone in ["us-west-2a", "us-west-2b", "us-west-2c", "us-west-2d"] {
            for (capacity_type, share) in [(CapacityType::Spot, 0.7), (CapacityType::OnDemand, 1.0)]
            {
                offerings.push(Offering {
                    zone: zone.to_owned(),
                    capacity_type,
                    requirements: Vec::new(),
                    price: usd(price * share),
                    available: true,
                    reservation_capacity: None,
                    unpriced: None,
                });
            }
        }
        let pods = i64::from((16 * cores).min(1024));
        let mut kind =
            instance_type(name, i64::from(cores) * 1000, i64::from(memory) << 20, pods, offerings);
        let arch = kind.requirements.iter_mut().find(|need| need.key == "kubernetes.io/arch");
        arch.expect("every type has one").values = vec![fields[1].to_owned()];
        Some(kind)
    });
    kinds.collect()
}

/// Families c, m and r of generation 5 and later, which most pools allow.
pub fn is_common(name: &str) -> bool {
    let family = name.split('.').next().unwrap_or_default();
    let generation = family.chars().nth(1).and_then(|digit| digit.to_digit(10));
    family.starts_with(['c', 'm', 'r'])
        && generation.is_some_and(|n| n >= 5)
        && !name.contains("metal")
}

/// Only on-demand, so that there is one price.
pub fn on_demand() -> NodePool {
    let mut pool = pool();
    pool.limits.clear();
    pool.template.requirements.push(Requirement {
        key: "karpenter.sh/capacity-type".to_owned(),
        operator: Operator::In,
        values: vec!["on-demand".to_owned()],
        min_values: None,
    });
    pool
}

/// Equal pods that prefer a zone and to keep apart from each other.
pub fn preferring(mut world: Builder, n: usize) -> Snapshot {
    let mut shape = shape(500, 512);
    shape.labels.insert("app".to_owned(), "nginx".to_owned());
    shape.preferred_affinity.push((
        1,
        vec![Requirement {
            key: ZONE.to_owned(),
            operator: Operator::In,
            values: vec!["test-zone-1".to_owned()],
            min_values: None,
        }],
    ));
    shape.pod_affinity.push(term(true, Some(10), ZONE, "app", "nginx"));
    shape.pod_affinity.push(term(true, Some(1), HOSTNAME, "app", "nginx"));
    for index in 0..n {
        world = world.pending(&format!("pod-{index:06}"), shape.clone());
    }
    world.build()
}

/// Pods of 50 shapes.
pub fn batch(mut world: Builder, n: usize) -> Snapshot {
    let mut draw = Draw(7);
    let shapes: Vec<_> = (0..50)
        .map(|_| {
            let cpu = *draw.from(&[100, 250, 400, 700, 1000, 1500, 2200, 3900]);
            shape(cpu, *draw.from(&[256, 512, 1500, 3000, 7000, 15_000]))
        })
        .collect();
    for index in 0..n {
        world = world.pending(&format!("pod-{index:06}"), draw.from(&shapes).clone());
    }
    world.build()
}

/// About 10,000 machines that are full of 100,000 pods, and 100 pods that need a place.
pub fn full() -> Snapshot {
    let small = fake_types(40).into_iter().map(|mut kind| {
        kind.capacity.pods = 10;
        kind
    });
    let before = batch(cluster(small.collect(), pool()), 100_000);
    let plan = provision(&before, &Policy::default(), jiff::Timestamp::UNIX_EPOCH, 1, &());
    let mut after = apply(&before, &plan);
    for index in (0..after.pods.len()).step_by(1_000) {
        after.pods[index].placement = Placement::Unschedulable;
    }
    after
}

/// The shapes of services whose requests are log-normal.
#[expect(clippy::cast_possible_truncation, reason = "requests are small")]
fn service_shapes(n: usize) -> Vec<PodShape> {
    let mut draw = Draw(11);
    let mut normal = || (0..12).map(|_| draw.share()).sum::<f64>() - 6.0;
    (0..n)
        .map(|_| {
            let cpu = (300.0 * (0.9 * normal()).exp()) as i64 / 10 * 10 + 10;
            let memory = (700.0 * normal().exp()) as i64 / 16 * 16 + 16;
            shape(cpu.min(16_000), memory.min(60_000))
        })
        .collect()
}

/// 150 services with log-normal requests and replicas.
pub fn services(world: Builder, n: usize) -> Snapshot {
    log_normal(world, n, 150)
}

/// Services with log-normal requests.
pub fn log_normal(world: Builder, n: usize, shapes: usize) -> Snapshot {
    drawn(world, n, &service_shapes(shapes), 12)
}

/// The same services, each spread over the zones; of every third one no two pods share a host.
pub fn constrained_services(world: Builder, n: usize) -> Snapshot {
    with_services(world, n, 150, 0)
}

/// The same with another number of services.
pub fn with_services(world: Builder, n: usize, services: usize, draw: u64) -> Snapshot {
    let mut shapes = service_shapes(services);
    for (number, shape) in shapes.iter_mut().enumerate() {
        let name = format!("service-{number:03}");
        shape.labels.insert("my-label".to_owned(), name.clone());
        shape.topology_spread.push(spread(ZONE, &name));
        if number % 3 == 0 {
            shape.pod_affinity.push(term(true, None, HOSTNAME, "my-label", &name));
        }
    }
    drawn(world, n, &shapes, 12 + draw)
}

/// Pods of shapes that are drawn with equal chances, from a seed.
fn drawn(mut world: Builder, n: usize, shapes: &[PodShape], seed: u64) -> Snapshot {
    let mut draw = Draw(seed);
    for index in 0..n {
        world = world.pending(&format!("pod-{index:06}"), draw.from(shapes).clone());
    }
    world.build()
}

/// Requests just over a half and a third of the usual machines.
pub fn awkward(mut world: Builder, n: usize) -> Snapshot {
    let shapes: Vec<_> = [2, 4, 8, 16]
        .iter()
        .flat_map(|cores: &i64| [(cores * 520, cores * 2080), (cores * 350, cores * 1400)])
        .map(|(cpu, memory)| shape(cpu, memory))
        .collect();
    let mut draw = Draw(13);
    for index in 0..n {
        world = world.pending(&format!("pod-{index:06}"), draw.from(&shapes).clone());
    }
    world.build()
}

/// Pods that use processors and pods that use memory.
pub fn lopsided(mut world: Builder, n: usize) -> Snapshot {
    let shapes: Vec<_> =
        [(1900, 800), (900, 500), (3500, 2000), (250, 3500), (500, 7000), (900, 14_000)]
            .map(|(cpu, memory)| shape(cpu, memory))
            .into();
    let mut draw = Draw(14);
    for index in 0..n {
        world = world.pending(&format!("pod-{index:06}"), draw.from(&shapes).clone());
    }
    world.build()
}

/// Two opposite kinds of pods, a dozen shapes: six for processors, six for memory.
pub fn opposite(mut world: Builder, n: usize, seed: u64) -> Snapshot {
    let mut draw = Draw(seed * 1_000 + 15);
    let shapes: Vec<_> = (0..12)
        .map(|number| {
            let cores = *draw.from(&[500, 900, 1_300, 1_900, 2_700, 3_600]);
            let gibibytes = *draw.from(&[3, 5, 7, 11, 14, 19]);
            match number % 2 {
                0 => shape(cores, cores / 4 + i64::from(draw.number() % 300)),
                _ => shape(cores / 10 + 20, gibibytes * 1_000),
            }
        })
        .collect();
    for index in 0..n {
        world = world.pending(&format!("pod-{index:06}"), draw.from(&shapes).clone());
    }
    world.build()
}

/// Spot prices that differ between types and zones: 25 to 75 % of the list price.
pub fn spot_prices(mut types: Vec<InstanceType>, seed: u64) -> Vec<InstanceType> {
    let mut draw = Draw(seed);
    for kind in &mut types {
        let share = 0.25 + 0.4 * draw.share();
        let listed: Vec<f64> = kind.offerings.iter().map(|offer| offer.price.as_usd()).collect();
        let list = listed.into_iter().fold(0.0, f64::max);
        for offer in &mut kind.offerings {
            let here = share + 0.1 * draw.share();
            if offer.capacity_type == CapacityType::Spot {
                offer.price = usd(list * here);
            }
        }
    }
    types
}

/// A checksum of a plan as JSON: two builds that make the same plan have the same.
pub fn checksum(plan: &Plan) -> u64 {
    let json = serde_json::to_vec(plan).expect("a plan is written as JSON");
    // FNV-1a.
    json.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}
