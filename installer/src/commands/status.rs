//! `tenon status`: what is installed, what differs, and whether it works.

use serde::Serialize;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::session::{Fallback, Session, observe_failed, source};
use crate::apply::wait;
use crate::cli::{GlobalArgs, StatusArgs};
use crate::errors::{EXIT_DRIFT, EXIT_FAILURE, ExpectedError};
use crate::printer::Printer;
use crate::uninstall::resources;

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

/// Shows what is installed and whether it works.
pub async fn run(
    global: &GlobalArgs,
    args: &StatusArgs,
    printer: &Printer,
) -> Result<u8, ExpectedError> {
    let session =
        Box::pin(Session::open(global, &args.settings, source(&args.settings)?, Fallback::Record))
            .await?;
    session.introduce(*printer);
    if args.wait {
        let end = Instant::now() + args.timeout;
        let cluster = &session.target.cluster;
        if let Some(deployment) = session.desired.deployment() {
            wait::until_object(cluster, deployment, wait::deployment_lacks, end, printer).await?;
        }
        for object in &session.desired.node_objects {
            wait::until_object(cluster, object, wait::readiness_lacks, end, printer).await?;
        }
    }
    let plan = session.plan()?;
    let mut lines = plan
        .steps
        .iter()
        .map(|step| Line {
            id: step.id.clone(),
            ok: false,
            detail: match step.op {
                crate::plan::Op::Create => format!("{} {} is missing", step.kind, step.resource),
                _ => {
                    format!("{} {} differs: {}", step.kind, step.resource, step.reasons.join("; "))
                }
            },
        })
        .collect::<Vec<_>>();
    let in_sync = lines.is_empty();
    if in_sync {
        lines.push(Line {
            id: "installation".to_owned(),
            ok: true,
            detail: "everything is there and as it should be".to_owned(),
        });
    }
    lines.extend(session.interruption().map(|how| Line {
        id: "last-run".to_owned(),
        ok: false,
        detail: format!(
            "{how}: run `tenon install` with the same settings to go on, or `tenon uninstall` to take back what is done"
        ),
    }));
    lines.extend(working(&session).await?);
    let healthy = lines.iter().all(|line| line.ok);
    printer.json(&json!({
        "schema": "tenon.sh/status/v1alpha1",
        "target": session.target_json(),
        "inSync": in_sync,
        "healthy": healthy,
        "checks": lines,
        "warnings": plan.warnings,
    }));
    for warning in &plan.warnings {
        printer.warn(warning);
    }
    for line in &lines {
        printer.text(&format!(
            " {} {:<24} {}",
            if line.ok { "✔" } else { "✘" },
            line.id,
            line.detail
        ));
    }
    Ok(match (args.exit_code, in_sync, healthy) {
        (true, false, _) => EXIT_DRIFT,
        (true, true, false) => EXIT_FAILURE,
        _ => 0,
    })
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
            let detail = lacks.clone().unwrap_or_else(|| "Ready".to_owned());
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
