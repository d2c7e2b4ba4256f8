//! Follows kOps: the NodePools and EC2NodeClasses of InstanceGroups are kept as the state store
//! asks for them.
//!
//! `kops update cluster` changes the script that boots nodes with nearly every change of a cluster,
//! and kops-controller turns away what boots with another script than its own. The leader reads the
//! state store twice a minute, and applies what has changed to the objects that `tenon kops sync`
//! has created; it creates none and deletes none. Their nodes then drift, and are replaced as the
//! budgets of their NodePools allow.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::SignedDuration;
use kube::Resource;
use kube::core::ObjectMeta;
use serde_json::Value;
use tenon_crds::{EC2NodeClass, labels};
use tenon_kops::read::{self, Unfit};
use tenon_kops::{GROUP_LABEL, Location, PATCH_ANNOTATION, apply_recorded, config_hash};

use self::store::StateStore;
use super::Leader;
use super::error::Error;
use crate::controller::Periodic;
use crate::events::{Event, Reason};
use crate::state::cluster::name;
use crate::text::chain;
use crate::work_queue::{Concern, Failure as _, log_concern};
use crate::write::WriteError;

mod store;

/// Between looks at the state store.
const EVERY: Duration = Duration::from_secs(30);

/// Between events that say the same.
const AGAIN: SignedDuration = SignedDuration::from_mins(15);

/// Why the state store, or an object, is not followed.
#[derive(Debug, thiserror::Error)]
enum FollowError {
    /// AWS did not answer, or refused.
    #[error(transparent)]
    Aws(#[from] Error),
    /// What was read can't be used.
    #[error("{}", .0.join("; "))]
    Unfit(Vec<String>),
    /// An object was not written.
    #[error(transparent)]
    Write(#[from] WriteError),
}

impl From<Unfit> for FollowError {
    fn from(Unfit(reasons): Unfit) -> Self {
        Self::Unfit(reasons)
    }
}

impl FollowError {
    fn category(&self) -> &'static str {
        match self {
            Self::Aws(error) => error.operation,
            Self::Unfit(_) => "unfit",
            Self::Write(error) => error.category(),
        }
    }

    fn concern(&self) -> Concern {
        match self {
            Self::Aws(error) => error.concern(),
            Self::Unfit(_) => Concern::Administrator,
            Self::Write(error) => error.concern(),
        }
    }
}

/// Follows a state store.
pub(super) struct KopsFollower {
    leader: Leader,
    location: Location,
    store: StateStore,
    /// What was applied, by kind and name.
    applied: BTreeMap<(&'static str, String), Applied>,
}

/// What was applied, and the object as it was then.
#[derive(Debug, PartialEq)]
struct Applied {
    object: Value,
    uid: Option<String>,
    generation: Option<i64>,
}

impl KopsFollower {
    pub(super) fn new(leader: Leader, location: Location) -> Self {
        let store = StateStore::new(Arc::clone(&leader.provider));
        Self { leader, location, store, applied: BTreeMap::new() }
    }

    async fn follow(&mut self) -> Result<(), FollowError> {
        let cluster = &self.leader.provider.options.cluster_name;
        let state = read::state(&self.store, &self.location, cluster, &[]).await?;
        if state.cluster.has_karpenter_addon {
            let why = "the Cluster has spec.karpenter.enabled, and kOps applies NodePools of its \
                       own: set it to false (`kops edit cluster`), then run `kops update cluster \
                       --yes`";
            return Err(Unfit(vec![why.to_owned()]).into());
        }
        let objects = read::objects(&self.store, &state).await?;
        for (group, problems) in state.problems.iter().chain(&objects.problems) {
            if self.class_of(group).is_some() {
                let problems = problems.iter().map(ToString::to_string).collect();
                let error = FollowError::Unfit(problems);
                self.report(&error, group);
                self.refuse(group, &chain(&error));
            }
        }
        for one in objects.generated {
            for object in one.objects {
                if let Err(error) = self.apply(&one.group, object).await {
                    self.report(&error, &one.group);
                    self.refuse(&one.group, &chain(&error));
                }
            }
        }
        Ok(())
    }

    /// Applies an object to the one that is there.
    async fn apply(&mut self, group: &str, object: Value) -> Result<(), FollowError> {
        let named = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        if object["kind"] == "NodePool" {
            let live = self.leader.write.state().read().pool(&named).cloned();
            if live.is_none() && self.class_of(group).is_some() {
                let why = format!("NodePool {named} does not exist: run `tenon kops sync`");
                return Err(Unfit(vec![why]).into());
            }
            let Some(live) = live.filter(|live| is_followed(&live.metadata, group)) else {
                return Ok(());
            };
            if live.metadata.annotations.iter().flatten().any(|(key, _)| key == labels::FROZEN) {
                // Its limits and budgets are those of `tenon freeze`.
                return Ok(());
            }
            if live.spec.replicas.is_some() == object["spec"]["replicas"].is_null() {
                let why = format!(
                    "NodePool {named}: a NodePool of a fixed size cannot become one that follows \
                     the pods, nor the other way round: delete it, then run `tenon kops sync`"
                );
                return Err(Unfit(vec![why]).into());
            }
            let Some(object) = self.changed("NodePool", &live.metadata, object)? else {
                return Ok(());
            };
            let written = self.leader.write.apply_pool(&live, object.clone()).await?;
            self.done(&*live, &written, "NodePool", object, group, "");
        } else {
            let Some(live) = self.class_of(group) else { return Ok(()) };
            let Some(object) = self.changed("EC2NodeClass", &live.metadata, object)? else {
                return Ok(());
            };
            let written = self.leader.write.apply_class(&*live, object.clone()).await?;
            self.leader.provider.classes.written(written.clone());
            let script = changed_script(&live, &written);
            self.done(&*live, &written, "EC2NodeClass", object, group, &script);
        }
        Ok(())
    }

