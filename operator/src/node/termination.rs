//! The end of a Node: tainted, drained, its volumes detached, its machine terminated; then the
//! finalizer comes off.
//!
//! Each step says in the NodeClaim's conditions how far it is. That no pods are left, and that a
//! Node has no NodeClaim, is the API server's to say before the machine or the finalizer goes; the
//! state may not have seen them yet. Without a termination grace period a drain waits for ever: for
//! PodDisruptionBudgets, and for pods that must not be disrupted.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde_json::json;
use tenon_crds::conditions::nodeclaim::{
    DISRUPTION_REASON, DRAINED, INSTANCE_TERMINATING, VOLUMES_DETACHED,
};
use tenon_crds::{ConditionStatus, NodeClaim, TaintEffect, labels};

use super::drain::drain;
use super::evictions::Evictions;
use crate::claims::{conditions, pool_of};
use crate::cloud_provider::{CloudError, CloudProvider};
use crate::confirm::{self, ReadError};
use crate::controller::{Affected, Reconciler};
use crate::events::{Event, Reason};
use crate::operator::Operator;
use crate::state::State;
use crate::state::change::{ObjectKey, Touched};
use crate::state::cluster::{Cluster, annotation, name};
use crate::state::pod::Pod;
use crate::watch::wire::{Node, created_at};
use crate::work_queue::{Action, Backoff, Concern, Failure};
use crate::write::WriteError;

/// A drain is looked at again so often; changes of its pods don't wait for it.
const DRAIN_POLL: Duration = Duration::from_secs(1);
/// How soon the API server is asked again for what the watch should have brought.
const CONFIRM: Duration = Duration::from_secs(1);
/// How often the provider is asked whether the machine is gone.
const MACHINE_POLL: Duration = Duration::from_secs(5);
/// A drain takes at least so long, so that load balancers notice the label before the machine goes.
const MIN_DRAIN: SignedDuration = SignedDuration::from_secs(5);

const EXCLUDE_FROM_LOAD_BALANCERS: &str = "node.kubernetes.io/exclude-from-external-load-balancers";

/// A step of a Node's end that failed; it is tried again.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("getting the instance of node {node}")]
    Get { node: String, source: CloudError },
    #[error("terminating the instance of node {node}")]
    Terminate { node: String, source: CloudError },
    #[error(
        "nodeclaim {claim} has the annotation {} with the value {text:?}, which is not a time; \
         correct or remove it",
        labels::TERMINATION_TIMESTAMP
    )]
    Deadline { claim: String, text: String },
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error(transparent)]
    Write(#[from] WriteError),
}

impl Failure for Error {
    fn category(&self) -> &'static str {
        match self {
            Self::Get { .. } => "get",
            Self::Terminate { .. } => "terminate",
            Self::Deadline { .. } => "deadline",
            Self::Read(error) => error.category(),
            Self::Write(error) => error.category(),
        }
    }

    fn is_conflict(&self) -> bool {
        matches!(self, Self::Write(error) if error.is_conflict())
    }

    fn concern(&self) -> Concern {
        match self {
            Self::Get { source, .. } | Self::Terminate { source, .. } => source.concern(),
            Self::Deadline { .. } => Concern::Administrator,
            Self::Read(error) => error.concern(),
            Self::Write(error) => error.concern(),
        }
    }
}

/// Ends Nodes.
pub(crate) struct Termination<P> {
    operator: Arc<Operator<P>>,
    evictions: Evictions,
}

impl<P> Termination<P> {
    /// Pods that have to go are put among `evictions`.
    pub(crate) fn new(operator: Arc<Operator<P>>, evictions: Evictions) -> Self {
        Self { operator, evictions }
    }
}

impl<P: CloudProvider> Reconciler for Termination<P> {
    const NAME: &'static str = "node.termination";
    const BACKOFF: Backoff =
        Backoff { min: Duration::from_millis(100), max: Duration::from_secs(10) };
    type Key = String;
    type Error = Error;

    fn workers(&self) -> usize {
        self.operator.options.workers(100, 5000)
    }

    fn affected(&self, touched: &Touched, state: &State) -> Affected<String> {
        match touched {
            Touched::Node(name) => Affected::One(name.clone()),
            Touched::Pod(_, event) => {
                let is_going =
                    |node: &&String| state.read().node(node).is_some_and(|node| node.is_deleting());
                event.node.as_ref().filter(is_going).cloned().into()
            }
            _ => Affected::None,
        }
    }

