//! Which nodes go and which stay, and why.

use jiff::{SignedDuration, Timestamp};

use super::behaviour::{HOSTNAME, app, near};
use super::fixtures::*;
use crate::plan::{Method, StayReason};
use crate::policy::Policy;
use crate::snapshot::{
    Budget, BudgetNodes, CapacityType, ConsolidationPolicy, DisruptionReason, Eviction, NodePhase,
    Placement, Refusal,
};
use crate::testing::{apply, usd};
use crate::{provision, revalidate};

pub(super) fn commands(plan: &crate::Plan) -> Vec<(DisruptionReason, &str, usize)> {
    plan.commands
        .iter()
        .map(|command| {
            (command.reason, command.candidates[0].node.as_str(), command.replacements.len())
        })
        .collect()
}

pub(super) fn stay<'p>(plan: &'p crate::Plan, node: &str) -> &'p StayReason {
    let found = plan.report.nodes.iter().find(|staying| staying.node == node);
    &found.expect("the node stays").reason
}

#[test]
fn empty_nodes_go_as_far_as_budgets_allow() {
    let mut careful = on_demand("default");
    careful.disruption.budgets = vec![Budget { nodes: BudgetNodes::Count(2), reasons: Vec::new() }];
    let mut world = builder().pool(careful);
    for name in ["a", "b", "c"] {
        world = world.node(node(name, "default", "m.large", "zone-a"));
    }
    let plan = disruption(&world.build());
    assert_eq!(
        commands(&plan),
        [(DisruptionReason::Empty, "a", 0), (DisruptionReason::Empty, "b", 0)]
    );
    assert_eq!(*stay(&plan, "c"), StayReason::Budget(DisruptionReason::Empty));
}

#[test]
fn not_ready_and_deleting_nodes_use_up_budgets() {
    let mut careful = on_demand("default");
    careful.disruption.budgets = vec![Budget { nodes: BudgetNodes::Count(2), reasons: Vec::new() }];
    let mut leaving = node("b", "default", "m.large", "zone-a");
    leaving.deleting = true;
    let mut sick = node("c", "default", "m.large", "zone-a");
    sick.ready = false;
    sick.do_not_disrupt = true;
    let snapshot = builder()
        .pool(careful)
        .node(node("a", "default", "m.large", "zone-a"))
        .node(leaving)
        .node(sick)
        .build();
    let plan = disruption(&snapshot);
    assert!(plan.commands.is_empty());
    assert_eq!(*stay(&plan, "a"), StayReason::Budget(DisruptionReason::Empty));
    assert_eq!(*stay(&plan, "b"), StayReason::Deleting);
    assert_eq!(*stay(&plan, "c"), StayReason::DoNotDisrupt);
}

#[test]
fn pods_with_negative_deletion_cost_leave_a_node_empty() {
    let snapshot = builder()
        .pool(on_demand("default"))
        .node(node("a", "default", "m.large", "zone-a"))
        .pod_with("idle", shape(100, GI), Some("a"), |pod| pod.deletion_cost = -(1 << 27))
        .build();
    assert_eq!(commands(&disruption(&snapshot)), [(DisruptionReason::Empty, "a", 0)]);
}

#[test]
fn a_node_whose_pods_fit_elsewhere_goes() {
    let snapshot = builder()
        .pool(on_demand("default"))
        .node(node("a", "default", "m.large", "zone-a"))
        .node(node("b", "default", "m.xlarge", "zone-b"))
        .pod("web", shape(1000, GI), Some("a"))
        .pod("db", shape(2500, 8 * GI), Some("b"))
        .build();
    let plan = disruption(&snapshot);
    assert_eq!(commands(&plan), [(DisruptionReason::Underutilized, "a", 0)]);
    let command = &plan.commands[0];
    assert_eq!(command.nominations[0].node, "b");
    assert_eq!(command.savings, usd(0.096));
    assert_eq!(*stay(&plan, "b"), StayReason::NothingCheaper);
    assert_eq!(disruption(&apply(&snapshot, &plan)).commands, []);
}

