//! NodePools: whether they can be used, their hash, and what their machines have together.

pub(crate) mod counter;
pub(crate) mod registration;

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tenon_crds::conditions::nodeclaim::DRIFTED;
use tenon_crds::conditions::nodepool::{
    NODE_CLASS_READY, NODE_REGISTRATION_HEALTHY, TYPES, VALIDATION_SUCCEEDED,
};
use tenon_crds::conditions::{Conditions, Subject};
use tenon_crds::{NodeClaim, NodePool, hash, labels, validation};

use self::registration::Health;
use crate::claims::pool_of;
use crate::cloud_provider::{CloudProvider, NodeClassState};
use crate::controller::{Affected, Reconciler};
use crate::operator::Operator;
use crate::pauses::{Findings, inherited, judge, news, watch_state};
use crate::state::State;
use crate::state::change::Touched;
use crate::state::cluster::{Cluster, annotation, is_true, name};
use crate::text::chain;
use crate::work_queue::{Action, WorkQueue};
use crate::write::{Precondition, WriteError};

/// NodeClasses say themselves when they change; this is for a provider that forgets to.
const POLL: Duration = Duration::from_secs(30);

/// Reconciles NodePools. It has to be run again for all when the state of a NodeClass may have
/// changed, and when planning is paused or goes on.
pub(crate) struct NodePools<P> {
    operator: Arc<Operator<P>>,
    /// Which machines registered.
    health: Arc<Health>,
}

impl<P> NodePools<P> {
    pub(crate) fn new(operator: Arc<Operator<P>>, health: Arc<Health>) -> Self {
        Self { operator, health }
    }
}

impl<P: CloudProvider> Reconciler for NodePools<P> {
    const NAME: &'static str = "nodepool";
    type Key = String;
    type Error = WriteError;

    fn workers(&self) -> usize {
        10
    }

    fn affected(&self, touched: &Touched, _: &State) -> Affected<String> {
        match touched {
            Touched::NodePool(name) => Affected::One(name.clone()),
            _ => Affected::None,
        }
    }

    fn all(&self, state: &Cluster) -> Vec<String> {
        state.pools().map(|pool| name(&pool.metadata)).collect()
    }

    async fn reconcile(&self, name: &String) -> Result<Action, WriteError> {
        reconcile(&self.operator, &self.health, name).await
    }

    async fn beside(&self, _: &WorkQueue<String>) {
        watch_state(&self.operator.state, &self.operator.pauses).await;
    }
}

async fn reconcile<P: CloudProvider>(
    operator: &Operator<P>,
    health: &Health,
    name: &str,
) -> Result<Action, WriteError> {
    // Dereference.
    let Some(pool) = operator.state.read().pool(name).cloned() else { return Ok(Action::Wait) };
    if pool.metadata.deletion_timestamp.is_some() {
        return Ok(Action::Wait);
    }
    let reference = Operator::<P>::class(&pool.spec.template.spec.node_class_ref);
    let class = operator.cloud.node_class(&reference);
    let before = pool.status.as_ref().map(|status| status.conditions.clone()).unwrap_or_default();
    let found = Findings {
        everywhere: operator.pauses.why().or_else(|| inherited(&before, &operator.state.read())),
        no_catalog: operator.cloud.catalog(&reference).err().map(|error| chain(&error)),
        left_out: operator.quarantine.until(operator.now()),
    };

    // Validate and build.
    let problems = validation::node_pool(&pool.spec, &operator.cloud.label_rules());
    let problems: Vec<String> = problems.iter().map(ToString::to_string).collect();

    // Apply.
    let pool = write_hash(operator, &pool).await?;

    // Update the status.
    let mut after = pool.clone();
    let status = after.status.get_or_insert_default();
    let subject = Subject::of(&after.metadata);
    let mut set = Conditions::new(TYPES, &mut status.conditions, subject, operator.now());
    judge_validation(&mut set, &problems);
    judge_class(&mut set, class.as_ref());
    let observed = class.as_ref().map(|class| class.generation);
    if Health::is_stale(&set, subject.generation, status.node_class_observed_generation, observed) {
        set.set_unknown(
            NODE_REGISTRATION_HEALTHY,
            "AwaitingReconciliation",
            "object is awaiting reconciliation",
        );
        health.forget(pool.metadata.uid.as_deref().unwrap_or_default());
    }
    judge(&mut set, &found);
    status.node_class_observed_generation = observed.or(status.node_class_observed_generation);
    if after.status != pool.status {
        let status = after.status.as_ref().expect("set above");
        let mut body = json!({ "conditions": status.conditions });
        if let Some(generation) = status.node_class_observed_generation {
            body["nodeClassObservedGeneration"] = json!(generation);
        }
        operator.write.patch_pool_status(&pool, body, Precondition::Unchanged).await?;
    }
    let (event, again) = news(&before, &after, operator.now());
    if let Some(event) = event {
        operator.context.recorder.publish(event);
    }
    Ok(Action::After(again.unwrap_or(POLL)))
}

