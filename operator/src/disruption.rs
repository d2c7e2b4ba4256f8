//! Disruption: nodes that are sick, empty, drifted or dearer than necessary go, when their budgets
//! allow it and their pods find a place.
//!
//! A pass plans on a snapshot. Consolidation is checked again after fifteen seconds on a fresh
//! snapshot, all commands of a plan on the same one; repair and drift are carried out at once. What
//! is carried out is in the hands of the [`queue`].

mod calm;
mod measure;
mod moves;
pub(crate) mod queue;
mod reboot;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use tenon_crds::conditions::nodeclaim::{DISRUPTION_REASON, REBOOTING};
use tenon_crds::{NodeClaim, labels};
use tenon_planner::Policy;
use tenon_planner::plan::{Command, Method, Plan, Resume, StayReason};
use tenon_planner::snapshot::Snapshot;
use tenon_state::explain;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

use self::queue::Commands;
use crate::actuate::{self, lower};
use crate::claims::{conditions, pool_of};
use crate::cloud_provider::CloudProvider;
use crate::events::{Event, Reason};
use crate::liveness;
use crate::operator::Operator;
use crate::pauses::{Source, panics};
use crate::planning::pools::{self, Suspicion};
use crate::planning::{self, Until, on_snapshot_for};
use crate::quarantine::Work;
use crate::state::cluster::{is_true, name};
use crate::tasks::isolated;
use crate::traces::{number, span};
use crate::watch::wire::created_at;

/// Between passes that found nothing.
const POLL: Duration = Duration::from_secs(10);
/// Consolidation is checked again after this time: what was only a moment's calm is left alone.
const VALIDATION_DELAY: Duration = Duration::from_secs(15);
/// A planning pass is cut short after this time; what it found by then counts.
const TIMEOUT: Duration = Duration::from_mins(3);

/// What was checked is carried out within this time, or checked once more: pods come meanwhile.
const FRESH: Duration = Duration::from_secs(5);
/// So many commands are started at once: as many as the API server answers without queueing them.
const CONCURRENCY: usize = 32;

