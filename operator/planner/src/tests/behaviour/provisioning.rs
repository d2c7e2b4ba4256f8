//! Provisioning: pools, labels, taints, daemons, limits, reasons.

use super::*;

#[test]
fn one_pod_gets_the_cheapest_machine_and_many_alternatives() {
    let snapshot = builder().pool(on_demand("default")).pending("web", shape(500, GI)).build();
    let plan = plan(&snapshot);
    let launch = &plan.launches[0];
    assert_eq!(launch.instance_types[0], "c.large");
    assert_eq!(launch.instance_types.len(), 15);
    assert_eq!(launch.price, usd(0.085));
    assert_eq!(launch.capacity_types, [CapacityType::OnDemand]);
    assert_eq!(launch.requests.cpu, 500);
}

#[test]
fn a_launch_carries_at_most_so_many_types() {
    let snapshot = builder().pool(pool("default")).pending("web", shape(500, GI)).build();
    let policy = Policy { max_instance_types: 3, ..Policy::default() };
    let plan = plan_with(&snapshot, &policy);
    assert_eq!(plan.launches[0].instance_types, ["c.large", "m.large", "r.large"]);
    let of_types = plan.launches[0].requirements.iter().find(|need| need.key == TYPE);
    assert_eq!(of_types.expect("types").values, ["c.large", "m.large", "r.large"]);
}

#[test]
fn nodepools_tie_break_by_name_descending() {
    let snapshot = builder().pool(pool("a")).pool(pool("b")).pending("web", shape(1, 1)).build();
    assert_eq!(plan(&snapshot).launches[0].node_pool, "b");
    let mut heavy = pool("a");
    heavy.weight = 10;
    let snapshot = builder().pool(heavy).pool(pool("b")).pending("web", shape(1, 1)).build();
    assert_eq!(plan(&snapshot).launches[0].node_pool, "a");
}

#[test]
fn existing_nodes_use_strict_label_compatibility_and_new_ones_allow_undefined_well_known_labels() {
    let mut on_node = node("n1", "default", "m.xlarge", "zone-a");
    on_node.labels.remove("kubernetes.io/arch");
    let mut wants = shape(500, GI);
    wants.node_selector.insert("kubernetes.io/arch".to_owned(), "amd64".to_owned());
    let snapshot = builder().pool(pool("default")).node(on_node).pending("web", wants).build();
    let plan = plan(&snapshot);
    assert_eq!((plan.launches.len(), plan.nominations.len()), (1, 0));
}

#[test]
fn not_in_and_does_not_exist_on_undefined_labels_are_compatible_and_exists_is_not() {
    for (operator, values, placed) in [
        (Operator::NotIn, &["x"][..], true),
        (Operator::DoesNotExist, &[], true),
        (Operator::Exists, &[], false),
        (Operator::Gt, &["1"], false),
    ] {
        let mut wants = shape(500, GI);
        wants.required_affinity = vec![vec![need("custom", operator, values)]];
        let snapshot = builder().pool(pool("default")).pending("web", wants).build();
        assert_eq!(plan(&snapshot).launches.len(), usize::from(placed), "{operator:?}");
    }
}

#[test]
fn custom_labels_are_materialised() {
    let mut with_labels = pool("default");
    with_labels.template.requirements =
        vec![need("slots", Operator::Gt, &["4"]), need("team", Operator::In, &["b", "a"])];
    let mut wants = shape(500, GI);
    wants.node_selector.insert("team".to_owned(), "b".to_owned());
    let snapshot = builder().pool(with_labels).pending("web", wants).build();
    let plan = plan(&snapshot);
    let labels = &plan.launches[0].labels;
    assert_eq!(labels["team"], "b");
    assert!(labels["slots"].parse::<i64>().expect("an integer") >= 5);
    let slots =
        plan.launches[0].requirements.iter().find(|need| need.key == "slots").expect("it is kept");
    assert_eq!((slots.operator, &slots.values[..]), (Operator::Gte, &["5".to_owned()][..]));
    assert!(!labels.keys().any(|key| key == "karpenter.sh/initialized"));
    assert!(
        !plan.launches[0].requirements.iter().any(|need| need.key == "karpenter.sh/registered")
    );
}

