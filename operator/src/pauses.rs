//! Whether planning is paused, for how long and why: what people see in the condition
//! `PlanningActive` of NodePools and in its events.
//!
//! Plans are made on a complete state only, so one NodeClaim whose launch hangs holds all of them
//! up; and a planner that panics makes none. Both concern every NodePool and are noted in
//! [`Pauses`], by whoever finds out. That one NodePool can't be planned with is found when it is
//! reconciled ([`judge`] brings the two together). A launch takes seconds, and planning waits for
//! it every time: only what lasts is a pause.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tenon_crds::conditions::nodeclaim::LAUNCHED;
use tenon_crds::conditions::nodepool::PLANNING_ACTIVE;
use tenon_crds::conditions::{Condition, Conditions};
use tenon_crds::{ConditionStatus, NodeClaim, NodePool};
use tokio::sync::watch;

use crate::events::{Event, Reason};
use crate::state::State;
use crate::state::cluster::{Cluster, name};

/// An incomplete state is a pause after this time; a launch takes less.
const PATIENCE: Duration = Duration::from_secs(20);
/// How often it is looked again what a pause is due to.
const REVIEW: Duration = Duration::from_mins(1);
/// So old is a pause when there is an event about it: a NodePool that was just created is not ready
/// for a moment.
pub(crate) const TOLD_AFTER: Duration = Duration::from_secs(15);
/// The event about one pause is not repeated.
const ONCE: jiff::SignedDuration = jiff::SignedDuration::from_hours(24);
/// Reason while a kind was not listed yet.
const UNLISTED: &str = "AwaitingClusterState";
/// Reason while there are NodeClaims without a machine.
const LAUNCHING: &str = "AwaitingLaunches";
/// So many NodeClaims are named.
const NAMED: usize = 3;

/// Why planning is paused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Why {
    /// Reason of the condition.
    pub reason: &'static str,
    /// What to know and what to do, for people.
    pub message: String,
}

/// What can hold up planning for all NodePools.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Source {
    /// The cluster is not completely known.
    State,
    /// Plans for waiting pods can't be made.
    Provisioning,
    /// Plans for nodes that may go can't be made.
    Disruption,
}

/// What holds up planning for all NodePools at this moment. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Pauses(Arc<watch::Sender<BTreeMap<Source, Why>>>);

impl Default for Pauses {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(BTreeMap::new())))
    }
}

impl Pauses {
    /// Notes why `source` holds planning up, or that it does not.
    pub(crate) fn note(&self, source: Source, why: Option<Why>) {
        self.0.send_if_modified(|known| {
            let before = known.get(&source);
            if before == why.as_ref() {
                return false;
            }
            match (before.map(|before| before.reason), &why) {
                (Some(_), None) => tracing::info!(?source, "planning is resumed"),
                (before, Some(why)) if before != Some(why.reason) => {
                    tracing::warn!(reason = why.reason, why = why.message, "planning is paused");
                }
                _ => {}
            }
            match why {
                Some(why) => known.insert(source, why),
                None => known.remove(&source),
            };
            true
        });
    }

    /// Why planning is paused for all NodePools: what has to end first comes first.
    pub(crate) fn why(&self) -> Option<Why> {
        self.0.borrow().values().next().cloned()
    }

    /// Hears of every change.
    pub(crate) fn changes(&self) -> watch::Receiver<BTreeMap<Source, Why>> {
        self.0.subscribe()
    }
}

/// Notes when the state stays incomplete; does not end.
pub(crate) async fn watch_state(state: &State, pauses: &Pauses) {
    loop {
        state.incomplete().await;
        if tokio::time::timeout(PATIENCE, state.synced()).await.is_ok() {
            continue;
        }
        loop {
            let why = incomplete(&state.read());
            pauses.note(Source::State, why);
            if tokio::time::timeout(REVIEW, state.synced()).await.is_ok() {
                break;
            }
        }
        pauses.note(Source::State, None);
    }
}

/// Why planning is still paused by the condition that a former leader left behind, whether or not
/// this one has waited long enough to say so by itself.
pub(crate) fn inherited(conditions: &[Condition], cluster: &Cluster) -> Option<Why> {
    let paused = active(conditions).filter(|it| it.status == ConditionStatus::False)?;
    let by_state = [UNLISTED, LAUNCHING].contains(&paused.reason.as_str());
    by_state.then(|| incomplete(cluster)).flatten()
}

