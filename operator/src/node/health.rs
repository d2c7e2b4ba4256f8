//! Node repair as it was before Karpenter 1.15 (`--legacy-node-repair`): a sick node goes at once, whatever budgets, pods and annotations say.

use std::sync::Arc;
use std::time::Duration;

use jiff::SignedDuration;
use tenon_planner::plan::Stay;
use tenon_planner::repair::{Forced, forced};
use tenon_state::explain;
use tokio_util::sync::CancellationToken;

use crate::cloud_provider::CloudProvider;
use crate::disruption::queue::deletion::{bound_drain, count_unhealthy};
use crate::events::{Event, Reason};
use crate::nodeclaim::{capacity_type_of, give_up, pods_to_move, pool_of, termination_mode};
use crate::operator::Operator;
use crate::planning::{self, unless_stopped};
use crate::tasks::isolated;
use crate::write::WriteError;

/// How often nodes are looked at.
const EVERY: Duration = Duration::from_secs(10);

/// Why these NodeClaims go, as metrics label it.
const UNHEALTHY: &str = "unhealthy";

/// Deletes sick nodes until told to stop.
pub async fn run<P: CloudProvider>(operator: Arc<Operator<P>>, stop: CancellationToken) {
    loop {
        if stop.run_until_cancelled(operator.state.synced()).await.is_none() {
            return;
        }
        if let Err(panicked) = isolated(pass(&operator, &stop)).await {
            planning::tell(&panicked);
        }
        if stop.run_until_cancelled(tokio::time::sleep(EVERY)).await.is_none() {
            return;
        }
    }
}

async fn pass<P: CloudProvider>(operator: &Arc<Operator<P>>, stop: &CancellationToken) {
    let looking = Arc::clone(operator);
    let sick = unless_stopped(stop, move || forced(&looking.snapshot_with_health(), looking.now()));
    for sick in sick.await.unwrap_or_default() {
        if stop.is_cancelled() {
            return;
        }
        if let Err(error) = treat(operator, &sick).await {
            operator.context.metrics.reconcile_errors.inc(["node.health", "error"]);
            let error = crate::logging::chain(&error);
            tracing::error!(nodeclaim = sick.claim, error, "failed to repair a node");
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
    if let Some((unhealthy, nodes)) = sick.blocked {
        let node_pool = sick.node_pool.clone().unwrap_or_default();
        let stay = Stay::TooManyUnhealthy { node_pool, unhealthy, nodes };
        if let Some(((_, mut message), window)) = explain::staying(&stay) {
            if sick.node_pool.is_none() {
                // A decision of the planner is always about a NodePool; this one need not be.
                "more than 20% of nodes in the cluster are unhealthy".clone_into(&mut message);
            }
            let event = Event::warning(&*node, Reason::NodeRepairBlocked, message);
            operator.context.recorder.publish(event.within(window));
        }
        return Ok(());
    }
    let n_pods = pods_to_move(operator, &claim);
    if !bound_drain(operator, &claim, SignedDuration::ZERO).await? {
        return Ok(());
    }
    let condition = &sick.condition;
    tracing::info!(
        nodeclaim = sick.claim,
        condition = condition.type_,
        status = condition.status,
        reason = condition.reason,
        "the node is unhealthy"
    );
    give_up(operator, &claim, UNHEALTHY).await?;
    let labels =
        [UNHEALTHY, pool_of(&claim), capacity_type_of(&claim), "", termination_mode(&claim)];
    operator.context.metrics.pods_disruption_initiated.add(labels, n_pods);
    count_unhealthy(operator, &claim, &condition.type_, "forceful");
    Ok(())
}
