//! Which nodes may be disrupted at all, and what that would cost.

use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::compile::Problem;
use crate::disruption::Pass;
use crate::disruption::cost::{LEAST_COST, reschedule_cost};
use crate::launch::pod_ref;
use crate::plan::{PodRef, StayReason};
use crate::resources::MicroUsd;
use crate::snapshot::{self, Eviction, NodePhase};

/// A node that may go.
#[derive(Clone, Debug)]
pub(super) struct Node {
    /// Index into [`crate::Snapshot::nodes`].
    pub(super) index: usize,
    /// Index into [`crate::Snapshot::node_pools`].
    pub(super) pool: usize,
    /// Pods that need another place.
    pub(super) pods: Vec<usize>,
    /// How many of them count against which PodDisruptionBudget ([`crate::Snapshot::pod_budgets`]).
    pub(super) pod_budgets: Vec<(usize, u32)>,
    pub(super) price: Option<MicroUsd>,
    /// What it costs to move its pods.
    pub(super) cost: f64,
    /// A pod that forbids it, unless the node has drifted or is sick, and there is a bound to how
    /// long that holds.
    pub(super) blocked: Option<StayReason>,
}

impl Node {
    /// No pod on it would be missed.
    pub(super) fn is_empty(&self) -> bool {
        self.cost <= LEAST_COST
    }

    /// What it costs to evict its pods, in units of an ordinary pod.
    pub(super) fn eviction_cost(&self) -> f64 {
        self.cost - LEAST_COST
    }

    /// The pod that forbids it.
    pub(super) fn blocking_pod(&self) -> Option<&PodRef> {
        match &self.blocked {
            Some(StayReason::PodDoNotDisrupt(pod) | StayReason::Pdb { pod, .. }) => Some(pod),
            _ => None,
        }
    }

    /// What it saves per what it costs to move its pods.
    fn savings_ratio(&self) -> f64 {
        self.price.unwrap_or_default().as_usd() / self.cost
    }
}

/// The nodes that may go, by index, as far as they themselves are concerned.
pub(super) fn find(problem: &Problem<'_>, now: Timestamp) -> Vec<Node> {
    let nodes = 0..problem.tables.snapshot.nodes.len();
    nodes.filter_map(|index| examine(problem, now, index).ok()).collect()
}

/// Of the other nodes why they stay.
pub(super) fn stays(pass: &Pass<'_, '_>) -> Vec<(usize, StayReason)> {
    let nodes = 0..pass.problem.tables.snapshot.nodes.len();
    let stay = |index| match examine(pass.problem, pass.now, index) {
        Ok(_) if pass.receiving[index] => Some((index, StayReason::Nominated)),
        Ok(_) => None,
        Err(stay) => Some((index, stay)),
    };
    nodes.filter_map(stay).collect()
}

/// Whether a node may go.
pub(super) fn examine(
    problem: &Problem<'_>,
    now: Timestamp,
    index: usize,
) -> Result<Node, StayReason> {
    let snapshot = problem.tables.snapshot;
    let node = &snapshot.nodes[index];
    if node.claim.is_none() {
        return Err(StayReason::NotManaged);
    }
    if node.health.reboots.in_progress {
        return Err(StayReason::Rebooting);
    }
    if node.deleting {
        return Err(StayReason::Deleting);
    }
    if node.name.is_none() || node.phase != NodePhase::Initialized {
        return Err(StayReason::NotInitialized);
    }
    if node.nominated_until.is_some_and(|until| until > now) {
        return Err(StayReason::Nominated);
    }
    if let Some(stay) = refused(node, now) {
        return Err(stay);
    }
    if node.do_not_disrupt {
        return Err(StayReason::DoNotDisrupt);
    }
    weigh(problem, index)
}

/// Whether a sick node may go. It may be one that never came up; that pods are expected there then
/// doesn't matter, and `do-not-disrupt` never does.
pub(super) fn examine_sick(
    problem: &Problem<'_>,
    now: Timestamp,
    index: usize,
) -> Result<Node, StayReason> {
    let node = &problem.tables.snapshot.nodes[index];
    let Some(claim) = &node.claim else { return Err(StayReason::NotManaged) };
    if claim.node_pool.is_none() {
        return Err(StayReason::RepairNeedsNodePool);
    }
    if node.health.reboots.in_progress {
        return Err(StayReason::Rebooting);
    }
    if node.deleting {
        return Err(StayReason::Deleting);
    }
    if node.name.is_none() || node.phase < NodePhase::Registered {
        return Err(StayReason::NotInitialized);
    }
    if let Some(stay) = refused(node, now) {
        return Err(stay);
    }
    let is_up = node.phase == NodePhase::Initialized;
    if is_up && node.nominated_until.is_some_and(|until| until > now) {
        return Err(StayReason::Nominated);
    }
    weigh(problem, index)
}