#[test]
fn two_commands_never_count_on_the_same_room() {
    let mut world = builder()
        .pool(on_demand("default"))
        .node(node("big", "default", "m.xlarge", "zone-a"))
        .pod("db", shape(2800, 12 * GI), Some("big"));
    for name in ["a", "b"] {
        world = world.node(node(name, "default", "c.large", "zone-a")).pod(
            &format!("web-{name}"),
            shape(1000, GI),
            Some(name),
        );
    }
    let plan = disruption(&world.build());
    assert_eq!(commands(&plan), [(DisruptionReason::Underutilized, "a", 0)]);
}

#[test]
fn an_oversized_node_is_replaced_by_a_strictly_cheaper_one() {
    let snapshot = builder()
        .pool(on_demand("default"))
        .node(node("a", "default", "m.4xlarge", "zone-a"))
        .pod("web", shape(1500, 3 * GI), Some("a"))
        .build();
    let plan = disruption(&snapshot);
    assert_eq!(commands(&plan), [(DisruptionReason::Underutilized, "a", 1)]);
    let replacement = &plan.commands[0].replacements[0];
    assert_eq!(replacement.instance_types[0], "c.large");
    assert!(
        !replacement.instance_types.iter().any(|name| name == "m.4xlarge" || name == "r.4xlarge")
    );
    let after = apply(&snapshot, &plan);
    let again = disruption(&after);
    assert_eq!(again.commands, []);
    assert_eq!(again.report.nodes[0].reason, StayReason::NothingCheaper);
}

#[test]
fn replacing_on_demand_where_spot_is_allowed_asks_for_spot_only() {
    let snapshot = builder()
        .pool(pool("default"))
        .node(node("a", "default", "m.large", "zone-a"))
        .pod("web", shape(1500, 3 * GI), Some("a"))
        .build();
    let plan = disruption(&snapshot);
    assert_eq!(plan.commands[0].replacements[0].capacity_types, [CapacityType::Spot]);
}

pub(super) fn on_spot() -> crate::Snapshot {
    let mut spot = node("a", "default", "m.8xlarge", "zone-a");
    spot.labels.insert("karpenter.sh/capacity-type".to_owned(), "spot".to_owned());
    let cheap = spot.price.expect("a price").0 * 4 / 10;
    spot.price = Some(crate::resources::MicroUsd(cheap));
    builder().pool(pool("default")).node(spot).pod("web", shape(1500, 3 * GI), Some("a")).build()
}

#[test]
fn spot_to_spot_needs_the_gate_and_fifteen_cheaper_types() {
    let plan = disruption(&on_spot());
    assert_eq!(*stay(&plan, "a"), StayReason::SpotToSpot);
    let policy = Policy { spot_to_spot: true, ..Policy::default() };
    // Thirteen types are cheaper than m.8xlarge.
    assert_eq!(*stay(&disruption_with(&on_spot(), &policy), "a"), StayReason::SpotToSpot);
}

#[test]
fn pods_that_may_not_be_evicted_keep_their_node() {
    for (eviction, expected) in [
        (Eviction::DoNotDisrupt, "do-not-disrupt"),
        (Eviction::BlockedByPdb("pdb".to_owned()), "pdb"),
    ] {
        let snapshot = builder()
            .pool(on_demand("default"))
            .node(node("a", "default", "m.4xlarge", "zone-a"))
            .pod_with("web", shape(100, GI), Some("a"), |pod| pod.eviction = eviction)
            .build();
        let plan = disruption(&snapshot);
        assert!(plan.commands.is_empty());
        match stay(&plan, "a") {
            StayReason::PodDoNotDisrupt(pod) => {
                assert_eq!((&*pod.name, expected), ("web", "do-not-disrupt"));
            }
            StayReason::Pdb { budget, .. } => assert_eq!(budget, expected),
            other => panic!("{other:?}"),
        }
    }
}

