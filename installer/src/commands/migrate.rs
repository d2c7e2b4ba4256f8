//! `tenon migrate`: from other tools to Tenon.

mod cas;

use serde_json::{Value, json};
use tenon_installer_core::cleanup::Cleanup;
use tenon_installer_core::failure::Failure;
use tenon_installer_core::kubernetes::object::{Key, Object};
use tenon_installer_core::kubernetes::operator_deployment;
use tenon_installer_core::lock::Lock;
use tenon_installer_core::plan::impact::Impact;
use tenon_installer_core::plan::text::{Line, counts, plan_lines};
use tenon_installer_core::plan::{Moved, Plan};
use tenon_installer_core::words::count;

use super::execution::{Execution, confirm, open_audit};
use super::session::{Fallback, Session, observe_failed, source};
use crate::cli::GlobalArgs;
use crate::cli::migrate::{MigrateArgs, MigrateFrom, NthArgs};
use crate::errors::ExpectedError;
use crate::migrate::nth::fit::{self, Wanted};
use crate::migrate::nth::{self, Feed, Found, Handler, Ours, steps};
use crate::migrate::stopped::Stopped as _;
use crate::printer::Printer;

/// Migrates.
pub(crate) async fn run(
    global: &GlobalArgs,
    args: &MigrateArgs,
    printer: &Printer,
    cleanup: &Cleanup,
) -> Result<u8, ExpectedError> {
    match &args.from {
        MigrateFrom::Cas(args) => Box::pin(cas::run(global, args, printer, cleanup)).await,
        MigrateFrom::Nth(args) => from_nth(global, args, printer, cleanup).await,
    }
}

/// Asks whether to go on, then keeps other installers away.
async fn agreed(
    global: &GlobalArgs,
    session: &Session,
    (operation, what): (&str, &str),
    cleanup: &Cleanup,
) -> Result<Lock, ExpectedError> {
    confirm(global, &format!("Proceed with the {what}?")).await?;
    session.lock(global, operation, cleanup).await
}

/// Whether what was agreed to is still what has to be done.
fn same(plan: &Plan, now: &Plan) -> Result<(), ExpectedError> {
    if plan == now {
        Ok(())
    } else {
        Err(ExpectedError::Moved(Moved { changes: plan.changes_to(now) }))
    }
}

async fn from_nth(
    global: &GlobalArgs,
    args: &NthArgs,
    printer: &Printer,
    cleanup: &Cleanup,
) -> Result<u8, ExpectedError> {
    let settings = args.installation.settings();
    let given = source(&settings)?;
    let session = Box::pin(Session::open(global, &settings, given, Fallback::Record)).await?;
    session.introduce(*printer);
    let at_once = args.yes && !args.dry_run;
    let lock =
        if at_once { Some(session.lock(global, "migrate nth", cleanup).await?) } else { None };
    let (found, ours) = observe(&session, args).await?;
    let plan = plan(&session, args, &found, &ours)?;
    let mut report = report(&session, args, &found, &plan);
    if plan.steps.is_empty() {
        printer.json(&report);
        printer.prose(&nothing(args, &found));
        left(*printer, &found);
        return Ok(0);
    }
    let lines = lines(&found, &plan);
    if args.dry_run {
        printer.json(&report);
        printer.lines(&lines);
        return Ok(0);
    }
    printer.note_lines(&lines);
    let lock = match lock {
        Some(lock) => lock,
        None => {
            let what = if args.undo { "return to Node Termination Handler" } else { "migration" };
            let lock = agreed(global, &session, ("migrate nth", what), cleanup).await?;
            let (found, ours) = observe(&session, args).await?;
            same(&plan, &self::plan(&session, args, &found, &ours)?)?;
            lock
        }
    };
    open_audit(&session.aws, "migrate nth", session.file.as_deref())?;
    let execution = Execution {
        global,
        session: &session,
        operation: if args.undo { "migrate nth --undo" } else { "migrate nth" },
        parallel: 1,
        back_to: None,
        printer,
    };
    let done = if session.is_recorded() {
        execution.run(plan.clone()).await?
    } else {
        execution.run_unrecorded(plan.clone()).await?
    };
    drop(lock);
    report["changed"] = done.into();
    printer.json(&report);
    let what = if args.undo {
        "Node Termination Handler runs again"
    } else {
        "Tenon alone handles interruptions now"
    };
    printer.prose(&format!("{what} ({}).", counts(&plan)));
    if !args.undo {
        left(*printer, &found);
    }
    Ok(0)
}

async fn observe(session: &Session, args: &NthArgs) -> Result<(Found, Ours), ExpectedError> {
    let (aws, kube) = (&session.aws, &session.target.cluster);
    let read = async {
        let handlers = nth::handlers(kube).await?;
        let with_hooks = !args.keep_aws && !args.undo;
        let found = nth::read(aws, kube, handlers, &session.desired.scope, with_hooks).await?;
        let expected = expected(session);
        let ours = match operator_deployment::find(kube, &expected).await? {
            Some(operator) => Ours::read(aws, kube, &operator).await?,
            None => Ours::missing(&expected),
        };
        Ok::<_, Failure>((found, ours))
    };
    read.await.map_err(observe_failed)
}

