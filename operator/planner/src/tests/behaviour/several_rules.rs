//! Several rules of one kind on one pod: kube-scheduler looks at them together.

use super::*;
use crate::snapshot::Node;

const RACK: &str = "example.com/rack";

fn near_tier(mut shape: PodShape, key: &str) -> PodShape {
    shape = near(shape, key, "", false);
    let term = shape.pod_affinity.last_mut().expect("it was just added");
    term.selector = Some(LabelSelector {
        match_labels: Some([("tier".to_owned(), "1".to_owned())].into()),
        ..LabelSelector::default()
    });
    shape
}

fn tier(mut shape: PodShape) -> PodShape {
    shape.labels.insert("tier".to_owned(), "1".to_owned());
    shape
}

fn racked(key: &str, zone: &str, rack: Option<&str>) -> Node {
    let mut node = node(key, "default", "m.2xlarge", zone);
    node.labels.extend(rack.map(|rack| (RACK.to_owned(), rack.to_owned())));
    node
}

fn placed(snapshot: &crate::Snapshot) -> Vec<(String, String)> {
    let plan = plan(snapshot);
    assert!(plan.launches.is_empty(), "{:?}", plan.launches);
    let nominations = plan.nominations.into_iter();
    nominations.map(|nomination| (nomination.pod.name.to_string(), nomination.node)).collect()
}

fn on(pod: &str, node: &str) -> Vec<(String, String)> {
    vec![(pod.to_owned(), node.to_owned())]
}

#[test]
fn a_pod_counts_for_affinity_only_when_it_matches_all_required_terms() {
    let wants = near_tier(near(app("web", 100), ZONE, "x", false), ZONE);
    let world = |both: bool| {
        let peer = if both { tier(app("x", 100)) } else { tier(app("y", 100)) };
        builder()
            .pool(pool("default"))
            .node(racked("n1", "zone-a", None))
            .pod("x", app("x", 100), Some("n1"))
            .pod("tier", peer, Some("n1"))
            .pending("web", wants.clone())
            .build()
    };
    assert!(matches!(only_reason(&plan(&world(false))), Exclusion::Topology { .. }));
    assert_eq!(placed(&world(true)), on("web", "n1"));
}

#[test]
fn the_first_pod_with_affinity_to_itself_goes_anywhere_unless_one_matches_all_its_terms() {
    let mut first = tier(near_tier(near(app("web", 100), ZONE, "web", false), HOSTNAME));
    first.node_selector.insert(ZONE.to_owned(), "zone-b".to_owned());
    // A peer that matches one term only is none.
    let snapshot = builder()
        .pool(pool("default"))
        .node(racked("n1", "zone-a", None))
        .node(racked("n2", "zone-b", None))
        .pod("half", app("web", 100), Some("n1"))
        .pending("web", first)
        .build();
    assert_eq!(placed(&snapshot), on("web", "n2"));
}

#[test]
fn a_pod_with_a_peer_is_not_the_first_where_the_peers_node_lacks_one_of_the_topology_keys() {
    let wants = near(near(app("web", 100), ZONE, "web", false), RACK, "web", false);
    let snapshot = builder()
        .pool(pool("default"))
        .node(racked("n1", "zone-a", None))
        .node(racked("n2", "zone-a", Some("r1")))
        .pod("peer", app("web", 100), Some("n1"))
        .pending("web", wants)
        .build();
    assert!(
        matches!(only_reason(&plan(&snapshot)), Exclusion::Topology { key, .. } if key == RACK)
    );
}

#[test]
fn nodes_that_lack_a_key_of_any_required_spread_constraint_are_no_domains() {
    let wants = spread(spread(app("web", 100), ZONE, 1), RACK, 5);
    let snapshot = builder()
        .pool(pool("default"))
        .node(racked("n1", "zone-a", Some("r1")))
        .node(racked("n2", "zone-b", None))
        .pod("web-0", wants.clone(), Some("n1"))
        .pending("web-1", wants)
        .build();
    assert_eq!(placed(&snapshot), on("web-1", "n1"), "zone-b has no node that counts");
}

