//! Provisioning: pods that fit nowhere get machines.
//!
//! kube-scheduler marks a pod unschedulable, or a machine begins to go and its pods need another
//! place; the state tells; a batch closes when nothing further came for a second (at most after
//! ten); the planner plans on a snapshot; the plan is carried out. Where machines are taken away
//! the batch closes after a tenth of a second: all of their pods are known at once, and their time
//! is short. Pods that still wait are looked at again every ten seconds, so nothing that is dropped
//! on the way is lost. When the planner panics, the pods that make it panic are found and left out
//! for a while.

pub(crate) mod batcher;
pub(crate) mod replicas;

use std::collections::{BTreeMap, BTreeSet};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::Mutex;
use tenon_crds::labels;
use tenon_planner::Cancel as _;
use tenon_planner::plan::{Exclusion, Plan, PodRef};
use tenon_planner::snapshot::Snapshot;
use tenon_state::explain;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

use self::batcher::Batcher;
use crate::actuate;
use crate::capacitybuffer::{Outcomes, VirtualPods, is_about_buffers};
use crate::cloud_provider::CloudProvider;
use crate::events::{Event, Reason, pod};
use crate::liveness;
use crate::metrics;
use crate::operator::Operator;
use crate::pauses::{Source, panics};
use crate::planning::pools::{self, Suspicion};
use crate::planning::{self, SEARCH, Until, on_snapshot};
use crate::quarantine::{self, Work, culprits};
use crate::state::State;
use crate::state::change::{PodEvent, Touched};
use crate::state::cluster::name;
use crate::state::pod::Pod;
use crate::tasks::{Panicked, isolated};
use crate::traces::{number, span};
use crate::watch::wire;

/// How often waiting pods and disrupted nodes are looked at again.
const RETRY: Duration = Duration::from_secs(10);

/// What CapacityBuffers are called in a batch: no pod has such a name.
const BUFFERS: &str = "capacitybuffers";

/// A planning pass is cut short after this time; what it found by then is carried out.
const TIMEOUT: Duration = Duration::from_mins(1);

/// Plans for waiting pods until `stop`.
///
/// `wake` is told when waiting pods may fit now, e.g. because a catalog changed.
pub(crate) async fn run<P: CloudProvider>(
    operator: Arc<Operator<P>>,
    buffers: Outcomes,
    mut wake: watch::Receiver<u64>,
    stop: CancellationToken,
) {
    let options = &operator.options;
    let batcher = Batcher::new(options.batch_idle_duration.0, options.batch_max_duration.0);
    listen(&operator.state, &batcher);
    let again = async {
        loop {
            retrigger(&operator, &batcher);
            tokio::select! {
                () = tokio::time::sleep(RETRY) => {}
                Ok(()) = wake.changed() => {}
            }
        }
    };
    let hurry = async {
        loop {
            operator.context.interrupted.notified().await;
            batcher.hurry();
        }
    };
    tokio::select! {
        () = again => {}
        () = hurry => {}
        () = batches(&operator, &buffers, &batcher, &stop) => {}
    }
}

/// Lets what happens trigger batches: pods that begin to wait, machines that begin to go,
/// CapacityBuffers.
fn listen(state: &State, batcher: &Batcher) {
    let trigger = batcher.clone();
    let going = Going::default();
    let cluster = state.clone();
    state.subscribe(move |touched| match touched {
        Touched::Pod(key, event) if event.provisionable => trigger.trigger(&key.to_string()),
        // It went elsewhere than planned, and has affinity: pods that were to be near it may have
        // to be planned for again. Those near a pod that has none are looked at with all that wait.
        Touched::Pod(key, PodEvent { as_planned: Some(false), .. }) => {
            let state = cluster.read();
            let has_affinity = |pod: &Pod| pod.shape.required_pod_affinity().next().is_some();
            if state.pod(key).is_some_and(has_affinity) {
                trigger.trigger(&key.to_string());
            }
        }
        Touched::NodeClaim(name) => {
            let state = cluster.read();
            let goes = state.claim(name).is_some_and(|claim| state.is_going(claim));
            if going.begins(claim_key(name), goes) {
                trigger.trigger(&claim_key(name));
            }
        }
        Touched::Node(name) => {
            let goes = |node: &Arc<wire::Node>| node.is_deleting() || is_disrupted(node);
            let goes = cluster.read().node(name).is_some_and(goes);
            if going.begins(node_key(name), goes) {
                trigger.trigger(&node_key(name));
            }
        }
        touched if is_about_buffers(touched) => trigger.trigger(BUFFERS),
        _ => {}
    });
}

