//! `tenon uninstall`: show, confirm, remove in order, and prove that nothing is left.

use tenon_installer_core::apply::{StepError, wait};
use tenon_installer_core::cleanup::Cleanup;
use tenon_installer_core::journal::Journal;
use tenon_installer_core::kubernetes::client::Cluster;
use tenon_installer_core::plan::Plan;
use tenon_installer_core::words::{count, some};
use tokio::time::Instant;

use super::execution::{Execution, open_audit};
use super::session::{Connection, Fallback, Session, observe_failed, source};
use super::until_object::until_object;
use crate::cli::GlobalArgs;
use crate::cli::uninstall::UninstallArgs;
use crate::errors::ExpectedError;
use crate::printer::Printer;
use crate::prompt;
use crate::uninstall::risk::Risk;
use crate::uninstall::{
    Inventory, Mode, Motion, Options, Remover, Side, frozen_in_words, guard, keep_used,
    operator_lives, repair, set_motion,
};

/// How many steps of a repair may run at once, as in an installation.
const REPAIR_AT_ONCE: u8 = 6;

/// Uninstalls.
pub(crate) async fn run(
    global: &GlobalArgs,
    args: &UninstallArgs,
    printer: &Printer,
    cleanup: &Cleanup,
) -> Result<u8, ExpectedError> {
    let settings = args.installation.settings();
    let connection =
        Box::pin(Connection::open(global, &settings, source(&settings)?, Fallback::Record)).await?;
    let mut lock = if args.yes && !args.dry_run {
        Some(connection.lock(global, "uninstall", cleanup).await?)
    } else {
        None
    };
    let mut session = Box::pin(connection.observe()).await?;
    session.introduce(*printer);
    if session.settings.prevent_uninstall {
        return Err(ExpectedError::Protected);
    }
    let context = session.context();
    let mut inventory =
        Inventory::read(&context, &session.desired, &session.actual, &session.settings.namespace)
            .await?;
    let mode = mode(args);
    guard(mode, &inventory, &session.desired, &session.actual)?;
    let risk = risk(&session, &inventory, mode).await?;
    let mut repair = repair_plan(args, &session, &inventory).await?;
    let (goes, kept) = shown(&session, &inventory, mode).await?;
    let mut lines = goes.clone();
    lines.extend(kept.iter().map(|kept| format!(" = kept: {kept}")));
    lines.extend(risk.lines());
    if let Some(plan) = &repair {
        let steps = plan.steps.iter().map(|step| format!("{} {}", step.kind, step.resource));
        lines.push(format!(" ~ repaired first: {}", steps.collect::<Vec<_>>().join(", ")));
    }
    if args.dry_run {
        printer.json(&serde_json::json!({
            "schema": "tenon.sh/uninstall/v1alpha1",
            "target": session.target_json(),
            "inventory": goes,
            "kept": kept,
            "risk": risk,
            "repair": repair.as_ref().map(|plan| &plan.steps),
        }));
        printer.text(&lines.join("\n"));
        return Ok(0);
    }
    for line in lines {
        printer.note(&line);
    }
    if mode.keep_nodes && inventory.nodes.has_any() {
        printer.warn(
            "kept nodes run, and incur cost, until you terminate them; an operator that \
             is installed into this cluster later terminates them, because they have no NodeClaim",
        );
    }
    if !args.force_capacity {
        enough_room(&risk)?;
    }
    if !inventory.is_empty() && !args.yes {
        confirm(global, &session.settings.cluster).await?;
    }
    if lock.is_none() {
        lock = Some(session.lock(global, "uninstall", cleanup).await?);
        (inventory, repair) = Box::pin(observe_again(args, &mut session, &inventory)).await?;
        guard(mode, &inventory, &session.desired, &session.actual)?;
    }
    let audit = open_audit(&session.aws, "uninstall", session.file.as_deref())?;
    if let Some(plan) = repair {
        Box::pin(bring_back(global, args, &session, plan, printer)).await?;
        (inventory, _) = Box::pin(observe_again(args, &mut session, &inventory)).await?;
    }
    let proof = Box::pin(remover(global, args, &session, *printer).run(inventory)).await?;
    drop(lock);
    printer.json(&serde_json::json!({
        "schema": "tenon.sh/uninstall/v1alpha1",
        "target": session.target_json(),
        "removed": proof.removed,
        "kept": proof.kept,
        "left": proof.left,
        "abandoned": proof.abandoned,
        "proof": proof.queries,
        "audit": audit,
    }));
    for line in proof.text() {
        printer.prose(&line);
    }
    if let Some(audit) = audit.filter(|_| !proof.removed.is_empty()) {
        printer.note(&format!("Audit log of all deletions: {}", audit.display()));
    }
    let is_clean = proof.left.is_empty() && proof.abandoned.is_empty();
    Ok(if is_clean { 0 } else { crate::exit_codes::EXIT_PARTIAL })
}

fn remover<'a>(
    global: &GlobalArgs,
    args: &UninstallArgs,
    session: &'a Session,
    printer: Printer,
) -> Remover<'a> {
    let journal = Journal::new(
        &session.desired.installation.id,
        &session.settings.config,
        "uninstall",
        session.file.clone(),
        session.target.cluster.clone(),
        &session.settings.namespace,
    );
    let directory = session.file.as_ref().and_then(|file| file.parent());
    let options = Options {
        mode: mode(args),
        drain_timeout: args.drain_timeout,
        timeout: args.timeout,
        parallel: args.parallel.map(usize::from),
        abandon: args.abandon_instances,
        fault_after: global.fault_exit_after_step,
        backup_dir: directory.map(std::path::Path::to_owned),
    };
    let (desired, namespace) = (&session.desired, &session.settings.namespace);
    Remover::new(session.context(), desired, namespace, options, journal, printer)
}

