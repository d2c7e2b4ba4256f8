//! From what the planner decided, and what the controllers did, to entries of the ledger. What
//! comes from users or from AWS is bounded here.

use std::collections::{BTreeMap, BTreeSet};

use jiff::SignedDuration;
use tenon_crds::NodeClaim;
use tenon_planner::plan::{Candidate, Command, Launch, Method, PodRef, StayReason};
use tenon_planner::resources::MicroUsd;
use tenon_planner::snapshot::DisruptionReason;
use tenon_state::decision::{Action, Decision, Kind, Names, Outcome, Price, State};
use tenon_state::explain;

use crate::claims::pool_of;
use crate::state::cluster::name;
use crate::text::truncate;

/// Longest reason or message, in bytes.
pub(super) const MESSAGE: usize = 1024;
/// Longest name of an object, in bytes: the API server's.
const NAME: usize = 253;
/// Longest alternative, in bytes.
const ALTERNATIVE: usize = 256;
/// The most names in a list.
const NAMED: usize = 50;
/// How many instance types are named.
const TYPES: usize = 5;

/// What a command whose candidates are deleted waits for.
pub(super) const DRAINING: &str = "draining";

/// Why a NodeClaim is deleted by itself, outside of the disruption commands.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Cause<'a> {
    /// It is as old as its `expireAfter`.
    Expired(Option<SignedDuration>),
    /// Its capacity block is about to end.
    CapacityBlock(&'a str),
    /// Its node is unhealthy (`--legacy-node-repair`, or a reboot that did not help).
    Unhealthy(&'a str),
    /// AWS takes its instance.
    Interrupted(&'a str),
    /// Its static NodePool has more nodes than `spec.replicas`.
    Surplus,
    /// Its instance does not exist any more.
    NoInstance,
    /// It was not launched, or its node did not join: the end of a launch, not a decision of its
    /// own.
    NotLaunched(&'a str),
}

/// A text of at most so many bytes on one line, without characters that change how the rest of a
/// line is shown.
pub(super) fn text(text: &str, limit: usize) -> String {
    let reorders = |c: char| matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let clean = |c: char| if c.is_control() || reorders(c) { ' ' } else { c };
    // Longer ones are cut before they are copied.
    let clean: String = truncate(text, limit).chars().map(clean).collect();
    truncate(clean.trim(), limit)
}

fn names(all: impl ExactSizeIterator<Item = String>) -> Names {
    let count = all.len();
    Names { count, names: all.take(NAMED).map(|it| text(&it, NAME)).collect() }
}

fn pods(all: &[&PodRef]) -> Names {
    names(all.iter().map(|pod| format!("{}/{}", pod.namespace, pod.name)))
}

fn pools<'a>(all: impl Iterator<Item = &'a str>) -> Vec<String> {
    let pools: BTreeSet<&str> = all.filter(|pool| !pool.is_empty()).collect();
    pools.into_iter().take(NAMED).map(|pool| text(pool, NAME)).collect()
}

fn pending(message: &str) -> Outcome {
    Outcome { message: text(message, MESSAGE), ..Outcome::default() }
}

/// `1 pod`, `2 pods`
fn counted(n: usize, noun: &str) -> String {
    format!("{n} {noun}{}", if n == 1 { "" } else { "s" })
}

/// A launch: of this NodeClaim, if it could be created.
pub(super) fn launch_decision(launch: &Launch, claim: Option<&str>) -> Decision {
    let n_pods = launch.pods.len();
    let reason = match (n_pods, launch.buffer_pods.len()) {
        (0, 0) => "its static NodePool has fewer nodes than spec.replicas".to_owned(),
        (0, n) => {
            format!("{} of CapacityBuffers fit on no existing node", counted(n, "virtual pod"))
        }
        (1, _) => "a pending pod fits on no existing node".to_owned(),
        (n, _) => format!("{n} pending pods fit on no existing node"),
    };
    let first = launch.instance_types.first().map(String::as_str).unwrap_or_default();
    let others: Vec<&str> =
        launch.instance_types.iter().skip(1).take(TYPES).map(String::as_str).collect();
    let alternatives = match launch.instance_types.len() {
        0 | 1 => Vec::new(),
        n => {
            let more = n - 1 - others.len();
            let more = if more == 0 { String::new() } else { format!(" and {more} more") };
            let text = format!("used if {first} is not available: {}{more}", others.join(", "));
            vec![truncate(&text, ALTERNATIVE)]
        }
    };
    Decision {
        kind: Kind::Launch,
        action: Action::Launch,
        reason,
        alternatives,
        node_pools: pools([launch.node_pool.as_str()].into_iter()),
        node_claims: names(claim.into_iter().map(str::to_owned).collect::<Vec<_>>().into_iter()),
        pods: pods(&launch.pods.iter().collect::<Vec<_>>()),
        price: Some(Price { before: 0.0, after: launch.price.as_usd() }),
        result: pending(&format!("cheapest instance type: {first}")),
        ..Decision::default()
    }
}

/// A command, with the Nodes of its candidates and the NodeClaims that replace them.
pub(super) fn command(
    command: &Command,
    nodes: Vec<String>,
    replacements: Vec<String>,
    drifted: Option<&str>,
) -> Decision {
    let n_nodes = command.candidates.len();
    let moving: Vec<&PodRef> = command.candidates.iter().flat_map(|it| &it.pods).collect();
    let action = if command.terminate_first.is_some() {
        Action::TerminateFirst
    } else if command.replacements.is_empty() {
        Action::Delete
    } else {
        Action::Replace
    };
    let mut reason = why(command, moving.len(), drifted);
    for score in command.scores.iter().take(3) {
        reason.push_str("; ");
        reason.push_str(&explain::weighed(score));
    }
    let message = match replacements.len() {
        0 => DRAINING.to_owned(),
        1 => "waiting until its replacement is initialized".to_owned(),
        n => format!("waiting until {n} replacements are initialized"),
    };
    Decision {
        kind: kind(command.method),
        action,
        reason: text(&reason, MESSAGE),
        alternatives: rejected_alternatives(command, n_nodes),
        node_pools: pools(command.candidates.iter().map(|it| it.node_pool.as_str())),
        node_claims: names(command.candidates.iter().map(|it| it.claim.clone())),
        nodes: names(nodes.into_iter()),
        replacements: names(replacements.into_iter()),
        pods: pods(&moving),
        price: price(command),
        result: pending(&message),
        ..Decision::default()
    }
}

fn kind(method: Method) -> Kind {
    match method {
        Method::Repair => Kind::Repair,
        Method::Drift => Kind::Drift,
        Method::Emptiness | Method::MultiNodeConsolidation | Method::SingleNodeConsolidation => {
            Kind::Consolidation
        }
    }
}

fn why(command: &Command, n_pods: usize, drifted: Option<&str>) -> String {
    let n_nodes = command.candidates.len();
    let (its, n_new) = (if n_nodes == 1 { "its" } else { "their" }, command.replacements.len());
    match command.method {
        Method::Emptiness => "no pods that would have to move".to_owned(),
        Method::Drift => {
            let what = drifted.map(|what| format!(": {what}")).unwrap_or_default();
            format!("differs from its NodePool or NodeClass{what}")
        }
        Method::Repair => command.repair.as_ref().map_or_else(String::new, |repair| {
            let because = if repair.reason.is_empty() {
                String::new()
            } else {
                format!(" ({})", repair.reason)
            };
            let escalated =
                if repair.escalated { "; replaced, because reboots did not help" } else { "" };
            format!(
                "unhealthy: {} is {}{because}, tolerated until {}{escalated}",
                repair.condition,
                repair.status,
                repair.eligible_at.strftime("%H:%M:%SZ")
            )
        }),
        Method::MultiNodeConsolidation | Method::SingleNodeConsolidation => {
            let pods = counted(n_pods, "pod");
            let fit = if n_pods == 1 { "fits" } else { "fit" };
            match (n_new, command.nominations.len()) {
                (0, _) => format!("{its} {pods} {fit} on other nodes"),
                (1, 0) => format!("{its} {pods} {fit} on a cheaper node"),
                (1, _) => format!("{its} {pods} {fit} on other nodes and a cheaper one"),
                (n, _) => format!("{its} {pods} {fit} on {n} cheaper nodes"),
            }
        }
    }
}

/// What would have been less: to launch nothing, or to wait.
fn rejected_alternatives(command: &Command, n_nodes: usize) -> Vec<String> {
    let it = if n_nodes == 1 { "it" } else { "them" };
    let mut rejected = Vec::new();
    if !command.replacements.is_empty() {
        rejected
            .push(format!("delete {it} without a replacement: not all pods fit on other nodes"));
    }
    if let Some(first) = &command.terminate_first {
        rejected.push(format!("launch the replacement first: {}", first.reason.as_str()));
    }
    let types = command.replacements.first().map(|launch| &launch.instance_types);
    if let Some((first, rest)) = types.and_then(|types| types.split_first())
        && !rest.is_empty()
    {
        let others: Vec<&str> = rest.iter().take(TYPES).map(String::as_str).collect();
        rejected.push(format!("used if {first} is not available: {}", others.join(", ")));
    }
    rejected.iter().map(|it| text(it, ALTERNATIVE)).collect()
}

/// What the candidates cost, and what takes their place.
fn price(command: &Command) -> Option<Price> {
    let before: i64 =
        command.candidates.iter().map(|it| it.price.map(|price| price.0)).sum::<Option<i64>>()?;
    let after: i64 = command.launches().map(|launch| launch.price.0).sum();
    Some(Price { before: MicroUsd(before).as_usd(), after: MicroUsd(after).as_usd() })
}

/// The reboot of a candidate.
pub(super) fn reboot(planned: &Command, candidate: &Candidate, claim: &NodeClaim) -> Decision {
    Decision {
        kind: Kind::Repair,
        action: Action::Reboot,
        reason: text(&why(planned, candidate.pods.len(), None), MESSAGE),
        alternatives: Vec::new(),
        node_pools: pools([candidate.node_pool.as_str()].into_iter()),
        node_claims: names([candidate.claim.clone()].into_iter()),
        nodes: node_of(claim),
        pods: pods(&candidate.pods.iter().collect::<Vec<_>>()),
        result: pending("draining for the reboot"),
        ..Decision::default()
    }
}

/// A command that did not hold, and what it is counted by.
pub(super) fn rejected(planned: &Command, why: &str) -> (String, Decision) {
    let mut decision = command(planned, Vec::new(), Vec::new(), None);
    let key = format!("rejected {:?} {}", planned.method, decision.node_pools.join(" "));
    decision.reason = text(
        &format!("{} was planned and did not hold 15 s later: {why}", what(decision.kind)),
        MESSAGE,
    );
    decision.kind = Kind::Refusal;
    decision.action = Action::Stay;
    decision.result = Outcome { state: State::Refused, ..Outcome::default() };
    (key, decision)
}

fn what(kind: Kind) -> &'static str {
    match kind {
        Kind::Consolidation => "consolidation",
        other => other.as_str(),
    }
}

/// A NodeClaim that is deleted by itself; or why its launch has failed.
pub(super) fn ended(claim: &NodeClaim, cause: Cause<'_>) -> Result<Decision, String> {
    let (kind, reason) = match cause {
        Cause::Expired(after) => {
            let after = after.map(|after| format!(" of {after:#}")).unwrap_or_default();
            (Kind::Expiration, format!("older than its expireAfter{after}"))
        }
        Cause::CapacityBlock(id) => {
            (Kind::Expiration, format!("its capacity block {id} is about to end"))
        }
        Cause::Unhealthy(why) => (Kind::Repair, format!("unhealthy: {why}")),
        Cause::Interrupted(what) => (Kind::Interruption, what.to_owned()),
        Cause::Surplus => {
            (Kind::Cleanup, "its static NodePool has more nodes than spec.replicas".to_owned())
        }
        Cause::NoInstance => (Kind::Cleanup, "its instance does not exist any more".to_owned()),
        Cause::NotLaunched(why) => return Err(text(why, MESSAGE)),
    };
    let result = pending(DRAINING);
    Ok(Decision { kind, action: Action::Delete, result, ..about(claim, &reason) })
}

/// What AWS announces, and nothing is done about yet.
pub(super) fn announced(claim: &NodeClaim, what: &str) -> Decision {
    let result = Outcome { state: State::Done, ..Outcome::default() };
    Decision { kind: Kind::Interruption, action: Action::Notice, result, ..about(claim, what) }
}

fn about(claim: &NodeClaim, reason: &str) -> Decision {
    Decision {
        reason: text(reason, MESSAGE),
        node_pools: pools([pool_of(claim)].into_iter()),
        node_claims: names([name(&claim.metadata)].into_iter()),
        nodes: node_of(claim),
        ..Decision::default()
    }
}

fn node_of(claim: &NodeClaim) -> Names {
    names(claim.node_name().into_iter().map(str::to_owned).collect::<Vec<_>>().into_iter())
}

/// What is said of candidates that stay after all.
pub(super) fn abandoned(why: &str, n_claims: usize) -> String {
    let stay = if n_claims == 1 { "its node stays" } else { "its nodes stay" };
    text(&format!("{why}; {stay}"), MESSAGE)
}

/// Nodes that stay: NodePool, node, reason, and the reason in words. One decision for each NodePool
/// and kind of reason, with what it is counted by.
pub(super) fn refusals<'a>(
    staying: impl IntoIterator<Item = (&'a str, &'a str, &'a StayReason, &'a str)>,
) -> Vec<(String, Decision)> {
    let mut found: BTreeMap<(&str, &str), BTreeMap<&str, &str>> = BTreeMap::new();
    for (pool, node, reason, message) in staying {
        if let Some(class) = class(reason) {
            found.entry((pool, class)).or_default().insert(node, message);
        }
    }
    let decisions = found.into_iter().map(|((pool, class), nodes)| {
        let reason = nodes.values().next().copied().unwrap_or_default();
        let decision = Decision {
            kind: Kind::Refusal,
            action: Action::Stay,
            reason: text(reason, MESSAGE),
            node_pools: pools([pool].into_iter()),
            nodes: names(nodes.keys().map(|&node| node.to_owned())),
            result: Outcome { state: State::Refused, ..Outcome::default() },
            ..Decision::default()
        };
        (format!("stays {pool} {class}"), decision)
    });
    decisions.collect()
}

