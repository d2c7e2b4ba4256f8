//! `tenon adopt`: takes over from Karpenter, and gives back.

use serde_json::{Value, json};
use tenon_installer_core::cleanup::Cleanup;
use tenon_installer_core::failure::Failure;
use tenon_installer_core::kubernetes::resources;
use tenon_installer_core::plan::impact::Impact;
use tenon_installer_core::plan::text::{Line, counts, plan_lines};
use tenon_installer_core::plan::{Moved, Plan};
use tenon_installer_core::settings::Source;
use tenon_installer_core::words::count;
use tenon_installer_core::{apply, target};

use super::execution::{Execution, confirm};
use super::preflight;
use super::session::{Connection, Fallback, Session, observe_failed, source};
use super::shown_plan;
use crate::adopt::{Karpenter, fit, karpenter, settings, steps};
use crate::cli::GlobalArgs;
use crate::cli::adopt::AdoptArgs;
use crate::cli::overlay::resolve;
use crate::errors::ExpectedError;
use crate::printer::Printer;
use crate::upgrade::version;

/// Checks that an adoption is the answer to.
const EXPECTED: [&str; 3] = ["EX-01", "EX-06", "EX-09"];

/// Adopts, or undoes it.
pub(crate) async fn run(
    global: &GlobalArgs,
    args: &AdoptArgs,
    printer: &Printer,
    cleanup: &Cleanup,
) -> Result<u8, ExpectedError> {
    let given = source(&args.settings)?;
    let connection =
        Box::pin(Connection::open(global, &args.settings, given, Fallback::Record)).await?;
    let at_once = args.how.execution.is_unattended();
    let mut lock =
        if at_once { Some(connection.lock(global, "adopt", cleanup).await?) } else { None };
    let (mut session, mut found) = Box::pin(observe(global, args, connection)).await?;
    session.introduce(*printer);
    let plan = plan(args, &session, &found)?;
    let (lines, trial) = tokio::join!(lines(&session, &found, &plan), session.try_out(&plan));
    let lines = lines?;
    shown_plan::warn(*printer, &trial);
    let mut report = json!({
        "schema": "tenon.sh/adopt/v1alpha1",
        "target": session.target_json(),
        "undo": args.undo,
        "karpenter": {
            "deployment": found.operator.live.key().path(),
            "replicas": found.operator.replicas,
            "version": version::running(&found.operator.live.body).map(|it| it.to_string()),
            "layout": found.layout(&session.settings.cluster).in_words(),
            "role": found.role.1.arn,
            "nodeRoles": found.node_roles.keys().collect::<Vec<_>>(),
            "queue": found.queue.as_ref().map(|(name, _)| name),
            "rules": found.rules.keys().collect::<Vec<_>>(),
            "lease": found.operator.lease().to_string(),
        },
        "actions": plan.steps,
        "warnings": plan.warnings,
        "callerActions": plan.caller_actions(),
        "changed": 0,
        "leader": null,
    });
    if args.how.execution.dry_run {
        shown_plan::print_or_refuse(*printer, &trial, &report, &lines)?;
        return Ok(0);
    }
    if !plan.steps.is_empty() && !args.undo {
        let mut checks = args.how.execution.checks.clone();
        checks.skip.extend(EXPECTED.map(str::to_owned));
        Box::pin(preflight::before_install(&session, &plan, &checks, printer)).await?;
    }
    printer.note_lines(&lines);
    shown_plan::accepted(&trial)?;
    if !plan.steps.is_empty() && !args.how.execution.yes {
        let what = if args.undo { "return to Karpenter" } else { "adoption" };
        confirm(global, &format!("Proceed with the {what}?")).await?;
    }
    if lock.is_none() && !plan.steps.is_empty() {
        lock = Some(session.lock(global, "adopt", cleanup).await?);
        (session, found) = Box::pin(observe_again(session)).await?;
        let now = self::plan(args, &session, &found)?;
        if now != plan {
            return Err(ExpectedError::Moved(Moved { changes: plan.changes_to(&now) }));
        }
    }
    let execution = Execution {
        global,
        session: &session,
        operation: if args.undo { "adopt --undo" } else { "adopt" },
        parallel: args.how.execution.parallel,
        back_to: None,
        printer,
    };
    let done = if args.undo {
        execution.run_and_forget(plan.clone()).await?
    } else {
        execution.run(plan.clone()).await?
    };
    drop(lock);
    let leader = verify(args, &session, &found).await?;
    if !args.undo {
        restored(&session, &found, *printer).await?;
    }
    report["changed"] = plan.steps.len().into();
    report["leader"] = leader.as_deref().into();
    printer.json(&report);
    let leads = leader.map_or_else(
        || match found.operator.replicas {
            0 => "there is no leader, because Karpenter's Deployment has no replicas".to_owned(),
            _ => "Karpenter runs without a Lease".to_owned(),
        },
        |leader| format!("{leader} leads"),
    );
    printer.prose(&match (done, args.undo) {
        (0, _) => format!("Nothing to do: {leads}."),
        (_, false) => format!(
            "Tenon leads now ({}; {leads}). `tenon adopt --undo` gives the cluster back to Karpenter.",
            counts(&plan)
        ),
        (_, true) => format!("Karpenter leads again ({}; {leads}).", counts(&plan)),
    });
    Ok(0)
}

