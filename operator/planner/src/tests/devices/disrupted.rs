//! Disruption of nodes whose pods have claims.

use super::*;
use crate::plan::StayReason;

/// A node `a` with a pod that has one of its devices, and a node `b` with so many devices.
fn scene(free: usize) -> Scene {
    let held = Claim {
        allocation: Some(allocated("a", &["gpu-00"])),
        reserved_for: vec!["uid-runs".to_owned()],
        ..claim("held", 0)
    };
    let busy = Claim {
        allocation: Some(allocated("b", &["gpu-00"])),
        reserved_for: vec!["uid-stays".to_owned()],
        ..claim("other", 0)
    };
    Scene::new(vec![plain(1)])
        .pool(published("a", &[PLAIN]))
        .pool(published("b", &vec![PLAIN; free + 1]))
        .node("a", "m.xlarge", "zone-a")
        .node("b", "m.2xlarge", "zone-a")
        .claim(held)
        .claim(busy)
        .pod("runs", &[0], Some("a"))
        .pod_of("stays", shape(5000, 20 * GI), &[1], Some("b"))
}

#[test]
fn a_node_goes_when_another_has_devices_for_its_pods() {
    let snapshot = scene(1).build();
    let plan = disruption(&snapshot);
    assert_eq!(plan.commands.len(), 1, "{:?}", plan.report.nodes);
    let command = &plan.commands[0];
    assert_eq!((&command.candidates[0].node[..], &command.nominations[0].node[..]), ("a", "b"));
    assert_eq!(command.devices[0].claims[0].devices[0].device, "gpu-01");
    let policy = crate::Policy::default();
    assert_eq!(crate::revalidate(command, &snapshot, &policy, now()), Ok(()));
    // Later the device is gone.
    let mut taken = Devices::clone(snapshot.devices.as_ref().expect("devices"));
    let allocation = taken.claims[1].allocation.as_mut().expect("an allocation");
    allocation.devices.extend(allocated("b", &["gpu-01"]).devices);
    let later = crate::Snapshot { devices: Some(std::sync::Arc::new(taken)), ..snapshot.clone() };
    assert!(crate::revalidate(command, &later, &policy, now()).is_err());
}

#[test]
fn a_node_stays_when_no_other_has_devices_for_its_pods() {
    let plan = disruption(&scene(0).build());
    assert!(plan.commands.is_empty(), "{:?}", plan.commands);
    let stay = plan.report.nodes.iter().find(|node| node.node == "a");
    let reason = &stay.expect("it was looked at").reason;
    assert!(
        matches!(reason, StayReason::NothingCheaper | StayReason::NeedsSeveralReplacements),
        "{reason:?}"
    );
}

#[test]
fn a_node_is_replaced_by_a_cheaper_one_with_the_devices() {
    let held = Claim {
        allocation: Some(allocated("a", &["gpu-00"])),
        reserved_for: vec!["uid-runs".to_owned()],
        ..claim("held", 0)
    };
    let scene = Scene::new(vec![plain(1)])
        .pool(published("a", &[PLAIN; 8]))
        .node("a", "m.8xlarge", "zone-a")
        .claim(held)
        .pod("runs", &[0], Some("a"));
    let plan = disruption(&scene.build());
    let launch = &plan.commands[0].replacements[0];
    assert_eq!(launch.instance_types[0], "m.xlarge");
    assert_eq!(launch.annotations["karpenter.sh/requested-dra-drivers"], GPU);
}

#[test]
fn what_one_command_frees_on_the_network_is_not_there_for_another() {
    let remote_one = spec(vec![exactly("net", ask(Some(1), &[REMOTE]))]);
    let held = |name: &str, uid: &str, device: &str| {
        let mut allocation = allocated("fabric", &[device]);
        allocation.devices[0].driver = "net.example.com".to_owned();
        allocation.nodes[0].name = None;
        let reserved_for = vec![uid.to_owned()];
        Claim { allocation: Some(allocation), reserved_for, ..claim(name, 0) }
    };
    let scene = Scene::new(vec![remote_one])
        .pool(remote("zone-a", 2))
        .node("a", "m.xlarge", "zone-a")
        .node("b", "m.xlarge", "zone-a")
        .node("c", "m.4xlarge", "zone-a")
        .claim(held("one", "uid-one", "gpu-00"))
        .claim(held("two", "uid-two", "gpu-01"))
        .pod("one", &[0], Some("a"))
        .pod("two", &[1], Some("b"));
    let plan = disruption(&scene.build());
    let devices = plan.commands.iter().flat_map(|command| &command.devices);
    let given = devices
        .flat_map(|placed| &placed.claims)
        .map(|claim| (claim.name.as_str(), claim.devices[0].device.as_str()));
    for (claim, device) in given {
        assert_eq!(device, if claim == "one" { "gpu-00" } else { "gpu-01" });
    }
}
