//! Decisions in words.

use tenon_simulate::counted as count;
use tenon_state::decision::{Action, Decision, Kind, Names, State};

/// How many names are given.
const NAMED: usize = 3;

/// What was decided, in one line.
pub fn what(decision: &Decision) -> String {
    let pools = match decision.node_pools.as_slice() {
        [] => String::new(),
        [pool] => format!(" of NodePool {pool}"),
        pools => format!(" of NodePools {}", pools.join(", ")),
    };
    let (of, n) = subject(decision);
    let it = format!("{of}{pools}");
    let kind = kind(decision.kind);
    match decision.action {
        Action::Launch => {
            let pool = pools.replacen(" of ", " in ", 1);
            let pods = match decision.pods.count {
                0 => String::new(),
                n => format!(" for {}", count(n, "pod")),
            };
            format!("launch a node{pool}{pods}")
        }
        Action::Delete => format!("{kind}: delete {it}"),
        Action::Replace => {
            let new = decision.replacements.count.max(1);
            let by = if new == 1 { "a new one".to_owned() } else { format!("{new} new ones") };
            format!("{kind}: replace {it} with {by}")
        }
        Action::TerminateFirst => format!("{kind}: delete {it} before launching its replacement"),
        Action::Reboot => format!("{kind}: reboot {it}"),
        Action::Notice => format!("{kind}: announced for {it}"),
        Action::Stay if n == 0 => format!("keep nodes{pools}"),
        Action::Stay => format!("keep {it}"),
        Action::Other => format!("{kind}: {it}"),
    }
}

fn kind(kind: Kind) -> &'static str {
    match kind {
        Kind::Other => "decision",
        kind => kind.as_str(),
    }
}

/// The nodes, or the NodeClaims that are no nodes yet; and how many.
fn subject(decision: &Decision) -> (String, usize) {
    let (noun, of) = if decision.nodes.is_empty() {
        ("NodeClaim", &decision.node_claims)
    } else {
        ("node", &decision.nodes)
    };
    let text = match of.count {
        1 => format!("{noun} {}", of.names.first().map_or("", String::as_str)),
        n => format!("{} ({})", count(n, noun), names(of)),
    };
    (text, of.count)
}

/// The first names, and how many more there are.
pub fn names(names: &Names) -> String {
    let shown = names.names.len().min(NAMED);
    let first = names.names[..shown].join(", ");
    match names.count.saturating_sub(shown) {
        0 => first,
        more => format!("{first} and {more} more"),
    }
}

/// What became of it.
pub fn outcome(decision: &Decision) -> String {
    let result = &decision.result;
    let after = if result.seconds < 10.0 {
        format!(" after {:.1} s", result.seconds)
    } else {
        format!(" after {:.0} s", result.seconds)
    };
    let state = match result.state {
        State::Pending => "pending".to_owned(),
        State::Launched => format!("launched{after}"),
        State::Done if decision.action == Action::Notice => "noted".to_owned(),
        State::Done => format!("done{after}"),
        State::Failed => format!("failed{after}"),
        State::Abandoned => format!("rolled back{after}"),
        State::Refused => "not disrupted".to_owned(),
        State::Other => "unknown result".to_owned(),
    };
    if result.message.is_empty() { state } else { format!("{state}: {}", result.message) }
}
