//! Dynamic resource allocation: which machines serve which claims.

mod bindings;
mod brute_force;
mod disrupted;
mod going_first;
mod properties;
mod published;
mod requests;
mod spoiled;

use super::fixtures::*;
use crate::plan::Exclusion;
use crate::snapshot::{
    AllocatedDevice, AttributeValue, Claim, ClaimAllocation, ClaimSpec, Device, DeviceAsk,
    DeviceKind, DevicePool, DeviceRequest, DeviceSlice, DeviceTemplate, Devices, InstanceType,
    NodeTerm, PodShape, Reach,
};
use crate::testing::Builder;

const GPU: &str = "gpu.example.com";
const NUMA: &str = "gpu.example.com/numa";

/// The kinds of devices of these tests.
const PLAIN: u32 = 0;
const NUMA_0: u32 = 1;
const NUMA_1: u32 = 2;
/// A device that another driver offers to several nodes.
const REMOTE: u32 = 3;

fn kinds_of_devices() -> Vec<DeviceKind> {
    let gpu = DeviceKind { driver: GPU.to_owned(), ..DeviceKind::default() };
    let in_numa = |node| {
        let mut kind = gpu.clone();
        kind.attributes.insert(NUMA.to_owned(), AttributeValue::Int(node));
        kind
    };
    let remote = DeviceKind { driver: "net.example.com".to_owned(), ..DeviceKind::default() };
    vec![gpu.clone(), in_numa(0), in_numa(1), remote]
}

fn of_kinds(kinds: &[u32]) -> Vec<Device> {
    let kinds = kinds.iter().enumerate();
    kinds.map(|(number, &kind)| Device { name: format!("gpu-{number:02}"), kind }).collect()
}

/// What types have: the m family one plain device per four cores, the r family two of each NUMA
/// node from 8 cores on.
fn with_devices() -> Vec<InstanceType> {
    let mut kinds = kinds();
    for kind in &mut kinds {
        let cores = usize::try_from(kind.capacity.cpu / 1000).expect("a few cores");
        let devices = match kind.name.split('.').next() {
            Some("m") => vec![PLAIN; cores / 4],
            Some("r") if cores >= 8 => vec![NUMA_0, NUMA_0, NUMA_1, NUMA_1],
            _ => Vec::new(),
        };
        if !devices.is_empty() {
            kind.devices.push(DeviceTemplate {
                driver: GPU.to_owned(),
                pool: "board".to_owned(),
                devices: of_kinds(&devices),
                ..DeviceTemplate::default()
            });
        }
    }
    kinds
}

fn ask(count: Option<u32>, kinds: &[u32]) -> DeviceAsk {
    let (class, kinds) = ("gpu".to_owned(), kinds.to_vec());
    DeviceAsk { class, count, kinds, ..DeviceAsk::default() }
}

fn exactly(name: &str, ask: DeviceAsk) -> DeviceRequest {
    DeviceRequest { name: name.to_owned(), alternatives: vec![ask] }
}

fn first_of(name: &str, asks: Vec<DeviceAsk>) -> DeviceRequest {
    let named = asks.into_iter().enumerate();
    let named = named.map(|(at, ask)| DeviceAsk { name: Some(format!("option-{at}")), ..ask });
    DeviceRequest { name: name.to_owned(), alternatives: named.collect() }
}

fn spec(requests: Vec<DeviceRequest>) -> ClaimSpec {
    ClaimSpec { requests, ..ClaimSpec::default() }
}

/// One request for so many plain devices.
fn plain(count: u32) -> ClaimSpec {
    spec(vec![exactly("gpu", ask(Some(count), &[PLAIN]))])
}

fn claim(name: &str, spec: u32) -> Claim {
    let (namespace, name) = ("default".to_owned(), name.to_owned());
    Claim { namespace, name, spec, ..Claim::default() }
}

/// Devices of a node's own.
fn published(node: &str, kinds: &[u32]) -> DevicePool {
    DevicePool {
        driver: GPU.to_owned(),
        name: node.to_owned(),
        slices: vec![DeviceSlice { reach: Reach::Node(node.to_owned()), devices: of_kinds(kinds) }],
        ..DevicePool::default()
    }
}

/// So many devices that the nodes of a zone can reach.
fn remote(zone: &str, n: usize) -> DevicePool {
    let reach =
        Reach::Nodes(vec![need(super::behaviour::ZONE, crate::snapshot::Operator::In, &[zone])]);
    DevicePool {
        driver: "net.example.com".to_owned(),
        name: "fabric".to_owned(),
        slices: vec![DeviceSlice { reach, devices: of_kinds(&vec![REMOTE; n]) }],
        ..DevicePool::default()
    }
}

