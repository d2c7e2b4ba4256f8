//! Static capacity: NodePools with `spec.replicas` have as many machines as it says, whether or not pods need them. Behind the gate StaticCapacity.
//!
//! A pass plans on a snapshot in which every NodeClaim has its machine, so that nothing is launched twice. It runs when a NodePool or a NodeClaim has
//! changed, and once a minute.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tenon_crds::conditions::nodeclaim::DISRUPTION_REASON;
use tenon_planner::plan::{Plan, Removal};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

use crate::actuate;
use crate::cloud_provider::CloudProvider;
use crate::nodeclaim::pool_of;
use crate::operator::Operator;
use crate::planning::{self, on_snapshot};
use crate::state::change::Touched;
use crate::state::cluster::is_true;
use crate::tasks::isolated;
use crate::traces::span;
use crate::work::{Failure as _, log_concern};

const GATE: &str = "StaticCapacity";
const PERIOD: Duration = Duration::from_mins(1);

/// Keeps static NodePools at their size until `stop`.
pub async fn run<P: CloudProvider>(operator: Arc<Operator<P>>, stop: CancellationToken) {
    if !operator.options.feature_gates.is_on(GATE) {
        stop.cancelled().await;
        return;
    }
    let changed = Arc::new(Notify::new());
    let tell = Arc::clone(&changed);
    operator.state.subscribe(move |touched| {
        if matches!(touched, Touched::NodePool(_) | Touched::NodeClaim(_)) {
            tell.notify_one();
        }
    });
    let mut passes = 0;
    loop {
        if stop.run_until_cancelled(operator.state.synced()).await.is_none() {
            return;
        }
        passes += 1;
        if let Err(panicked) =
            isolated(pass(&operator, passes, &stop).instrument(span!(root: "static capacity pass")))
                .await
        {
            planning::tell(&panicked);
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(PERIOD) => {}
            () = changed.notified() => {}
        }
    }
}

async fn pass<P: CloudProvider>(operator: &Arc<Operator<P>>, seed: u64, stop: &CancellationToken) {
    if operator.state.read().pools().all(|pool| pool.spec.replicas.is_none()) {
        return;
    }
    let plan = on_snapshot(operator, stop, move |operator, snapshot| {
        tenon_planner::replicas(&snapshot, &operator.policy, operator.now(), seed)
    });
    let Some(plan) = plan.await else { return };
    for skipped in &plan.report.node_pools {
        tracing::debug!(
            nodepool = skipped.name,
            reason = skipped.reason,
            "static nodepool stays as it is"
        );
    }
    let acting = span!("actuate", launches = plan.launches.len());
    actuate::launch_all(operator, &plan.launches, stop).instrument(acting).await;
    if stop.is_cancelled() {
        return;
    }
    let settled = removals(&plan, &replacing(operator));
    for removal in settled {
        let claim = operator.state.read().claim(&removal.claim).cloned();
        let Some(claim) = claim else { continue };
        match operator.write.delete_claim(&claim).await {
            Ok(true) => tracing::info!(
                nodepool = removal.node_pool,
                nodeclaim = removal.claim,
                "removing a machine that a static nodepool has too many"
            ),
            Ok(false) => {}
            Err(error) => log_concern!(
                error.concern(),
                nodeclaim = removal.claim,
                error = %crate::logging::chain(&error),
                "failed to remove a machine of a static nodepool"
            ),
        }
    }
}

/// NodePools of which a machine is being replaced: they have one more than they should, for a while.
fn replacing<P: CloudProvider>(operator: &Operator<P>) -> BTreeSet<String> {
    let state = operator.state.read();
    let disrupted = state.claims().filter(|claim| is_true(claim, DISRUPTION_REASON));
    disrupted.map(|claim| pool_of(claim).to_owned()).collect()
}

/// What is removed now.
fn removals<'p>(plan: &'p Plan, replacing: &BTreeSet<String>) -> Vec<&'p Removal> {
    plan.removals.iter().filter(|removal| !replacing.contains(&removal.node_pool)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_whose_machine_is_being_replaced_loses_none() {
        let removal = |pool: &str| Removal {
            node: format!("{pool}-1"),
            claim: format!("{pool}-1"),
            node_pool: pool.to_owned(),
        };
        let plan = Plan { removals: vec![removal("a"), removal("b")], ..Plan::default() };
        let left = removals(&plan, &BTreeSet::from(["a".to_owned()]));
        assert_eq!(left, [&plan.removals[1]]);
    }
}