/// Looks once more: what was seen before the lock, or before a repair, may have changed.
async fn observe_again(
    args: &UninstallArgs,
    session: &mut Session,
    before: &Inventory,
) -> Result<(Inventory, Option<Plan>), ExpectedError> {
    session.observe_again().await?;
    let context = session.context();
    let namespace = &session.settings.namespace;
    let inventory = before.again(&context, &session.desired, &session.actual, namespace).await?;
    let repair = repair_plan(args, session, &inventory).await?;
    Ok((inventory, repair))
}

/// Refuses to leave pods without a node, unless that is wanted.
pub(super) fn enough_room(risk: &Risk) -> Result<(), ExpectedError> {
    if risk.without_room.is_empty() {
        return Ok(());
    }
    let pods = count(risk.without_room.len(), "pod");
    Err(ExpectedError::Refused {
        reasons: vec![format!(
            "the remaining nodes have no room for {pods}: {}",
            some(&risk.without_room, 5)
        )],
        hints: vec![
            "add nodes or scale these workloads down first; with --force-capacity the uninstall \
             continues, and the pods stay pending"
                .to_owned(),
        ],
    })
}

/// What brings a missing operator back, if that was asked for and there is work for it.
async fn repair_plan(
    args: &UninstallArgs,
    session: &Session,
    inventory: &Inventory,
) -> Result<Option<Plan>, ExpectedError> {
    let is_needed =
        args.repair_first && (inventory.nodes.has_any() || !inventory.nodes.classes.is_empty());
    if !is_needed || operator_lives(&session.target.cluster, session.desired.deployment()).await {
        return Ok(None);
    }
    Ok(Some(repair(session.plan()?)))
}

/// Carries the repair out, and waits until the operator is there. NodePools stand still before it
/// comes, so that it launches nothing.
async fn bring_back(
    global: &GlobalArgs,
    args: &UninstallArgs,
    session: &Session,
    plan: Plan,
    printer: &Printer,
) -> Result<(), ExpectedError> {
    let cluster = &session.target.cluster;
    let mut frozen = Vec::new();
    let done = set_motion(cluster, Motion::Still, &mut frozen).await;
    if let Some(words) = frozen_in_words(&frozen) {
        printer.note(&words);
    }
    done.map_err(|error| {
        ExpectedError::Step(StepError {
            step: "freeze".to_owned(),
            done: frozen.len(),
            source: error.into(),
        })
    })?;
    let execution = Execution {
        global,
        session,
        operation: "uninstall",
        parallel: REPAIR_AT_ONCE,
        back_to: None,
        printer,
    };
    execution.run_first(plan).await?;
    let end = Instant::now() + args.timeout;
    if let Some(deployment) = session.desired.deployment() {
        until_object(cluster, deployment, wait::deployment_lacks, end, printer).await?;
    }
    Ok(())
}

fn mode(args: &UninstallArgs) -> Mode {
    let side = match (args.k8s_only, args.aws_only) {
        (true, _) => Side::Kubernetes,
        (_, true) => Side::Aws,
        (false, false) => Side::Both,
    };
    Mode { side, keep_nodes: args.keep_nodes, keep_crds: args.keep_crds }
}

/// What goes and what stays, in this mode.
async fn shown(
    session: &Session,
    inventory: &Inventory,
    mut mode: Mode,
) -> Result<(Vec<String>, Vec<String>), ExpectedError> {
    let mut goes = inventory.clone();
    mode.keep_nodes &= inventory.nodes.has_any();
    let mut kept = Vec::from_iter(inventory.provider_stays.clone());
    kept.extend(mode.narrow(&mut goes, &session.desired));
    kept.extend(keep_used(&session.target.cluster, &mut goes).await.map_err(observe_failed)?);
    Ok((goes.lines(), kept))
}

/// Where no node goes, no pod has to move.
async fn risk(session: &Session, inventory: &Inventory, mode: Mode) -> Result<Risk, ExpectedError> {
    if mode.keep_nodes {
        return Ok(Risk::default());
    }
    risk_of_nodes(&session.target.cluster, inventory).await
}

/// What the loss of the nodes means for pods.
pub(super) async fn risk_of_nodes(
    cluster: &Cluster,
    inventory: &Inventory,
) -> Result<Risk, ExpectedError> {
    if !inventory.nodes.has_any() {
        return Ok(Risk::default());
    }
    let (nodes, pods, budgets) =
        tokio::try_join!(cluster.all(), cluster.all(), cluster.all()).map_err(observe_failed)?;
    Ok(Risk::of(&nodes, &pods, &budgets))
}

/// Asks for the cluster's name, which nobody types by accident.
pub(super) async fn confirm(global: &GlobalArgs, cluster: &str) -> Result<(), ExpectedError> {
    if !global.may_ask() {
        return Err(ExpectedError::NotConfirmed {
            hint: "add --yes to remove all of this without confirmation",
        });
    }
    let question =
        format!("This removes all of it. Type the cluster's name ({cluster}) to continue");
    let answer = prompt::input(&question, None).await.map_err(ExpectedError::prompt)?;
    if answer == cluster {
        Ok(())
    } else {
        Err(ExpectedError::NotConfirmed { hint: "the name does not match the cluster's" })
    }
}
