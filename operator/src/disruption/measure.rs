//! What a disruption pass counts: how many nodes could go, and how far budgets are used up.

use std::collections::{BTreeMap, BTreeSet};

use jiff::SignedDuration;
use tenon_planner::BudgetUse;
use tenon_planner::plan::{Plan, StayReason};
use tenon_planner::resources::MicroUsd;
use tenon_planner::snapshot::{DisruptionReason, Snapshot};

use crate::actuate::lower;
use crate::cloud_provider::CloudProvider;
use crate::events::{Event, Reason};
use crate::operator::Operator;

const REASONS: [DisruptionReason; 4] = [
    DisruptionReason::Empty,
    DisruptionReason::Drifted,
    DisruptionReason::Underutilized,
    DisruptionReason::Unhealthy,
];

/// Sets the gauges of budgets, and tells NodePools whose budgets let nothing go.
pub(super) fn budgets<P: CloudProvider>(operator: &Operator<P>, snapshot: &Snapshot) {
    /// As upstream says "without a bound".
    const UNBOUND: u32 = i32::MAX.unsigned_abs();
    let metrics = &operator.context.metrics;
    metrics.allowed_disruptions.clear();
    metrics.nodes_consuming_budgets.clear();
    let repairs = !snapshot.repair_policies.is_empty();
    for used in &tenon_planner::budget_uses(snapshot) {
        let labels = [used.node_pool.as_str(), lower(used.reason)];
        metrics.allowed_disruptions.set(labels, f64::from(used.allowed.min(UNBOUND)));
        metrics.nodes_consuming_budgets.set(labels, f64::from(used.disrupting));
        if !holds_up(used, repairs) {
            continue;
        }
        let pool = operator.state.read().pool(&used.node_pool).cloned();
        if let Some(pool) = pool {
            let message = format!(
                "No allowed disruptions for disruption reason {:?} due to blocking budget",
                used.reason
            );
            let event = Event::normal(&*pool, Reason::DisruptionBlocked, message);
            let event = event.distinct_by(lower(used.reason));
            operator.context.recorder.publish(event.within(SignedDuration::from_mins(1)));
        }
    }
}

/// Whether a budget keeps nodes that could go otherwise. Where no node is repaired, none goes
/// because it is sick.
fn holds_up(used: &BudgetUse, repairs: bool) -> bool {
    let goes_at_all = repairs || used.reason != DisruptionReason::Unhealthy;
    used.nodes > 0 && used.allowed == 0 && goes_at_all
}

/// Sets the gauges of what NodePools cost, and begins the sums of what disruption changes of that.
pub(super) fn costs<P: CloudProvider>(operator: &Operator<P>, snapshot: &Snapshot) {
    let mut costs: BTreeMap<&str, MicroUsd> =
        snapshot.node_pools.iter().map(|pool| (pool.name.as_str(), MicroUsd(0))).collect();
    for node in &snapshot.nodes {
        let pool = node.claim.as_ref().and_then(|claim| claim.node_pool.as_deref());
        let Some((pool, cost)) = pool.and_then(|pool| Some((pool, costs.get_mut(pool)?))) else {
            continue;
        };
        match node.price {
            Some(price) => cost.0 += price.0,
            None => operator.context.metrics.node_pool_cost_errors.inc([pool]),
        }
    }
    let metrics = &operator.context.metrics;
    metrics.node_pool_cost.clear();
    for (pool, cost) in costs {
        metrics.node_pool_cost.set([pool], cost.as_usd());
        for reason in REASONS.map(lower) {
            metrics.disruption_removed.begin([pool, reason]);
            metrics.disruption_added.begin([pool, reason]);
        }
    }
}

/// Sets the gauges of nodes that could go.
pub(super) fn eligible<P: CloudProvider>(
    operator: &Operator<P>,
    plan: &Plan,
    drifted: &BTreeSet<String>,
) {
    let counts = count(plan, drifted);
    for reason in REASONS {
        let count = counts.get(&reason).copied().unwrap_or(0);
        operator.context.metrics.eligible_nodes.set([lower(reason)], f64::from(count));
    }
}