/// Waits until the right operator provably leads: also where no step was left to do, because a run
/// that was killed may have left the Lease with a pod that is no more. Answers who leads, and
/// nobody where Karpenter has no replica or works without a Lease.
async fn verify(
    args: &AdoptArgs,
    session: &Session,
    found: &Karpenter,
) -> Result<Option<String>, ExpectedError> {
    let operator = &found.operator;
    let deployment = match session.desired.deployment() {
        Some(ours) if !args.undo => ours,
        _ if operator.replicas == 0 || operator.is_without_lease() => return Ok(None),
        _ => &operator.live,
    };
    let (context, seconds) = (session.context(), args.how.timeout.as_secs());
    let leader = apply::adopt::await_leader(&context, &operator.lease(), deployment, seconds).await;
    leader.map(Some).map_err(|error| match error {
        Failure::Wait { what, last } => ExpectedError::Timeout { what, seconds, last },
        error => observe_failed(error),
    })
}

/// Says if Karpenter was scaled up again meanwhile: it stands by, and takes over when Tenon's
/// leader ends.
async fn restored(
    session: &Session,
    found: &Karpenter,
    printer: Printer,
) -> Result<(), ExpectedError> {
    let deployment = &found.operator.live;
    let key = deployment.key();
    let live = session.target.cluster.get(&deployment.resource, &key).await;
    let live = live.map_err(observe_failed)?.unwrap_or_default();
    if live.pointer("/spec/replicas").and_then(Value::as_i64).is_some_and(|now| now > 0) {
        printer.warn(&format!(
            "{key} was scaled up again: its pods stand by, and one of them takes over when Tenon's \
             leader ends. Set its replicas to 0 where they come from"
        ));
    }
    Ok(())
}

fn unfit(args: &AdoptArgs, reasons: Vec<String>) -> ExpectedError {
    let what = if args.undo { "return to Karpenter" } else { "adoption" };
    ExpectedError::Unfit { what: what.to_owned(), reasons }
}

/// Finds Karpenter, and looks at the cluster with the settings that follow from it.
async fn observe(
    global: &GlobalArgs,
    args: &AdoptArgs,
    connection: Connection,
) -> Result<(Session, Karpenter), ExpectedError> {
    let (aws, cluster) = (connection.aws(), connection.cluster());
    let operator = karpenter::operator(cluster).await.map_err(observe_failed)?;
    let operator = operator.map_err(|reason| unfit(args, vec![reason.to_string()]))?;
    let name = connection.settings().cluster.clone();
    let reasons = unsuited(&operator, &name);
    if !reasons.is_empty() {
        return Err(unfit(args, reasons));
    }
    let found = karpenter::read(aws, cluster, &name, operator).await.map_err(observe_failed)?;
    let found = found.map_err(|reasons| unfit(args, reasons))?;
    let config = settings::adopted(connection.settings().config.clone(), &found);
    let inferred = target::infer(&global.kubeconfig());
    let settings = resolve(Source::recorded(config), global, &args.settings, &inferred)?;
    let session = Box::pin(connection.with(settings).await?.observe()).await?;
    Ok((session, found))
}