/// Nodes whose pods count against a PodDisruptionBudget: names, and how many pods each has.
fn budgeted(
    allowed: u32,
    nodes: &[(&str, usize)],
    cpu: i64,
    mk_node: impl Fn(&str) -> crate::snapshot::Node,
) -> crate::Snapshot {
    let mut pool = on_demand("default");
    pool.disruption.budgets = Vec::new();
    let mut world = builder().pool(pool).pod_budget("pdb", allowed);
    for &(name, pods) in nodes {
        world = world.node(mk_node(name));
        for number in 0..pods {
            world =
                world.pod_with(&format!("{name}-{number}"), shape(cpu, GI), Some(name), |pod| {
                    pod.pod_budget = Some(0);
                });
        }
    }
    world.build()
}

fn going(plan: &crate::Plan) -> Vec<&str> {
    let candidates = plan.commands.iter().flat_map(|command| &command.candidates);
    candidates.map(|candidate| candidate.node.as_str()).collect()
}

#[test]
fn no_more_nodes_go_than_a_pod_disruption_budget_lets_drain() {
    let three = [("a", 1), ("b", 1), ("c", 1)];
    for (allowed, expected) in [(1, vec!["a"]), (2, vec!["a", "b"]), (3, vec!["a", "b", "c"])] {
        let snapshot = budgeted(allowed, &three, 1_500, |name| drifted(name, 100));
        let plan = disruption(&snapshot);
        assert_eq!(going(&plan), expected);
        assert_eq!(crate::check(&snapshot, &plan), []);
        for (name, _) in &three[expected.len()..] {
            let StayReason::PdbUsedUp { pod, budget } = stay(&plan, name) else {
                panic!("{:?}", stay(&plan, name))
            };
            assert_eq!((&*pod.name, budget.as_str()), (format!("{name}-0").as_str(), "pdb"));
        }
    }
    // Of nearly empty nodes, too, whether they are removed or merged.
    let large = |name: &str| node(name, "default", "m.4xlarge", "zone-a");
    for nodes in [&three[..], &[("a", 2), ("b", 2), ("c", 2)]] {
        let pods = nodes[0].1;
        let plan = disruption(&budgeted(1, nodes, 100, large));
        assert_eq!(going(&plan).len(), 1, "{pods} pods each: {:?}", going(&plan));
    }
}

#[test]
fn nodes_that_are_being_drained_use_up_pod_disruption_budgets() {
    let leaving = |name: &str| {
        let mut node = drifted(name, 100);
        node.deleting = name == "a";
        node
    };
    let plan = disruption(&budgeted(1, &[("a", 1), ("b", 1)], 1_500, leaving));
    assert!(plan.commands.is_empty(), "{:?}", going(&plan));
    assert!(matches!(stay(&plan, "b"), StayReason::PdbUsedUp { .. }));
    // What was planned before others began to go is not begun any more.
    let planned = disruption(&budgeted(1, &[("a", 0), ("b", 1)], 1_500, |name| drifted(name, 100)));
    let meanwhile = budgeted(1, &[("a", 1), ("b", 1)], 1_500, leaving);
    let command = planned.commands.iter().find(|command| command.candidates[0].node == "b");
    let verdict = revalidate(command.expect("b goes"), &meanwhile, &Policy::default(), now());
    assert!(matches!(verdict, Err(StayReason::PdbUsedUp { .. })), "{verdict:?}");
}

#[test]
fn a_node_that_goes_in_bounded_time_waits_for_no_pod_disruption_budget() {
    let bounded = |name: &str| {
        let mut node = drifted(name, 100);
        node.claim.as_mut().expect("a claim").has_termination_grace_period = true;
        node
    };
    let plan = disruption(&budgeted(1, &[("a", 1), ("b", 1)], 1_500, bounded));
    assert_eq!(going(&plan), ["a", "b"]);
}

pub(super) fn drifted(key: &str, since: i64) -> crate::snapshot::Node {
    let mut node = node(key, "default", "m.large", "zone-a");
    let claim = node.claim.as_mut().expect("a claim");
    let since = Timestamp::from_second(since).expect("a valid time");
    claim.drifted = Some(("NodePoolDrifted".to_owned(), since));
    node
}

