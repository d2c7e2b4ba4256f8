//! Nominations become and stay what was planned: one that is missing or got lost is written, one
//! that no longer holds is taken back.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::{is_about_to_open, is_open, stands_back};
use crate::cloud_provider::CloudProvider;
use crate::controller::{Affected, Controller, Reconciler};
use crate::operator::Operator;
use crate::state::State;
use crate::state::change::{Change, ObjectKey, Touched};
use crate::state::cluster::Cluster;
use crate::state::pod::Pod;
use crate::state::resources;
use crate::watch::wire::Node;
use crate::work_queue::{Action, Backoff, WorkQueue};
use crate::write::WriteError;

/// How many nominations are written at once.
const WORKERS: usize = 32;

/// How often a nomination to the same Node is written. kube-scheduler takes it away with every
/// attempt that fails, and something that the plan did not know of may be in the pod's way.
const ATTEMPTS: u8 = 8;

/// How often all pods are looked through for nominations that hold no more.
const SWEEP: Duration = Duration::from_secs(10);

/// By pod.
type History = Mutex<BTreeMap<ObjectKey, Written>>;

/// What was written of a pod.
#[derive(Debug, Default)]
struct Written {
    uid: Arc<str>,
    /// The Node that it was nominated to last.
    node: Box<str>,
    /// How often it was nominated to this one.
    attempts: u8,
    /// The resource version that the pod got by that: before the watch has shown it, nothing is
    /// known of what became of it.
    version: u64,
}

/// What looks after nominations.
pub(super) fn controller<P: CloudProvider>(
    operator: &Arc<Operator<P>>,
) -> Controller<NominationReconciler<P>> {
    let queue = operator.nominations.pods.clone();
    let reconciler =
        NominationReconciler { operator: Arc::clone(operator), history: History::default() };
    Controller::fed_by(reconciler, queue)
}

/// Looks after nominations.
pub(crate) struct NominationReconciler<P> {
    operator: Arc<Operator<P>>,
    history: History,
}

impl<P: CloudProvider> Reconciler for NominationReconciler<P> {
    const NAME: &'static str = "pod.nomination";
    const BACKOFF: Backoff =
        Backoff { min: Duration::from_millis(250), max: Duration::from_secs(10) };
    type Key = ObjectKey;
    type Error = WriteError;

    fn workers(&self) -> usize {
        WORKERS
    }

    fn affected(&self, touched: &Touched, state: &State) -> Affected<ObjectKey> {
        match touched {
            Touched::Pod(key, event) => {
                let state = state.read();
                let is_concerned = state.is_planned(key) || is_ours(&state, key);
                let mut keys: Vec<ObjectKey> =
                    is_concerned.then(|| key.clone()).into_iter().collect();
                // It may have taken somebody else's room.
                if let (Some(_), Some(node)) = (event.bound, &event.node) {
                    keys.extend(planned_onto(&state, node));
                }
                Affected::Many(keys)
            }
            Touched::Node(node) => planned_onto(&state.read(), node).collect(),
            _ => Affected::None,
        }
    }

    async fn reconcile(&self, key: &ObjectKey) -> Result<Action, WriteError> {
        reconcile(&self.operator, &self.history, key).await
    }

    async fn beside(&self, queue: &WorkQueue<ObjectKey>) {
        loop {
            tokio::time::sleep(SWEEP).await;
            let state = self.operator.state.read();
            self.history.lock().retain(|key, written| {
                state.pod(key).is_some_and(|pod| pod.uid == written.uid && pod.node.is_none())
            });
            for (key, _) in
                state.pods().filter(|(_, pod)| pod.nominated.as_ref().is_some_and(|it| it.ours))
            {
                queue.add(key.clone());
            }
        }
    }
}

/// The pods that were planned onto a Node.
fn planned_onto(state: &Cluster, node: &str) -> impl Iterator<Item = ObjectKey> {
    let claim = state.node(node).and_then(|it| state.claim_of(it));
    let claim = claim.and_then(|claim| claim.metadata.name.as_deref());
    state.planned_onto(claim.unwrap_or(node)).map(|(key, _)| key.clone())
}

fn is_ours(state: &Cluster, key: &ObjectKey) -> bool {
    state.pod(key).and_then(|pod| pod.nominated.as_ref()).is_some_and(|it| it.ours)
}

