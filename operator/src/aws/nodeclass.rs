//! The controller of EC2NodeClasses: finds out what their selectors select, tries out whether AWS would launch, and says so in their status.
//!
//! One reconcile is: the class from the store; what AWS says about it; the status that follows (pure); one patch of the status. Machines are launched
//! by the status only, so what is not in it does not exist.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tenon_crds::EC2NodeClass;
use tenon_crds::labels::aws as keys;
use tenon_crds::nodepool::NodePool;

use self::resolve::{Progress, resolve};
use self::validation::{Judgement, ValidationInput};
use super::AwsProvider;
use super::controller::Next;
use super::error::{Error, Kind};
use super::objects;
use crate::cloud_provider::Context;
use crate::events::{Event, Reason};
use crate::logging::{chain, log_failure};
use crate::work::Failure as _;
use crate::write::{WriteError, Writer};

pub mod amis;
pub mod hash;
pub mod profile;
pub mod reservations;
pub mod resolve;
pub mod selectors;
pub mod status;
pub mod validation;

/// When a class whose selectors match is looked at again. Subnets change most, by their free addresses.
const REFRESH: Duration = Duration::from_secs(60);
/// When a class that waits for its NodeClaims is looked at again, if none of them says that it is gone.
const TERMINATING_REFRESH: Duration = Duration::from_secs(10 * 60);

/// Why a reconcile failed. Each is logged once, and tried again.
#[derive(Debug, thiserror::Error)]
pub enum ReconcileError {
    /// Which NodeClaims there are.
    #[error("listing the NodeClaims of the EC2NodeClass")]
    Claims(#[source] kube::Error),
    /// Writing to Kubernetes.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// Cleaning up in AWS.
    #[error("cleaning up after the EC2NodeClass")]
    CleanUp(#[from] Error),
}

impl ReconcileError {
    fn is_passing(&self) -> bool {
        match self {
            Self::Claims(error) => !matches!(error, kube::Error::Api(status) if status.code == 403),
            Self::Write(error) => error.is_passing(),
            Self::CleanUp(error) => error.is_retryable(),
        }
    }
}

/// One reconcile of a class.
pub async fn reconcile(
    provider: &AwsProvider,
    context: &Context,
    write: &Writer,
    name: &str,
) -> Next {
    let Some(class) = provider.classes.get(name) else { return Next::OnChange };
    let result = if class.metadata.deletion_timestamp.is_some() {
        finalize(provider, context, write, &class).await
    } else {
        keep(provider, context, write, &class).await
    };
    match result {
        Ok(next) => next,
        // Gone, or made again: the watch brings what there is now.
        Err(ReconcileError::Write(error)) if error.is_not_found() => Next::OnChange,
        // Somebody else wrote in between: what they wrote comes with the watch.
        Err(ReconcileError::Write(error)) if error.is_conflict() => Next::Failed,
        Err(error) => {
            context.metrics.reconcile_errors.inc(["nodeclass", "error"]);
            log_failure!(passing: error.is_passing(), nodeclass = name, error = chain(&error), "failed to reconcile");
            Next::Failed
        }
    }
}

async fn keep(
    provider: &AwsProvider,
    context: &Context,
    write: &Writer,
    class: &Arc<EC2NodeClass>,
) -> Result<Next, ReconcileError> {
    let class = add_finalizer(provider, write, class).await?;
    let class = &*hash::annotate(provider, context, write, &class).await?;

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
    if let Some(status) = status::patch(class, &status) {
        provider.classes.written(write.patch_class_status(class, status).await?);
    }
    if progress == Progress::CallFailed {
        return Ok(Next::Failed);
    }
    let changes = [reservations::next_change(&status, now), progress.again(), judgement.again];
    Ok(Next::After(changes.into_iter().flatten().fold(REFRESH, Duration::min)))
}

/// The class with its finalizer, as the API server has it.
async fn add_finalizer(
    provider: &AwsProvider,
    write: &Writer,
    class: &Arc<EC2NodeClass>,
) -> Result<Arc<EC2NodeClass>, WriteError> {
    let mut finalizers = class.metadata.finalizers.clone().unwrap_or_default();
    if finalizers.iter().any(|finalizer| finalizer == keys::TERMINATION_FINALIZER) {
        return Ok(Arc::clone(class));
    }
    finalizers.push(keys::TERMINATION_FINALIZER.to_owned());
    let body = json!({ "metadata": { "finalizers": finalizers } });
    Ok(provider.classes.written(write.patch_class(&**class, body).await?))
}

async fn validate(provider: &AwsProvider, context: &Context, class: &EC2NodeClass) -> Judgement {
    let name = class.metadata.name.as_deref().unwrap_or_default();
    let node_pools: Vec<NodePool> = match objects::parsed::<NodePool>(&context.client).await {
        Ok(mut pools) => {
            pools.retain(|pool| pool.spec.template.spec.node_class_ref.name == name);
            pools
        }
        Err(error) => {
            let error = chain(&error);
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
    write: &Writer,
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
    let body = json!({ "metadata": { "finalizers": left } });
    write.patch_class(class, body).await?;
    Ok(Next::OnChange)
}

/// Names of the NodeClaims of a class, from the API server itself: what is deleted on this list's word must not depend on a watch that lags.
async fn claims_of(context: &Context, class: &str) -> Result<BTreeSet<String>, ReconcileError> {
    let claims = objects::claims(&context.client).await.map_err(ReconcileError::Claims)?;
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

/// Makes the controller look again at the classes that are being deleted: they wait for their NodeClaims.
pub fn touch_deleting(provider: &AwsProvider) {
    for class in provider.classes.all() {
        if class.metadata.deletion_timestamp.is_some() {
            provider.classes.touch(class.metadata.name.as_deref().unwrap_or_default());
        }
    }
}

/// Names of all classes of a provider.
pub fn all_names(provider: &Arc<AwsProvider>) -> Vec<String> {
    provider.classes.all().iter().filter_map(|class| class.metadata.name.clone()).collect()
}
