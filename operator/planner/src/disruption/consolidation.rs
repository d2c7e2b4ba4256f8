//! Consolidation: nodes go when their pods fit on the others, or on one cheaper machine.
//!
//! Every candidate is evaluated first, each as if it were the only one. Of those that could go the
//! ones that need no new machine come first, because what they leave behind fills others up
//! ([`super::removing`]); then several nodes at once for one machine ([`super::merging`]); then
//! single nodes for cheaper machines.

use super::Pass;
use super::attempt::{Aim, Patience, interleaved};
use super::candidates::Node;
use super::evaluation::evaluate;
use super::merging;
use super::rehearsal::Stage;
use super::removing;
use super::small_wave::SmallWave;
use crate::Cancel;
use crate::label;
use crate::plan::{Method, Resume, StayReason};
use crate::snapshot::{ConsolidationPolicy, DisruptionReason};

pub(super) fn plan(
    pass: &mut Pass<'_, '_>,
    nodes: &[Node],
    resume: Option<&Resume>,
    cancel: &dyn Cancel,
) {
    let mut eligible = Vec::new();
    for node in nodes {
        if pass.is_going(node) || node.is_empty() {
            continue;
        }
        match eligibility(pass, node) {
            Ok(()) => eligible.push(node),
            // That its drift could not be cured says more.
            Err(StayReason::NotConsolidatable) if pass.stays.contains_key(&node.index) => {}
            Err(stay) => pass.stay(node.index, stay),
        }
    }
    if eligible.is_empty() {
        return;
    }
    let key = |node: &Node| pass.problem.tables.snapshot.nodes[node.index].key.as_str();
    if let Some(resume) = resume {
        let from = eligible.partition_point(|node| key(node) < resume.node.as_str());
        eligible.rotate_left(from);
    }
    let evaluations = evaluate(pass, &eligible, cancel);
    if let Some(index) = evaluations.iter().position(Option::is_none) {
        let node = key(eligible[index]).to_owned();
        // Another method that was cut short before goes on first.
        pass.resume.get_or_insert(Resume { method: Method::SingleNodeConsolidation, node });
    }
    let (mut going, mut replaceable) = (Vec::new(), Vec::new());
    for (&node, evaluation) in eligible.iter().zip(evaluations) {
        match evaluation {
            Some(Ok(Aim::Delete)) => going.push(node),
            Some(Ok(Aim::Replace)) => replaceable.push(node),
            Some(Err(stay)) => pass.stay(node.index, stay),
            None => {}
        }
    }
    let mut patience = Patience::new(cancel);
    let small_wave = SmallWave::new(pass, going.iter().chain(&replaceable).copied());
    let left_out = removing::plan(pass, &going, small_wave, &mut patience);

    let removed = going.iter().filter(|node| pass.is_going(node)).count();
    replaceable.extend(going);
    for list in [&mut replaceable, &mut eligible] {
        list.retain(|node| !pass.is_going(node) && !left_out[node.index]);
    }
    let replaceable = interleaved(&replaceable);
    let stage = replacing(pass, &eligible, &replaceable, 0, &mut patience);
    if stage.is_empty() {
        return;
    }
    let mut cheaper = pass.clone();
    stage.perform(&mut cheaper);
    let replaced = eligible.iter().filter(|node| cheaper.is_going(node)).count();
    let room_for = small_wave.room_for(removed + replaced);
    if room_for > 0 {
        replacing(pass, &eligible, &replaceable, room_for, &mut patience.afresh()).perform(pass);
    } else {
        *pass = cheaper;
    }
}

/// Tries to replace nodes by cheaper machines, several by one where that saves something.
fn replacing<'n, 'p, 'a>(
    pass: &mut Pass<'p, 'a>,
    eligible: &[&'n Node],
    replaceable: &[&'n Node],
    room_for: u64,
    patience: &mut Patience<'_>,
) -> Stage<'n, 'p, 'a> {
    let mut stage = Stage::new(pass, room_for);
    merging::plan(&mut stage, eligible, patience);
    for node in replaceable {
        if patience.is_over() {
            break;
        }
        if stage.pass.is_going(node) {
            continue;
        }
        if let Err(stay) = stage.try_act(&[node], Aim::Replace) {
            pass.stay(node.index, stay);
        }
    }
    stage
}

fn eligibility(pass: &Pass<'_, '_>, node: &Node) -> Result<(), StayReason> {
    permitted(pass, node)?;
    pass.budgets.allow(pass.problem.tables.snapshot, &[node], DisruptionReason::Underutilized)?;
    // No move saves more than the whole node.
    let most = node.price.unwrap_or_default().as_usd();
    pass.totals.approve(pass.problem, &[node], most).map_err(StayReason::ScoresTooLow)
}

/// Whether a node may go because its pods can run for less.
pub(super) fn permitted(pass: &Pass<'_, '_>, node: &Node) -> Result<(), StayReason> {
    let snapshot = pass.problem.tables.snapshot;
    let source = &snapshot.nodes[node.index];
    let claim = source.claim.as_ref().expect("candidates have a claim");
    let pool = &snapshot.node_pools[node.pool];
    if let Some(blocked) = &node.blocked {
        return Err(blocked.clone());
    }
    if pass.is_expecting(node) {
        return Err(StayReason::Nominated);
    }
    if pass.held[node.index] {
        return Err(StayReason::Later);
    }
    for key in [label::INSTANCE_TYPE, label::CAPACITY_TYPE, label::ZONE] {
        if !source.labels.contains_key(key) {
            return Err(StayReason::MissingLabel(key.to_owned()));
        }
    }
    let due = claim.consolidatable.is_some_and(|since| since <= pass.now);
    if node.is_empty()
        || pool.replicas.is_some()
        || pool.disruption.consolidate_after.is_none()
        || pool.disruption.consolidation_policy == ConsolidationPolicy::WhenEmpty
        || !due
    {
        return Err(StayReason::NotConsolidatable);
    }
    Ok(())
}
