//! Nodes that wait until their pods are nominated, for whoever opens them; [`crate::nomination`]
//! does the work.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tenon_crds::NodeClaim;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::time::timeout;

use crate::state::State;
use crate::state::change::{Change, ObjectKey};
use crate::state::cluster::{Cluster, name};
use crate::watch::wire::Node;
use crate::work_queue::WorkQueue;
use crate::write::WriteError;

/// A Node is held back no longer than this, whatever happens.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// Nodes that want to open, and whether pods are nominated at all.
#[derive(Debug, Default)]
pub(crate) struct Nominations {
    pub(crate) on: AtomicBool,
    pub(crate) requests: Mutex<Vec<Request>>,
    pub(crate) wake: Notify,
    /// Nodes whose pods are nominated although they don't take pods yet.
    pub(crate) opening: Mutex<BTreeSet<String>>,
    /// Pods whose nominations are looked after.
    pub(crate) pods: WorkQueue<ObjectKey>,
}

/// A Node that could open.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) claim: String,
    pub(crate) node: String,
    pub(crate) go: oneshot::Sender<Turn>,
}

/// A Node may open now. To be dropped when it has.
#[derive(Debug)]
pub(crate) struct Turn(
    #[expect(dead_code, reason = "what is counted is that it is there")] pub(crate) mpsc::Sender<()>,
);

impl Nominations {
    /// Whether pods are nominated, as far as the options, the cluster's version and the operator's
    /// permissions go.
    pub(crate) fn are_on(&self) -> bool {
        self.on.load(Ordering::Relaxed)
    }

    /// Whether the Node of a NodeClaim is to be held back until its pods are nominated.
    ///
    /// Not where something else than its readiness opens it: a device plugin, say, is a pod that
    /// has to run there first.
    pub(crate) fn hold(&self, state: &State, claim: &NodeClaim) -> bool {
        const BASIC: [&str; 4] = ["cpu", "memory", "ephemeral-storage", "pods"];
        let requests = &claim.spec.resources.requests;
        self.on.load(Ordering::Relaxed)
            && claim.spec.startup_taints.is_empty()
            && requests.keys().all(|resource| BASIC.contains(&resource.as_str()))
            && expects_pods(&state.read(), &name(&claim.metadata))
    }

    /// Waits until the pods that were planned onto a NodeClaim are nominated to its Node, which
    /// nothing but [`NOT_NOMINATED_TAINT`](tenon_crds::labels::NOT_NOMINATED_TAINT) keeps closed.
    pub(crate) async fn turn(&self, state: &State, claim: &NodeClaim, node: &Node) -> Option<Turn> {
        let claim = name(&claim.metadata);
        if !self.on.load(Ordering::Relaxed) || !expects_pods(&state.read(), &claim) {
            return None;
        }
        let (go, turn) = oneshot::channel();
        self.requests.lock().push(Request { claim, node: node.name().to_owned(), go });
        self.wake.notify_one();
        timeout(PATIENCE, turn).await.ok()?.ok()
    }

    /// Whether a nomination failed because the operator may not write any: then it does without
    /// from now on, and says so once.
    pub(crate) async fn are_forbidden(&self, state: &State, error: &WriteError) -> bool {
        let forbidden =
            error.code() == Some(403) && error.message().contains("cannot patch resource");
        if forbidden && self.on.swap(false, Ordering::Relaxed) {
            state.apply(Change::Nominating(false)).await;
            tracing::error!(
                error = error.message(),
                "pods are not nominated to their planned nodes: grant the operator's ClusterRole \
                 the verb patch on pods/status, or set settings.nominatePods to false"
            );
        }
        forbidden
    }

    /// As if the cluster were known to take nominations.
    #[cfg(test)]
    pub(crate) fn switch_on(&self) {
        self.on.store(true, Ordering::Relaxed);
    }

    /// Whether nominations to a Node are to be written although it takes no pods yet.
    pub(crate) fn is_opening(&self, node: &str) -> bool {
        self.opening.lock().contains(node)
    }
}

/// Whether nothing is to be nominated at the moment.
///
/// While kube-scheduler has a backlog a pod that was tried comes after all of it, the room that is
/// kept for the pod lies idle so long, and each attempt takes several times as long, as
/// kube-scheduler filters Nodes twice that pods are nominated to. And where all pods are alike it
/// would change nothing.
pub(crate) fn stands_back(state: &Cluster) -> bool {
    state.is_backlogged() || state.are_planned_pods_alike()
}

/// Whether pods were planned onto a NodeClaim that kube-scheduler has still to place, and they are
/// to be nominated.
pub(crate) fn expects_pods(state: &Cluster, claim: &str) -> bool {
    !stands_back(state) && state.planned_onto(claim).any(|(_, pod)| !pod.other_scheduler)
}
