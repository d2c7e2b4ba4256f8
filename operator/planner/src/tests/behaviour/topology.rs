//! Topology: spread, affinity and anti-affinity.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelectorRequirement;

use super::*;
use crate::testing::dealing::refused;

fn zones(plan: &crate::Plan) -> Vec<String> {
    plan.launches
        .iter()
        .flat_map(|launch| {
            let zone = launch.requirements.iter().find(|need| need.key == ZONE).expect("a zone");
            assert_eq!(zone.values.len(), 1);
            std::iter::repeat_n(zone.values[0].clone(), launch.pods.len())
        })
        .collect()
}

#[test]
fn zonal_spread_is_even_within_its_skew() {
    let mut world = builder().pool(pool("default"));
    for i in 0..7 {
        world = world.pending(&format!("web-{i}"), spread(app("web", 500), ZONE, 1));
    }
    let plan = plan(&world.build());
    let mut counts = std::collections::BTreeMap::new();
    for zone in zones(&plan) {
        *counts.entry(zone).or_insert(0) += 1;
    }
    let mut counts: Vec<_> = counts.into_values().collect();
    counts.sort_unstable();
    assert_eq!(counts, [2, 2, 3]);
}

#[test]
fn spread_counts_only_domains_that_the_pod_may_use() {
    let mut world = builder().pool(pool("default"));
    for i in 0..4 {
        let mut shape = spread(app("web", 500), ZONE, 1);
        shape.node_selector.insert(ZONE.to_owned(), "zone-a".to_owned());
        world = world.pending(&format!("web-{i}"), shape);
    }
    let plan = plan(&world.build());
    assert_eq!(zones(&plan), ["zone-a"; 4]);
}

#[test]
fn hostname_spread_knows_that_there_is_always_one_more_host() {
    let mut world = builder().pool(pool("default"));
    for i in 0..4 {
        world = world.pending(&format!("web-{i}"), spread(app("web", 100), HOSTNAME, 2));
    }
    let plan = plan(&world.build());
    let mut counts: Vec<_> = plan.launches.iter().map(|launch| launch.pods.len()).collect();
    counts.sort_unstable();
    assert_eq!(counts, [2, 2]);
}

#[test]
fn anti_affinity_over_hosts_gives_each_its_own() {
    let mut world = builder().pool(pool("default"));
    for i in 0..3 {
        world = world.pending(&format!("db-{i}"), near(app("db", 100), HOSTNAME, "db", true));
    }
    assert_eq!(loads(&plan(&world.build())), [["db-0"], ["db-1"], ["db-2"]]);
}

#[test]
fn anti_affinity_over_zones_uses_every_zone_in_one_plan() {
    let mut world = builder().pool(pool("default"));
    for i in 0..4 {
        world = world.pending(&format!("db-{i}"), near(app("db", 100), ZONE, "db", true));
    }
    let plan = plan(&world.build());
    let mut used = zones(&plan);
    used.sort_unstable();
    assert_eq!(used, ["zone-a", "zone-b", "zone-c"]);
    assert!(matches!(only_reason(&plan), Exclusion::Topology { key, .. } if key == ZONE));
}

#[test]
fn anti_affinity_of_running_pods_keeps_others_away() {
    let snapshot = builder()
        .pool(pool("default"))
        .node(node("n1", "default", "m.2xlarge", "zone-a"))
        .pod("guard", near(app("guard", 100), ZONE, "web", true), Some("n1"))
        .pending("web", app("web", 100))
        .build();
    let plan = plan(&snapshot);
    assert!(plan.nominations.is_empty());
    assert_ne!(zones(&plan), ["zone-a"]);
}

/// A pod that keeps off `web`, by a rule that no other pod has.
fn guard(number: usize, key: &str) -> PodShape {
    let mut guard = near(app("guard", 10), key, "web", true);
    guard.pod_affinity[0].selector = Some(LabelSelector {
        match_expressions: Some(vec![LabelSelectorRequirement {
            key: "app".to_owned(),
            operator: "In".to_owned(),
            values: Some(vec!["web".to_owned(), format!("web-{number}")]),
        }]),
        ..LabelSelector::default()
    });
    guard
}

#[test]
fn every_one_of_many_rules_closes_its_domain() {
    let mut world = builder()
        .pool(pool("default"))
        .node(node("n1", "default", "m.2xlarge", "zone-a"))
        .node(node("n2", "default", "m.2xlarge", "zone-b"));
    // More than are weighed against each other.
    for number in 0..90 {
        let on = if number < 70 { "n1" } else { "n2" };
        world = world.pod(&format!("guard-{number:02}"), guard(number, ZONE), Some(on));
    }
    let plan = plan(&world.pending("web", app("web", 100)).build());
    assert_eq!((plan.nominations.len(), zones(&plan)), (0, vec!["zone-c".to_owned()]));
}

