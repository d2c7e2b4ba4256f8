//! The conditions Drifted and Consolidatable: what a NodeClaim has to say before anybody may disrupt its node.

mod consolidation;
mod drift;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::Mutex;
use tenon_crds::conditions::nodeclaim::DRIFTED;
use tenon_crds::{NodeClaim, NodePool};
use tokio_util::sync::CancellationToken;

use super::{conditions, pool_of};
use crate::cloud_provider::{CloudError, CloudProvider};
use crate::operator::Operator;
use crate::state::change::Touched;
use crate::state::cluster::name;
use crate::work::{Action, Backoff, Concern, Failure, WorkQueue, settle};
use crate::write::WriteError;

const BACKOFF: Backoff = Backoff { min: Duration::from_secs(1), max: Duration::from_mins(1) };

/// What the provider thinks of a machine is asked so often.
const POLL: Duration = Duration::from_mins(5);

#[derive(Debug, thiserror::Error)]
enum Error {
    #[error("checking cloud provider drift of nodeclaim {claim}")]
    Drift { claim: String, source: CloudError },
    #[error(transparent)]
    Write(#[from] WriteError),
}

impl Failure for Error {
    fn category(&self) -> &'static str {
        match self {
            Self::Drift { .. } => "drift",
            Self::Write(error) => error.category(),
        }
    }

    fn is_conflict(&self) -> bool {
        matches!(self, Self::Write(error) if error.is_conflict())
    }

    fn concern(&self) -> Concern {
        match self {
            Self::Drift { source, .. } => source.concern(),
            Self::Write(error) => error.concern(),
        }
    }
}

/// Reconciles the conditions until `stop`.
/// `wake` is told when a NodeClass or the catalog may have changed, from which machines may have drifted.
pub async fn run<P: CloudProvider>(
    operator: Arc<Operator<P>>,
    mut wake: tokio::sync::watch::Receiver<u64>,
    stop: CancellationToken,
) {
    let queue = WorkQueue::new();
    let sink = queue.clone();
    let state = operator.state.clone();
    operator.state.subscribe(move |touched| match touched {
        Touched::NodeClaim(name) => sink.add(name.clone()),
        Touched::NodePool(pool) => {
            for claim in state.read().claims().filter(|claim| pool_of(claim) == pool) {
                sink.add(name(&claim.metadata));
            }
        }
        _ => {}
    });
    let add_all = || {
        for claim in operator.state.read().claims() {
            queue.add(name(&claim.metadata));
        }
    };
    add_all();
    let woken = async {
        while wake.changed().await.is_ok() {
            add_all();
        }
        std::future::pending::<()>().await;
    };
    let checked = Arc::new(Checked::default());
    let workers = operator.options.workers(10, 1000);
    let work = queue.clone().run(workers, BACKOFF, stop, |name| {
        let operator = Arc::clone(&operator);
        let checked = Arc::clone(&checked);
        async move {
            let result = reconcile(&operator, &checked, &name).await;
            settle(&operator.context, "nodeclaim.disruption", &name, result)
        }
    });
    tokio::select! {
        () = work => {}
        () = woken => {}
    }
}

/// NodeClaims whose instance type was found in the catalog, and when: that question is asked rarely, because catalogs change rarely.
#[derive(Debug, Default)]
struct Checked(Mutex<BTreeMap<String, Timestamp>>);

async fn reconcile<P: CloudProvider>(
    operator: &Operator<P>,
    checked: &Checked,
    name: &str,
) -> Result<Action, Error> {
    // Dereference.
    let Some((mut claim, pool)) = observe(operator, name) else { return Ok(Action::Wait) };
    let before = claim.status.clone();

    // Validate and build.
    let drifted = drifted(operator, checked, &claim, &pool).await;
    let now = operator.now();
    let mut set = conditions(&mut claim, now);
    match &drifted {
        // Nothing is known: what was said stands, and is no reason to hold back what is known about consolidation.
        Err(_) => {}
        Ok(Some(reason)) => {
            let was = set.is_true(DRIFTED);
            set.set_true_because(DRIFTED, reason, reason);
            if !was {
                tracing::info!(nodeclaim = name, reason, "nodeclaim has drifted");
            }
        }
        Ok(None) => {
            set.clear(DRIFTED).expect("Drifted is independent");
        }
    }
    let consolidatable = consolidation::update(&mut claim, &pool, now);

    // Update the status.
    if claim.status != before {
        operator.write.patch_claim_status(&claim).await?;
    }
    drifted?;
    Ok(Action::After(POLL).min(consolidatable))
}

/// A NodeClaim that lives, of a NodePool that exists.
fn observe<P: CloudProvider>(
    operator: &Operator<P>,
    name: &str,
) -> Option<(NodeClaim, Arc<NodePool>)> {
    let state = operator.state.read();
    let claim = state.claim(name)?;
    let pool = state.pool(pool_of(claim))?;
    let lives = claim.metadata.deletion_timestamp.is_none();
    lives.then(|| ((**claim).clone(), Arc::clone(pool)))
}

/// Why the machine differs from what is asked for now: from the cheapest question to the dearest.
async fn drifted<P: CloudProvider>(
    operator: &Operator<P>,
    checked: &Checked,
    claim: &NodeClaim,
    pool: &NodePool,
) -> Result<Option<String>, Error> {
    if !drift::is_launched(claim) {
        return Ok(None);
    }
    if let Some(reason) = drift::by_pool(claim, pool, &operator.cloud.label_rules()) {
        return Ok(Some(reason.to_owned()));
    }
    let class = Operator::<P>::class(&claim.spec.node_class_ref);
    let now = operator.now();
    if drift::is_catalog_due(claim, &checked.0, now)
        && let Ok(catalog) = operator.cloud.catalog(&class)
    {
        if drift::by_catalog(claim, &catalog) {
            return Ok(Some("InstanceTypeNotFound".to_owned()));
        }
        checked.0.lock().insert(claim.metadata.uid.clone().unwrap_or_default(), now);
    }
    match operator.cloud.is_drifted(claim).await {
        Ok(reason) => Ok(reason),
        // It is on its way out, or was never there: others will say so.
        Err(CloudError::NotFound(_)) => Ok(None),
        Err(source) => Err(Error::Drift { claim: name(&claim.metadata), source }),
    }
}