    fn all(&self, state: &Cluster) -> Vec<String> {
        state.nodes().map(|node| node.name().to_owned()).collect()
    }

    async fn reconcile(&self, node: &String) -> Result<Action, Error> {
        reconcile(&self.operator, &self.evictions, node).await
    }
}

async fn reconcile<P: CloudProvider>(
    operator: &Operator<P>,
    evictions: &Evictions,
    name: &str,
) -> Result<Action, Error> {
    // Dereference.
    let Some((node, claim)) = observe(operator, name) else { return Ok(Action::Wait) };
    if let Some(claim) = &claim
        && claim.metadata.deletion_timestamp.is_none()
    {
        operator.write.delete_claim(claim).await?;
    }
    if !node.is_ready() && is_machine_gone(operator, &node).await? {
        return release(operator, &node, claim.as_deref()).await;
    }
    // Validate.
    let deadline = claim.as_deref().map(deadline).transpose()?.flatten();
    if let Some(by) = deadline {
        let message = format!("All pods will be deleted by {by}");
        operator.context.recorder.publish(Event::warning(
            &*node,
            Reason::TerminationGracePeriodExpiring,
            message,
        ));
    }
    // Apply.
    let node = Arc::new(fence(operator, &node).await?);
    let mut claim = claim.map(|claim| (*claim).clone());
    let before = claim.as_ref().map(|claim| claim.status.clone());
    let next = advance(operator, evictions, &node, claim.as_mut(), deadline).await?;
    // Update the status.
    if let Some(claim) = &claim
        && before.is_some_and(|before| before != claim.status)
    {
        match operator.write.patch_claim_status(claim).await {
            Ok(_) => {}
            Err(error) if error.is_not_found() => {}
            Err(error) => return Err(error.into()),
        }
    }
    match next {
        Next::Again(delay) => Ok(Action::After(delay)),
        Next::Release => release(operator, &node, claim.as_ref()).await,
    }
}

/// A Node that is ours and is to go, with its NodeClaim, if it has exactly one.
fn observe<P: CloudProvider>(
    operator: &Operator<P>,
    name: &str,
) -> Option<(Arc<Node>, Option<Arc<NodeClaim>>)> {
    let state = operator.state.read();
    let node = state.node(name)?;
    let held = node.metadata.finalizers.iter().flatten();
    let held = held.into_iter().any(|finalizer| finalizer == labels::TERMINATION_FINALIZER);
    let ours = node.is_deleting() && held && state.is_managed_node(node);
    ours.then(|| (Arc::clone(node), state.claim_of(node).cloned()))
}

async fn is_machine_gone<P: CloudProvider>(
    operator: &Operator<P>,
    node: &Node,
) -> Result<bool, Error> {
    let Some(id) = node.provider_id() else { return Ok(false) };
    match operator.cloud.get(id).await {
        Ok(_) => Ok(false),
        Err(CloudError::NotFound(_)) => Ok(true),
        Err(source) => Err(Error::Get { node: node.name().to_owned(), source }),
    }
}

/// By when everything has to be gone from the Node.
fn deadline(claim: &NodeClaim) -> Result<Option<Timestamp>, Error> {
    let Some(text) = annotation(claim, labels::TERMINATION_TIMESTAMP) else { return Ok(None) };
    let parsed = text.parse();
    parsed
        .map(Some)
        .map_err(|_| Error::Deadline { claim: name(&claim.metadata), text: text.to_owned() })
}

/// Keeps new pods and load balancers away.
async fn fence<P: CloudProvider>(operator: &Operator<P>, node: &Node) -> Result<Node, WriteError> {
    let fenced = node.has_taint(labels::DISRUPTED_TAINT, TaintEffect::NoSchedule.as_str())
        && node.label(EXCLUDE_FROM_LOAD_BALANCERS).is_some();
    if fenced {
        return Ok(node.clone());
    }
    let mut taints = node.spec.taints.clone();
    taints.retain(|taint| taint.key != labels::DISRUPTED_TAINT);
    taints.push(tenon_crds::Taint::new(labels::DISRUPTED_TAINT, TaintEffect::NoSchedule).into());
    let body = json!({
        "metadata": {"labels": {EXCLUDE_FROM_LOAD_BALANCERS: "karpenter"}},
        "spec": {"taints": taints},
    });
    let fenced = operator.write.patch_node(node, &body).await?;
    tracing::info!(node = node.name(), "tainted node");
    Ok(fenced)
}

