//! Whether nodes may go as a plan says.

use std::collections::{BTreeMap, BTreeSet};

use super::pods::reference;
use super::{Violation, repair};
use crate::plan::{Method, Plan};
use crate::snapshot::{
    BudgetNodes, DisruptionReason, Eviction, NodePhase, Placement, Pod, Snapshot,
};

pub(super) fn check_commands(
    snapshot: &Snapshot,
    plan: &Plan,
    placed: &BTreeSet<usize>,
    found: &mut BTreeSet<Violation>,
) {
    let mut going: BTreeMap<(&str, DisruptionReason), u32> = BTreeMap::new();
    let mut all: BTreeMap<&str, u32> = BTreeMap::new();
    let mut seen = BTreeSet::new();
    for command in &plan.commands {
        for candidate in &command.candidates {
            let node =
                snapshot.nodes.iter().enumerate().find(|(_, node)| node.key == candidate.node);
            let Some((index, node)) = node else {
                found.insert(Violation::Unknown { kind: "machine", name: candidate.node.clone() });
                continue;
            };
            let mut must_stay = |reason: &str| {
                let (node, reason) = (candidate.node.clone(), reason.to_owned());
                found.insert(Violation::MustStay { node, reason });
            };
            if !seen.insert(index) {
                must_stay("it is in two commands");
            }
            let Some(claim) = &node.claim else {
                must_stay("it has no NodeClaim");
                continue;
            };
            if claim.name != candidate.claim {
                must_stay("its NodeClaim is another one");
            }
            let sick = command.reason == DisruptionReason::Unhealthy;
            let up = if sick { NodePhase::Registered } else { NodePhase::Initialized };
            if node.deleting || node.phase < up || node.name.is_none() {
                must_stay("it is not up");
            }
            if node.health.reboots.in_progress {
                must_stay("it is being rebooted");
            }
            if node.do_not_disrupt && !sick {
                must_stay("do-not-disrupt");
            }
            let drift = command.reason == DisruptionReason::Drifted;
            if drift && claim.drifted.is_none() {
                must_stay("it has not drifted");
            }
            if !drift && !sick && claim.consolidatable.is_none() {
                must_stay("it is not consolidatable");
            }
            let mut forced = drift && claim.has_termination_grace_period;
            if sick {
                match repair::has_to_go(snapshot, node, command) {
                    Ok(bounded) => forced = bounded || claim.has_termination_grace_period,
                    Err(why) => must_stay(why),
                }
            }
            let pods: Vec<_> = snapshot
                .pods
                .iter()
                .enumerate()
                .filter(|(_, pod)| matches!(pod.placement, Placement::Bound(on) if on.0 as usize == index))
                .collect();
            if !forced && pods.iter().any(|(_, pod)| blocks(pod)) {
                must_stay("a pod forbids its eviction");
            }
            // Static pools replace machines one for one; their pods follow by themselves.
            let is_static = claim.node_pool.as_ref().is_some_and(|name| {
                snapshot.node_pools.iter().any(|pool| pool.name == *name && pool.replicas.is_some())
            });
            if command.reason != DisruptionReason::Empty && !is_static && !command.is_reboot() {
                for (pod, _) in pods.iter().filter(|(_, pod)| needs_place(pod, sick)) {
                    if !placed.contains(pod) {
                        found.insert(Violation::LosesItsPlace(reference(snapshot, *pod)));
                    }
                }
            }
            // What never came up is not counted by budgets.
            let counted =
                claim.node_pool.as_deref().filter(|_| node.phase == NodePhase::Initialized);
            if let Some(pool) = counted {
                *going.entry((pool, command.reason)).or_default() += 1;
                *all.entry(pool).or_default() += 1;
            }
        }
        let consolidation = matches!(
            command.method,
            Method::SingleNodeConsolidation | Method::MultiNodeConsolidation
        );
        if consolidation && !command.replacements.is_empty() && command.savings.0 <= 0 {
            found.insert(Violation::SavesNothing(command.candidates[0].node.clone()));
        }
    }
    check_pod_budgets(snapshot, plan, found);
    for (&(pool, reason), &n) in &going {
        // Nodes that go for other reasons count as well; which of them were counted first depends
        // on the order of the commands.
        if n > allowance(snapshot, pool, reason) {
            found.insert(Violation::Budget { pool: pool.to_owned(), reason });
        }
    }
    for (&pool, &n) in &all {
        let most = going.keys().filter(|(of, _)| *of == pool);
        let most = most.map(|&(_, reason)| allowance(snapshot, pool, reason)).max();
        if let (Some((_, reason)), true) =
            (going.keys().find(|(of, _)| *of == pool), most.is_some_and(|most| n > most))
        {
            found.insert(Violation::Budget { pool: pool.to_owned(), reason: *reason });
        }
    }
}

