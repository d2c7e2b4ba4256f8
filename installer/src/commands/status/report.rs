//! What `tenon status` shows, as data and as text.

use serde::Serialize;
use serde_json::{Value, json};
use tenon_installer_core::plan::text::{Line as Row, Tone};
use tenon_installer_core::words::count;
use tenon_simulate::Fleet;

/// One check.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Line {
    /// Stable name of what is looked at.
    pub(super) id: String,
    /// It is fine.
    pub(super) ok: bool,
    /// How it is.
    pub(super) detail: String,
}

/// The operator's Deployment.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Operator {
    pub(super) namespace: String,
    pub(super) deployment: String,
    pub(super) version: Option<String>,
    /// The tool that manages it, where that is not `tenon`.
    pub(super) managed_by: Option<&'static str>,
    pub(super) leader: Option<String>,
    pub(super) leader_since: Option<jiff::Timestamp>,
}

/// The interruption queue.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Queue {
    pub(super) name: String,
    /// Messages that wait.
    pub(super) waiting: u64,
    /// Messages that are being handled.
    pub(super) in_flight: u64,
}

/// How it is at one moment.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Report {
    pub(super) operator: Option<Operator>,
    pub(super) queue: Option<Queue>,
    pub(super) lines: Vec<Line>,
    pub(super) fleet: Option<Fleet>,
    pub(super) in_sync: bool,
    pub(super) warnings: Vec<String>,
    /// What was assumed about prices.
    pub(super) notes: Vec<String>,
}

/// What an object says that is ready.
pub(super) const READY: &str = "Ready";

/// Columns of the names of checks.
const NAME: usize = 14;

impl Report {
    pub(super) fn healthy(&self) -> bool {
        self.lines.iter().all(|line| line.ok)
    }

    pub(super) fn json(&self, target: &Value) -> Value {
        json!({
            "schema": "tenon.sh/status/v1alpha1",
            "target": target,
            "inSync": self.in_sync,
            "healthy": self.healthy(),
            "operator": self.operator,
            "queue": self.queue,
            "checks": self.lines,
            "fleet": self.fleet,
            "warnings": self.warnings,
        })
    }

    /// The checks, those that need no attention in one line each kind.
    pub(super) fn rows(&self) -> Vec<Row> {
        let is_quiet = |line: &&Line| line.ok && line.detail == READY;
        let shown = self.lines.iter().filter(|line| !is_quiet(line) && line.id != "nodeclaims");
        let mut rows: Vec<Row> =
            shown.map(|line| row(&line.id, line.ok, &self.detail(line))).collect();
        let ready = ["EC2NodeClass", "NodePool"].into_iter().filter_map(|kind| {
            let of_kind = |line: &&Line| line.id.starts_with(&format!("{kind}/"));
            let n = self.lines.iter().filter(is_quiet).filter(of_kind).count();
            let noun = count(n, kind);
            (n > 0).then(|| format!("{noun} ready"))
        });
        let ready = ready.collect::<Vec<_>>().join(", ");
        if !ready.is_empty() {
            rows.push(row("objects", true, &ready));
        }
        if let Some(Queue { name, waiting, in_flight }) = &self.queue {
            let waiting = count(usize::try_from(*waiting).unwrap_or(usize::MAX), "message");
            rows.push(row(
                "queue",
                true,
                &format!("{name}: {waiting} waiting, {in_flight} in flight"),
            ));
        }
        rows
    }

    fn detail(&self, line: &Line) -> String {
        let operator = self.operator.as_ref().filter(|_| line.id == "operator");
        let Some(operator) = operator else { return line.detail.clone() };
        let version = operator.version.as_ref().map(|it| format!("Tenon {it}, "));
        let by = operator.managed_by.map(|tool| format!(", managed by {tool}"));
        let leader = match (&operator.leader, operator.leader_since) {
            (Some(pod), Some(since)) => format!("; {pod} leads since {since:.0}"),
            (Some(pod), None) => format!("; {pod} leads"),
            (None, _) => "; none leads".to_owned(),
        };
        format!("{}{}{}{leader}", version.unwrap_or_default(), line.detail, by.unwrap_or_default())
    }