/// Machines that are known to go: they change often while they do, and only the beginning is news.
#[derive(Debug, Default)]
struct Going(Mutex<BTreeSet<String>>);

impl Going {
    /// Whether the machine goes now and was not known to.
    fn begins(&self, key: String, goes: bool) -> bool {
        let mut known = self.0.lock();
        if goes {
            return known.insert(key);
        }
        known.remove(&key);
        false
    }
}

/// What a NodeClaim is called in a batch.
fn claim_key(name: &str) -> String {
    format!("NodeClaim {name}")
}

/// What a Node is called in a batch.
fn node_key(name: &str) -> String {
    format!("Node {name}")
}

/// Whether a Node is fenced off.
fn is_disrupted(node: &wire::Node) -> bool {
    node.has_taint(labels::DISRUPTED_TAINT, "NoSchedule")
}

/// Plans one batch after the other until `stop`. Then what is being planned is dropped, and of a
/// batch that is being carried out only the launches that are under way are finished.
async fn batches<P: CloudProvider>(
    operator: &Arc<Operator<P>>,
    buffers: &Outcomes,
    batcher: &Batcher,
    stop: &CancellationToken,
) {
    let mut pass = 0;
    let without_place = AtomicUsize::new(0);
    // Of many pods that are alike it is known what they need: others that come later go where these
    // leave room.
    let enough =
        || operator.state.read().are_waiting_pods_alike(without_place.load(Ordering::Relaxed));
    while stop.run_until_cancelled(batcher.wait(enough)).await.is_some() {
        if stop.run_until_cancelled(operator.state.synced()).await.is_none() {
            return;
        }
        pass += 1;
        let turn = async {
            let (plan, virtual_pods) = match isolated(plan(operator, pass, stop)).await {
                Ok(planned) => {
                    operator.pauses.note(Source::Provisioning, None);
                    planned?
                }
                Err(panicked) => {
                    planning::tell(&panicked);
                    let again = move |operator: &Operator<P>, some: &Snapshot, until: &Until| {
                        let now = operator.now();
                        tenon_planner::provision(
                            some,
                            &operator.provisioning_policy(),
                            now,
                            pass,
                            until,
                        )
                    };
                    if isolated(set_aside(operator, again, stop, &panicked)).await == Ok(true) {
                        retrigger(operator, batcher);
                    } else {
                        operator
                            .pauses
                            .note(Source::Provisioning, Some(panics(Source::Provisioning)));
                    }
                    return Some(());
                }
            };
            metrics::pods::decided(&operator.context.metrics, &plan, operator.now());
            without_place.store(plan.report.pods.len(), Ordering::Relaxed);
            let (launches, nominations) = (plan.launches.len(), plan.nominations.len());
            let acting = carry_out(operator, &plan, &virtual_pods, stop).instrument(span!(
                "actuate",
                launches = number(launches),
                nominations = number(nominations)
            ));
            if let Err(panicked) = isolated(acting).await {
                planning::tell(&panicked);
            }
            buffers.record(&virtual_pods, &plan);
            Some(())
        };
        let turn = turn.instrument(span!(root: "provisioning pass", pass = number(pass)));
        if liveness::turn(liveness::WORK, turn).await.is_none() {
            return;
        }
    }
}

