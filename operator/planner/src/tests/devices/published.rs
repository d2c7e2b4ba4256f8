//! Which devices of the cluster a pod may have: those of initialised nodes, of the network, of
//! claims that exist.

use super::*;
use crate::snapshot::{NodePhase, Operator, PoolState};

fn nominated(plan: &crate::Plan) -> Vec<(&str, &str)> {
    let nominations = plan.nominations.iter();
    nominations.map(|it| (&*it.pod.name, it.node.as_str())).collect()
}

#[test]
fn devices_that_are_there_are_used_before_machines_are_launched() {
    let scene = Scene::new(vec![plain(1)]).pool(published("a", &[PLAIN, PLAIN]));
    let plan = plan(&scene.node("a", "m.2xlarge", "zone-a").pods(3).build());
    assert_eq!(nominated(&plan), [("pod-00", "a"), ("pod-01", "a")]);
    assert_eq!(loads(&plan), [["pod-02"]]);
}

#[test]
fn pods_that_take_the_most_devices_choose_first() {
    let scene = Scene::new(vec![plain(2), plain(4)])
        .pool(published("a", &[PLAIN; 4]))
        .pool(published("b", &[PLAIN; 2]))
        .node("a", "m.4xlarge", "zone-a")
        .node("b", "m.4xlarge", "zone-a")
        .claim(claim("few", 0))
        .claim(claim("many", 1))
        .pod_of("few", shape(3000, GI), &[0], None)
        .pod_of("many", shape(1000, GI), &[1], None);
    let mut snapshot = scene.build();
    assert_eq!(nominated(&plan(&snapshot)), [("few", "b"), ("many", "a")]);
    // But a pod that is there comes before one that is not.
    snapshot.pods[1].buffer = Some("spare".to_owned());
    assert_eq!(nominated(&plan(&snapshot)), [("few", "a")]);
}

#[test]
fn devices_of_running_pods_are_taken() {
    let runs = Claim {
        allocation: Some(allocated("a", &["gpu-01"])),
        reserved_for: vec!["uid-runs".to_owned()],
        ..claim("a-runs", 0)
    };
    let scene = Scene::new(vec![plain(1)])
        .pool(published("a", &[PLAIN, PLAIN]))
        .node("a", "m.2xlarge", "zone-a")
        .claim(runs)
        .pod("runs", &[0], Some("a"));
    assert_eq!(nominated(&plan(&scene.pods(2).build())).len(), 1);
}

#[test]
fn devices_that_a_launch_takes_as_some_types_are_free_once_it_can_not_become_these() {
    let mut types = kinds();
    for kind in types.iter_mut().filter(|kind| kind.name == "m.2xlarge") {
        kind.devices.push(DeviceTemplate {
            driver: GPU.to_owned(),
            pool: "board".to_owned(),
            devices: of_kinds(&[PLAIN, PLAIN]),
            ..DeviceTemplate::default()
        });
    }
    let own = || ask(Some(1), &[PLAIN]);
    let of_network = || ask(Some(1), &[REMOTE]);
    let specs = vec![
        spec(vec![first_of("any", vec![own(), of_network()])]),
        spec(vec![exactly("own", own())]),
        spec(vec![exactly("net", of_network())]),
    ];
    let pods = |names: &[(&str, u32, i64)]| {
        let mut scene = Scene::of_types(types.clone(), specs.clone()).pool(remote("zone-a", 1));
        for (number, &(name, spec, cpu)) in (0..).zip(names) {
            scene = scene.claim(claim(name, spec)).pod_of(name, shape(cpu, GI), &[number], None);
        }
        plan(&scene.build())
            .report
            .pods
            .iter()
            .map(|it| it.pod.name.to_string())
            .collect::<Vec<_>>()
    };
    // As any type but one the first pod's machine takes the device of the network.
    assert_eq!(pods(&[("a", 0, 3000), ("c", 2, 1000)]), ["c"]);
    // The second one makes it that type.
    assert_eq!(pods(&[("a", 0, 3000), ("b", 1, 2000), ("c", 2, 1000)]), [""; 0]);
}

#[test]
fn a_node_that_is_starting_counts_with_what_its_type_will_have() {
    let in_phase = |phase: NodePhase| {
        // It has published one of its two devices so far.
        let mut scene = Scene::new(vec![plain(1)]).pool(published("a", &[PLAIN]));
        let mut starting = node("a", "default", "m.2xlarge", "zone-a");
        starting.phase = phase;
        scene.builder = scene.builder.node(starting);
        nominated(&plan(&scene.pods(2).build())).len()
    };
    assert_eq!(in_phase(NodePhase::Registered), 2);
    assert_eq!(in_phase(NodePhase::Initialized), 1);
}

#[test]
fn a_claim_without_an_instance_serves_as_each_of_its_types() {
    let promised = |types: &[&str]| {
        let mut pending = node("a", "default", "m.2xlarge", "zone-a");
        pending.phase = NodePhase::Pending;
        pending.name = None;
        pending.labels.remove("node.kubernetes.io/instance-type");
        pending.requirements.push(need("node.kubernetes.io/instance-type", Operator::In, types));
        let mut scene = Scene::new(vec![plain(2)]);
        scene.builder = scene.builder.node(pending);
        nominated(&plan(&scene.pods(1).build())).len()
    };
    assert_eq!(promised(&["m.2xlarge", "m.4xlarge"]), 1);
    assert_eq!(promised(&["m.xlarge", "m.2xlarge"]), 0);
}

