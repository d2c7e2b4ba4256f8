//! What requests ask for: counts, all, alternatives, constraints, counters, shares, admin access.

use super::*;
use crate::snapshot::{CapacityRange, DeviceCapacity, DeviceConstraint};

fn on_numa(count: u32) -> DeviceAsk {
    ask(Some(count), &[NUMA_0, NUMA_1])
}

fn match_numa(requests: &[&str], distinct: bool) -> DeviceConstraint {
    let requests = requests.iter().map(|&name| name.to_owned()).collect();
    DeviceConstraint { requests, attribute: NUMA.to_owned(), distinct }
}

/// The requests for which the devices of a plan's only claim were found, with the device.
fn chosen(plan: &crate::Plan) -> Vec<(&str, &str)> {
    let placed = plan.devices.iter().chain(plan.launches.iter().flat_map(|it| &it.devices)).next();
    let devices = placed.iter().flat_map(|placed| &placed.claims).flat_map(|it| &it.devices);
    devices.map(|it| (it.request.as_str(), it.device.as_str())).collect()
}

#[test]
fn all_takes_every_device_that_matches() {
    let all = spec(vec![exactly("all", ask(None, &[NUMA_0]))]);
    let plan = plan(&Scene::new(vec![all]).pods(1).build());
    assert_eq!(chosen(&plan), [("all", "gpu-00"), ("all", "gpu-01")]);
    assert_eq!(plan.launches[0].instance_types[0], "r.2xlarge");
}

#[test]
fn all_of_nothing_is_not_satisfied() {
    let all = spec(vec![exactly("all", ask(None, &[REMOTE]))]);
    let plan = plan(&Scene::new(vec![all]).pods(1).build());
    assert!(matches!(only_reason(&plan), Exclusion::Devices { requested: 0, found: 0, .. }));
}

#[test]
fn alternatives_are_tried_in_order_and_fall_through() {
    let wanted = |first: DeviceAsk| {
        let spec = spec(vec![first_of("any", vec![first, ask(Some(1), &[PLAIN])])]);
        let plan = plan(&Scene::new(vec![spec]).pods(1).build());
        let (request, _) = chosen(&plan)[0];
        (request.to_owned(), types(&plan)[0].to_owned())
    };
    // Types that serve any alternative are left; the cheapest counts.
    assert_eq!(wanted(ask(Some(99), &[PLAIN])), ("any/option-1".into(), "m.xlarge".into()));
    assert_eq!(wanted(ask(None, &[REMOTE])), ("any/option-1".into(), "m.xlarge".into()));
    assert_eq!(wanted(ask(Some(1), &[PLAIN, REMOTE])), ("any/option-0".into(), "m.xlarge".into()));
}

#[test]
fn an_alternative_is_given_up_when_what_follows_finds_nothing() {
    // Option 0 would take both devices of the node; then the second request has none.
    let greedy = first_of("any", vec![ask(Some(2), &[PLAIN]), ask(Some(1), &[PLAIN])]);
    let spec = spec(vec![greedy, exactly("other", ask(Some(1), &[PLAIN]))]);
    let scene = Scene::new(vec![spec]).pool(published("a", &[PLAIN, PLAIN]));
    let plan = plan(&scene.node("a", "m.2xlarge", "zone-a").pods(1).build());
    assert_eq!(chosen(&plan), [("any/option-1", "gpu-00"), ("other", "gpu-01")]);
}

#[test]
fn a_claim_has_at_most_32_devices() {
    let waits = |count: u32| {
        let pool = published("a", &[PLAIN; 40]);
        let scene = Scene::new(vec![plain(count)]).pool(pool).node("a", "m.2xlarge", "zone-a");
        !plan(&scene.pods(1).build()).report.pods.is_empty()
    };
    assert_eq!((waits(32), waits(33)), (false, true));
}