/// Finds the pods, or the NodePools, that make `plan` panic, and leaves them out for a while; false
/// when it is not about them.
async fn set_aside<P: CloudProvider>(
    operator: &Arc<Operator<P>>,
    plan: impl Fn(&Operator<P>, &Snapshot, &Until) -> Plan + Clone + Send + 'static,
    stop: &CancellationToken,
    panicked: &Panicked,
) -> bool {
    // Without a snapshot nothing can be said of pods.
    let found = isolated(culprits_among_pods(operator, plan.clone(), stop)).await.ok().flatten();
    let suspicion = match &found {
        None => Suspicion::Certain,
        Some((snapshot, bad)) => {
            let waiting = snapshot.pods.iter().filter(|pod| quarantine::waits(pod));
            let shapes: BTreeSet<u32> = waiting.map(|pod| pod.shape.0).collect();
            if bad.len() < shapes.len() || shapes.len() < 2 {
                return leave_out(operator, snapshot, bad, panicked);
            }
            // All kinds of pods at once: rather what all of them could be placed with.
            Suspicion::Possible
        }
    };
    if pools::set_aside(operator, plan, (Work::All, suspicion), stop, panicked).await {
        return true;
    }
    let Some((snapshot, bad)) = found else {
        if !stop.is_cancelled() {
            tracing::error!(
                "planning also panics without any pending pods and without any nodepools: no pod \
                 gets a node"
            );
        }
        return false;
    };
    leave_out(operator, &snapshot, &bad, panicked)
}

/// The shapes of waiting pods for which `plan` panics, as indices into those of the snapshot;
/// `None` when it panics without any of them, too.
async fn culprits_among_pods<P: CloudProvider>(
    operator: &Arc<Operator<P>>,
    plan: impl Fn(&Operator<P>, &Snapshot, &Until) -> Plan + Send + 'static,
    stop: &CancellationToken,
) -> Option<(Snapshot, Vec<u32>)> {
    let until = Until::new(operator.context.clock, SEARCH, stop);
    let found = on_snapshot(operator, stop, move |operator, snapshot| {
        let gets_through = |some: &Snapshot| {
            let plan = AssertUnwindSafe(|| plan(operator, some, &until));
            std::panic::catch_unwind(plan).is_ok()
        };
        let bad = culprits(&snapshot, gets_through, || until.is_cancelled());
        (snapshot, bad)
    });
    let (snapshot, bad) = found.await?;
    Some((snapshot, bad?))
}

/// Leaves pods of these shapes out for a while, and tells; false when there are none.
fn leave_out<P: CloudProvider>(
    operator: &Operator<P>,
    snapshot: &Snapshot,
    bad: &[u32],
    panicked: &Panicked,
) -> bool {
    let now = operator.now();
    for &shape in bad {
        let until = now.checked_add(quarantine::PERIOD).unwrap_or(Timestamp::MAX);
        operator.quarantine.add(Arc::clone(&snapshot.shapes[shape as usize]), until);
        let pods = snapshot.pods.iter().filter(|pod| pod.shape.0 == shape);
        let pods: Vec<_> = pods.filter(|pod| quarantine::waits(pod)).collect();
        let names = pods.iter().take(TOLD).map(|pod| format!("{}/{}", pod.namespace, pod.name));
        tracing::error!(
            pods = ?names.collect::<Vec<_>>(),
            n_pods = pods.len(),
            left_out_until = %until,
            "a defect of the operator: planning for these pods panics. Planning continues without \
             them; as a workaround, change their requirements"
        );
        for pod in pods.iter().filter(|pod| pod.buffer.is_none()).take(TOLD) {
            let message = format!(
                "Failed to schedule pod, planning for it {panicked}; it is retried in {} minutes",
                quarantine::PERIOD.as_mins()
            );
            let event = Event::warning(
                &crate::events::pod(&PodRef::from(*pod)),
                Reason::FailedScheduling,
                message,
            );
            operator.context.recorder.publish(event.distinct_by("panic"));
        }
    }
    !bad.is_empty()
}

/// So many pods that are alike are named.
const TOLD: usize = 10;

