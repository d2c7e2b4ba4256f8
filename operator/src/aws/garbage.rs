//! Collects what nothing in the cluster uses any more: instances without a NodeClaim, launch
//! templates and instance profiles without a user.

use std::collections::BTreeSet;
use std::time::Duration;

use futures::StreamExt as _;
use futures::stream;
use jiff::{SignedDuration, Timestamp};
use tenon_crds::labels::{self, aws as keys};

use crate::aws::ec2::Instance;
use crate::aws::error::Error;
use crate::aws::objects::{self, ClaimUse};
use crate::aws::provider_id::provider_id;
use crate::aws::recovery::{Waiting, waited_for};
use crate::aws::refresh::after;
use crate::aws::{AwsProvider, Leader};
use crate::context::Context;
use crate::controller::Periodic;
use crate::logging::log_failure;
use crate::text::chain;
use crate::write::Writer;

/// An instance younger than this may belong to a claim that does not know it yet.
const GRACE: SignedDuration = SignedDuration::from_secs(30);
/// Terminations at once.
const TERMINATIONS: usize = 100;

/// Between collections of instances: soon after the start, when a former leader's launches may have
/// been lost, then seldom.
const COLLECT_SOON: Duration = Duration::from_secs(10);
const COLLECT: Duration = Duration::from_secs(120);
const SOON_ROUNDS: u32 = 20;
/// Between looks for launch templates that nobody uses.
const TEMPLATES: Duration = Duration::from_secs(10);
const PROFILES: Duration = Duration::from_secs(30 * 60);
/// After a failure.
const RETRY: Duration = Duration::from_secs(30);

/// Collects instances.
pub(super) struct InstanceGarbage {
    leader: Leader,
    rounds: u32,
}

impl InstanceGarbage {
    pub(super) fn new(leader: Leader) -> Self {
        Self { leader, rounds: 0 }
    }
}

impl Periodic for InstanceGarbage {
    const NAME: &'static str = "instance.garbagecollection";

    async fn pass(&mut self) -> Duration {
        let Leader { provider, context, write } = &self.leader;
        let rest = if self.rounds < SOON_ROUNDS { COLLECT_SOON } else { COLLECT };
        match collect_instances(provider, context, write).await {
            Ok(()) => self.rounds = self.rounds.saturating_add(1),
            Err(error) => {
                context.metrics.reconcile_errors.inc([Self::NAME, error.operation()]);
                log_failure!(passing: error.is_passing(), error = chain(&error), "failed to collect instances");
            }
        }
        rest
    }
}

/// Collects launch templates.
pub(super) struct TemplateGarbage(pub(super) Leader);

impl Periodic for TemplateGarbage {
    const NAME: &'static str = "launchtemplate.janitor";

    async fn begin(&mut self) -> Duration {
        let Leader { provider, context, .. } = &self.0;
        while let Err(error) = provider.launcher.templates.hydrate().await {
            let wait = after(context, Self::NAME, Err(error), RETRY, RETRY);
            tokio::time::sleep(wait).await;
        }
        Duration::ZERO
    }

    async fn pass(&mut self) -> Duration {
        self.0.provider.launcher.templates.delete_unused().await;
        TEMPLATES
    }
}

/// Collects instance profiles.
pub(super) struct ProfileGarbage(pub(super) Leader);

impl Periodic for ProfileGarbage {
    const NAME: &'static str = "instanceprofile.garbagecollection";

    async fn begin(&mut self) -> Duration {
        self.0.provider.classes.synced().await;
        Duration::ZERO
    }

    async fn pass(&mut self) -> Duration {
        let Leader { provider, context, .. } = &self.0;
        match collect_profiles(provider, context).await {
            Ok(()) => PROFILES,
            Err(error) => {
                context.metrics.reconcile_errors.inc([Self::NAME, error.operation()]);
                log_failure!(passing: error.is_passing(), error = chain(&error), "failed to collect instance profiles");
                RETRY
            }
        }
    }
}