#[test]
fn drifted_nodes_are_replaced_those_without_pods_first_then_the_oldest() {
    let mut careful = on_demand("default");
    careful.disruption.consolidate_after = None;
    careful.disruption.budgets = vec![Budget { nodes: BudgetNodes::Count(2), reasons: Vec::new() }];
    let snapshot = builder()
        .pool(careful)
        .node(drifted("a", 300))
        .node(drifted("b", 200))
        .node(drifted("c", 400))
        .pod("web-a", shape(1500, GI), Some("a"))
        .pod("web-b", shape(1500, GI), Some("b"))
        .build();
    let plan = disruption(&snapshot);
    assert_eq!(
        commands(&plan),
        [(DisruptionReason::Drifted, "c", 0), (DisruptionReason::Drifted, "b", 1)]
    );
    assert_eq!(*stay(&plan, "a"), StayReason::Budget(DisruptionReason::Drifted));
}

#[test]
fn what_replaces_a_node_may_use_what_the_node_leaves_of_the_limits_and_nothing_else_may() {
    let limited = |resource: &str, limit: i64, nodes: &[&str]| {
        let mut limited = on_demand("default");
        limited.limits.insert(resource.to_owned(), limit);
        nodes.iter().fold(builder().pool(limited), |world, name| {
            world.node(drifted(name, 300)).pod(&format!("web-{name}"), shape(1500, GI), Some(name))
        })
    };
    let two = |resource, limit| limited(resource, limit, &["a", "b"]).build();
    let cores = two("cpu", 1000).nodes.iter().map(|node| node.capacity.cpu).sum();
    for snapshot in [two("cpu", cores), two("nodes", 2)] {
        let plan = disruption(&snapshot);
        let launched: Vec<_> = plan.commands.iter().map(|it| it.replacements.len()).collect();
        assert_eq!(launched, [1, 1], "{:?}", plan.report.nodes);
        // The limit is used up: for pods that wait nothing is launched on account of nodes that
        // stay.
        let mut waiting = snapshot.clone();
        waiting.pods.iter_mut().for_each(|pod| pod.placement = Placement::Unschedulable);
        for node in &mut waiting.nodes {
            node.taints.push(taint("reserved", "NoSchedule"));
        }
        assert_eq!(provision(&waiting, &Policy::default(), now(), 1, &()).launches, []);
    }
    // An empty node's share is not spent before it has gone.
    let empty = node("empty", "default", "c.large", "zone-a");
    let plan = disruption(&limited("nodes", 1, &["a"]).node(empty).build());
    let reasons: Vec<_> = plan.commands.iter().map(|it| it.reason).collect();
    assert_eq!(reasons, [DisruptionReason::Empty], "{:?}", plan.report.nodes);
}

#[test]
fn drift_passes_over_blocking_pods_only_with_a_termination_grace_period() {
    for (grace, expected) in [(false, 0), (true, 1)] {
        let mut old = drifted("a", 300);
        old.claim.as_mut().expect("a claim").has_termination_grace_period = grace;
        let snapshot = builder()
            .pool(on_demand("default"))
            .node(old)
            .pod_with("web", shape(100, GI), Some("a"), |pod| {
                pod.eviction = Eviction::BlockedByPdb("pdb".to_owned());
            })
            .build();
        assert_eq!(disruption(&snapshot).commands.len(), expected, "grace {grace}");
    }
}

#[test]
fn nodes_stay_while_pods_are_expected_on_them() {
    let mut expected = node("a", "default", "m.large", "zone-a");
    expected.nominated_until = Some(now() + SignedDuration::from_secs(10));
    let snapshot = builder().pool(on_demand("default")).node(expected).build();
    assert_eq!(*stay(&disruption(&snapshot), "a"), StayReason::Nominated);
}

#[test]
fn a_node_that_the_api_server_did_not_let_go_is_left_alone_for_a_while() {
    let refused = |seconds| {
        let mut refused = node("a", "default", "m.large", "zone-a");
        refused.refusal = Some(Refusal {
            until: now() + SignedDuration::from_secs(seconds),
            message: "denied".to_owned(),
        });
        disruption(&builder().pool(on_demand("default")).node(refused).build())
    };
    assert_eq!(*stay(&refused(1), "a"), StayReason::DeletionRefused("denied".to_owned()));
    assert_eq!(commands(&refused(0)).len(), 1);
}

