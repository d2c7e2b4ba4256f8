//! Repair as it was before Karpenter 1.15 (`--legacy-node-repair`): a sick node is deleted at once, whatever budgets, pods and annotations say.

use jiff::Timestamp;

use super::{Breaker, Policies, is_about};
use crate::snapshot::{Node, NodeCondition, RepairAction, Snapshot};

/// A sick node that goes at once: its NodeClaim is deleted, and its pods are waited for no longer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Forced {
    /// [`Node::key`].
    pub node: String,
    /// The NodeClaim to delete.
    pub claim: String,
    /// Its NodePool.
    pub node_pool: Option<String>,
    /// What it suffers from.
    pub condition: NodeCondition,
    /// It stays, since so many Nodes of its pool are sick, of so many; of the whole cluster where it has no pool.
    pub blocked: Option<(u32, u32)>,
}

/// The nodes that are sick for longer than is tolerated, by key.
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

/// When the next node will have been sick for longer than is tolerated, of those that have not been yet. Until then, and as long as no condition changes,
/// [`forced`] finds no others.
pub fn next_due(snapshot: &Snapshot, now: Timestamp) -> Option<Timestamp> {
    let policies = Policies::new(&snapshot.repair_policies);
    let due = snapshot.nodes.iter().filter_map(|node| policies.first_due(node));
    due.map(|(due, _)| due).filter(|due| *due > now).min()
}

impl Policies<'_> {
    /// The condition that is the first to be tolerated no longer, and when. A policy without a reason stands for its own condition only.
    fn first_due<'n>(&self, node: &'n Node) -> Option<(Timestamp, &'n NodeCondition)> {
        let replacing = self.all.iter().zip(&self.reasons).filter(|(policy, reason)| {
            policy.action == RepairAction::ReplaceNode
                && (reason.is_some() || policy.reason.is_empty())
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