/// What a node that would go otherwise is kept by. That pods are expected on it, that it is
/// starting, or that nothing cheaper is found is its normal life.
fn class(reason: &StayReason) -> Option<&'static str> {
    Some(match reason {
        StayReason::DeletionRefused(_) => "deletion refused",
        StayReason::DoNotDisrupt => "do not disrupt",
        StayReason::PodDoNotDisrupt(_) => "pod",
        StayReason::Pdb { .. } => "pdb",
        StayReason::PdbUsedUp { .. } => "pdb used up",
        StayReason::Budget(DisruptionReason::Empty) => "budget for empty",
        StayReason::Budget(DisruptionReason::Drifted) => "budget for drifted",
        StayReason::Budget(DisruptionReason::Underutilized) => "budget for underutilized",
        StayReason::Budget(DisruptionReason::Unhealthy) => "budget for unhealthy",
        StayReason::NoStaticReplacement => "no static replacement",
        StayReason::StaticReservationsFull => "static reservations full",
        StayReason::StaticNotReady => "static not ready",
        StayReason::DoNotRepair => "do not repair",
        StayReason::RepairNeedsNodePool => "repair needs nodepool",
        StayReason::RepairNeedsGracePeriod(_) => "repair needs grace period",
        StayReason::TooManyUnhealthy { .. } => "too many unhealthy",
        StayReason::NotManaged
        | StayReason::NotInitialized
        | StayReason::Deleting
        | StayReason::Nominated
        | StayReason::MissingLabel(_)
        | StayReason::NotConsolidatable
        | StayReason::PodsDontFit(_)
        | StayReason::NeedsSeveralReplacements
        | StayReason::NothingCheaper
        | StayReason::SpotToSpot
        | StayReason::Later
        | StayReason::Changed(_)
        | StayReason::SavesTooLittle
        | StayReason::ScoresTooLow(_)
        | StayReason::WaitsForMachine(_)
        | StayReason::Rebooting => return None,
    })
}