/// Why garbage could not be looked for.
#[derive(Debug, thiserror::Error)]
enum CollectError {
    /// AWS did not answer, or refused.
    #[error(transparent)]
    Aws(#[from] Error),
    /// The API server did not.
    #[error("listing {objects}")]
    List {
        /// Of which kind.
        objects: &'static str,
        /// The answer of the API server.
        source: kube::Error,
    },
}

impl CollectError {
    fn listing(objects: &'static str) -> impl FnOnce(kube::Error) -> Self {
        move |source| Self::List { objects, source }
    }

    /// Label of metrics.
    fn operation(&self) -> &'static str {
        match self {
            Self::Aws(error) => error.operation,
            Self::List { .. } => "list",
        }
    }

    /// It may pass by itself.
    fn is_passing(&self) -> bool {
        match self {
            Self::Aws(error) => error.is_retryable(),
            Self::List { source: kube::Error::Api(status), .. } => {
                matches!(status.code, 408 | 429 | 500..)
            }
            Self::List { .. } => true,
        }
    }
}

/// Terminates instances of the cluster that no claim knows, and deletes their nodes. The instances
/// are read first: a claim that is created in between is seen, a machine that is launched in
/// between is not judged.
async fn collect_instances(
    provider: &AwsProvider,
    context: &Context,
    write: &Writer,
) -> Result<(), CollectError> {
    let instances = provider.instances.list().await?;
    let claims = claims(context).await?;
    let orphans = orphans(instances, &claims, context.clock.now());
    stream::iter(orphans)
        .for_each_concurrent(TERMINATIONS, async |instance| {
            let id = provider_id(&instance.zone, &instance.id);
            match provider.instances.terminate(&instance).await {
                Ok(()) => {
                    tracing::info!(provider_id = id, "terminated an instance without a NodeClaim");
                    delete_nodes(write, &id).await;
                }
                Err(error) => {
                    log_failure!(passing: error.is_retryable(), provider_id = id, %error, "failed \
                         to terminate an instance without a NodeClaim");
                }
            }
        })
        .await;
    Ok(())
}

async fn claims(context: &Context) -> Result<Vec<ClaimUse>, CollectError> {
    objects::claims(&context.client).await.map_err(CollectError::listing("NodeClaims"))
}

/// The instances that no claim has and none waits for.
fn orphans(instances: Vec<Instance>, claims: &[ClaimUse], now: Timestamp) -> Vec<Instance> {
    let known: BTreeSet<&str> = claims.iter().filter_map(ClaimUse::instance_id).collect();
    // Claims that were launched just before a restart find their instances again.
    let waiting: Vec<Waiting<'_>> = claims
        .iter()
        .filter(|claim| !claim.has_machine())
        .filter_map(|claim| {
            Some(Waiting {
                name: claim.name(),
                node_pool: claim.label(labels::NODEPOOL).unwrap_or_default(),
                node_class: claim.class()?,
                created: claim.metadata.creation_timestamp.as_ref().map(|time| time.0),
            })
        })
        .collect();
    instances
        .into_iter()
        .filter(|instance| !instance.is_terminating() && !known.contains(instance.id.as_str()))
        .filter(|instance| !waiting.iter().any(|&claim| waited_for(instance, claim)))
        .filter(|instance| {
            instance.launched_at.is_some_and(|launched| now.duration_since(launched) > GRACE)
        })
        .collect()
}

/// Deletes the Nodes of a machine that was terminated. One that the state does not know yet is
/// deleted by the cloud's node controller.
async fn delete_nodes(write: &Writer, id: &str) {
    let nodes: Vec<_> = write.state().read().nodes_of(id).cloned().collect();
    for node in nodes {
        if let Err(error) = write.delete_node(&node).await {
            log_failure!(passing: error.is_passing(), node = node.name(), error = chain(&error), "failed to delete the node of a terminated instance");
        }
    }
}

