//! The conditions Drifted and Consolidatable, and the pod events that the latter follows from: what
//! a NodeClaim has to say before anybody may disrupt its node.

mod consolidation;
mod drift;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::Mutex;
use tenon_crds::conditions::nodeclaim::DRIFTED;
use tenon_crds::{NodeClaim, NodePool};

use super::names;
use super::pod_events::{self, PodEvents};
use crate::claims::{conditions, pool_of};
use crate::cloud_provider::{CloudError, CloudProvider};
use crate::controller::{Affected, Reconciler};
use crate::operator::Operator;
use crate::state::State;
use crate::state::change::Touched;
use crate::state::cluster::{Cluster, name};
use crate::work_queue::{Action, Concern, Failure};
use crate::write::WriteError;

/// What the provider thinks of a machine is asked so often.
const POLL: Duration = Duration::from_mins(5);

/// Why a NodeClaim's conditions are not what they should be; it is tried again.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
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

/// Reconciles the conditions of NodeClaims. It has to be run again for all when a NodeClass or the
/// catalog may have changed, from which machines may have drifted.
pub(crate) struct Disruption<P> {
    operator: Arc<Operator<P>>,
    checked: Checked,
    pod_events: PodEvents,
}

impl<P> Disruption<P> {
    /// Nothing was checked yet.
    pub(crate) fn new(operator: Arc<Operator<P>>) -> Self {
        Self { operator, checked: Checked::default(), pod_events: PodEvents::default() }
    }
}

impl<P: CloudProvider> Reconciler for Disruption<P> {
    const NAME: &'static str = "nodeclaim.disruption";
    type Key = String;
    type Error = Error;

    fn workers(&self) -> usize {
        self.operator.options.workers(10, 1000)
    }

    fn affected(&self, touched: &Touched, state: &State) -> Affected<String> {
        match touched {
            Touched::NodeClaim(name) => Affected::One(name.clone()),
            Touched::NodePool(pool) => {
                let state = state.read();
                let claims = state.claims().filter(|claim| pool_of(claim) == pool);
                claims.map(|claim| name(&claim.metadata)).collect()
            }
            Touched::Pod(_, event) if event.moved => {
                let claim = event.node.as_deref().and_then(|node| claim_on(&state.read(), node));
                let is_news =
                    |claim: &String| self.pod_events.note(claim.clone(), self.operator.now());
                claim.filter(is_news).into()
            }
            _ => Affected::None,
        }
    }

    fn all(&self, state: &Cluster) -> Vec<String> {
        names(state)
    }

    async fn reconcile(&self, name: &String) -> Result<Action, Error> {
        reconcile(&self.operator, &self.checked, &self.pod_events, name).await
    }
}

/// NodeClaims whose instance type was found in the catalog, and when: that question is asked
/// rarely, because catalogs change rarely.
#[derive(Debug, Default)]
struct Checked(Mutex<BTreeMap<String, Timestamp>>);

