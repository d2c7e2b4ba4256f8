//! Drift: nodes that differ from what their NodePool or NodeClass now asks for are replaced, those
//! without pods first, then the oldest drift.

use super::Pass;
use super::candidates::Node;
use super::rescheduling::Search;
use super::terminate_first;
use crate::Cancel;
use crate::plan::{Method, Resume, StayReason};
use crate::snapshot::DisruptionReason;

pub(super) fn plan(
    pass: &mut Pass<'_, '_>,
    nodes: &[Node],
    resume: Option<&Resume>,
    cancel: &dyn Cancel,
) {
    let mut drifted: Vec<_> = nodes
        .iter()
        .filter_map(|node| {
            let claim = pass.problem.tables.snapshot.nodes[node.index].claim.as_ref()?;
            let (_, since) = claim.drifted.as_ref()?;
            // Static pools replace their nodes one for one.
            if pass.problem.tables.snapshot.node_pools[node.pool].replicas.is_some() {
                return None;
            }
            Some((!node.pods.is_empty(), *since, node))
        })
        .collect();
    drifted.sort_by_key(|&(has_pods, since, node)| (has_pods, since, node.index));
    let snapshot = pass.problem.tables.snapshot;
    let came_to = resume.and_then(|resume| {
        drifted.iter().position(|(_, _, node)| snapshot.nodes[node.index].key == resume.node)
    });
    drifted.rotate_left(came_to.unwrap_or(0));
    for (turn, &(_, _, node)) in drifted.iter().enumerate() {
        if turn > 0 && cancel.is_cancelled() {
            let node = snapshot.nodes[node.index].key.clone();
            pass.resume.get_or_insert(Resume { method: Method::Drift, node });
            return;
        }
        if pass.is_going(node) {
            continue;
        }
        if let Err(stay) = replace(pass, node) {
            pass.stay(node.index, stay);
        }
    }
}

/// Whether a node may go for having drifted.
pub(super) fn permitted(pass: &Pass<'_, '_>, node: &Node) -> Result<(), StayReason> {
    let snapshot = pass.problem.tables.snapshot;
    let claim = snapshot.nodes[node.index].claim.as_ref().expect("candidates have a claim");
    match &node.blocked {
        Some(blocked) if !claim.has_termination_grace_period => Err(blocked.clone()),
        _ if claim.drifted.is_none() => {
            Err(StayReason::Changed("it is not drifted any more".to_owned()))
        }
        _ if pass.receiving[node.index] => Err(StayReason::Nominated),
        _ => Ok(()),
    }
}

fn replace(pass: &mut Pass<'_, '_>, node: &Node) -> Result<(), StayReason> {
    permitted(pass, node)?;
    pass.budgets.allow(pass.problem.tables.snapshot, &[node], DisruptionReason::Drifted)?;
    terminate_first::replace(pass, node, Search::DRIFT, DisruptionReason::Drifted, Method::Drift)
}
