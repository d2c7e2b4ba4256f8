//! Devices of which an instance type says that they will agree in an attribute, but not in which
//! value.

use super::*;
use crate::snapshot::{AttributeBinding, DeviceConstraint, NodePhase, Operator, TemplateDevice};

pub(super) const PCI: &str = "resource.kubernetes.io/pcieRoot";

pub(super) fn device(number: usize) -> TemplateDevice {
    let (driver, pool) = (GPU.to_owned(), "board".to_owned());
    TemplateDevice { driver, pool, device: format!("gpu-{number:02}") }
}

pub(super) fn binding(attribute: &str, devices: &[usize]) -> AttributeBinding {
    let devices = devices.iter().map(|&number| device(number)).collect();
    AttributeBinding { attribute: attribute.to_owned(), devices }
}

/// Types of which these have devices of these kinds, with bindings.
pub(super) fn types_with(
    names: &[&str],
    devices: &[u32],
    bindings: &[AttributeBinding],
) -> Vec<InstanceType> {
    let mut types = kinds();
    for kind in types.iter_mut().filter(|kind| names.contains(&&kind.name[..])) {
        kind.devices.push(DeviceTemplate {
            driver: GPU.to_owned(),
            pool: "board".to_owned(),
            devices: of_kinds(devices),
            ..DeviceTemplate::default()
        });
        kind.attribute_bindings = bindings.to_vec();
    }
    types
}

fn on_gpu(count: u32) -> DeviceAsk {
    ask(Some(count), &[PLAIN, NUMA_0, NUMA_1])
}

fn agree(attribute: &str, requests: &[&str]) -> DeviceConstraint {
    let requests = requests.iter().map(|&name| name.to_owned()).collect();
    DeviceConstraint { requests, attribute: attribute.to_owned(), distinct: false }
}

/// So many devices that agree in an attribute.
fn alike(count: u32, attribute: &str) -> ClaimSpec {
    let constraints = vec![agree(attribute, &[])];
    ClaimSpec { constraints, ..spec(vec![exactly("gpu", on_gpu(count))]) }
}

fn numbers(plan: &crate::Plan) -> Vec<Vec<&str>> {
    let placed = plan.devices.iter().chain(plan.launches.iter().flat_map(|it| &it.devices));
    let claims = placed.flat_map(|placed| &placed.claims);
    claims.map(|claim| claim.devices.iter().map(|it| &it.device[4..]).collect()).collect()
}

/// The devices of a pod's claim on a machine to come.
fn served(devices: &[u32], bindings: &[AttributeBinding], spec: ClaimSpec) -> Vec<String> {
    let types = types_with(&["m.2xlarge"], devices, bindings);
    let plan = plan(&Scene::of_types(types, vec![spec]).pods(1).build());
    numbers(&plan).concat().into_iter().map(str::to_owned).collect()
}

#[test]
fn bound_devices_agree_in_an_attribute_that_they_lack() {
    let bindings = [binding(PCI, &[0, 3]), binding(PCI, &[1, 2])];
    assert_eq!(served(&[PLAIN; 4], &bindings, alike(2, PCI)), ["00", "03"]);
    // One alone agrees with itself, if it will have the attribute.
    assert_eq!(served(&[PLAIN; 4], &bindings, alike(1, PCI)), ["00"]);
    assert_eq!(served(&[PLAIN; 5], &[binding(PCI, &[4, 3])], alike(1, PCI)), ["03"]);
}

#[test]
fn devices_that_no_binding_ties_together_make_a_pod_wait_with_the_constraint() {
    for (bindings, found) in [(vec![], 0), (vec![binding(PCI, &[0, 3]), binding(PCI, &[1, 2])], 2)]
    {
        let types = types_with(&["m.2xlarge"], &[PLAIN; 4], &bindings);
        let plan = plan(&Scene::of_types(types, vec![alike(3, PCI)]).pods(1).build());
        let expected = Exclusion::Devices {
            claim: "pod-00".to_owned(),
            request: "gpu".to_owned(),
            class: "gpu".to_owned(),
            requested: 3,
            found,
            closest: Some("m.2xlarge".to_owned()),
            constraint: Some(PCI.to_owned()),
        };
        assert_eq!(*only_reason(&plan), expected);
    }
}

