//! Which machines are unhealthy, and the actions that their provider's repair policies require.

mod breaker;
mod legacy;

use jiff::{SignedDuration, Timestamp};
use regex_lite::Regex;
use thiserror::Error;

use crate::snapshot::{Node, NodeCondition, RepairAction, RepairPolicy};

pub(crate) use breaker::Breaker;
pub use legacy::{Forced, forced, next_due};

/// This many minutes past its toleration, a machine is as urgent as one whose policy has the next
/// higher priority.
const MINUTES_PER_RANK: f64 = 30.0;

/// The number of reboots within [`REMEMBERED`] after which a machine is replaced instead.
const MOST_REBOOTS: usize = 2;

/// The period for which a reboot counts towards [`MOST_REBOOTS`].
const REMEMBERED: SignedDuration = SignedDuration::from_hours(24);

/// A violation in a set of repair policies.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum RepairPolicyError {
    /// The condition type is empty.
    #[error("repair policy {at} names no condition type")]
    NoCondition {
        /// Index in the set, from 0.
        at: usize,
    },
    /// The status is none of `True`, `False` and `Unknown`.
    #[error("repair policy {at} has the condition status {status:?}: use True, False or Unknown")]
    Status {
        /// Index in the set, from 0.
        at: usize,
        /// The rejected value.
        status: String,
    },
    /// A duration below zero.
    #[error("repair policy {at} has a negative {field}")]
    Negative {
        /// Index in the set, from 0.
        at: usize,
        /// `toleration` or `terminationGracePeriod`.
        field: &'static str,
    },
    /// The priority is outside of 0 to 100.
    #[error("repair policy {at} has the priority {priority}: use 0 to 100")]
    Priority {
        /// Index in the set, from 0.
        at: usize,
        /// The rejected value.
        priority: i32,
    },
    /// The reason is no valid regular expression.
    #[error("repair policy {at} has a reason that is no regular expression: {why}")]
    Reason {
        /// Index in the set, from 0.
        at: usize,
        /// The message of the parser.
        why: String,
    },
    /// The set needs exactly one fallback: a policy without a reason, for reasons that no other one
    /// matches.
    #[error(
        "{found} repair policies have no reason: exactly one has to, which applies where no other does; use .* for any reason"
    )]
    Fallbacks {
        /// The number of policies without a reason.
        found: usize,
    },
    /// The fallback may only replace nodes: a reboot is no remedy for an unknown reason.
    #[error("repair policy {at} has no reason, so its action has to be replaceNode")]
    FallbackReboots {
        /// Index in the set, from 0.
        at: usize,
    },
}

/// Checks a provider's set of policies and returns all violations, in the order of the policies.
pub fn validate(policies: &[RepairPolicy]) -> Result<(), Vec<RepairPolicyError>> {
    let mut errors = Vec::new();
    for (at, policy) in policies.iter().enumerate() {
        if policy.condition.is_empty() {
            errors.push(RepairPolicyError::NoCondition { at });
        }
        if !["True", "False", "Unknown"].contains(&policy.status.as_str()) {
            errors.push(RepairPolicyError::Status { at, status: policy.status.clone() });
        }
        let grace = policy.termination_grace_period.unwrap_or_default();
        for (field, value) in [("toleration", policy.toleration), ("terminationGracePeriod", grace)]
        {
            if value.is_negative() {
                errors.push(RepairPolicyError::Negative { at, field });
            }
        }
        if !(0..=100).contains(&policy.priority) {
            errors.push(RepairPolicyError::Priority { at, priority: policy.priority });
        }
        if let Some(Err(why)) = policy.reason.as_deref().map(Regex::new) {
            errors.push(RepairPolicyError::Reason { at, why: why.to_string() });
        }
        if policy.reason.is_none() && policy.action != RepairAction::ReplaceNode {
            errors.push(RepairPolicyError::FallbackReboots { at });
        }
    }
    let found = policies.iter().filter(|policy| policy.reason.is_none()).count();
    if found != 1 {
        errors.push(RepairPolicyError::Fallbacks { found });
    }
    if errors.is_empty() { Ok(()) } else { Err(errors) }
}

/// A provider's policies, compiled.
pub(crate) struct Policies<'a> {
    all: &'a [RepairPolicy],
    /// Patterns of the reasons; `None` for the fallback, and for an invalid expression, which
    /// matches nothing.
    reasons: Vec<Option<Regex>>,
    /// By policy: the number of distinct lower priorities in the set.
    ranks: Vec<usize>,
    fallback: Option<usize>,
}

/// A policy that applies to a condition.
#[derive(Clone, Copy, Debug)]
struct Match<'a> {
    condition: &'a NodeCondition,
    policy: usize,
    /// The end of the toleration.
    eligible_at: Timestamp,
}

/// The action for an unhealthy machine.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Verdict<'a> {
    /// The condition whose policy requires `action`: the highest priority, then the earliest end of
    /// toleration.
    pub(crate) condition: &'a NodeCondition,
    /// Index of the policy that applies to `condition`.
    pub(crate) policy: usize,
    pub(crate) eligible_at: Timestamp,
    pub(crate) action: RepairAction,
    /// A reboot that became a replacement after [`MOST_REBOOTS`].
    pub(crate) escalated: bool,
    /// The shortest limit on draining of all policies that apply.
    pub(crate) drain_bound: Option<SignedDuration>,
    /// Urgency; the highest is repaired first.
    pub(crate) score: f64,
}