#[test]
fn pods_on_nodes_that_lack_a_key_of_any_required_spread_constraint_do_not_count() {
    let wants = spread(spread(app("web", 100), ZONE, 1), RACK, 5);
    let mut world = builder()
        .pool(pool("default"))
        .node(racked("n1", "zone-a", Some("r1")))
        .node(racked("n2", "zone-a", None))
        .node(racked("n3", "zone-b", Some("r2")))
        .pod("web-b", wants.clone(), Some("n3"));
    for number in 0..3 {
        world = world.pod(&format!("web-{number}"), app("web", 100), Some("n2"));
    }
    assert_eq!(placed(&world.pending("web", wants).build()), on("web", "n1"));
}

#[test]
fn machines_that_lack_a_key_of_a_required_spread_constraint_are_not_launched_for_evenness() {
    // Only the pool that is full has racks.
    let mut racks = pool("racks");
    racks.template.labels.insert(RACK.to_owned(), "r1".to_owned());
    racks.template.requirements.push(need(ZONE, Operator::In, &["zone-a"]));
    let wants = spread(spread(app("web", 100), ZONE, 1), RACK, 9);
    let mut world = builder().pool(racks).pool(pool("default"));
    for number in 0..4 {
        world = world.pending(&format!("web-{number}"), wants.clone());
    }
    let plan = plan(&world.build());
    assert_eq!(loads(&plan), [["web-0", "web-1", "web-2", "web-3"]]);
    assert_eq!(plan.launches[0].node_pool, "racks");
}

#[test]
fn spread_with_an_empty_selector_counts_nobody() {
    let mut wants = spread(app("web", 100), ZONE, 1);
    wants.topology_spread[0].selector = Some(LabelSelector::default());
    let mut world = builder()
        .pool(pool("default"))
        .node(racked("n1", "zone-a", None))
        .node(racked("n2", "zone-b", None));
    for number in 0..3 {
        world = world.pod(&format!("web-{number}"), app("web", 100), Some("n1"));
    }
    wants.node_selector.insert(ZONE.to_owned(), "zone-a".to_owned());
    assert_eq!(placed(&world.pending("web", wants).build()), on("web", "n1"));
}

#[test]
fn pods_that_need_machines_which_a_spread_constraint_does_not_look_at_do_not_count() {
    // Those that are spread run on at most eight cores, the others fit no such machine.
    let mut wants = spread(app("web", 100), ZONE, 1);
    wants.required_affinity = vec![vec![need("example.com/cpu", Operator::Lte, &["8"])]];
    let mut large = app("web", 9000);
    large.node_selector.insert(ZONE.to_owned(), "zone-c".to_owned());
    let mut world = builder().pool(pool("default"));
    for number in 0..3 {
        world = world.pending(&format!("large-{number}"), large.clone());
    }
    for number in 0..6 {
        world = world.pending(&format!("web-{number}"), wants.clone());
    }
    let plan = plan(&world.build());
    let small = plan
        .launches
        .iter()
        .filter(|launch| launch.pods.iter().any(|pod| pod.name.starts_with("web")));
    let mut counts: Vec<_> = small.map(|launch| launch.pods.len()).collect();
    counts.sort_unstable();
    assert_eq!(counts, [2, 2, 2]);
}

/// Whether a launch may become a machine with more than so many cores: certainly, or certainly not.
fn is_larger(launch: &crate::plan::Launch, cores: i64) -> bool {
    let kinds = kinds();
    let mut larger = launch.instance_types.iter().map(|name| {
        let kind = kinds.iter().find(|kind| kind.name == *name).expect("a known type");
        kind.capacity.cpu > cores * 1000
    });
    let first = larger.next().expect("a launch has types");
    assert!(larger.all(|other| other == first), "{:?}", launch.instance_types);
    first
}

/// How many pods of the spread are in each zone, as far as they are on machines with at most so
/// many cores.
fn counted(plan: &crate::Plan, counts: impl Fn(&crate::plan::Launch) -> bool) -> Vec<usize> {
    let mut zones = std::collections::BTreeMap::from(ZONES.map(|zone| (zone.to_owned(), 0)));
    for launch in plan.launches.iter().filter(|launch| counts(launch)) {
        let zone = launch.requirements.iter().find(|need| need.key == ZONE).expect("a zone");
        *zones.get_mut(&zone.values[0]).expect("a known zone") += launch.pods.len();
    }
    zones.into_values().collect()
}