#[test]
fn bindings_lead_from_one_to_the_next() {
    let three = |bindings: &[AttributeBinding]| served(&[PLAIN; 5], bindings, alike(3, PCI));
    let pair = |a, b| binding(PCI, &[a, b]);
    assert_eq!(three(&[pair(0, 1), pair(1, 4)]), ["00", "01", "04"]);
    assert_eq!(three(&[pair(0, 1), pair(3, 4), pair(4, 1)]), ["00", "01", "03"]);
    // In a circle, and listed twice.
    assert_eq!(three(&[pair(0, 1), pair(1, 2), pair(2, 0), pair(0, 1)]), ["00", "01", "02"]);
    // By a device that the type does not have.
    assert_eq!(three(&[pair(0, 9), pair(9, 2), pair(9, 3)]), ["00", "02", "03"]);
    assert!(three(&[pair(0, 1), pair(2, 3)]).is_empty());
}

#[test]
fn a_binding_of_fewer_than_two_devices_says_nothing() {
    for devices in [&[][..], &[0], &[0, 0]] {
        assert!(served(&[PLAIN; 2], &[binding(PCI, devices)], alike(1, PCI)).is_empty());
    }
    assert_eq!(served(&[PLAIN; 2], &[binding(PCI, &[0, 0, 1])], alike(2, PCI)), ["00", "01"]);
}

#[test]
fn a_binding_is_about_devices_of_its_driver_and_pool() {
    let elsewhere = |change: fn(&mut TemplateDevice)| {
        let mut binding = binding(PCI, &[0, 1]);
        binding.devices.iter_mut().for_each(change);
        served(&[PLAIN; 2], &[binding], alike(1, PCI)).is_empty()
    };
    assert!(elsewhere(|device| device.driver = "net.example.com".to_owned()));
    assert!(elsewhere(|device| device.pool = "other".to_owned()));
    assert!(!elsewhere(|_| {}));
}

#[test]
fn a_binding_is_about_its_attribute() {
    let other = binding(NUMA, &[0, 1]);
    assert!(served(&[PLAIN; 2], std::slice::from_ref(&other), alike(2, PCI)).is_empty());
    // What is bound under one attribute does not lead on under another.
    let mixed = [binding(PCI, &[0, 1]), binding(NUMA, &[1, 2])];
    assert!(served(&[PLAIN; 3], &mixed, alike(3, PCI)).is_empty());
    // One pair under both.
    let mut both = alike(2, PCI);
    both.constraints.push(agree(NUMA, &[]));
    assert_eq!(served(&[PLAIN; 3], &[binding(PCI, &[0, 1, 2]), other], both), ["00", "01"]);
}

#[test]
fn values_and_bindings_never_mix_in_one_constraint() {
    let pair =
        |devices: &[u32], bound: &[usize]| served(devices, &[binding(NUMA, bound)], alike(2, NUMA));
    assert!(pair(&[NUMA_0, PLAIN], &[0, 1]).is_empty());
    assert!(pair(&[PLAIN, NUMA_0], &[0, 1]).is_empty());
    // A device that has the attribute counts with its value.
    assert!(pair(&[NUMA_0, NUMA_1], &[0, 1]).is_empty());
    assert_eq!(pair(&[NUMA_0, PLAIN, NUMA_0], &[0, 1]), ["00", "02"]);
    // What was begun with a bound device is given up for values, and the other way round.
    assert_eq!(pair(&[PLAIN, NUMA_0, NUMA_0], &[0, 9]), ["01", "02"]);
    assert_eq!(pair(&[NUMA_0, PLAIN, PLAIN], &[1, 2]), ["01", "02"]);
}

#[test]
fn constraints_of_one_claim_may_go_by_values_and_by_bindings() {
    let mut two = alike(2, PCI);
    two.constraints.push(agree(NUMA, &[]));
    let bindings = [binding(PCI, &[0, 1]), binding(PCI, &[2, 3])];
    assert_eq!(served(&[NUMA_0, NUMA_1, NUMA_1, NUMA_1], &bindings, two), ["02", "03"]);
}

#[test]
fn bindings_don_t_say_that_devices_differ() {
    let mut distinct = alike(2, PCI);
    distinct.constraints[0].distinct = true;
    let bindings = [binding(PCI, &[0, 1]), binding(PCI, &[2, 3])];
    assert!(served(&[PLAIN; 4], &bindings, distinct).is_empty());
}

