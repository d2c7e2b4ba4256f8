//! Repair: sick nodes are rebooted or replaced, the most urgent ones first, unless so many of a
//! pool are sick that the nodes are not to blame.

use std::sync::Arc;

use fixedbitset::FixedBitSet;
use jiff::Timestamp;

use super::Pass;
use super::candidates::{Node, examine_sick};
use super::replicas::lifetime_left;
use super::rescheduling::Search;
use super::static_capacity::Slots;
use super::terminate_first;
use crate::Cancel;
use crate::plan::{Command, Method, Repair, Resume, StayReason};
use crate::repair::{Breaker, Policies, Verdict, drain_bound};
use crate::snapshot::{DisruptionReason, RepairAction, Snapshot};

/// A node that is tolerated no longer, and may go.
struct Patient<'a> {
    node: Node,
    verdict: Verdict<'a>,
    cost: f64,
}

/// The nodes that are sick beyond what is tolerated.
pub(super) fn sick(snapshot: &Snapshot, now: Timestamp) -> FixedBitSet {
    let mut sick = FixedBitSet::with_capacity(snapshot.nodes.len());
    if !snapshot.repair_policies.is_empty() {
        let policies = Policies::new(&snapshot.repair_policies);
        let is_sick = |&index: &usize| policies.judge(&snapshot.nodes[index], now).is_some();
        sick.extend((0..snapshot.nodes.len()).filter(is_sick));
    }
    sick
}

pub(super) fn plan(
    pass: &mut Pass<'_, '_>,
    slots: &mut Slots,
    resume: Option<&Resume>,
    cancel: &dyn Cancel,
) {
    let snapshot = pass.problem.tables.snapshot;
    if snapshot.repair_policies.is_empty() {
        return;
    }
    let policies = Policies::new(&snapshot.repair_policies);
    let breaker = Breaker::new(snapshot, |node| policies.is_sick(node));
    let mut patients = Vec::new();
    for (index, source) in snapshot.nodes.iter().enumerate() {
        let Some(verdict) = policies.judge(source, pass.now) else { continue };
        match examine_sick(pass.problem, pass.now, index) {
            Ok(node) => {
                let cost = node.cost * lifetime_left(snapshot, index, pass.now);
                patients.push(Patient { node, verdict, cost });
            }
            Err(stay) => pass.stay_sick(index, stay),
        }
    }
    patients.sort_by(|a, b| {
        let urgency = b.verdict.score.total_cmp(&a.verdict.score);
        urgency.then(a.cost.total_cmp(&b.cost)).then(a.node.index.cmp(&b.node.index))
    });
    let key = |patient: &Patient<'_>| snapshot.nodes[patient.node.index].key.as_str();
    let came_to =
        resume.and_then(|resume| patients.iter().position(|patient| key(patient) == resume.node));
    patients.rotate_left(came_to.unwrap_or(0));
    for (turn, patient) in patients.iter().enumerate() {
        if turn > 0 && cancel.is_cancelled() {
            let node = key(patient).to_owned();
            pass.resume = Some(Resume { method: Method::Repair, node });
            return;
        }
        if let Err(stay) = treat(pass, slots, &policies, &breaker, patient) {
            pass.stay_sick(patient.node.index, stay);
        }
    }
}

/// Whether a node may go for being sick, and why it has to.
pub(super) fn permitted(pass: &Pass<'_, '_>, node: &Node) -> Result<(), StayReason> {
    let snapshot = pass.problem.tables.snapshot;
    let policies = Policies::new(&snapshot.repair_policies);
    let Some(verdict) = policies.judge(&snapshot.nodes[node.index], pass.now) else {
        return Err(StayReason::Changed("it is no longer unhealthy".to_owned()));
    };
    let breaker = Breaker::new(snapshot, |node| policies.is_sick(node));
    may_be_treated(pass, &breaker, node, &verdict)
}

fn may_be_treated(
    pass: &Pass<'_, '_>,
    breaker: &Breaker<'_>,
    node: &Node,
    verdict: &Verdict<'_>,
) -> Result<(), StayReason> {
    let snapshot = pass.problem.tables.snapshot;
    let source = &snapshot.nodes[node.index];
    if source.health.do_not_repair {
        return Err(StayReason::DoNotRepair);
    }
    let claim = source.claim.as_ref().expect("candidates have a claim");
    if let (Some(pod), None, false) =
        (node.blocking_pod(), verdict.drain_bound, claim.has_termination_grace_period)
    {
        return Err(StayReason::RepairNeedsGracePeriod(pod.clone()));
    }
    let pool = &snapshot.node_pools[node.pool].name;
    let share = breaker.share(pool);
    if share.is_too_much() {
        let (node_pool, unhealthy, nodes) = (pool.clone(), share.unhealthy, share.nodes);
        return Err(StayReason::TooManyUnhealthy { node_pool, unhealthy, nodes });
    }
    // A node that never came up does not wait for the pods that are expected on it.
    let is_up = pass.is_initialized(node);
    if is_up && pass.receiving[node.index] {
        return Err(StayReason::Nominated);
    }
    if is_up && pass.budgets.available(node.pool, DisruptionReason::Unhealthy) == 0 {
        return Err(StayReason::Budget(DisruptionReason::Unhealthy));
    }
    Ok(())
}

fn treat(
    pass: &mut Pass<'_, '_>,
    slots: &mut Slots,
    policies: &Policies<'_>,
    breaker: &Breaker<'_>,
    patient: &Patient<'_>,
) -> Result<(), StayReason> {
    let (node, verdict) = (&patient.node, &patient.verdict);
    may_be_treated(pass, breaker, node, verdict)?;
    let reason = DisruptionReason::Unhealthy;
    let is_static = pass.problem.tables.snapshot.node_pools[node.pool].replicas.is_some();
    match verdict.action {
        RepairAction::RebootNode => reboot(pass, node),
        RepairAction::ReplaceNode if is_static => {
            slots.replace(pass, node, reason, Method::Repair)?;
        }
        RepairAction::ReplaceNode => {
            terminate_first::replace(pass, node, Search::REPAIR, reason, Method::Repair)?;
        }
    }
    let claim = pass.problem.tables.snapshot.nodes[node.index].claim.as_ref();
    let own = claim.and_then(|claim| claim.termination_grace_period);
    let policy = policies.get(verdict.policy);
    let command = pass.commands.last_mut().expect("one was just added");
    Arc::make_mut(command).repair = Some(Repair {
        condition: verdict.condition.type_.clone(),
        status: verdict.condition.status.clone(),
        reason: verdict.condition.reason.clone(),
        policy: policy.reason.clone(),
        action: verdict.action,
        escalated: verdict.escalated,
        eligible_at: verdict.eligible_at,
        drain_bound: drain_bound(verdict.drain_bound, own, verdict.action),
    });
    Ok(())
}

/// The machine stays: its pods come back to it, so nothing is looked for.
fn reboot(pass: &mut Pass<'_, '_>, node: &Node) {
    let candidates = vec![pass.candidate(node)];
    let reboot = Command::new(DisruptionReason::Unhealthy, Method::Repair, candidates);
    pass.commands.push(Arc::new(reboot));
    pass.solver.close(node.index);
    pass.budgets.take(node);
    pass.touch(node);
}
