//! What is told of a command that is being carried out: in the log, in the ledger and in metrics.

use std::collections::BTreeSet;

use tenon_crds::NodeClaim;
use tenon_crds::conditions::nodeclaim::DRIFTED;
use tenon_planner::plan::{Command, Repair};

use crate::actuate::lower;
use crate::cloud_provider::CloudProvider;
use crate::disruption::moves::consolidation_type;
use crate::operator::Operator;
use crate::state::cluster::Cluster;

/// Says in the log and in the ledger that a command is being carried out.
pub(super) fn tell_started<P: CloudProvider>(
    operator: &Operator<P>,
    command: &Command,
    replacements: &[NodeClaim],
) {
    let (nodes, drifted) = {
        let state = operator.state.read();
        let mut claims = command.candidates.iter().filter_map(|it| state.claim(&it.claim));
        let drifted = claims.find_map(|claim| {
            let mut conditions = claim.status.iter().flat_map(|status| &status.conditions);
            conditions.find(|it| it.type_ == DRIFTED).map(|it| it.reason.clone())
        });
        (nodes(&state, command), drifted)
    };
    operator.context.decisions.started(command, nodes, replacements, drifted.as_deref());
    tracing::info!(
        reason = lower(command.reason),
        decision = decision(command),
        consolidation_type = consolidation_type(command.method),
        candidates = ?command.candidates.iter().map(|c| c.node.as_str()).collect::<Vec<_>>(),
        pods = command.candidates.iter().map(|candidate| candidate.pods.len()).sum::<usize>(),
        replacements = command.replacements.len(),
        savings = command.savings.as_usd(),
        "disrupting node(s)"
    );
    if let Some(repair) = &command.repair {
        tell_repair(repair);
    }
}

/// Says in the ledger that a command could not be started; the caller logs it.
pub(super) fn tell_failed<P: CloudProvider>(operator: &Operator<P>, command: &Command, why: &str) {
    let nodes = nodes(&operator.state.read(), command);
    operator.context.decisions.start_failed(command, nodes, why);
}

/// The Nodes of a command's candidates.
fn nodes(state: &Cluster, command: &Command) -> Vec<String> {
    let claims = command.candidates.iter().filter_map(|it| state.claim(&it.claim));
    claims.filter_map(|claim| state.node_of(claim)).map(|node| node.name().to_owned()).collect()
}

/// Says in the log why a sick node is repaired.
pub(in crate::disruption) fn tell_repair(repair: &Repair) {
    tracing::info!(
        condition = repair.condition,
        status = repair.status,
        reason = repair.reason,
        reason_regex = repair.policy.as_deref().unwrap_or_default(),
        eligible_at = %repair.eligible_at,
        drain_bound = repair.drain_bound.map(|bound| bound.to_string()),
        "selected repair policy"
    );
}

pub(super) fn count_decision<P: CloudProvider>(operator: &Operator<P>, command: &Command) {
    let metrics = &operator.context.metrics;
    let (decision, reason) = (decision(command), lower(command.reason));
    let type_ = consolidation_type(command.method);
    metrics.disruption_decisions.inc([decision, reason, type_]);
    let pools: BTreeSet<&str> = command.candidates.iter().map(|c| c.node_pool.as_str()).collect();
    for pool in pools {
        metrics.disruption_decisions_by_nodepool.inc([pool, decision, reason, type_]);
        if let Some(first) = &command.terminate_first {
            metrics.terminate_first_decisions.inc([pool, reason, first.reason.as_str()]);
        }
    }
}

/// Counts what a command that was carried out removed and launched, at the prices that it was
/// planned with. Of candidates without a known price it can't be told what they were worth: then
/// neither is counted.
pub(super) fn count_prices<P: CloudProvider>(operator: &Operator<P>, command: &Command) {
    let metrics = &operator.context.metrics;
    let reason = lower(command.reason);
    let removed: Option<Vec<(&str, f64)>> = command
        .candidates
        .iter()
        .map(|it| Some((it.node_pool.as_str(), it.price?.as_usd())))
        .collect();
    let Some(removed) = removed else { return };
    // Both series of a NodePool exist from the first command on, so that their difference does.
    for (pool, price) in removed {
        metrics.disruption_removed.add([pool, reason], price);
        metrics.disruption_added.begin([pool, reason]);
    }
    for launch in command.launches() {
        let pool = launch.node_pool.as_str();
        metrics.disruption_added.add([pool, reason], launch.price.as_usd());
        metrics.disruption_removed.begin([pool, reason]);
    }
}

pub(super) fn decision(command: &Command) -> &'static str {
    if command.terminate_first.is_some() {
        "terminate-first"
    } else if command.replacements.is_empty() {
        "delete"
    } else {
        "replace"
    }
}
