//! Whether a command still makes sense when it is about to be carried out.

use jiff::Timestamp;

use super::candidates::{Node, examine};
use super::{Pass, consolidation, drift, emptiness};
use crate::compile::Problem;
use crate::launch::pod_ref;
use crate::pack::Strategy;
use crate::plan::{Command, Method, Stay};
use crate::policy::Policy;
use crate::snapshot::Snapshot;

/// Checks a command against a later snapshot: its nodes are still there and may go, the budgets allow it, no pod has come that would have to move too, and
/// the pods still find the places that were planned for them. The error is the first reason for leaving the nodes alone.
pub fn revalidate(
    command: &Command,
    snapshot: &Snapshot,
    policy: &Policy,
    now: Timestamp,
) -> Result<(), Stay> {
    let problem = Problem::new(snapshot, policy);
    let mut pass = Pass::new(&problem, now, 0);
    let mut nodes = Vec::new();
    for candidate in &command.candidates {
        let node = find(&pass, candidate)?;
        match command.method {
            Method::Emptiness => emptiness::permitted(&pass, &node)?,
            Method::Drift => drift::permitted(&pass, &node)?,
            Method::SingleNodeConsolidation | Method::MultiNodeConsolidation => {
                consolidation::permitted(&pass, &node)?;
            }
        }
        if pass.budgets.available(node.pool, command.reason) == 0 {
            return Err(Stay::Budget(command.reason));
        }
        pass.budgets.take(node.pool);
        nodes.push(node);
    }
    if command.method == Method::Emptiness {
        return Ok(());
    }
    let nodes: Vec<_> = nodes.iter().collect();
    let drift = command.method == Method::Drift;
    let strategy = if drift { Strategy::Cheapest } else { Strategy::Fill };
    let moves = pass.try_moving(&nodes, strategy, !drift, &())?;
    let planned = command.replacements.len();
    if planned == 0 {
        return match pass.solver.claims.first() {
            None => Ok(()),
            Some(claim) => Err(Stay::PodsDontFit(pod_ref(&snapshot.pods[claim.pods[0]]))),
        };
    }
    if drift {
        return Ok(());
    }
    if moves.new_machines != planned {
        return Err(Stay::Changed(format!(
            "its pods need {} new machines instead of {planned}",
            moves.new_machines
        )));
    }
    let claim = &pass.solver.claims[0];
    let template = &problem.templates[pass.solver.cells[claim.cell].template];
    let table = &problem.catalogs[template.catalog];
    let holds = |name: &String| table.find(name).is_some_and(|kind| claim.types[kind]);
    match command.replacements[0].instance_types.iter().find(|name| !holds(name)) {
        None => Ok(()),
        Some(name) => Err(Stay::Changed(format!("instance type {name} would not do any more"))),
    }
}

fn find(pass: &Pass<'_, '_>, candidate: &crate::plan::Candidate) -> Result<Node, Stay> {
    let snapshot = pass.problem.snapshot;
    let gone = || Stay::Changed("it is gone".to_owned());
    let index = snapshot
        .nodes
        .binary_search_by(|node| node.key.as_str().cmp(&candidate.node))
        .map_err(|_| gone())?;
    let claim = snapshot.nodes[index].claim.as_ref().ok_or_else(gone)?;
    if claim.name != candidate.claim {
        return Err(gone());
    }
    let node = examine(pass, index)?;
    for &pod in &node.pods {
        let pod = pod_ref(&snapshot.pods[pod]);
        if !candidate.pods.contains(&pod) {
            return Err(Stay::Changed(format!("pod {}/{} came", pod.namespace, pod.name)));
        }
    }
    Ok(node)
}
