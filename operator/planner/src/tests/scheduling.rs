//! Behaviours of Karpenter that a naive implementation misses, as far as scheduling sees them:
//! those that have no better place.
//!
//! `docs/src/design/behaviours.md` says which test holds which of them.

use super::behaviour::{HOSTNAME, ZONE, app, near, spread};
use super::fixtures::*;
use crate::plan::Exclusion;
use crate::policy::{MinValuesPolicy, Policy};
use crate::snapshot::{Eviction, Operator, Placement, Requirement};

#[test]
fn pod_priority_is_ignored_when_pods_are_ordered() {
    // Room for one of them: the larger one gets it.
    let snapshot = builder()
        .pool(on_demand("default"))
        .node(node("a", "default", "c.large", "zone-a"))
        .pod_with("urgent", shape(1000, GI), None, |pod| pod.priority = 1_000_000)
        .pod_with("large", shape(1500, GI), None, |pod| pod.priority = -1)
        .build();
    assert_eq!(*plan(&snapshot).nominations[0].pod.name, *"large");
}

#[test]
fn comparisons_are_emitted_with_inclusive_bounds() {
    let mut pool = on_demand("default");
    pool.template.requirements.push(need("example.com/cpu", Operator::Gt, &["4"]));
    let mut pod = shape(500, GI);
    pod.required_affinity = vec![vec![need("example.com/cpu", Operator::Lt, &["16"])]];
    let plan = plan(&builder().pool(pool).pending("web", pod).build());
    let needs = &plan.launches[0].requirements;
    let bounds: Vec<&Requirement> =
        needs.iter().filter(|need| need.key == "example.com/cpu").collect();
    let shown: Vec<_> =
        bounds.iter().map(|need| (need.operator, need.values[0].as_str())).collect();
    assert_eq!(shown, [(Operator::Gte, "5"), (Operator::Lte, "15")]);
}

#[test]
fn terminating_pods_of_stateful_sets_are_planned_for_and_others_are_not() {
    let mut going = node("a", "default", "m.large", "zone-a");
    going.deleting = true;
    let snapshot = builder()
        .pool(on_demand("default"))
        .node(going)
        .pod_with("db-0", shape(500, GI), Some("a"), |pod| {
            (pod.terminating, pod.stateful) = (true, true);
        })
        .pod_with("web", shape(500, GI), Some("a"), |pod| pod.terminating = true)
        .pod_with("held", shape(500, GI), Some("a"), |pod| pod.eviction = Eviction::DoNotDisrupt)
        .build();
    assert_eq!(loads(&plan(&snapshot)), [["db-0"]]);
}

#[test]
fn gated_and_nominated_pods_are_left_alone() {
    let snapshot = builder()
        .pool(on_demand("default"))
        .pod_with("gated", shape(500, GI), None, |pod| pod.placement = Placement::Waiting)
        .build();
    let plan = plan(&snapshot);
    assert!(plan.launches.is_empty() && plan.report.pods.is_empty());
}

#[test]
fn static_pools_are_not_provisioned_from() {
    let mut fixed = on_demand("fixed");
    fixed.replicas = Some(3);
    let plan = plan(&builder().pool(fixed).pending("web", shape(500, GI)).build());
    assert!(plan.launches.is_empty());
    assert_eq!(plan.report.pods.len(), 1);
}

#[test]
fn min_values_relaxed_is_always_told() {
    let mut pool = on_demand("default");
    let annotation = "karpenter.sh/nodeclaim-min-values-relaxed";
    let told = |pool, values| {
        let snapshot = builder().pool(pool).pending("web", shape(500, GI)).build();
        let policy = Policy { min_values: values, ..Policy::default() };
        plan_with(&snapshot, &policy).launches[0].annotations[annotation].clone()
    };
    assert_eq!(told(pool.clone(), MinValuesPolicy::Strict), "false");
    let mut many = need("node.kubernetes.io/instance-type", Operator::Exists, &[]);
    many.min_values = Some(99);
    pool.template.requirements.push(many);
    assert_eq!(told(pool, MinValuesPolicy::BestEffort), "true");
}

#[test]
fn node_taints_count_for_spread_only_with_the_policy_honor() {
    let mut tainted = node("a", "default", "m.large", "zone-a");
    tainted.taints.push(taint("dedicated", "NoSchedule"));
    let launched = |honor_taints: bool| {
        let mut zones = on_demand("default");
        zones.template.requirements.push(need(ZONE, Operator::In, &["zone-b", "zone-c"]));
        let mut world = builder().pool(zones).node(tainted.clone());
        for number in 0..3 {
            let mut shape = spread(app("web", 100), ZONE, 1);
            shape.topology_spread[0].honor_taints = honor_taints;
            world = world.pending(&format!("web-{number}"), shape);
        }
        let plan = plan(&world.build());
        3 - plan.report.pods.len()
    };
    // With the default the tainted node's zone is a domain that can't be filled.
    assert_eq!((launched(false), launched(true)), (2, 3));
}

#[test]
fn anti_affinity_in_one_batch_counts_both_ways() {
    // Only one of them carries the rule; the other one keeps off all the same.
    let snapshot = builder()
        .pool(on_demand("default"))
        .pending("lonely", near(app("lonely", 100), HOSTNAME, "web", true))
        .pending("web", app("web", 100))
        .build();
    assert_eq!(loads(&plan(&snapshot)).len(), 2);
}

#[test]
fn a_pod_with_a_problem_waits_with_it() {
    let why = "persistentvolumeclaim \"data\" not found";
    let snapshot = builder()
        .pool(on_demand("default"))
        .pod_with("db", shape(500, GI), None, |pod| pod.problem = Some(why.to_owned()))
        .build();
    assert_eq!(*only_reason(&plan(&snapshot)), Exclusion::Pod(why.to_owned()));
}

#[test]
fn restricted_labels_are_refused_unless_somebody_defines_them() {
    let waits = |key: &str| {
        let mut pod = shape(500, GI);
        pod.node_selector.insert(key.to_owned(), "x".to_owned());
        let plan = plan(&builder().pool(on_demand("default")).pending("web", pod).build());
        only_reason(&plan).clone()
    };
    assert!(matches!(waits("karpenter.sh/anything"), Exclusion::Pod(_)));
    assert!(matches!(waits("sub.karpenter.sh/anything"), Exclusion::Pod(_)));
    assert!(matches!(waits("notkarpenter.sh/anything"), Exclusion::Requirement { .. }));
    assert!(matches!(waits("karpenter.sh/capacity-type"), Exclusion::Requirement { .. }));
}
