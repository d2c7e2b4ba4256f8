//! `tenon status`: what is installed, what differs, and whether it works.

use std::time::Duration;

use serde::Serialize;
use serde_json::{Value, json};
use tenon_installer_core::apply::wait;
use tenon_installer_core::kubernetes::condition::planning_paused;
use tenon_installer_core::kubernetes::resources;
use tokio::time::Instant;

use super::session::{Fallback, Session, observe_failed, source};
use crate::cli::GlobalArgs;
use crate::cli::status::StatusArgs;
use crate::errors::ExpectedError;
use crate::exit_codes::{EXIT_DRIFT, EXIT_FAILURE};
use crate::printer::{Printer, StatusLine};

/// One line of the report.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Line {
    /// Stable name of what is looked at.
    id: String,
    /// It is fine.
    ok: bool,
    /// How it is.
    detail: String,
}

/// How it is at one moment.
#[derive(Debug, Clone, PartialEq)]
struct Report {
    lines: Vec<Line>,
    in_sync: bool,
    warnings: Vec<String>,
}

impl Report {
    fn healthy(&self) -> bool {
        self.lines.iter().all(|line| line.ok)
    }

    fn json(&self, target: &Value) -> Value {
        json!({
            "schema": "tenon.sh/status/v1alpha1",
            "target": target,
            "inSync": self.in_sync,
            "healthy": self.healthy(),
            "checks": self.lines,
            "warnings": self.warnings,
        })
    }

    fn text(&self) -> String {
        let line = |line: &Line| {
            format!(" {} {:<24} {}", if line.ok { "✔" } else { "✘" }, line.id, line.detail)
        };
        self.lines.iter().map(line).collect::<Vec<_>>().join("\n")
    }
}

/// How often Kubernetes is asked while somebody waits or watches.
const EVERY: Duration = Duration::from_secs(2);

/// How often AWS is asked while somebody watches: its part changes rarely, and each look is some dozens of calls.
const AWS_EVERY: Duration = Duration::from_secs(30);

/// Shows what is installed and whether it works.
pub(crate) async fn run(
    global: &GlobalArgs,
    args: &StatusArgs,
    printer: &Printer,
) -> Result<u8, ExpectedError> {
    let settings = args.installation.settings();
    let mut session =
        Box::pin(Session::open(global, &settings, source(&settings)?, Fallback::Record)).await?;
    session.introduce(*printer);
    if args.watch {
        return Box::pin(watch(&mut session, *printer)).await;
    }
    if args.wait {
        wait_until_ready(&session, args.timeout, *printer).await?;
    }
    let report = report(&session).await?;
    printer.json(&report.json(&session.target_json()));
    for warning in &report.warnings {
        printer.warn(warning);
    }
    printer.text(&report.text());
    Ok(match (args.exit_code, report.in_sync, report.healthy()) {
        (true, false, _) => EXIT_DRIFT,
        (true, true, false) => EXIT_FAILURE,
        _ => 0,
    })
}

/// Waits until the operator serves and every EC2NodeClass and NodePool is ready. On a terminal the reason takes one line, which is written again and again.
async fn wait_until_ready(
    session: &Session,
    at_most: Duration,
    printer: Printer,
) -> Result<(), ExpectedError> {
    let began = Instant::now();
    let mut status = StatusLine::new(printer);
    loop {
        let lines = working(session).await?;
        let missing = missing(session, &lines);
        let Some(missing) = missing else {
            status.end();
            printer.done("operator, EC2NodeClasses and NodePools", "ready", began.elapsed());
            return Ok(());
        };
        status.show(&missing, began.elapsed());
        if began.elapsed() >= at_most {
            status.end();
            return Err(ExpectedError::Timeout {
                what: "the installation to be ready".to_owned(),
                seconds: began.elapsed().as_secs(),
                last: missing,
            });
        }
        tokio::time::sleep(EVERY.min(at_most.saturating_sub(began.elapsed()))).await;
    }
}

/// What is not ready yet, in one line; what should be there and is not counts, too.
fn missing(session: &Session, lines: &[Line]) -> Option<String> {
    let of = |id: &str| lines.iter().any(|line| line.id == id);
    let absent = session
        .desired
        .node_objects
        .iter()
        .map(|object| format!("{}/{}", object.resource.kind, object.name));
    let absent = absent.filter(|id| !of(id)).map(|id| format!("{id}: it does not exist"));
    let lacking = lines.iter().filter(|line| !line.ok);
    let mut all = lacking.map(|line| format!("{}: {}", line.id, line.detail)).chain(absent);
    let first = all.next()?;
    Some(match all.count() {
        0 => first,
        more => format!("{first} (and {more} more)"),
    })
}

/// Shows the status whenever it changes, until the command is interrupted.
async fn watch(session: &mut Session, printer: Printer) -> Result<u8, ExpectedError> {
    let target = session.target_json();
    let mut looked = Instant::now();
    let mut before = None;
    loop {
        if looked.elapsed() >= AWS_EVERY {
            Box::pin(session.look_again()).await?;
            looked = Instant::now();
        }
        let now = report(session).await?;
        if before.as_ref() != Some(&now) {
            printer.json(&now.json(&target));
            printer.text(&format!(
                "{}\n{}",
                tenon_installer_core::clock::now().strftime("%H:%M:%SZ"),
                now.text()
            ));
            before = Some(now);
        }
        tokio::time::sleep(EVERY).await;
    }
}

