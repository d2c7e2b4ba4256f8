//! The controller of EC2NodeClasses: finds out what their selectors select, tries out whether AWS
//! would launch, and says so in their status.
//!
//! One reconcile is: the class from the store; what AWS says about it; the status that follows
//! (pure); one patch of the status. Machines are launched by the status only, so what is not in it
//! does not exist.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tenon_crds::EC2NodeClass;
use tenon_crds::labels::aws as keys;
use tenon_crds::nodepool::NodePool;

use self::resolve::{Progress, resolve};
use self::validation::{Judgement, ValidationInput};
use tokio::sync::broadcast::error::RecvError;

use super::error::{Error, Kind};
use super::{AwsProvider, Leader, objects};
use crate::context::Context;
use crate::controller::{Affected, Reconciler};
use crate::events::{Event, Reason};
use crate::state::State;
use crate::state::change::Touched;
use crate::text::chain;
use crate::work_queue::{Action, Backoff, Concern, Failure, WorkQueue};
use crate::write::{WriteError, Writer};

pub(super) mod amis;
pub(super) mod hash;
pub(super) mod lookups;
pub(super) mod profile;
pub(super) mod reservations;
pub(super) mod resolve;
pub(super) mod selectors;
pub(super) mod status;
pub(super) mod validation;

/// When a class whose selectors match is looked at again. Subnets change most, by their free
/// addresses.
const REFRESH: Duration = Duration::from_secs(60);
/// When a class that waits for its NodeClaims is looked at again, if none of them says that it is
/// gone.
const TERMINATING_REFRESH: Duration = Duration::from_secs(10 * 60);

/// Why a reconcile failed. Each is logged once, and tried again.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReconcileError {
    /// Which NodeClaims there are.
    #[error("listing the NodeClaims of the EC2NodeClass")]
    Claims(#[source] kube::Error),
    /// Writing to Kubernetes.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// Cleaning up in AWS.
    #[error("cleaning up after the EC2NodeClass")]
    CleanUp(#[from] Error),
    /// Finding out what the selectors select, which was told where it failed.
    #[error("resolving the EC2NodeClass")]
    Unresolved,
}

impl Failure for ReconcileError {
    fn category(&self) -> &'static str {
        "error"
    }

    fn is_conflict(&self) -> bool {
        matches!(self, Self::Write(error) if error.is_conflict())
    }

    fn concern(&self) -> Concern {
        match self {
            Self::Claims(kube::Error::Api(status)) if status.code == 403 => Concern::Administrator,
            Self::Claims(_) | Self::Unresolved => Concern::Passing,
            Self::Write(error) => error.concern(),
            Self::CleanUp(error) => error.concern(),
        }
    }

    fn is_reported(&self) -> bool {
        matches!(self, Self::Unresolved)
    }
}

/// Reconciles EC2NodeClasses.
pub(super) struct NodeClasses(pub(super) Leader);

impl Reconciler for NodeClasses {
    const NAME: &'static str = "nodeclass";
    const BACKOFF: Backoff =
        Backoff { min: Duration::from_millis(100), max: Duration::from_mins(1) };
    type Key = String;
    type Error = ReconcileError;

    fn workers(&self) -> usize {
        10
    }

    fn affected(&self, touched: &Touched, _: &State) -> Affected<String> {
        match touched {
            // A class that is being deleted waits for its claims.
            Touched::NodeClaim(_) => {
                let classes = self.0.provider.classes.all().into_iter();
                let going = classes.filter(|class| class.metadata.deletion_timestamp.is_some());
                going.filter_map(|class| class.metadata.name.clone()).collect()
            }
            _ => Affected::None,
        }
    }

    async fn reconcile(&self, name: &String) -> Result<Action, ReconcileError> {
        reconcile(&self.0, name).await
    }

    async fn beside(&self, queue: &WorkQueue<String>) {
        let classes = &self.0.provider.classes;
        let mut changes = classes.changes();
        classes.synced().await;
        for name in all_names(&self.0.provider) {
            queue.add(name);
        }
        loop {
            match changes.recv().await {
                Ok(name) => queue.add(name),
                Err(RecvError::Lagged(_)) => {
                    for name in all_names(&self.0.provider) {
                        queue.add(name);
                    }
                }
                // The store is gone, and the operator is about to stop.
                Err(RecvError::Closed) => std::future::pending().await,
            }
        }
    }
}

/// One reconcile of a class.
async fn reconcile(leader: &Leader, name: &str) -> Result<Action, ReconcileError> {
    let Leader { provider, context, write } = leader;
    let Some(class) = provider.classes.get(name) else { return Ok(Action::Wait) };
    let result = if class.metadata.deletion_timestamp.is_some() {
        finalize(provider, context, write, &class).await
    } else {
        keep(provider, context, write, &class).await
    };
    match result {
        // Gone, or made again: the watch brings what there is now.
        Err(ReconcileError::Write(error)) if error.is_not_found() => Ok(Action::Wait),
        result => result,
    }
}

async fn keep(
    provider: &AwsProvider,
    context: &Context,
    write: &Writer,
    class: &Arc<EC2NodeClass>,
) -> Result<Action, ReconcileError> {
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
        return Err(ReconcileError::Unresolved);
    }
    let changes = [reservations::next_change(&status, now), progress.again(), judgement.again];
    Ok(Action::After(changes.into_iter().flatten().fold(REFRESH, Duration::min)))
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

/// A class that goes waits for its NodeClaims; then what was made for it goes, and then its
/// finalizer.
async fn finalize(
    provider: &AwsProvider,
    context: &Context,
    write: &Writer,
    class: &EC2NodeClass,
) -> Result<Action, ReconcileError> {
    let finalizers = class.metadata.finalizers.clone().unwrap_or_default();
    if !finalizers.iter().any(|finalizer| finalizer == keys::TERMINATION_FINALIZER) {
        return Ok(Action::Wait);
    }
    let name = class.metadata.name.as_deref().unwrap_or_default();
    let claims = claims_of(context, name).await?;
    if !claims.is_empty() {
        context.recorder.publish(Event::normal(
            class,
            Reason::WaitingOnNodeClaimTermination,
            format!("Waiting on NodeClaim termination for {}", enumerate(&claims)),
        ));
        return Ok(Action::After(TERMINATING_REFRESH));
    }
    if provider.may_own_profiles(class) {
        match provider.profiles.delete_all(class).await {
            // Who makes profiles elsewhere does not let the operator list them, and the class must
            // not wait for that.
            Err(error)
                if error.kind == Kind::Unauthorized
                    && provider.options.static_instance_profiles =>
            {
                tracing::warn!(nodeclass = name, %error, "keeping the instance profiles of the \
                     EC2NodeClass, if there are any");
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
    Ok(Action::Wait)
}

/// Names of the NodeClaims of a class, from the API server itself: what is deleted on this list's
/// word must not depend on a watch that lags.
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

/// Names of all classes of a provider.
fn all_names(provider: &AwsProvider) -> Vec<String> {
    provider.classes.all().iter().filter_map(|class| class.metadata.name.clone()).collect()
}
