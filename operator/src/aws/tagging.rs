//! The tags of an instance that are known only once its node has joined.

use std::collections::BTreeMap;
use std::time::Duration;

use tenon_crds::NodeClaim;
use tenon_crds::labels::aws as keys;

use super::error::Error;
use super::provider_id::instance_id;
use super::{AwsProvider, Leader};
use crate::controller::{Affected, Reconciler};
use crate::state::State;
use crate::state::change::Touched;
use crate::state::cluster::{Cluster, name};
use crate::work_queue::{Action, Backoff, Concern, Failure};
use crate::write::{Precondition, WriteError};

/// CreateTags is throttled per account: one instance a second.
const PACE: Duration = Duration::from_secs(1);

/// Why an instance could not be tagged; it is tried again.
#[derive(Debug, thiserror::Error)]
pub(super) enum TagError {
    #[error("tagging instance {instance}")]
    Tag { instance: String, source: Error },
    #[error(transparent)]
    Annotate(#[from] WriteError),
}

impl Failure for TagError {
    fn category(&self) -> &'static str {
        match self {
            Self::Tag { source, .. } => source.operation,
            Self::Annotate(error) => error.category(),
        }
    }

    fn is_conflict(&self) -> bool {
        matches!(self, Self::Annotate(error) if error.is_conflict())
    }

    fn concern(&self) -> Concern {
        match self {
            Self::Tag { source, .. } => source.concern(),
            Self::Annotate(error) => error.concern(),
        }
    }
}

/// Tags instances.
pub(super) struct Tagging(pub(super) Leader);

impl Reconciler for Tagging {
    const NAME: &'static str = "nodeclaim.tagging";
    const BACKOFF: Backoff =
        Backoff { min: Duration::from_millis(100), max: Duration::from_mins(1) };
    type Key = String;
    type Error = TagError;

    fn workers(&self) -> usize {
        1
    }

    fn affected(&self, touched: &Touched, _: &State) -> Affected<String> {
        match touched {
            Touched::NodeClaim(name) => Affected::One(name.clone()),
            _ => Affected::None,
        }
    }

    fn all(&self, state: &Cluster) -> Vec<String> {
        state.claims().map(|claim| name(&claim.metadata)).collect()
    }

    async fn reconcile(&self, name: &String) -> Result<Action, TagError> {
        let Leader { provider, context, write } = &self.0;
        let claim = write.state().read().claim(name).cloned();
        let Some(claim) = claim else { return Ok(Action::Wait) };
        let Some(wanted) = late_tags(&claim, &context.cluster_name) else {
            return Ok(Action::Wait);
        };
        let Some(id) = claim.provider_id().and_then(instance_id) else {
            tracing::error!(nodeclaim = name, "the provider id is not that of an EC2 instance");
            return Ok(Action::Wait);
        };
        match tag_instance(provider, id, wanted).await {
            Ok(Tagged::Gone) => return Ok(Action::Wait),
            Ok(Tagged::Already) => {}
            Ok(Tagged::Now) => tokio::time::sleep(PACE).await,
            Err(source) => return Err(TagError::Tag { instance: id.to_owned(), source }),
        }
        let patch = serde_json::json!({
            "metadata": { "annotations": { keys::TAGGED: "true", keys::CLUSTER_NAME_TAGGED: "true" } },
        });
        match write.patch_claim(&claim, patch, Precondition::SameUid).await {
            Err(error) if !error.is_not_found() => Err(error.into()),
            _ => Ok(Action::Wait),
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