    /// The text in full, for a terminal of so many columns.
    pub(super) fn fleet_text(&self, width: Option<usize>) -> Option<String> {
        self.fleet.as_ref().map(|fleet| fleet.text(width))
    }
}

fn row(name: &str, ok: bool, detail: &str) -> Row {
    let (tone, sign) = if ok { (Tone::Added, " ✔ ") } else { (Tone::Removed, " ✘ ") };
    // A check about one object has a long name, which is no reason to indent all others further.
    Row::new(0, NAME + 4).with(tone, sign).with(Tone::Plain, &format!("{name:<NAME$} {detail}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(id: &str, ok: bool, detail: &str) -> Line {
        Line { id: id.to_owned(), ok, detail: detail.to_owned() }
    }

    fn report() -> Report {
        Report {
            operator: Some(Operator {
                namespace: "kube-system".to_owned(),
                deployment: "karpenter".to_owned(),
                version: Some("0.1.0".to_owned()),
                managed_by: None,
                leader: Some("karpenter-6d5f9-abcde".to_owned()),
                leader_since: "2026-01-01T00:00:00Z".parse().ok(),
            }),
            queue: Some(Queue { name: "tenon-prod".to_owned(), waiting: 1, in_flight: 0 }),
            lines: vec![
                line("installation", true, "everything exists and matches the settings"),
                line("operator", true, "2 pods are available"),
                line("EC2NodeClass/default", true, READY),
                line("NodePool/default", true, READY),
                line("nodeclaims", true, "3 of 3 ready"),
            ],
            fleet: None,
            in_sync: true,
            warnings: Vec::new(),
            notes: Vec::new(),
        }
    }

    fn text(report: &Report, width: usize) -> String {
        let rows = report.rows();
        let lines = rows.iter().flat_map(|row| row.wrapped(Some(width)));
        let text = |row: Row| {
            let parts = row.parts().map(|(_, text)| text).collect::<String>();
            format!("{}{parts}", row.indentation()).trim_end().to_owned()
        };
        lines.map(text).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn what_is_well_takes_a_line_and_what_is_not_says_why() {
        let mut report = report();
        assert!(report.healthy());
        insta::assert_snapshot!(text(&report, 80), @r"
         ✔ installation   everything exists and matches the settings
         ✔ operator       Tenon 0.1.0, 2 pods are available; karpenter-6d5f9-abcde leads
                          since 2026-01-01T00:00:00Z
         ✔ objects        1 EC2NodeClass ready, 1 NodePool ready
         ✔ queue          tenon-prod: 1 message waiting, 0 in flight
        ");
        report.lines[2] = line("EC2NodeClass/default", false, "SubnetsNotFound: no subnets");
        assert!(!report.healthy());
        assert_eq!(report.json(&json!({}))["healthy"], false);
        insta::assert_snapshot!(text(&report, 60), @r"
         ✔ installation   everything exists and matches the settings
         ✔ operator       Tenon 0.1.0, 2 pods are available;
                          karpenter-6d5f9-abcde leads since
                          2026-01-01T00:00:00Z
         ✘ EC2NodeClass/default SubnetsNotFound: no subnets
         ✔ objects        1 NodePool ready
         ✔ queue          tenon-prod: 1 message waiting, 0 in flight
        ");
    }

    #[test]
    fn programs_get_operator_queue_and_checks() {
        let json = report().json(&json!({"cluster": "prod"}));
        assert_eq!(json["operator"]["leaderSince"], "2026-01-01T00:00:00Z");
        assert_eq!(json["queue"]["waiting"], 1);
        assert_eq!(json["checks"][4]["id"], "nodeclaims");
        assert_eq!(json["target"]["cluster"], "prod");
    }
}