async fn observe_again(mut session: Session) -> Result<(Session, Karpenter), ExpectedError> {
    Box::pin(session.observe_again()).await?;
    let (aws, cluster) = (&session.aws, &session.target.cluster);
    let moved = |reasons: Vec<String>| ExpectedError::Moved(Moved { changes: reasons });
    let operator = karpenter::operator(cluster).await.map_err(observe_failed)?;
    let operator = operator.map_err(|reason| moved(vec![reason.to_string()]))?;
    let found = karpenter::read(aws, cluster, &session.settings.cluster, operator).await;
    let found = found.map_err(observe_failed)?.map_err(moved)?;
    Ok((session, found))
}

/// Why this Karpenter can't be taken over.
fn unsuited(operator: &karpenter::Operator, cluster: &str) -> Vec<String> {
    let mut reasons = Vec::new();
    let of = operator.options.get("CLUSTER_NAME").filter(|of| of.value() != cluster);
    if let Some(of) = of {
        reasons.push(format!(
            "{} manages cluster {}, and this is {cluster}: set the right one with --cluster",
            operator.live.key(),
            of.shown()
        ));
    }
    let old = version::running(&operator.live.body).filter(|version| {
        "1.0.0".parse().is_ok_and(|first: version::Version| first.is_newer_than(version))
    });
    if let Some(version) = old {
        reasons.push(format!(
            "Karpenter {version} stores its objects in versions before v1: upgrade it to 1.0 or \
             later first"
        ));
    }
    reasons
}

fn plan(args: &AdoptArgs, session: &Session, found: &Karpenter) -> Result<Plan, ExpectedError> {
    let id = &session.desired.installation.id;
    let seconds = args.how.timeout.as_secs();
    if args.undo {
        if found.operator.adopted_by.as_ref().is_some_and(|by| by != id) {
            let reason = "it was adopted by another installation".to_owned();
            return Err(unfit(args, vec![reason]));
        }
        let reasons = fit::against_return(found, &session.desired, &session.actual);
        if !reasons.is_empty() {
            return Err(unfit(args, reasons));
        }
        return Ok(steps::undo(found, &session.desired, &session.actual, seconds));
    }
    let reasons = fit::against_adoption(found, &session.desired);
    if !reasons.is_empty() {
        return Err(unfit(args, reasons));
    }
    let plan = session.plan()?;
    Ok(steps::adopt(plan, found, &session.desired, seconds))
}

/// What there is and what happens to it, for people.
async fn lines(
    session: &Session,
    found: &Karpenter,
    plan: &Plan,
) -> Result<Vec<Line>, ExpectedError> {
    let cluster = &session.target.cluster;
    let (pools, claims, classes) =
        (resources::node_pools(), resources::node_claims(), resources::node_classes());
    let (pools, claims, classes) =
        tokio::try_join!(cluster.list(&pools), cluster.list(&claims), cluster.list(&classes))
            .map_err(observe_failed)?;
    let operator = &found.operator;
    let version = version::running(&operator.live.body);
    let version = version.map_or_else(String::new, |version| format!(" {version}"));
    let mut lines = vec![format!(
        "Karpenter{version}: {}, {}, installed by {}",
        operator.live.key(),
        count(usize::try_from(operator.replicas).unwrap_or(0), "replica"),
        found.layout(&session.settings.cluster).in_words()
    )];
    lines.push(format!(" role {}", found.role.1.arn));
    lines.extend(found.node_roles.values().map(|role| format!(" node role {}", role.arn)));
    lines.push(match &found.queue {
        Some((name, _)) => format!(" queue {name}, {}", count(found.rules.len(), "rule")),
        None => " no queue: interruptions are not handled".to_owned(),
    });
    lines.push(format!(
        " {}, {}, {}: all stay, none is replaced",
        count(pools.len(), "NodePool"),
        count(classes.len(), "node class"),
        count(claims.len(), "NodeClaim")
    ));
    let mut lines = lines.iter().map(|line| Line::plain(line)).collect::<Vec<_>>();
    lines.extend(plan_lines(plan, &Impact::default()));
    Ok(lines)
}
