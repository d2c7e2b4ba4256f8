//! What a command leaves on a node while it is carried out: the taint, and why the NodeClaim is
//! disrupted.

use std::sync::Arc;

use serde_json::json;
use tenon_crds::conditions::nodeclaim::DISRUPTION_REASON;
use tenon_crds::{NodeClaim, TaintEffect, labels};
use tenon_planner::snapshot::DisruptionReason;

use crate::claims::conditions;
use crate::cloud_provider::CloudProvider;
use crate::disruption::set_reason;
use crate::operator::Operator;
use crate::state::cluster::name;
use crate::watch::wire::Node;
use crate::work_queue::Failure as _;
use crate::write::WriteError;

/// Taints a candidate's node, and writes down why.
pub(super) async fn mark<P: CloudProvider>(
    operator: &Operator<P>,
    claim: &NodeClaim,
    node: Option<&Arc<Node>>,
    reason: DisruptionReason,
) -> Result<(), WriteError> {
    if let Some(node) = node {
        taint(operator, node).await?;
    }
    let mut claim = claim.clone();
    set_reason(&mut claim, &format!("{reason:?}"), operator.now());
    operator.write.patch_claim_status(&claim).await?;
    Ok(())
}

async fn taint<P: CloudProvider>(operator: &Operator<P>, node: &Node) -> Result<(), WriteError> {
    if node.has_taint(labels::DISRUPTED_TAINT, TaintEffect::NoSchedule.as_str()) {
        return Ok(());
    }
    let mut taints = node.spec.taints.clone();
    taints.retain(|taint| taint.key != labels::DISRUPTED_TAINT);
    taints.push(tenon_crds::Taint::new(labels::DISRUPTED_TAINT, TaintEffect::NoSchedule).into());
    operator.write.patch_node(node, &json!({"spec": {"taints": taints}})).await?;
    Ok(())
}

/// Takes the taint of a disruption off a node.
async fn untaint<P: CloudProvider>(operator: &Operator<P>, node: &Node) -> Result<(), WriteError> {
    let mut taints = node.spec.taints.clone();
    taints.retain(|taint| taint.key != labels::DISRUPTED_TAINT);
    if taints.len() < node.spec.taints.len() {
        operator.write.patch_node(node, &json!({"spec": {"taints": taints}})).await?;
        tracing::info!(
            node = node.name(),
            "removed the taint of a disruption that was not carried out"
        );
    }
    Ok(())
}

/// Takes back that a NodeClaim is disrupted.
async fn clear_reason<P: CloudProvider>(
    operator: &Operator<P>,
    claim: &NodeClaim,
) -> Result<(), WriteError> {
    let mut claim = claim.clone();
    let mut set = conditions(&mut claim, operator.now());
    if set.clear(DISRUPTION_REASON).expect("DisruptionReason is independent") {
        operator.write.patch_claim_status(&claim).await?;
    }
    Ok(())
}

/// Takes the taint and the reason of a disruption off a node that stays. A failure is logged; the
/// next pass tries again.
pub(in crate::disruption) async fn clear<P: CloudProvider>(
    operator: &Operator<P>,
    claim: &NodeClaim,
    node: Option<&Node>,
) {
    let untainted = async {
        match node.filter(|node| !node.is_deleting()) {
            Some(node) => untaint(operator, node).await,
            None => Ok(()),
        }
    };
    let cleared = async {
        if claim.metadata.deletion_timestamp.is_some() {
            return Ok(());
        }
        clear_reason(operator, claim).await
    };
    let (untainted, cleared) = tokio::join!(untainted, cleared);
    for error in untainted.err().into_iter().chain(cleared.err()) {
        if error.is_conflict() || error.is_not_found() {
            continue;
        }
        tracing::warn!(
            nodeclaim = name(&claim.metadata),
            error = %crate::text::chain(&error),
            "failed to roll back a disruption; retrying with the next pass"
        );
    }
}
