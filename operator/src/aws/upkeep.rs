//! What only the leader does, because it writes: the status of NodeClasses, late tags, garbage, the interruption queue.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tenon_crds::NodeClaim;
use tenon_crds::labels::aws as keys;
use tenon_planner::snapshot::Catalog;
use tokio::sync::broadcast;

use self::offerings::Published;
use super::controller::{self, Next};
use super::error::Error;
use super::nodeclass::{self, amis};
use super::provider_id::instance_id;
use super::refresh::after;
use super::store::CHANGES;
use super::{AwsProvider, interruption};
use crate::cloud_provider::Context;
use crate::logging::{chain, log_failure};
use crate::state::State;
use crate::state::change::Touched;
use crate::state::cluster::name;
use crate::tasks::Tasks;
use crate::write::Writer;

mod garbage;
mod offerings;
mod reservations;

/// Between collections of instances: soon after the start, when a former leader's launches may have been lost, then seldom.
const COLLECT_SOON: Duration = Duration::from_secs(10);
const COLLECT: Duration = Duration::from_secs(120);
const SOON_ROUNDS: u32 = 20;
/// Between looks for launch templates that nobody uses.
const JANITOR: Duration = Duration::from_secs(10);
const PROFILES: Duration = Duration::from_secs(30 * 60);
const SSM: Duration = Duration::from_secs(30 * 60);
const METRICS: Duration = Duration::from_secs(60);
const RETRY: Duration = Duration::from_secs(30);
/// CreateTags is throttled per account: one instance a second.
const TAG_PACE: Duration = Duration::from_secs(1);

/// Starts it all.
pub fn start(provider: &Arc<AwsProvider>, context: &Context, write: &Writer, tasks: &mut Tasks) {
    let writer = write;
    let own = || (Arc::clone(provider), context.clone(), writer.clone());
    let (this, ctx, write) = own();
    tasks.spawn("nodeclass", async move {
        this.classes.synced().await;
        let all = || nodeclass::all_names(&this);
        controller::run(this.classes.changes(), all, 10, async |name| {
            nodeclass::reconcile(&this, &ctx, &write, &name).await
        })
        .await;
    });

    // A class that is being deleted waits for its claims.
    let this = Arc::clone(provider);
    writer.state().subscribe(move |touched| {
        if matches!(touched, Touched::NodeClaim(_)) {
            nodeclass::touch_deleting(&this);
        }
    });

    let (this, ctx, write) = own();
    tasks.spawn("nodeclaim.tagging", async move {
        let state = write.state();
        let all = || state.read().claims().map(|claim| name(&claim.metadata)).collect();
        controller::run(claim_changes(state), all, 1, async |name| {
            tag(&this, &ctx, &write, &name).await
        })
        .await;
    });

    let (this, ctx, write) = own();
    tasks.spawn("instance.garbagecollection", async move {
        let mut rounds = 0;
        loop {
            let wait = if rounds < SOON_ROUNDS { COLLECT_SOON } else { COLLECT };
            match garbage::collect_instances(&this, &ctx, &write).await {
                Ok(()) => rounds += 1,
                Err(error) => {
                    let labels = ["instance.garbagecollection", error.operation()];
                    ctx.metrics.reconcile_errors.inc(labels);
                    log_failure!(passing: error.is_passing(), error = chain(&error), "failed to collect instances");
                }
            }
            tokio::time::sleep(wait).await;
        }
    });

    let (this, ctx) = (Arc::clone(provider), context.clone());
    tasks.spawn("launchtemplate.janitor", async move {
        while let Err(error) = this.launcher.templates.hydrate().await {
            let wait = after(&ctx, "launchtemplate.janitor", Err(error), RETRY, RETRY);
            tokio::time::sleep(wait).await;
        }
        loop {
            this.launcher.templates.delete_unused().await;
            tokio::time::sleep(JANITOR).await;
        }
    });

    let (this, ctx) = (Arc::clone(provider), context.clone());
    tasks.spawn("providers.ssm.invalidation", async move {
        loop {
            tokio::time::sleep(SSM).await;
            if let Err(error) = invalidate_parameters(&this, &ctx).await {
                after(&ctx, "providers.ssm.invalidation", Err(error), SSM, SSM);
            }
        }
    });

    let this = Arc::clone(provider);
    tasks.spawn("cloudprovider.metrics", async move {
        let mut published = Published::default();
        loop {
            published.publish(&this.metrics, catalogs(&this).iter().map(Arc::as_ref));
            tokio::time::sleep(METRICS).await;
        }
    });

    if !provider.options.isolated_vpc {
        let (this, ctx) = (Arc::clone(provider), context.clone());
        tasks.spawn("instanceprofile.garbagecollection", async move {
            this.classes.synced().await;
            loop {
                let wait = match garbage::collect_profiles(&this, &ctx).await {
                    Ok(()) => PROFILES,
                    Err(error) => {
                        let labels = ["instanceprofile.garbagecollection", error.operation()];
                        ctx.metrics.reconcile_errors.inc(labels);
                        log_failure!(passing: error.is_passing(), error = chain(&error), "failed to collect instance profiles");
                        RETRY
                    }
                };
                tokio::time::sleep(wait).await;
            }
        });
    }

    let (this, ctx, write) = own();
    tasks.spawn("capacityreservation", async move {
        write.state().claims_listed().await;
        reservations::run(&this, &ctx, &write).await;
    });

    let (this, ctx, write) = own();
    tasks.spawn("interruption.instancestatus", async move {
        write.state().claims_listed().await;
        interruption::status::run(&this, &ctx, &write).await;
    });

    if !provider.options.interruption_queue.is_empty() {
        let (this, ctx, write) = own();
        tasks.spawn("interruption", async move {
            // A message about a NodeClaim that is not known would be deleted.
            write.state().claims_listed().await;
            interruption::run(&this, &ctx, &write).await;
        });
    }
}

