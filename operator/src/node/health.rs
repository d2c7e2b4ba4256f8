//! Node repair as it was before Karpenter 1.15 (`--legacy-node-repair`): a sick node goes at once, whatever budgets, pods and annotations say.

use std::sync::Arc;
use std::time::Duration;

use jiff::SignedDuration;
use tenon_planner::repair::{Forced, forced};
use tokio_util::sync::CancellationToken;

use crate::cloud_provider::CloudProvider;
use crate::disruption::queue::deletion::{bound_drain, snake_case};
use crate::events::{Event, Reason};
use crate::nodeclaim::{capacity_type_of, pods_to_move, pool_of, termination_mode};
use crate::operator::Operator;
use crate::write::WriteError;

/// How often nodes are looked at.
const EVERY: Duration = Duration::from_secs(10);

/// How long it is not said again that nodes stay although they are sick.
const WINDOW: SignedDuration = SignedDuration::from_mins(15);

/// Deletes sick nodes until told to stop.
pub async fn run<P: CloudProvider>(operator: Arc<Operator<P>>, stop: CancellationToken) {
    loop {
        if stop.run_until_cancelled(operator.state.synced()).await.is_none() {
            return;
        }
        let snapshot = operator.snapshot_with_health();
        for sick in forced(&snapshot, operator.now()) {
            if let Err(error) = treat(&operator, &sick).await {
                operator.context.metrics.reconcile_errors.inc(["node.health", "error"]);
                let error = crate::logging::chain(&error);
                tracing::error!(nodeclaim = sick.claim, error, "failed to repair a node");
            }
        }
        if stop.run_until_cancelled(tokio::time::sleep(EVERY)).await.is_none() {
            return;
        }
    }
}

async fn treat<P: CloudProvider>(operator: &Operator<P>, sick: &Forced) -> Result<(), WriteError> {
    let (claim, node) = {
        let state = operator.state.read();
        let claim = state.claim(&sick.claim).filter(|claim| !state.is_going(claim)).cloned();
        let node = claim.as_ref().and_then(|claim| state.node_of(claim).cloned());
        (claim, node)
    };
    let (Some(claim), Some(node)) = (claim, node) else { return Ok(()) };
    if sick.blocked.is_some() {
        let message = match &sick.node_pool {
            Some(pool) => format!("more than 20% of nodes in nodepool \"{pool}\" are unhealthy"),
            None => "more than 20% of nodes in the cluster are unhealthy".to_owned(),
        };
        let event = Event::warning(&*node, Reason::NodeRepairBlocked, message);
        operator.context.recorder.publish(event.within(WINDOW));
        return Ok(());
    }
    let n_pods = pods_to_move(operator, &claim);
    if !bound_drain(operator, &claim, SignedDuration::ZERO).await? {
        return Ok(());
    }
    operator.write.delete_claim(&claim).await?;
    let (condition, pool) = (&sick.condition, pool_of(&claim));
    tracing::info!(
        nodeclaim = sick.claim,
        nodepool = pool,
        condition = condition.type_,
        status = condition.status,
        reason = condition.reason,
        "deleting the nodeclaim of a node that is unhealthy"
    );
    let metrics = &operator.context.metrics;
    let capacity_type = capacity_type_of(&claim);
    let labels = ["unhealthy", pool, capacity_type, "", termination_mode(&claim)];
    metrics.nodeclaims_disrupted.inc(labels);
    metrics.pods_disruption_initiated.add(labels, n_pods);
    let image = claim.status.as_ref().and_then(|status| status.image_id.as_deref());
    let (condition, image) = (snake_case(&condition.type_), image.unwrap_or_default());
    metrics.nodeclaims_unhealthy_disrupted.inc([
        &condition,
        pool,
        capacity_type,
        image,
        "forceful",
    ]);
    Ok(())
}
