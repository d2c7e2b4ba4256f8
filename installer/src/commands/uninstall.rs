//! `tenon uninstall`: show, confirm, remove in order, and prove that nothing is left.

use super::session::{Connection, Fallback, Session, observe_failed, source};
use crate::cleanup::Cleanup;
use crate::cli::{GlobalArgs, UninstallArgs};
use crate::errors::ExpectedError;
use crate::journal::Journal;
use crate::printer::Printer;
use crate::prompt::{Prompt, Terminal};
use crate::uninstall::risk::Risk;
use crate::uninstall::{Inventory, Options, Remover};

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
    let risk = risk(&session, &inventory).await?;
    let mut lines = inventory.lines();
    lines.extend(risk.lines());
    if args.dry_run {
        printer.json(&serde_json::json!({"schema": "tenon.sh/uninstall/v1alpha1", "target": session.target_json(), "inventory": inventory.lines(), "risk": risk}));
        printer.text(&lines.join("\n"));
        return Ok(0);
    }
    for line in lines {
        printer.note(&line);
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
        keep_crds: args.keep_crds,
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
    }));
    for line in proof.text() {
        printer.text(&line);
    }
    Ok(if proof.left.is_empty() { 0 } else { crate::errors::EXIT_PARTIAL })
}

/// Without NodeClaims there are no nodes whose pods would have to move.
async fn risk(session: &Session, inventory: &Inventory) -> Result<Risk, ExpectedError> {
    if inventory.node_claims.is_empty() {
        return Ok(Risk::default());
    }
    let cluster = &session.target.cluster;
    let (nodes, pods, budgets) =
        tokio::try_join!(cluster.all(), cluster.all(), cluster.all()).map_err(observe_failed)?;
    Ok(Risk::of(&nodes, &pods, &budgets))
}

fn confirm(global: &GlobalArgs, cluster: &str) -> Result<(), ExpectedError> {
    if !Printer::is_interactive() || global.non_interactive || global.ci {
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