/// What comes next for a Node.
#[derive(Debug, PartialEq, Eq)]
enum Next {
    Again(Duration),
    Release,
}

/// Takes the first step that is not done yet.
async fn advance<P: CloudProvider>(
    operator: &Operator<P>,
    evictions: &Evictions,
    node: &Node,
    mut claim: Option<&mut NodeClaim>,
    deadline: Option<Timestamp>,
) -> Result<Next, Error> {
    let drained = await_drain(operator, evictions, node, claim.as_deref_mut(), deadline).await?;
    if let Some(delay) = drained {
        return Ok(Next::Again(delay));
    }
    if let Some(delay) = await_volumes(operator, node, claim.as_deref_mut(), deadline) {
        return Ok(Next::Again(delay));
    }
    let Some(claim) = claim else {
        // One that the state does not know would be left behind, with its machine. Of several it is
        // not clear whose the Node is.
        let n_claims = confirm::n_claims_of(&operator.context.client, node).await?;
        return Ok(if n_claims == 1 { Next::Again(CONFIRM) } else { Next::Release });
    };
    match operator.cloud.delete(claim).await {
        Ok(()) => {
            conditions(claim, operator.now()).set_true(INSTANCE_TERMINATING);
            Ok(Next::Again(MACHINE_POLL))
        }
        Err(CloudError::NotFound(_)) => Ok(Next::Release),
        Err(source) => Err(Error::Terminate { node: node.name().to_owned(), source }),
    }
}

/// Makes pods go; the time until the next look while some are left.
async fn await_drain<P: CloudProvider>(
    operator: &Operator<P>,
    evictions: &Evictions,
    node: &Node,
    claim: Option<&mut NodeClaim>,
    deadline: Option<Timestamp>,
) -> Result<Option<Duration>, Error> {
    let now = operator.now();
    let (drain, uids): (_, Vec<Arc<str>>) = {
        let state = operator.state.read();
        let drain = drain(state.pods_on(node.name()), deadline, now);
        let uid =
            |key: &ObjectKey| state.pod(key).map(|pod| Arc::clone(&pod.uid)).unwrap_or_default();
        let uids = drain.go.iter().map(uid).collect();
        (drain, uids)
    };
    let reason =
        claim.as_deref().map_or_else(|| "Forceful Termination".to_owned(), disruption_reason);
    for (key, uid) in drain.go.into_iter().zip(uids) {
        evictions.add(key, &uid, node.name(), deadline, &reason);
    }
    let mut set = claim.map(|claim| (pool_of(claim).to_owned(), conditions(claim, now)));
    if let Some((_, set)) = &mut set {
        if set.is_true(DRAINED) {
            return Ok(None);
        }
        if set.get(DRAINED).is_none() {
            set.set_unknown(DRAINED, "Draining", "Draining");
        }
    }
    if drain.waiting > 0 {
        let message =
            format!("Failed to drain node, {} pods are waiting to be evicted", drain.waiting);
        operator.context.recorder.publish(Event::warning(node, Reason::FailedDraining, message));
        return Ok(Some(DRAIN_POLL));
    }
    // Without a NodeClaim there is nothing to measure the minimal time by.
    let since = set.as_ref().and_then(|(_, set)| set.get(DRAINED));
    let since = since.map(|drained| drained.last_transition_time.0);
    if since.is_some_and(|since| now.duration_since(since) < MIN_DRAIN) {
        return Ok(Some(DRAIN_POLL));
    }
    let left = pods_left(operator, node, deadline, now).await?;
    if left > 0 {
        tracing::info!(
            node = node.name(),
            pods = left,
            "not considering the node drained yet: the API server has pods that the watch has not \
             reported"
        );
        return Ok(Some(CONFIRM));
    }
    if let Some((pool, mut set)) = set {
        set.set_true(DRAINED);
        operator.context.metrics.nodes_drained.inc([&pool]);
    }
    Ok(None)
}