#[test]
fn hostname_is_never_allowed_in_selectors() {
    let mut wants = shape(500, GI);
    wants.node_selector.insert(HOSTNAME.to_owned(), "n1".to_owned());
    let snapshot = builder().pool(pool("default")).pending("web", wants).build();
    let plan = plan(&snapshot);
    assert!(matches!(only_reason(&plan), Exclusion::Pod(text) if text.contains("restricted")));
}

#[test]
fn later_required_terms_are_tried() {
    let mut wants = shape(500, GI);
    wants.required_affinity = vec![
        vec![need(ZONE, Operator::In, &["zone-x"])],
        vec![need(ZONE, Operator::In, &["zone-b"])],
    ];
    let snapshot = builder().pool(pool("default")).pending("web", wants).build();
    let plan = plan(&snapshot);
    let zone = plan.launches[0].requirements.iter().find(|need| need.key == ZONE);
    assert_eq!(zone.expect("a zone").values, ["zone-b"]);
}

#[test]
fn preferences_hold_where_they_can_and_are_dropped_where_they_cannot() {
    let mut wants = shape(500, GI);
    wants.preferred_affinity = vec![
        (1, vec![need(ZONE, Operator::In, &["zone-b"])]),
        (50, vec![need(ZONE, Operator::In, &["zone-x"])]),
    ];
    let snapshot = builder().pool(pool("default")).pending("web", wants).build();
    let zones = |plan: &crate::Plan| {
        let zone = plan.launches[0].requirements.iter().find(|need| need.key == ZONE);
        zone.map(|zone| zone.values.clone())
    };
    assert_eq!(zones(&plan(&snapshot)), Some(vec!["zone-b".to_owned()]));
    let ignore = Policy { preferences: PreferencePolicy::Ignore, ..Policy::default() };
    assert_eq!(zones(&plan_with(&snapshot, &ignore)), None);
}

#[test]
fn taints_keep_pods_off_and_startup_taints_never_do() {
    let mut tainted = pool("default");
    tainted.template.taints = vec![taint("dedicated", "NoSchedule")];
    let snapshot = builder().pool(tainted).pending("web", shape(500, GI)).build();
    assert!(
        matches!(only_reason(&plan(&snapshot)), Exclusion::Taint { key, .. } if key == "dedicated")
    );
    let mut starting = pool("default");
    starting.template.startup_taints = vec![taint("dedicated", "NoSchedule")];
    let snapshot = builder().pool(starting).pending("web", shape(500, GI)).build();
    let plan = plan(&snapshot);
    assert_eq!(plan.launches[0].startup_taints.len(), 1);
}

#[test]
fn a_pool_without_prefer_no_schedule_comes_before_one_with_it() {
    let mut soft = pool("z-soft");
    soft.weight = 50;
    soft.template.taints = vec![taint("soft", "PreferNoSchedule")];
    let snapshot =
        builder().pool(soft.clone()).pool(pool("plain")).pending("web", shape(500, GI)).build();
    assert_eq!(plan(&snapshot).launches[0].node_pool, "plain");
    let snapshot = builder().pool(soft).pending("web", shape(500, GI)).build();
    assert_eq!(plan(&snapshot).launches[0].node_pool, "z-soft");
}

#[test]
fn daemon_overhead_is_reserved_and_unreachable_daemons_are_left_out() {
    let mut reachable = shape(900, GI);
    reachable.tolerations = vec![tolerate("dedicated")];
    let mut elsewhere = shape(30_000, GI);
    elsewhere.node_selector.insert("kubernetes.io/arch".to_owned(), "arm64".to_owned());
    let snapshot = builder()
        .pool(on_demand("default"))
        .daemon_set("agent", reachable)
        .daemon_set("other", elsewhere)
        .pending("web", shape(1500, GI))
        .build();
    let plan = plan(&snapshot);
    // 1.5 and 0.9 cores don't fit the 1.9 of a large.
    assert_eq!(plan.launches[0].instance_types[0], "c.xlarge");
    assert_eq!(plan.launches[0].requests.cpu, 2400);
    assert_eq!(plan.launches[0].requests.pods, 2);
}

