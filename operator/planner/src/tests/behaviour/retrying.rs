//! Alternatives of one pod: which of them count, in which order, and that none is lost while the
//! pod is tried again.

use super::*;

fn zone_of(plan: &crate::Plan, pod: &str) -> Vec<String> {
    let launch = plan.launches.iter().find(|launch| launch.pods.iter().any(|it| *it.name == *pod));
    let needs = &launch.expect("the pod has a machine").requirements;
    needs.iter().find(|need| need.key == ZONE).map(|need| need.values.clone()).unwrap_or_default()
}

#[test]
fn a_pod_that_is_tried_again_has_all_its_preferences() {
    // At first there is nobody to be near to, whatever the pod does without.
    let mut big = near(app("big", 3000), ZONE, "small", false);
    big.preferred_affinity = vec![(1, vec![need(ZONE, Operator::In, &["zone-b"])])];
    let mut world = builder().pool(pool("default")).pending("big", big);
    for zone in ["zone-a", "zone-b", "zone-c"] {
        let mut small = app("small", 100);
        small.node_selector.insert(ZONE.to_owned(), zone.to_owned());
        world = world.pending(&format!("small-{zone}"), small);
    }
    assert_eq!(zone_of(&plan(&world.build()), "big"), ["zone-b"]);
}

#[test]
fn the_first_required_term_that_can_be_met_counts() {
    let mut wants = shape(500, GI);
    let in_zone = |zone| vec![need(ZONE, Operator::In, &[zone])];
    wants.required_affinity = vec![in_zone("zone-b"), in_zone("zone-a")];
    let snapshot = builder().pool(pool("default")).pending("web", wants).build();
    assert_eq!(zone_of(&plan(&snapshot), "web"), ["zone-b"]);
}

#[test]
fn the_heaviest_preference_counts_where_two_exclude_each_other() {
    let mut wants = shape(500, GI);
    let in_zone = |zone| vec![need(ZONE, Operator::In, &[zone])];
    wants.preferred_affinity =
        vec![(1, in_zone("zone-a")), (50, in_zone("zone-b")), (2, in_zone("zone-c"))];
    let snapshot = builder().pool(pool("default")).pending("web", wants).build();
    assert_eq!(zone_of(&plan(&snapshot), "web"), ["zone-b"]);
}

#[test]
fn node_affinity_counts_for_spread_unless_the_policy_says_ignore() {
    // Three pods run where the new one must not go, one where it may; there is no room beside that.
    let launched_in = |honor_affinity: bool| {
        let mut team = pool("team");
        team.template.labels.insert("team".to_owned(), "x".to_owned());
        team.template.requirements.push(need(ZONE, Operator::In, &["zone-a", "zone-b"]));
        let mut own = node("own", "team", "m.large", "zone-b");
        own.labels.insert("team".to_owned(), "x".to_owned());
        let mut pending = spread(app("web", 1000), ZONE, 1);
        pending.node_selector.insert("team".to_owned(), "x".to_owned());
        pending.topology_spread[0].honor_affinity = honor_affinity;
        let mut world =
            builder().pool(team).node(own).pod("web-own", app("web", 1800), Some("own"));
        world = world.node(node("other", "team", "m.xlarge", "zone-a"));
        for number in 0..3 {
            world = world.pod(&format!("web-{number}"), app("web", 1000), Some("other"));
        }
        zone_of(&plan(&world.pending("web", pending).build()), "web")
    };
    assert_eq!(launched_in(true), ["zone-a"], "there are none that count");
    assert_eq!(launched_in(false), ["zone-b"], "there are three");
}

#[test]
fn affinity_to_itself_waits_while_its_only_peer_is_where_the_pod_can_not_go() {
    let mut pinned = near(app("web", 100), ZONE, "web", false);
    pinned.node_selector.insert(ZONE.to_owned(), "zone-b".to_owned());
    let world = |peer: bool| {
        let world =
            builder().pool(pool("default")).node(node("n1", "default", "m.large", "zone-a"));
        let world = if peer { world.pod("peer", app("web", 100), Some("n1")) } else { world };
        plan(&world.pending("web", pinned.clone()).build())
    };
    assert_eq!(zone_of(&world(false), "web"), ["zone-b"], "the first of its kind");
    assert!(matches!(only_reason(&world(true)), Exclusion::Topology { key, .. } if key == ZONE));
}

#[test]
fn a_pod_with_any_number_of_alternatives_gets_the_one_that_can_be_met() {
    let nowhere = |number: usize| vec![need(ZONE, Operator::In, &[&format!("zone-{number}")])];
    let last = |n: usize, zone: &str| {
        let mut terms: Vec<_> = (0..n - 1).map(nowhere).collect();
        terms.push(vec![need(ZONE, Operator::In, &[zone])]);
        terms
    };
    let mut prefers = shape(500, GI);
    prefers.preferred_affinity = (0..300).map(|number| (1, nowhere(number))).collect();
    let mut requires = shape(500, GI);
    requires.required_affinity = last(1000, "zone-b");
    let mut both = shape(500, GI);
    both.required_affinity = last(20, "zone-b");
    both.volume_topology = last(20, "zone-b");
    both.preferred_affinity = (0..20).map(|number| (1, nowhere(number))).collect();
    let mut apart = both.clone();
    apart.labels.insert("app".to_owned(), "web".to_owned());
    for number in 0..2000 {
        apart = near(apart, &format!("example.com/{number}"), "web", true);
        apart.pod_affinity[number].weight = Some(1);
    }
    for shape in [prefers, requires, both, apart] {
        let snapshot = builder().pool(pool("default")).pending("web", shape).build();
        let plan = plan(&snapshot);
        assert_eq!(loads(&plan), [["web"]], "{:?}", plan.report.pods);
    }
}

#[test]
fn a_pod_with_a_rule_and_any_number_of_alternatives_gets_the_one_that_can_be_met() {
    let mut apart = near(app("web", 500), HOSTNAME, "web", true);
    let zone = |name: &str| vec![need(ZONE, Operator::In, &[name])];
    apart.required_affinity = (0..999).map(|number| zone(&format!("zone-{number}"))).collect();
    apart.required_affinity.push(zone("zone-b"));
    let world = builder().pool(pool("default")).pending("web-0", apart.clone());
    let plan = plan(&world.pending("web-1", apart).build());
    assert_eq!(loads(&plan), [["web-0"], ["web-1"]], "{:?}", plan.report.pods);
}
