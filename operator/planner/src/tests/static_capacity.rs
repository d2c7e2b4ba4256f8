//! Static NodePools: what is missing, what there is too much of.

use super::disrupting::{commands, drifted, stay};
use super::fixtures::*;
use crate::plan::{Plan, StayReason};
use crate::policy::Policy;
use crate::snapshot::DisruptionReason;
use crate::{check, replicas, revalidate};

fn pool_of(n: i64) -> crate::snapshot::NodePool {
    let mut pool = on_demand("fixed");
    pool.replicas = Some(n);
    pool
}

fn planned(snapshot: &crate::Snapshot) -> Plan {
    snapshot.validate().expect("a valid snapshot");
    replicas(snapshot, &Policy::default(), now(), 1)
}

fn nodes(n: usize) -> crate::testing::Builder {
    let world = builder();
    (0..n).fold(world, |world, index| {
        world.node(node(&format!("n{index}"), "fixed", "m.large", "zone-a"))
    })
}

#[test]
fn a_slip_of_the_finger_launches_a_thousand_machines_at_once_not_more() {
    let plan = planned(&nodes(0).pool(pool_of(4_294_967_295)).build());
    assert_eq!(plan.launches.len(), 1000);
    assert!(plan.report.node_pools.is_empty());
}

#[test]
fn a_static_pool_launches_what_is_missing_within_its_limit() {
    let plan = planned(&nodes(1).pool(pool_of(3)).build());
    assert_eq!((plan.launches.len(), plan.removals.len()), (2, 0));
    let launch = &plan.launches[0];
    assert!(launch.pods.is_empty());
    assert!(
        launch.requirements.iter().all(|need| need.key != "node.kubernetes.io/instance-type"),
        "the template as it is"
    );
    let mut limited = pool_of(5);
    limited.limits.insert("nodes".to_owned(), 2);
    assert_eq!(planned(&nodes(1).pool(limited).build()).launches.len(), 1);
    assert_eq!(
        planned(&nodes(3).pool(pool_of(3)).build()),
        Plan { version: crate::plan::PLAN_VERSION, ..Plan::default() }
    );
}

#[test]
fn a_static_pool_removes_what_never_came_up_then_empty_nodes_then_the_cheapest_to_empty() {
    let mut starting = node("n9", "fixed", "m.large", "zone-a");
    starting.claim.as_mut().expect("a claim").provider_id = None;
    let mut kept = node("n8", "fixed", "m.large", "zone-a");
    kept.do_not_disrupt = true;
    let snapshot = nodes(4)
        .node(starting)
        .node(kept)
        .pool(pool_of(1))
        .pod("a", shape(100, GI), Some("n0"))
        .pod("b", shape(100, GI), Some("n0"))
        .pod("c", shape(100, GI), Some("n1"))
        .pod("d", shape(100, GI), Some("n2"))
        .pod("e", shape(100, GI), Some("n8"))
        .pod_with("f", shape(100, GI), Some("n2"), |pod| pod.deletion_cost = -(1 << 30))
        .build();
    let plan = planned(&snapshot);
    let order: Vec<_> = plan.removals.iter().map(|removal| removal.node.as_str()).collect();
    assert_eq!(order, ["n9", "n3", "n1", "n2", "n0"]);
}

#[test]
fn static_nodes_are_not_consolidated_and_replaced_one_for_one_when_they_drift() {
    let mut old = drifted("n0", 100);
    let claim = old.claim.as_mut().expect("a claim");
    claim.node_pool = Some("fixed".to_owned());
    old.labels.insert("karpenter.sh/nodepool".to_owned(), "fixed".to_owned());
    let world = |pool| {
        builder()
            .pool(pool)
            .node(old.clone())
            .node(node("n1", "fixed", "m.large", "zone-a"))
            .pod("web", shape(100, GI), Some("n0"))
            .build()
    };
    let snapshot = world(pool_of(2));
    let plan = disruption(&snapshot);
    assert_eq!(commands(&plan), [(DisruptionReason::Drifted, "n0", 1)]);
    assert_eq!(*stay(&plan, "n1"), StayReason::NotConsolidatable);
    assert_eq!(revalidate(&plan.commands[0], &snapshot, &Policy::default(), now()), Ok(()));
    assert_eq!(check(&snapshot, &plan), []);
    let mut full = pool_of(2);
    full.limits.insert("nodes".to_owned(), 2);
    assert_eq!(*stay(&disruption(&world(full)), "n0"), StayReason::NoStaticReplacement);
    // With one too many the surplus goes first.
    assert_eq!(*stay(&disruption(&world(pool_of(1))), "n0"), StayReason::Later);
}
