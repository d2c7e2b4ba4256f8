//! Reboots: a sick machine that a restart may cure keeps its NodeClaim and its Node. It is fenced
//! off and drained, the cloud restarts it, and when a new boot has joined it takes pods again. When
//! that fails it is replaced.
//!
//! Whoever decides on a reboot sets the NodeClaim's condition Rebooting
//! ([`crate::disruption`]); from there everything that has to be known is on the NodeClaim
//! and the Node, so that a restart of the operator goes on where it stopped. No pod is deleted for
//! a reboot: what can't be evicted in time rides along.

pub(crate) mod steps;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tenon_crds::conditions::nodeclaim::{INITIALIZED, REBOOTING};
use tenon_crds::{NodeClaim, TaintEffect, labels};
use tenon_state::decision::State;

use self::steps::{Failed, ISSUED, Reboot, Step};
use crate::actuate::claims::bound_drain;
use crate::claims::conditions;
use crate::cloud_provider::{CloudError, CloudProvider};
use crate::controller::{Affected, Reconciler};
use crate::decisions::Cause;
use crate::events::{Event, Reason};
use crate::node::drain::{Drain, Urge, drain};
use crate::node::evictions::Evictions;
use crate::operator::Operator;
use crate::state::change::Touched;
use crate::state::cluster::{Cluster, annotation, is_true, name};
use crate::watch::wire::Node;
use crate::work_queue::{Action, Backoff, Failure};
use crate::write::{Precondition, WriteError};

/// Machines that are worked on at once.
const WORKERS: usize = 10;
/// After the cloud has accepted a reboot the machine is looked at again so often.
const POLL: Duration = Duration::from_secs(15);
/// Events about one reboot are not repeated for so long.
const WINDOW: SignedDuration = SignedDuration::from_mins(30);

/// A step of a reboot that failed; it is tried again.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("rebooting the instance of nodeclaim {claim}")]
    Reboot { claim: String, source: CloudError },
    #[error(transparent)]
    Write(#[from] WriteError),
}

impl Failure for Error {
    fn category(&self) -> &'static str {
        match self {
            Self::Reboot { .. } => "reboot",
            Self::Write(error) => error.category(),
        }
    }

    fn is_conflict(&self) -> bool {
        matches!(self, Self::Write(error) if error.is_conflict())
    }
}

/// Since when the cloud has been asked for a reboot that it does not accept, by the NodeClaim's
/// uid. After a restart the time begins anew.
type Asking = Mutex<BTreeMap<String, Timestamp>>;

/// Carries reboots out.
pub(crate) struct Reboots<P> {
    operator: Arc<Operator<P>>,
    evictions: Evictions,
    asking: Asking,
}

impl<P> Reboots<P> {
    /// The cloud was asked for none yet.
    pub(crate) fn new(operator: Arc<Operator<P>>, evictions: Evictions) -> Self {
        Self { operator, evictions, asking: Asking::default() }
    }
}

impl<P: CloudProvider> Reconciler for Reboots<P> {
    const NAME: &'static str = "nodeclaim.reboot";
    const BACKOFF: Backoff = Backoff { min: Duration::from_secs(1), max: Duration::from_secs(15) };
    type Key = String;
    type Error = Error;

    fn workers(&self) -> usize {
        WORKERS
    }

    fn affected(&self, touched: &Touched, state: &crate::state::State) -> Affected<String> {
        let state = state.read();
        let claim = match touched {
            Touched::NodeClaim(name) => state.claim(name).map(Arc::as_ref),
            Touched::Node(node) => claim_on(&state, node),
            // The next pods can be asked to go.
            Touched::Pod(_, event) if event.moved => {
                event.node.as_deref().and_then(|node| claim_on(&state, node))
            }
            _ => None,
        };
        claim.filter(|claim| is_true(claim, REBOOTING)).map(|claim| name(&claim.metadata)).into()
    }