#[test]
fn every_one_of_many_rules_closes_its_host() {
    let mut world = builder().pool(pool("default"));
    for number in 0..90 {
        let key = format!("n{number:02}");
        let shape = guard(number, HOSTNAME);
        world = world.node(node(&key, "default", "m.2xlarge", "zone-a"));
        world = world.pod(&format!("guard-{number:02}"), shape, Some(&key));
    }
    world = world.node(node("n99", "default", "m.2xlarge", "zone-a"));
    let plan = plan(&world.pending("web", app("web", 100)).build());
    let nodes: Vec<_> = plan.nominations.iter().map(|nomination| &nomination.node).collect();
    assert_eq!(nodes, ["n99"]);
}

#[test]
fn affinity_starts_with_itself_and_then_stays_together() {
    let mut world = builder().pool(pool("default"));
    for i in 0..3 {
        world = world.pending(&format!("web-{i}"), near(app("web", 20_000), ZONE, "web", false));
    }
    let used = zones(&plan(&world.build()));
    assert_eq!(used, vec![used[0].clone(); 3]);
}

#[test]
fn affinity_to_a_pod_that_is_placed_later_is_met() {
    let snapshot = builder()
        .pool(pool("default"))
        .pending("big", near(app("big", 3000), ZONE, "small", false))
        .pending("small", app("small", 100))
        .build();
    let plan = plan(&snapshot);
    let used = zones(&plan);
    assert_eq!((used.len(), &used[0]), (2, &used[1]));
}

#[test]
fn affinity_to_nobody_waits() {
    let snapshot = builder()
        .pool(pool("default"))
        .pending("web", near(app("web", 100), ZONE, "ghost", false))
        .build();
    assert!(matches!(only_reason(&plan(&snapshot)), Exclusion::Topology { .. }));
}

#[test]
fn volumes_pin_the_zone_without_shrinking_what_spread_counts() {
    let mut pinned = spread(app("web", 100), ZONE, 1);
    pinned.volume_topology = vec![vec![need(ZONE, Operator::In, &["zone-b"])]];
    let snapshot = builder()
        .pool(pool("default"))
        .pending("web-0", pinned.clone())
        .pending("web-1", pinned)
        .build();
    let plan = plan(&snapshot);
    assert_eq!(zones(&plan), ["zone-b"]);
    assert!(matches!(only_reason(&plan), Exclusion::Topology { key, .. } if key == ZONE));
}

/// kube-scheduler counts a node although the pods can't use it, unless the constraint honours
/// taints.
#[test]
fn zones_that_only_others_can_have_machines_in_count_for_spread() {
    let (mut usual, mut special) = (pool("default"), pool("special"));
    usual.template.requirements.push(need(ZONE, Operator::NotIn, &["zone-c"]));
    special.template.requirements.push(need(ZONE, Operator::In, &["zone-c"]));
    special.template.taints.push(taint("dedicated", "NoSchedule"));
    let placed = |honor_taints: bool, others: usize| {
        let mut world = builder().pool(usual.clone()).pool(special.clone());
        for number in 0..4 {
            let mut web = spread(app("web", 100), ZONE, 1);
            web.topology_spread[0].honor_taints = honor_taints;
            world = world.pending(&format!("web-{number}"), web);
        }
        for number in 0..others {
            let mut other = app("other", 100);
            other.tolerations.push(tolerate("dedicated"));
            other.node_selector.insert(ZONE.to_owned(), "zone-c".to_owned());
            world = world.pending(&format!("other-{number}"), other);
        }
        let snapshot = world.build();
        let plan = plan(&snapshot);
        assert_eq!(refused(&snapshot, &plan, 1), []);
        4 - plan.report.pods.len()
    };
    assert_eq!((placed(false, 1), placed(true, 1), placed(false, 0)), (2, 4, 4));
}