#[test]
fn devices_match_in_an_attribute() {
    let mut pair = spec(vec![exactly("gpu", on_numa(2))]);
    pair.constraints.push(match_numa(&[], false));
    let scene = |kinds: &[u32]| {
        let scene = Scene::new(vec![pair.clone()]).pool(published("a", kinds));
        plan(&scene.node("a", "c.large", "zone-a").pods(1).build())
    };
    assert_eq!(chosen(&scene(&[NUMA_0, NUMA_1, NUMA_1])), [("gpu", "gpu-01"), ("gpu", "gpu-02")]);
    // One of each does not do, nor does a device without the attribute.
    assert!(scene(&[NUMA_0, NUMA_1, PLAIN]).nominations.is_empty());
}

#[test]
fn devices_differ_in_an_attribute() {
    let mut pair = spec(vec![exactly("gpu", on_numa(2))]);
    pair.constraints.push(match_numa(&["gpu"], true));
    let plan = plan(&Scene::new(vec![pair]).pods(1).build());
    assert_eq!(chosen(&plan), [("gpu", "gpu-00"), ("gpu", "gpu-02")]);
}

#[test]
fn a_constraint_may_name_one_alternative() {
    let mut pair = spec(vec![first_of("any", vec![on_numa(3), on_numa(2)])]);
    // Three in one NUMA node are not there; two of different nodes are, since the second
    // alternative is not constrained.
    pair.constraints.push(match_numa(&["any/option-0"], false));
    let scene = Scene::new(vec![pair]).pool(published("a", &[NUMA_0, NUMA_1]));
    let plan = plan(&scene.node("a", "c.large", "zone-a").pods(1).build());
    assert_eq!(chosen(&plan), [("any/option-1", "gpu-00"), ("any/option-1", "gpu-01")]);
}

#[test]
fn what_differs_in_nothing_is_tried_once() {
    // Forty devices in which no two differ: without that the search would try every set of them.
    let mut pair = spec(vec![exactly("gpu", ask(Some(20), &[NUMA_0]))]);
    pair.constraints.push(match_numa(&[], true));
    let scene = Scene::new(vec![pair]).pool(published("a", &[NUMA_0; 40]));
    let plan = plan(&scene.node("a", "c.large", "zone-a").pods(1).build());
    assert!(matches!(only_reason(&plan), Exclusion::Devices { requested: 20, .. }));
}

/// A scene with one node that has published devices of one more kind.
fn with_kind(specs: Vec<ClaimSpec>, kind: DeviceKind, n: usize) -> Scene {
    let mut scene = Scene::new(specs);
    scene.devices.kinds.push(kind);
    let number = u32::try_from(scene.devices.kinds.len() - 1).expect("few kinds");
    let mut pool = published("a", &vec![number; n]);
    let set = [("slices".to_owned(), 4_i64)].into();
    pool.counters.insert("board".to_owned(), set);
    scene.pool(pool).node("a", "c.4xlarge", "zone-a")
}

const OWN: u32 = 4;

#[test]
fn partitions_draw_on_the_counters_of_their_pool() {
    let mut half = DeviceKind { driver: GPU.to_owned(), ..DeviceKind::default() };
    half.consumes.push(("board".to_owned(), "slices".to_owned(), 2));
    let one = spec(vec![exactly("gpu", ask(Some(1), &[OWN]))]);
    let plan = plan(&with_kind(vec![one], half, 5).pods(3).build());
    assert_eq!((plan.nominations.len(), plan.report.pods.len()), (2, 1));
}

fn shared(range: Option<CapacityRange>, default: Option<i64>) -> DeviceKind {
    let capacity = DeviceCapacity { value: 10_000, default, range, ..DeviceCapacity::default() };
    let capacity = [("memory".to_owned(), capacity)].into();
    DeviceKind { driver: GPU.to_owned(), shared: true, capacity, ..DeviceKind::default() }
}

