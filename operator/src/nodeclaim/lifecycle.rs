//! The life of a NodeClaim: launch, registration, initialisation, and the time limits of the first two; then its end.
//!
//! Each phase decides in a pure function from the NodeClaim and its Nodes, and tells by the NodeClaim's conditions what it waits for. The finalizer comes
//! first of all: no machine is launched for a NodeClaim that could vanish without a trace.

mod finalization;
mod initialization;
mod launch;
mod liveness;
mod registration;

use std::sync::Arc;
use std::time::Duration;

use jiff::SignedDuration;
use serde_json::json;
use tenon_crds::conditions::nodeclaim::REGISTERED;
use tenon_crds::{NodeClaim, labels};
use tokio_util::sync::CancellationToken;

use self::launch::Launches;
use crate::cloud_provider::{CloudError, CloudProvider};
use crate::confirm::ReadError;
use crate::events::{Event, Reason};
use crate::nodepool::registration::Health;
use crate::operator::Operator;
use crate::state::change::Touched;
use crate::state::cluster::{is_true, name};
use crate::watch::wire::Node;
use crate::work::{Action, Backoff, Failure, WorkQueue, settle};
use crate::write::WriteError;

/// A launch that fails is tried again after a second, at the latest after a minute.
const BACKOFF: Backoff = Backoff { min: Duration::from_secs(1), max: Duration::from_mins(1) };

/// A step of a NodeClaim's life that failed; it is tried again.
#[derive(Debug, thiserror::Error)]
enum Error {
    #[error("launching the machine of nodeclaim {claim}")]
    Launch { claim: String, source: CloudError },
    #[error("terminating the machine of nodeclaim {claim}")]
    Terminate { claim: String, source: CloudError },
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error(transparent)]
    Write(#[from] WriteError),
}

impl Failure for Error {
    fn category(&self) -> &'static str {
        match self {
            Self::Launch { .. } => "launch",
            Self::Terminate { .. } => "terminate",
            Self::Read(error) => error.category(),
            Self::Write(error) => error.category(),
        }
    }

    fn is_conflict(&self) -> bool {
        matches!(self, Self::Write(error) if error.is_conflict())
    }
}

/// Reconciles NodeClaims until `stop`.
pub async fn run<P: CloudProvider>(
    operator: Arc<Operator<P>>,
    health: Arc<Health>,
    stop: CancellationToken,
) {
    let queue = WorkQueue::new();
    let sink = queue.clone();
    let state = operator.state.clone();
    operator.state.subscribe(move |touched| match touched {
        Touched::NodeClaim(name) => sink.add(name.clone()),
        Touched::Node(node) => {
            let state = state.read();
            let id = state.node(node).and_then(|node| node.provider_id());
            for claim in id.into_iter().flat_map(|id| state.claims_of(id)) {
                sink.add(name(&claim.metadata));
            }
        }
        _ => {}
    });
    for claim in operator.state.read().claims() {
        queue.add(name(&claim.metadata));
    }
    let workers = operator.options.workers(1000, 5000);
    let launches = Arc::new(Launches::default());
    queue
        .run(workers, BACKOFF, stop, |name| {
            let operator = Arc::clone(&operator);
            let launches = Arc::clone(&launches);
            let health = Arc::clone(&health);
            async move {
                let result = reconcile(&operator, &launches, &health, &name).await;
                settle(&operator.context, "nodeclaim.lifecycle", &name, result)
            }
        })
        .await;
}

async fn reconcile<P: CloudProvider>(
    operator: &Operator<P>,
    launches: &Launches,
    health: &Health,
    name: &str,
) -> Result<Action, Error> {
    // Dereference.
    let Some(Observed { claim, nodes }) = observe(operator, name) else { return Ok(Action::Wait) };
    if claim.metadata.deletion_timestamp.is_some() {
        let mut claim = claim;
        if claim.provider_id().is_none() {
            // It was deleted before the launch was in its status: its machine must go all the same.
            let uid = claim.metadata.uid.as_deref().unwrap_or_default();
            let launched = launches.provider_id(uid);
            claim.status.get_or_insert_default().provider_id = launched;
        }
        return finalization::reconcile(operator, claim, &nodes).await;
    }
    let claim = hold(operator, claim).await?;
    let before = claim.status.clone();
    let now = operator.now();

    // Validate and build, phase by phase; each phase applies what it has to before it says so.
    let mut claim = claim;
    let was_registered = is_true(&claim, REGISTERED);
    let launched = launch::launch(operator, launches, &mut claim).await?;
    if let launch::Outcome::GivenUp = launched {
        return Ok(Action::Wait);
    }
    let joined = registration::register(operator, &mut claim, &nodes).await?;
    initialization::initialize(operator, &mut claim, joined.as_ref()).await?;
    let liveness = liveness::check(&claim, now);

    // Update the status.
    if claim.status != before {
        claim = operator.write.patch_claim_status(&claim).await?;
    }
    if !was_registered && is_true(&claim, REGISTERED) {
        health.record(operator, &claim, true).await?;
    }
    if let liveness::Liveness::TimedOut(reason) = liveness {
        health.record(operator, &claim, false).await?;
        super::give_up(operator, &claim, reason).await?;
        return Ok(Action::Wait);
    }
    if let launch::Outcome::Failed(source) = launched {
        return Err(Error::Launch { claim: name.to_owned(), source });
    }
    Ok(liveness.action())
}

/// A NodeClaim and the Nodes that say that they are its machine.
struct Observed {
    claim: NodeClaim,
    nodes: Vec<Arc<Node>>,
}

fn observe<P: CloudProvider>(operator: &Operator<P>, name: &str) -> Option<Observed> {
    let state = operator.state.read();
    let claim = state.claim(name)?;
    let id = claim.provider_id();
    let nodes = id.into_iter().flat_map(|id| state.nodes_of(id)).cloned().collect();
    Some(Observed { claim: (**claim).clone(), nodes })
}

/// Puts the finalizer on the NodeClaim, and the label that names its NodeClass, which claims of old versions lack.
async fn hold<P: CloudProvider>(
    operator: &Operator<P>,
    claim: NodeClaim,
) -> Result<NodeClaim, WriteError> {
    let finalizers = claim.metadata.finalizers.iter().flatten();
    let held = finalizers.into_iter().any(|finalizer| finalizer == labels::TERMINATION_FINALIZER);
    let (key, value) = claim.spec.node_class_ref.label();
    let labelled = claim.metadata.labels.as_ref().is_some_and(|labels| labels.contains_key(&key));
    if held && labelled {
        return Ok(claim);
    }
    let mut finalizers = claim.metadata.finalizers.clone().unwrap_or_default();
    if !held {
        finalizers.push(labels::TERMINATION_FINALIZER.to_owned());
    }
    let body = json!({"metadata": {"finalizers": finalizers, "labels": {key: value}}});
    operator.write.patch_claim(&claim, body, true).await
}

/// Says that all pods of a NodeClaim will be gone by then.
fn expiring(claim: &NodeClaim, by: jiff::Timestamp) -> Event {
    let message = format!("All pods will be deleted by {by}");
    Event::warning(claim, Reason::TerminationGracePeriodExpiring, message)
}

/// Time that a launch may take, from the NodeClaim's creation.
const LAUNCH_TIMEOUT: SignedDuration = SignedDuration::from_mins(5);
/// Time that a machine may take to join, from the NodeClaim's creation.
const REGISTRATION_TIMEOUT: SignedDuration = SignedDuration::from_mins(15);