impl<'a> Policies<'a> {
    pub(crate) fn new(all: &'a [RepairPolicy]) -> Self {
        let reasons = all.iter().map(|policy| Regex::new(policy.reason.as_deref()?).ok());
        let mut priorities: Vec<i32> = all.iter().map(|policy| policy.priority).collect();
        priorities.sort_unstable();
        priorities.dedup();
        let rank = |policy: &RepairPolicy| priorities.partition_point(|&it| it < policy.priority);
        Self {
            all,
            reasons: reasons.collect(),
            ranks: all.iter().map(rank).collect(),
            fallback: all.iter().position(|policy| policy.reason.is_none()),
        }
    }

    pub(crate) fn get(&self, policy: usize) -> &'a RepairPolicy {
        &self.all[policy]
    }

    /// Whether the set knows the condition in this status, whatever its reason.
    fn supports(&self, condition: &NodeCondition) -> bool {
        self.all.iter().any(|policy| is_about(policy, condition))
    }

    /// Whether a condition makes the machine sick, tolerated or not.
    pub(crate) fn is_sick(&self, node: &Node) -> bool {
        node.health.conditions.iter().any(|condition| self.supports(condition))
    }

    /// The policies that apply to a machine: for each condition, those that match its reason or,
    /// without any, the fallback.
    fn matches<'n>(&self, node: &'n Node) -> Vec<Match<'n>> {
        let mut found = Vec::new();
        for condition in node.health.conditions.iter().filter(|condition| self.supports(condition))
        {
            let specific = (0..self.all.len()).filter(|&policy| {
                let reason = self.reasons[policy].as_ref();
                is_about(&self.all[policy], condition)
                    && reason.is_some_and(|reason| reason.is_match(&condition.reason))
            });
            let mut applying: Vec<usize> = specific.collect();
            if applying.is_empty() {
                applying.extend(self.fallback);
            }
            found.extend(applying.into_iter().map(|policy| {
                let toleration = self.all[policy].toleration;
                Match { condition, policy, eligible_at: eligible_at(node, condition, toleration) }
            }));
        }
        found
    }

    /// The verdict of all policies whose toleration has ended; `None` while there are none.
    pub(crate) fn judge<'n>(&self, node: &'n Node, now: Timestamp) -> Option<Verdict<'n>> {
        let mut eligible = self.matches(node);
        eligible.retain(|it| it.eligible_at <= now);
        let policy = |it: &Match<'_>| &self.all[it.policy];
        let action = eligible.iter().map(|it| policy(it).action).max()?;
        let driver = eligible.iter().filter(|it| policy(it).action == action).min_by_key(|it| {
            (std::cmp::Reverse(policy(it).priority), it.eligible_at, &it.condition.type_)
        })?;
        let score = |it: &Match<'_>| self.score(it, now);
        let recent = node
            .health
            .reboots
            .decided_at
            .iter()
            .filter(|&&at| now.duration_since(at) < REMEMBERED);
        let escalated = action == RepairAction::RebootNode && recent.count() >= MOST_REBOOTS;
        Some(Verdict {
            condition: driver.condition,
            policy: driver.policy,
            eligible_at: driver.eligible_at,
            action: if escalated { RepairAction::ReplaceNode } else { action },
            escalated,
            drain_bound: eligible.iter().filter_map(|it| policy(it).termination_grace_period).min(),
            score: eligible.iter().map(score).fold(0.0, f64::max),
        })
    }

    /// The policy's rank, plus the time since the end of the toleration in units of
    /// [`MINUTES_PER_RANK`].
    #[expect(clippy::cast_precision_loss, reason = "a few priorities")]
    fn score(&self, it: &Match<'_>, now: Timestamp) -> f64 {
        let minutes = now.duration_since(it.eligible_at).as_secs_f64() / 60.0;
        self.ranks[it.policy] as f64 + minutes / MINUTES_PER_RANK
    }
}

fn is_about(policy: &RepairPolicy, condition: &NodeCondition) -> bool {
    policy.condition == condition.type_ && policy.status == condition.status
}

/// The end of a toleration. It starts with the condition, and not before the creation of the Node
/// or the end of a reboot.
fn eligible_at(node: &Node, condition: &NodeCondition, toleration: SignedDuration) -> Timestamp {
    let starts = [Some(condition.since), node.health.joined_at, node.health.reboots.ended_at];
    let since = starts.into_iter().flatten().max().unwrap_or(condition.since);
    since.checked_add(toleration).unwrap_or(Timestamp::MAX)
}

/// The limit on draining: that of the policies, or the NodeClaim's own period if that is shorter.
/// Without a limit in the policies, a replacement sets none, because the NodeClaim's period applies
/// anyway; a reboot sets the NodeClaim's period.
pub(crate) fn drain_bound(
    policy: Option<SignedDuration>,
    claim: Option<SignedDuration>,
    action: RepairAction,
) -> Option<SignedDuration> {
    let shorter = policy.map(|policy| claim.map_or(policy, |claim| policy.min(claim)));
    match action {
        RepairAction::ReplaceNode => shorter,
        RepairAction::RebootNode => shorter.or(claim),
    }
}

#[cfg(test)]
mod tests;