#[test]
fn host_ports_of_pods_and_daemons_block_pods() {
    let mut with_port = shape(100, GI / 8);
    with_port.host_ports = vec![("TCP".to_owned(), String::new(), 8080)];
    let snapshot = builder()
        .pool(pool("default"))
        .pending("a", with_port.clone())
        .pending("b", with_port.clone())
        .build();
    assert_eq!(loads(&plan(&snapshot)), [["a"], ["b"]]);
    let snapshot = builder()
        .pool(pool("default"))
        .daemon_set("proxy", with_port.clone())
        .pending("a", with_port)
        .build();
    assert!(
        matches!(only_reason(&plan(&snapshot)), Exclusion::Pod(text) if text.contains("host ports"))
    );
}

#[test]
fn initialised_nodes_come_first_then_the_name() {
    let mut young = node("a", "default", "m.xlarge", "zone-a");
    young.phase = NodePhase::Registered;
    let snapshot = builder()
        .pool(pool("default"))
        .node(young)
        .node(node("c", "default", "m.xlarge", "zone-a"))
        .node(node("b", "default", "m.xlarge", "zone-a"))
        .pending("web", shape(500, GI))
        .build();
    assert_eq!(plan(&snapshot).nominations[0].node, "b");
}

#[test]
fn a_claim_without_an_instance_takes_the_pods_that_it_was_made_for() {
    let mut wants = shape(500, GI);
    wants.node_selector.insert(ZONE.to_owned(), "zone-b".to_owned());
    let agent = shape(200, GI / 4);
    let make = || builder().pool(pool("default")).daemon_set("agent", agent.clone());
    let before = make().pending("web", wants.clone()).pending("web-2", wants.clone()).build();
    let first = plan(&before);
    let launch = &first.launches[0];
    let mut pending = node("claim-1", "default", "m.large", "zone-b");
    pending.name = None;
    pending.phase = NodePhase::Pending;
    pending.labels = (*launch.labels).clone();
    pending.requirements = launch.requirements.to_vec();
    pending.allocatable = launch.requests.clone();
    pending.capacity = crate::resources::Resources::default();
    let after = make()
        .node(pending)
        .pending("web", wants.clone())
        .pending("web-2", wants.clone())
        .pending("web-3", wants)
        .build();
    let second = plan(&after);
    assert_eq!(second.nominations.len(), 2);
    assert_eq!(loads(&second), [["web-3"]]);
}

#[test]
fn pods_on_deleting_nodes_are_planned_for_unless_they_may_not_be_evicted() {
    let mut leaving = node("n1", "default", "m.xlarge", "zone-a");
    leaving.deleting = true;
    let snapshot = builder()
        .pool(pool("default"))
        .node(leaving)
        .pod("plain", shape(500, GI), Some("n1"))
        .pod_with("held", shape(500, GI), Some("n1"), |pod| {
            pod.eviction = Eviction::DoNotDisrupt;
        })
        .pod_with("blocked", shape(500, GI), Some("n1"), |pod| {
            pod.eviction = Eviction::FullyBlockedByPdb("pdb".to_owned());
        })
        .pod_with("ending", shape(500, GI), Some("n1"), |pod| pod.terminating = true)
        .pod_with("stateful", shape(500, GI), Some("n1"), |pod| {
            (pod.terminating, pod.stateful) = (true, true);
        })
        .build();
    assert_eq!(loads(&plan(&snapshot)), [["plain", "stateful"]]);
}

#[test]
fn limits_count_the_largest_type_and_nodes_within_a_batch() {
    let mut limited = on_demand("default");
    limited.limits.insert("nodes".to_owned(), 2);
    let mut apart = shape(100, GI / 8);
    apart.host_ports = vec![("TCP".to_owned(), String::new(), 8080)];
    let mut world = builder().pool(limited);
    for name in ["a", "b", "c"] {
        world = world.pending(name, apart.clone());
    }
    let result = plan(&world.build());
    assert_eq!(result.launches.len(), 2);
    assert!(
        matches!(only_reason(&result), Exclusion::Limit { resource, limit: 2, used: 2 } if resource == "nodes")
    );

    let mut limited = on_demand("default");
    limited.limits.insert("cpu".to_owned(), 4000);
    let snapshot = builder()
        .pool(limited)
        .node(node("n1", "default", "m.large", "zone-a"))
        .pod("old", shape(1800, GI), Some("n1"))
        .pending("web", shape(1500, GI))
        .build();
    let result = plan(&snapshot);
    assert!(result.launches[0].instance_types.iter().all(|name| name.contains(".large")));
}

