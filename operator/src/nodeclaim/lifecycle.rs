//! The life of a NodeClaim: launch, registration, initialisation, and the time limits of the first
//! two; then its end.
//!
//! Each phase decides in a pure function from the NodeClaim and its Nodes, and tells by the
//! NodeClaim's conditions what it waits for. The finalizer comes first of all: no machine is
//! launched for a NodeClaim that could vanish without a trace.

mod finalization;
mod hooks;
mod initialization;
mod launching;
mod liveness;
mod registration;
mod reticence;

use std::sync::Arc;

use jiff::SignedDuration;
use serde_json::json;
use tenon_crds::conditions::nodeclaim::REGISTERED;
use tenon_crds::{NodeClaim, labels};

use self::launching::Launches;
use self::reticence::Reticence;
use super::{consistency, disruption, names};
use crate::actuate::claims::give_up;
use crate::cloud_provider::{CloudError, CloudProvider};
use crate::confirm::ReadError;
use crate::controller::{Affected, Reconciler};
use crate::decisions::Cause;
use crate::events::{Event, Reason};
use crate::nodepool::registration::Health;
use crate::operator::Operator;
use crate::state::State;
use crate::state::change::Touched;
use crate::state::cluster::{Cluster, is_true, name};
use crate::watch::wire::Node;
use crate::work_queue::{Action, Concern, Failure};
use crate::write::{Precondition, WriteError};

/// A step of a NodeClaim's life that failed; it is tried again.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("launching the instance of nodeclaim {claim}")]
    Launch { claim: String, source: CloudError },
    #[error("registering the node of nodeclaim {claim}: hook {hook} failed")]
    Hook { claim: String, hook: &'static str, source: CloudError },
    #[error("terminating the instance of nodeclaim {claim}")]
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
            Self::Hook { .. } => "registration_hook",
            Self::Terminate { .. } => "terminate",
            Self::Read(error) => error.category(),
            Self::Write(error) => error.category(),
        }
    }

    fn is_conflict(&self) -> bool {
        matches!(self, Self::Write(error) if error.is_conflict())
    }

    fn concern(&self) -> Concern {
        match self {
            Self::Launch { source, .. }
            | Self::Hook { source, .. }
            | Self::Terminate { source, .. } => source.concern(),
            Self::Read(error) => error.concern(),
            Self::Write(error) => error.concern(),
        }
    }
}

/// What is known of NodeClaims and is not in their status yet.
#[derive(Debug, Default)]
struct Unwritten {
    launches: Launches,
    reasons: Reticence,
}

/// Reconciles NodeClaims.
pub(crate) struct Lifecycle<P> {
    operator: Arc<Operator<P>>,
    /// Told which machines register.
    health: Arc<Health>,
    unwritten: Unwritten,
}

impl<P> Lifecycle<P> {
    /// Everything that is known of NodeClaims is in their status.
    pub(crate) fn new(operator: Arc<Operator<P>>, health: Arc<Health>) -> Self {
        Self { operator, health, unwritten: Unwritten::default() }
    }
}

impl<P: CloudProvider> Reconciler for Lifecycle<P> {
    const NAME: &'static str = "nodeclaim.lifecycle";
    type Key = String;
    type Error = Error;

    fn workers(&self) -> usize {
        self.operator.options.workers(1000, 5000)
    }

    fn affected(&self, touched: &Touched, state: &State) -> Affected<String> {
        match touched {
            Touched::NodeClaim(name) => Affected::One(name.clone()),
            Touched::Node(node) => {
                let state = state.read();
                let id = state.node(node).and_then(|node| node.provider_id());
                let claims = id.into_iter().flat_map(|id| state.claims_of(id));
                claims.map(|claim| name(&claim.metadata)).collect()
            }
            _ => Affected::None,
        }
    }

    fn all(&self, state: &Cluster) -> Vec<String> {
        names(state)
    }

    async fn reconcile(&self, name: &String) -> Result<Action, Error> {
        reconcile(&self.operator, &self.unwritten, &self.health, name).await
    }
}