/// Of pods on nodes that lack one of several topology keys it must be certain that they don't
/// count.
#[test]
fn machines_are_narrowed_where_only_some_types_have_a_further_topology_key() {
    const GPU: &str = "example.com/gpu";
    let mut kinds = kinds();
    for kind in &mut kinds {
        let has = kind.name.starts_with('r');
        let needed = if has {
            need(GPU, Operator::In, &["yes"])
        } else {
            need(GPU, Operator::DoesNotExist, &[])
        };
        kind.requirements.push(needed);
        kind.requirements.sort_by(|a, b| a.key.cmp(&b.key));
    }
    let mut full = node("full", "default", "r.large", "zone-b");
    full.labels.insert(GPU.to_owned(), "yes".to_owned());
    let in_zone = |mut shape: PodShape, zone: &str| {
        shape.node_selector.insert(ZONE.to_owned(), zone.to_owned());
        shape
    };
    let mut train = in_zone(spread(app("web", 500), ZONE, 1), "zone-a");
    train.topology_spread[0].honor_affinity = false;
    train.labels.insert("role".to_owned(), "train".to_owned());
    let mut by_gpu = train.topology_spread[0].clone();
    by_gpu.topology_key = GPU.to_owned();
    by_gpu.max_skew = 5;
    by_gpu.selector = Some(LabelSelector {
        match_labels: Some([("role".to_owned(), "train".to_owned())].into()),
        ..LabelSelector::default()
    });
    train.topology_spread.push(by_gpu);
    let snapshot = Builder::new(catalog(kinds))
        .pool(on_demand("default"))
        .node(full)
        .pod("filler", app("filler", 1_800), Some("full"))
        .pending("web-b", in_zone(app("web", 1_500), "zone-b"))
        .pending("web-c", in_zone(app("web", 1_500), "zone-c"))
        .pending("train-0", train.clone())
        .pending("train-1", train)
        .build();
    let plan = plan(&snapshot);
    assert_eq!(refused(&snapshot, &plan, 1), []);
    assert_eq!(plan.report.pods.len(), 1, "{:?}", plan.report.pods);
}

const CAPACITY_TYPE: &str = "karpenter.sh/capacity-type";

/// Types of which only some offerings are on sale.
fn sold(offer: impl Fn(&str, &str, CapacityType) -> bool) -> Builder {
    let mut kinds = kinds();
    for kind in &mut kinds {
        for offering in &mut kind.offerings {
            offering.available = offer(&kind.name, &offering.zone, offering.capacity_type);
        }
    }
    Builder::new(catalog(kinds))
}

#[test]
fn domains_are_chosen_so_that_those_of_all_keys_go_together() {
    for (evened, kept_away) in [(ZONE, CAPACITY_TYPE), (CAPACITY_TYPE, ZONE)] {
        // Evenness asks for spot in zone-a, from where the guard keeps the pod away.
        let mut spot = node("n1", "default", "c.large", "zone-a");
        spot.labels.insert(CAPACITY_TYPE.to_owned(), "spot".to_owned());
        let on_demand = node("n2", "default", "c.large", "zone-b");
        let snapshot = sold(|_, zone, capacity_type| match capacity_type {
            CapacityType::Spot => zone == "zone-a",
            _ => zone == "zone-b",
        })
        .pool(pool("default"))
        .node(spot)
        .node(on_demand)
        .pod("guard", near(app("guard", 1000), kept_away, "web", true), Some("n1"))
        .pod("web-0", spread(app("web", 1500), evened, 2), Some("n2"))
        .pending("web-1", spread(app("web", 1500), evened, 2))
        .build();
        let plan = plan(&snapshot);
        assert_eq!(loads(&plan), [["web-1"]], "{:?}", plan.report.pods);
        assert_eq!(plan.launches[0].capacity_types, [CapacityType::OnDemand]);
    }
}

#[test]
fn a_zone_that_sells_nothing_large_enough_is_passed_over() {
    let snapshot = sold(|name, zone, _| zone == "zone-b" || !name.ends_with("8xlarge"))
        .pool(pool("default"))
        .node(node("a", "default", "m.large", "zone-a"))
        .pod("small", app("big", 100), Some("a"))
        .pending("big", spread(app("big", 30_000), ZONE, 1))
        .build();
    assert_eq!(zones(&plan(&snapshot)), ["zone-b"]);
}

#[test]
fn a_pod_waits_for_the_rule_that_keeps_it_from_a_large_machine_not_for_the_size_of_a_small_one() {
    // The rule about racks comes after the one about capacity types, each of which is tried.
    let rack = "rack";
    let mut on_spot = node("there", "default", "c.large", "zone-a");
    on_spot.labels.insert(CAPACITY_TYPE.to_owned(), "spot".to_owned());
    on_spot.labels.insert(rack.to_owned(), "r1".to_owned());
    let mut there = near(app("db", 1_800), CAPACITY_TYPE, "db", false);
    there.pod_affinity[0].weight = Some(1);
    let mut wants = near(app("db", 100), rack, "db", true);
    wants.requests.memory = 20 * GI;
    let small_spot = |kind: &str, _: &str, capacity_type| match capacity_type {
        CapacityType::Spot => kind == "c.large",
        _ => kind == "r.8xlarge",
    };
    let world = sold(small_spot)
        .pool(pool("default"))
        .node(on_spot)
        .pod("there", there, Some("there"))
        .pending("db", wants);
    let plan = plan(&world.build());
    let Exclusion::Topology { key, rule } = only_reason(&plan) else { panic!("{plan:?}") };
    assert_eq!((key.as_str(), rule.as_str()), (rack, crate::topology::UNTOLD));
}