#[test]
fn min_values_are_kept_or_the_pod_waits_and_best_effort_lowers_them() {
    let mut diverse = on_demand("default");
    let mut many = need(TYPE, Operator::Exists, &[]);
    many.min_values = Some(4);
    diverse.template.requirements.push(many);
    // Only the three 8xlarge hold it.
    let snapshot = builder().pool(diverse).pending("web", shape(20_000, GI)).build();
    let strict = plan(&snapshot);
    assert!(matches!(only_reason(&strict), Exclusion::MinValues { required: 4, found: 3, .. }));
    let policy = Policy { min_values: MinValuesPolicy::BestEffort, ..Policy::default() };
    let relaxed = plan_with(&snapshot, &policy);
    let launch = &relaxed.launches[0];
    assert_eq!(launch.annotations["karpenter.sh/nodeclaim-min-values-relaxed"], "true");
    let types = launch.requirements.iter().find(|need| need.key == TYPE).expect("types");
    assert_eq!(types.min_values, Some(3));
}

#[test]
fn min_values_count_only_values_that_the_requirement_admits() {
    let mut diverse = pool("default");
    let mut zones = need(ZONE, Operator::Exists, &[]);
    zones.min_values = Some(3);
    diverse.template.requirements.push(zones);
    let mut pinned = shape(500, GI);
    pinned.volume_topology = vec![vec![need(ZONE, Operator::In, &["zone-a"])]];
    let snapshot = builder().pool(diverse).pending("web", pinned).build();
    assert!(matches!(only_reason(&plan(&snapshot)), Exclusion::MinValues { found: 1, .. }));
}

#[test]
fn what_excludes_a_pod_is_told_for_every_pool() {
    let mut other = pool("other");
    other.template.taints = vec![taint("dedicated", "NoSchedule")];
    let mut broken = pool("broken");
    broken.not_ready = Some("NodeClass is not ready".to_owned());
    let snapshot = builder()
        .pool(pool("small"))
        .pool(other)
        .pool(broken)
        .pending("web", shape(64_000, GI))
        .build();
    let plan = plan(&snapshot);
    let reasons = &plan.report.pods[0].reasons;
    assert_eq!(reasons.len(), 3);
    assert_eq!(
        reasons[0],
        (
            "small".to_owned(),
            Exclusion::Resources {
                resource: "cpu".to_owned(),
                requested: 64_000,
                largest: 31_900,
                closest: Some("c.8xlarge".to_owned()),
                missing: [("cpu".to_owned(), 32_100)].into(),
            }
        )
    );
    assert!(matches!(&reasons[1], (name, Exclusion::Taint { .. }) if name == "other"));
    assert!(matches!(&reasons[2], (name, Exclusion::PoolNotReady(_)) if name == "broken"));
}

#[test]
fn pods_that_opt_out_are_not_planned_for_and_not_reported() {
    let mut opted = shape(500, GI);
    opted.required_affinity =
        vec![vec![need("karpenter.sh/nodepool", Operator::DoesNotExist, &[])]];
    let snapshot = builder().pool(pool("default")).pending("web", opted).build();
    let plan = plan(&snapshot);
    assert!(plan.launches.is_empty() && plan.report.pods.is_empty());
}

#[test]
fn cpu_heavy_and_memory_heavy_pods_share_machines_when_that_is_cheaper() {
    let mut world = builder().pool(on_demand("default"));
    for i in 0..40 {
        world = world.pending(&format!("cpu-{i:02}"), shape(1500, GI / 2));
        world = world.pending(&format!("mem-{i:02}"), shape(200, 6 * GI));
    }
    let plan = plan(&world.build());
    let price: f64 = plan.launches.iter().map(|launch| launch.price.as_usd()).sum();
    // 68 cores and 260 Gi: with the m family alone 68 / 0.97 * $0.048 = $3.4; apart (c for the
    // ones, r for the others) it is more.
    assert!(price < 3.75, "{price}");
    assert!(plan.report.pods.is_empty());
}

#[test]
fn a_cancelled_plan_is_valid_and_says_so() {
    let mut world = builder().pool(pool("default"));
    for i in 0..20 {
        world = world.pending(&format!("web-{i:02}"), shape(100 + i, GI));
    }
    let snapshot = world.build();
    let plan = crate::provision(&snapshot, &Policy::default(), now(), 1, &|| true);
    assert!(plan.report.cancelled);
    assert_eq!(crate::check(&snapshot, &plan), []);
}
