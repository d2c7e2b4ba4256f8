//! The checker finds what is wrong with the devices of a plan.

use super::*;
use crate::check::{Violation, check};
use crate::{Plan, Snapshot};

/// Two pods on a node, one on a machine to come.
fn good() -> (Snapshot, Plan) {
    let scene = Scene::new(vec![plain(1)])
        .pool(published("a", &[PLAIN, PLAIN, NUMA_0]))
        .node("a", "m.2xlarge", "zone-a")
        .pods(3);
    let snapshot = scene.build();
    let plan = plan(&snapshot);
    assert_eq!((plan.nominations.len(), plan.launches.len()), (2, 1));
    (snapshot, plan)
}

fn complaints(spoil: impl FnOnce(&mut Plan)) -> Vec<&'static str> {
    let (snapshot, mut plan) = good();
    spoil(&mut plan);
    let found = check(&snapshot, &plan);
    let why = found.into_iter().map(|violation| match violation {
        Violation::Devices { why, .. } => why,
        other => panic!("{other:?}"),
    });
    why.collect()
}

#[test]
fn every_way_to_spoil_the_devices_of_a_plan_is_found() {
    assert_eq!(complaints(|_| {}), [""; 0]);
    assert_eq!(complaints(|plan| plan.devices.clear()), ["no devices were found for it"; 2]);
    let on_node = |change: fn(&mut crate::plan::ChosenDevice)| {
        complaints(|plan| change(&mut plan.devices[0].claims[0].devices[0]))
    };
    assert_eq!(
        on_node(|device| device.device = "gpu-01".to_owned()),
        ["a device is given away twice"]
    );
    assert_eq!(on_node(|device| device.device = "gpu-09".to_owned()), ["a device is not there"]);
    assert_eq!(
        on_node(|device| device.device = "gpu-02".to_owned()),
        ["a request gets other devices than it asks for"]
    );
    assert_eq!(
        on_node(|device| device.request = "other".to_owned()),
        ["a device is for no request", "a request has no devices, or those of two alternatives"]
    );
    assert_eq!(on_node(|device| device.template = true), ["a device is not there"]);
    assert_eq!(
        on_node(|device| device.admin = true),
        ["a request gets other devices than it asks for"]
    );
    let fewer = |plan: &mut Plan| {
        plan.launches[0].devices[0].instance_types.remove(0);
    };
    assert_eq!(complaints(fewer), ["the machine may become a type without devices for it"]);
    let away = |plan: &mut Plan| {
        let claim = plan.devices[0].claims.remove(0);
        plan.launches[0].devices[0].claims.push(claim);
    };
    assert!(complaints(away).contains(&"a device is not there"));
}
