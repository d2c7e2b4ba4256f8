//! `tenon uninstall`: show, confirm, remove in order, and prove that nothing is left.

use super::execution::may_ask;
use super::session::{Connection, Fallback, Session, observe_failed, source};
use crate::cleanup::Cleanup;
use crate::cli::{GlobalArgs, UninstallArgs};
use crate::errors::ExpectedError;
use crate::journal::Journal;
use crate::printer::Printer;
use crate::prompt::{Prompt, Terminal};
use crate::uninstall::risk::Risk;
use crate::uninstall::{Inventory, Mode, Options, Remover, Side, guard};

/// Uninstalls.
pub async fn run(
    global: &GlobalArgs,
    args: &UninstallArgs,
    printer: &Printer,
    cleanup: &Cleanup,
) -> Result<u8, ExpectedError> {
    let connection = Box::pin(Connection::open(
        global,
        &args.settings,
        source(&args.settings)?,
        Fallback::Record,
    ))
    .await?;
    let mut lock = if args.yes && !args.dry_run {
        Some(connection.lock(global, "uninstall", cleanup).await?)
    } else {
        None
    };
    let mut session = Box::pin(connection.look()).await?;
    session.introduce(*printer);
    if session.settings.prevent_uninstall {
        return Err(ExpectedError::Protected);
    }
    let context = session.context();
    let mut inventory =
        Inventory::read(&context, &session.desired, &session.world, &session.settings.namespace)
            .await?;
    let mode = mode(args);
    guard(mode, &inventory, &session.desired, &session.world)?;
    let risk = risk(&session, &inventory, mode).await?;
    let (mut lines, kept) = shown(&session, &inventory, mode);
    if args.dry_run {
        printer.json(&serde_json::json!({
            "schema": "tenon.sh/uninstall/v1alpha1",
            "target": session.target_json(),
            "inventory": lines,
            "kept": kept,
            "risk": risk,
        }));
        lines.extend(kept.iter().map(|kept| format!(" = kept: {kept}")));
        lines.extend(risk.lines());
        printer.text(&lines.join("\n"));
        return Ok(0);
    }
    lines.extend(kept.iter().map(|kept| format!(" = kept: {kept}")));
    lines.extend(risk.lines());
    for line in lines {
        printer.note(&line);
    }
    if mode.keep_nodes && inventory.has_nodes() {
        printer.warn("nodes that are kept run, and cost, until somebody terminates them; an operator that is installed into this cluster later terminates them, because it knows no NodeClaim of theirs");
    }
    if !inventory.is_empty() && !args.yes {
        confirm(global, &session.settings.cluster)?;
    }
    if lock.is_none() {
        lock = Some(session.lock(global, "uninstall", cleanup).await?);
        Box::pin(session.look_again()).await?;
        inventory = Inventory::read(
            &context,
            &session.desired,
            &session.world,
            &session.settings.namespace,
        )
        .await?;
        guard(mode, &inventory, &session.desired, &session.world)?;
    }
    let journal = Journal::new(
        &session.desired.installation.id,
        &session.settings.config,
        "uninstall",
        session.file.clone(),
        session.target.cluster.clone(),
        &session.settings.namespace,
    );
    let options = Options {
        mode,
        drain_timeout: args.drain_timeout,
        timeout: args.timeout,
        fault_after: global.fault_exit_after_step,
        backup_dir: session
            .file
            .as_ref()
            .and_then(|file| file.parent())
            .map(std::path::Path::to_owned),
    };
    let remover = Remover::new(
        context,
        &session.desired,
        &session.settings.namespace,
        options,
        journal,
        *printer,
    );
    let proof = Box::pin(remover.run(inventory)).await?;
    drop(lock);
    printer.json(&serde_json::json!({
        "schema": "tenon.sh/uninstall/v1alpha1",
        "target": session.target_json(),
        "removed": proof.removed,
        "kept": proof.kept,
        "left": proof.left,
        "proof": proof.queries,
    }));
    for line in proof.text() {
        printer.text(&line);
    }
    Ok(if proof.left.is_empty() { 0 } else { crate::errors::EXIT_PARTIAL })
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
fn shown(session: &Session, inventory: &Inventory, mut mode: Mode) -> (Vec<String>, Vec<String>) {
    let mut goes = inventory.clone();
    mode.keep_nodes &= inventory.has_nodes();
    let mut kept = Vec::from_iter(inventory.provider_stays.clone());
    kept.extend(mode.narrow(&mut goes, &session.desired));
    (goes.lines(), kept)
}

/// Where no node goes, no pod has to move.
async fn risk(session: &Session, inventory: &Inventory, mode: Mode) -> Result<Risk, ExpectedError> {
    if !inventory.has_nodes() || mode.keep_nodes {
        return Ok(Risk::default());
    }
    let cluster = &session.target.cluster;
    let (nodes, pods, budgets) =
        tokio::try_join!(cluster.all(), cluster.all(), cluster.all()).map_err(observe_failed)?;
    Ok(Risk::of(&nodes, &pods, &budgets))
}

fn confirm(global: &GlobalArgs, cluster: &str) -> Result<(), ExpectedError> {
    if !may_ask(global) {
        return Err(ExpectedError::NotConfirmed {
            hint: "add --yes to remove all of this without being asked",
        });
    }
    let question = format!("This removes all of it. Type the cluster's name ({cluster}) to go on");
    let answer = Terminal::default().input(&question, None).map_err(ExpectedError::Prompt)?;
    if answer == cluster {
        Ok(())
    } else {
        Err(ExpectedError::NotConfirmed { hint: "the name was not the cluster's" })
    }
}