/// Names of NodeClaims that change, from now on.
fn claim_changes(state: &State) -> broadcast::Receiver<String> {
    let (changes, receiver) = broadcast::channel(CHANGES);
    state.subscribe(move |touched| {
        if let Touched::NodeClaim(name) = touched {
            // Nobody listens once the controller has stopped.
            let _listeners = changes.send(name.clone());
        }
    });
    receiver
}

/// The catalogs of all NodeClasses that have one.
fn catalogs(provider: &AwsProvider) -> Vec<Arc<Catalog>> {
    let classes = provider.classes.all();
    classes.iter().filter_map(|class| provider.catalog_of(class).ok()).collect()
}

async fn invalidate_parameters(provider: &AwsProvider, context: &Context) -> Result<(), Error> {
    let parameters = provider.parameters.mutable();
    let ids: BTreeSet<String> = parameters.iter().map(|(_, id)| id.clone()).collect();
    let ids: Vec<String> = ids.into_iter().collect();
    let outdated = amis::outdated(&provider.clients.ec2, &ids, context.clock.now()).await?;
    for (name, id) in parameters {
        if outdated.contains(&id) {
            tracing::info!(parameter = name, image = id, "the image is deprecated, reading again");
            provider.parameters.forget(&name);
        }
    }
    Ok(())
}

/// Gives an instance the tags that are known only once its node has joined.
async fn tag(provider: &AwsProvider, context: &Context, write: &Writer, name: &str) -> Next {
    let claim = write.state().read().claim(name).cloned();
    let Some(claim) = claim else { return Next::OnChange };
    let Some(wanted) = late_tags(&claim, &context.cluster_name) else { return Next::OnChange };
    let Some(id) = claim.provider_id().and_then(instance_id) else {
        tracing::error!(nodeclaim = name, "the provider id is not that of an EC2 instance");
        return Next::OnChange;
    };
    match tag_instance(provider, id, wanted).await {
        Ok(Tagged::Gone) => return Next::OnChange,
        Ok(Tagged::Already) => {}
        Ok(Tagged::Now) => tokio::time::sleep(TAG_PACE).await,
        Err(error) => {
            context.metrics.reconcile_errors.inc(["nodeclaim.tagging", error.operation]);
            log_failure!(passing: error.is_retryable(), nodeclaim = name, instance = id, %error, "failed to tag the instance");
            return Next::Failed;
        }
    }
    let patch = serde_json::json!({
        "metadata": { "annotations": { keys::TAGGED: "true", keys::CLUSTER_NAME_TAGGED: "true" } },
    });
    match write.patch_claim(&claim, patch, false).await {
        Ok(_) => Next::OnChange,
        Err(error) if error.is_not_found() => Next::OnChange,
        Err(error) => {
            log_failure!(passing: error.is_passing(), nodeclaim = name, error = chain(&error), "failed to annotate the NodeClaim");
            Next::Failed
        }
    }
}

/// What became of a request to tag.
enum Tagged {
    Now,
    Already,
    Gone,
}

async fn tag_instance(
    provider: &AwsProvider,
    id: &str,
    wanted: BTreeMap<String, String>,
) -> Result<Tagged, Error> {
    let Some(instance) = provider.instances.get(id).await? else { return Ok(Tagged::Gone) };
    let missing: BTreeMap<String, String> =
        wanted.into_iter().filter(|(key, _)| !instance.tags.contains_key(key)).collect();
    if missing.is_empty() {
        return Ok(Tagged::Already);
    }
    match provider.instances.tag(id, &missing).await {
        Ok(()) => Ok(Tagged::Now),
        Err(error) if error.is_not_found() => Ok(Tagged::Gone),
        Err(error) => Err(error),
    }
}

/// The tags of a claim's instance that are still to be set; `None` when it is not time, or done.
fn late_tags(claim: &NodeClaim, cluster: &str) -> Option<BTreeMap<String, String>> {
    let annotations = claim.metadata.annotations.as_ref();
    let done = [keys::TAGGED, keys::CLUSTER_NAME_TAGGED]
        .iter()
        .all(|key| annotations.is_some_and(|all| all.contains_key(*key)));
    if done
        || claim.metadata.deletion_timestamp.is_some()
        || claim.spec.node_class_ref.group != keys::GROUP
    {
        return None;
    }
    let node = claim.node_name()?;
    Some(BTreeMap::from([
        (keys::NAME_TAG.to_owned(), node.to_owned()),
        (keys::NODECLAIM_TAG.to_owned(), claim.metadata.name.clone()?),
        (keys::EKS_CLUSTER_NAME_TAG.to_owned(), cluster.to_owned()),
    ]))
}

#[cfg(test)]
mod tests;
