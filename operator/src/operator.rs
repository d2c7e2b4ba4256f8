//! What every controller of the operator is handed.

use std::future::Future;
use std::sync::Arc;

use tenon_crds::{NodeClaim, labels};
use tenon_planner::Policy;
use tenon_planner::snapshot::{Catalog, NodeClassRef, Snapshot};
use tokio_util::sync::CancellationToken;

use crate::cloud_provider::CloudProvider;
use crate::context::Context;
use crate::controller::{Controller, Reconciler};
use crate::eviction_order::EvictionOrder;
use crate::ledger::Ledger;
use crate::nominations::Nominations;
use crate::offers::{LatestOffers, Offers};
use crate::options::CoreOptions;
use crate::pauses::Pauses;
use crate::quarantine::{Quarantine, Work};
use crate::settling::Settling;
use crate::state::State;
use crate::state::cluster::{Cluster, label};
use crate::state::snapshot::class_of;
use crate::tasks::blocking;
use crate::write::Writer;

/// The operator's parts, for its controllers.
pub(crate) struct Operator<P> {
    /// Client, clock, events, metrics.
    pub context: Context,
    /// What the cluster looks like.
    pub state: State,
    /// The way to change it.
    pub write: Writer,
    /// The provider that launches and terminates instances.
    pub cloud: Arc<P>,
    /// What the administrator chose.
    pub options: CoreOptions,
    /// What the planner has to know of it.
    pub policy: Policy,
    /// What NodeOverlays come to.
    pub offers: LatestOffers,
    /// Pods that the planner can't cope with.
    pub quarantine: Quarantine,
    /// Nodes that wait until their pods are nominated.
    pub nominations: Nominations,
    /// What holds planning up.
    pub pauses: Pauses,
    /// What the machines of NodePools have together, for whoever launches more.
    pub ledger: Ledger,
    /// Which pods of disrupted nodes are evicted first.
    pub eviction_order: EvictionOrder,
    /// When nodes will be consolidatable.
    pub settling: Settling,
}

impl<P> std::fmt::Debug for Operator<P> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Operator").finish_non_exhaustive()
    }
}

impl<P: CloudProvider> Operator<P> {
    /// What provisioning has to know of the options now: whether pods are nominated shows only once
    /// the API server has told its version.
    pub(crate) fn provisioning_policy(&self) -> Policy {
        let nominations = self.policy.nominations && self.nominations.are_on();
        Policy { nominations, ..self.policy.clone() }
    }

    /// The planner's input at this moment.
    #[cfg(test)]
    pub(crate) fn snapshot(&self) -> Snapshot {
        self.snapshot_for(Work::All, |_| true)
    }

    /// The same for this work, with these NodePools only.
    pub(crate) fn snapshot_for(&self, work: Work, counts: impl Fn(&str) -> bool) -> Snapshot {
        self.planned_with(self.snapshot_of(&self.state.read(), work, counts))
    }

    /// The planner's input for another cluster than the one that there is.
    pub(crate) fn snapshot_in(&self, cluster: &Cluster) -> Snapshot {
        self.planned_with(self.snapshot_of(cluster, Work::All, |_| true))
    }

    /// Without what the planner is not to decide on.
    fn planned_with(&self, mut snapshot: Snapshot) -> Snapshot {
        if self.options.legacy_node_repair {
            // Sick nodes are the business of `node::health` then.
            snapshot.repair_policies.clear();
        }
        self.quarantine.apply(&mut snapshot, self.now());
        snapshot
    }

    /// The same with what makes machines sick, whoever repairs them.
    pub(crate) fn snapshot_with_health(&self) -> Snapshot {
        self.snapshot_of(&self.state.read(), Work::All, |_| true)
    }

    fn snapshot_of(
        &self,
        cluster: &Cluster,
        work: Work,
        counts: impl Fn(&str) -> bool,
    ) -> Snapshot {
        let catalog = |class: &NodeClassRef| self.cloud.catalog(class).ok();
        let now = self.now();
        let left_out = self.quarantine.node_pools(work, now);
        let counts = |pool: &str| !left_out.contains(pool) && counts(pool);
        cluster.snapshot_with(&catalog, now, counts)
    }

    /// The feature gate `NodeOverlay`.
    pub(crate) fn overlays_count(&self) -> bool {
        self.options.feature_gates.is_on("NodeOverlay")
    }

    /// What can be launched for a NodeClaim where NodeOverlays change that; nothing where the
    /// provider knows all.
    pub(crate) async fn overlaid(&self, claim: &NodeClaim) -> Option<Arc<Catalog>> {
        if !self.overlays_count() {
            return None;
        }
        let pool = label(claim, labels::NODEPOOL)?.to_owned();
        let offers = {
            let state = self.state.read();
            state.overlays().next()?;
            let class = &state.pool(&pool)?.spec.template.spec.node_class_ref;
            // The pool may have been given another NodeClass since it asked for this machine.
            (*class == claim.spec.node_class_ref).then(|| self.offers(&state))?
        };
        blocking(move || offers.catalog(&pool)).await?
    }

    /// What NodeOverlays are about at this moment.
    pub(crate) fn offers(&self, state: &Cluster) -> Arc<Offers> {
        let catalog = |class: &NodeClassRef| self.cloud.catalog(class).ok();
        self.offers.at(state, &catalog, self.now())
    }

    /// Runs a controller on the operator's state until `stop`.
    pub(crate) fn run<R: Reconciler>(
        &self,
        controller: Controller<R>,
        stop: CancellationToken,
    ) -> impl Future<Output = ()> + Send + 'static + use<R, P> {
        controller.run(self.state.clone(), self.context.metrics.clone(), stop)
    }

    /// The current time, by the operator's [`Clock`](crate::clock::Clock).
    pub(crate) fn now(&self) -> jiff::Timestamp {
        self.context.clock.now()
    }

    /// A NodeClass as the provider names it.
    pub(crate) fn class(reference: &tenon_crds::NodeClassReference) -> NodeClassRef {
        class_of(reference)
    }
}