    fn all(&self, state: &Cluster) -> Vec<String> {
        let claims = state.claims().filter(|claim| is_true(claim, REBOOTING));
        claims.map(|claim| name(&claim.metadata)).collect()
    }

    async fn reconcile(&self, name: &String) -> Result<Action, Error> {
        reconcile(&self.operator, &self.evictions, &self.asking, name).await
    }
}

fn claim_on<'s>(state: &'s Cluster, node: &str) -> Option<&'s NodeClaim> {
    state.claim_of(state.node(node)?).map(Arc::as_ref)
}

async fn reconcile<P: CloudProvider>(
    operator: &Operator<P>,
    evictions: &Evictions,
    asking: &Asking,
    name: &str,
) -> Result<Action, Error> {
    // Dereference.
    let Some(observed) = observe(operator, name) else { return Ok(Action::Wait) };
    // Validate and build.
    let Observed { claim, node, reboot, drain } = &observed;
    let step = reboot.step(node.as_deref(), drain.waiting, operator.now());
    // Apply, and update the status.
    match (step, node) {
        (Step::Drain(urge, again), Some(node)) => {
            fence(operator, node).await?;
            ask_to_go(operator, evictions, node, drain, urge);
            Ok(Action::After(again))
        }
        (Step::Issue(boot), Some(node)) => {
            fence(operator, node).await?;
            issue(operator, asking, &observed, &boot).await
        }
        (Step::Issued, _) => issued(operator, asking, &observed).await,
        (Step::Wait(again, has_rebooted), node) => {
            if reboot.issued_at().is_some() {
                restarting(operator, claim, node.as_deref(), reboot).await?;
            }
            if let Some(node) = node.as_ref().filter(|_| has_rebooted) {
                unfence(operator, node).await?;
                let message = "New boot observed (bootID changed); awaiting node readiness";
                let event = Event::normal(&**claim, Reason::RebootObserved, message);
                operator.context.recorder.publish(of_this_reboot(event, reboot));
            }
            Ok(Action::After(again))
        }
        (Step::Succeed, node) => succeed(operator, claim, node.as_deref(), reboot).await,
        (Step::Fail(failed), _) => fail(operator, asking, &observed, &failed).await,
        // Without a Node there is nothing to drain, and no boot to end.
        (Step::Drain(..) | Step::Issue(_), None) => Ok(Action::After(POLL)),
    }
}

/// A NodeClaim that is rebooting, and its Node.
struct Observed {
    claim: Arc<NodeClaim>,
    node: Option<Arc<Node>>,
    reboot: Reboot,
    drain: Drain,
}

fn observe<P: CloudProvider>(operator: &Operator<P>, name: &str) -> Option<Observed> {
    let state = operator.state.read();
    let claim = state.claim(name)?;
    let reboot = Reboot::of(claim)?;
    let node = state.node_of(claim).cloned();
    let pods = node.iter().flat_map(|node| state.pods_on(node.name()));
    let drain = drain(pods, None, operator.now());
    Some(Observed { claim: Arc::clone(claim), node, reboot, drain })
}

/// Keeps new pods away until the machine is back.
async fn fence<P: CloudProvider>(operator: &Operator<P>, node: &Node) -> Result<(), WriteError> {
    let effect = TaintEffect::NoSchedule;
    if node.has_taint(labels::REBOOTING_TAINT, effect.as_str()) {
        return Ok(());
    }
    let mut taints = node.spec.taints.clone();
    taints.push(tenon_crds::Taint::new(labels::REBOOTING_TAINT, effect).into());
    operator.write.patch_node(node, &json!({"spec": {"taints": taints}})).await.map(drop)
}

async fn unfence<P: CloudProvider>(operator: &Operator<P>, node: &Node) -> Result<(), WriteError> {
    let mut taints = node.spec.taints.clone();
    taints.retain(|taint| taint.key != labels::REBOOTING_TAINT);
    if taints.len() < node.spec.taints.len() {
        operator.write.patch_node(node, &json!({"spec": {"taints": taints}})).await?;
    }
    Ok(())
}

