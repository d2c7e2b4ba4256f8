//! What speaks against the move, each with what to do about it, and what a person should know
//! before.

use std::collections::BTreeSet;

use tenon_iam_policies::Scope;
use tenon_installer_core::kubernetes::operator_deployment::gitops;
use tenon_installer_core::words::{count, count_are};

use super::{Found, Kind, Ours, is_here};

/// Names of nodes that are listed; the rest is counted.
const NAMED: usize = 3;

/// What is asked for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wanted {
    /// Hooks, rules and queue stay.
    pub keep_aws: bool,
    /// Nodes that Tenon does not manage may lose their interruption handling.
    pub allow_unhandled: bool,
}

/// Why Tenon can't take over.
pub(crate) fn against(found: &Found, ours: &Ours, scope: &Scope, wanted: Wanted) -> Vec<String> {
    let mut reasons = Vec::new();
    if let Some(lacks) = &ours.lacks {
        reasons.push(format!(
            "Tenon's operator {} is not ready ({lacks}): see `tenon doctor`",
            ours.deployment
        ));
    }
    reasons.extend(against_queue(found, ours));
    for handler in found.handlers.iter().filter(|handler| !handler.is_stopped()) {
        let path = handler.live.key();
        if let Some(tool) = gitops(&handler.live.body) {
            let what = if handler.is_daemon_set() {
                "remove it in git; nothing else has to be done"
            } else {
                "set its replicas to 0 in git, and run this command again"
            };
            reasons.push(format!("{tool} manages {path} and would start it again: {what}"));
        }
        match handler.queue() {
            None if handler.reads_queue() => reasons
                .push(format!("{path} has no QUEUE_URL: it handles nothing, and can be removed")),
            Some(url) if !is_here(url, scope) && !wanted.keep_aws => reasons.push(format!(
                "the queue {url} of {path} is in another account or region: use --keep-aws, and \
                 remove it there afterwards"
            )),
            _ => {}
        }
    }
    let loses = !found.kinds().is_empty() && !wanted.allow_unhandled;
    if loses && !found.unhandled.is_empty() {
        reasons.push(format!(
            "{} neither of Tenon nor of a managed node group, so only Node Termination Handler \
             drains {}: {}. Replace them with nodes of Tenon first, or use \
             --allow-unhandled-nodes",
            count_are(found.unhandled.len(), "node"),
            if found.unhandled.len() == 1 { "it" } else { "them" },
            some(&found.unhandled)
        ));
    }
    reasons
}

/// Whether every event that Node Termination Handler handles reaches Tenon.
fn against_queue(found: &Found, ours: &Ours) -> Vec<String> {
    let Some(queue) = &ours.queue else {
        return vec![
            "Tenon has no interruption queue, so it handles no interruptions: run `tenon install` \
             with interruption.enabled: true"
                .to_owned(),
        ];
    };
    let Some(feed) = &ours.feed else {
        return vec![format!("Tenon's queue {queue} does not exist: run `tenon install`")];
    };
    let covered = feed.kinds();
    let missing = found.kinds().into_iter().filter(|kind| !covered.contains(kind));
    let missing = missing.filter_map(|kind| Some((kind, kind.event()?)));
    let reasons = missing.map(|(kind, event)| {
        format!(
            "Node Termination Handler handles {}, and no enabled rule sends them to Tenon's queue \
             {queue}: add `{}` to interruption.events, and run `tenon install`",
            kind.in_words(),
            event.rule().suffix()
        )
    });
    reasons.collect()
}

fn some(names: &BTreeSet<String>) -> String {
    let named = names.iter().take(NAMED).map(String::as_str).collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(NAMED) {
        0 => named,
        more => format!("{named} and {}", count(more, "other")),
    }
}

/// What is different afterwards.
pub(crate) fn warnings(found: &Found, wanted: Wanted) -> Vec<String> {
    let mut warnings = Vec::new();
    let kinds = found.kinds();
    let running = || found.handlers.iter().filter(|handler| !handler.is_stopped());
    let any = |variable: &str| running().any(|handler| handler.is_on(variable, false));
    if kinds.contains(&Kind::Rebalance) {
        warnings.push(
            "Node Termination Handler cordons or drains nodes on rebalance recommendations; Tenon \
             only emits an event, and drains a node when AWS announces its interruption"
                .to_owned(),
        );
    }
    if kinds.contains(&Kind::Lifecycle) {
        warnings.push(
            "nodes of Auto Scaling groups are no longer drained when their group terminates them"
                .to_owned(),
        );
    }
    if running().any(|handler| handler.options.get("WEBHOOK_URL").is_some()) {
        warnings.push(
            "Node Termination Handler calls a webhook; Tenon has metrics, events and alerts \
             instead (docs: Watch the operator with Prometheus and Grafana)"
                .to_owned(),
        );
    }
    if any("CORDON_ONLY") {
        warnings
            .push("Node Termination Handler only cordons nodes; Tenon also drains them".to_owned());
    }
    if any("DRY_RUN") {
        warnings.push("Node Termination Handler runs with DRY_RUN and drains nothing".to_owned());
    }
    if wanted.allow_unhandled && !found.unhandled.is_empty() && !kinds.is_empty() {
        warnings.push(format!(
            "{} without interruption handling afterwards: {}",
            count_are(found.unhandled.len(), "node"),
            some(&found.unhandled)
        ));
    }
    warnings
}