/// Where the operator's Deployment is by the settings.
fn expected(session: &Session) -> Key {
    let usual = || Key {
        api_version: "apps/v1".to_owned(),
        kind: "Deployment".to_owned(),
        namespace: Some(session.settings.namespace.clone()),
        name: session.settings.values.fullname().to_string(),
    };
    session.desired.deployment().map_or_else(usual, Object::key)
}

fn plan(
    session: &Session,
    args: &NthArgs,
    found: &Found,
    ours: &Ours,
) -> Result<Plan, ExpectedError> {
    let id = session.desired.installation.id.as_str();
    let seconds = args.timeout.as_secs();
    let wanted = Wanted { keep_aws: args.keep_aws, allow_unhandled: args.allow_unhandled_nodes };
    let (what, reasons) = match args.undo {
        true => (
            "return to Node Termination Handler",
            steps::against_undo(found, &session.desired.scope, id),
        ),
        _ if found.handlers.is_empty() => ("", Vec::new()),
        false => ("migration", fit::against(found, ours, &session.desired.scope, wanted)),
    };
    if !reasons.is_empty() {
        return Err(ExpectedError::Unfit { what: what.to_owned(), reasons });
    }
    if args.undo {
        return Ok(steps::undo(found, (id, seconds)));
    }
    let mut plan = steps::migrate(found, ours, wanted, (id, seconds));
    plan.warnings.extend(fit::warnings(found, wanted));
    Ok(plan)
}

fn report(session: &Session, args: &NthArgs, found: &Found, plan: &Plan) -> Value {
    let handler = |one: &Handler| {
        json!({
            "kind": one.live.resource.kind,
            "namespace": one.live.namespace,
            "name": one.live.name,
            "queue": one.queue(),
            "isStopped": one.is_stopped(),
        })
    };
    let feed = |one: &Feed| {
        let hooks = one.hooks.iter().map(|hook| format!("{}/{}", hook.group, hook.name));
        json!({
            "name": one.name,
            "rules": one.rules.keys().collect::<Vec<_>>(),
            "lifecycleHooks": hooks.collect::<Vec<_>>(),
        })
    };
    json!({
        "schema": "tenon.sh/migrate-nth/v1alpha1",
        "target": session.target_json(),
        "undo": args.undo,
        "handlers": found.handlers.iter().map(handler).collect::<Vec<_>>(),
        "events": found.kinds(),
        "queues": found.feeds.values().map(feed).collect::<Vec<_>>(),
        "unhandledNodes": found.unhandled,
        "actions": plan.steps,
        "warnings": plan.warnings,
        "callerActions": plan.caller_actions(),
        "changed": 0,
    })
}

/// What there is and what happens to it, for people.
fn lines(found: &Found, plan: &Plan) -> Vec<Line> {
    let handlers = found.handlers.iter().map(|one| {
        let source = match one.queue() {
            Some(url) => format!("reads queue {url}"),
            None => "reads instance metadata".to_owned(),
        };
        format!("Node Termination Handler: {}, {source}", one.live.key())
    });
    let mut lines = handlers.collect::<Vec<_>>();
    let kinds = found.kinds().into_iter().map(nth::Kind::in_words).collect::<Vec<_>>();
    if !kinds.is_empty() {
        lines.push(format!(" handles {}", kinds.join(", ")));
    }
    lines.extend(found.feeds.values().map(|feed| {
        let (rules, hooks) = (feed.rules.len(), feed.hooks.len());
        let hooks = count(hooks, "lifecycle hook");
        format!(" queue {}: {}, {hooks}", feed.name, count(rules, "rule"))
    }));
    let mut lines = lines.iter().map(|line| Line::plain(line)).collect::<Vec<_>>();
    lines.extend(plan_lines(plan, &Impact::default()));
    lines
}

fn nothing(args: &NthArgs, found: &Found) -> String {
    let why = match (args.undo, found.handlers.is_empty()) {
        (_, true) => "there is no Node Termination Handler in this cluster",
        (true, false) => "this installation has stopped no Node Termination Handler",
        (false, false) => "Node Termination Handler is stopped, and nothing of it is left in AWS",
    };
    format!("Nothing to do: {why}.")
}

/// What only its owner can remove.
fn left(printer: Printer, found: &Found) {
    for handler in &found.handlers {
        let key = handler.live.key();
        let command = handler.live.removal();
        printer.prose(&format!(
            "{key} is stopped; when you no longer want to return to it, remove it and its IAM \
             role:"
        ));
        printer.text(&format!("    {command}"));
    }
}
