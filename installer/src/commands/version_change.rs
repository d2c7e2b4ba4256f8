//! What `upgrade` and `rollback` have in common: both bring another version of the operator, in
//! stages that no node notices.

use serde::Serialize;
use serde_json::json;
use tenon_iam_policies::difference::{Difference, differences};
use tenon_installer_core::apply::wait;
use tenon_installer_core::cleanup::Cleanup;
use tenon_installer_core::lock::Lock;
use tenon_installer_core::plan::impact::Impact;
use tenon_installer_core::plan::text::{Line, counts, plan_lines};
use tenon_installer_core::plan::{Moved, Plan};
use tenon_installer_core::words::count;
use tokio::time::Instant;

use super::execution::{Execution, confirm};
use super::preflight;
use super::session::Session;
use super::shown_plan;
use super::until_object::until_object;
use crate::cli::GlobalArgs;
use crate::cli::replacement::ReplacementArgs;
use crate::errors::ExpectedError;
use crate::printer::Printer;
use crate::upgrade::{staged, stages};

/// From where to where.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Journey {
    /// `upgrade` or `rollback`.
    #[serde(skip)]
    pub(super) operation: &'static str,
    /// The version that runs.
    pub(super) from: Option<String>,
    /// The version that is to run.
    pub(super) to: String,
    /// The Helm revision that a later rollback goes back to, or that this one goes to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) revision: Option<u32>,
}

impl Journey {
    fn plan(&self, session: &Session, args: &ReplacementArgs) -> Result<Plan, ExpectedError> {
        let plan =
            staged(session.plan()?, &session.desired, &session.actual, args.timeout.as_secs());
        plan.map_err(|reasons| ExpectedError::Unfit { what: self.operation.to_owned(), reasons })
    }

    fn in_words(&self) -> String {
        let from = self.from.as_deref().unwrap_or("an unknown version");
        match (self.operation, self.revision) {
            ("rollback", Some(revision)) => {
                format!("operator {from} → {} (revision {revision})", self.to)
            }
            _ => format!("operator {from} → {}", self.to),
        }
    }
}

/// What the controller may do differently then.
fn iam(session: &Session) -> Vec<Difference> {
    let role = &session.desired.controller_role;
    let (Some(spec), Some(state)) = (&role.spec, session.actual.roles.get(&role.name)) else {
        return Vec::new();
    };
    differences(&stages::documents(state), &spec.inline)
}

/// The plan has the statements themselves.
fn iam_in_words(session: &Session, found: &[Difference]) -> String {
    let role = &session.desired.controller_role;
    if role.spec.is_none() {
        return format!(
            "IAM: role {} was supplied by you and is not changed; `tenon iam verify` shows missing \
             permissions",
            role.name
        );
    }
    match found.len() {
        0 => "IAM: no statement changes".to_owned(),
        n => format!("IAM: {} in the policies of role {}", count(n, "change"), role.name),
    }
}

/// What happens to nodes is what a reader looks for first, so it is said even when the plan does
/// not touch them.
fn untouched_nodes(impact: &Impact) -> Option<String> {
    let nothing = "Nodes: no NodePool and no EC2NodeClass changes, so none drifts";
    impact.node_claims.is_none().then(|| nothing.to_owned())
}

/// Shows, asks, does and proves it.
pub(super) async fn run(
    global: &GlobalArgs,
    args: &ReplacementArgs,
    journey: &Journey,
    mut session: Session,
    mut lock: Option<Lock>,
    printer: &Printer,
    cleanup: &Cleanup,
) -> Result<u8, ExpectedError> {
    let plan = journey.plan(&session, args)?;
    let changes = iam(&session);
    let (impact, trial) = tokio::join!(session.impact(&plan), session.try_out(&plan));
    let impact = impact?;
    shown_plan::warn(*printer, &trial);
    let mut lines = vec![journey.in_words()];
    lines.extend(untouched_nodes(&impact));
    lines.push(iam_in_words(&session, &changes));
    let mut lines = lines.iter().map(|line| Line::plain(line)).collect::<Vec<_>>();
    lines.extend(plan_lines(&plan, &impact));
    let report = |changed: usize, ready: bool, session: &Session| {
        json!({
            "schema": format!("tenon.sh/{}/v1alpha2", journey.operation),
            "target": session.target_json(),
            "versions": journey,
            "iam": changes,
            "outlook": impact,
            "actions": plan.steps,
            "warnings": plan.warnings,
            "callerActions": plan.caller_actions(),
            "changed": changed,
            "ready": ready,
        })
    };
    if args.execution.dry_run {
        shown_plan::print_or_refuse(*printer, &trial, &report(0, false, &session), &lines)?;
        return Ok(0);
    }
    if !plan.steps.is_empty() {
        Box::pin(preflight::before_install(&session, &plan, &args.execution.checks, printer))
            .await?;
    }
    printer.note_lines(&lines);
    shown_plan::accepted(&trial)?;
    if !plan.steps.is_empty() && !args.execution.yes {
        if let Some(outside) = plan.outside() {
            // What another person did is not undone with an answer to another question.
            confirm(global, &format!("{outside}. Overwrite?")).await?;
        }
        confirm(global, &format!("Proceed with the {}?", journey.operation)).await?;
    }
    if lock.is_none() && !plan.steps.is_empty() {
        lock = Some(session.lock(global, journey.operation, cleanup).await?);
        Box::pin(session.observe_again()).await?;
        let now = journey.plan(&session, args)?;
        if now != plan {
            return Err(ExpectedError::Moved(Moved { changes: plan.changes_to(&now) }));
        }
    }
    let execution = Execution {
        global,
        session: &session,
        operation: journey.operation,
        parallel: args.execution.parallel,
        back_to: journey.revision,
        printer,
    };
    let done = execution.run(plan.clone()).await?;
    drop(lock);
    let end = Instant::now() + args.timeout;
    for object in &session.desired.node_objects {
        let cluster = &session.target.cluster;
        until_object(cluster, object, wait::readiness_lacks, end, printer).await?;
    }
    printer.json(&report(done, true, &session));
    printer.prose(&match done {
        0 => format!("Nothing to do: operator {} is running.", journey.to),
        _ => format!("Operator {} is running ({}).", journey.to, counts(&plan)),
    });
    Ok(0)
}
