//! Drift: nodes that differ from what their NodePool or NodeClass now asks for are replaced, those without pods first, then the oldest drift.

use super::Pass;
use super::candidates::Node;
use crate::Cancel;
use crate::launch::{Narrowed, launch};
use crate::pack::Strategy;
use crate::plan::{LaunchReason, Method, Stay};
use crate::snapshot::DisruptionReason;

pub(super) fn plan(pass: &mut Pass<'_, '_>, nodes: &[Node], cancel: &dyn Cancel) {
    let mut drifted: Vec<_> = nodes
        .iter()
        .filter_map(|node| {
            let claim = pass.problem.snapshot.nodes[node.index].claim.as_ref()?;
            let (_, since) = claim.drifted.as_ref()?;
            Some((!node.pods.is_empty(), *since, node))
        })
        .collect();
    drifted.sort_by_key(|&(has_pods, since, node)| (has_pods, since, node.index));
    for (_, _, node) in drifted {
        if cancel.is_cancelled() {
            return;
        }
        if pass.is_going(node) {
            continue;
        }
        if let Err(stay) = replace(pass, node, cancel) {
            pass.stay(node.index, stay);
        }
    }
}

/// Whether a node may go for having drifted.
pub(super) fn permitted(pass: &Pass<'_, '_>, node: &Node) -> Result<(), Stay> {
    let snapshot = pass.problem.snapshot;
    let claim = snapshot.nodes[node.index].claim.as_ref().expect("candidates have a claim");
    match &node.blocked {
        Some(blocked) if !claim.has_termination_grace_period => Err(blocked.clone()),
        _ if claim.drifted.is_none() => Err(Stay::Changed("it is not drifted any more".to_owned())),
        // Static pools replace their nodes one for one; that is not planned here.
        _ if snapshot.node_pools[node.pool].replicas.is_some() => Err(Stay::Later),
        _ if pass.receiving[node.index] => Err(Stay::Nominated),
        _ => Ok(()),
    }
}

fn replace(pass: &mut Pass<'_, '_>, node: &Node, cancel: &dyn Cancel) -> Result<(), Stay> {
    permitted(pass, node)?;
    if pass.budgets.available(node.pool, DisruptionReason::Drifted) == 0 {
        return Err(Stay::Budget(DisruptionReason::Drifted));
    }
    let moves = pass.try_moving(&[node], Strategy::Cheapest, false, cancel)?;
    let mut launches = Vec::new();
    for claim in &pass.solver.claims {
        let narrowed = Narrowed::nothing(&pass.solver, claim);
        let reason = LaunchReason::Replacement(DisruptionReason::Drifted);
        let Ok(launch) = launch(&pass.solver, claim, &narrowed, reason, pass.seed) else {
            let pod = crate::launch::pod_ref(&pass.problem.snapshot.pods[claim.pods[0]]);
            pass.take_back(&[node], moves);
            return Err(Stay::PodsDontFit(pod));
        };
        launches.push(launch);
    }
    pass.decide(&[node], moves.from, launches, DisruptionReason::Drifted, Method::Drift);
    Ok(())
}