/// Pods that wait, machines that go, and CapacityBuffers count as new. Where no pod waits any more,
/// no pass comes that would say so.
fn retrigger<P: CloudProvider>(operator: &Operator<P>, batcher: &Batcher) {
    let state = operator.state.read();
    let mut waiting = state.pods().filter(|(_, pod)| pod.unschedulable).peekable();
    if waiting.peek().is_none() {
        measure(operator, &BTreeMap::new(), 0.0, 0.0);
    }
    for (key, _) in waiting {
        batcher.trigger(&key.to_string());
    }
    for claim in state.claims().filter(|claim| state.is_going(claim)) {
        batcher.trigger(&claim_key(&name(&claim.metadata)));
    }
    for node in state.nodes().filter(|node| is_disrupted(node)) {
        batcher.trigger(&node_key(node.name()));
    }
    if state.buffers().next().is_some() {
        batcher.trigger(BUFFERS);
    }
}

/// Plans on a snapshot; `None` when the operator is told to stop.
async fn plan<P: CloudProvider>(
    operator: &Arc<Operator<P>>,
    pass: u64,
    stop: &CancellationToken,
) -> Option<(Plan, VirtualPods)> {
    let now = operator.now();
    let until = Until::new(operator.context.clock, TIMEOUT, stop);
    let planned = on_snapshot(operator, stop, move |operator, snapshot| {
        let virtual_pods = VirtualPods::of(&snapshot);
        let policy = operator.provisioning_policy();
        (tenon_planner::provision(&snapshot, &policy, now, pass, &until), virtual_pods)
    });
    let planned = planned.await?;
    let took = operator.now().duration_since(now).as_secs_f64();
    operator.context.metrics.scheduling_duration.observe(["provisioner"], took);
    Some(planned)
}

async fn carry_out<P: CloudProvider>(
    operator: &Operator<P>,
    plan: &Plan,
    absent: &VirtualPods,
    stop: &CancellationToken,
) {
    if !plan.launches.is_empty() {
        let n_pods: usize = plan.launches.iter().map(|launch| launch.pods.len()).sum();
        tracing::info!(
            nodeclaims = plan.launches.len(),
            pods = n_pods,
            "computed new nodeclaim(s) to fit pod(s)"
        );
    }
    actuate::nominate(operator, &plan.nominations).await;
    actuate::launch_all(operator, &plan.launches, stop).await;
    report(operator, plan, absent);
}

/// Tells the pods that stay pending why; those that are `absent` can't be told.
fn report<P: CloudProvider>(operator: &Operator<P>, plan: &Plan, absent: &VirtualPods) {
    const WINDOW: jiff::SignedDuration = jiff::SignedDuration::from_mins(5);
    let (mut ignored, mut unschedulable) = (0.0, 0.0);
    let real = plan.report.pods.iter().filter(|it| !absent.contains(&it.pod.uid));
    for waiting in real {
        unschedulable += 1.0;
        let invalid = waiting.reasons.iter().any(|(_, why)| matches!(why, Exclusion::Pod(_)));
        ignored += f64::from(u8::from(invalid));
        let why = explain::waiting(&waiting.reasons);
        tracing::debug!(
            namespace = &*waiting.pod.namespace,
            pod = &*waiting.pod.name,
            why,
            "could not schedule pod"
        );
        let message = format!("Failed to schedule pod, {why}");
        let event = Event::warning(&pod(&waiting.pod), Reason::FailedScheduling, message);
        operator.context.recorder.publish(event.within(WINDOW));
    }
    measure(operator, &plan.report.zones, unschedulable, ignored);
    let skipped: BTreeSet<_> = plan.report.node_pools.iter().map(|pool| &pool.name).collect();
    if !skipped.is_empty() {
        tracing::debug!(nodepools = ?skipped, "nodepools took no part in provisioning");
    }
}

/// Sets the gauges of pods that wait: by zone, those that nothing can take, and those that can't be
/// planned for.
fn measure<P: CloudProvider>(
    operator: &Operator<P>,
    zones: &BTreeMap<String, u32>,
    unschedulable: f64,
    ignored: f64,
) {
    let metrics = &operator.context.metrics;
    metrics.unschedulable_pods.set(["provisioner"], unschedulable);
    metrics.ignored_pods.set([], ignored);
    metrics.pending_pods_by_zone.clear();
    for (zone, &n_pods) in zones {
        metrics.pending_pods_by_zone.set(["provisioner", zone], f64::from(n_pods));
    }
}

#[cfg(test)]
mod tests;
