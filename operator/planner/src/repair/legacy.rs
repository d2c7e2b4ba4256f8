//! Repair as before Karpenter 1.15 (`--legacy-node-repair`): an unhealthy node is deleted
//! immediately, regardless of budgets, pods and annotations.

use jiff::Timestamp;

use super::{Breaker, Policies, is_about};
use crate::snapshot::{Node, NodeCondition, RepairAction, Snapshot};

/// An unhealthy node whose NodeClaim is deleted immediately, without waiting for its pods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Forced {
    /// [`Node::key`].
    pub node: String,
    /// `metadata.name` of the NodeClaim to delete.
    pub claim: String,
    /// Label `karpenter.sh/nodepool` of the NodeClaim.
    pub node_pool: Option<String>,
    /// The condition whose toleration ended first.
    pub condition: NodeCondition,
    /// Set if the node stays because too many Nodes are unhealthy: their number, and the number of
    /// all Nodes, of its NodePool or, without one, of the cluster.
    pub blocked: Option<(u32, u32)>,
}

/// The nodes that have been unhealthy for longer than tolerated, sorted by key.
pub fn forced(snapshot: &Snapshot, now: Timestamp) -> Vec<Forced> {
    let policies = Policies::new(&snapshot.repair_policies);
    let breaker = Breaker::new(snapshot, |node| policies.first_due(node).is_some());
    let mut found = Vec::new();
    for node in snapshot.nodes.iter().filter(|node| node.name.is_some() && !node.deleting) {
        let Some(claim) = &node.claim else { continue };
        let Some((due, condition)) = policies.first_due(node) else { continue };
        if due > now {
            continue;
        }
        let share = match claim.node_pool.as_deref() {
            Some(pool) => breaker.share(pool),
            None => breaker.cluster,
        };
        found.push(Forced {
            node: node.key.clone(),
            claim: claim.name.clone(),
            node_pool: claim.node_pool.clone(),
            condition: condition.clone(),
            blocked: share.is_too_much().then_some((share.unhealthy, share.nodes)),
        });
    }
    found
}

/// The end of the next toleration that has not ended yet. Until then, and as long as no condition
/// changes, [`forced`] finds no other nodes.
pub fn next_due(snapshot: &Snapshot, now: Timestamp) -> Option<Timestamp> {
    let policies = Policies::new(&snapshot.repair_policies);
    let due = snapshot.nodes.iter().filter_map(|node| policies.first_due(node));
    due.map(|(due, _)| due).filter(|due| *due > now).min()
}

impl Policies<'_> {
    /// The condition whose toleration ends first, and when. A policy without a reason applies to
    /// its own condition only.
    fn first_due<'n>(&self, node: &'n Node) -> Option<(Timestamp, &'n NodeCondition)> {
        let replacing = self.all.iter().zip(&self.reasons).filter(|(policy, reason)| {
            policy.action == RepairAction::ReplaceNode
                && (reason.is_some() || policy.reason.is_none())
        });
        let due =
            replacing.flat_map(|(policy, reason)| {
                let applies = move |it: &&NodeCondition| {
                    is_about(policy, it)
                        && reason.as_ref().is_none_or(|reason| reason.is_match(&it.reason))
                };
                node.health.conditions.iter().filter(applies).map(|it| {
                    (it.since.checked_add(policy.toleration).unwrap_or(Timestamp::MAX), it)
                })
            });
        due.min_by(|(a, x), (b, y)| a.cmp(b).then(x.type_.cmp(&y.type_)))
    }
}
