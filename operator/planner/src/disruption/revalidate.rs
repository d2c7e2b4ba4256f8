//! Whether commands still make sense when they are about to be carried out.

use std::borrow::Cow;

use jiff::Timestamp;

use super::candidates::{Node, examine, examine_sick};
use super::rescheduling::Search;
use super::{Pass, consolidation, drift, emptiness, prepare, repair};
use crate::compile::Problem;
use crate::demands::demands;
use crate::launch::pod_ref;
use crate::plan::{Candidate, Command, Method, StayReason};
use crate::policy::Policy;
use crate::snapshot::Snapshot;
use crate::solver::{OnMachine, PlacedPod, Wanted, room_for};

/// Checks a command against a later snapshot: its nodes are still there and may go, the budgets
/// allow it, no pod has come that would have to move too, and the pods still find the places that
/// were planned for them. The error is the first reason for leaving the nodes alone.
pub fn revalidate(
    command: &Command,
    snapshot: &Snapshot,
    policy: &Policy,
    now: Timestamp,
) -> Result<(), StayReason> {
    let commands = std::slice::from_ref(command);
    revalidate_all(commands, snapshot, policy, now, now).pop().expect("one verdict per command")
}

/// Checks commands that are about to be carried out, in this order: each as [`revalidate`] does,
/// against a snapshot in which the former that passed are under way ([`begun`]).
pub fn revalidate_all(
    commands: &[Command],
    snapshot: &Snapshot,
    policy: &Policy,
    now: Timestamp,
    nominated_until: Timestamp,
) -> Vec<Result<(), StayReason>> {
    let overlaid = crate::overlays::apply(snapshot);
    let mut snapshot = Cow::Borrowed(&*overlaid.snapshot);
    let mut verdicts = Vec::with_capacity(commands.len());
    while let Some(left) = commands.get(verdicts.len()..).filter(|left| !left.is_empty()) {
        let mut some = check_alike(left, &snapshot, policy, now);
        if verdicts.len() + some.len() < commands.len() {
            let passed = left.iter().zip(&some).filter(|(_, verdict)| verdict.is_ok());
            passed.for_each(|(command, _)| begun(snapshot.to_mut(), command, nominated_until));
        }
        verdicts.append(&mut some);
    }
    verdicts
}

/// Changes a snapshot as the start of a command does: its nodes are going, and pods are expected on
/// others.
pub(crate) fn begun(snapshot: &mut Snapshot, command: &Command, nominated_until: Timestamp) {
    let find = |snapshot: &Snapshot, key: &str| {
        snapshot.nodes.binary_search_by(|node| node.key.as_str().cmp(key)).ok()
    };
    for candidate in &command.candidates {
        if let Some(index) = find(snapshot, &candidate.node) {
            snapshot.nodes[index].deleting = true;
        }
    }
    for nomination in &command.nominations {
        if let Some(index) = find(snapshot, &nomination.node) {
            let until = &mut snapshot.nodes[index].nominated_until;
            *until = (*until).max(Some(nominated_until));
        }
    }
}

/// Checks as many commands as the snapshot serves for as it is: until one passes whose start
/// changes more than its own nodes and the budgets.
fn check_alike(
    commands: &[Command],
    snapshot: &Snapshot,
    policy: &Policy,
    now: Timestamp,
) -> Vec<Result<(), StayReason>> {
    let (problem, candidates) = prepare(snapshot, policy, now);
    let (mut pass, _) = Pass::new(&problem, candidates.clone(), now);
    // Where pods that wait are put may depend on every node there is only where rules count nodes.
    let settled = problem.rules.len() == 0 || demands(&problem, |_| true).0.is_empty();
    let mut verdicts = Vec::new();
    let mut some_go = false;
    for command in commands {
        if command.method == Method::Emptiness && settled {
            let verdict = check_empty(&mut pass, command);
            let leaves_nothing = verdict.as_ref() == Ok(&true);
            some_go |= leaves_nothing;
            verdicts.push(verdict.map(|_| ()));
            if verdicts.last() == Some(&Ok(())) && !leaves_nothing {
                break;
            }
        } else if some_go {
            break;
        } else {
            let verdict = check(&mut pass.clone(), &problem, &candidates, command);
            verdicts.push(verdict);
            if verdicts.last() == Some(&Ok(())) {
                break;
            }
        }
    }
    verdicts
}

