//! What consolidation makes of the nodes that it weighs: counts and scores, and events where the
//! policy Balanced approves.

use std::collections::BTreeSet;

use tenon_planner::plan::{Command, Method, Plan, Score, StayReason};
use tenon_state::explain;

use crate::cloud_provider::CloudProvider;
use crate::events::{Event, Reason};
use crate::operator::Operator;

/// As metrics label the method.
pub(super) fn consolidation_type(method: Method) -> &'static str {
    match method {
        Method::Emptiness => "empty",
        Method::Repair | Method::Drift => "",
        Method::MultiNodeConsolidation => "multi",
        Method::SingleNodeConsolidation => "single",
    }
}

/// Counts the moves of a plan, and those that the policy Balanced rejects.
pub(super) fn report<P: CloudProvider>(operator: &Operator<P>, plan: &Plan) {
    for command in plan.commands.iter().filter(|command| weighs(command.method)) {
        let pools: BTreeSet<&str> =
            command.candidates.iter().map(|candidate| candidate.node_pool.as_str()).collect();
        for pool in pools {
            count(operator, "approved", pool);
        }
        for score in &command.scores {
            observe(operator, "approved", score);
            tell(operator, command, score);
        }
    }
    for staying in &plan.report.nodes {
        if let StayReason::ScoresTooLow(score) = &staying.reason {
            count(operator, "rejected", &score.node_pool);
            observe(operator, "rejected", score);
        }
    }
}

/// Whether what a method does has to pay.
fn weighs(method: Method) -> bool {
    matches!(method, Method::MultiNodeConsolidation | Method::SingleNodeConsolidation)
}

fn count<P: CloudProvider>(operator: &Operator<P>, decision: &str, node_pool: &str) {
    let pool = operator.state.read().pool(node_pool).cloned();
    let policy = pool.map_or("", |pool| pool.spec.disruption.consolidation_policy.as_str());
    operator.context.metrics.consolidation_moves.inc([decision, node_pool, policy]);
}

fn observe<P: CloudProvider>(operator: &Operator<P>, decision: &str, score: &Score) {
    let labels = [decision, score.node_pool.as_str(), "Balanced"];
    operator.context.metrics.consolidation_score.observe(labels, score.value());
}

/// Tells the node and its NodeClaim or, where several nodes go together, the NodePool.
fn tell<P: CloudProvider>(operator: &Operator<P>, command: &Command, score: &Score) {
    let message = explain::weighed(score);
    if command.method == Method::SingleNodeConsolidation {
        super::tell_candidates(operator, command, Reason::ConsolidationApproved, &message);
        return;
    }
    let pool = operator.state.read().pool(&score.node_pool).cloned();
    if let Some(pool) = pool {
        let event = Event::normal(&*pool, Reason::ConsolidationApproved, message);
        operator.context.recorder.publish(event);
    }
}
