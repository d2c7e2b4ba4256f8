//! Disruption: nodes that are sick, empty, drifted or dearer than necessary go, when their budgets allow it and their pods find a place.
//!
//! A pass plans on a snapshot. Consolidation is checked again after fifteen seconds on a fresh snapshot, repair and drift are carried out at once. What is carried
//! out is in the hands of the [`queue`].

mod measure;
mod moves;
pub mod queue;
mod reboot;

use std::sync::Arc;
use std::time::Duration;

use tenon_crds::conditions::nodeclaim::{DISRUPTION_REASON, REBOOTING};
use tenon_crds::labels;
use tenon_planner::Policy;
use tenon_planner::plan::{Command, Method, Plan, Stay};
use tenon_planner::policy::Resume;
use tenon_state::explain;
use tokio_util::sync::CancellationToken;

use self::queue::Commands;
use crate::actuate::lower;
use crate::cloud_provider::CloudProvider;
use crate::events::{Event, Reason};
use crate::nodeclaim::{conditions, pool_of};
use crate::operator::Operator;
use crate::state::cluster::{is_true, name};
use crate::tasks::blocking;

/// Between passes that found nothing.
const POLL: Duration = Duration::from_secs(10);
/// Consolidation is checked again after this time: what was only a moment's calm is left alone.
const VALIDATION_DELAY: Duration = Duration::from_secs(15);
/// A planning pass is cut short after this time; what it found by then counts.
const TIMEOUT: Duration = Duration::from_mins(3);

/// Disrupts nodes until `stop`.
pub async fn run<P: CloudProvider>(
    operator: Arc<Operator<P>>,
    commands: Commands,
    mut wake: tokio::sync::watch::Receiver<u64>,
    stop: CancellationToken,
) {
    let mut passes = 0;
    // Where a pass that was cut short has to go on.
    let mut resume = None;
    loop {
        if stop.run_until_cancelled(operator.state.synced()).await.is_none() {
            return;
        }
        passes += 1;
        let pause = match pass(&operator, &commands, passes, &mut resume, &stop).await {
            0 => POLL,
            _ => Duration::ZERO,
        };
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(pause) => {}
            Ok(()) = wake.changed() => {}
        }
    }
}

/// One pass; answers how many commands it started.
async fn pass<P: CloudProvider>(
    operator: &Arc<Operator<P>>,
    commands: &Commands,
    seed: u64,
    resume: &mut Option<Resume>,
    stop: &CancellationToken,
) -> usize {
    clean_up(operator, commands).await;
    let Some(plan) = plan(operator, seed, resume.take()).await else { return 0 };
    resume.clone_from(&plan.report.resume);
    report(operator, &plan);
    moves::report(operator, &plan);
    let (checked, at_once): (Vec<Command>, Vec<Command>) = plan
        .commands
        .into_iter()
        .partition(|it| !matches!(it.method, Method::Drift | Method::Repair));
    let mut started = 0;
    for command in at_once {
        started += usize::from(if command.is_reboot() {
            reboot::request(operator, &command).await
        } else {
            commands.start(operator, command).await
        });
    }
    if checked.is_empty() {
        return started;
    }
    for command in &checked {
        let message = format!(
            "{} node(s) would go for {} new one(s), which saves ${:.4} per hour",
            command.candidates.len(),
            command.replacements.len(),
            command.savings.as_usd()
        );
        tell_candidates(operator, command, Reason::ConsolidationCandidate, &message);
    }
    if stop.run_until_cancelled(tokio::time::sleep(VALIDATION_DELAY)).await.is_none() {
        return started;
    }
    for command in checked {
        // Each against a snapshot that has the former already in it: their nodes are marked, and count against the budgets.
        match validate(operator, &command).await {
            Some(Ok(())) => started += usize::from(commands.start(operator, command).await),
            Some(Err(reason)) => reject(operator, &command, &reason),
            None => return started,
        }
    }
    started
}

async fn plan<P: CloudProvider>(
    operator: &Arc<Operator<P>>,
    seed: u64,
    resume: Option<Resume>,
) -> Option<Plan> {
    let snapshot = operator.snapshot();
    measure::budgets(operator, &snapshot);
    measure::costs(operator, &snapshot);
    let drifted = measure::drifted(&snapshot);
    let policy = Policy { resume, ..operator.policy.clone() };
    let clock = operator.context.clock;
    let now = clock.now();
    let until = now.checked_add(TIMEOUT).unwrap_or(now);
    let plan = blocking(move || {
        tenon_planner::disrupt(&snapshot, &policy, now, seed, &|| clock.now() > until)
    });
    let plan = plan.await?;
    measure::eligible(operator, &plan, &drifted);
    if plan.report.cancelled {
        operator.context.metrics.consolidation_timeouts.inc([""]);
    }
    let took = clock.now().duration_since(now).as_secs_f64();
    operator.context.metrics.disruption_evaluation_duration.observe(["", ""], took);
    Some(plan)
}

