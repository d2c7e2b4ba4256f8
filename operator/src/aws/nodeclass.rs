//! The controller of EC2NodeClasses: finds out what their selectors select, tries out whether AWS would launch, and says so in their status.
//!
//! One reconcile is: the class from the store; what AWS says about it; the status that follows (pure); one patch of the status. Machines are launched
//! by the status only, so what is not in it does not exist.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use kube::api::{Api, Patch, PatchParams};
use tenon_crds::labels::aws as keys;
use tenon_crds::nodepool::NodePool;
use tenon_crds::{EC2NodeClass, EC2NodeClassStatus};

use self::resolve::{Progress, resolve};
use self::validation::{Judgement, ValidationInput};
use super::AwsProvider;
use super::controller::Next;
use super::error::{Error, Kind};
use super::objects;
use crate::cloud_provider::Context;
use crate::events::{Event, Reason};

pub mod amis;
pub mod hash;
pub mod profile;
pub mod reservations;
pub mod resolve;
pub mod selectors;
pub mod status;
pub mod validation;

/// Field manager of our patches.
pub const FIELD_MANAGER: &str = "tenon";

/// When a class whose selectors match is looked at again. Subnets change most, by their free addresses.
const REFRESH: Duration = Duration::from_secs(60);
/// When a class that waits for its NodeClaims is looked at again, if none of them says that it is gone.
const TERMINATING_REFRESH: Duration = Duration::from_secs(10 * 60);

