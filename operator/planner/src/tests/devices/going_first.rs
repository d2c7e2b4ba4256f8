//! Nodes that go before their replacement, with pods that have claims.

use jiff::Timestamp;

use super::super::disrupting::commands;
use super::super::reserved::{CAPACITY_TYPE, ID, pool_of, with_reservations};
use super::*;
use crate::snapshot::{DisruptionReason, Node, Snapshot};
use crate::{Plan, Policy, check, disrupt};

/// Types of which `m.xlarge` has a full reservation and one device.
fn scene() -> Scene {
    let mut types = with_reservations(&[("m.xlarge", "cr-1", 0)]);
    for kind in types.iter_mut().filter(|kind| kind.name == "m.xlarge") {
        kind.devices = vec![DeviceTemplate {
            driver: GPU.to_owned(),
            pool: "board".to_owned(),
            devices: of_kinds(&[PLAIN]),
            ..DeviceTemplate::default()
        }];
    }
    let builder = Builder::new(catalog(types)).pool(pool_of("default", &["reserved"]));
    Scene { builder, ..Scene::new(vec![plain(1)]) }
}

/// A drifted node in the reservation.
fn reserved(key: &str) -> Node {
    let mut node = node(key, "default", "m.xlarge", "zone-a");
    node.labels.insert(CAPACITY_TYPE.to_owned(), "reserved".to_owned());
    node.labels.insert(ID.to_owned(), "cr-1".to_owned());
    let claim = node.claim.as_mut().expect("a claim");
    claim.drifted = Some(("NodePoolDrifted".to_owned(), Timestamp::UNIX_EPOCH));
    node
}

impl Scene {
    /// A drifted node with a pod that has its device.
    fn in_use(mut self, key: &str) -> Self {
        let next = u32::try_from(self.devices.claims.len()).expect("few claims");
        self.builder = self.builder.node(reserved(key));
        let pod = format!("pod-{key}");
        let claim = Claim {
            allocation: Some(allocated(key, &["gpu-00"])),
            reserved_for: vec![format!("uid-{pod}")],
            ..claim(&pod, 0)
        };
        self.pool(published(key, &[PLAIN])).claim(claim).pod(&pod, &[next], Some(key))
    }
}

fn planned(snapshot: &Snapshot) -> Plan {
    snapshot.validate().expect("a valid snapshot");
    let policy = Policy { terminate_first_drift: true, ..Policy::default() };
    let plan = disrupt(snapshot, &policy, now(), 1, &());
    assert_eq!(check(snapshot, &plan), []);
    plan
}

/// Of each command the devices on machines that are there, and on the one to come once its node has
/// gone.
fn devices(plan: &Plan) -> Vec<(usize, usize)> {
    let of = |command: &crate::plan::Command| {
        let first = command.terminate_first.as_ref().and_then(|first| first.launch.as_ref());
        (command.devices.len(), first.map_or(0, |launch| launch.devices.len()))
    };
    plan.commands.iter().map(of).collect()
}

#[test]
fn a_node_goes_first_if_the_machine_after_it_serves_the_claims_of_its_pods() {
    let plan = planned(&scene().in_use("a").in_use("b").build());
    let drifted = DisruptionReason::Drifted;
    assert_eq!(commands(&plan), [(drifted, "a", 0), (drifted, "b", 0)]);
    assert_eq!(devices(&plan), [(0, 1), (0, 1)]);
    // What its machine would have does not do.
    let mut two = scene().in_use("a");
    two.devices.specs[0] = plain(2);
    assert_eq!(commands(&planned(&two.build())), []);
}

#[test]
fn pods_without_claims_go_first_as_ever() {
    let mut scene = scene();
    scene.builder = scene.builder.node(reserved("a"));
    let plan = planned(&scene.pod("web", &[], Some("a")).build());
    assert_eq!(commands(&plan), [(DisruptionReason::Drifted, "a", 0)]);
}

#[test]
fn what_goes_first_has_no_devices_that_another_command_takes() {
    let mut scene = scene().in_use("a").in_use("b");
    let mut other = node("other", "default", "m.xlarge", "zone-a");
    other.claim.as_mut().expect("a claim").consolidatable = None;
    scene.builder = scene.builder.node(other);
    let plan = planned(&scene.pool(published("other", &[PLAIN])).build());
    // The device that is free serves the one, a machine to come the other.
    assert_eq!(plan.commands.len(), 2);
    assert_eq!(devices(&plan), [(1, 0), (0, 1)]);
}