/// An allocation of devices of a node's pool.
fn allocated(node: &str, devices: &[&str]) -> ClaimAllocation {
    let device = |name: &&str| AllocatedDevice {
        driver: GPU.to_owned(),
        pool: node.to_owned(),
        device: (*name).to_owned(),
        ..AllocatedDevice::default()
    };
    let term = NodeTerm { name: Some(node.to_owned()), ..NodeTerm::default() };
    ClaimAllocation { devices: devices.iter().map(device).collect(), nodes: vec![term] }
}

/// Devices, specifications and claims that are given to a builder together with the pods that use
/// them.
struct Scene {
    devices: Devices,
    builder: Builder,
}

impl Scene {
    fn new(specs: Vec<ClaimSpec>) -> Self {
        Self::of_types(with_devices(), specs)
    }

    fn of_types(types: Vec<InstanceType>, specs: Vec<ClaimSpec>) -> Self {
        let builder = Builder::new(catalog(types)).pool(on_demand("default"));
        let devices = Devices { kinds: kinds_of_devices(), specs, ..Devices::default() };
        Self { devices, builder }
    }

    fn pool(mut self, pool: DevicePool) -> Self {
        self.devices.pools.push(pool);
        self.devices.pools.sort_by(|a, b| (&a.driver, &a.name).cmp(&(&b.driver, &b.name)));
        self
    }

    fn node(mut self, key: &str, kind: &str, zone: &str) -> Self {
        self.builder = self.builder.node(node(key, "default", kind, zone));
        self
    }

    /// A claim. They have to be added in the order of their names.
    fn claim(mut self, claim: Claim) -> Self {
        self.devices.claims.push(claim);
        self
    }

    /// A pod with claims by number, on a node if one is named.
    fn pod(self, name: &str, claims: &[u32], on: Option<&str>) -> Self {
        self.pod_of(name, shape(500, GI), claims, on)
    }

    fn pod_of(mut self, name: &str, shape: PodShape, claims: &[u32], on: Option<&str>) -> Self {
        let specs = claims.iter().map(|&claim| self.devices.claims[claim as usize].spec);
        let shape = PodShape { device_claims: specs.collect(), ..shape };
        let set = |pod: &mut crate::snapshot::Pod| pod.claims = claims.to_vec();
        self.builder = self.builder.pod_with(name, shape, on, set);
        self
    }

    /// So many pods that wait, each with a claim of its own of the first specification.
    fn pods(mut self, n: u32) -> Self {
        for number in 0..n {
            let next = u32::try_from(self.devices.claims.len()).expect("few claims");
            let name = format!("pod-{number:02}");
            self = self.claim(claim(&name, 0)).pod(&name, &[next], None);
        }
        self
    }

    fn build(self) -> crate::Snapshot {
        self.builder.devices(self.devices).build()
    }
}

fn types(plan: &crate::Plan) -> Vec<&str> {
    let launches = plan.launches.iter();
    launches.flat_map(|launch| launch.instance_types.iter().map(String::as_str)).collect()
}

#[test]
fn while_claims_are_ignored_their_pods_wait_with_the_reason() {
    let mut pod = shape(500, GI);
    pod.resource_claims.push("gpu".to_owned());
    let plan = plan(&builder().pool(on_demand("default")).pending("pod", pod).build());
    let Exclusion::Pod(reason) = only_reason(&plan) else { panic!("{:?}", plan.report) };
    assert!(reason.contains("Dynamic Resource Allocation"), "{reason}");
}

#[test]
fn a_pod_gets_a_machine_of_a_type_that_will_have_its_devices() {
    let plan = plan(&Scene::new(vec![plain(2)]).pods(1).build());
    // Two of them come with eight cores.
    assert_eq!(types(&plan), ["m.2xlarge", "m.4xlarge", "m.8xlarge"]);
    let launch = &plan.launches[0];
    assert_eq!(launch.annotations["karpenter.sh/requested-dra-drivers"], GPU);
    let claim = &launch.devices[0].claims[0];
    let devices: Vec<_> = claim.devices.iter().map(|it| (&it.device[..], it.template)).collect();
    assert_eq!(devices, [("gpu-00", true), ("gpu-01", true)]);
}

