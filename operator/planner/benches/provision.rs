//! How long a plan takes: the diverse mix of Karpenter's own scheduling benchmark (a fifth each of plain pods, zonal spread, spread over hosts, zonal
//! affinity, and anti-affinity over hosts) against 400 types, and plain pods of 50 shapes.
//!
//! `cargo bench -p tenon-planner --features testing`

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use tenon_planner::resources::Resources;
use tenon_planner::snapshot::{
    CapacityType, Catalog, ConsolidationPolicy, DisruptionPolicy, InstanceType, NodeClassRef,
    NodePool, Offering, PodAffinityTerm, PodShape, Template, TopologySpread,
};
use tenon_planner::testing::{Builder, instance_type, usd};
use tenon_planner::{Policy, Snapshot, provision};

const ZONE: &str = "topology.kubernetes.io/zone";
const HOSTNAME: &str = "kubernetes.io/hostname";

/// A small generator with a fixed sequence, so that every run measures the same pods.
struct Draw(u64);

impl Draw {
    fn from<'t, T>(&mut self, list: &'t [T]) -> &'t T {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let index = usize::try_from(self.0 >> 33).expect("31 bits") % list.len();
        &list[index]
    }
}

fn kinds() -> Vec<InstanceType> {
    (1..=400)
        .map(|size: i32| {
            let cores = f64::from(size);
            let price = usd(0.1 * cores + 0.1 * 2.0 * cores * 1.073_741_824);
            let size = i64::from(size);
            let markets = [
                (CapacityType::Spot, "test-zone-1"),
                (CapacityType::Spot, "test-zone-2"),
                (CapacityType::OnDemand, "test-zone-1"),
                (CapacityType::OnDemand, "test-zone-2"),
                (CapacityType::OnDemand, "test-zone-3"),
            ];
            let offerings = markets.map(|(capacity_type, zone)| Offering {
                zone: zone.to_owned(),
                capacity_type,
                requirements: Vec::new(),
                price,
                available: true,
                reservation_capacity: None,
            });
            let name = format!("fake-it-{size:03}");
            instance_type(&name, size * 1000, 2 * size * (1 << 30), 10 * size, offerings.to_vec())
        })
        .collect()
}

fn pool() -> NodePool {
    NodePool {
        name: "default".to_owned(),
        uid: "uid".to_owned(),
        not_ready: None,
        weight: 0,
        replicas: None,
        catalog: None,
        template: Template::default(),
        limits: [("cpu".to_owned(), 10_000_000_000), ("memory".to_owned(), i64::MAX)].into(),
        disruption: DisruptionPolicy {
            consolidation_policy: ConsolidationPolicy::WhenEmptyOrUnderutilized,
            consolidate_after: None,
            budgets: Vec::new(),
        },
    }
}

fn builder() -> Builder {
    let catalog = Catalog { node_class: NodeClassRef::default(), instance_types: kinds() };
    Builder::new(catalog).pool(pool())
}

fn diverse(n: usize) -> Snapshot {
    let mut draw = Draw(42);
    let mut world = builder();
    let letters = ["a", "b", "c", "d", "e", "f", "g"];
    let select = |key: &str, value: &str| {
        Some(LabelSelector {
            match_labels: Some([(key.to_owned(), value.to_owned())].into()),
            ..LabelSelector::default()
        })
    };
    for index in 0..n {
        let cpu = *draw.from(&[100, 250, 500, 1000, 1500]);
        let memory = *draw.from(&[100, 256, 512, 1024, 2048, 4096]) << 20;
        let (label, other) = (*draw.from(&letters), *draw.from(&letters));
        let mut shape = PodShape {
            namespace: "default".to_owned(),
            requests: Resources { cpu, memory, pods: 1, ..Resources::default() },
            ..PodShape::default()
        };
        let kind = if n < 5 { 0 } else { index / (n / 5) };
        let spread = |key: &str| TopologySpread {
            topology_key: key.to_owned(),
            max_skew: 1,
            min_domains: None,
            required: true,
            selector: select("my-label", other),
            honor_affinity: true,
            honor_taints: false,
        };
        let term = |anti, key: &str, name: &str, value: &str| PodAffinityTerm {
            anti,
            weight: None,
            topology_key: key.to_owned(),
            selector: select(name, value),
            namespaces: Vec::new(),
            namespace_selector: None,
        };
        let name = match kind {
            3 => "my-affinity",
            4 => "app",
            _ => "my-label",
        };
        let value = if kind == 4 { "nginx" } else { label };
        shape.labels.insert(name.to_owned(), value.to_owned());
        match kind {
            1 => shape.topology_spread.push(spread(ZONE)),
            2 => shape.topology_spread.push(spread(HOSTNAME)),
            3 => shape.pod_affinity.push(term(false, ZONE, name, value)),
            4 => shape.pod_affinity.push(term(true, HOSTNAME, name, value)),
            _ => {}
        }
        world = world.pending(&format!("pod-{index:06}"), shape);
    }
    world.build()
}

fn plain(n: usize) -> Snapshot {
    let mut draw = Draw(7);
    let shapes: Vec<_> = (0..50)
        .map(|_| {
            (
                *draw.from(&[100, 250, 400, 700, 1000, 1500, 2200, 3900]),
                *draw.from(&[256, 512, 1500, 3000, 7000, 15_000]) << 20,
            )
        })
        .collect();
    let mut world = builder();
    for index in 0..n {
        let &(cpu, memory) = draw.from(&shapes);
        let shape = PodShape {
            namespace: "default".to_owned(),
            requests: Resources { cpu, memory, pods: 1, ..Resources::default() },
            ..PodShape::default()
        };
        world = world.pending(&format!("pod-{index:06}"), shape);
    }
    world.build()
}

#[expect(
    clippy::disallowed_macros,
    clippy::print_stdout,
    reason = "a benchmark says what it measured"
)]
fn benchmark(criterion: &mut Criterion) {
    for (name, make) in [("diverse", diverse as fn(usize) -> Snapshot), ("plain", plain)] {
        let mut group = criterion.benchmark_group(name);
        group.sample_size(10);
        for n in [1000, 5000] {
            let snapshot = make(n);
            let plan = provision(&snapshot, &Policy::default(), Timestamp::UNIX_EPOCH, 1, &());
            let price: f64 = plan.launches.iter().map(|launch| launch.price.as_usd()).sum();
            println!(
                "{name} {n}: {} shapes, {} nodes, {} waiting, {price:.2} USD per hour",
                snapshot.shapes.len(),
                plan.launches.len(),
                plan.report.pods.len()
            );
            group.bench_with_input(
                BenchmarkId::from_parameter(n),
                &snapshot,
                |bencher, snapshot| {
                    bencher.iter(|| {
                        black_box(provision(
                            snapshot,
                            &Policy::default(),
                            Timestamp::UNIX_EPOCH,
                            1,
                            &(),
                        ))
                    });
                },
            );
        }
        group.finish();
    }
}

criterion_group!(benches, benchmark);
criterion_main!(benches);