fn judge_validation(set: &mut Conditions<'_>, problems: &[String]) {
    if problems.is_empty() {
        set.set_true(VALIDATION_SUCCEEDED);
    } else {
        set.set_false(VALIDATION_SUCCEEDED, "NodePoolValidationFailed", &problems.join("; "));
    }
}

fn judge_class(set: &mut Conditions<'_>, class: Option<&NodeClassState>) {
    let type_ = NODE_CLASS_READY;
    match class {
        None => set.set_false(type_, "NodeClassNotFound", "NodeClass not found on cluster"),
        Some(class) if class.deleting => {
            set.set_false(type_, "NodeClassTerminating", "NodeClass is Terminating")
        }
        Some(class) if class.unknown => {
            set.set_false(type_, "NodeClassReadinessUnknown", "Node Class Readiness Unknown")
        }
        Some(NodeClassState { ready: Err((reason, message)), .. }) => {
            set.set_false(type_, reason, message)
        }
        Some(NodeClassState { ready: Ok(()), .. }) => set.set_true(type_),
    };
}

/// Writes the hash of the NodePool's template, for drift. When the version of the algorithm has
/// changed, the NodeClaims get the new version and hash first, because hashes of different versions
/// can't be compared; what has drifted already stays drifted.
async fn write_hash<P: CloudProvider>(
    operator: &Operator<P>,
    pool: &NodePool,
) -> Result<NodePool, WriteError> {
    let on_pool = |key: &str| pool.metadata.annotations.as_ref()?.get(key).map(String::as_str);
    let (hash, version) = (hash::node_pool(&pool.spec), hash::NODE_POOL_HASH_VERSION);
    let known_version = on_pool(labels::NODEPOOL_HASH_VERSION);
    if on_pool(labels::NODEPOOL_HASH) == Some(hash.as_str()) && known_version == Some(version) {
        return Ok(pool.clone());
    }
    if known_version.is_some_and(|known| known != version) {
        let name = name(&pool.metadata);
        let claims: Vec<Arc<NodeClaim>> = {
            let state = operator.state.read();
            let outdated = |claim: &&Arc<NodeClaim>| {
                pool_of(claim) == name
                    && annotation(claim, labels::NODEPOOL_HASH_VERSION) != Some(version)
            };
            state.claims().filter(outdated).cloned().collect()
        };
        for claim in claims {
            let mut annotations = json!({labels::NODEPOOL_HASH_VERSION: version});
            if !is_true(&claim, DRIFTED) {
                annotations[labels::NODEPOOL_HASH] = json!(hash);
            }
            let body = json!({"metadata": {"annotations": annotations}});
            match operator.write.patch_claim(&claim, body, Precondition::SameUid).await {
                Ok(_) => {}
                Err(error) if error.is_not_found() => {}
                Err(error) => return Err(error),
            }
        }
    }
    let annotations = json!({labels::NODEPOOL_HASH: hash, labels::NODEPOOL_HASH_VERSION: version});
    operator.write.patch_pool(pool, json!({"metadata": {"annotations": annotations}})).await
}

#[cfg(test)]
mod tests;