fn of_memory(amount: Option<i64>) -> ClaimSpec {
    let mut one = ask(Some(1), &[OWN]);
    one.capacity = amount.map(|amount| ("memory".to_owned(), amount)).into_iter().collect();
    spec(vec![exactly("gpu", one)])
}

#[test]
fn claims_share_a_device_as_far_as_its_capacity_goes() {
    let range = CapacityRange { min: 1000, max: Some(8000), step: Some(1500) };
    let served = |kind: DeviceKind, amount: Option<i64>| {
        plan(&with_kind(vec![of_memory(amount)], kind, 1).pods(4).build()).nominations.len()
    };
    // 3,000 is rounded up to 4,000: the minimum and two steps.
    assert_eq!(served(shared(Some(range.clone()), None), Some(3000)), 2);
    assert_eq!(served(shared(Some(range.clone()), None), Some(500)), 4);
    assert_eq!(served(shared(Some(range.clone()), None), Some(9000)), 0);
    // Who asks for nothing gets the default, or all.
    assert_eq!(served(shared(Some(range.clone()), Some(5000)), None), 2);
    assert_eq!(served(shared(Some(range), None), None), 1);
}

#[test]
fn what_may_be_asked_for_of_a_shared_device() {
    let values = DeviceCapacity { value: 9, values: vec![2, 4, 8], ..DeviceCapacity::default() };
    let grants = [1, 4, 5, 9].map(|asked| values.grant(Some(asked)));
    assert_eq!(grants, [Some(2), Some(4), Some(8), None]);
    let whole = DeviceCapacity { value: 9, ..DeviceCapacity::default() };
    assert_eq!(
        [whole.grant(Some(3)), whole.grant(Some(10)), whole.grant(None)],
        [Some(9), None, Some(9)]
    );
}

#[test]
fn a_dimension_that_a_device_does_not_have_can_t_be_asked_for() {
    let mut asked = of_memory(None);
    asked.requests[0].alternatives[0].capacity.insert("cores".to_owned(), 1);
    let plan = plan(&with_kind(vec![asked], shared(None, Some(1)), 1).pods(1).build());
    assert!(plan.nominations.is_empty());
}

#[test]
fn admin_access_takes_nothing() {
    let mut monitor = ask(None, &[PLAIN]);
    monitor.admin = true;
    let monitor = spec(vec![exactly("watch", monitor)]);
    let in_use = Claim {
        allocation: Some(allocated("a", &["gpu-00"])),
        reserved_for: vec!["uid-runs".to_owned()],
        ..claim("b", 0)
    };
    let scene = Scene::new(vec![plain(1), monitor])
        .pool(published("a", &[PLAIN, PLAIN]))
        .node("a", "m.2xlarge", "zone-a")
        .claim(claim("a", 1))
        .claim(in_use)
        .claim(claim("c", 0))
        .pod("monitor", &[0], None)
        .pod("runs", &[1], Some("a"))
        .pod("comes", &[2], None);
    let plan = plan(&scene.build());
    assert_eq!(plan.nominations.len(), 2, "{:?}", plan.report.pods);
}

#[test]
fn all_devices_are_those_that_a_machine_reaches_and_it_may_be_where_it_reaches_fewer() {
    let mut alike = spec(vec![exactly("all", ask(None, &[NUMA_0, REMOTE]))]);
    alike.constraints.push(match_numa(&[], false));
    let scene = Scene::new(vec![alike]).pool(remote("zone-c", 1)).pods(1);
    let plan = plan(&scene.build());
    assert_eq!(loads(&plan).concat().len(), 1);
    let needs = &plan.launches[0].requirements;
    let zones = needs.iter().find(|it| it.key == super::super::behaviour::ZONE);
    let without = |it: &crate::snapshot::Requirement| {
        let named = it.values.iter().any(|zone| zone == "zone-c");
        named == (it.operator == crate::snapshot::Operator::NotIn)
    };
    assert!(zones.is_some_and(without), "{needs:?}");
}
