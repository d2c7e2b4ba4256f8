//! Whether a node is sick enough to be repaired as a command says.

use jiff::Timestamp;

use crate::plan::{Command, Method, Repair};
use crate::snapshot::{Node, NodeCondition, RepairAction, RepairPolicy, Snapshot};

/// Whether there is a bound to how long its pods are waited for; the error is what a command for a
/// node lacks.
pub(super) fn has_to_go(
    snapshot: &Snapshot,
    node: &Node,
    command: &Command,
) -> Result<bool, &'static str> {
    let Some(repair) = &command.repair else {
        return Err("its command does not say what it suffers from");
    };
    if command.method != Method::Repair || command.candidates.len() != 1 {
        return Err("repair takes one node at a time");
    }
    if node.health.do_not_repair {
        return Err("do-not-repair");
    }
    let known = |condition: &NodeCondition| {
        let mut policies = snapshot.repair_policies.iter();
        policies.any(|it| it.condition == condition.type_ && it.status == condition.status)
    };
    let suffers = |condition: &&NodeCondition| {
        (&condition.type_, &condition.status, &condition.reason)
            == (&repair.condition, &repair.status, &repair.reason)
    };
    let Some(condition) = node.health.conditions.iter().filter(|it| known(it)).find(suffers) else {
        return Err("it does not suffer from what its command says");
    };
    let starts = [Some(condition.since), node.health.joined_at, node.health.reboots.ended_at];
    let since = starts.into_iter().flatten().max().unwrap_or(condition.since);
    called_for(snapshot, repair, since)?;
    let pool = |node: &Node| {
        let claimed = node.claim.as_ref().and_then(|claim| claim.node_pool.clone());
        claimed.or_else(|| node.labels.get("karpenter.sh/nodepool").cloned())
    };
    let peers = snapshot.nodes.iter().filter(|it| it.name.is_some() && pool(it) == pool(node));
    let (sick, well): (Vec<_>, Vec<_>) =
        peers.partition(|it| it.health.conditions.iter().any(known));
    // A fifth, rounded up.
    if sick.len() > (sick.len() + well.len()).div_ceil(5) {
        return Err("too many nodes of its NodePool are unhealthy");
    }
    let own = node.claim.as_ref().and_then(|claim| claim.termination_grace_period);
    if let (Some(bound), Some(own)) = (repair.drain_bound, own)
        && bound > own
    {
        return Err("its pods would be waited for longer than its NodeClaim says");
    }
    let changes = !command.replacements.is_empty() || !command.nominations.is_empty();
    if repair.action == RepairAction::RebootNode && changes {
        return Err("a node that is rebooted stays, and so do its pods");
    }
    Ok(repair.drain_bound.is_some())
}

/// Whether a policy asks for a repair of what began to count at a time.
fn called_for(snapshot: &Snapshot, repair: &Repair, since: Timestamp) -> Result<(), &'static str> {
    let named = snapshot.repair_policies.iter().filter(|it| it.reason == repair.policy);
    // The one without a reason stands for all that the others leave over.
    let about = |it: &&RepairPolicy| {
        it.reason.is_none() || (&it.condition, &it.status) == (&repair.condition, &repair.status)
    };
    let is_due = |policy: &&RepairPolicy| {
        since.checked_add(policy.toleration).is_ok_and(|due| due == repair.eligible_at)
    };
    let mut policies: Vec<_> = named.filter(about).filter(is_due).collect();
    if policies.is_empty() {
        return Err("what it suffers from is still tolerated");
    }
    policies.retain(|policy| match (repair.escalated, repair.action) {
        (true, action) => {
            (policy.action, action) == (RepairAction::RebootNode, RepairAction::ReplaceNode)
        }
        (false, action) => policy.action == action,
    });
    if policies.is_empty() {
        return Err("its policy asks for another action");
    }
    let is_bound = |most| repair.drain_bound.is_some_and(|bound| bound <= most);
    if !policies.iter().any(|policy| policy.termination_grace_period.is_none_or(is_bound)) {
        return Err("its pods would be waited for longer than its policy says");
    }
    Ok(())
}
