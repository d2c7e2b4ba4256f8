//! What pods' `controller.kubernetes.io/pod-deletion-cost` should be, so that a ReplicaSet that
//! shrinks empties the nodes that would go next.

use std::collections::BTreeMap;

use jiff::Timestamp;
use tenon_crds::labels::DISRUPTED_TAINT;

use super::budgets::Budgets;
use super::candidates::{Node, by_savings, examine};
use crate::compile::Problem;
use crate::launch::pod_ref;
use crate::plan::PodRef;
use crate::policy::Policy;
use crate::snapshot::{DisruptionReason, Owner, Pod, Snapshot};

/// How many nodes' pods are written in one pass at most, those of nodes that go already not
/// counted.
const MOST_NODES: usize = 50;

/// What the pods of nodes cost that go already.
const GOING: i32 = i32::MIN;

/// A node whose pods' deletion costs have to change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeletionCost {
    /// [`crate::snapshot::Node::key`].
    pub node: String,
    /// The new value; `None` takes the annotation away.
    pub value: Option<i32>,
    /// The node's pods of ReplicaSets that have another value. Sorted.
    pub pods: Vec<PodRef>,
}

/// What the annotation of a pod says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PresentCost {
    /// It is not there.
    #[default]
    Unset,
    /// What was written for an earlier ranking.
    Written(i32),
    /// Somebody else's value, which stays.
    Foreign,
}

impl PresentCost {
    /// Whether a pod has to be written to have a value, or none.
    fn differs_from(self, value: Option<i32>) -> bool {
        match self {
            Self::Unset => value.is_some(),
            Self::Written(present) => Some(present) != value,
            Self::Foreign => false,
        }
    }
}

/// Ranks nodes by what would go first, and answers which pods have to be written: those of nodes
/// that go already, then those of at most fifty others. `present` is what the annotation of a pod
/// says. For the feature gate PodDeletionCostManagement; [`Pod::deletion_cost`] must not follow
/// that annotation then.
pub fn deletion_costs(
    snapshot: &Snapshot,
    policy: &Policy,
    now: Timestamp,
    present: &dyn Fn(&Pod) -> PresentCost,
) -> Vec<DeletionCost> {
    let overlaid = crate::overlays::apply(snapshot);
    let snapshot = &*overlaid.snapshot;
    let problem = Problem::new(snapshot, policy);
    let Ranks { going, ranked, unranked } = Ranks::of(&problem, now);
    let change = |node: usize, value: Option<i32>| {
        let pods = problem.tables.pods_on[node].iter().map(|&pod| &snapshot.pods[pod]);
        let changing =
            pods.filter(|pod| pod.owner == Owner::ReplicaSet && present(pod).differs_from(value));
        let mut pods: Vec<PodRef> = changing.map(pod_ref).collect();
        pods.sort_unstable();
        let node = snapshot.nodes[node].key.clone();
        (!pods.is_empty()).then_some(DeletionCost { node, value, pods })
    };
    let n = i32::try_from(ranked.len()).unwrap_or(i32::MAX);
    let values = (-n..0).map(Some);
    let ranked = ranked.into_iter().zip(values);
    let others = ranked.chain(unranked.into_iter().map(|node| (node, None)));
    let going = going.into_iter().filter_map(|node| change(node, Some(GOING)));
    let others = others.filter_map(|(node, value)| change(node, value)).take(MOST_NODES);
    going.chain(others).collect()
}

/// Managed nodes by what becomes of them.
#[derive(Default)]
struct Ranks {
    going: Vec<usize>,
    /// The first to go first: drifted ones, then others, as far as budgets go.
    ranked: Vec<usize>,
    unranked: Vec<usize>,
}

impl Ranks {
    fn of(problem: &Problem<'_>, now: Timestamp) -> Self {
        let snapshot = problem.tables.snapshot;
        let mut ranks = Self::default();
        let mut candidates: Vec<Node> = Vec::new();
        for (index, node) in snapshot.nodes.iter().enumerate() {
            if node.claim.is_none() || node.name.is_none() {
                continue;
            }
            if node.deleting || node.taints.iter().any(|taint| taint.key == DISRUPTED_TAINT) {
                ranks.going.push(index);
                continue;
            }
            match examine(problem, now, index) {
                Ok(node) if may_be_ranked(problem, &node) => candidates.push(node),
                _ => ranks.unranked.push(index),
            }
        }
        let budgets = Budgets::new(snapshot);
        let mut taken: BTreeMap<(usize, bool), u32> = BTreeMap::new();
        let (mut drifted, mut normal) = (Vec::new(), Vec::new());
        for node in by_savings(candidates.iter()) {
            let has_drifted = is_drifted(problem, node);
            let reason = if has_drifted {
                DisruptionReason::Drifted
            } else {
                DisruptionReason::Underutilized
            };
            let taken = taken.entry((node.pool, has_drifted)).or_default();
            if *taken >= budgets.available(node.pool, reason) {
                ranks.unranked.push(node.index);
                continue;
            }
            *taken += 1;
            if has_drifted { &mut drifted } else { &mut normal }.push(node.index);
        }
        ranks.ranked = drifted;
        ranks.ranked.append(&mut normal);
        ranks
    }
}

/// Static pools replace what has drifted; their nodes are like others.
fn is_drifted(problem: &Problem<'_>, node: &Node) -> bool {
    let snapshot = problem.tables.snapshot;
    let claim = snapshot.nodes[node.index].claim.as_ref();
    let drifted = claim.is_some_and(|claim| claim.drifted.is_some());
    drifted && snapshot.node_pools[node.pool].replicas.is_none()
}

/// Whether nothing holds the node: no pod that must stay or that nobody would bring back, a price,
/// and a reason to go some time.
fn may_be_ranked(problem: &Problem<'_>, node: &Node) -> bool {
    let snapshot = problem.tables.snapshot;
    let pins = |&pod: &usize| {
        let pod = &snapshot.pods[pod];
        *pod.namespace != *"kube-system" && pod.owner == Owner::Other && !pod.daemon
    };
    let after = snapshot.node_pools[node.pool].disruption.consolidate_after;
    node.blocked.is_none()
        && !problem.tables.pods_on[node.index].iter().any(pins)
        && node.price.is_some()
        && (after.is_some() || is_drifted(problem, node))
}