/// Checks a command that removes empty nodes, and takes them out. Answers whether they leave no pod
/// behind that has to find a place.
fn check_empty(pass: &mut Pass<'_, '_>, command: &Command) -> Result<bool, StayReason> {
    let before = pass.budgets.clone();
    let nodes = permitted(pass, command).inspect_err(|_| pass.budgets.clone_from(&before))?;
    pass.budgets = before;
    for node in &nodes {
        let source = &pass.problem.tables.snapshot.nodes[node.index];
        pass.budgets.mark_going(node, source.ready);
        pass.solver.close(node.index);
    }
    let leaves_nothing = nodes.iter().all(|node| node.pods.is_empty());
    Ok(leaves_nothing && command.nominations.is_empty() && command.replacements.is_empty())
}

/// The nodes of a command, if each of them may go and the budgets allow it; these are taken from.
fn permitted(pass: &mut Pass<'_, '_>, command: &Command) -> Result<Vec<Node>, StayReason> {
    let snapshot = pass.problem.tables.snapshot;
    let mut nodes = Vec::new();
    for candidate in &command.candidates {
        let node = find(pass, candidate, command.method)?;
        match command.method {
            Method::Repair => repair::permitted(pass, &node)?,
            Method::Emptiness => emptiness::permitted(pass, &node)?,
            Method::Drift => drift::permitted(pass, &node)?,
            Method::SingleNodeConsolidation | Method::MultiNodeConsolidation => {
                consolidation::permitted(pass, &node)?;
            }
        }
        if pass.is_initialized(&node) {
            pass.budgets.allow(snapshot, &[&node], command.reason)?;
            pass.budgets.take(&node);
        }
        nodes.push(node);
    }
    Ok(nodes)
}

/// Checks a command, on a pass of its own.
fn check(
    pass: &mut Pass<'_, '_>,
    problem: &Problem<'_>,
    candidates: &[Node],
    command: &Command,
) -> Result<(), StayReason> {
    let snapshot = problem.tables.snapshot;
    let nodes = permitted(pass, command)?;
    // Nothing needs a place.
    if command.method == Method::Emptiness || command.is_reboot() {
        return Ok(());
    }
    for node in &nodes {
        pass.close(node);
    }
    pass.release_devices(&nodes.iter().collect::<Vec<_>>());
    if let Err(taken) = places_are_free(pass, command, &nodes) {
        // Other places will do, with no more new machines than planned.
        let (mut pass, _) = Pass::new(problem, candidates.to_vec(), pass.now);
        let nodes: Vec<_> = nodes.iter().collect();
        let price = nodes.iter().map(|node| node.price.unwrap_or_default().0).sum();
        let search = match command.method {
            Method::Repair => Search::REPAIR,
            Method::Drift => Search::DRIFT,
            _ => Search::cheaper_than(price),
        };
        let moves = pass.try_rescheduling(&nodes, search).map_err(|_| taken.clone())?;
        if moves.new_machines > command.replacements.len() {
            return Err(taken);
        }
    }
    for launch in &command.replacements {
        if is_static(snapshot, &launch.node_pool) {
            continue;
        }
        let template =
            problem.tables.template_of(&launch.node_pool).ok_or(StayReason::NothingCheaper)?;
        let template = &problem.tables.templates[template];
        let table = &problem.tables.catalogs[template.catalog];
        let on_sale = |name: &String| table.find(name).is_some_and(|kind| template.types[kind]);
        if !launch.instance_types.iter().any(on_sale) {
            return Err(StayReason::NothingCheaper);
        }
    }
    Ok(())
}

