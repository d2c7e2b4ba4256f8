//! What the input says about objects beyond the planner's Snapshot: scheduling gates, conditions,
//! events. Only explanations use it.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1;
use tenon_crds::conditions::{Condition, READY, nodeclaim, nodepool};
use tenon_crds::labels::FROZEN;
use tenon_crds::{ConditionStatus, NodeClaim, NodePool};

use super::expand::{name, namespace};
use super::input::Input;

/// Older events say nothing about now.
const RECENT: SignedDuration = SignedDuration::from_mins(15);

/// Conditions and events, by the names of their objects.
#[derive(Debug, Default)]
pub(super) struct Observed {
    /// Gates of pods, by namespace and name.
    gates: BTreeMap<(String, String), Vec<String>>,
    /// Conditions of NodeClaims.
    claims: BTreeMap<String, Vec<Condition>>,
    /// NodeClaims that are being deleted, and since when.
    deleted: BTreeMap<String, Timestamp>,
    /// Conditions of NodePools.
    pools: BTreeMap<String, Vec<Condition>>,
    /// NodePools that are paused.
    frozen: Vec<String>,
    /// Conditions of EC2NodeClasses.
    classes: BTreeMap<String, Vec<Condition>>,
    /// Recent events, the latest first.
    events: Vec<Event>,
}

/// An event of Kubernetes.
#[derive(Debug, Clone)]
pub(super) struct Event {
    kind: String,
    namespace: String,
    name: String,
    /// `reason`
    pub(super) reason: String,
    /// `message`
    pub(super) message: String,
    /// From kube-scheduler.
    from_scheduler: bool,
    /// The last time that it happened.
    pub(super) at: Timestamp,
}

/// How far the removal of a node has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Removal {
    /// Why, as the operator names it; none for a NodeClaim that another program deleted.
    pub(super) reason: Option<String>,
    /// Since when.
    pub(super) since: Timestamp,
    /// What it is at.
    pub(super) step: &'static str,
}

impl Observed {
    /// Of an input whose names and namespaces are complete.
    pub(super) fn new(input: &Input, now: Timestamp) -> Self {
        let gates = input.pods.iter().filter(|pod| !pod.spec.scheduling_gates.is_empty());
        let gates = gates.map(|pod| {
            let names = pod.spec.scheduling_gates.iter().map(|gate| gate.name.clone());
            ((namespace(&pod.metadata), name(&pod.metadata)), names.collect())
        });
        let classes = input.ec2_classes.iter().filter_map(|class| {
            Some((name(&class.metadata), class.status.as_ref()?.conditions.clone()))
        });
        let mut observed = Self {
            gates: gates.collect(),
            classes: classes.collect(),
            ..Self::of(input.claims.iter(), input.pools.iter())
        };
        observed.add(&input.events, now);
        observed
    }