/// Deletes the instance profiles of the cluster that neither a class nor a machine uses.
async fn collect_profiles(provider: &AwsProvider, context: &Context) -> Result<(), CollectError> {
    let settings = &provider.options;
    let mut classes = provider.classes.all().into_iter();
    if settings.static_instance_profiles && !classes.any(|class| provider.may_own_profiles(&class))
    {
        return Ok(());
    }
    let mut used = BTreeSet::new();
    let classes = objects::classes(&context.client).await;
    for class in classes.map_err(CollectError::listing("EC2NodeClasses"))? {
        used.extend(class.status.instance_profile);
    }
    for claim in claims(context).await? {
        used.extend(claim.annotation(keys::INSTANCE_PROFILE_NAME).map(str::to_owned));
    }
    provider.profiles.collect_garbage(&used).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::testing::bench::{Bench, node};
    use crate::watch::wire::Node;

    const LAUNCHED: &str = "2026-11-20T12:00:00Z";

    fn instance(id: &str, claim: Option<&str>) -> Instance {
        let mut tags = vec![(labels::NODEPOOL, "default"), (keys::EC2NODECLASS, "default")];
        tags.extend(claim.map(|claim| (keys::NODECLAIM_TAG, claim)));
        let owned = |(key, value): (&str, &str)| (key.to_owned(), value.to_owned());
        Instance {
            id: id.to_owned(),
            state: "running".to_owned(),
            launched_at: Some(LAUNCHED.parse().unwrap()),
            tags: tags.into_iter().map(owned).collect(),
            ..Instance::default()
        }
    }

    fn claim(name: &str, created: &str, provider_id: Option<&str>) -> ClaimUse {
        serde_json::from_value(json!({
            "metadata": {
                "name": name, "creationTimestamp": created,
                "labels": {"karpenter.sh/nodepool": "default"},
            },
            "spec": {"nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}},
            "status": {"providerID": provider_id},
        }))
        .unwrap()
    }

    fn left(instances: Vec<Instance>, claims: &[ClaimUse], seconds: i64) -> Vec<String> {
        let launched: Timestamp = LAUNCHED.parse().unwrap();
        let now = launched.checked_add(SignedDuration::from_secs(seconds)).unwrap();
        orphans(instances, claims, now).into_iter().map(|instance| instance.id).collect()
    }

    #[test]
    fn an_instance_that_no_claim_has_is_collected_after_a_while() {
        let both = || vec![instance("i-1", None), instance("i-2", Some("gone"))];
        let known = claim("a", LAUNCHED, Some("aws:///zone/i-1"));
        assert_eq!(left(both(), &[], 30), Vec::<String>::new(), "too young to tell");
        assert_eq!(left(both(), &[], 31), ["i-1", "i-2"]);
        assert_eq!(left(both(), std::slice::from_ref(&known), 31), ["i-2"]);
        let mut going = instance("i-3", None);
        going.state = "shutting-down".to_owned();
        assert_eq!(left(vec![going], &[known], 31), Vec::<String>::new());
    }

    #[test]
    fn an_instance_that_a_claim_waits_for_is_left_alone() {
        let before = claim("before", "2026-11-20T11:59:59Z", None);
        let after = claim("after", "2026-11-20T12:00:01Z", None);
        let unnamed = || vec![instance("i-1", None)];
        assert_eq!(left(unnamed(), std::slice::from_ref(&before), 60), Vec::<String>::new());
        assert_eq!(left(unnamed(), std::slice::from_ref(&after), 60), ["i-1"]);
        let named = vec![instance("i-1", Some("after")), instance("i-2", Some("other"))];
        assert_eq!(left(named, &[before, after], 60), ["i-2"]);
    }

    #[tokio::test(start_paused = true)]
    async fn the_node_of_a_terminated_instance_is_found_without_a_list_of_all_nodes() {
        let bench = Bench::new().await;
        for name in ["a", "b"] {
            bench.seen::<Node>(node(name)).await;
        }
        delete_nodes(&bench.write, "aws:///eu-central-1a/i-a").await;
        assert_eq!(bench.api.take_requests(), ["DELETE /api/v1/nodes/a"]);
        // It was made again since the state saw it: that may be another machine.
        bench.api.put::<Node>(node("b"));
        delete_nodes(&bench.write, "aws:///eu-central-1a/i-b").await;
        assert!(!bench.api.get::<Node>("b").is_null());
    }
}
