//! NodePools that the planner can't cope with: which of them make it panic, and planning without
//! them for a while.

use std::collections::BTreeSet;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use jiff::Timestamp;
use tenon_planner::Snapshot;
use tokio_util::sync::CancellationToken;

use super::{SEARCH, Until, unless_stopped};
use crate::cloud_provider::CloudProvider;
use crate::events::{Event, Reason};
use crate::operator::Operator;
use crate::quarantine::{self, Work, search};
use crate::state::cluster::name;
use crate::tasks::Panicked;

/// What is known of the panic already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Suspicion {
    /// It has nothing to do with the pods that wait.
    Certain,
    /// It may be the pods as well: where no NodePool is good, it is not about NodePools.
    Possible,
}

/// Finds the NodePools with which `plan`, or the snapshot that it plans on, panics, and leaves them
/// out of this work for a while; false when it is not about them. What this work would have changed
/// of them stays as it is for as long.
pub(crate) async fn set_aside<P: CloudProvider, T>(
    operator: &Arc<Operator<P>>,
    plan: impl Fn(&Operator<P>, &Snapshot, &Until) -> T + Send + 'static,
    (work, suspicion): (Work, Suspicion),
    stop: &CancellationToken,
    panicked: &Panicked,
) -> bool {
    let until = Until::new(operator.context.clock, SEARCH, stop);
    let searching = Arc::clone(operator);
    let found = unless_stopped(stop, move || {
        let left_out = searching.quarantine.node_pools(work, searching.now());
        let all: BTreeSet<String> = {
            let state = searching.state.read();
            let names = state.pools().map(|pool| name(&pool.metadata));
            names.filter(|name| !left_out.contains(name)).collect()
        };
        let gets_through = |some: &BTreeSet<String>| {
            let attempt = AssertUnwindSafe(|| {
                let snapshot = searching.snapshot_for(work, |pool| some.contains(pool));
                plan(&searching, &snapshot, &until);
            });
            std::panic::catch_unwind(attempt).is_ok()
        };
        let n_all = all.len();
        let bad = search(all, gets_through, || tenon_planner::Cancel::is_cancelled(&until));
        bad.filter(|bad| suspicion == Suspicion::Certain || bad.len() < n_all)
    });
    let Some(Some(bad)) = found.await else { return false };
    let until = operator.now().checked_add(quarantine::PERIOD).unwrap_or(Timestamp::MAX);
    for nodepool in &bad {
        operator.quarantine.add_node_pool(work, nodepool.clone(), until);
        tracing::error!(
            nodepool,
            of = ?work,
            left_out_until = %until,
            "a defect of the operator: planning with this nodepool panics. It is excluded, so that \
             planning continues with the others, and is not changed"
        );
        let pool = operator.state.read().pool(nodepool).cloned();
        if let Some(pool) = pool {
            let message = format!(
                "Planning with this NodePool {panicked}; it is retried in {} minutes",
                quarantine::PERIOD.as_mins()
            );
            let event = Event::warning(&*pool, Reason::PlanningFailed, message);
            operator.context.recorder.publish(event.distinct_by("panic"));
        }
    }
    !bad.is_empty()
}
