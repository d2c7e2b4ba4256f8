//! Behaviours of Karpenter that a naive implementation misses, and those where this planner does better on purpose.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use super::world::*;
use crate::plan::Exclusion;
use crate::policy::{MinValuesPolicy, Policy, PreferencePolicy};
use crate::snapshot::{
    CapacityType, Eviction, NodePhase, Operator, PodAffinityTerm, PodShape, TopologySpread,
};
use crate::testing::usd;

pub(super) const ZONE: &str = "topology.kubernetes.io/zone";
pub(super) const HOSTNAME: &str = "kubernetes.io/hostname";
const TYPE: &str = "node.kubernetes.io/instance-type";

fn select(app: &str) -> LabelSelector {
    LabelSelector {
        match_labels: Some([("app".to_owned(), app.to_owned())].into()),
        ..LabelSelector::default()
    }
}

pub(super) fn app(name: &str, cpu: i64) -> PodShape {
    let mut shape = shape(cpu, GI / 4);
    shape.labels.insert("app".to_owned(), name.to_owned());
    shape
}

pub(super) fn spread(mut shape: PodShape, key: &str, max_skew: i32) -> PodShape {
    let name = shape.labels["app"].clone();
    shape.topology_spread.push(TopologySpread {
        topology_key: key.to_owned(),
        max_skew,
        min_domains: None,
        required: true,
        selector: Some(select(&name)),
        honor_affinity: true,
        honor_taints: false,
    });
    shape
}

pub(super) fn near(mut shape: PodShape, key: &str, app: &str, anti: bool) -> PodShape {
    shape.pod_affinity.push(PodAffinityTerm {
        anti,
        weight: None,
        topology_key: key.to_owned(),
        selector: Some(select(app)),
        namespaces: Vec::new(),
        namespace_selector: None,
    });
    shape
}

mod provisioning {
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
        let snapshot =
            builder().pool(pool("a")).pool(pool("b")).pending("web", shape(1, 1)).build();
        assert_eq!(plan(&snapshot).launches[0].node_pool, "b");
        let mut heavy = pool("a");
        heavy.weight = 10;
        let snapshot = builder().pool(heavy).pool(pool("b")).pending("web", shape(1, 1)).build();
        assert_eq!(plan(&snapshot).launches[0].node_pool, "a");
    }

    #[test]
    fn existing_nodes_use_strict_label_compatibility_and_new_ones_allow_undefined_well_known_labels()
     {
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
        let slots = plan.launches[0]
            .requirements
            .iter()
            .find(|need| need.key == "slots")
            .expect("it is kept");
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
        pending.labels = launch.labels.clone();
        pending.requirements = launch.requirements.clone();
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
                    largest: 31_900
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
        // 68 cores and 260 Gi: with the m family alone 68 / 0.97 * $0.048 = $3.4; apart (c for the ones, r for the others) it is more.
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
}

mod topology {
    use super::*;

    fn zones(plan: &crate::Plan) -> Vec<String> {
        plan.launches
            .iter()
            .flat_map(|launch| {
                let zone =
                    launch.requirements.iter().find(|need| need.key == ZONE).expect("a zone");
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

    #[test]
    fn affinity_starts_with_itself_and_then_stays_together() {
        let mut world = builder().pool(pool("default"));
        for i in 0..3 {
            world =
                world.pending(&format!("web-{i}"), near(app("web", 20_000), ZONE, "web", false));
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
        let snapshot = builder().pool(pool("default")).pending("web", pinned).build();
        assert_eq!(zones(&plan(&snapshot)), ["zone-b"]);
    }
}

mod checking {
    use super::*;
    use crate::check::Violation;

    /// The checker has to find what the solver never does.
    #[test]
    fn finds_plans_that_break_rules() {
        let mut big = shape(1500, GI);
        big.node_selector.insert(ZONE.to_owned(), "zone-a".to_owned());
        let snapshot = builder()
            .pool(on_demand("default"))
            .node(node("n1", "default", "m.large", "zone-b"))
            .pending("a", big.clone())
            .pending("b", big)
            .pod("c", shape(1000, GI), Some("n1"))
            .build();
        let good = plan(&snapshot);
        let broken = |change: &dyn Fn(&mut crate::Plan)| {
            let mut plan = good.clone();
            change(&mut plan);
            crate::check(&snapshot, &plan)
        };
        let nominate = |plan: &mut crate::Plan| {
            let pod = plan.launches[0].pods.remove(0);
            plan.nominations.push(crate::plan::Nomination { pod, node: "n1".to_owned() });
        };
        let found = broken(&nominate);
        assert!(found.iter().any(|it| matches!(it, Violation::Affinity { .. })), "{found:?}");
        assert!(found.iter().any(|it| matches!(it, Violation::Overfull { .. })), "{found:?}");
        let found = broken(&|plan| plan.launches[0].requirements.retain(|need| need.key != ZONE));
        assert!(found.iter().any(|it| matches!(it, Violation::Affinity { .. })), "{found:?}");
        let found = broken(&|plan| plan.launches[0].instance_types.insert(0, "c.large".to_owned()));
        assert!(found.iter().any(|it| matches!(it, Violation::Overfull { .. })), "{found:?}");
        let found = broken(&|plan| plan.launches.push(plan.launches[0].clone()));
        assert!(found.iter().any(|it| matches!(it, Violation::PlacedTwice(_))), "{found:?}");
        let found = broken(&|plan| plan.launches[0].instance_types.reverse());
        assert!(found.iter().any(|it| matches!(it, Violation::NotRanked(_))), "{found:?}");
    }
}