/// Disrupts nodes until `stop`.
pub(crate) async fn run<P: CloudProvider>(
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
        calm::wait(&operator, &stop).await;
        passes += 1;
        let pass = pass(&operator, &commands, passes, &mut resume, &stop)
            .instrument(span!(root: "disruption pass", pass = number(passes)));
        let pause = match isolated(liveness::turn(liveness::WORK, pass)).await {
            Ok(started) => {
                operator.pauses.note(Source::Disruption, None);
                if started == 0 { POLL } else { Duration::ZERO }
            }
            Err(panicked) => {
                planning::tell(&panicked);
                let again = move |operator: &Operator<P>, some: &Snapshot, until: &Until| {
                    tenon_planner::disrupt(some, &operator.policy, operator.now(), passes, until)
                };
                let why = (Work::Disruption, Suspicion::Certain);
                let search = pools::set_aside(&operator, again, why, &stop, &panicked);
                let found = isolated(search).await.unwrap_or_else(|panicked| {
                    planning::tell(&panicked);
                    false
                });
                if !found {
                    operator.pauses.note(Source::Disruption, Some(panics(Source::Disruption)));
                }
                POLL
            }
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
    let Some(plan) = plan(operator, seed, resume.take(), stop).await else { return 0 };
    resume.clone_from(&plan.report.resume);
    report(operator, &plan);
    moves::report(operator, &plan);
    let (checked, at_once): (Vec<Command>, Vec<Command>) = plan
        .commands
        .into_iter()
        .partition(|it| !matches!(it.method, Method::Drift | Method::Repair));
    let mut started = start_all(operator, commands, &mut at_once.into(), None, stop).await;
    if checked.is_empty() {
        return started;
    }
    for command in &checked {
        let message = format!(
            "removing {} node(s) and launching {} would save ${:.4} per hour",
            command.candidates.len(),
            command.replacements.len(),
            command.savings.as_usd()
        );
        tell_candidates(operator, command, Reason::ConsolidationCandidate, &message);
    }
    if stop.run_until_cancelled(tokio::time::sleep(VALIDATION_DELAY)).await.is_none() {
        return started;
    }
    let mut left = VecDeque::from(checked);
    while !left.is_empty() {
        let until = Instant::now() + FRESH;
        let Some(verdicts) = validate(operator, left.into(), stop).await else { break };
        left = VecDeque::new();
        for (command, verdict) in verdicts {
            match verdict {
                Ok(()) => left.push_back(command),
                Err(reason) => reject(operator, &command, &reason),
            }
        }
        started += start_all(operator, commands, &mut left, Some(until), stop).await;
    }
    started
}

/// Starts commands side by side, and answers how many could be started. Those that were not begun
/// until then, or before `stop`, are left.
async fn start_all<P: CloudProvider>(
    operator: &Arc<Operator<P>>,
    commands: &Commands,
    left: &mut VecDeque<Command>,
    until: Option<Instant>,
    stop: &CancellationToken,
) -> usize {
    let acting = span!("actuate", commands = number(left.len()));
    // Before the first one is begun: small pods of its nodes wait for large ones of the last.
    for command in left.iter().filter(|it| it.replacements.is_empty() && !it.is_reboot()) {
        queue::expect_evictions(operator, command);
    }
    let (mut begun, mut started) = (0, 0);
    let mut running = FuturesUnordered::new();
    loop {
        // The first ones are begun in any case, so that there is progress however slow the planner
        // is.
        let in_time = || until.is_none_or(|until| Instant::now() < until);
        while running.len() < CONCURRENCY
            && !stop.is_cancelled()
            && (begun < CONCURRENCY || in_time())
            && let Some(command) = left.pop_front()
        {
            begun += 1;
            running.push(begin(operator, commands, command).instrument(acting.clone()));
        }
        let Some(is_started) = running.next().await else { return started };
        started += usize::from(is_started);
    }
}

/// Starts a command; answers whether that succeeded.
async fn begin<P: CloudProvider>(
    operator: &Operator<P>,
    commands: &Commands,
    command: Command,
) -> bool {
    if command.is_reboot() {
        reboot::request(operator, &command).await
    } else {
        commands.start(operator, command).await
    }
}

/// Plans; `None` when the operator is told to stop.
async fn plan<P: CloudProvider>(
    operator: &Arc<Operator<P>>,
    seed: u64,
    resume: Option<Resume>,
    stop: &CancellationToken,
) -> Option<Plan> {
    let clock = operator.context.clock;
    let now = clock.now();
    let until = Until::new(clock, TIMEOUT, stop);
    let planned = on_snapshot_for(Work::Disruption, operator, stop, move |operator, snapshot| {
        measure::budgets(operator, &snapshot);
        measure::costs(operator, &snapshot);
        let policy = Policy { resume, ..operator.policy.clone() };
        let plan = tenon_planner::disrupt(&snapshot, &policy, now, seed, &until);
        (plan, measure::drifted(&snapshot))
    });
    let (plan, drifted) = planned.await?;
    measure::eligible(operator, &plan, &drifted);
    if plan.report.cancelled {
        operator.context.metrics.consolidation_timeouts.inc([""]);
    }
    let took = clock.now().duration_since(now).as_secs_f64();
    operator.context.metrics.disruption_evaluation_duration.observe(["", ""], took);
    Some(plan)
}

/// Checks commands once more, on one snapshot in which each has the former that passed already in
/// it: their nodes are marked, and count against the budgets. `None` when the operator is told to
/// stop.
async fn validate<P: CloudProvider>(
    operator: &Arc<Operator<P>>,
    commands: Vec<Command>,
    stop: &CancellationToken,
) -> Option<Vec<(Command, Result<(), StayReason>)>> {
    if !operator.state.read().is_synced() {
        let incomplete =
            || Err(StayReason::Changed("the cluster's state is incomplete".to_owned()));
        return Some(commands.into_iter().map(|command| (command, incomplete())).collect());
    }
    on_snapshot_for(Work::Disruption, operator, stop, |operator, snapshot| {
        let (policy, now) = (&operator.policy, operator.now());
        let nominated_until = actuate::nominated_until(operator);
        let verdicts =
            tenon_planner::revalidate_all(&commands, &snapshot, policy, now, nominated_until);
        commands.into_iter().zip(verdicts).collect()
    })
    .await
}

/// Takes back what commands left behind that are not known any more: the operator was restarted
/// between tainting and deleting.
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
    let now = operator.now();
    let mut blocked = Vec::new();
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
        if claim.as_ref().is_some_and(|claim| is_being_made(claim, &staying.reason, now)) {
            continue;
        }
        let recorder = &operator.context.recorder;
        if let Some(claim) = claim {
            recorder.publish(words.about(&*claim));
            if matches!(reason, Reason::DisruptionBlocked | Reason::NodeRepairBlocked) {
                let node = node.as_ref().map_or(&*staying.node, |node| node.name()).to_owned();
                blocked.push((
                    pool_of(&claim).to_owned(),
                    node,
                    &staying.reason,
                    words.message.clone(),
                ));
            }
        }
        if let Some(node) = node {
            recorder.publish(words.about(&*node));
        }
        if let Some(pool) = pool {
            recorder.publish(words.about(&*pool));
        }
    }
    let blocked = blocked.iter().map(|(pool, node, reason, message)| {
        (pool.as_str(), node.as_str(), *reason, message.as_str())
    });
    operator.context.decisions.staying(blocked);
}

/// Whether a node stays because it has just been launched, which is no news: that it does not
/// become ready is told in other ways.
fn is_being_made(claim: &NodeClaim, stay: &StayReason, now: jiff::Timestamp) -> bool {
    /// Until then a node has joined and its pods are bound, as a rule.
    const MAKING: jiff::SignedDuration = jiff::SignedDuration::from_secs(45);
    matches!(stay, StayReason::NotInitialized | StayReason::Nominated)
        && now.duration_since(created_at(&claim.metadata)) < MAKING
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
        // A new obstacle is news, also right after another one has gone; why consolidation does not
        // pay changes with every pod.
        let is_obstacle = self.reason == Reason::DisruptionBlocked;
        if is_obstacle { event.distinct_by(message).superseding() } else { event }
    }
}

fn reject<P: CloudProvider>(operator: &Operator<P>, command: &Command, reason: &StayReason) {
    let metrics = &operator.context.metrics;
    metrics.failed_validations.inc([moves::consolidation_type(command.method)]);
    tracing::info!(
        reason = lower(command.reason),
        candidates = ?command.candidates.iter().map(|c| c.node.as_str()).collect::<Vec<_>>(),
        why = ?reason,
        "abandoned a command that is no longer valid"
    );
    let why = explain::staying(reason).map_or_else(|| format!("{reason:?}"), |((_, it), _)| it);
    operator.context.decisions.rejected(command, &why);
    let message = format!("Consolidation was rejected by its validation: {reason:?}");
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
pub(crate) fn set_reason(claim: &mut NodeClaim, reason: &str, now: jiff::Timestamp) {
    conditions(claim, now).set_true_because(DISRUPTION_REASON, reason, reason);
}

#[cfg(test)]
mod tests;
