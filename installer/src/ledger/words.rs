//! Decisions for people. Pure: lines that whoever prints them wraps and colors.

use jiff::Timestamp;
use tenon_installer_core::plan::text::{Line, Tone};
use tenon_installer_core::words::{count, some};
use tenon_state::decision::{Action, Decision, Kind, Names, Price, State};

/// How many names are given.
const NAMED: usize = 3;

/// A time of the day.
pub(crate) fn clock(time: Timestamp) -> String {
    time.strftime("%H:%M:%SZ").to_string()
}

/// A decision: what, for how much, why, what else there was, and what became of it.
pub(crate) fn lines(decision: &Decision) -> Vec<Line> {
    let mut lines = vec![
        Line::new(0, 10)
            .with(Tone::Plain, &format!("{}  ", clock(decision.time)))
            .with(Tone::Heading, &what(decision))
            .with(Tone::Plain, &money(decision.price)),
    ];
    let detail =
        |label: &str, text: &str| Line::new(10, 12).with(Tone::Plain, &format!("{label}: {text}"));
    if !decision.reason.is_empty() {
        lines.push(detail("why", &decision.reason));
    }
    if !decision.pods.is_empty() && decision.action != Action::Stay {
        lines.push(detail("pods", &names(&decision.pods)));
    }
    let is_named = decision.nodes.is_empty() && decision.action != Action::Launch;
    if !is_named && !decision.node_claims.is_empty() {
        let label = if decision.node_claims.count == 1 { "NodeClaim" } else { "NodeClaims" };
        lines.push(detail(label, &names(&decision.node_claims)));
    }
    if !decision.replacements.is_empty() {
        lines.push(detail("new", &format!("NodeClaim {}", names(&decision.replacements))));
    }
    lines.extend(decision.alternatives.iter().map(|it| detail("instead", it)));
    if decision.result.state != State::Refused {
        let (tone, text) = result(decision);
        lines.push(Line::new(10, 12).with(tone, &text));
    }
    if decision.count > 1 {
        let last = clock(decision.result.at);
        lines.push(detail(
            "seen",
            &format!(
                "{}, last at {last}",
                count(usize::try_from(decision.count).unwrap_or(usize::MAX), "time")
            ),
        ));
    }
    lines
}

/// What became of a decision that is known already.
pub(crate) fn news(decision: &Decision) -> Line {
    let (tone, text) = result(decision);
    Line::new(0, 10)
        .with(Tone::Plain, &format!("{}  {}: ", clock(decision.result.at), what(decision)))
        .with(tone, &text)
}