/// How many pods of each PodDisruptionBudget will be evicted from how many nodes. One node may go
/// whatever it has; so may those that are sick, and those that have drifted and will end in bounded
/// time.
fn check_pod_budgets(snapshot: &Snapshot, plan: &Plan, found: &mut BTreeSet<Violation>) {
    let mut chosen = BTreeSet::new();
    for command in &plan.commands {
        for candidate in &command.candidates {
            let Some(index) = snapshot.nodes.iter().position(|it| it.key == candidate.node) else {
                continue;
            };
            let ends = snapshot.nodes[index].claim.as_ref();
            let ends = ends.is_some_and(|claim| claim.has_termination_grace_period);
            let free = match command.reason {
                DisruptionReason::Unhealthy => true,
                DisruptionReason::Drifted => ends,
                DisruptionReason::Empty | DisruptionReason::Underutilized => false,
            };
            if !free {
                chosen.insert(index);
            }
        }
    }
    for (number, budget) in snapshot.pod_budgets.iter().enumerate() {
        let (mut evicted, mut from, mut new) = (0, BTreeSet::new(), false);
        for pod in &snapshot.pods {
            let Placement::Bound(on) = pod.placement else { continue };
            let on = on.0 as usize;
            let counts = pod.pod_budget.is_some_and(|of| of as usize == number);
            if !counts || pod.terminating || pod.daemon {
                continue;
            }
            if chosen.contains(&on) || snapshot.nodes[on].deleting {
                evicted += 1;
                new |= chosen.contains(&on);
                from.insert(on);
            }
        }
        if new && from.len() > 1 && evicted > budget.allowed {
            found.insert(Violation::PodBudget(budget.name.clone()));
        }
    }
}

fn blocks(pod: &Pod) -> bool {
    !pod.terminating
        && match pod.eviction {
            Eviction::Allowed => false,
            Eviction::DoNotDisrupt => true,
            Eviction::BlockedByPdb(_) | Eviction::FullyBlockedByPdb(_) => !pod.mirror,
        }
}

fn needs_place(pod: &Pod, whatever_it_says: bool) -> bool {
    let held = matches!(pod.eviction, Eviction::DoNotDisrupt | Eviction::FullyBlockedByPdb(_));
    !pod.daemon && !pod.mirror && (!pod.terminating || pod.stateful) && (whatever_it_says || !held)
}

fn allowance(snapshot: &Snapshot, pool: &str, reason: DisruptionReason) -> u32 {
    let Some(found) = snapshot.node_pools.iter().find(|candidate| candidate.name == pool) else {
        return 0;
    };
    let nodes = snapshot.nodes.iter().filter(|node| {
        (node.phase == NodePhase::Initialized || node.health.reboots.in_progress)
            && node.claim.as_ref().and_then(|claim| claim.node_pool.as_deref()) == Some(pool)
    });
    let (mut total, mut busy) = (0_u32, 0_u32);
    for node in nodes {
        total += 1;
        // Nodes that are not ready are what repair is for.
        let leaves = node.deleting || node.health.reboots.in_progress;
        busy += u32::from(leaves || (!node.ready && reason != DisruptionReason::Unhealthy));
    }
    let mut allowed = u32::MAX;
    for budget in &found.disruption.budgets {
        if !budget.reasons.is_empty() && !budget.reasons.contains(&reason) {
            continue;
        }
        let value = match budget.nodes {
            BudgetNodes::Count(count) => count,
            BudgetNodes::Percent(percent) => {
                let share = (u64::from(total) * u64::from(percent)).div_ceil(100);
                u32::try_from(share).unwrap_or(u32::MAX)
            }
        };
        allowed = allowed.min(value);
    }
    allowed.saturating_sub(busy)
}
