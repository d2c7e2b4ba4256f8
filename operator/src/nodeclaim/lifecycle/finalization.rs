//! The end of a NodeClaim: its Nodes are drained and gone, then its machine is terminated, then the
//! finalizer comes off.
//!
//! That its Nodes are gone is the API server's to say, not the state's: a Node that the watch has
//! not brought yet has pods that would die with the machine.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tenon_crds::conditions::nodeclaim::{INSTANCE_TERMINATING, REGISTERED};
use tenon_crds::timestamp::Timestamp;
use tenon_crds::{NodeClaim, labels};

use super::{Error, expiring};
use crate::claims::{capacity_type_of, conditions, pool_of};
use crate::cloud_provider::{CloudError, CloudProvider};
use crate::confirm;
use crate::operator::Operator;
use crate::state::cluster::{annotation, is_true, label, name};
use crate::watch::wire::Node;
use crate::work_queue::Action;
use crate::write::Precondition;

/// How often the provider is asked whether the machine is gone.
const POLL: Duration = Duration::from_secs(5);
/// How soon the API server is asked again for a Node that the watch should have brought.
const CONFIRM: Duration = Duration::from_secs(1);

pub(super) async fn reconcile<P: CloudProvider>(
    operator: &Operator<P>,
    claim: NodeClaim,
    nodes: &[Arc<Node>],
) -> Result<Action, Error> {
    let held = claim.metadata.finalizers.iter().flatten();
    if !held.into_iter().any(|finalizer| finalizer == labels::TERMINATION_FINALIZER) {
        return Ok(Action::Wait);
    }
    let mut claim = set_deadline(operator, claim).await?;
    // A machine that never registered has Nodes that are not ours to delete; the cloud's node
    // controller cleans them up.
    if is_true(&claim, REGISTERED) {
        if !nodes.is_empty() {
            for node in nodes.iter().filter(|node| !node.is_deleting()) {
                operator.write.delete_node(node).await?;
            }
            return Ok(Action::Wait);
        }
        if !is_true(&claim, INSTANCE_TERMINATING) && has_node(operator, &claim).await? {
            return Ok(Action::After(CONFIRM));
        }
    }
    // Also without a provider id: a launch that nobody could write down may have made a machine,
    // and the provider finds it.
    match operator.cloud.delete(&claim).await {
        Ok(()) => {
            let before = claim.status.clone();
            conditions(&mut claim, operator.now()).set_true(INSTANCE_TERMINATING);
            if claim.status != before {
                operator.write.patch_claim_status(&claim).await?;
            }
            return Ok(Action::After(POLL));
        }
        Err(CloudError::NotFound(_)) if claim.provider_id().is_some() => {
            let metrics = &operator.context.metrics;
            metrics
                .instance_termination_duration
                .observe([pool_of(&claim)], since(operator, &claim));
        }
        Err(CloudError::NotFound(_)) => {}
        Err(source) => return Err(Error::Terminate { claim: name(&claim.metadata), source }),
    }
    operator.write.release_claim(&claim).await?;
    let metrics = &operator.context.metrics;
    let pool = pool_of(&claim);
    metrics.nodeclaim_termination_duration.observe([pool], since(operator, &claim));
    let zone = label(&claim, labels::ZONE).unwrap_or_default();
    metrics.nodeclaims_terminated.inc([pool, capacity_type_of(&claim), zone]);
    operator.context.decisions.gone(&name(&claim.metadata));
    tracing::info!(nodeclaim = name(&claim.metadata), nodepool = pool, "deleted nodeclaim");
    Ok(Action::Wait)
}

/// Whether there is a Node after all, although the state knows of none.
async fn has_node<P: CloudProvider>(
    operator: &Operator<P>,
    claim: &NodeClaim,
) -> Result<bool, Error> {
    let nodes = confirm::nodes_of(&operator.context.client, claim).await?;
    let Some(node) = nodes.first() else { return Ok(false) };
    tracing::info!(
        nodeclaim = name(&claim.metadata),
        node = node.name(),
        "not terminating the instance yet: its node still exists, although the watch has not \
         reported it"
    );
    Ok(true)
}

/// Writes down when everything that is left on the Node will be deleted, if the NodeClaim has a
/// termination grace period. Never overwritten.
async fn set_deadline<P: CloudProvider>(
    operator: &Operator<P>,
    claim: NodeClaim,
) -> Result<NodeClaim, Error> {
    let Some(period) = &claim.spec.termination_grace_period else { return Ok(claim) };
    if annotation(&claim, labels::TERMINATION_TIMESTAMP).is_some() {
        return Ok(claim);
    }
    let Some(deleted) = &claim.metadata.deletion_timestamp else { return Ok(claim) };
    let by = deleted.0.checked_add(period.as_signed()).unwrap_or(jiff::Timestamp::MAX);
    let text = Timestamp(by).to_string();
    let body = json!({"metadata": {"annotations": {labels::TERMINATION_TIMESTAMP: text}}});
    let claim = operator.write.patch_claim(&claim, body, Precondition::Unchanged).await?;
    operator.context.recorder.publish(expiring(&claim, by));
    Ok(claim)
}

/// Seconds since the deletion was asked for.
fn since<P: CloudProvider>(operator: &Operator<P>, claim: &NodeClaim) -> f64 {
    let deleted = claim.metadata.deletion_timestamp.as_ref();
    deleted.map_or(0.0, |time| operator.now().duration_since(time.0).as_secs_f64())
}

#[cfg(test)]
mod tests;
