//! `tenon install`: ask if there is somebody to ask, plan, confirm, apply, and prove that it works.

use std::time::Duration;

use serde_json::{Value, json};
use tenon_checks::report::{Options, judge};
use tenon_installer_core::apply::wait;
use tenon_installer_core::cleanup::Cleanup;
use tenon_installer_core::clock;
use tenon_installer_core::kubernetes::condition::{is_ready, untrue};
use tenon_installer_core::kubernetes::resources;
use tenon_installer_core::plan::impact::Impact;
use tenon_installer_core::plan::saved::SavedPlan;
use tenon_installer_core::plan::text::{counts, plan_lines};
use tenon_installer_core::plan::{Moved, Plan};
use tenon_installer_core::retry::{Lag, until_nothing_is_missing};
use tenon_installer_core::settings::problem::Problem;
use tenon_installer_core::settings::{SettingsError, Source};
use tokio::time::Instant;

use self::asking::Answered;
use super::execution::{Execution, confirm};
use super::kops_cluster;
use super::observation::{Asking, observe_session};
use super::owner;
use super::preflight;
use super::session::{Connection, Fallback, Session, observe_failed, source};
use super::shown_plan;
use super::until_object::until_object;
use crate::canary::Canary;
use crate::cli::GlobalArgs;
use crate::cli::install::InstallArgs;
use crate::errors::ExpectedError;
use crate::printer::Printer;
use crate::wizard::step::Delivery;

mod asking;

/// Installs.
pub(crate) async fn run(
    global: &GlobalArgs,
    args: &InstallArgs,
    printer: &Printer,
    cleanup: &Cleanup,
) -> Result<u8, ExpectedError> {
    let saved = args.plan.as_deref().map(SavedPlan::read).transpose()?;
    let asks = !args.execution.yes
        && global.may_ask()
        && args.settings.aws.installation.file.is_none()
        && saved.is_none();
    if asks {
        kops_cluster::refuse(global, None).await?;
    }
    let answered =
        if asks { Some(Box::pin(asking::ask(global, args, printer)).await?) } else { None };
    let with_context = answered.as_ref().map(|answered| answered.global.clone());
    let global = with_context.as_ref().unwrap_or(global);
    let source = match (&saved, &answered) {
        (Some(saved), _) => Source::recorded(saved.config.clone()),
        (None, Some(answered)) => Source::recorded(answered.answers.config.clone()),
        (None, None) => source(&args.settings)?,
    };
    let connection =
        Box::pin(Connection::open(global, &args.settings, source, Fallback::Defaults)).await?;
    if let Some(answered) = &answered {
        // Before anything can fail or be refused, so that no answer has to be given twice.
        let file = asking::write(answered, connection.settings(), *printer)?;
        if answered.answers.delivery != Delivery::Apply {
            return Box::pin(asking::deliver(answered, &file, printer)).await;
        }
    }
    // Whoever need not be asked looks under the lock; the others are asked first, and what they saw
    // must still hold then.
    let at_once = args.execution.is_unattended();
    let mut lock =
        if at_once { Some(connection.lock(global, "install", cleanup).await?) } else { None };
    if args.canary && !connection.settings().manage_operator {
        return Err(canary_without_operator());
    }
    let mut session = Box::pin(connection.observe()).await?;
    session.introduce(*printer);
    owner::refuse(&session, "install")?;
    let plan = session.plan()?;
    if let Some(saved) = &saved {
        saved.check(&plan)?;
    }
    let (impact, trial) = tokio::join!(session.impact(&plan), session.try_out(&plan));
    let impact = impact?;
    shown_plan::warn(*printer, &trial);
    if args.execution.dry_run {
        shown_plan::print(*printer, &session.target_json(), &plan, &impact, &trial)?;
        return Ok(0);
    }
    // A plan without steps has nothing to fail at.
    if !plan.steps.is_empty() {
        Box::pin(preflight::before_install(&session, &plan, &args.execution.checks, printer))
            .await?;
    }
    show(&plan, &impact, *printer);
    shown_plan::accepted(&trial)?;
    if !plan.steps.is_empty() && !args.execution.yes {
        confirm(global, "Apply this plan?").await?;
    }
    if lock.is_none() && !plan.steps.is_empty() {
        lock = Some(session.lock(global, "install", cleanup).await?);
        Box::pin(session.observe_again()).await?;
        let now = session.plan()?;
        if now != plan {
            return Err(ExpectedError::Moved(Moved { changes: plan.changes_to(&now) }));
        }
    }
    let execution = Execution {
        global,
        session: &session,
        operation: "install",
        parallel: args.execution.parallel,
        back_to: None,
        printer,
    };
    let done = execution.run(plan.clone()).await?;
    drop(lock);
    let mut not_ready = Vec::new();
    let waits = !args.no_wait && session.settings.manage_operator;
    if waits {
        let proof = prove(args, &session, printer);
        tokio::select! {
            proof = proof => proof?,
            () = Box::pin(meanwhile(&session, args, *printer)) => {}
        }
        not_ready = classes_not_ready(&session, done > 0 && plan.mends_for_nodes()).await?;
        for line in &not_ready {
            printer.note(line);
        }
    }
    let canary = if args.canary {
        let context = session.context();
        let queue = session.desired.queue.as_ref().map(|queue| queue.name.as_str());
        let canary = Canary { context: &context, queue, timeout: args.timeout, printer: *printer };
        Some(Box::pin(canary.run(cleanup)).await?)
    } else {
        None
    };
    printer.json(&json!({
        "schema": "tenon.sh/install/v1alpha1",
        "target": session.target_json(),
        "changed": done,
        "actions": plan.steps,
        "warnings": plan.warnings,
        "ready": waits,
        "notReady": not_ready,
        "canary": canary,
    }));
    printer.prose(&match done {
        0 => "Nothing to do: the installation matches the settings.".to_owned(),
        _ if session.settings.manage_operator => {
            format!("Tenon is installed ({}).", counts(&plan))
        }
        _ => format!("The AWS resources are ready for the operator ({}).", counts(&plan)),
    });
    for line in answered.iter().flat_map(Answered::reminders) {
        printer.note(&line);
    }
    Ok(0)
}

