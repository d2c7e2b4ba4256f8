//! What becomes of machines whose capacity reservation ends: those of a capacity block go before
//! EC2 takes them; those of an ordinary reservation run on, and are paid for from then on.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Value, json};
use tenon_crds::NodeClaim;
use tenon_crds::labels::{self, aws as keys};
use tenon_planner::snapshot::CapacityType;

use crate::aws::error::Error;
use crate::aws::nodeclass::reservations::is_expiring;
use crate::aws::provider_id::instance_id;
use crate::aws::{AwsProvider, Leader, conversion, ec2};
use crate::context::Context;
use crate::controller::Periodic;
use crate::decisions::Cause;
use crate::state::cluster::label;
use crate::text::chain;
use crate::work_queue::{Concern, Failure as _, log_concern};
use crate::write::{Precondition, WriteError, Writer};

const EVERY: Duration = Duration::from_secs(60);

/// Why what has to be done about reservations could not be found out, or not be done.
#[derive(Debug, thiserror::Error)]
enum Failed {
    /// AWS did not answer, or refused.
    #[error(transparent)]
    Aws(#[from] Error),
    #[error(transparent)]
    Write(#[from] WriteError),
}

impl Failed {
    fn category(&self) -> &'static str {
        match self {
            Self::Aws(error) => error.operation,
            Self::Write(error) => error.category(),
        }
    }

    fn concern(&self) -> Concern {
        match self {
            Self::Aws(error) => error.concern(),
            Self::Write(error) => error.concern(),
        }
    }
}

/// Looks at the machines in reservations once a minute.
pub(super) struct ReservationEnd(pub(super) Leader);

impl Periodic for ReservationEnd {
    const NAME: &'static str = "capacityreservation";

    async fn begin(&mut self) -> Duration {
        self.0.write.state().claims_listed().await;
        Duration::ZERO
    }

    async fn pass(&mut self) -> Duration {
        let Leader { provider, context, write } = &self.0;
        relabel(provider, context, write).await;
        expire(provider, context, write).await;
        EVERY
    }
}

/// Tells what went wrong with `of`, and counts it. Whatever else is to be done goes on: one
/// NodeClaim that can't be written, or one reservation that can't be read, is no reason to leave
/// the others as they are.
fn tell(context: &Context, controller: &'static str, of: &str, error: &Failed) {
    context.metrics.reconcile_errors.inc([controller, error.category()]);
    let error_chain = chain(error);
    log_concern!(
        error.concern(),
        controller,
        of,
        error = error_chain,
        "failed to update NodeClaims after a change of a capacity reservation"
    );
}

/// Gives machines that are not in their reservation any more the label of what they are now, first
/// the Node and then the NodeClaim: when only one of the two succeeds, the NodeClaim still shows
/// that there is something to do.
async fn relabel(provider: &AwsProvider, context: &Context, write: &Writer) {
    const CONTROLLER: &str = "capacityreservation.capacitytype";
    let claims = provider.claims(|claim| {
        claim.metadata.deletion_timestamp.is_none()
            && label(claim, labels::CAPACITY_TYPE) == Some(CapacityType::Reserved.as_str())
    });
    if claims.is_empty() {
        return;
    }
    let instances = match provider.instances.list().await {
        Ok(instances) => instances,
        Err(error) => return tell(context, CONTROLLER, "all instances", &error.into()),
    };
    let left: BTreeSet<String> = instances
        .into_iter()
        .filter(|instance| conversion::capacity_type(instance) == CapacityType::OnDemand)
        .map(|instance| instance.id)
        .collect();
    for claim in claims {
        if !claim.provider_id().and_then(instance_id).is_some_and(|id| left.contains(id)) {
            continue;
        }
        let name = claim.metadata.name.as_deref().unwrap_or_default();
        match demote(&claim, write).await {
            Ok(()) => tracing::info!(
                nodeclaim = name,
                reservation = label(&claim, keys::CAPACITY_RESERVATION_ID),
                "the instance is no longer in its capacity reservation, it is on-demand now"
            ),
            Err(error) => tell(context, CONTROLLER, name, &error.into()),
        }
    }
}

async fn demote(claim: &NodeClaim, write: &Writer) -> Result<(), WriteError> {
    let node = write.state().read().node_of(claim).cloned();
    if let Some(node) = node {
        gone_is_fine(write.label_node(&node, demoted()).await)?;
    }
    let body = json!({ "metadata": { "labels": demoted() } });
    gone_is_fine(write.patch_claim(claim, body, Precondition::SameUid).await)
}

/// The labels of a machine that has left its reservation.
fn demoted() -> Value {
    json!({
        labels::CAPACITY_TYPE: CapacityType::OnDemand.as_str(),
        keys::CAPACITY_RESERVATION_ID: null,
        keys::CAPACITY_RESERVATION_TYPE: null,
        keys::CAPACITY_RESERVATION_INTERRUPTIBLE: null,
    })
}

fn gone_is_fine<T>(written: Result<T, WriteError>) -> Result<(), WriteError> {
    match written {
        Err(error) if !error.is_not_found() => Err(error),
        _ => Ok(()),
    }
}

/// Deletes the NodeClaims of capacity blocks that are about to end.
async fn expire(provider: &AwsProvider, context: &Context, write: &Writer) {
    const CONTROLLER: &str = "capacityreservation.expiration";
    let claims = provider.claims(|claim| {
        claim.metadata.deletion_timestamp.is_none()
            && label(claim, keys::CAPACITY_RESERVATION_ID).is_some()
    });
    let ids: BTreeSet<&str> =
        claims.iter().filter_map(|claim| label(claim, keys::CAPACITY_RESERVATION_ID)).collect();
    let now = context.clock.now();
    let mut expiring = BTreeSet::new();
    for id in ids {
        let found = match ec2::capacity_reservations(&provider.clients.ec2, Some(id), &[]).await {
            Ok(found) => found,
            Err(error) => {
                tell(context, CONTROLLER, id, &error.into());
                continue;
            }
        };
        if found.iter().any(|reservation| is_expiring(reservation, now)) {
            expiring.insert(id);
        }
    }
    for claim in &claims {
        let id = label(claim, keys::CAPACITY_RESERVATION_ID).unwrap_or_default();
        if !expiring.contains(id) {
            continue;
        }
        match write.delete_claim(claim).await {
            Ok(true) => {}
            Ok(false) => continue,
            Err(error) => {
                let name = claim.metadata.name.as_deref().unwrap_or_default();
                tell(context, CONTROLLER, name, &error.into());
                continue;
            }
        }
        context.decisions.deleted(claim, Cause::CapacityBlock(id));
        tracing::info!(
            nodeclaim = claim.metadata.name,
            reservation = id,
            "deleting a nodeclaim, because its capacity block is about to end"
        );
        // The pods of the machine need a place now, not when the drain has come to them.
        context.interrupted.notify_one();
    }
}

#[cfg(test)]
mod tests;
