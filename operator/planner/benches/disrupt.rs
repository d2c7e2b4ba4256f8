//! How long a disruption pass takes that evaluates every node and finds nothing to gain: nodes of
//! four cores, filled so far that no smaller machine would do, with gaps that now and then take a
//! pod of another node, but never all of them. And how long one takes after three pods in ten have
//! gone, and how long the check of all commands takes that remove empty nodes.
//!
//! `cargo bench -p tenon-planner --features testing --bench disrupt`

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use jiff::Timestamp;
use tenon_planner::resources::Resources;
use tenon_planner::snapshot::{
    CapacityType, Catalog, ClaimState, InstanceType, Node, NodeClassRef, NodePhase, Offering,
    PodShape,
};
use tenon_planner::testing::{Builder, instance_type, node_pool, usd};
use tenon_planner::{Policy, Snapshot, disrupt, revalidate, revalidate_all};

const ZONES: [&str; 3] = ["zone-a", "zone-b", "zone-c"];
const GI: i64 = 1 << 30;

/// Sizes of one to eight cores in three families; larger ones cost as much per core as small ones,
/// and hold no more nodes' pods than they cost.
fn kinds() -> Vec<InstanceType> {
    let mut list = Vec::new();
    for (family, per_core, price) in [("c", 2, 0.0425), ("m", 4, 0.048), ("r", 8, 0.063)] {
        for cores in [1_i32, 2, 4, 8] {
            let offerings = ZONES.map(|zone| Offering {
                zone: zone.to_owned(),
                capacity_type: CapacityType::OnDemand,
                requirements: Vec::new(),
                price: usd(price * f64::from(cores)),
                available: true,
                reservation_capacity: None,
                unpriced: None,
            });
            let (name, cores) = (format!("{family}-{cores}"), i64::from(cores));
            let memory = cores * per_core * GI;
            list.push(instance_type(&name, cores * 1000, memory, 58, offerings.to_vec()));
        }
    }
    list
}

fn node(key: &str, kind: &InstanceType, zone: &str) -> Node {
    let labels = [
        ("karpenter.sh/nodepool", "default"),
        ("node.kubernetes.io/instance-type", kind.name.as_str()),
        ("topology.kubernetes.io/zone", zone),
        ("karpenter.sh/capacity-type", "on-demand"),
        ("kubernetes.io/hostname", key),
    ];
    Node {
        key: key.to_owned(),
        name: Some(key.to_owned()),
        claim: Some(ClaimState {
            name: key.to_owned(),
            uid: format!("uid-{key}"),
            node_pool: Some("default".to_owned()),
            provider_id: Some(format!("test:///{key}")),
            drifted: None,
            consolidatable: Some(Timestamp::UNIX_EPOCH),
            expires_at: None,
            expire_after: None,
            has_termination_grace_period: false,
            termination_grace_period: None,
        }),
        phase: NodePhase::Initialized,
        labels: labels.iter().map(|&(key, value)| (key.to_owned(), value.to_owned())).collect(),
        taints: Vec::new(),
        capacity: kind.capacity.clone(),
        allocatable: kind.allocatable(),
        price: kind.offerings.first().map(|offer| offer.price),
        deleting: false,
        nominated_until: None,
        do_not_disrupt: false,
        refusal: None,
        created_at: Timestamp::UNIX_EPOCH,
        ready: true,
        requirements: Vec::new(),
        volume_limits: std::collections::BTreeMap::new(),
        health: tenon_planner::snapshot::Health::default(),
    }
}

/// Pods that share 3.7 of the 3.9 cores of a node, give or take.
fn full(nodes: usize, pods: i64) -> Snapshot {
    filled(nodes, pods, 10)
}

/// The same, of which only so many in ten are left.
fn filled(nodes: usize, pods: i64, tenths: u64) -> Snapshot {
    let kinds = kinds();
    let kind = kinds.iter().find(|kind| kind.name == "c-4").expect("it is in the list").clone();
    let catalog = Catalog { node_class: NodeClassRef::default(), instance_types: kinds };
    let mut world = Builder::new(catalog).pool(node_pool("default"));
    let mut draw: u64 = 42;
    for index in 0..nodes {
        let key = format!("n{index:05}");
        world = world.node(node(&key, &kind, ZONES[index % 3]));
        for pod in 0..pods {
            draw = draw.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040);
            let step = i64::try_from((draw >> 33) % 5).expect("below five") - 2;
            let cpu = 3700 / pods + 10 * step;
            let requests =
                Resources { cpu, memory: cpu * (GI / 600), pods: 1, ..Resources::default() };
            let shape =
                PodShape { namespace: "default".to_owned(), requests, ..PodShape::default() };
            if (draw >> 40) % 10 < tenths {
                world = world.pod(&format!("p{index:05}-{pod}"), shape, Some(&key));
            }
        }
    }
    world.build()
}

fn bench(c: &mut Criterion) {
    let now = Timestamp::from_second(2_000_000_000).expect("a valid time");
    let mut group = c.benchmark_group("nothing-to-gain");
    group.sample_size(10);
    for (nodes, pods) in [(100, 5), (1_000, 5), (1_000, 10), (10_000, 10)] {
        let snapshot = full(nodes, pods);
        let plan = disrupt(&snapshot, &Policy::default(), now, 1, &());
        assert_eq!(plan.commands.len(), 0, "there is something to gain");
        assert_eq!(plan.report.nodes.len(), nodes, "every node was looked at");
        let id = BenchmarkId::from_parameter(format!("{nodes}x{pods}"));
        group.bench_function(id, |b| {
            b.iter(|| disrupt(black_box(&snapshot), &Policy::default(), now, 1, &()));
        });
    }
    group.finish();
    let mut group = c.benchmark_group("scale-in");
    group.sample_size(10);
    for (nodes, pods) in [(1_000, 10), (10_000, 10)] {
        let snapshot = filled(nodes, pods, 7);
        let plan = disrupt(&snapshot, &Policy::default(), now, 1, &());
        let gone = format!("{} nodes go", plan.commands.len());
        let id = BenchmarkId::new(gone, format!("{nodes}x{pods}"));
        group.bench_function(id, |b| {
            b.iter(|| disrupt(black_box(&snapshot), &Policy::default(), now, 1, &()));
        });
    }
    group.finish();
}

fn checks(c: &mut Criterion) {
    let now = Timestamp::from_second(2_000_000_000).expect("a valid time");
    let mut group = c.benchmark_group("check-empty");
    group.sample_size(10);
    for nodes in [1_000, 10_000] {
        let (snapshot, policy) = (full(nodes, 0), Policy::default());
        let commands = disrupt(&snapshot, &policy, now, 1, &()).commands;
        assert_eq!(commands.len(), nodes, "all of them go");
        group.bench_function(BenchmarkId::new("together", nodes), |b| {
            b.iter(|| revalidate_all(black_box(&commands), &snapshot, &policy, now, now));
        });
        if nodes > 1_000 {
            continue;
        }
        group.bench_function(BenchmarkId::new("one-by-one", nodes), |b| {
            b.iter(|| {
                let mut state = snapshot.clone();
                for (index, command) in commands.iter().enumerate() {
                    black_box(revalidate(command, &state, &policy, now)).expect("it may go");
                    state.nodes[index].deleting = true;
                }
            });
        });
    }
    group.finish();
}

criterion_group!(benches, bench, checks);
criterion_main!(benches);
