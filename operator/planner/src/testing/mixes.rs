//! Mixes of pods for benchmarks and for tests that hold what benchmarks have found.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use super::{Builder, instance_type, usd};
use crate::resources::{MicroUsd, Resources};
use crate::snapshot::{
    CapacityType, InstanceType, Offering, PodAffinityTerm, PodShape, Snapshot, TopologySpread,
};

/// The label of zones.
pub const ZONE: &str = "topology.kubernetes.io/zone";
/// The label of hosts.
pub const HOSTNAME: &str = "kubernetes.io/hostname";
const LETTERS: [&str; 7] = ["a", "b", "c", "d", "e", "f", "g"];

/// A small generator with a fixed sequence.
#[derive(Clone, Debug)]
pub struct Draw(pub u64);

impl Draw {
    /// A number below 2^31.
    pub fn number(&mut self) -> u32 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        u32::try_from(self.0 >> 33).unwrap_or(u32::MAX)
    }

    /// One of a list.
    pub fn from<'t, T>(&mut self, list: &'t [T]) -> &'t T {
        &list[usize::try_from(self.number()).unwrap_or(usize::MAX) % list.len()]
    }

    /// Between 0 and 1.
    pub fn share(&mut self) -> f64 {
        f64::from(self.number()) / f64::from(1_u32 << 31)
    }
}

/// The types of Karpenter's own benchmark: sizes 1 to `n`, at a price that grows with them.
pub fn fake_types(n: i32) -> Vec<InstanceType> {
    (1..=n)
        .map(|size| {
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
                unpriced: None,
            });
            let name = format!("fake-it-{size:04}");
            instance_type(&name, size * 1000, 2 * size * (1 << 30), 10 * size, offerings.to_vec())
        })
        .collect()
}

/// The types of the provider `kwok` with at most so many cores: three families at prices that grow
/// with cores and memory.
pub fn kwok_types(cores: i64) -> Vec<InstanceType> {
    let sizes = [1, 2, 4, 8, 16, 32, 48, 64, 96, 128, 192, 256];
    let sizes = sizes.into_iter().filter(|&size| size <= cores);
    let kinds = sizes.flat_map(|size| [(size, 2, "c"), (size, 4, "s"), (size, 8, "m")]);
    kinds
        .map(|(size, factor, family)| {
            let memory = (size * factor) << 30;
            let price = MicroUsd(size * 25_000 + memory / 1_000_000);
            let zones = ["test-zone-a", "test-zone-b", "test-zone-c", "test-zone-d"];
            let offerings = zones.map(|zone| Offering {
                zone: zone.to_owned(),
                capacity_type: CapacityType::OnDemand,
                requirements: Vec::new(),
                price,
                available: true,
                reservation_capacity: None,
                unpriced: None,
            });
            let (name, pods) = (format!("{family}-{size}x"), (size * 16).min(1024));
            instance_type(&name, size * 1000, memory, pods, offerings.to_vec())
        })
        .collect()
}

/// Half of the pods small, half of them large, as in upstream's performance suite.
pub fn halves(world: Builder, n: usize) -> Snapshot {
    in_turn(world, n, &[shape(900, 3_100), shape(3_500, 28 << 10)])
}

/// Three sizes of pods, each for a little more than a third of a usual machine.
pub fn thirds(world: Builder, n: usize) -> Snapshot {
    in_turn(world, n, &[shape(700, 2_800), shape(1_400, 5_600), shape(2_800, 11_200)])
}

/// Pods of some shapes, as many of each.
fn in_turn(mut world: Builder, n: usize, shapes: &[PodShape]) -> Snapshot {
    for index in 0..n {
        world = world.pending(&format!("pod-{index:06}"), shapes[index % shapes.len()].clone());
    }
    world.build()
}

/// A pod that requests millicores and mebibytes.
pub fn shape(cpu: i64, mebibytes: i64) -> PodShape {
    let memory = mebibytes << 20;
    PodShape {
        namespace: "default".to_owned(),
        requests: Resources { cpu, memory, pods: 1, ..Resources::default() },
        ..PodShape::default()
    }
}

/// Pods of Karpenter's own benchmark: a fifth each of plain pods, zonal spread, spread over hosts,
/// zonal affinity, and anti-affinity over hosts. What they request and which labels they have is
/// drawn.
pub fn diverse(mut world: Builder, n: usize, seed: u64) -> Snapshot {
    let mut draw = Draw(seed);
    for index in 0..n {
        let cpu = *draw.from(&[100, 250, 500, 1000, 1500]);
        let memory = *draw.from(&[100, 256, 512, 1024, 2048, 4096]);
        let (label, other) = (*draw.from(&LETTERS), *draw.from(&LETTERS));
        let mut shape = shape(cpu, memory);
        let kind = if n < 5 { 0 } else { index / (n / 5) };
        let (name, value) = match kind {
            3 => ("my-affinity", label),
            4 => ("app", "nginx"),
            _ => ("my-label", label),
        };
        shape.labels.insert(name.to_owned(), value.to_owned());
        match kind {
            1 => shape.topology_spread.push(spread(ZONE, other)),
            2 => shape.topology_spread.push(spread(HOSTNAME, other)),
            3 => shape.pod_affinity.push(term(false, None, ZONE, name, value)),
            4 => shape.pod_affinity.push(term(true, None, HOSTNAME, name, value)),
            _ => {}
        }
        world = world.pending(&format!("pod-{index:06}"), shape);
    }
    world.build()
}

/// A spread with a skew of 1 over the pods whose `my-label` has a value.
pub fn spread(key: &str, value: &str) -> TopologySpread {
    TopologySpread {
        topology_key: key.to_owned(),
        max_skew: 1,
        min_domains: None,
        required: true,
        selector: Some(select("my-label", value)),
        honor_affinity: true,
        honor_taints: false,
    }
}

/// A term of pod affinity or, with `anti`, of anti-affinity about pods whose label `name` has a
/// value; required unless it has a weight.
pub fn term(
    anti: bool,
    weight: Option<i32>,
    key: &str,
    name: &str,
    value: &str,
) -> PodAffinityTerm {
    PodAffinityTerm {
        anti,
        weight,
        topology_key: key.to_owned(),
        selector: Some(select(name, value)),
        namespaces: Vec::new(),
        namespace_selector: None,
    }
}

fn select(key: &str, value: &str) -> LabelSelector {
    let labels = [(key.to_owned(), value.to_owned())].into();
    LabelSelector { match_labels: Some(labels), ..LabelSelector::default() }
}