fn ask_to_go<P: CloudProvider>(
    operator: &Operator<P>,
    evictions: &Evictions,
    node: &Node,
    drain: &Drain,
    urge: Urge,
) {
    let going: Vec<_> = {
        let state = operator.state.read();
        let uid = |key| state.pod(key).map(|pod| Arc::clone(&pod.uid));
        drain.go.iter().filter_map(|key| Some((key.clone(), uid(key)?))).collect()
    };
    for (key, uid) in going {
        evictions.urge(key, &uid, node.name(), urge, "Unhealthy");
    }
}

/// Asks the cloud to restart the machine, once it is written down which boot is to end.
async fn issue<P: CloudProvider>(
    operator: &Operator<P>,
    asking: &Asking,
    observed: &Observed,
    boot: &str,
) -> Result<Action, Error> {
    let Observed { claim, reboot, .. } = observed;
    let uid = claim.metadata.uid.clone().unwrap_or_default();
    if annotation(claim, labels::REBOOT_PRE_BOOT_ID) != Some(boot) {
        let body = json!({"metadata": {"annotations": {labels::REBOOT_PRE_BOOT_ID: boot}}});
        operator.write.patch_claim(claim, body, Precondition::Unchanged).await?;
    }
    let since = *asking.lock().entry(uid.clone()).or_insert_with(|| operator.now());
    let failed = match operator.cloud.reboot(claim, &reboot.operation(&uid, boot)).await {
        Ok(()) => {
            // The annotation has changed the NodeClaim.
            let Some(observed) = observe(operator, &name(&claim.metadata)) else {
                return Ok(Action::Wait);
            };
            return issued(operator, asking, &observed).await;
        }
        Err(CloudError::RebootNotSupported) => Failed::NotSupported,
        Err(error @ (CloudError::RebootRefused(_) | CloudError::NotFound(_))) => {
            Failed::Rejected(crate::text::chain(&error))
        }
        Err(error) if steps::asked_long_enough(since, operator.now()) => {
            let error = crate::text::chain(&error);
            tracing::warn!(nodeclaim = name(&claim.metadata), error, "the reboot can't be issued");
            Failed::NotIssued
        }
        Err(source) => return Err(Error::Reboot { claim: name(&claim.metadata), source }),
    };
    let Some(observed) = observe(operator, &name(&claim.metadata)) else { return Ok(Action::Wait) };
    fail(operator, asking, &observed, &failed).await
}

/// The cloud has accepted the reboot.
async fn issued<P: CloudProvider>(
    operator: &Operator<P>,
    asking: &Asking,
    observed: &Observed,
) -> Result<Action, Error> {
    let Observed { claim, node, reboot, .. } = observed;
    restarting(operator, claim, node.as_deref(), reboot).await?;
    asking.lock().remove(claim.metadata.uid.as_deref().unwrap_or_default());
    Ok(Action::After(POLL))
}

/// While it restarts, a machine is not initialised: the boot that ends must not be taken for the
/// new one.
async fn restarting<P: CloudProvider>(
    operator: &Operator<P>,
    claim: &NodeClaim,
    node: Option<&Node>,
    reboot: &Reboot,
) -> Result<(), WriteError> {
    let mut told = claim.clone();
    let mut set = conditions(&mut told, operator.now());
    set.set_true_because(REBOOTING, ISSUED, &reboot.message);
    set.set_unknown(INITIALIZED, "Rebooting", "node is rebooting");
    if told.status != claim.status {
        operator.write.patch_claim_status(&told).await?;
    }
    if let Some(node) = node.filter(|node| node.label(labels::INITIALIZED).is_some()) {
        let body = json!({"metadata": {"labels": {labels::INITIALIZED: Value::Null}}});
        operator.write.patch_node(node, &body).await?;
    }
    Ok(())
}

