//! Decisions for people. Pure: lines that whoever prints them wraps and colors.

use jiff::Timestamp;
pub(crate) use tenon_dashboard::words::what;
use tenon_dashboard::words::{names, outcome};
use tenon_installer_core::plan::text::{Line, Tone};
use tenon_installer_core::words::count;
use tenon_state::decision::{Action, Decision, Price, State};

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
    let tone = match decision.result.state {
        State::Pending | State::Launched => Tone::Mark,
        State::Done if decision.action != Action::Notice => Tone::Added,
        State::Done | State::Refused | State::Other => Tone::Plain,
        State::Failed | State::Abandoned => Tone::Removed,
    };
    (tone, outcome(decision))
}

#[cfg(test)]
mod tests {
    use tenon_installer_core::plan::text::plain;
    use tenon_state::decision::{Kind, Names, Outcome};

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
