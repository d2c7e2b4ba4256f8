//! The controller of EC2NodeClasses: finds out what their selectors select, tries out whether AWS would launch, and says so in their status.
//!
//! One reconcile is: the class from the store; what AWS says about it; the status that follows (pure); one patch of the status. Machines are launched
//! by the status only, so what is not in it does not exist.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use kube::api::{Api, Patch, PatchParams};
use tenon_crds::ec2nodeclass::{Ami, SecurityGroup, Subnet};
use tenon_crds::labels::aws as keys;
use tenon_crds::nodepool::NodePool;
use tenon_crds::{EC2NodeClass, EC2NodeClassStatus};

use self::amis::AmiError;
use self::status::{Found, Resolution, Verdict};
use self::validation::ValidationInput;
use super::AwsProvider;
use super::controller::Next;
use super::ec2::{self, PlacementGroup, filter};
use super::error::{Error, Kind};
use super::objects;
use super::tags;
use super::ttl::TtlMap;
use crate::cloud_provider::Context;
use crate::events::{Event, Reason};

pub mod amis;
pub mod hash;
pub mod profile;
pub mod reservations;
pub mod selectors;
pub mod status;
pub mod validation;

/// Field manager of our patches.
pub const FIELD_MANAGER: &str = "tenon";

/// When a class whose selectors match is looked at again. Subnets change most, by their free addresses.
const REFRESH: Duration = Duration::from_secs(60);
/// When a class that waits for its NodeClaims is looked at again, if none of them says that it is gone.
const TERMINATING_REFRESH: Duration = Duration::from_secs(10 * 60);
/// When a class is validated again after a call failed.
const VALIDATE_AGAIN: Duration = Duration::from_secs(2);

/// What AWS said lately about classes; own patches wake the controller, and must not make it ask again.
#[derive(Debug)]
pub struct Lookups {
    subnets: TtlMap<ClassKey, Vec<Subnet>>,
    security_groups: TtlMap<ClassKey, Vec<SecurityGroup>>,
    amis: TtlMap<(ClassKey, String), Vec<Ami>>,
    placement_groups: TtlMap<ClassKey, PlacementGroup>,
    reservations: TtlMap<ClassKey, Vec<ec2::CapacityReservation>>,
}

/// A class as it was written: uid and generation.
type ClassKey = (String, i64);

impl Lookups {
    /// Nothing looked up yet.
    pub fn new(amis: Duration, subnets: Duration) -> Self {
        Self {
            subnets: TtlMap::new(subnets),
            security_groups: TtlMap::new(Duration::from_secs(60)),
            amis: TtlMap::new(amis),
            // Looked up on every reconcile; launches in between go by the last answer.
            placement_groups: TtlMap::new(Duration::from_secs(600)),
            reservations: TtlMap::new(REFRESH),
        }
    }

    /// The placement group of a class, as it was looked up last.
    pub fn placement_group(&self, class: &EC2NodeClass) -> Option<PlacementGroup> {
        self.placement_groups.get(&class_key(class))
    }
}

fn class_key(class: &EC2NodeClass) -> ClassKey {
    (class.metadata.uid.clone().unwrap_or_default(), class.metadata.generation.unwrap_or_default())
}

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

    let (resolution, complete) = resolve(provider, context, class).await;
    let now = context.clock.now();
    let status = status::resolved(class, resolution, now);
    let mut resolved = class.clone();
    resolved.status = Some(status.clone());
    let verdict = validate(provider, context, &resolved).await;
    let status = status::validated(class, status, &verdict, now);
    patch_status(&api, class, &status).await?;
    let refresh =
        reservations::next_change(&status, now).map_or(REFRESH, |change| change.min(REFRESH));
    Ok(match (&verdict, complete) {
        (Verdict::Failed, _) => Next::After(VALIDATE_AGAIN),
        (_, false) => Next::Failed,
        (_, true) => Next::After(refresh),
    })
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

/// What AWS says about a class, and whether every question was answered.
async fn resolve(
    provider: &AwsProvider,
    context: &Context,
    class: &EC2NodeClass,
) -> (Resolution, bool) {
    let (amis, subnets, security_groups, placement_group, capacity_reservations) = tokio::join!(
        resolve_amis(provider, context, class),
        resolve_subnets(provider, class),
        resolve_security_groups(provider, class),
        resolve_placement_group(provider, class),
        reservations::resolve(provider, class, context.clock.now()),
    );
    let instance_profile = resolve_profile(provider, context, class).await;
    let complete = amis != Found::Failed
        && subnets != Found::Failed
        && security_groups != Found::Failed
        && capacity_reservations != Found::Failed
        && instance_profile != Found::Failed;
    let resolution = Resolution {
        amis,
        capacity_reservations,
        subnets,
        security_groups,
        instance_profile,
        placement_group,
    };
    (resolution, complete)
}

