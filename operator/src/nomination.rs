//! Plans that come true: kube-scheduler is told which Node each waiting pod was planned for.
//!
//! kube-scheduler tries the Node in a pod's `status.nominatedNodeName` first and keeps that Node's
//! room from pods of equal or lower priority. It takes a nomination away, and looks at every
//! waiting pod again, whenever it tries the pod and the Node does not take it yet. So a nomination
//! holds only when kube-scheduler knows of it before the Node opens and does not try the pod in
//! between, and Nodes open best all at once: each that does makes it try all pods that wait.
//!
//! A Node that pods were planned for is therefore registered with a taint of our own
//! ([`labels::NOT_NOMINATED_TAINT`]), which goes when nothing else keeps pods away any more, its
//! pods are nominated and the watch has shown that ([`Nominations::turn`]), together with others
//! that become ready at the same moment. A nomination that got lost all the same is written again
//! at once, as long as the Node has room for the pod, and one that no longer holds is taken back.

mod reconciler;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use jiff::SignedDuration;
use k8s_openapi::api::core::v1::Taint;
use tenon_crds::conditions::nodeclaim as condition;
use tenon_crds::{NodeClaim, labels};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::cloud_provider::CloudProvider;
use crate::liveness;
use crate::nominations::{Nominations, Request, Turn, stands_back};
use crate::operator::Operator;
use crate::state::change::{Change, ObjectKey};
use crate::state::cluster::{Cluster, is_true};
use crate::state::snapshot::is_ephemeral;
use crate::tasks::isolated;
use crate::watch::wire::{self, Node};

/// The first minor version of Kubernetes 1 in which others than kube-scheduler may nominate Nodes
/// (feature gate NominatedNodeNameForExpectation).
const SINCE_MINOR: u32 = 35;

/// A Node that could open waits so long for others of its launch, at most.
const TOGETHER: Duration = Duration::from_secs(2);

/// Others whose Node is not older than this, or their NodeClaim while they have none, are waited
/// for: a machine that takes longer is nobody's neighbour.
const JOINING: SignedDuration = SignedDuration::from_secs(10);

/// So often a round looks whether the watch has shown the nominations: there may be ten thousand.
const LOOK: Duration = Duration::from_millis(50);

/// A round ends when the watch has shown no nomination for so long,
const STALLED: Duration = Duration::from_secs(2);

/// or after this time, nominated or not: on a control plane that is that busy pods wait for it
/// anyway, and nodes that they have no room on cost more.
const LONGEST: Duration = Duration::from_secs(12);

/// What kube-scheduler's watch may be behind the operator's.
const BEHIND: Duration = Duration::from_millis(20);

/// So long the Nodes of a round may take to open.
const OPEN: Duration = Duration::from_secs(2);

/// Nominates pods until `stop`, where the cluster knows that and the options ask for it.
pub(crate) async fn run<P: CloudProvider>(operator: Arc<Operator<P>>, stop: CancellationToken) {
    if !operator.options.nominate_pods {
        return stop.cancelled().await;
    }
    let Some(true) = stop.run_until_cancelled(is_known(&operator)).await else {
        return stop.cancelled().await;
    };
    operator.state.apply(Change::Nominating(true)).await;
    operator.nominations.on.store(true, Ordering::Relaxed);
    let writes = operator.run(reconciler::controller(&operator), stop.clone());
    let rounds = async {
        while stop.run_until_cancelled(requested(&operator.nominations)).await.is_some() {
            let round = isolated(liveness::turn(liveness::WORK, round(&operator)));
            if let Some(Err(panicked)) = stop.run_until_cancelled(round).await {
                crate::planning::tell(&panicked);
            }
        }
        operator.nominations.on.store(false, Ordering::Relaxed);
    };
    tokio::join!(writes, rounds);
}

/// Whether the cluster's version knows nominations of others than kube-scheduler.
async fn is_known<P: CloudProvider>(operator: &Operator<P>) -> bool {
    const AGAIN: Duration = Duration::from_secs(5);
    loop {
        match operator.context.client.apiserver_version().await {
            Ok(version) => {
                let known = version.major != "1" || minor(&version.minor) >= SINCE_MINOR;
                if !known {
                    tracing::info!(
                        version = version.git_version,
                        "pods are not nominated to their planned nodes: this requires Kubernetes \
                         1.{SINCE_MINOR}"
                    );
                }
                return known;
            }
            Err(error) => {
                tracing::debug!(error = %error, "the version of the API server is not known yet");
                sleep(AGAIN).await;
            }
        }
    }
}

/// Some distributions put a `+` behind it.
fn minor(text: &str) -> u32 {
    let digits = text.find(|c: char| !c.is_ascii_digit()).map_or(text, |end| &text[..end]);
    digits.parse().unwrap_or(0)
}