/// How many pods have to be waited for on a Node, by what the API server says.
async fn pods_left<P: CloudProvider>(
    operator: &Operator<P>,
    node: &Node,
    deadline: Option<Timestamp>,
    now: Timestamp,
) -> Result<usize, Error> {
    let pods = confirm::pods_on(&operator.context.client, node.name()).await?;
    let pods: Vec<(ObjectKey, Pod)> = pods
        .iter()
        .filter_map(|pod| Some((ObjectKey::of(pod), Pod::from_wire(pod, 0, Arc::default())?)))
        .collect();
    Ok(drain(pods.iter().map(|(key, pod)| (key, pod)), deadline, now).waiting)
}

fn disruption_reason(claim: &NodeClaim) -> String {
    let conditions = claim.status.as_ref().map(|status| status.conditions.as_slice());
    let found = conditions.unwrap_or_default().iter().find(|condition| {
        condition.type_ == DISRUPTION_REASON && condition.status == ConditionStatus::True
    });
    found.map_or_else(|| "Forceful Termination".to_owned(), |condition| condition.reason.clone())
}

/// Waits until the volumes of the pods that have gone are detached; with a deadline, not beyond it.
fn await_volumes<P: CloudProvider>(
    operator: &Operator<P>,
    node: &Node,
    claim: Option<&mut NodeClaim>,
    deadline: Option<Timestamp>,
) -> Option<Duration> {
    let now = operator.now();
    let attached = attached_volumes(operator, node, now);
    let late = deadline.is_some_and(|deadline| now >= deadline);
    if let Some(claim) = claim {
        let mut set = conditions(claim, now);
        if set.is_true(VOLUMES_DETACHED) {
            return None;
        }
        if attached == 0 {
            set.set_true(VOLUMES_DETACHED);
        } else if late {
            set.set_false(
                VOLUMES_DETACHED,
                "TerminationGracePeriodElapsed",
                "TerminationGracePeriodElapsed",
            );
        } else {
            set.set_unknown(
                VOLUMES_DETACHED,
                "AwaitingVolumeDetachment",
                "AwaitingVolumeDetachment",
            );
        }
    }
    if attached == 0 || late {
        return None;
    }
    let message = format!("Waiting for {attached} volume attachments to be detached");
    operator.context.recorder.publish(Event::normal(
        node,
        Reason::AwaitingVolumeDetachment,
        message,
    ));
    Some(DRAIN_POLL)
}

/// How many volumes are still attached, without those of pods that stay until the machine goes.
fn attached_volumes<P: CloudProvider>(
    operator: &Operator<P>,
    node: &Node,
    now: Timestamp,
) -> usize {
    let state = operator.state.read();
    let staying = state.pods_on(node.name()).filter(|(_, pod)| !pod.is_waited_for(now));
    let volume = |(key, pod): (&ObjectKey, &Pod)| -> Vec<String> {
        let claims = pod.volume_claims.iter();
        let claims = claims.map(|claim| ObjectKey::new(Arc::clone(&key.namespace), claim.as_str()));
        claims.filter_map(|claim| state.volume_claim(&claim)?.spec.volume_name.clone()).collect()
    };
    let kept: BTreeSet<String> = staying.flat_map(volume).collect();
    state
        .attachments_of(node.name())
        .filter_map(|attachment| attachment.spec.source.persistent_volume_name.as_ref())
        .filter(|volume| !kept.contains(*volume))
        .count()
}

/// Lets the Node go.
async fn release<P: CloudProvider>(
    operator: &Operator<P>,
    node: &Node,
    claim: Option<&NodeClaim>,
) -> Result<Action, Error> {
    operator.write.release_node(node).await?;
    let pool = claim.map_or_else(|| node.label(labels::NODEPOOL).unwrap_or_default(), pool_of);
    let metrics = &operator.context.metrics;
    let now = operator.now();
    metrics.nodes_terminated.inc([pool, node.label(labels::ZONE).unwrap_or_default()]);
    if let Some(deleted) = &node.metadata.deletion_timestamp {
        metrics
            .node_termination_duration
            .observe([pool], now.duration_since(deleted.0).as_secs_f64());
    }
    let lived = now.duration_since(created_at(&node.metadata));
    metrics.node_lifetime.observe([pool], lived.as_secs_f64());
    tracing::info!(node = node.name(), nodepool = pool, "deleted node");
    Ok(Action::Wait)
}

#[cfg(test)]
mod tests;