/// A decision in one line.
pub(crate) fn what(decision: &Decision) -> String {
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

fn names(names: &Names) -> String {
    let shown = names.names.len().min(NAMED);
    match names.count.saturating_sub(shown) {
        0 => some(&names.names, NAMED),
        more => format!("{} and {more} more", names.names[..shown].join(", ")),
    }
}

/// `, +$0.0992/h`; `, $0.1984 → $0.0992/h`.
pub(crate) fn money(price: Option<Price>) -> String {
    match price {
        None => String::new(),
        Some(Price { before: 0.0, after }) => format!(", +${after:.4}/h"),
        Some(Price { before, after: 0.0 }) => format!(", -${before:.4}/h"),
        Some(Price { before, after }) => {
            format!(", ${before:.4} → ${after:.4}/h ({:+.4})", after - before)
        }
    }
}

/// What became of it.
pub(crate) fn result(decision: &Decision) -> (Tone, String) {
    let result = &decision.result;
    let after = if result.seconds < 10.0 {
        format!(" after {:.1} s", result.seconds)
    } else {
        format!(" after {:.0} s", result.seconds)
    };
    let (tone, state) = match result.state {
        State::Pending => (Tone::Mark, "pending".to_owned()),
        State::Launched => (Tone::Mark, format!("launched{after}")),
        State::Done if decision.action == Action::Notice => (Tone::Plain, "noted".to_owned()),
        State::Done => (Tone::Added, format!("done{after}")),
        State::Failed => (Tone::Removed, format!("failed{after}")),
        State::Abandoned => (Tone::Removed, format!("rolled back{after}")),
        State::Refused => (Tone::Plain, "not disrupted".to_owned()),
        State::Other => (Tone::Plain, "unknown result".to_owned()),
    };
    let message =
        if result.message.is_empty() { String::new() } else { format!(": {}", result.message) };
    (tone, format!("{state}{message}"))
}

#[cfg(test)]
mod tests {
    use tenon_installer_core::plan::text::plain;
    use tenon_state::decision::Outcome;

    use super::*;

    fn some_names(names: &[&str], count: usize) -> Names {
        Names { count, names: names.iter().map(|&it| it.to_owned()).collect() }
    }

    fn launch() -> Decision {
        Decision {
            seq: 1,
            revision: 2,
            time: "2026-11-25T12:31:07Z".parse().expect("a time"),
            kind: Kind::Launch,
            action: Action::Launch,
            reason: "3 pending pods fit on no existing node".to_owned(),
            alternatives: vec![
                "used if m7i.large is not available: c7i.large, r7i.large".to_owned(),
            ],
            node_pools: vec!["default".to_owned()],
            node_claims: some_names(&["default-kmxgs"], 1),
            pods: some_names(&["shop/web-1", "shop/web-2", "shop/web-3", "shop/web-4"], 40),
            price: Some(Price { before: 0.0, after: 0.0992 }),
            count: 1,
            result: Outcome {
                state: State::Done,
                at: "2026-11-25T12:31:48Z".parse().expect("a time"),
                seconds: 41.2,
                message: "node ip-10-0-1-17.ec2.internal: m7i.large in eu-west-1a, spot".to_owned(),
            },
            ..Decision::default()
        }
    }

    fn replacement() -> Decision {
        Decision {
            kind: Kind::Consolidation,
            action: Action::Replace,
            reason: "its 4 pods fit on other nodes and a cheaper one".to_owned(),
            alternatives: vec![
                "delete it without a replacement: not all pods fit on other nodes".to_owned(),
            ],
            nodes: some_names(&["ip-10-0-1-17.ec2.internal"], 1),
            replacements: some_names(&["default-x9v2q"], 1),
            pods: some_names(&["shop/web-1"], 1),
            price: Some(Price { before: 0.1984, after: 0.0992 }),
            result: Outcome {
                state: State::Pending,
                message: "waiting until its replacement is initialized".to_owned(),
                ..Outcome::default()
            },
            ..launch()
        }
    }

    fn refusal() -> Decision {
        Decision {
            kind: Kind::Refusal,
            action: Action::Stay,
            reason: "Pdb prevents pod evictions (PodDisruptionBudget=shop/web, Pod=web-1)"
                .to_owned(),
            node_pools: vec!["default".to_owned()],
            nodes: some_names(&["a", "b", "c", "d"], 7),
            time: launch().time,
            count: 12,
            result: Outcome { state: State::Refused, at: launch().result.at, ..Outcome::default() },
            ..Decision::default()
        }
    }

    /// Compared with the mock-ups of the page.
    #[test]
    fn decisions_read_as_the_page_shows_them() {
        const PAGE: &str = include_str!("../../../docs/src/design/face.md");
        let all = [launch(), replacement(), refusal()];
        let lines: Vec<Line> = all.iter().flat_map(lines).collect();
        let text = plain(&lines, Some(80));
        assert!(PAGE.contains(&text), "not in face.md:\n{text}");
        let text = plain(
            &[news(&Decision {
                result: Outcome { seconds: 54.2, message: String::new(), ..launch().result },
                ..replacement()
            })],
            Some(80),
        );
        assert!(PAGE.contains(&text), "not in face.md:\n{text}");
    }

    #[test]
    fn what_another_version_decides_is_shown_as_far_as_it_is_understood() {
        let unknown = Decision {
            kind: Kind::Other,
            action: Action::Other,
            node_claims: some_names(&["a"], 1),
            ..Decision::default()
        };
        assert_eq!(what(&unknown), "decision: NodeClaim a");
    }

    #[test]
    fn prices_have_a_sign() {
        for (before, after, expected) in [
            (0.0, 0.1, ", +$0.1000/h"),
            (0.3, 0.0, ", -$0.3000/h"),
            (0.3, 0.1, ", $0.3000 → $0.1000/h (-0.2000)"),
            (0.1, 0.3, ", $0.1000 → $0.3000/h (+0.2000)"),
        ] {
            assert_eq!(money(Some(Price { before, after })), expected);
        }
    }
}