#[test]
fn a_constraint_on_some_requests_goes_by_bindings_of_their_devices() {
    let requests = || vec![exactly("first", on_gpu(1)), exactly("second", on_gpu(1))];
    let bindings = [binding(PCI, &[1, 2])];
    let of = |names: &[&str]| {
        let constraints = vec![agree(PCI, names)];
        served(&[PLAIN; 3], &bindings, ClaimSpec { constraints, ..spec(requests()) })
    };
    assert_eq!(of(&[]), ["01", "02"]);
    assert_eq!(of(&["first"]), ["01", "00"]);
    assert_eq!(of(&["second"]), ["00", "01"]);
    // Alternatives: by the request, by one of them, and not by another.
    let of = |name: &str| {
        let constraints = vec![agree(PCI, &[name])];
        let any = first_of("any", vec![on_gpu(2), on_gpu(1)]);
        served(&[PLAIN; 3], &bindings, ClaimSpec { constraints, ..spec(vec![any]) })
    };
    assert_eq!(of("any"), ["01", "02"]);
    assert_eq!(of("any/option-0"), ["01", "02"]);
    assert_eq!(of("any/option-1"), ["00", "01"]);
}

#[test]
fn all_devices_agree_if_one_group_has_them_all() {
    let mut all = alike(1, PCI);
    all.requests[0].alternatives[0].count = None;
    let of = |bindings: &[AttributeBinding]| served(&[PLAIN; 3], bindings, all.clone());
    assert_eq!(of(&[binding(PCI, &[0, 2]), binding(PCI, &[1, 2])]), ["00", "01", "02"]);
    assert!(of(&[binding(PCI, &[0, 2])]).is_empty());
}

#[test]
fn a_type_without_bindings_does_not_serve_what_one_with_them_does() {
    let mut all = types_with(&["m.2xlarge"], &[PLAIN; 2], &[]);
    let bound = types_with(&["m.4xlarge", "m.8xlarge"], &[PLAIN; 2], &[binding(PCI, &[0, 1])]);
    all.retain(|kind| !bound.iter().any(|it| it.name == kind.name && !it.devices.is_empty()));
    all.extend(bound.into_iter().filter(|kind| !kind.devices.is_empty()));
    let plan = |spec| plan(&Scene::of_types(all.clone(), vec![spec]).pods(1).build());
    assert_eq!(types(&plan(alike(2, PCI))), ["m.4xlarge", "m.8xlarge"]);
    let free = plan(spec(vec![exactly("gpu", on_gpu(2))]));
    assert_eq!(types(&free)[0], "m.2xlarge");
    // Types with other bindings have devices of their own in the launch.
    assert_eq!(free.launches[0].devices.len(), 2);
}

#[test]
fn node_pools_go_by_the_bindings_of_their_own_types() {
    let names = ["m.2xlarge"];
    let scene = Scene::of_types(types_with(&names, &[PLAIN; 2], &[]), vec![alike(2, PCI)]);
    let scene = Scene { builder: scene.builder.pool(on_demand("other")), ..scene };
    let mut bound = catalog(types_with(&names, &[PLAIN; 2], &[binding(PCI, &[0, 1])]));
    bound.node_class.name = "bound".to_owned();
    bound.instance_types.sort_by(|a, b| a.name.cmp(&b.name));
    let mut snapshot = scene.pods(1).build();
    snapshot.catalogs.push(bound.into());
    let pools = |snapshot: &crate::Snapshot| -> Vec<String> {
        plan(snapshot).launches.iter().map(|launch| launch.node_pool.clone()).collect()
    };
    assert!(pools(&snapshot).is_empty());
    for (at, name) in ["default", "other"].iter().enumerate() {
        let mut snapshot = snapshot.clone();
        snapshot.node_pools[at].catalog = Some(crate::snapshot::CatalogId(1));
        assert_eq!(pools(&snapshot), [*name]);
    }
}

#[test]
fn each_group_serves_one_claim() {
    let bindings = [binding(PCI, &[0, 3]), binding(PCI, &[1, 2])];
    let types = types_with(&["m.2xlarge"], &[PLAIN; 4], &bindings);
    let plan = plan(&Scene::of_types(types, vec![alike(2, PCI)]).pods(3).build());
    assert_eq!(plan.launches.len(), 2);
    let mut found = numbers(&plan);
    found.sort_unstable();
    assert_eq!(found, [["00", "03"], ["00", "03"], ["01", "02"]]);
}

#[test]
fn bindings_are_about_machines_that_have_not_published_their_devices() {
    let n_nominated = |phase: NodePhase| {
        let types = types_with(&["m.2xlarge"], &[PLAIN; 2], &[binding(PCI, &[0, 1])]);
        // Devices of the same names; what is published lacks the attribute for good.
        let mut pool = published("a", &[PLAIN; 2]);
        pool.name = "board".to_owned();
        let mut scene = Scene::of_types(types, vec![alike(2, PCI)]).pool(pool);
        let mut starting = node("a", "default", "m.2xlarge", "zone-a");
        starting.phase = phase;
        scene.builder = scene.builder.node(starting);
        plan(&scene.pods(1).build()).nominations.len()
    };
    assert_eq!(n_nominated(NodePhase::Registered), 1);
    assert_eq!(n_nominated(NodePhase::Initialized), 0);
}