/// Why the state can't be planned on.
fn incomplete(cluster: &Cluster) -> Option<Why> {
    let unlisted: Vec<String> = cluster.unlisted().map(|kind| format!("{kind:?}")).collect();
    if !unlisted.is_empty() {
        let message = format!(
            "waiting for the first list of {} from the API server; the operator's log says why it fails",
            unlisted.join(", ")
        );
        return Some(Why { reason: UNLISTED, message });
    }
    let launching: Vec<_> =
        cluster.claims().filter(|claim| claim.provider_id().is_none()).collect();
    if launching.is_empty() {
        return None;
    }
    let mut named: Vec<String> =
        launching.iter().take(NAMED).map(|claim| describe_launch(claim)).collect();
    if launching.len() > NAMED {
        named.push(format!("and {} more", launching.len() - NAMED));
    }
    let message = format!(
        "waiting for the instances of NodeClaims that have no provider ID yet, because planning \
         without them would launch nodes twice: {}",
        named.join(", ")
    );
    Some(Why { reason: LAUNCHING, message })
}

/// A NodeClaim, and how its launch goes.
fn describe_launch(claim: &NodeClaim) -> String {
    let conditions = claim.status.as_ref().map(|status| status.conditions.as_slice());
    let launched = conditions.unwrap_or_default().iter().find(|it| it.type_ == LAUNCHED);
    let name = name(&claim.metadata);
    match launched.filter(|it| it.status != ConditionStatus::True && !it.reason.is_empty()) {
        Some(launched) => format!("{name} ({})", launched.reason),
        None => name,
    }
}

/// A planner that panics whatever it is given.
pub(crate) fn panics(source: Source) -> Why {
    let what = match source {
        Source::Disruption => "for nodes that may be removed",
        Source::State | Source::Provisioning => "for pending pods",
    };
    let message = format!(
        "a defect of the operator: planning {what} panics. It is retried; please report it with \
         the operator's log and the output of: tenon simulate --live --save snapshot.json"
    );
    Why { reason: "PlannerPanics", message }
}

/// What is found about one NodePool.
#[derive(Clone, Debug, Default)]
pub(crate) struct Findings {
    /// What holds up planning for all NodePools.
    pub everywhere: Option<Why>,
    /// Why the instance types of its NodeClass are not known.
    pub no_catalog: Option<String>,
    /// Until when pods are left out because planning for them panics.
    pub left_out: Option<Timestamp>,
}

/// Sets the condition `PlanningActive`, the others being set.
pub(crate) fn judge(set: &mut Conditions<'_>, found: &Findings) {
    let type_ = PLANNING_ACTIVE;
    let root = set.root().filter(|root| root.status != ConditionStatus::True);
    if let Some(root) = root.map(|root| root.message.clone()) {
        set.set_false(type_, "NodePoolNotReady", &root);
    } else if let Some(why) = &found.everywhere {
        set.set_false(type_, why.reason, &why.message);
    } else if let Some(why) = &found.no_catalog {
        set.set_false(type_, "InstanceTypesUnknown", why);
    } else if let Some(until) = found.left_out {
        let message = format!(
            "planning for some pods panics, and continues without them until {until}; they have an \
             event FailedScheduling"
        );
        set.set_true_because(type_, "PodsLeftOut", &message);
    } else {
        set.set_true(type_);
    }
}

/// The condition `PlanningActive` of a NodePool.
fn active(conditions: &[Condition]) -> Option<&Condition> {
    conditions.iter().find(|condition| condition.type_ == PLANNING_ACTIVE)
}

/// How long a pause has lasted by its condition.
fn lasted(condition: &Condition, now: Timestamp) -> Duration {
    let lasted = now.duration_since(condition.last_transition_time.0);
    Duration::try_from(lasted).unwrap_or_default()
}

/// What is to be said after the conditions of a NodePool went from `before` to those that it has,
/// and when to look again because there will be something.
pub(crate) fn news(
    before: &[Condition],
    pool: &NodePool,
    now: Timestamp,
) -> (Option<Event>, Option<Duration>) {
    let after = pool.status.as_ref().map(|status| status.conditions.as_slice());
    let Some(after) = active(after.unwrap_or_default()) else { return (None, None) };
    if after.status == ConditionStatus::False {
        let lasted = lasted(after, now);
        if lasted < TOLD_AFTER {
            return (None, Some(TOLD_AFTER.saturating_sub(lasted)));
        }
        let message = format!("Planning is paused, {}: {}", after.reason, after.message);
        let event = Event::warning(pool, Reason::PlanningPaused, message);
        let since = after.last_transition_time.0.to_string();
        return (
            Some(event.distinct_by(&after.reason).distinct_by(since).superseding().within(ONCE)),
            None,
        );
    }
    let was_told = active(before)
        .filter(|before| before.status == ConditionStatus::False)
        .is_some_and(|before| lasted(before, now) >= TOLD_AFTER);
    let resumed = || {
        let since = after.last_transition_time.0.to_string();
        Event::normal(pool, Reason::PlanningResumed, "Planning is resumed").distinct_by(since)
    };
    (was_told.then(resumed), None)
}

#[cfg(test)]
mod tests;
