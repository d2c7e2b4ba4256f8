//! What only the leader does, because it writes: the status of NodeClasses, late tags, garbage, the
//! interruption queue.

use std::sync::Arc;

use super::deprecation::DeprecatedImages;
use super::garbage::{InstanceGarbage, ProfileGarbage, TemplateGarbage};
use super::interruption::status::StatusChecks;
use super::kops::KopsFollower;
use super::nodeclass::NodeClasses;
use super::offerings::OfferingGauges;
use super::reservation_end::ReservationEnd;
use super::tagging::Tagging;
use super::{Leader, interruption};
use crate::controller::{Controller, Periodic, Reconciler, repeat};
use crate::tasks::Tasks;

/// Starts them all.
pub(super) fn start(leader: &Leader, tasks: &mut Tasks) {
    let own = || leader.clone();
    let options = &leader.provider.options;
    reconcile(leader, NodeClasses(own()), tasks);
    reconcile(leader, Tagging(own()), tasks);
    periodic(InstanceGarbage::new(own()), tasks);
    periodic(TemplateGarbage(own()), tasks);
    if !options.isolated_vpc {
        periodic(ProfileGarbage(own()), tasks);
    }
    periodic(DeprecatedImages(own()), tasks);
    periodic(OfferingGauges::new(Arc::clone(&leader.provider)), tasks);
    periodic(ReservationEnd(own()), tasks);
    periodic(StatusChecks::new(own()), tasks);
    if let Some(location) = &options.kops_state_store {
        periodic(KopsFollower::new(own(), location.clone()), tasks);
    }
    if !options.interruption_queue.is_empty() {
        let Leader { provider, context, write } = own();
        tasks.spawn("interruption", async move {
            // A message about a NodeClaim that is not known would be deleted.
            write.state().claims_listed().await;
            interruption::run(&provider, &context, &write).await;
        });
    }
}

fn reconcile<R: Reconciler>(leader: &Leader, reconciler: R, tasks: &mut Tasks) {
    let (state, metrics) = (leader.write.state().clone(), leader.context.metrics.clone());
    let stop = tasks.stop_token().clone();
    tasks.spawn(R::NAME, Controller::new(reconciler).run(state, metrics, stop));
}

fn periodic<P: Periodic>(periodic: P, tasks: &mut Tasks) {
    tasks.spawn(P::NAME, repeat(periodic));
}