async fn reconcile<P: CloudProvider>(
    operator: &Operator<P>,
    checked: &Checked,
    pod_events: &PodEvents,
    name: &str,
) -> Result<Action, Error> {
    // Dereference.
    let Some((claim, pool)) = observe(operator, name) else {
        pod_events.forget(name);
        operator.settling.note(name, None);
        return Ok(Action::Wait);
    };

    // Validate and build.
    let drifted = drifted(operator, checked, &claim, &pool).await;
    // The cloud may have taken its time, and others have written meanwhile.
    let Some((mut claim, pool)) = observe(operator, name) else { return Ok(Action::Wait) };
    let now = operator.now();
    // The conditions that every NodeClaim has are no reason for a write: its launch will tell of
    // them.
    conditions(&mut claim, now);
    let before = claim.status.clone();
    let mut set = conditions(&mut claim, now);
    match &drifted {
        // Nothing is known: what was said stands, and is no reason to hold back what is known about
        // consolidation.
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
    let latest = pod_events.latest(&claim);
    let consolidatable = consolidation::update(&mut claim, &pool, latest, now);
    let settled = match consolidatable {
        Action::After(left) => now.checked_add(left).ok(),
        Action::Wait => None,
    };
    if settled.is_some() {
        operator.settling.note(name, settled);
    }

    // Update the status.
    let can_wait = pod_events::can_wait(&claim, &pool, latest, now);
    let mut again = Action::After(POLL).min(consolidatable);
    if claim.status != before || can_wait == Some(Duration::ZERO) {
        claim.status.get_or_insert_default().last_pod_event_time = latest.map(Into::into);
        operator.write.patch_claim_status(&claim).await?;
    } else if let Some(left) = can_wait {
        again = again.min(Action::After(left));
    }
    // Only now: a NodeClaim that may be consolidated but doesn't say so yet is worth waiting for.
    if settled.is_none() {
        operator.settling.note(name, None);
    }
    drifted?;
    Ok(again)
}

/// The NodeClaim whose machine a Node is.
fn claim_on(state: &Cluster, node: &str) -> Option<String> {
    let claim = state.claim_of(state.node(node)?)?;
    Some(name(&claim.metadata))
}

/// Says of a NodeClaim that is being initialised that it may be consolidated, where pods need not
/// come to rest for that: with the same write.
pub(super) fn confirm<P: CloudProvider>(operator: &Operator<P>, claim: &mut NodeClaim) {
    let pool = operator.state.read().pool(pool_of(claim)).cloned();
    if let Some(pool) = pool {
        // As if one had just come: where that counts it is looked at afterwards.
        let now = operator.now();
        consolidation::update(claim, &pool, Some(now), now);
    }
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

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::controller::Controller;
    use crate::state::change::{Change, Object};
    use crate::testing::ApiServer;
    use crate::testing::idle::{self, Idle, machine, pool};

    const CLAIM: &str = "/apis/karpenter.sh/v1/nodeclaims/a";

    /// A machine that was initialised an hour ago, with these of its NodeClaim's conditions, in a
    /// NodePool that waits 30 seconds for its pods to come to rest.
    async fn operator(conditions: &[&str]) -> (Arc<Operator<Idle>>, ApiServer) {
        let quiet = json!({"disruption": {"consolidateAfter": "30s"}});
        let [mut claim, node] = machine("a", "default");
        let list = claim["status"]["conditions"].as_array_mut().unwrap();
        list.retain(|it| conditions.iter().any(|type_| it["type"] == *type_));
        for condition in list {
            condition["observedGeneration"] = json!(0);
        }
        idle::operator(vec![pool("default", quiet), claim, node]).await
    }

    fn condition(api: &ApiServer, type_: &str) -> Option<Value> {
        let claim = api.at(CLAIM).unwrap();
        let list = claim["status"]["conditions"].as_array().unwrap();
        list.iter().find(|it| it["type"] == type_).cloned()
    }

    fn last_pod_event(api: &ApiServer) -> Option<String> {
        api.at(CLAIM).unwrap()["status"]["lastPodEventTime"].as_str().map(str::to_owned)
    }

    #[tokio::test(start_paused = true)]
    async fn a_nodeclaim_that_is_not_launched_yet_is_not_written_to() {
        let (operator, api) = operator(&[]).await;
        reconcile(&operator, &Checked::default(), &PodEvents::default(), "a").await.unwrap();
        assert_eq!(api.take_requests(), Vec::<String>::new());
    }

    #[tokio::test(start_paused = true)]
    async fn a_pod_event_and_what_follows_from_it_are_written_together() {
        let all = ["Launched", "Registered", "Initialized", "Consolidatable"];
        let (operator, api) = operator(&all).await;
        let (checked, events) = (Checked::default(), PodEvents::default());
        let pass = || reconcile(&operator, &checked, &events, "a");
        pass().await.unwrap();
        assert_eq!(condition(&api, "Ready"), None, "nothing has been written");

        events.note("a".to_owned(), operator.now());
        assert_eq!(pass().await.unwrap(), Action::After(Duration::from_secs(30)));
        let settles_within = |seconds| {
            let (settling, now) = (&operator.settling, operator.now());
            settling.settles_until(now, now + jiff::SignedDuration::from_secs(seconds)).is_some()
        };
        assert_eq!([29, 30].map(settles_within), [false, true]);
        assert_eq!(condition(&api, "Consolidatable"), None);
        assert_eq!(last_pod_event(&api).as_deref(), Some("2026-11-20T12:00:00Z"));

        // The next one is too close to it to be written, but it counts.
        tokio::time::advance(Duration::from_secs(8)).await;
        events.note("a".to_owned(), operator.now());
        pass().await.unwrap();
        tokio::time::advance(Duration::from_secs(29)).await;
        pass().await.unwrap();
        assert_eq!(condition(&api, "Consolidatable"), None);
        assert_eq!(api.take_requests().len(), 1);

        tokio::time::advance(Duration::from_secs(1)).await;
        pass().await.unwrap();
        assert_eq!(condition(&api, "Consolidatable").unwrap()["status"], "True");
        assert!(!settles_within(60));
        assert_eq!(last_pod_event(&api).as_deref(), Some("2026-11-20T12:00:08Z"));
        assert_eq!(api.take_requests().len(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn pods_that_come_and_go_are_heard_of() {
        let all = ["Launched", "Registered", "Initialized", "Consolidatable"];
        let (operator, api) = operator(&all).await;
        let controller = Controller::new(Disruption::new(Arc::clone(&operator)));
        let running = crate::testing::spawn(operator.run(controller, CancellationToken::new()));
        tokio::time::sleep(Duration::from_secs(1)).await;
        let pod = json!({
            "metadata": {"namespace": "default", "name": "x", "uid": "x"},
            "spec": {"nodeName": "a"},
        });
        let pod = serde_json::from_value(pod).unwrap();
        operator.state.apply(Change::Applied(Object::Pod(Box::new(pod)))).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(last_pod_event(&api).as_deref(), Some("2026-11-20T12:00:01Z"));
        assert_eq!(condition(&api, "Consolidatable"), None);
        tokio::time::sleep(Duration::from_mins(1)).await;
        assert!(condition(&api, "Consolidatable").is_some());
        assert_eq!(api.take_requests().len(), 2);
        running.abort();
    }
}