    /// Of these NodeClaims and NodePools, and nothing else.
    pub(super) fn of<'a>(
        claims: impl Iterator<Item = &'a NodeClaim>,
        pools: impl Iterator<Item = &'a NodePool>,
    ) -> Self {
        let mut observed = Self::default();
        for claim in claims {
            let name = name(&claim.metadata);
            if let Some(since) = &claim.metadata.deletion_timestamp {
                observed.deleted.insert(name.clone(), since.0);
            }
            if let Some(status) = &claim.status {
                observed.claims.insert(name, status.conditions.clone());
            }
        }
        for pool in pools {
            let name = name(&pool.metadata);
            let annotations = pool.metadata.annotations.as_ref();
            if annotations.is_some_and(|all| all.contains_key(FROZEN)) {
                observed.frozen.push(name.clone());
            }
            if let Some(status) = &pool.status {
                observed.pools.insert(name, status.conditions.clone());
            }
        }
        observed
    }

    /// Adds events, as far as they say something about now.
    pub(super) fn add(&mut self, events: &[v1::Event], now: Timestamp) {
        let recent = events.iter().map(Event::from);
        self.events.extend(recent.filter(|event| now.duration_since(event.at) <= RECENT));
        self.events.sort_by(|a, b| (b.at, &a.name).cmp(&(a.at, &b.name)));
    }

    /// The scheduling gates of a pod.
    pub(super) fn gates(&self, namespace: &str, name: &str) -> &[String] {
        self.gates.get(&(namespace.to_owned(), name.to_owned())).map_or(&[], Vec::as_slice)
    }

    /// Whether a NodePool is paused.
    pub(super) fn is_frozen(&self, pool: &str) -> bool {
        self.frozen.iter().any(|frozen| frozen == pool)
    }

    /// Why the NodeClass of a NodePool is not ready, as the NodePool has it.
    pub(super) fn class_condition(&self, pool: &str) -> Option<&Condition> {
        let conditions = self.pools.get(pool)?;
        conditions.iter().find(|it| it.type_ == nodepool::NODE_CLASS_READY && is_not_true(it))
    }

    /// The conditions of an EC2NodeClass that do not hold.
    pub(super) fn class_problems(&self, class: &str) -> Vec<&Condition> {
        let conditions = self.classes.get(class).map_or(&[][..], Vec::as_slice);
        conditions.iter().filter(|it| it.type_ != READY && is_not_true(it)).collect()
    }

    /// A condition of a NodePool that does not hold, other than those that follow from others.
    pub(super) fn pool_problem(&self, pool: &str) -> Option<&Condition> {
        let conditions = self.pools.get(pool)?;
        let not = |type_: &str| conditions.iter().find(|it| it.type_ == type_ && is_not_true(it));
        not(nodepool::VALIDATION_SUCCEEDED).or_else(|| not(READY))
    }

    /// A condition of a NodeClaim.
    fn claim_condition(&self, claim: &str, type_: &str) -> Option<&Condition> {
        self.claims.get(claim)?.iter().find(|it| it.type_ == type_)
    }

    /// Why a NodeClaim is not launched, if its condition says so.
    pub(super) fn launch_problem(&self, claim: &str) -> Option<&Condition> {
        self.claim_condition(claim, nodeclaim::LAUNCHED).filter(|it| {
            // Before the first attempt there is nothing to say.
            is_not_true(it) && (!it.message.is_empty() && it.reason != "AwaitingReconciliation")
        })
    }

    /// Since when the instance of a NodeClaim runs without its node having joined.
    pub(super) fn unregistered_since(&self, claim: &str) -> Option<Timestamp> {
        let launched = self.claim_condition(claim, nodeclaim::LAUNCHED)?;
        let registered = self.claim_condition(claim, nodeclaim::REGISTERED);
        let waits = launched.status == ConditionStatus::True && registered.is_none_or(is_not_true);
        waits.then_some(launched.last_transition_time.0)
    }

    /// How far the removal of a NodeClaim has come, if it has begun.
    pub(super) fn removal(&self, claim: &str) -> Option<Removal> {
        let holds = |type_| {
            self.claim_condition(claim, type_).filter(|it| it.status == ConditionStatus::True)
        };
        let reason = holds(nodeclaim::DISRUPTION_REASON);
        let step = match self.deleted.get(claim) {
            None => {
                let since = reason?.last_transition_time.0;
                (since, "waits for its replacement")
            }
            Some(&since) if holds(nodeclaim::INSTANCE_TERMINATING).is_some() => {
                (since, "its instance is terminating")
            }
            Some(&since) if holds(nodeclaim::DRAINED).is_some() => {
                (since, "waits for its volumes to be detached")
            }
            Some(&since) => (since, "draining"),
        };
        let reason = reason.map(|it| line(&it.reason)).filter(|reason| !reason.is_empty());
        Some(Removal { reason, since: step.0, step: step.1 })
    }

    /// What the operator reports about nodes that it would disrupt but must not, the latest of each
    /// Node or NodeClaim.
    pub(super) fn blocked(&self) -> impl Iterator<Item = (&str, String)> {
        let blocked = self.events.iter().filter(|event| event.reason == "DisruptionBlocked");
        let of_nodes = blocked.filter(|event| matches!(&*event.kind, "Node" | "NodeClaim"));
        let mut seen = BTreeSet::new();
        of_nodes
            .filter(move |event| seen.insert(event.name.as_str()))
            .map(|event| (event.name.as_str(), line(&event.message)))
    }

    /// Why a NodePool is not ready, or takes no part in planning.
    pub(super) fn pool_state(&self, pool: &str) -> Option<&Condition> {
        let conditions = self.pools.get(pool)?;
        let not = |type_: &str| conditions.iter().find(|it| it.type_ == type_ && is_not_true(it));
        self.class_condition(pool)
            .or_else(|| self.pool_problem(pool))
            .or_else(|| not(nodepool::PLANNING_ACTIVE))
    }

    /// The latest failed launch for a pod, or of a NodePool.
    pub(super) fn failed_launch(
        &self,
        pod: (&str, &str),
        pool: Option<&str>,
        claim: Option<&str>,
    ) -> Option<&Event> {
        self.events.iter().find(|event| {
            let failed = matches!(
                event.reason.as_str(),
                "InsufficientCapacityError" | "LaunchFailed" | "NodeClassNotReady"
            );
            let of_claim = || {
                claim == Some(&event.name)
                    || pool.is_some_and(|pool| {
                        event.name.rsplit_once('-').is_some_and(|(prefix, _)| prefix == pool)
                    })
            };
            failed
                && match event.kind.as_str() {
                    "Pod" => (event.namespace.as_str(), event.name.as_str()) == pod,
                    "NodeClaim" => of_claim(),
                    _ => false,
                }
        })
    }

    /// What kube-scheduler last reported about a pod that it did not place.
    pub(super) fn scheduler(&self, namespace: &str, name: &str) -> Option<&Event> {
        self.events.iter().find(|event| {
            event.from_scheduler
                && event.reason == "FailedScheduling"
                && event.kind == "Pod"
                && event.namespace == namespace
                && event.name == name
        })
    }
}