#[test]
fn a_pool_that_is_not_complete_is_not_used() {
    let with = |state: PoolState, spec: ClaimSpec| {
        let pool = DevicePool { state, ..published("a", &[PLAIN, PLAIN]) };
        // Another driver's pool of the node is complete.
        let mut other = published("a", &[PLAIN]);
        other.driver = "other.example.com".to_owned();
        let scene = Scene::new(vec![spec]).pool(pool).pool(other).node("a", "c.large", "zone-a");
        nominated(&plan(&scene.pods(1).build())).len()
    };
    let all = || spec(vec![exactly("all", ask(None, &[PLAIN]))]);
    assert_eq!(with(PoolState::Complete, plain(3)), 1);
    assert_eq!(with(PoolState::Incomplete, plain(3)), 0);
    assert_eq!(with(PoolState::Incomplete, plain(1)), 1);
    // What all are can't be said then.
    assert_eq!(with(PoolState::Complete, all()), 1);
    assert_eq!(with(PoolState::Invalid("two devices a".to_owned()), all()), 0);
}

#[test]
fn an_allocated_claim_pins_its_pod() {
    let held = Claim { allocation: Some(allocated("b", &["gpu-00"])), ..claim("held", 0) };
    let scene = Scene::new(vec![plain(1)])
        .pool(published("a", &[PLAIN]))
        .pool(published("b", &[PLAIN]))
        .node("a", "m.xlarge", "zone-a")
        .node("b", "m.xlarge", "zone-a");
    let plan = plan(&scene.claim(held).pod("pod", &[0], None).build());
    assert_eq!(nominated(&plan), [("pod", "b")]);
}

#[test]
fn a_claim_that_is_allocated_to_a_node_that_is_full_makes_its_pod_wait() {
    let held = Claim { allocation: Some(allocated("a", &["gpu-00"])), ..claim("held", 0) };
    let mut scene = Scene::new(vec![plain(1)]).pool(published("a", &[PLAIN]));
    scene = scene.node("a", "m.xlarge", "zone-a").claim(held).pod("pod", &[0], None);
    scene.builder = scene.builder.pod("filler", shape(3800, GI), Some("a"));
    let expected = Exclusion::ClaimElsewhere { claim: "held".to_owned() };
    assert_eq!(*only_reason(&plan(&scene.build())), expected);
}

#[test]
fn an_allocation_for_a_zone_narrows_the_launch() {
    let term = NodeTerm {
        requirements: vec![need(super::super::behaviour::ZONE, Operator::In, &["zone-b"])],
        ..NodeTerm::default()
    };
    let held = Claim {
        allocation: Some(ClaimAllocation { nodes: vec![term], ..ClaimAllocation::default() }),
        ..claim("held", 0)
    };
    let plan = plan(&Scene::new(vec![plain(1)]).claim(held).pod("pod", &[0], None).build());
    let zone =
        plan.launches[0].requirements.iter().find(|it| it.key == super::super::behaviour::ZONE);
    assert_eq!(zone.expect("a zone").values, ["zone-b"]);
    // Nothing is to be published for it.
    assert!(!plan.launches[0].annotations.contains_key("karpenter.sh/requested-dra-drivers"));
}

#[test]
fn devices_of_the_network_narrow_a_launch_to_where_they_are_reached() {
    let remote_one = spec(vec![exactly("net", ask(Some(1), &[REMOTE]))]);
    let scene = Scene::new(vec![remote_one]).pool(remote("zone-c", 2));
    let plan = plan(&scene.pods(3).build());
    assert_eq!((loads(&plan).concat().len(), plan.report.pods.len()), (2, 1));
    let zones = plan.launches.iter().flat_map(|launch| &launch.requirements);
    let zones: Vec<_> = zones.filter(|it| it.key == super::super::behaviour::ZONE).collect();
    assert!(!zones.is_empty() && zones.iter().all(|it| it.values == ["zone-c"]), "{zones:?}");
}

#[test]
fn pods_that_share_a_claim_go_where_its_devices_are() {
    let scene = Scene::new(vec![plain(1)])
        .claim(claim("shared", 0))
        .pod("first", &[0], None)
        .pod("second", &[0], None)
        .pod("third", &[0], None);
    assert_eq!(loads(&plan(&scene.build())), [["first", "second", "third"]]);
}

#[test]
fn a_shared_claim_on_the_network_lets_its_pods_run_apart() {
    let remote_one = spec(vec![exactly("net", ask(Some(1), &[REMOTE]))]);
    let scene = Scene::new(vec![remote_one]).pool(remote("zone-a", 1)).claim(claim("shared", 0));
    let large = || shape(30_000, 2 * GI);
    let scene = scene.pod_of("first", large(), &[0], None).pod_of("second", large(), &[0], None);
    let plan = plan(&scene.build());
    assert_eq!(loads(&plan), [["first"], ["second"]]);
}

#[test]
fn claims_of_pods_that_leave_are_free_again() {
    let runs = |others: bool| {
        let held = Claim {
            allocation: Some(allocated("a", &["gpu-00"])),
            reserved_for: vec!["uid-moves".to_owned()],
            reserved_for_others: others,
            ..claim("held", 0)
        };
        let mut going = node("a", "default", "m.xlarge", "zone-a");
        going.deleting = true;
        let mut scene = Scene::new(vec![plain(1)]).pool(published("a", &[PLAIN])).claim(held);
        scene.builder = scene.builder.node(going);
        let plan = plan(&scene.pod("moves", &[0], Some("a")).build());
        loads(&plan).concat().len()
    };
    assert_eq!((runs(false), runs(true)), (1, 0));
}
