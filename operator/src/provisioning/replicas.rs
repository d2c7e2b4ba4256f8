//! Static capacity: NodePools with `spec.replicas` have as many machines as it says, whether or not
//! pods need them. Behind the gate StaticCapacity.
//!
//! A pass plans on a snapshot in which every NodeClaim has its machine, so that nothing is launched
//! twice. It runs when a NodePool or a NodeClaim has changed, and once a minute. A NodePool with
//! which planning panics is found and left out for a while, so that the others keep their size.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tenon_crds::conditions::nodeclaim::DISRUPTION_REASON;
use tenon_planner::Snapshot;
use tenon_planner::plan::{Plan, Removal};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

use crate::actuate;
use crate::claims::pool_of;
use crate::cloud_provider::CloudProvider;
use crate::decisions::Cause;
use crate::operator::Operator;
use crate::planning::pools::{self, Suspicion};
use crate::planning::{self, Until, on_snapshot_for};
use crate::quarantine::Work;
use crate::state::change::Touched;
use crate::state::cluster::is_true;
use crate::tasks::{Panicked, isolated};
use crate::traces::{number, span};
use crate::work_queue::{Failure as _, log_concern};

const GATE: &str = "StaticCapacity";
const PERIOD: Duration = Duration::from_mins(1);

/// Keeps static NodePools at their size until `stop`.
pub(crate) async fn run<P: CloudProvider>(operator: Arc<Operator<P>>, stop: CancellationToken) {
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
            let again = move |operator: &Operator<P>, some: &Snapshot, _: &Until| {
                tenon_planner::replicas(some, &operator.policy, operator.now(), passes)
            };
            match isolated(set_aside(&operator, again, &stop, &panicked)).await {
                // The others are planned for at once.
                Ok(true) => continue,
                Ok(false) => {}
                Err(panicked) => planning::tell(&panicked),
            }
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(PERIOD) => {}
            () = changed.notified() => {}
        }
    }
}

/// Finds the NodePools with which `plan` panics, and leaves them out for a while; false when it is
/// not about them.
async fn set_aside<P: CloudProvider>(
    operator: &Arc<Operator<P>>,
    plan: impl Fn(&Operator<P>, &Snapshot, &Until) -> Plan + Send + 'static,
    stop: &CancellationToken,
    panicked: &Panicked,
) -> bool {
    let why = (Work::Replicas, Suspicion::Certain);
    pools::set_aside(operator, plan, why, stop, panicked).await
}

async fn pass<P: CloudProvider>(operator: &Arc<Operator<P>>, seed: u64, stop: &CancellationToken) {
    if operator.state.read().pools().all(|pool| pool.spec.replicas.is_none()) {
        return;
    }
    let plan = on_snapshot_for(Work::Replicas, operator, stop, move |operator, snapshot| {
        tenon_planner::replicas(&snapshot, &operator.policy, operator.now(), seed)
    });
    let Some(plan) = plan.await else { return };
    for skipped in &plan.report.node_pools {
        tracing::debug!(
            nodepool = skipped.name,
            reason = skipped.reason,
            "static nodepool is not changed"
        );
    }
    let acting = span!("actuate", launches = number(plan.launches.len()));
    actuate::launch_all(operator, &plan.launches, stop).instrument(acting).await;
    if stop.is_cancelled() {
        return;
    }
    let settled = removals(&plan, &replacing(operator));
    for removal in settled {
        let claim = operator.state.read().claim(&removal.claim).cloned();
        let Some(claim) = claim else { continue };
        match operator.write.delete_claim(&claim).await {
            Ok(true) => {
                operator.context.decisions.deleted(&claim, Cause::Surplus);
                tracing::info!(
                    nodepool = removal.node_pool,
                    nodeclaim = removal.claim,
                    "removing a surplus node of a static nodepool"
                );
            }
            Ok(false) => {}
            Err(error) => log_concern!(
                error.concern(),
                nodeclaim = removal.claim,
                error = %crate::text::chain(&error),
                "failed to remove a surplus node of a static nodepool"
            ),
        }
    }
}

/// NodePools of which a machine is being replaced: they have one more than they should, for a
/// while.
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
    use serde_json::json;

    use super::*;
    use crate::quarantine;
    use crate::testing::idle::{Idle, operator, pool};

    #[tokio::test(start_paused = true)]
    async fn a_nodepool_that_makes_planning_panic_is_left_out_and_the_others_keep_their_size() {
        let objects = ["a", "b", "c"].map(|name| pool(name, json!({"replicas": 2})));
        let (operator, api) = operator(objects.into()).await;
        let (stop, panicked) = (CancellationToken::new(), Panicked::new(&"out of bounds"));
        let fails = |_: &Operator<Idle>, some: &Snapshot, _: &Until| {
            assert!(some.node_pools.iter().all(|pool| pool.name != "b"), "a defect");
            Plan::default()
        };
        assert!(set_aside(&operator, fails, &stop, &panicked).await);
        let machines = || {
            let state = operator.state.read();
            let mut pools: Vec<_> = state.claims().map(|claim| pool_of(claim).to_owned()).collect();
            pools.sort_unstable();
            pools
        };
        pass(&operator, 1, &stop).await;
        assert_eq!(machines(), ["a", "a", "c", "c"]);
        // Only this work goes without it.
        let others = [Work::All, Work::Disruption].map(|work| {
            let pools = operator.snapshot_for(work, |_| true).node_pools;
            pools.iter().any(|pool| pool.name == "b")
        });
        assert_eq!(others, [true, true]);
        tokio::time::advance(quarantine::PERIOD.unsigned_abs()).await;
        pass(&operator, 2, &stop).await;
        assert_eq!(machines(), ["a", "a", "b", "b", "c", "c"]);
        assert_eq!(api.count::<tenon_crds::NodeClaim>(), 6);
        // What panics whatever the NodePools are is none of their faults.
        let always = |_: &Operator<Idle>, _: &Snapshot, _: &Until| panic!("a defect");
        assert!(!set_aside(&operator, always, &stop, &panicked).await);
    }

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
