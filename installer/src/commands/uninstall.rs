//! `tenon uninstall`: show, confirm, remove in order, and prove that nothing is left.

use std::time::Duration;

use clap::Args;
use tokio::time::Instant;

use super::execution::{Execution, open_audit};
use super::session::{Connection, Fallback, Session, observe_failed, source};
use crate::apply::wait;
use crate::cleanup::Cleanup;
use crate::cli::{GlobalArgs, SettingArgs, parse_duration};
use crate::errors::{ExpectedError, count, some};
use crate::journal::Journal;
use crate::plan::Plan;
use crate::printer::Printer;
use crate::prompt;
use crate::uninstall::risk::Risk;
use crate::uninstall::{
    Inventory, Mode, Motion, Options, Remover, Side, frozen_in_words, guard, keep_used,
    operator_lives, repair, set_motion,
};

/// How many steps of a repair may run at once, as in an installation.
const REPAIR_AT_ONCE: u8 = 6;

/// `tenon uninstall`
#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag that is given or not")]
pub struct UninstallArgs {
    /// What was asked for; default: what the installation recorded.
    #[command(flatten)]
    pub settings: SettingArgs,
    /// Don't ask for confirmation
    #[arg(short, long, env = "TENON_YES", hide_env_values = true, value_parser = clap::builder::FalseyValueParser::new(), default_value = "", num_args = 0, default_missing_value = "true")]
    pub yes: bool,
    /// Show what would be removed and change nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Keep the nodes, and what they need to run: operator, NodePools and queue go, instances stay
    #[arg(long, conflicts_with = "aws_only")]
    pub keep_nodes: bool,
    /// Remove nodes, operator and CRDs, and leave what the installer made in AWS
    #[arg(long, conflicts_with = "aws_only")]
    pub k8s_only: bool,
    /// Remove what the installer made in AWS, after somebody else (GitOps) has removed the operator
    #[arg(long)]
    pub aws_only: bool,
    /// Keep the CRDs
    #[arg(long)]
    pub keep_crds: bool,
    /// Bring a missing operator back first, so that it drains its nodes and takes its finalizers off itself
    #[arg(long, conflicts_with_all = ["aws_only", "keep_nodes"])]
    pub repair_first: bool,
    /// Go on although the nodes that stay have no room for all pods that have to move: those will wait
    #[arg(long, conflicts_with_all = ["aws_only", "keep_nodes"])]
    pub force_capacity: bool,
    /// Let go of NodeClaims whose instances can't be proven gone: their ids are listed, and the exit code is 4
    #[arg(long, conflicts_with_all = ["aws_only", "keep_nodes"])]
    pub abandon_instances: bool,
    /// Drain the nodes of so many NodePools at once, the others standing still meanwhile; default: of all
    #[arg(long, value_parser = clap::value_parser!(u8).range(1..), value_name = "N", conflicts_with_all = ["aws_only", "keep_nodes"])]
    pub parallel: Option<u8>,
    /// How long disruption budgets may hold pods up; default: as long as they want while the operator drains, 5m without it
    #[arg(long, value_parser = parse_duration, value_name = "TIME")]
    pub drain_timeout: Option<Duration>,
    /// Give up waiting for any one thing after this time
    #[arg(long, env = "TENON_TIMEOUT", hide_env_values = true, value_parser = parse_duration, default_value = "20m", value_name = "TIME")]
    pub timeout: Duration,
}

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
        printer.warn("nodes that are kept run, and cost, until somebody terminates them; an operator that is installed into this cluster later terminates them, because it knows no NodeClaim of theirs");
    }
    if !args.force_capacity {
        enough_room(&risk)?;
    }
    if !inventory.is_empty() && !args.yes {
        confirm(global, &session.settings.cluster).await?;
    }
    if lock.is_none() {
        lock = Some(session.lock(global, "uninstall", cleanup).await?);
        (inventory, repair) = Box::pin(look_again(args, &mut session, &inventory)).await?;
        guard(mode, &inventory, &session.desired, &session.world)?;
    }
    let audit = open_audit(&session.aws, "uninstall", session.file.as_deref())?;
    if let Some(plan) = repair {
        Box::pin(bring_back(global, args, &session, plan, printer)).await?;
        (inventory, _) = Box::pin(look_again(args, &mut session, &inventory)).await?;
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
        printer.text(&line);
    }
    if let Some(audit) = audit.filter(|_| !proof.removed.is_empty()) {
        printer.note(&format!("Every call that deleted something is in {}", audit.display()));
    }
    let is_clean = proof.left.is_empty() && proof.abandoned.is_empty();
    Ok(if is_clean { 0 } else { crate::errors::EXIT_PARTIAL })
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
async fn look_again(
    args: &UninstallArgs,
    session: &mut Session,
    before: &Inventory,
) -> Result<(Inventory, Option<Plan>), ExpectedError> {
    session.look_again().await?;
    let context = session.context();
    let namespace = &session.settings.namespace;
    let inventory = before.again(&context, &session.desired, &session.world, namespace).await?;
    let repair = repair_plan(args, session, &inventory).await?;
    Ok((inventory, repair))
}

/// Refuses to leave pods without a node, unless that is wanted.
fn enough_room(risk: &Risk) -> Result<(), ExpectedError> {
    if risk.without_room.is_empty() {
        return Ok(());
    }
    let pods = count(risk.without_room.len(), "pod");
    Err(ExpectedError::Refused {
        reasons: vec![format!("the nodes that stay have no room for {pods}: {}", some(&risk.without_room, 5))],
        hints: vec![
            "add nodes or scale these workloads down first; --force-capacity goes on, and the pods wait".to_owned(),
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

/// Carries the repair out, and waits until the operator is there. NodePools stand still before it comes, so that it launches nothing.
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
    done.map_err(|error| ExpectedError::Step {
        step: "freeze".to_owned(),
        done: frozen.len(),
        source: error.into(),
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
        wait::until_object(cluster, deployment, wait::deployment_lacks, end, printer).await?;
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
    if !inventory.nodes.has_any() || mode.keep_nodes {
        return Ok(Risk::default());
    }
    let cluster = &session.target.cluster;
    let (nodes, pods, budgets) =
        tokio::try_join!(cluster.all(), cluster.all(), cluster.all()).map_err(observe_failed)?;
    Ok(Risk::of(&nodes, &pods, &budgets))
}

async fn confirm(global: &GlobalArgs, cluster: &str) -> Result<(), ExpectedError> {
    if !global.may_ask() {
        return Err(ExpectedError::NotConfirmed {
            hint: "add --yes to remove all of this without being asked",
        });
    }
    let question = format!("This removes all of it. Type the cluster's name ({cluster}) to go on");
    let answer = prompt::input(&question, None).await.map_err(ExpectedError::prompt)?;
    if answer == cluster {
        Ok(())
    } else {
        Err(ExpectedError::NotConfirmed { hint: "the name was not the cluster's" })
    }
}