async fn reconcile<P: CloudProvider>(
    operator: &Operator<P>,
    unwritten: &Unwritten,
    health: &Health,
    name: &str,
) -> Result<Action, Error> {
    let Unwritten { launches, reasons } = unwritten;
    // Dereference.
    let Some(Observed { claim, nodes }) = observe(operator, name) else {
        reasons.forget(name);
        return Ok(Action::Wait);
    };
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
    let launched = launching::ensure(operator, launches, &mut claim).await?;
    if let launching::Outcome::GivenUp = launched {
        return Ok(Action::Wait);
    }
    let registered = registration::register(operator, &mut claim, &nodes).await?;
    let initialized =
        initialization::initialize(operator, &mut claim, registered.node.as_ref()).await?;
    if let (true, Some(node)) = (initialized.new, &registered.node) {
        consistency::confirm(&mut claim, node, now);
        disruption::confirm(operator, &mut claim);
    }
    let liveness = liveness::check(&claim, now);

    // Update the status.
    let mut unsaid = Action::Wait;
    let can_wait = reasons.can_wait(name, before.as_ref(), claim.status.as_ref(), now);
    if let Some(left) = can_wait {
        unsaid = Action::After(left);
    } else if claim.status != before {
        claim = operator.write.patch_claim_status(&claim).await?;
    }
    // What has come to be true is told once, by whoever wrote it down.
    if let launching::Outcome::Launched(launched) = &launched {
        launching::tell(operator, &claim, launched);
    }
    registered.tell(operator, &claim);
    if let (true, Some(node)) = (initialized.new, &registered.node) {
        initialization::tell(operator, &claim, node);
    }
    if !was_registered && is_true(&claim, REGISTERED) {
        health.record(operator, &claim, true).await?;
    }
    if let liveness::Liveness::TimedOut(reason) = liveness {
        health.record(operator, &claim, false).await?;
        let why = match reason {
            liveness::LAUNCH_TIMEOUT => "the instance was not launched in time",
            _ => "the node did not join in time",
        };
        give_up(operator, &claim, reason, Cause::NotLaunched(why)).await?;
        return Ok(Action::Wait);
    }
    if let launching::Outcome::Failed(source) = launched {
        return Err(Error::Launch { claim: name.to_owned(), source });
    }
    let held = initialized.held_until.map_or(Action::Wait, |until| {
        let left = until.duration_since(operator.now()).try_into().unwrap_or_default();
        Action::After(left)
    });
    let again = registered.action();
    if let Some((hook, source)) = registered.failed {
        return Err(Error::Hook { claim: name.to_owned(), hook, source });
    }
    Ok(liveness.action().min(again).min(held).min(unsaid))
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

/// Puts the finalizer on the NodeClaim, and the label that names its NodeClass, which claims of old
/// versions lack.
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
    operator.write.patch_claim(&claim, body, Precondition::Unchanged).await
}

/// Says that all pods of a NodeClaim will be gone by then.
fn expiring(claim: &NodeClaim, by: jiff::Timestamp) -> Event {
    let message = format!("All pods will be deleted by {by}");
    Event::warning(claim, Reason::TerminationGracePeriodExpiring, message)
}