    /// The object with the patches of the one that is there, if it is not what was applied last.
    fn changed(
        &self,
        kind: &'static str,
        live: &ObjectMeta,
        mut object: Value,
    ) -> Result<Option<Value>, FollowError> {
        let annotation = live.annotations.as_ref().and_then(|all| all.get(PATCH_ANNOTATION));
        if let Some(annotation) = annotation {
            apply_recorded(&mut object, annotation).map_err(|error| {
                let name = name(live);
                let why = format!(
                    "{kind} {name}: the annotation {PATCH_ANNOTATION} is no list of patches \
                     ({error}): run `tenon kops sync`"
                );
                Unfit(vec![why])
            })?;
        }
        let now = Applied { object, uid: live.uid.clone(), generation: live.generation };
        let is_known = self.applied.get(&(kind, name(live))).is_some_and(|last| *last == now);
        Ok((!is_known).then_some(now.object))
    }

    /// Remembers what was applied, and says so if that changed anything.
    fn done<K: Resource<DynamicType = ()>>(
        &mut self,
        before: &K,
        after: &K,
        kind: &'static str,
        object: Value,
        group: &str,
        detail: &str,
    ) {
        let (uid, generation) = (after.meta().uid.clone(), after.meta().generation);
        if generation != before.meta().generation {
            let named = name(after.meta());
            tracing::info!(kind, name = named, group, detail, "followed kops");
            let message = format!("applied what InstanceGroup {group} asks for{detail}");
            let event = Event::normal(after, Reason::InstanceGroupFollowed, message);
            let distinct = generation.unwrap_or_default().to_string();
            self.leader.context.recorder.publish(event.distinct_by(distinct));
        }
        let applied = Applied { object, uid, generation };
        self.applied.insert((kind, name(after.meta())), applied);
    }

    /// The EC2NodeClass of an InstanceGroup, which has its name.
    fn class_of(&self, group: &str) -> Option<Arc<EC2NodeClass>> {
        let class = self.leader.provider.classes.get(group);
        class.filter(|class| is_followed(&class.metadata, group))
    }

    /// Says on the EC2NodeClass of an InstanceGroup why it is not followed.
    fn refuse(&self, group: &str, why: &str) {
        if let Some(class) = self.class_of(group) {
            let event = Event::warning(&*class, Reason::InstanceGroupNotFollowed, why);
            self.leader.context.recorder.publish(event.within(AGAIN));
        }
    }

    fn report(&self, error: &FollowError, group: &str) {
        let metrics = &self.leader.context.metrics;
        metrics.reconcile_errors.inc([Self::NAME, error.category()]);
        let error_chain = chain(error);
        log_concern!(
            error.concern(),
            controller = Self::NAME,
            group,
            error = error_chain,
            "kops is not followed"
        );
    }
}

impl Periodic for KopsFollower {
    const NAME: &'static str = "kops";

    async fn begin(&mut self) -> Duration {
        self.leader.provider.classes.synced().await;
        self.leader.write.state().listed().await;
        Duration::ZERO
    }

    async fn pass(&mut self) -> Duration {
        if let Err(error) = self.follow().await {
            self.store.forget_buckets();
            self.report(&error, "");
            if error.concern() == Concern::Administrator {
                let why = chain(&error);
                let why = format!("the state store {} is not followed: {why}", self.location);
                for class in self.leader.provider.classes.all() {
                    if let Some(group) = group_of(&class.metadata) {
                        self.refuse(group, &why);
                    }
                }
            }
        }
        EVERY
    }
}

/// The InstanceGroup that an object was generated from.
fn group_of(object: &ObjectMeta) -> Option<&str> {
    Some(object.labels.as_ref()?.get(GROUP_LABEL)?.as_str())
}

fn is_followed(object: &ObjectMeta, group: &str) -> bool {
    group_of(object) == Some(group) && object.deletion_timestamp.is_none()
}

/// From which configuration of nodes to which, where the script names another one.
fn changed_script(before: &EC2NodeClass, after: &EC2NodeClass) -> String {
    let hash = |class: &EC2NodeClass| config_hash(class.spec.user_data.as_deref()?);
    match (hash(before), hash(after)) {
        (Some(before), Some(after)) if before != after => {
            format!(": new nodes boot with the configuration {after} instead of {before}")
        }
        _ => String::new(),
    }
}
