//! The consolidation policy Balanced.

use super::disrupting::{commands, stay};
use super::fixtures::*;
use crate::plan::{Score, StayReason};
use crate::snapshot::{ConsolidationPolicy, DisruptionReason, NodePool};
use crate::testing::Builder;

fn balanced() -> NodePool {
    let mut pool = on_demand("default");
    pool.disruption.consolidation_policy = ConsolidationPolicy::Balanced;
    pool
}

/// Ten nodes, all but the first of them full; what is on that one is given.
fn ten(first: (&str, i64)) -> Builder {
    let mut world = builder().pool(balanced());
    for number in 0..10 {
        let (kind, cpu) = if number == 0 { first } else { ("c.large", 1700) };
        let name = format!("n{number}");
        world = world.node(node(&name, "default", kind, "zone-a"));
        world = world.pod(&format!("web-{number}"), shape(cpu, GI), Some(&name));
    }
    world
}

#[test]
fn balanced_leaves_moves_that_save_too_little() {
    // Nine of ten nodes are full; the tenth could be replaced for a tenth less.
    let scene = |policy| {
        let mut balanced = on_demand("default");
        balanced.disruption.consolidation_policy = policy;
        let mut world = builder().pool(balanced);
        for i in 0..10 {
            let (name, kind) = (format!("n{i}"), if i == 0 { "m.large" } else { "c.large" });
            let pod = shape(1700, 3 * GI);
            world = world.node(node(&name, "default", kind, "zone-a")).pod(
                &format!("web-{i}"),
                pod,
                Some(&name),
            );
        }
        disruption(&world.build())
    };
    let plan = scene(ConsolidationPolicy::WhenEmptyOrUnderutilized);
    assert_eq!(plan.commands.len(), 1);
    assert_eq!(plan.commands[0].scores, [], "only Balanced weighs");
    let plan = scene(ConsolidationPolicy::Balanced);
    let StayReason::ScoresTooLow(score) = stay(&plan, "n0") else {
        panic!("{:?}", plan.report.nodes)
    };
    assert_eq!(score.node_pool, "default");
    assert!(score.value() > 0.0 && score.value() < Score::THRESHOLD, "{score:?}");
}

#[test]
fn balanced_tells_the_score_of_what_it_approves() {
    let mut balanced = on_demand("default");
    balanced.disruption.consolidation_policy = ConsolidationPolicy::Balanced;
    let mut world = builder().pool(balanced);
    for i in 0..10 {
        let (name, cpu) = (format!("n{i}"), if i == 0 { 10 } else { 1700 });
        let pod = shape(cpu, GI);
        world = world.node(node(&name, "default", "c.large", "zone-a")).pod(
            &format!("web-{i}"),
            pod,
            Some(&name),
        );
    }
    let plan = disruption(&world.build());
    assert_eq!(commands(&plan), [(DisruptionReason::Underutilized, "n0", 0)]);
    // A tenth of the price for a tenth of the disruption.
    let tenth = 100_000_000;
    let score = Score { node_pool: "default".to_owned(), savings: tenth, disruption: tenth };
    assert_eq!(plan.commands[0].scores, [score]);
}

#[test]
fn balanced_weighs_a_move_by_what_the_pool_costs_once_empty_nodes_are_gone() {
    let mut world = ten(("c.large", 10));
    for name in ["x0", "x1", "x2"] {
        world = world.node(node(name, "default", "r.8xlarge", "zone-a"));
    }
    let plan = disruption(&world.build());
    let empty = ["x0", "x1", "x2"].map(|name| (DisruptionReason::Empty, name, 0));
    assert_eq!(commands(&plan)[..3], empty);
    assert_eq!(commands(&plan)[3..], [(DisruptionReason::Underutilized, "n0", 0)]);
    let tenth = 100_000_000;
    let score = Score { node_pool: "default".to_owned(), savings: tenth, disruption: tenth };
    assert_eq!(plan.commands[3].scores, [score]);
}

#[test]
fn balanced_weighs_a_move_by_the_pods_that_the_pool_has_once_empty_nodes_are_gone() {
    let mut world = ten(("r.large", 1700));
    for name in ["x0", "x1", "x2"] {
        let mut free = node(name, "default", "c.large", "zone-a");
        free.price = None;
        world = world.node(free);
    }
    let plan = disruption(&world.build());
    assert_eq!(plan.commands.len(), 3, "{:?}", commands(&plan));
    let StayReason::ScoresTooLow(score) = stay(&plan, "n0") else {
        panic!("{:?}", plan.report.nodes)
    };
    // Two of twenty units of disruption; with the empty nodes it would be two of 23.
    assert_eq!(score.disruption, 100_000_000);
}

#[test]
fn balanced_counts_pods_where_commands_of_the_same_pass_move_them() {
    let mut small = shape(1, 1 << 20);
    small.tolerations.push(tolerate("dedicated"));
    let mut dedicated = node("x", "default", "m.large", "zone-a");
    dedicated.taints.push(taint("dedicated", "NoSchedule"));
    let mut world = ten(("c.large", 10)).node(dedicated);
    for number in 0..3 {
        world = world.pod(&format!("small-{number}"), small.clone(), Some("x"));
    }
    let plan = disruption(&world.build());
    let gone = ["n0", "x"].map(|name| (DisruptionReason::Underutilized, name, 0));
    assert_eq!(commands(&plan), gone);
    // Two of 24 units, then four of 23: the pod of the first node is still there, the node is not.
    let disrupted: Vec<_> = plan.commands.iter().map(|it| it.scores[0].disruption).collect();
    assert_eq!(disrupted, [83_333_333, 173_913_043]);
}

#[test]
fn balanced_counts_machines_that_commands_of_the_same_pass_launch() {
    let mut drifted = node("x", "default", "r.8xlarge", "zone-a");
    let claim = drifted.claim.as_mut().expect("a claim");
    claim.drifted = Some(("NodePoolDrifted".to_owned(), now()));
    // Its pod fits on none of the others.
    let world = ten(("c.large", 10)).node(drifted).pod("web-x", shape(3000, GI), Some("x"));
    let plan = disruption(&world.build());
    let gone = [(DisruptionReason::Drifted, "x", 1), (DisruptionReason::Underutilized, "n0", 0)];
    assert_eq!(commands(&plan), gone);
    // A machine of twice the price has come: one of twelve parts, and two of 22 units.
    let score = &plan.commands[1].scores[0];
    assert_eq!((score.savings, score.disruption), (83_333_333, 90_909_091));
}