/// Time that a launch may take, from the NodeClaim's creation.
const LAUNCHING: SignedDuration = SignedDuration::from_mins(5);
/// Time that a machine may take to join, from the NodeClaim's creation.
const REGISTERING: SignedDuration = SignedDuration::from_mins(15);

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    use tenon_crds::labels::LabelRules;
    use tenon_state::node_class;

    use super::*;
    use crate::state::change::{Change, Object};
    use crate::testing::idle;
    use crate::testing::joined::{CLAIM, NODE, joined};
    use crate::testing::{self, ApiServer, Logs, refused};

    #[tokio::test(start_paused = true)]
    async fn what_came_to_be_true_is_told_once_and_only_when_it_is_written_down() {
        let at = "1970-01-01T00:00:00Z";
        let labels =
            json!({"karpenter.sh/nodepool": "default", "karpenter.kwok.sh/kwoknodeclass": "small"});
        let claim = json!({
            "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
            "metadata": {"name": "a", "uid": "1", "resourceVersion": "1", "creationTimestamp": at, "labels": labels,
                "finalizers": ["karpenter.sh/termination"]},
            "spec": {"nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "small"}, "requirements": []},
            "status": {"providerID": "kwok://a", "conditions": [
                {"type": "Launched", "status": "True", "reason": "Launched", "message": "", "lastTransitionTime": at}]},
        });
        let node = json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {"name": "n", "uid": "2", "resourceVersion": "1", "creationTimestamp": at, "labels": {}},
            "spec": {"providerID": "kwok://a", "taints": [{"key": "karpenter.sh/unregistered", "effect": "NoExecute"}]},
            "status": {"conditions": [{"type": "Ready", "status": "True"}]},
        });
        let mut cluster = Cluster::new(&[node_class::KWOK], LabelRules::core());
        let read = |value| serde_json::from_value(value).unwrap();
        cluster.apply(Change::Applied(Object::NodeClaim(Box::new(read(claim.clone())))));
        let seen: Node = serde_json::from_value(node.clone()).unwrap();
        cluster.apply(Change::Applied(Object::Node(Box::new(seen))));
        let is_first = AtomicBool::new(true);
        let server = ApiServer::unless(move |request| {
            // It was changed in between, once.
            let conflicts =
                request.path.ends_with("/a/status") && is_first.swap(false, Ordering::Relaxed);
            conflicts.then(|| refused(409, "Conflict"))
        });
        server.put_at("/apis/karpenter.sh/v1/nodeclaims/a", claim);
        server.put_at("/api/v1/nodes/n", node);
        let (operator, _publisher) = testing::operator(&server, cluster);
        let (unwritten, health) = (Unwritten::default(), Health::default());
        let (logs, _collecting) = Logs::collect();

        let first = reconcile(&operator, &unwritten, &health, "a").await;
        assert!(first.unwrap_err().is_conflict());
        assert_eq!(logs.with("ed nodeclaim"), Vec::<String>::new());
        assert_eq!(operator.context.metrics.nodes_created.get(["default", ""]), 0);

        for _ in 0..2 {
            reconcile(&operator, &unwritten, &health, "a").await.unwrap();
        }
        assert_eq!(logs.with("registered nodeclaim").len(), 1);
        assert_eq!(logs.with("initialized nodeclaim").len(), 1);
        assert_eq!(operator.context.metrics.nodes_created.get(["default", ""]), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn what_follows_from_the_initialisation_is_in_the_same_write() {
        for (consolidate_after, expected) in [("0s", Some("True")), ("30s", None)] {
            let (server, mut cluster) = joined(&[], true);
            let disruption = json!({"disruption": {"consolidateAfter": consolidate_after}});
            let pool = serde_json::from_value(idle::pool("default", disruption)).unwrap();
            cluster.apply(Change::Applied(Object::NodePool(Box::new(pool))));
            let (operator, _publisher) = testing::operator(&server, cluster);
            let (unwritten, health) = (Unwritten::default(), Health::default());
            reconcile(&operator, &unwritten, &health, "a").await.unwrap();
            let conditions = server.at(CLAIM).unwrap()["status"]["conditions"].clone();
            let status = |type_: &str| {
                let mut all = conditions.as_array().unwrap().iter();
                all.find(|it| it["type"] == type_).and_then(|it| it["status"].as_str())
            };
            assert_eq!(status("Initialized"), Some("True"));
            assert_eq!(status("ConsistentStateFound"), Some("True"));
            assert_eq!(status("Consolidatable"), expected, "{consolidate_after}");
            let writes = server.take_requests();
            let to_claim = writes.iter().filter(|it| it.starts_with(&format!("PATCH {CLAIM}")));
            assert_eq!(to_claim.count(), 1, "{writes:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_node_that_is_held_back_for_its_pods_opens_when_it_is_ready_or_after_a_minute() {
        for becomes_ready in [true, false] {
            let (server, mut cluster) = joined(&[], false);
            let pod = json!({
                "metadata": {"namespace": "default", "name": "x", "uid": "x"},
                "status": {"phase": "Pending", "conditions": [
                    {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]},
            });
            let seen = serde_json::from_value(pod).unwrap();
            cluster.apply(Change::Applied(Object::Pod(Box::new(seen))));
            let pod = crate::state::change::ObjectKey::new("default", "x");
            let plan = [(pod, "a".to_owned())].into();
            cluster.apply(Change::Planned(plan, jiff::Timestamp::UNIX_EPOCH));
            let (operator, _publisher) = testing::operator(&server, cluster);
            operator.nominations.switch_on();
            let (unwritten, health) = (Unwritten::default(), Health::default());
            let taints = || server.at(NODE).unwrap()["spec"]["taints"].clone();

            let again = reconcile(&operator, &unwritten, &health, "a").await.unwrap();
            let held = json!([{"key": "tenon.sh/not-nominated", "effect": "NoSchedule"}]);
            assert_eq!(taints(), held);
            assert!(matches!(again, Action::After(left) if left <= Duration::from_mins(1)));
            if becomes_ready {
                let mut ready = server.at(NODE).unwrap();
                ready["status"]["conditions"][0]["status"] = json!("True");
                ready["metadata"].as_object_mut().unwrap().remove("resourceVersion");
                let seen: Node = serde_json::from_value(server.put_at(NODE, ready)).unwrap();
                operator.state.apply(Change::Applied(Object::Node(Box::new(seen)))).await;
            } else {
                tokio::time::advance(Duration::from_secs(61)).await;
            }
            reconcile(&operator, &unwritten, &health, "a").await.unwrap();
            assert_eq!(taints(), json!([]));
            let label = &server.at(NODE).unwrap()["metadata"]["labels"]["karpenter.sh/initialized"];
            assert_eq!(label.as_str(), becomes_ready.then_some("true"));
        }
    }
}
