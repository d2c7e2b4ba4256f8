//! Emptiness: nodes without pods that anyone would miss go, as many as the budgets allow.

use super::Pass;
use super::candidates::{Node, by_savings};
use crate::plan::{Method, StayReason};
use crate::snapshot::DisruptionReason;

pub(super) fn plan(pass: &mut Pass<'_, '_>, nodes: &[Node]) {
    for node in by_savings(nodes.iter().filter(|node| node.is_empty())) {
        let snapshot = pass.problem.tables.snapshot;
        let allowed = || pass.budgets.allow(snapshot, &[node], DisruptionReason::Empty);
        if let Err(stay) = permitted(pass, node).and_then(|()| allowed()) {
            pass.stay(node.index, stay);
        } else {
            let moves = pass.begin(&[node]);
            pass.decide(&[node], &moves, Vec::new(), DisruptionReason::Empty, Method::Emptiness);
        }
    }
}

/// Whether an empty node may go for being empty.
pub(super) fn permitted(pass: &Pass<'_, '_>, node: &Node) -> Result<(), StayReason> {
    let snapshot = pass.problem.tables.snapshot;
    let pool = &snapshot.node_pools[node.pool];
    let claim = snapshot.nodes[node.index].claim.as_ref().expect("candidates have a claim");
    if let Some(blocked) = &node.blocked {
        return Err(blocked.clone());
    }
    if pass.is_expecting(node) {
        return Err(StayReason::Nominated);
    }
    let due = claim.consolidatable.is_some_and(|since| since <= pass.now);
    if !node.is_empty()
        || pool.replicas.is_some()
        || pool.disruption.consolidate_after.is_none()
        || !due
    {
        return Err(StayReason::NotConsolidatable);
    }
    Ok(())
}