fn canary_without_operator() -> ExpectedError {
    let why = "there is no operator to test: deploy.operator is skip, or --aws-only is passed";
    let problems = vec![Problem::of_flag("--canary", why.to_owned())];
    ExpectedError::Settings(SettingsError { problems })
}

/// Programs get the plan at the end, with the result.
fn show(plan: &Plan, impact: &Impact, printer: Printer) {
    printer.note_lines(&plan_lines(plan, impact));
}

/// What takes longer has a cause that the checks may know.
const PATIENCE: Duration = Duration::from_secs(30);

/// Shows what the checks of `tenon doctor` find while the operator does not become ready. It has no
/// end of its own.
async fn meanwhile(session: &Session, args: &InstallArgs, printer: Printer) {
    tokio::time::sleep(PATIENCE).await;
    let asking = Asking { installed: true, inside: false, ..args.execution.checks.asking() };
    let seen = Box::pin(observe_session(session, None, asking)).await;
    let options = Options { installed: true, ..Options::default() };
    let report = judge(&seen, &options);
    printer.interrupt_line();
    let found = report.reasons().into_iter().chain(report.warnings()).collect::<Vec<_>>();
    if found.is_empty() {
        printer.note("   not ready after 30 s; the checks of `tenon doctor` find no cause");
    } else {
        printer.note("   not ready after 30 s; the checks of `tenon doctor` find:");
        for line in &found {
            printer.note(&format!("     {line}"));
        }
    }
    if let Some(first) = &report.first {
        printer.note(&format!("   run first ({}): {}", first.id, first.command));
    }
    std::future::pending::<()>().await;
}

/// Waits until the operator serves and the NodeClasses are ready: the best proof that the
/// permissions suffice.
async fn prove(
    args: &InstallArgs,
    session: &Session,
    printer: &Printer,
) -> Result<(), ExpectedError> {
    let end = Instant::now() + args.timeout;
    let objects = session.desired.deployment().into_iter().chain(&session.desired.node_objects);
    let names = objects.map(|object| object.key().to_string()).collect::<Vec<_>>();
    if !names.is_empty() {
        printer.note(&format!(
            "\nwaiting until ready, for at most {} s: {}",
            args.timeout.as_secs(),
            names.join(", ")
        ));
    }
    let cluster = &session.target.cluster;
    if let Some(deployment) = session.desired.deployment() {
        until_object(cluster, deployment, wait::deployment_lacks, end, printer).await?;
    }
    for object in &session.desired.node_objects {
        until_object(cluster, object, wait::readiness_lacks, end, printer).await?;
    }
    Ok(())
}

/// What the operator still says of EC2NodeClasses that are not ready, and since when: those that
/// are not the installation's own, which was waited for. After something was mended that they need,
/// it gets the time to find out.
async fn classes_not_ready(session: &Session, mended: bool) -> Result<Vec<String>, ExpectedError> {
    let check = || async {
        let classes = session.target.cluster.list(&resources::node_classes()).await;
        let classes = classes.map_err(observe_failed)?;
        let lines = classes.into_iter().filter_map(|class| {
            let name = class.metadata.name.clone().unwrap_or_default();
            let is_own = session
                .desired
                .node_objects
                .iter()
                .any(|own| own.resource.kind == "EC2NodeClass" && own.name == name);
            let is_going = class.metadata.deletion_timestamp.is_some();
            let why = says(&class.data);
            (!is_own && !is_going && !is_ready(&class.data))
                .then(|| format!("EC2NodeClass {name} is not ready: {why}"))
        });
        Ok::<_, ExpectedError>(lines.collect())
    };
    if mended { until_nothing_is_missing(Lag::Mended, check).await } else { check().await }
}

fn says(class: &Value) -> String {
    let now = clock::now();
    let said = untrue(class).iter().map(|condition| condition.in_words(now)).collect::<Vec<_>>();
    if said.is_empty() {
        "the operator has not processed it yet".to_owned()
    } else {
        said.join(", ")
    }
}