/// Waits until a Node wants to open.
async fn requested(nominations: &Nominations) {
    while nominations.requests.lock().is_empty() {
        nominations.wake.notified().await;
    }
}

/// Has the pods of all Nodes that could open nominated, then lets these open together.
async fn round<P: CloudProvider>(operator: &Operator<P>) {
    let nominations = &operator.nominations;
    let _events_wait = operator.context.recorder.hush();
    let deadline = Instant::now() + TOGETHER;
    while others_join(operator) && Instant::now() < deadline {
        timeout(BEHIND, nominations.wake.notified()).await.ok();
    }
    let (mut round, mut missing) = (Vec::new(), Vec::new());
    let begun = Instant::now();
    let mut progressed = begun;
    loop {
        // Nodes that become ready meanwhile open with the others: kube-scheduler tries all pods
        // that wait as often as nodes open.
        let others = std::mem::take(&mut *nominations.requests.lock());
        nominations.opening.lock().extend(others.iter().map(|request| request.node.clone()));
        for pod in pods_of(&operator.state.read(), &others) {
            nominations.pods.add(pod.clone());
            missing.push(pod);
        }
        round.extend(others);
        let before = missing.len();
        keep_missing(&operator.state.read(), &mut missing, operator.now());
        let now = Instant::now();
        if missing.len() < before {
            progressed = now;
        }
        if missing.is_empty() || now >= progressed + STALLED || now >= begun + LONGEST {
            break;
        }
        sleep(LOOK).await;
    }
    tracing::debug!(
        nodes = round.len(),
        missing = missing.len(),
        seconds = begun.elapsed().as_secs_f64(),
        "nodes open whose pods are nominated"
    );
    sleep(BEHIND).await;
    let (turn, mut opened) = mpsc::channel(1);
    let nodes: Vec<String> = round.iter().map(|request| request.node.clone()).collect();
    round.retain(|request| !request.go.is_closed());
    for request in round {
        request.go.send(Turn(turn.clone())).ok();
    }
    drop(turn);
    timeout(OPEN, opened.recv()).await.ok();
    let mut opening = nominations.opening.lock();
    for node in nodes {
        opening.remove(&node);
    }
}

/// Keeps the pods that wait for a nomination. One whose plan was given up meanwhile does not.
fn keep_missing(state: &Cluster, pods: &mut Vec<ObjectKey>, now: jiff::Timestamp) {
    pods.retain(|key| {
        state.expected_on(key, now).is_some()
            && state.pod(key).is_some_and(|pod| pod.nominated.is_none())
    });
}

/// The pods that were planned for Nodes.
fn pods_of(state: &Cluster, round: &[Request]) -> Vec<ObjectKey> {
    let pods = round.iter().flat_map(|request| state.planned_onto(&request.claim));
    pods.map(|(key, _)| key.clone()).collect()
}

/// Whether Nodes are about to join that have not asked to open yet.
fn others_join<P: CloudProvider>(operator: &Operator<P>) -> bool {
    let asked: BTreeSet<String> =
        operator.nominations.requests.lock().iter().map(|it| it.claim.clone()).collect();
    let now = operator.now();
    let state = operator.state.read();
    let mut machines = state.planned_machines();
    machines.any(|machine| {
        state.claim(machine).is_some_and(|claim| {
            let node = state.node_of(claim).map(|node| &node.metadata);
            let age = now.duration_since(wire::created_at(node.unwrap_or(&claim.metadata)));
            !asked.contains(machine)
                && age < JOINING
                && !is_true(claim, condition::INITIALIZED)
                && !state.is_going(claim)
        })
    })
}

/// Whether kube-scheduler puts pods on a Node that were planned for it.
fn is_open(claim: &NodeClaim, node: &Node) -> bool {
    !node.is_deleting() && !node.spec.taints.iter().any(|taint| closes(claim, taint))
}

/// Whether a Node that takes no pods yet is about to: it has become ready, and the control plane
/// takes the taint away that says otherwise.
fn is_about_to_open(claim: &NodeClaim, node: &Node) -> bool {
    let ready = |taint: &Taint| taint.key == "node.kubernetes.io/not-ready";
    node.is_ready()
        && !node.is_deleting()
        && !node.spec.taints.iter().any(|taint| closes(claim, taint) && !ready(taint))
}

/// Whether a taint keeps away the pods that were planned for the NodeClaim.
fn closes(claim: &NodeClaim, taint: &Taint) -> bool {
    let startup = claim.spec.startup_taints.iter();
    let passes = || {
        is_ephemeral(taint)
            || startup
                .into_iter()
                .any(|it| it.key == taint.key && it.effect.as_str() == taint.effect)
    };
    (taint.effect == "NoSchedule" || taint.effect == "NoExecute")
        && (taint.key == labels::DISRUPTED_TAINT
            || taint.key == "node.kubernetes.io/unschedulable"
            || passes())
}

#[cfg(test)]
mod tests;