/// Whether the API server has just refused to let a node go: to try at once again would only taint
/// it for nothing.
fn refused(node: &snapshot::Node, now: Timestamp) -> Option<StayReason> {
    let refusal = node.refusal.as_ref().filter(|refusal| refusal.until > now)?;
    Some(StayReason::DeletionRefused(refusal.message.clone()))
}

/// What a node's going would mean, if its pool is known.
fn weigh(problem: &Problem<'_>, index: usize) -> Result<Node, StayReason> {
    let snapshot = problem.tables.snapshot;
    let node = &snapshot.nodes[index];
    let name = node.claim.as_ref().and_then(|claim| claim.node_pool.as_deref());
    let pool = name.and_then(|name| {
        snapshot.node_pools.iter().position(|pool| pool.name == name && pool.catalog.is_some())
    });
    let Some(pool) = pool else { return Err(StayReason::NotManaged) };
    let on_it = || problem.tables.pods_on[index].iter().map(|&pod| &snapshot.pods[pod]);
    let blocked = on_it().filter(|pod| !pod.terminating).find_map(|pod| match &pod.eviction {
        Eviction::DoNotDisrupt => Some(StayReason::PodDoNotDisrupt(pod_ref(pod))),
        Eviction::BlockedByPdb(budget) | Eviction::FullyBlockedByPdb(budget) if !pod.mirror => {
            Some(StayReason::Pdb { pod: pod_ref(pod), budget: budget.clone() })
        }
        _ => None,
    });
    let pods: Vec<_> = problem.tables.pods_on[index]
        .iter()
        .copied()
        .filter(|&pod| snapshot.pods[pod].is_reschedulable())
        .collect();
    let cost = reschedule_cost(pods.iter().map(|&pod| &snapshot.pods[pod]));
    let mut pod_budgets = BTreeMap::new();
    for pod in pods.iter().map(|&pod| &snapshot.pods[pod]).filter(|pod| !pod.terminating) {
        if let Some(budget) = pod.pod_budget {
            *pod_budgets.entry(budget as usize).or_default() += 1;
        }
    }
    let pod_budgets = pod_budgets.into_iter().collect();
    Ok(Node { index, pool, pods, pod_budgets, price: node.price, cost, blocked })
}

/// The dearest per what they disrupt first; ties by key.
pub(super) fn by_savings<'n>(nodes: impl Iterator<Item = &'n Node>) -> Vec<&'n Node> {
    let mut sorted: Vec<_> = nodes.collect();
    sorted.sort_by(|a, b| {
        b.savings_ratio().total_cmp(&a.savings_ratio()).then(a.index.cmp(&b.index))
    });
    sorted
}

/// The machines in the order in which they receive pods: first those that stay anyway, then the
/// nodes that have least to gain from going, so that what is left over gathers where most can be
/// saved. Machines that will be replaced for drift come late, those that are still starting last.
pub(super) fn receivers(problem: &Problem<'_>, nodes: &[Node]) -> Vec<usize> {
    // `None`, which stays, comes first.
    let mut ratio: Vec<Option<f64>> = vec![None; problem.tables.snapshot.nodes.len()];
    for node in nodes {
        ratio[node.index] = Some(node.savings_ratio());
    }
    let rank = |machine: usize| {
        let node = &problem.tables.snapshot.nodes[machine];
        let drifted = node.claim.as_ref().is_some_and(|claim| claim.drifted.is_some());
        (node.phase != NodePhase::Initialized, drifted)
    };
    let mut order = problem.tables.machines.order.clone();
    order.sort_by(|&a, &b| {
        let by_ratio = match (ratio[a], ratio[b]) {
            (Some(a), Some(b)) => a.total_cmp(&b),
            (a, b) => a.is_some().cmp(&b.is_some()),
        };
        rank(a).cmp(&rank(b)).then(by_ratio).then(a.cmp(&b))
    });
    order
}
