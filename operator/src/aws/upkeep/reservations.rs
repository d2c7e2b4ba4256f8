//! What becomes of machines whose capacity reservation ends: those of a capacity block go before EC2 takes them; those of an ordinary reservation run on,
//! and are paid for from then on.

use std::collections::BTreeSet;
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use tenon_crds::NodeClaim;
use tenon_crds::labels::{self, aws as keys};
use tenon_planner::snapshot::CapacityType;

use crate::aws::nodeclass::FIELD_MANAGER;
use crate::aws::nodeclass::reservations::is_expiring;
use crate::aws::provider_id::instance_id;
use crate::aws::{AwsProvider, ec2, present};
use crate::cloud_provider::Context;

const EVERY: Duration = Duration::from_secs(60);

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Looks once a minute, for ever.
pub(super) async fn run(provider: &AwsProvider, context: &Context) {
    loop {
        if let Err(error) = relabel(provider, context).await {
            context.metrics.reconcile_errors.inc(["capacityreservation.capacitytype", "error"]);
            tracing::error!(error = &*error, "failed to look for instances without a reservation");
        }
        if let Err(error) = expire(provider, context).await {
            context.metrics.reconcile_errors.inc(["capacityreservation.expiration", "error"]);
            tracing::error!(error = &*error, "failed to look for reservations that end");
        }
        tokio::time::sleep(EVERY).await;
    }
}

/// Gives machines that are not in their reservation any more the label of what they are now, first the Node and then the NodeClaim: when only one of the
/// two succeeds, the NodeClaim still shows that there is something to do.
async fn relabel(provider: &AwsProvider, context: &Context) -> Result<(), Failure> {
    let reserved = |claim: &NodeClaim| {
        claim.metadata.deletion_timestamp.is_none()
            && label(claim, labels::CAPACITY_TYPE) == Some(CapacityType::Reserved.as_str())
    };
    let mut claims = provider.claims.all();
    claims.retain(|claim| reserved(claim));
    if claims.is_empty() {
        return Ok(());
    }
    let left: BTreeSet<String> = provider
        .instances
        .list()
        .await?
        .into_iter()
        .filter(|instance| present::capacity_type(instance) == CapacityType::OnDemand)
        .map(|instance| instance.id)
        .collect();
    let nodes: Api<Node> = Api::all(context.client.clone());
    let stored: Api<NodeClaim> = Api::all(context.client.clone());
    for claim in claims {
        if !claim.provider_id().and_then(instance_id).is_some_and(|id| left.contains(id)) {
            continue;
        }
        let name = claim.metadata.name.as_deref().unwrap_or_default();
        if let Some(node) = claim.node_name() {
            gone_is_fine(nodes.patch_metadata(node, &patch_params(), &demoted()).await)?;
        }
        gone_is_fine(stored.patch_metadata(name, &patch_params(), &demoted()).await)?;
        tracing::info!(
            nodeclaim = name,
            reservation = label(&claim, keys::CAPACITY_RESERVATION_ID),
            "the instance is not in its capacity reservation any more, it is on-demand now"
        );
    }
    Ok(())
}

fn patch_params() -> PatchParams {
    PatchParams::apply(FIELD_MANAGER)
}

/// The labels of a machine that has left its reservation.
fn demoted() -> Patch<serde_json::Value> {
    Patch::Merge(serde_json::json!({
        "metadata": { "labels": {
            labels::CAPACITY_TYPE: CapacityType::OnDemand.as_str(),
            keys::CAPACITY_RESERVATION_ID: null,
            keys::CAPACITY_RESERVATION_TYPE: null,
            keys::CAPACITY_RESERVATION_INTERRUPTIBLE: null,
        } },
    }))
}

fn gone_is_fine<T>(result: kube::Result<T>) -> kube::Result<()> {
    match result {
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
        Err(error) => Err(error),
        Ok(_) => Ok(()),
    }
}

/// Deletes the NodeClaims of capacity blocks that are about to end.
async fn expire(provider: &AwsProvider, context: &Context) -> Result<(), Failure> {
    let mut claims = provider.claims.all();
    claims.retain(|claim| {
        claim.metadata.deletion_timestamp.is_none()
            && label(claim, keys::CAPACITY_RESERVATION_ID).is_some()
    });
    let ids: BTreeSet<&str> =
        claims.iter().filter_map(|claim| label(claim, keys::CAPACITY_RESERVATION_ID)).collect();
    let now = context.clock.now();
    let mut expiring = BTreeSet::new();
    for id in ids {
        let found = ec2::capacity_reservations(&provider.clients.ec2, Some(id), &[]).await?;
        if found.iter().any(|reservation| is_expiring(reservation, now)) {
            expiring.insert(id);
        }
    }
    let api: Api<NodeClaim> = Api::all(context.client.clone());
    for claim in &claims {
        let id = label(claim, keys::CAPACITY_RESERVATION_ID).unwrap_or_default();
        if !expiring.contains(id) {
            continue;
        }
        let name = claim.metadata.name.as_deref().unwrap_or_default();
        gone_is_fine(api.delete(name, &DeleteParams::default()).await)?;
        tracing::info!(
            nodeclaim = name,
            reservation = id,
            "deleting a nodeclaim, because its capacity block is about to end"
        );
        // The pods of the machine need a place now, not when the drain has come to them.
        context.wake.notify_one();
    }
    Ok(())
}

fn label<'c>(claim: &'c NodeClaim, key: &str) -> Option<&'c str> {
    claim.metadata.labels.as_ref()?.get(key).map(String::as_str)
}