#[test]
fn pods_share_a_machine_as_far_as_its_devices_go() {
    let plan = plan(&Scene::new(vec![plain(1)]).pods(9).build());
    assert!(plan.report.pods.is_empty(), "{:?}", plan.report.pods);
    // A device costs the same on every type, so nothing is won by more of them than pods.
    let price: f64 = plan.launches.iter().map(|launch| launch.price.as_usd()).sum();
    assert!((price - 9.0 * 4.0 * 0.048).abs() < 1e-6, "{price} for {:?}", loads(&plan));
}

#[test]
fn machines_that_pods_with_claims_open_take_other_pods_as_well() {
    let mut scene = Scene::new(vec![plain(1)]).pods(1);
    scene.builder = scene.builder.pending("web", shape(1000, 2 * GI));
    let plan = plan(&scene.build());
    assert_eq!(loads(&plan), [["pod-00", "web"]]);
    assert_eq!(plan.launches[0].instance_types[0], "m.xlarge");
}

#[test]
fn too_many_devices_make_a_pod_wait_with_the_type_that_comes_closest() {
    let plan = plan(&Scene::new(vec![plain(9)]).pods(1).build());
    let expected = Exclusion::Devices {
        claim: "pod-00".to_owned(),
        request: "gpu".to_owned(),
        class: "gpu".to_owned(),
        requested: 9,
        found: 8,
        closest: Some("m.8xlarge".to_owned()),
        constraint: None,
    };
    assert_eq!(*only_reason(&plan), expected);
}

#[test]
fn a_claim_that_cannot_be_planned_for_makes_its_pods_wait_with_the_reason() {
    let why = "DeviceClass \"gpu\" does not exist";
    let broken = ClaimSpec { problem: Some(why.to_owned()), ..plain(1) };
    let plan = plan(&Scene::new(vec![broken]).pods(1).build());
    assert_eq!(*only_reason(&plan), Exclusion::Pod(why.to_owned()));
}

#[test]
fn a_virtual_pod_with_claims_waits() {
    let mut scene = Scene::new(vec![plain(1)]);
    let shape = PodShape { device_claims: vec![0], ..shape(500, GI) };
    scene.builder = scene.builder.pod_with("spare", shape, None, |_| {});
    let plan = plan(&scene.build());
    assert!(matches!(only_reason(&plan), Exclusion::Pod(_)), "{:?}", plan.report);
}

#[test]
fn room_for_virtual_pods_comes_with_devices() {
    let scene = Scene::new(vec![plain(1)]).pool(published("a", &[PLAIN]));
    let mut snapshot = scene.node("a", "m.2xlarge", "zone-a").pods(2).build();
    let mut virtual_pods = |n: usize| {
        for (number, pod) in snapshot.pods.iter_mut().enumerate() {
            pod.buffer = (number < n).then(|| "spare".to_owned());
        }
        let plan = plan(&snapshot);
        assert_eq!(plan.launches.len(), 1, "{:?}", plan.report);
        assert_eq!(plan.devices.len(), 1);
        assert!(!plan.launches[0].devices.is_empty());
        (plan.buffered.len(), plan.launches[0].buffer_pods.len(), plan.nominations.len())
    };
    assert_eq!(virtual_pods(2), (1, 1, 0));
    // Pods that there are come first.
    assert_eq!(virtual_pods(1), (0, 1, 1));
}

#[test]
fn overlaid_types_keep_their_devices() {
    let overlay = crate::snapshot::NodeOverlay {
        name: "discount".to_owned(),
        price: Some(crate::snapshot::PriceChange::Scale(-500_000)),
        ..crate::snapshot::NodeOverlay::default()
    };
    let mut scene = Scene::new(vec![plain(2)]).pods(1);
    scene.builder = scene.builder.overlays(vec![overlay]);
    let snapshot = scene.build();
    let plan = plan(&snapshot);
    assert_eq!(plan.launches[0].instance_types[0], "m.2xlarge");
    assert!(plan.launches[0].price.as_usd() < 0.2);
}

#[test]
fn topology_rules_hold_for_pods_with_claims_too() {
    let mut scene = Scene::new(vec![plain(1)]);
    for number in 0..3_u32 {
        let shape =
            super::behaviour::spread(super::behaviour::app("web", 500), super::behaviour::ZONE, 1);
        let name = format!("pod-{number}");
        scene = scene.claim(claim(&name, 0)).pod_of(&name, shape, &[number], None);
    }
    let plan = plan(&scene.build());
    assert_eq!(plan.launches.len(), 3, "{:?}", loads(&plan));
}
