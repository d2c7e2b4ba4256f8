//! The worst inputs that are known: what one pass takes of processor time and memory on each, and
//! what it may take.
//!
//! `cargo bench -p tenon-planner --features testing --bench worst [NAME]` (Linux: it reads
//! `/proc/self`). Every input has a process of its own. Plans with the same checksum are the same.

mod fixtures;
mod rules;

use std::process::Command;
use std::sync::Arc;

use fixtures::{aws_types, batch, checksum, cluster, is_common, on_demand};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Taint, Toleration};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use rules::{
    bound, half_the_types, keep_off_hosts, keep_off_zones, many_keys, no_rule, no_such_type,
    no_such_type_or_arch, none_of_thousands, not_in, not_in_classes, own, shrunk,
    spread_over_hosts, spread_over_zones, values,
};
use tenon_planner::snapshot::{
    Budget, BudgetNodes, CapacityType, ClaimState, Eviction, InstanceType, Node, NodePhase,
    NodePool, Operator, Placement, PodShape, Requirement, SharedVolume,
};
use tenon_planner::testing::mixes::{HOSTNAME, ZONE, shape, spread, term};
use tenon_planner::testing::{Builder, apply};
use tenon_planner::{Policy, Snapshot, disrupt, provision};

/// An input: its name, the pass, and what it may take of processor time in milliseconds and of
/// memory in MiB.
type Input = (&'static str, Pass, fn() -> Snapshot, u64, u64);

#[derive(Clone, Copy)]
enum Pass {
    Provision,
    Disrupt,
}

const INPUTS: [Input; 39] = [
    ("three-keys", Pass::Provision, three_keys, 50, 50),
    ("three-keys-of-types", Pass::Provision, three_keys_of_types, 50, 50),
    ("nowhere-400x400", Pass::Provision, || nowhere(400, 400), 500, 150),
    ("pools-1000", Pass::Provision, || pools(1000), 500, 150),
    ("own-shapes-8000", Pass::Provision, || own_shapes(8000), 500, 150),
    ("not-in-2000", Pass::Provision, || not_in(2000, keep_off_hosts), 200, 100),
    ("not-in-zones-2000", Pass::Provision, || not_in(2000, keep_off_zones), 200, 100),
    ("not-in-spread-2000", Pass::Provision, || not_in(2000, spread_over_hosts), 200, 100),
    ("not-in-spread-zones-2000", Pass::Provision, || not_in(2000, spread_over_zones), 200, 100),
    ("classes-2000", Pass::Provision, || classes(2000, no_rule), 1000, 150),
    ("classes-8000", Pass::Provision, || classes(8000, no_rule), 4000, 600),
    ("classes-apart-2000", Pass::Provision, || classes(2000, keep_off_hosts), 1000, 150),
    ("classes-spread-2000", Pass::Provision, || classes(2000, spread_over_hosts), 1000, 150),
    ("classes-spread-zones-2000", Pass::Provision, || classes(2000, spread_over_zones), 1000, 150),
    ("classes-spread-zones-8000", Pass::Provision, || classes(8000, spread_over_zones), 4000, 600),
    (
        "classes-two-keys-2000",
        Pass::Provision,
        || not_in_classes(2000, spread_over_zones, no_such_type_or_arch),
        1000,
        150,
    ),
    (
        "classes-types-2000",
        Pass::Provision,
        || not_in_classes(2000, spread_over_zones, half_the_types),
        1000,
        150,
    ),
    (
        "classes-values-400",
        Pass::Provision,
        || not_in_classes(400, no_rule, none_of_thousands),
        1000,
        300,
    ),
    (
        "bound-classes-types-2000",
        Pass::Provision,
        || bound(&not_in_classes(2000, spread_over_zones, half_the_types)),
        500,
        150,
    ),
    ("bound-2000", Pass::Provision, || bound(&not_in(2000, keep_off_hosts)), 200, 100),
    ("bound-zones-2000", Pass::Provision, || bound(&not_in(2000, keep_off_zones)), 200, 100),
    ("bound-spread-2000", Pass::Provision, || bound(&not_in(2000, spread_over_hosts)), 200, 100),
    (
        "bound-spread-zones-2000",
        Pass::Provision,
        || bound(&not_in(2000, spread_over_zones)),
        200,
        100,
    ),
    ("own-10000", Pass::Provision, || own(10_000, keep_off_hosts), 500, 150),
    ("own-zones-10000", Pass::Provision, || own(10_000, keep_off_zones), 500, 150),
    ("own-spread-10000", Pass::Provision, || own(10_000, spread_over_hosts), 500, 150),
    ("own-spread-zones-10000", Pass::Provision, || own(10_000, spread_over_zones), 500, 150),
    ("not-in-10000", Pass::Provision, || not_in(10_000, keep_off_hosts), 500, 150),
    ("not-in-spread-10000", Pass::Provision, || not_in(10_000, spread_over_hosts), 500, 150),
    ("not-in-spread-zones-10000", Pass::Provision, || not_in(10_000, spread_over_zones), 500, 150),
    ("keys-1x2000", Pass::Provision, || many_keys(1, 2000, 5000), 500, 150),
    ("keys-1000x2", Pass::Provision, || many_keys(1000, 2, 5000), 500, 150),
    ("shrunk-1000", Pass::Disrupt, || shrunk(1000), 300, 100),
    ("values-4000", Pass::Provision, || values(4000), 200, 100),
    ("alternatives", Pass::Provision, alternatives, 500, 100),
    ("replicas-nowhere", Pass::Provision, replicas_nowhere, 500, 150),
    ("stuck-800", Pass::Disrupt, || stuck(800, 800), 300, 200),
    ("stuck-4000", Pass::Disrupt, || stuck(4000, 800), 1000, 400),
    ("affinity-10000", Pass::Provision, affinity, 1000, 400),
];

fn common() -> Vec<InstanceType> {
    aws_types(is_common)
}

fn named(name: &str) -> NodePool {
    let mut pool = on_demand();
    (pool.name, pool.uid) = (name.to_owned(), format!("uid-{name}"));
    pool.template.labels.insert("karpenter.sh/nodepool".to_owned(), name.to_owned());
    pool
}

fn need(key: &str, operator: Operator, values: Vec<String>) -> Requirement {
    Requirement { key: key.to_owned(), operator, values, min_values: None }
}

/// One pod spread over three labels of 40 values that its NodePool may give, and over zones; it
/// fits only where its last label says that nothing is for sale.
fn three_keys() -> Snapshot {
    let mut pool = named("default");
    let mut pod = shape(500, 512);
    pod.labels.insert("my-label".to_owned(), "a".to_owned());
    for key in ["k1", "k2", "k3"] {
        let all = (0..40).map(|number| format!("v{number:02}")).collect();
        pool.template.requirements.push(need(key, Operator::In, all));
        pod.topology_spread.push(spread(key, "a"));
    }
    pod.topology_spread.push(spread(ZONE, "a"));
    // No zone has what `maxSkew` asks for in the end.
    pod.pod_affinity.push(term(false, None, "topology.kubernetes.io/region", "my-label", "nobody"));
    cluster(common(), pool).pending("pod", pod).build()
}

/// The same with labels of instance types, of which hardly any two go together.
fn three_keys_of_types() -> Snapshot {
    let mut kinds = common();
    for (number, kind) in kinds.iter_mut().enumerate() {
        for (key, value) in [("k1", number % 40), ("k2", number / 7 % 40), ("k3", number / 3 % 40)]
        {
            kind.requirements.push(need(key, Operator::In, vec![format!("v{value:02}")]));
        }
        kind.requirements.sort_by(|a, b| a.key.cmp(&b.key));
    }
    let mut pod = shape(180_000, 512);
    pod.labels.insert("my-label".to_owned(), "a".to_owned());
    for key in ["k1", "k2", "k3", ZONE] {
        pod.topology_spread.push(spread(key, "a"));
    }
    cluster(kinds, named("default")).pending("pod", pod).build()
}

/// As many NodePools, and as many pods of different classes that fit none of them.
fn nowhere(pools: usize, classes: usize) -> Snapshot {
    let mut world = cluster(common(), named("pool-0000"));
    for number in 1..pools {
        world = world.pool(named(&format!("pool-{number:04}")));
    }
    for number in 0..classes {
        let mut pod = shape(100_000_000, 512);
        let zones = vec!["us-west-2a".to_owned(), format!("zone-{number}")];
        pod.required_affinity = vec![vec![need(ZONE, Operator::In, zones)]];
        world = world.pending(&format!("pod-{number:04}"), pod);
    }
    world.build()
}

/// NodePools with a pod each.
fn pools(n: usize) -> Snapshot {
    let mut world = cluster(common(), named("pool-0000"));
    for number in 1..n {
        world = world.pool(named(&format!("pool-{number:04}")));
    }
    for number in 0..n {
        let mut pod = shape(500, 512);
        let name = format!("pool-{number:04}");
        pod.node_selector.insert("karpenter.sh/nodepool".to_owned(), name);
        world = world.pending(&format!("pod-{number:04}"), pod);
    }
    world.build()
}

/// Pods with a rule each, of which each does without a type of its own.
fn classes(n: i64, rule: fn(&mut PodShape, LabelSelector)) -> Snapshot {
    not_in_classes(n, rule, no_such_type)
}

/// Pods of which no two are alike.
fn own_shapes(n: i64) -> Snapshot {
    let mut world = cluster(common(), named("default"));
    for number in 0..n {
        let pod = shape(100 + number % 1000 * 3, 128 + number % 997 * 4 + number / 1000);
        world = world.pending(&format!("pod-{number:05}"), pod);
    }
    world.build()
}

/// Pods with a thousand required terms, places of volumes and preferences that nothing meets, and
/// twenty NodePools.
fn alternatives() -> Snapshot {
    let mut world = cluster(common(), named("pool-0000"));
    for number in 1..20 {
        world = world.pool(named(&format!("pool-{number:04}")));
    }
    for number in 0..20 {
        let mut pod = shape(500, 512);
        let terms = |prefix: &str| -> Vec<Vec<Requirement>> {
            let zone = |at: usize| vec![format!("{prefix}-{at}-{number}")];
            (0..1000).map(|at| vec![need(ZONE, Operator::In, zone(at))]).collect()
        };
        pod.required_affinity = terms("zone");
        pod.volume_topology = terms("volume");
        pod.preferred_affinity = terms("preferred").into_iter().map(|term| (1, term)).collect();
        world = world.pending(&format!("pod-{number:04}"), pod);
    }
    world.build()
}

/// Ten thousand pods of one shape that fit none of 400 NodePools.
fn replicas_nowhere() -> Snapshot {
    let mut world = nowhere_pools(400);
    let pod = shape(100_000_000, 512);
    for number in 0..10_000 {
        world = world.pending(&format!("pod-{number:05}"), pod.clone());
    }
    world.build()
}

fn nowhere_pools(n: usize) -> Builder {
    let mut world = cluster(common(), named("pool-0000"));
    for number in 1..n {
        world = world.pool(named(&format!("pool-{number:04}")));
    }
    world
}

fn node(key: &str, kind: &InstanceType, pool: &str, zone: &str) -> Node {
    let labels = [
        ("karpenter.sh/nodepool", pool),
        ("node.kubernetes.io/instance-type", kind.name.as_str()),
        ("topology.kubernetes.io/zone", zone),
        ("karpenter.sh/capacity-type", "on-demand"),
        ("kubernetes.io/hostname", key),
    ];
    let price = kind.offerings.iter().find(|offer| offer.capacity_type == CapacityType::OnDemand);
    Node {
        key: key.to_owned(),
        name: Some(key.to_owned()),
        claim: Some(ClaimState {
            name: key.to_owned(),
            uid: format!("uid-{key}"),
            node_pool: Some(pool.to_owned()),
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
        capacity: kind.capacity.clone(),
        allocatable: kind.allocatable(),
        price: price.map(|offer| offer.price),
        ready: true,
        ..Node::default()
    }
}

/// A NodePool whose nodes may go all at once.
fn consolidating(name: &str) -> NodePool {
    let mut pool = named(name);
    pool.disruption.consolidate_after = Some(jiff::SignedDuration::ZERO);
    pool.disruption.budgets =
        vec![Budget { nodes: BudgetNodes::Percent(100), reasons: Vec::new() }];
    pool
}

/// Tainted nodes that are nearly empty and have to stay, and 800 nodes that are half full.
fn stuck(tainted: usize, half_full: usize) -> Snapshot {
    let kinds = common();
    let kind = kinds.iter().find(|kind| kind.name == "m5.xlarge").expect("it is common").clone();
    let taint = Taint {
        key: "dedicated".to_owned(),
        value: None,
        effect: "NoSchedule".to_owned(),
        time_added: None,
    };
    let mut dedicated = consolidating("dedicated");
    dedicated.template.taints.push(taint.clone());
    let mut world = cluster(kinds, consolidating("default")).pool(dedicated);
    let zone = |number: usize| ["us-west-2a", "us-west-2b", "us-west-2c"][number % 3];
    for number in 0..tainted {
        let key = format!("d{number:05}");
        let mut node = node(&key, &kind, "dedicated", zone(number));
        node.taints.push(taint.clone());
        world = world.node(node);
        let mut pod = shape(100, 128);
        pod.tolerations.push(Toleration {
            key: Some("dedicated".to_owned()),
            operator: Some("Exists".to_owned()),
            ..Toleration::default()
        });
        world = world.pod_with(&format!("stays-{number:05}"), pod, Some(&key), |pod| {
            pod.eviction = Eviction::DoNotDisrupt;
        });
    }
    let mut draw: usize = 7;
    for number in 0..half_full {
        let key = format!("n{number:05}");
        world = world.node(node(&key, &kind, "default", zone(number)));
        for pod in 0..5 {
            draw = draw.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040);
            let cpu = 300 + 10 * i64::try_from((draw >> 33) % 17).expect("below 17");
            world = world.pod(&format!("p{number:05}-{pod}"), shape(cpu, cpu), Some(&key));
        }
    }
    world.build()
}

/// 10,000 nodes whose pods are near each other and apart, 5,000 of them with volumes, and 100 pods
/// that have been evicted.
fn affinity() -> Snapshot {
    let mut pool = named("default");
    pool.template.requirements.push(need(
        "node.kubernetes.io/instance-type",
        Operator::In,
        vec!["m5.xlarge".to_owned()],
    ));
    let before = batch(cluster(common(), pool), 50_000);
    let mut snapshot =
        apply(&before, &provision(&before, &Policy::default(), Timestamp::UNIX_EPOCH, 1, &()));
    for (number, shape) in snapshot.shapes.iter_mut().enumerate() {
        let shape = Arc::make_mut(shape);
        let name = format!("app-{}", number % 50);
        shape.labels.insert("my-label".to_owned(), name.clone());
        match number % 3 {
            0 => shape.pod_affinity.push(term(true, Some(1), HOSTNAME, "my-label", &name)),
            1 => shape.topology_spread.push(spread(ZONE, &name)),
            _ => shape.pod_affinity.push(term(false, None, ZONE, "my-label", &name)),
        }
        if number % 10 == 0 {
            shape.volumes.insert("ebs.csi.aws.com".to_owned(), 1);
            shape.shared_volumes.push(SharedVolume {
                driver: "efs.csi.aws.com".to_owned(),
                claim: format!("claim-{number}"),
            });
        }
    }
    for pod in snapshot.pods.iter_mut().step_by(500) {
        pod.placement = Placement::Unschedulable;
    }
    snapshot
}

#[expect(clippy::disallowed_methods, reason = "a benchmark measures its own process")]
fn read(file: &str) -> String {
    std::fs::read_to_string(format!("/proc/self/{file}")).expect("Linux has it")
}

/// Processor time of the process, in milliseconds; the clock of `/proc` ticks a hundred times a
/// second.
fn processor() -> u64 {
    let stat = read("stat");
    let fields = stat.rsplit_once(") ").map(|(_, rest)| rest).unwrap_or_default();
    fields.split(' ').skip(11).take(2).filter_map(|ticks| ticks.parse::<u64>().ok()).sum::<u64>()
        * 10
}

/// A line of `/proc/self/status`, in MiB.
fn memory(name: &str) -> u64 {
    let status = read("status");
    let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
    line.split_whitespace().find_map(|word| word.parse::<u64>().ok()).unwrap_or(0) / 1024
}

/// Names the input that the process is to measure.
const NAME: &str = "TENON_BENCH_INPUT";

#[expect(
    clippy::disallowed_macros,
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "a benchmark starts, and says what it measured"
)]
fn main() {
    let Ok(name) = std::env::var(NAME) else {
        let wanted: Vec<String> =
            std::env::args().skip(1).filter(|it| !it.starts_with('-')).collect();
        for (name, ..) in INPUTS {
            if wanted.is_empty() || wanted.iter().any(|wanted| name.contains(wanted.as_str())) {
                let this = std::env::current_exe().expect("it runs");
                let status = Command::new(this).env(NAME, name).status();
                assert!(status.is_ok_and(|status| status.success()), "{name} failed");
            }
        }
        return;
    };
    let input = INPUTS.iter().find(|input| input.0 == name).expect("a known input");
    let (_, pass, make, milliseconds, mebibytes) = *input;
    let snapshot = make();
    // The peak from here on.
    let _ = std::fs::write("/proc/self/clear_refs", "5");
    let (before, resident) = (processor(), memory("VmRSS:"));
    let now = Timestamp::from_second(2_000_000_000).expect("a valid time");
    let plan = match pass {
        Pass::Provision => provision(&snapshot, &Policy::default(), now, 1, &()),
        Pass::Disrupt => disrupt(&snapshot, &Policy::default(), now, 1, &()),
    };
    let (took, peak) = (processor() - before, memory("VmHWM:").saturating_sub(resident));
    let (launches, placed) = (plan.launches.len(), plan.nominations.len());
    let (waiting, commands) = (plan.report.pods.len(), plan.commands.len());
    println!(
        "{name:<25} {took:>6} ms (may {milliseconds}), {peak:>5} MiB (may {mebibytes}); \
         {launches} launches, {placed} nominations, {waiting} pods wait, {commands} commands; \
         plan {:016x}",
        checksum(&plan)
    );
}