#[test]
fn nothing_is_consolidated_onto_nodes_that_are_still_settling() {
    let mut patient = on_demand("default");
    patient.disruption.consolidate_after = Some(SignedDuration::from_secs(60));
    let mut settling = node("b", "default", "m.large", "zone-a");
    settling.claim.as_mut().expect("a claim").consolidatable = None;
    let snapshot = builder()
        .pool(patient)
        .node(node("a", "default", "c.large", "zone-a"))
        .node(settling)
        .pod("web-a", shape(500, GI), Some("a"))
        .pod("web-b", shape(500, GI), Some("b"))
        .build();
    let plan = disruption(&snapshot);
    assert_eq!(*stay(&plan, "a"), StayReason::NothingCheaper);
    assert_eq!(*stay(&plan, "b"), StayReason::NotConsolidatable);
}

#[test]
fn a_machine_that_is_starting_takes_no_consolidated_pods() {
    let mut starting = node("b", "default", "m.large", "zone-a");
    starting.phase = NodePhase::Registered;
    let snapshot = builder()
        .pool(on_demand("default"))
        .node(node("a", "default", "c.large", "zone-a"))
        .node(starting)
        .pod("web-a", shape(500, GI), Some("a"))
        .build();
    assert!(matches!(stay(&disruption(&snapshot), "a"), StayReason::WaitsForMachine(_)));
}

#[test]
fn when_empty_touches_empty_nodes_only() {
    let mut shy = on_demand("default");
    shy.disruption.consolidation_policy = ConsolidationPolicy::WhenEmpty;
    let snapshot = builder()
        .pool(shy)
        .node(node("a", "default", "m.4xlarge", "zone-a"))
        .node(node("b", "default", "m.large", "zone-a"))
        .pod("web", shape(100, GI), Some("a"))
        .build();
    let plan = disruption(&snapshot);
    assert_eq!(commands(&plan), [(DisruptionReason::Empty, "b", 0)]);
    assert_eq!(*stay(&plan, "a"), StayReason::NotConsolidatable);
}

#[test]
fn anti_affinity_is_respected_when_pods_move() {
    let mut world = builder().pool(on_demand("default"));
    for name in ["a", "b"] {
        world = world.node(node(name, "default", "c.large", "zone-a")).pod(
            &format!("db-{name}"),
            near(app("db", 100), HOSTNAME, "db", true),
            Some(name),
        );
    }
    let plan = disruption(&world.build());
    assert_eq!(plan.commands, []);
    assert_eq!(*stay(&plan, "a"), StayReason::NothingCheaper);
}

#[test]
fn a_command_is_void_when_a_pod_came_or_the_node_is_needed() {
    let make = |more: bool| {
        let world = builder()
            .pool(on_demand("default"))
            .node(node("a", "default", "m.4xlarge", "zone-a"))
            .pod("web", shape(1500, 3 * GI), Some("a"));
        let world = if more { world.pod("extra", shape(100, GI), Some("a")) } else { world };
        world.build()
    };
    let before = make(false);
    let plan = disruption(&before);
    let command = &plan.commands[0];
    assert_eq!(command.method, Method::SingleNodeConsolidation);
    let valid =
        |snapshot: &crate::Snapshot| revalidate(command, snapshot, &Policy::default(), now());
    assert_eq!(valid(&before), Ok(()));
    assert!(matches!(valid(&make(true)), Err(StayReason::Changed(_))));
    let mut nominated = before.clone();
    nominated.nodes[0].nominated_until = Some(now() + SignedDuration::from_secs(5));
    assert_eq!(valid(&nominated), Err(StayReason::Nominated));
    let mut gone = before.clone();
    (gone.nodes, gone.pods) = (Vec::new(), Vec::new());
    assert!(matches!(valid(&gone), Err(StayReason::Changed(_))));
    let mut frozen = before;
    frozen.node_pools[0].disruption.budgets =
        vec![Budget { nodes: BudgetNodes::Count(0), reasons: Vec::new() }];
    assert_eq!(valid(&frozen), Err(StayReason::Budget(DisruptionReason::Underutilized)));
}