/// Why a reconcile failed. Each is logged once, and tried again.
#[derive(Debug, thiserror::Error)]
pub enum ReconcileError {
    /// Writing to Kubernetes.
    #[error("failed to {0} of the EC2NodeClass: {1}")]
    Kubernetes(&'static str, #[source] kube::Error),
    /// Cleaning up in AWS.
    #[error("failed to clean up after the EC2NodeClass: {0}")]
    CleanUp(#[from] Error),
}

/// One reconcile of a class.
pub async fn reconcile(provider: &AwsProvider, context: &Context, name: &str) -> Next {
    let Some(class) = provider.classes.get(name) else {
        provider.catalogs.forget(name);
        provider.validator.forget(name);
        return Next::OnChange;
    };
    let result = if class.metadata.deletion_timestamp.is_some() {
        finalize(provider, context, &class).await
    } else {
        keep(provider, context, &class).await
    };
    match result {
        Ok(next) => next,
        // Somebody else wrote in between: what they wrote comes with the watch.
        Err(ReconcileError::Kubernetes(_, kube::Error::Api(status))) if status.code == 409 => {
            Next::Failed
        }
        Err(error) => {
            context.metrics.reconcile_errors.inc(["nodeclass", "error"]);
            tracing::error!(nodeclass = name, %error, "failed to reconcile");
            Next::Failed
        }
    }
}

async fn keep(
    provider: &AwsProvider,
    context: &Context,
    class: &EC2NodeClass,
) -> Result<Next, ReconcileError> {
    let api: Api<EC2NodeClass> = Api::all(context.client.clone());
    let mut class = class.clone();
    if let Some(version) = add_finalizer(&api, &class).await? {
        class.metadata.resource_version = Some(version);
    }
    if let Some(version) = hash::annotate(provider, context, &class).await? {
        class.metadata.resource_version = Some(version);
    }
    let class = &class;

    let (resolution, progress) = resolve(provider, context, class).await;
    let now = context.clock.now();
    let status = status::resolved(class, resolution, now);
    let mut resolved = class.clone();
    resolved.status = Some(status.clone());
    let judgement = validate(provider, context, &resolved).await;
    if judgement.profile_unknown
        && let Some(name) = &status.instance_profile
    {
        provider.profiles.doubt(name);
    }
    let status = status::validated(class, status, &judgement.verdict, now);
    patch_status(&api, class, &status).await?;
    if progress == Progress::CallFailed {
        return Ok(Next::Failed);
    }
    let changes = [reservations::next_change(&status, now), progress.again(), judgement.again];
    Ok(Next::After(changes.into_iter().flatten().fold(REFRESH, Duration::min)))
}

async fn add_finalizer(
    api: &Api<EC2NodeClass>,
    class: &EC2NodeClass,
) -> Result<Option<String>, ReconcileError> {
    let mut finalizers = class.metadata.finalizers.clone().unwrap_or_default();
    if finalizers.iter().any(|finalizer| finalizer == keys::TERMINATION_FINALIZER) {
        return Ok(None);
    }
    finalizers.push(keys::TERMINATION_FINALIZER.to_owned());
    patch_finalizers(api, class, &finalizers).await
}

/// Writes the list of finalizers; returns the object's new resource version, unless the object is gone.
async fn patch_finalizers(
    api: &Api<EC2NodeClass>,
    class: &EC2NodeClass,
    finalizers: &[String],
) -> Result<Option<String>, ReconcileError> {
    let patch = serde_json::json!({
        "metadata": {
            // Two writers of the list would undo each other's change.
            "resourceVersion": class.metadata.resource_version,
            "finalizers": finalizers,
        },
    });
    let name = class.metadata.name.as_deref().unwrap_or_default();
    match api.patch_metadata(name, &PatchParams::apply(FIELD_MANAGER), &Patch::Merge(patch)).await {
        Ok(patched) => Ok(patched.metadata.resource_version),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
        Err(error) => Err(ReconcileError::Kubernetes("patch the finalizers", error)),
    }
}

async fn patch_status(
    api: &Api<EC2NodeClass>,
    class: &EC2NodeClass,
    status: &EC2NodeClassStatus,
) -> Result<(), ReconcileError> {
    let Some(patch) = status::patch(class, status) else { return Ok(()) };
    let name = class.metadata.name.as_deref().unwrap_or_default();
    match api.patch_status(name, &PatchParams::apply(FIELD_MANAGER), &Patch::Merge(patch)).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        Err(error) => Err(ReconcileError::Kubernetes("patch the status", error)),
    }
}

async fn validate(provider: &AwsProvider, context: &Context, class: &EC2NodeClass) -> Judgement {
    let name = class.metadata.name.as_deref().unwrap_or_default();
    let node_pools: Vec<NodePool> = match objects::parsed::<NodePool>(&context.client).await {
        Ok(mut pools) => {
            pools.retain(|pool| pool.spec.template.spec.node_class_ref.name == name);
            pools
        }
        Err(error) => {
            let error = crate::logging::chain(&error);
            tracing::warn!(error, "failed to list NodePools; validating without them");
            Vec::new()
        }
    };
    let catalog = provider.catalog_of(class).ok();
    let placement_group = provider.lookups.placement_group(class);
    let input = ValidationInput {
        class,
        catalog: catalog.as_deref(),
        node_pools: &node_pools,
        placement_group: placement_group.as_ref().map(|group| group.id.as_str()),
    };
    provider.validator.validate(input, &provider.cluster, &provider.launcher.templates).await
}

/// A class that goes waits for its NodeClaims; then what was made for it goes, and then its finalizer.
async fn finalize(
    provider: &AwsProvider,
    context: &Context,
    class: &EC2NodeClass,
) -> Result<Next, ReconcileError> {
    let finalizers = class.metadata.finalizers.clone().unwrap_or_default();
    if !finalizers.iter().any(|finalizer| finalizer == keys::TERMINATION_FINALIZER) {
        return Ok(Next::OnChange);
    }
    let name = class.metadata.name.as_deref().unwrap_or_default();
    let claims = claims_of(context, name).await?;
    if !claims.is_empty() {
        context.recorder.publish(Event::normal(
            class,
            Reason::WaitingOnNodeClaimTermination,
            format!("Waiting on NodeClaim termination for {}", enumerate(&claims)),
        ));
        return Ok(Next::After(TERMINATING_REFRESH));
    }
    if provider.may_own_profiles(class) {
        match provider.profiles.delete_all(class).await {
            // Who makes profiles elsewhere does not let the operator list them, and the class must not wait for that.
            Err(error)
                if error.kind == Kind::Unauthorized
                    && provider.options.static_instance_profiles =>
            {
                tracing::warn!(nodeclass = name, %error, "leaving the instance profiles of the EC2NodeClass, if there are any");
            }
            result => result?,
        }
    }
    provider.launcher.templates.delete_all(name).await?;
    let left: Vec<String> = finalizers
        .into_iter()
        .filter(|finalizer| finalizer != keys::TERMINATION_FINALIZER)
        .collect();
    let api: Api<EC2NodeClass> = Api::all(context.client.clone());
    patch_finalizers(&api, class, &left).await?;
    provider.validator.forget(name);
    provider.catalogs.forget(name);
    Ok(Next::OnChange)
}

/// Names of the NodeClaims of a class, from the API server itself: what is deleted on this list's word must not depend on a watch that lags.
async fn claims_of(context: &Context, class: &str) -> Result<BTreeSet<String>, ReconcileError> {
    let claims = objects::claims(&context.client)
        .await
        .map_err(|error| ReconcileError::Kubernetes("list the NodeClaims", error))?;
    let own = claims.iter().filter(|claim| claim.class() == Some(class));
    Ok(own.map(|claim| claim.name().to_owned()).collect())
}

/// `a, b, c, d, e and 3 other(s)`
fn enumerate(names: &BTreeSet<String>) -> String {
    const SHOWN: usize = 5;
    let shown: Vec<&str> = names.iter().take(SHOWN).map(String::as_str).collect();
    match names.len().saturating_sub(SHOWN) {
        0 => shown.join(", "),
        more => format!("{} and {more} other(s)", shown.join(", ")),
    }
}

/// Names of all classes of a provider.
pub fn all_names(provider: &Arc<AwsProvider>) -> Vec<String> {
    provider.classes.all().iter().filter_map(|class| class.metadata.name.clone()).collect()
}