/// `None` when the runtime is going away.
async fn validate<P: CloudProvider>(
    operator: &Arc<Operator<P>>,
    command: &Command,
) -> Option<Result<(), Stay>> {
    if !operator.state.read().is_synced() {
        return Some(Err(Stay::Changed("the cluster's state is incomplete".to_owned())));
    }
    let snapshot = operator.snapshot();
    let policy = operator.policy.clone();
    let now = operator.now();
    let command = command.clone();
    blocking(move || tenon_planner::revalidate(&command, &snapshot, &policy, now)).await
}

/// Takes back what commands left behind that are not known any more: the operator was restarted between tainting and deleting.
async fn clean_up<P: CloudProvider>(operator: &Operator<P>, commands: &Commands) {
    let leftovers: Vec<_> = {
        let state = operator.state.read();
        let running = |name: &str| commands.has(name);
        state
            .claims()
            .filter(|claim| !state.is_going(claim) && !running(&name(&claim.metadata)))
            // What a reboot is for stays written until its end.
            .filter(|claim| !is_true(claim, REBOOTING))
            .map(|claim| (Arc::clone(claim), state.node_of(claim).cloned()))
            .filter(|(claim, node)| {
                is_true(claim, DISRUPTION_REASON)
                    || node.as_ref().is_some_and(|node| {
                        !node.is_deleting() && node.has_taint(labels::DISRUPTED_TAINT, "NoSchedule")
                    })
            })
            .collect()
    };
    // What fails is one node's trouble, and no reason to leave all others alone.
    for (claim, node) in leftovers {
        queue::clear(operator, &claim, node.as_deref()).await;
    }
}

/// Says why nodes stay.
fn report<P: CloudProvider>(operator: &Operator<P>, plan: &Plan) {
    for staying in &plan.report.nodes {
        let Some(((reason, message), window)) = explain::staying(&staying.reason) else { continue };
        let Some(reason) = Reason::named(reason) else { continue };
        let words = Words { reason, message, window };
        let (claim, node, pool) = {
            let state = operator.state.read();
            let claim = state.claim(&staying.node).cloned();
            let node = claim.as_ref().and_then(|claim| state.node_of(claim).cloned());
            // That a whole pool is sick concerns whoever looks after the pool.
            let pool = claim.as_ref().filter(|_| reason == Reason::NodeRepairBlocked);
            let pool = pool.and_then(|claim| state.pool(pool_of(claim)).cloned());
            (claim, node, pool)
        };
        let recorder = &operator.context.recorder;
        if let Some(claim) = claim {
            recorder.publish(words.about(&*claim));
        }
        if let Some(node) = node {
            recorder.publish(words.about(&*node));
        }
        if let Some(pool) = pool {
            recorder.publish(words.about(&*pool));
        }
    }
}

/// Why a node stays.
struct Words {
    reason: Reason,
    message: String,
    window: jiff::SignedDuration,
}

impl Words {
    fn about<K: kube::Resource<DynamicType = ()>>(&self, object: &K) -> Event {
        let message = self.message.as_str();
        let event = match self.reason {
            Reason::NodeRepairBlocked => Event::warning(object, self.reason, message),
            _ => Event::normal(object, self.reason, message),
        };
        let event = event.within(self.window);
        // A new obstacle is news, also right after another one has gone; why consolidation does not pay changes with every pod.
        let is_obstacle = self.reason == Reason::DisruptionBlocked;
        if is_obstacle { event.distinct_by(message).superseding() } else { event }
    }
}

fn reject<P: CloudProvider>(operator: &Operator<P>, command: &Command, reason: &Stay) {
    let metrics = &operator.context.metrics;
    metrics.failed_validations.inc([moves::consolidation_type(command.method)]);
    tracing::info!(
        reason = lower(command.reason),
        candidates = ?command.candidates.iter().map(|c| c.node.as_str()).collect::<Vec<_>>(),
        why = ?reason,
        "abandoned a command, it does not hold any more"
    );
    let message = format!("Consolidation was rejected when it was checked again: {reason:?}");
    tell_candidates(operator, command, Reason::ConsolidationRejected, &message);
}

/// Says something on the nodes of a command and on their NodeClaims.
fn tell_candidates<P: CloudProvider>(
    operator: &Operator<P>,
    command: &Command,
    reason: Reason,
    message: &str,
) {
    let recorder = &operator.context.recorder;
    for candidate in &command.candidates {
        let (claim, node) = {
            let state = operator.state.read();
            let claim = state.claim(&candidate.claim).cloned();
            let node = claim.as_ref().and_then(|claim| state.node_of(claim).cloned());
            (claim, node)
        };
        if let Some(claim) = claim {
            recorder.publish(Event::normal(&*claim, reason, message));
        }
        if let Some(node) = node {
            recorder.publish(Event::normal(&*node, reason, message));
        }
    }
}

/// Sets the condition that tells why a NodeClaim is disrupted.
pub(crate) fn set_reason(claim: &mut tenon_crds::NodeClaim, reason: &str, now: jiff::Timestamp) {
    conditions(claim, now).set_true_because(DISRUPTION_REASON, reason, reason);
}