/// What is to be written.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    /// It is as it should be, or somebody else's.
    Nothing,
    /// This Node.
    Node(String),
    /// None.
    Back,
    /// Others have taken the room that it was planned for: it has to be planned for again.
    Anew,
}

async fn reconcile<P: CloudProvider>(
    operator: &Operator<P>,
    history: &History,
    key: &ObjectKey,
) -> Result<Action, WriteError> {
    let (uid, version, from, wanted) = {
        let state = operator.state.read();
        let Some(pod) = state.pod(key) else { return Ok(Action::Wait) };
        let opening = |node: &str| operator.nominations.is_opening(node);
        let from = pod.nominated.as_ref().map(|it| it.node.clone());
        (Arc::clone(&pod.uid), pod.version, from, wanted(&state, key, opening, operator.now()))
    };
    let node = match &wanted {
        Wanted::Nothing => return Ok(Action::Wait),
        Wanted::Anew => {
            // It comes again at once, and its nomination is taken back.
            operator.state.apply(Change::Unplanned(key.clone())).await;
            return Ok(Action::Wait);
        }
        Wanted::Back => None,
        Wanted::Node(node) => Some(node.as_str()),
    };
    {
        let mut history = history.lock();
        let written = history.entry(key.clone()).or_default();
        if written.uid != uid {
            *written = Written { uid: Arc::clone(&uid), ..Written::default() };
        }
        if version < written.version {
            // The watch brings it again.
            return Ok(Action::Wait);
        }
        if let Some(node) = node {
            if *written.node != *node {
                (written.node, written.attempts) = (node.into(), 0);
            }
            if written.attempts >= ATTEMPTS {
                return Ok(Action::Wait);
            }
            written.attempts += 1;
        }
    }
    match operator.write.nominate(key, &uid, from.as_deref(), node).await {
        Ok(version) => {
            if let Some(written) = history.lock().get_mut(key) {
                written.version = version;
            }
            Ok(Action::Wait)
        }
        Err(error) if operator.nominations.are_forbidden(&operator.state, &error).await => {
            Ok(Action::Wait)
        }
        // Somebody else was faster, or it is bound or gone.
        Err(error) if matches!(error.code(), Some(403 | 404 | 409 | 422)) => Ok(Action::Wait),
        Err(error) => Err(error),
    }
}

/// What a pod's nomination should become.
pub(super) fn wanted(
    state: &Cluster,
    key: &ObjectKey,
    opening: impl Fn(&str) -> bool,
    now: jiff::Timestamp,
) -> Wanted {
    let Some(pod) = state.pod(key).filter(|pod| pod.node.is_none() && !pod.is_terminating()) else {
        return Wanted::Nothing;
    };
    let nominated = pod.nominated.as_ref();
    if nominated.is_some_and(|it| !it.ours) {
        return Wanted::Nothing;
    }
    let nominated = nominated.map(|it| &*it.node);
    let nothing = if nominated.is_some() { Wanted::Back } else { Wanted::Nothing };
    let Some(machine) = state.expected_on(key, now) else { return nothing };
    let claim = state.claim(machine);
    let node = match claim {
        Some(claim) => state.node_of(claim),
        None => state.node(machine),
    };
    let Some(node) = node else { return nothing };
    let takes_pods = match claim {
        Some(claim) => {
            opening(node.name()) || is_open(claim, node) || is_about_to_open(claim, node)
        }
        None => node.is_ready(),
    };
    if takes_pods && !has_room(state, machine, node, (key, pod)) {
        return Wanted::Anew;
    }
    if nominated == Some(node.name()) {
        return Wanted::Nothing;
    }
    if takes_pods && !stands_back(state) { Wanted::Node(node.name().to_owned()) } else { nothing }
}

/// Whether a Node has room for a pod, beside those that are bound to it and others that are
/// nominated to it.
fn has_room(state: &Cluster, machine: &str, node: &Node, (key, pod): (&ObjectKey, &Pod)) -> bool {
    let allocatable = resources::from_list(&node.status.allocatable);
    if allocatable.is_zero() {
        // Its kubelet has not told yet.
        return true;
    }
    let mut used = state.usage(node.name()).map(|usage| usage.requests.clone()).unwrap_or_default();
    for (other, nominated) in state.planned_onto(machine) {
        let is_here = nominated.nominated.as_ref().is_some_and(|it| *it.node == *node.name());
        if other != key && is_here {
            used.add(&nominated.shape.requests);
        }
    }
    used.add(&pod.shape.requests);
    used.fits(&allocatable)
}