fn failed<T>(
    class: &EC2NodeClass,
    what: &'static str,
    error: &(dyn std::error::Error + 'static),
) -> Found<T> {
    let nodeclass = class.metadata.name.as_deref().unwrap_or_default();
    tracing::error!(nodeclass, error, what, "failed to resolve");
    Found::Failed
}

async fn resolve_amis(
    provider: &AwsProvider,
    context: &Context,
    class: &EC2NodeClass,
) -> Found<Vec<Ami>> {
    let Some(kubernetes) = provider.cluster.version() else {
        tracing::debug!("the version of Kubernetes is not known yet");
        return Found::Failed;
    };
    let key = (class_key(class), kubernetes.clone());
    if let Some(amis) = provider.lookups.amis.get(&key) {
        return Found::Some(amis);
    }
    let found = amis::resolve(
        &provider.clients.ec2,
        &provider.parameters,
        &class.spec,
        &kubernetes,
        context.clock.now(),
    )
    .await;
    match found {
        Ok(amis) if amis.is_empty() => Found::Nothing {
            reason: "AMINotFound",
            message: "AMISelector did not match any AMIs".to_owned(),
        },
        Ok(amis) => {
            provider.lookups.amis.insert(key, amis.clone());
            Found::Some(amis)
        }
        Err(error @ AmiError::UnsupportedAlias(_)) => {
            Found::Nothing { reason: "UnsupportedAlias", message: error.to_string() }
        }
        Err(error) => failed(class, "amis", &error),
    }
}

async fn resolve_subnets(provider: &AwsProvider, class: &EC2NodeClass) -> Found<Vec<Subnet>> {
    let key = class_key(class);
    if let Some(subnets) = provider.lookups.subnets.get(&key) {
        return Found::Some(subnets);
    }
    match selectors::subnets(&provider.clients.ec2, &class.spec.subnet_selector_terms).await {
        Ok(found) if found.is_empty() => Found::Nothing {
            reason: "SubnetsNotFound",
            message: "SubnetSelector did not match any Subnets".to_owned(),
        },
        Ok(found) => {
            let subnets: Vec<Subnet> = found
                .into_iter()
                .map(|subnet| {
                    provider.launcher.addresses.observe(&subnet.id, subnet.free_ips);
                    Subnet { id: subnet.id, zone: subnet.zone, zone_id: subnet.zone_id }
                })
                .collect();
            provider.lookups.subnets.insert(key, subnets.clone());
            Found::Some(subnets)
        }
        Err(error) => failed(class, "subnets", &error),
    }
}

async fn resolve_security_groups(
    provider: &AwsProvider,
    class: &EC2NodeClass,
) -> Found<Vec<SecurityGroup>> {
    let key = class_key(class);
    if let Some(groups) = provider.lookups.security_groups.get(&key) {
        return Found::Some(groups);
    }
    let terms = &class.spec.security_group_selector_terms;
    match selectors::security_groups(&provider.clients.ec2, terms).await {
        Ok(found) if found.is_empty() => Found::Nothing {
            reason: "SecurityGroupsNotFound",
            message: "SecurityGroupSelector did not match any SecurityGroups".to_owned(),
        },
        Ok(found) => {
            let groups: Vec<SecurityGroup> = found
                .into_iter()
                .map(|group| SecurityGroup { id: group.id, name: group.name })
                .collect();
            provider.lookups.security_groups.insert(key, groups.clone());
            Found::Some(groups)
        }
        Err(error) => failed(class, "security groups", &error),
    }
}

async fn resolve_placement_group(provider: &AwsProvider, class: &EC2NodeClass) -> Found<()> {
    let Some(selector) = &class.spec.placement_group_selector else { return Found::Some(()) };
    let (wanted, shown) = match (&selector.id, &selector.name) {
        (Some(id), _) => (filter("group-id", [id]), id),
        (None, Some(name)) => (filter("group-name", [name]), name),
        (None, None) => return Found::Some(()),
    };
    let key = class_key(class);
    match ec2::placement_groups(&provider.clients.ec2, &[wanted]).await {
        Ok(found) => match found.into_iter().next() {
            Some(group) => {
                provider.lookups.placement_groups.insert(key, group);
                Found::Some(())
            }
            None => {
                provider.lookups.placement_groups.remove(&key);
                Found::Nothing {
                    reason: "PlacementGroupNotFound",
                    message: format!("Placement group \"{shown}\" not found"),
                }
            }
        },
        Err(error) => Found::Nothing {
            reason: "PlacementGroupResolutionFailed",
            message: format!("Failed to resolve placement group: {error}"),
        },
    }
}

async fn resolve_profile(
    provider: &AwsProvider,
    context: &Context,
    class: &EC2NodeClass,
) -> Found<String> {
    let tags = tags::profile_tags(class, &context.cluster_name, &provider.clients.region);
    match provider.profiles.ensure(class, &tags).await {
        Ok(name) => Found::Some(name),
        Err(error) => {
            context.recorder.publish(Event::warning(
                class,
                Reason::InstanceProfileFailed,
                format!("Failed to make the instance profile: {}", error.text()),
            ));
            failed(class, "instance profile", &error)
        }
    }
}

async fn validate(provider: &AwsProvider, context: &Context, class: &EC2NodeClass) -> Verdict {
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