/// A new boot is ready: the machine is initialised as a new one is.
async fn succeed<P: CloudProvider>(
    operator: &Operator<P>,
    claim: &NodeClaim,
    node: Option<&Node>,
    reboot: &Reboot,
) -> Result<Action, Error> {
    if let Some(node) = node {
        unfence(operator, node).await?;
    }
    let body = json!({"metadata": {"annotations": {labels::REBOOT_PRE_BOOT_ID: Value::Null}}});
    let mut claim = operator.write.patch_claim(claim, body, Precondition::Unchanged).await?;
    let now = operator.now();
    let message = "node rebooted and rejoined the cluster";
    conditions(&mut claim, now).set_false(REBOOTING, "RebootSucceeded", message);
    operator.write.patch_claim_status(&claim).await?;
    if let Some(issued) = reboot.issued_at() {
        let took = now.duration_since(issued).as_secs_f64();
        operator.context.metrics.reboot_recovery_duration.observe([], took);
    }
    count(operator, &claim, reboot, ("succeeded", message), now);
    Ok(Action::Wait)
}

/// Gives a reboot up. A machine of which is asked what makes no sense stays; every other one is
/// replaced, for it is still sick.
async fn fail<P: CloudProvider>(
    operator: &Operator<P>,
    asking: &Asking,
    observed: &Observed,
    failed: &Failed,
) -> Result<Action, Error> {
    let Observed { claim, node, reboot, .. } = observed;
    if let Some(node) = node {
        unfence(operator, node).await?;
    }
    let message = failed.message();
    if let Failed::Invalid(_) = failed {
        let mut claim = NodeClaim::clone(claim);
        conditions(&mut claim, operator.now()).set_false(REBOOTING, "RebootFailed", &message);
        operator.write.patch_claim_status(&claim).await?;
    } else {
        if let Some(bound) = reboot.drain_bound()
            && !bound_drain(operator, claim, bound).await?
        {
            return Ok(Action::Wait);
        }
        // As it is now: if its reboot has ended meanwhile it is left alone.
        let newest = operator.state.read().claim(&name(&claim.metadata)).cloned();
        let Some(newest) = newest.filter(|newest| newest.metadata.uid == claim.metadata.uid) else {
            return Ok(Action::Wait);
        };
        operator.write.delete_claim_unchanged(&newest).await?;
        let why = format!("its reboot failed: {message}");
        operator.context.decisions.deleted(&newest, Cause::Unhealthy(&why));
        tracing::warn!(
            nodeclaim = name(&claim.metadata),
            why = message,
            "reboot failed, replacing node"
        );
    }
    asking.lock().remove(claim.metadata.uid.as_deref().unwrap_or_default());
    let event = Event::warning(&**claim, Reason::RebootFailed, message.as_str());
    operator.context.recorder.publish(of_this_reboot(event, reboot));
    count(operator, claim, reboot, (failed.result(), &message), operator.now());
    Ok(Action::Wait)
}

/// An event that is said again for another reboot of the same machine.
fn of_this_reboot(event: Event, reboot: &Reboot) -> Event {
    event.distinct_by(reboot.requested_at.to_string()).within(WINDOW)
}

fn count<P: CloudProvider>(
    operator: &Operator<P>,
    claim: &NodeClaim,
    reboot: &Reboot,
    (result, message): (&'static str, &str),
    now: Timestamp,
) {
    let state = if result == "succeeded" { State::Done } else { State::Failed };
    operator.context.decisions.progress(&name(&claim.metadata), state, message);
    let took = now.duration_since(reboot.requested_at);
    tracing::info!(
        nodeclaim = name(&claim.metadata),
        result,
        seconds = took.as_secs(),
        "reboot reached terminal outcome"
    );
    operator.context.metrics.reboots.inc([result]);
    operator.context.metrics.reboot_duration.observe([result], took.as_secs_f64());
}