fn is_not_true(condition: &Condition) -> bool {
    condition.status != ConditionStatus::True
}

impl Event {
    /// What it reports, without the name of its object, which events of NodeClaims begin with.
    pub(super) fn report(&self) -> String {
        let message = line(&self.message);
        let rest = message.strip_prefix("NodeClaim ").and_then(|rest| {
            rest.split_once(" event: ").or(rest.split_once(" failed to launch: "))
        });
        rest.map_or(message.clone(), |(_, rest)| rest.to_owned())
    }
}

impl From<&v1::Event> for Event {
    fn from(event: &v1::Event) -> Self {
        let object = &event.involved_object;
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        let scheduler = Some("default-scheduler");
        let component = event.source.as_ref().and_then(|source| source.component.as_deref());
        let series = event.series.as_ref().and_then(|series| series.last_observed_time.as_ref());
        let at = (event.last_timestamp.as_ref().map(|time| time.0))
            .or(series.map(|time| time.0))
            .or(event.event_time.as_ref().map(|time| time.0))
            .or(event.metadata.creation_timestamp.as_ref().map(|time| time.0));
        Self {
            kind: text(&object.kind),
            namespace: text(&object.namespace),
            name: text(&object.name),
            reason: text(&event.reason),
            message: text(&event.message),
            from_scheduler: component == scheduler
                || event.reporting_component.as_deref() == scheduler,
            at: at.unwrap_or(Timestamp::MIN),
        }
    }
}

/// A message of another program on one line, without control characters, which a terminal would
/// obey.
pub(super) fn line(message: &str) -> String {
    let printable: String = message.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let words: Vec<&str> = printable.split_whitespace().collect();
    words.join(" ").trim_end_matches([':', ',', ' ']).to_owned()
}

/// `Reason: message`, without what is empty.
pub(super) fn condition(condition: &Condition) -> String {
    let parts = [line(&condition.reason), line(&condition.message)];
    let parts: Vec<&str> = parts.iter().map(String::as_str).filter(|it| !it.is_empty()).collect();
    if parts.is_empty() { "no reason is given".to_owned() } else { parts.join(": ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_others_fit_on_a_line_and_command_no_terminal() {
        assert_eq!(line("a\n\tb \u{1b}[2J: "), "a b [2J");
        assert_eq!(line(""), "");
    }
}