/// Static pools launch what their template says, whatever is on sale.
fn is_static(snapshot: &Snapshot, pool: &str) -> bool {
    snapshot
        .node_pools
        .iter()
        .any(|found| found.name == pool && found.replicas.is_some() && found.not_ready.is_none())
}

/// Whether the pods still fit where they were to go, next to those that wait for a place. Looking
/// for places anew could give others and fail where these do: the plan was made with the nodes of
/// other commands out of the way.
fn places_are_free(
    pass: &mut Pass<'_, '_>,
    command: &Command,
    nodes: &[Node],
) -> Result<(), StayReason> {
    let problem = pass.problem;
    let snapshot = problem.tables.snapshot;
    let mut waiting: Vec<PlacedPod> = Vec::new();
    for nomination in &command.nominations {
        let moves = |&pod: &usize| pod_ref(&snapshot.pods[pod]) == nomination.pod;
        // A pod that has gone needs no place.
        let Some(pod) = nodes.iter().flat_map(|node| node.pods.iter().copied()).find(moves) else {
            continue;
        };
        let machine = snapshot
            .nodes
            .binary_search_by(|node| node.key.as_str().cmp(&nomination.node))
            .map_err(|_| StayReason::PodsDontFit(nomination.pod.clone()))?;
        waiting.push(PlacedPod { pod, machine });
    }
    while !waiting.is_empty() {
        let before = waiting.len();
        waiting.retain(|&PlacedPod { pod, machine }| !settle(pass, pod, machine));
        if waiting.len() == before {
            return Err(StayReason::PodsDontFit(pod_ref(&snapshot.pods[waiting[0].pod])));
        }
    }
    Ok(())
}

/// Puts a pod on a machine if it takes it, and has not fallen ill.
fn settle(pass: &mut Pass<'_, '_>, pod: usize, machine: usize) -> bool {
    if pass.sick[machine] {
        return false;
    }
    let problem = pass.problem;
    let index = problem.tables.snapshot.pods[pod].shape.0 as usize;
    let shape = &problem.tables.shapes[index];
    let solver = &mut pass.solver;
    let end = problem.tables.classes[shape.class].variants.len();
    let wanted = Wanted::Required { first: 0, end };
    let pod = shape.has_claims.then_some(pod);
    let mut place = OnMachine { solver, machine, shape: index, wanted, pod };
    let takes = room_for(&mut place, 1) > 0;
    if takes {
        solver.occupy(machine, index, 1);
        solver.take_devices(index);
        solver.counts.add_on_machine(&problem.topology(), index, machine, 1);
    }
    takes
}

fn find(pass: &Pass<'_, '_>, candidate: &Candidate, method: Method) -> Result<Node, StayReason> {
    let snapshot = pass.problem.tables.snapshot;
    let gone = || StayReason::Changed("it is gone".to_owned());
    let index = snapshot
        .nodes
        .binary_search_by(|node| node.key.as_str().cmp(&candidate.node))
        .map_err(|_| gone())?;
    let claim = snapshot.nodes[index].claim.as_ref().ok_or_else(gone)?;
    if claim.name != candidate.claim {
        return Err(gone());
    }
    // A former command of the same list has it.
    if pass.solver.is_closed(index) {
        return Err(StayReason::Deleting);
    }
    let node = if method == Method::Repair {
        examine_sick(pass.problem, pass.now, index)?
    } else {
        examine(pass.problem, pass.now, index)?
    };
    if pass.is_initialized(&node) && pass.receiving[index] {
        return Err(StayReason::Nominated);
    }
    for &pod in &node.pods {
        let pod = pod_ref(&snapshot.pods[pod]);
        if !candidate.pods.contains(&pod) {
            return Err(StayReason::Changed(format!("pod {}/{} came", pod.namespace, pod.name)));
        }
    }
    Ok(node)
}