/// Keys of the nodes whose NodeClaims say that they have drifted.
pub(super) fn drifted(snapshot: &Snapshot) -> BTreeSet<String> {
    let has_drifted = |node: &&tenon_planner::snapshot::Node| {
        node.claim.as_ref().is_some_and(|claim| claim.drifted.is_some())
    };
    snapshot.nodes.iter().filter(has_drifted).map(|node| node.key.clone()).collect()
}

/// How many nodes a method looked at, whether they go or stay.
fn count(plan: &Plan, drifted: &BTreeSet<String>) -> BTreeMap<DisruptionReason, u32> {
    let mut counts = BTreeMap::new();
    for command in &plan.commands {
        let n_nodes = u32::try_from(command.candidates.len()).unwrap_or(u32::MAX);
        *counts.entry(command.reason).or_insert(0_u32) += n_nodes;
    }
    for staying in &plan.report.nodes {
        let reason = match &staying.reason {
            StayReason::Budget(reason) => *reason,
            StayReason::TooManyUnhealthy { .. } => DisruptionReason::Unhealthy,
            StayReason::PodsDontFit(_)
            | StayReason::WaitsForMachine(_)
            | StayReason::NeedsSeveralReplacements
            | StayReason::NothingCheaper
            | StayReason::SpotToSpot
            | StayReason::SavesTooLittle
            | StayReason::Later => {
                if drifted.contains(&staying.node) {
                    DisruptionReason::Drifted
                } else {
                    DisruptionReason::Underutilized
                }
            }
            // It was no candidate of any method.
            _ => continue,
        };
        *counts.entry(reason).or_insert(0) += 1;
    }
    counts
}

#[cfg(test)]
mod tests {
    use tenon_planner::plan::{Candidate, Command, Method, StayingNode};

    use super::*;

    #[test]
    fn a_frozen_pool_is_told_about_repair_only_where_nodes_are_repaired() {
        let used = |reason, nodes, allowed| BudgetUse {
            node_pool: "default".to_owned(),
            reason,
            nodes,
            allowed,
            disrupting: 0,
        };
        let (sick, empty) = (DisruptionReason::Unhealthy, DisruptionReason::Empty);
        assert!(holds_up(&used(empty, 3, 0), false));
        assert!(!holds_up(&used(sick, 3, 0), false));
        assert!(holds_up(&used(sick, 3, 0), true));
        assert!(!holds_up(&used(empty, 0, 0), true));
        assert!(!holds_up(&used(empty, 3, 1), true));
    }

    #[test]
    fn nodes_that_go_and_nodes_that_a_method_leaves_are_eligible() {
        let candidate = Candidate {
            node: "a".to_owned(),
            claim: "a".to_owned(),
            node_pool: "default".to_owned(),
            pods: Vec::new(),
            price: None,
        };
        let mut plan = Plan::default();
        let command = Command::new(DisruptionReason::Empty, Method::Emptiness, vec![candidate]);
        plan.commands.push(command);
        let stays = [
            ("b", StayReason::Budget(DisruptionReason::Empty)),
            ("c", StayReason::NothingCheaper),
            ("d", StayReason::NeedsSeveralReplacements),
            ("e", StayReason::DoNotDisrupt),
            ("f", StayReason::Budget(DisruptionReason::Unhealthy)),
        ];
        plan.report.nodes = stays
            .into_iter()
            .map(|(node, reason)| StayingNode { node: node.to_owned(), reason })
            .collect();
        let counts = count(&plan, &BTreeSet::from(["d".to_owned()]));
        let of = |reason| counts.get(&reason).copied().unwrap_or(0);
        assert_eq!(REASONS.map(of), [2, 1, 1, 1]);
    }
}