async fn report(session: &Session) -> Result<Report, ExpectedError> {
    let plan = session.plan()?;
    let detail = |step: &tenon_installer_core::plan::Step| match step.op {
        tenon_installer_core::plan::Op::Create => {
            format!("{} {} is missing", step.kind, step.resource)
        }
        _ => format!("{} {} differs: {}", step.kind, step.resource, step.reasons.join("; ")),
    };
    let mut lines = plan
        .steps
        .iter()
        .map(|step| Line { id: step.id.clone(), ok: false, detail: detail(step) })
        .collect::<Vec<_>>();
    let in_sync = lines.is_empty();
    if in_sync {
        lines.push(Line {
            id: "installation".to_owned(),
            ok: true,
            detail: "everything exists and matches the settings".to_owned(),
        });
    }
    lines.extend(session.interruption().map(|how| Line {
        id: "last-run".to_owned(),
        ok: false,
        detail: format!(
            "{how}: run `tenon install` with the same settings to resume, or `tenon uninstall` to \
             revert the completed steps"
        ),
    }));
    lines.extend(working(session).await?);
    Ok(Report { lines, in_sync, warnings: plan.warnings })
}

async fn working(session: &Session) -> Result<Vec<Line>, ExpectedError> {
    let cluster = &session.target.cluster;
    let mut lines = Vec::new();
    if let Some(deployment) = session.desired.deployment() {
        let live =
            cluster.get(&deployment.resource, &deployment.key()).await.map_err(observe_failed)?;
        let lacks = wait::deployment_lacks(live.as_ref());
        let available = live
            .as_ref()
            .and_then(|live| live.pointer("/status/availableReplicas"))
            .and_then(Value::as_i64)
            .unwrap_or(0);
        lines.push(Line {
            id: "operator".to_owned(),
            ok: lacks.is_none(),
            detail: lacks.unwrap_or_else(|| format!("{available} pods are available")),
        });
    }
    for resource in [resources::node_classes(), resources::node_pools()] {
        for object in cluster.list(&resource).await.map_err(observe_failed)? {
            let name = object.metadata.name.clone().unwrap_or_default();
            let live = serde_json::to_value(object).unwrap_or_default();
            let lacks = wait::readiness_lacks(Some(&live));
            let detail = lacks.clone().unwrap_or_else(|| ready(&live));
            lines.push(Line {
                id: format!("{}/{name}", resource.kind),
                ok: lacks.is_none(),
                detail,
            });
        }
    }
    let claims = cluster.list(&resources::node_claims()).await.map_err(observe_failed)?;
    let ready = claims
        .iter()
        .filter(|claim| {
            serde_json::to_value(claim)
                .is_ok_and(|claim| wait::readiness_lacks(Some(&claim)).is_none())
        })
        .count();
    lines.push(Line {
        id: "nodeclaims".to_owned(),
        ok: true,
        detail: format!("{ready} of {} ready", claims.len()),
    });
    Ok(lines)
}

/// What is told of an object that is ready.
fn ready(live: &Value) -> String {
    // A pause is no reason to wait for the NodePool: it ends with what it is due to, such as a launch.
    planning_paused(live).map_or_else(
        || "Ready".to_owned(),
        |paused| {
            let since = paused.since.map(|since| format!(" since {since}")).unwrap_or_default();
            format!("Ready, but planning is paused{since}: {}", paused.said)
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(id: &str, ok: bool, detail: &str) -> Line {
        Line { id: id.to_owned(), ok, detail: detail.to_owned() }
    }

    #[test]
    fn a_nodepool_that_is_ready_tells_that_planning_is_paused() {
        let pool = |status: &str, ready: &str| {
            json!({"status": {"conditions": [
                {"type": "PlanningActive", "status": status, "reason": "AwaitingLaunches", "message": "waiting for a",
                    "lastTransitionTime": "2026-01-01T00:00:00Z"},
                {"type": "Ready", "status": ready},
            ]}})
        };
        assert_eq!(
            ready(&pool("False", "True")),
            "Ready, but planning is paused since 2026-01-01T00:00:00Z: AwaitingLaunches waiting for a"
        );
        assert_eq!(ready(&pool("True", "True")), "Ready");
    }

    #[test]
    fn a_report_is_healthy_when_every_line_is() {
        let mut report = Report {
            lines: vec![line("installation", true, "everything exists and matches the settings")],
            in_sync: true,
            warnings: Vec::new(),
        };
        assert!(report.healthy());
        report.lines.push(line("EC2NodeClass/default", false, "SubnetsNotFound: no subnets"));
        assert!(!report.healthy());
        insta::assert_snapshot!(report.text(), @r"
         ✔ installation             everything exists and matches the settings
         ✘ EC2NodeClass/default     SubnetsNotFound: no subnets
        ");
        assert_eq!(report.json(&json!({}))["healthy"], false);
    }
}