#[test]
fn a_machine_that_gets_pods_which_a_spread_selects_certainly_counts_or_does_not() {
    // Those that are spread run on at most eight cores, and the others would share machines of
    // more.
    let mut wants = spread(app("web", 100), ZONE, 1);
    wants.required_affinity = vec![vec![need("example.com/cpu", Operator::Lte, &["8"])]];
    let mut large = app("web", 100);
    large.requests.memory = 20 * GI;
    let mut world = builder().pool(pool("default"));
    for number in 0..5 {
        world = world.pending(&format!("large-{number}"), large.clone());
    }
    for number in 0..3 {
        world = world.pending(&format!("huge-{number}"), app("web", 9000));
    }
    for number in 0..6 {
        world = world.pending(&format!("web-{number}"), wants.clone());
    }
    let plan = plan(&world.build());
    assert_eq!(plan.report.pods, []);
    let counted = counted(&plan, |launch| !is_larger(launch, 8));
    let (most, least) = (counted.iter().max(), counted.iter().min());
    assert!(most.zip(least).is_some_and(|(most, least)| most - least <= 1), "{counted:?}");
}

#[test]
fn pods_on_machines_that_limits_keep_small_do_not_count_for_a_spread_over_large_ones() {
    let mut wants = spread(app("web", 100), ZONE, 1);
    wants.required_affinity = vec![vec![need("example.com/cpu", Operator::Gt, &["4"])]];
    wants.tolerations.push(tolerate("dedicated"));
    let mut small = pool("small");
    small.limits.insert("cpu".to_owned(), 4000);
    let mut large = pool("large");
    large.template.taints.push(taint("dedicated", "NoSchedule"));
    let mut world = builder().pool(small).pool(large).pending("other", app("web", 700));
    for number in 0..6 {
        world = world.pending(&format!("web-{number}"), wants.clone());
    }
    let plan = plan(&world.build());
    assert_eq!(plan.report.pods, []);
    assert_eq!(counted(&plan, |launch| is_larger(launch, 4)), [2, 2, 2]);
}

#[test]
fn the_topology_key_that_keeps_a_pod_waiting_does_not_depend_on_the_order_of_shapes() {
    let both = near(near(app("web", 100), "example.com/team", "web", false), RACK, "web", false);
    let snapshot = builder()
        .pool(pool("default"))
        .pending("web", both)
        .pending("other", near(app("other", 100), RACK, "ghost", true))
        .build();
    let mut reversed = snapshot.clone();
    reversed.shapes.reverse();
    for pod in &mut reversed.pods {
        pod.shape.0 = 1 - pod.shape.0;
    }
    assert_eq!(plan(&snapshot).report.pods, plan(&reversed).report.pods);
}

/// Those that are packed once more differ in their rules only.
#[test]
fn which_of_equal_pods_share_a_machine_does_not_depend_on_the_order_of_shapes() {
    let mut few = kinds();
    few.retain(|kind| ["m.xlarge", "r.large"].contains(&kind.name.as_str()));
    for offer in few.iter_mut().flat_map(|kind| &mut kind.offerings) {
        offer.available = offer.zone == "zone-b" && offer.capacity_type == CapacityType::Spot;
    }
    let small = |cpu| PodShape { requests: shape(cpu, 128 << 20).requests, ..app("web", 100) };
    // For these there is no place, but they count as company of the others.
    let homeless = near(small(500), RACK, "ghost", false);
    let mut with_port = near(small(100), ZONE, "ghost", false);
    with_port.pod_affinity[0].weight = Some(1);
    with_port.host_ports.push(("TCP".to_owned(), String::new(), 8000));
    let mut apart = near(small(100), ZONE, "web", true);
    apart.pod_affinity[0].weight = Some(1);
    let mut world = Builder::new(catalog(few)).pool(pool("default"));
    for (number, shape) in
        (0..9).zip([&homeless, &with_port, &apart, &apart, &apart].map(|it| [it; 2]).concat())
    {
        world = world.pending(&format!("web-{number}"), shape.clone());
    }
    for number in 0..2 {
        world = world.pod_with(&format!("spare-{number}"), shape(700, GI), None, |pod| {
            pod.buffer = Some("spare".to_owned());
        });
    }
    let snapshot = world.build();
    let mut reversed = snapshot.clone();
    reversed.shapes.reverse();
    for pod in &mut reversed.pods {
        pod.shape.0 = 3 - pod.shape.0;
    }
    assert_eq!(plan(&snapshot).launches, plan(&reversed).launches);
}