#[test]
fn a_device_of_the_network_is_bound_to_nothing() {
    let types = types_with(&["m.2xlarge"], &[PLAIN], &[]);
    let mut pair = spec(vec![exactly("gpu", on_gpu(1)), exactly("net", ask(Some(1), &[REMOTE]))]);
    let n_launches = |spec: &ClaimSpec| {
        let mut fabric = binding(PCI, &[0]);
        let driver = "net.example.com".to_owned();
        let (pool, device) = ("fabric".to_owned(), "gpu-00".to_owned());
        fabric.devices.push(TemplateDevice { driver, pool, device });
        let mut types = types.clone();
        for kind in &mut types {
            kind.attribute_bindings = vec![fabric.clone()];
        }
        let scene = Scene::of_types(types, vec![spec.clone()]).pool(remote("zone-b", 1));
        plan(&scene.pods(1).build()).launches.len()
    };
    assert_eq!(n_launches(&pair), 1);
    pair.constraints.push(agree(PCI, &["gpu"]));
    assert_eq!(n_launches(&pair), 1);
    pair.constraints[0].requests.clear();
    assert_eq!(n_launches(&pair), 0);
}

#[test]
fn a_claim_without_an_instance_serves_only_if_each_of_its_types_has_the_bindings() {
    let promised = |names: &[&str]| {
        let mut types = types_with(&["m.2xlarge"], &[PLAIN; 2], &[binding(PCI, &[0, 1])]);
        let plain = types_with(&["m.4xlarge"], &[PLAIN; 2], &[]);
        types.retain(|kind| kind.name != "m.4xlarge");
        types.extend(plain.into_iter().filter(|kind| kind.name == "m.4xlarge"));
        let mut pending = node("a", "default", "m.2xlarge", "zone-a");
        pending.phase = NodePhase::Pending;
        pending.name = None;
        pending.labels.remove("node.kubernetes.io/instance-type");
        pending.requirements.push(need("node.kubernetes.io/instance-type", Operator::In, names));
        let mut scene = Scene::of_types(types, vec![alike(2, PCI)]);
        scene.builder = scene.builder.node(pending);
        plan(&scene.pods(1).build()).nominations.len()
    };
    assert_eq!(promised(&["m.2xlarge"]), 1);
    assert_eq!(promised(&["m.2xlarge", "m.4xlarge"]), 0);
}

#[test]
fn the_checker_follows_bindings_on_its_own() {
    let types = types_with(&["m.2xlarge"], &[PLAIN; 3], &[binding(PCI, &[0, 1])]);
    let snapshot = Scene::of_types(types, vec![alike(2, PCI)]).pods(1).build();
    let mut spoiled = plan(&snapshot);
    spoiled.launches[0].devices[0].claims[0].devices[1].device = "gpu-02".to_owned();
    let why = "its devices break a constraint";
    let found = crate::check(&snapshot, &spoiled);
    assert_eq!(found, [crate::check::Violation::Devices { claim: "pod-00".to_owned(), why }]);
}

#[test]
fn snapshots_without_bindings_look_as_they_did() {
    let types = types_with(&["m.2xlarge"], &[PLAIN; 2], &[binding(PCI, &[0, 1])]);
    let bound = types.iter().find(|kind| !kind.devices.is_empty()).expect("it has devices");
    let mut json = serde_json::to_value(bound).expect("plain data");
    let expected = r#"[{"attribute":"resource.kubernetes.io/pcieRoot","devices":[
        {"driver":"gpu.example.com","pool":"board","device":"gpu-00"},
        {"driver":"gpu.example.com","pool":"board","device":"gpu-01"}]}]"#;
    let expected: serde_json::Value = serde_json::from_str(expected).expect("JSON");
    assert_eq!(json["attributeBindings"], expected);
    let read = |json: &serde_json::Value| -> InstanceType {
        serde_json::from_value(json.clone()).expect("an instance type")
    };
    assert_eq!(read(&json), *bound);
    json.as_object_mut().expect("an object").remove("attributeBindings");
    let bare = read(&json);
    assert!(bare.attribute_bindings.is_empty());
    assert_eq!(serde_json::to_value(&bare).expect("plain data"), json);
}
