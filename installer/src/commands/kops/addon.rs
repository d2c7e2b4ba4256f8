//! `tenon kops augment` and `tenon kops queue`: what interruptions need.

use std::sync::Arc;

use serde_json::json;
use tenon_installer_core::apply::{self, Context, Options, Progress};
use tenon_installer_core::journal::Journal;
use tenon_installer_core::kubernetes::client::Cluster;
use tenon_installer_core::observe::facts;
use tenon_installer_core::plan::Plan;
use tenon_installer_core::plan::impact::Impact;
use tenon_installer_core::plan::text::{counts, plan_lines};

use super::super::execution::confirm;
use super::super::session::observe_failed;
use super::{Source, failed, patches, unfit};
use crate::cli::GlobalArgs;
use crate::cli::kops::{AugmentArgs, ConsentArgs, QueueArgs};
use crate::errors::ExpectedError;
use crate::kops::augment::{self, Events, Wanted};
use crate::printer::Printer;

/// The schema of the report.
const SCHEMA: &str = "tenon.sh/kops-augment/v1alpha1";

/// How a plan is carried out, and what is said of it.
struct Manner {
    consent: ConsentArgs,
    remove: bool,
    /// When there is nothing to do.
    nothing: &'static str,
    /// When it is done.
    done: &'static str,
}

pub(super) async fn run(
    global: &GlobalArgs,
    args: &AugmentArgs,
    printer: Printer,
) -> Result<u8, ExpectedError> {
    let patches = patches(&args.state)?;
    let source = Source::read(global, &args.state.store, &args.state.groups).await?;
    if !source.state.cluster.has_karpenter_addon && !args.remove {
        let why = "the Cluster has no spec.karpenter.enabled: there is nothing to add to; `tenon \
                   kops sync` runs InstanceGroups with Tenon's operator";
        return Err(unfit(vec![why.to_owned()]));
    }
    let wanted = wanted(&source).await?;
    let generated = source.generate().await?;
    let elsewhere = source.elsewhere(&generated);
    let objects = generated.into_iter().flat_map(|one| one.objects);
    let patches = patches.alone(&objects.collect::<Vec<_>>(), &elsewhere);
    let patches = patches.map_err(|problems| failed(problems.into()))?;
    let kube = source.connect(global).await?;
    let look = async || -> Result<Plan, ExpectedError> {
        let read = augment::read(&source.aws, &kube, &wanted).await.map_err(observe_failed)?;
        let Some(addon) = read else {
            let why = "kOps' Karpenter add-on does not run: there is no Deployment karpenter in \
                       kube-system with the label addon.kops.k8s.io/name=karpenter.sh; run `kops \
                       update cluster --yes`";
            return Err(unfit(vec![why.to_owned()]));
        };
        let reasons = addon.against(&wanted, &patches);
        if !reasons.is_empty() {
            return Err(unfit(reasons));
        }
        Ok(if args.remove { addon.restore(&wanted) } else { addon.augment(&wanted, &patches) })
    };
    let (nothing, done) = if args.remove {
        ("nothing of Tenon is there", "Karpenter is as kOps installed it")
    } else {
        ("Karpenter has it all", "Karpenter handles interruptions")
    };
    let AugmentArgs { consent, remove, .. } = *args;
    let manner = Manner { consent, remove, nothing, done };
    carry_out(global, (&source, &kube), &wanted, look, &manner, printer).await
}

pub(super) async fn queue(
    global: &GlobalArgs,
    args: &QueueArgs,
    printer: Printer,
) -> Result<u8, ExpectedError> {
    let source = Source::read(global, &args.store, &[]).await?;
    let kube = source.connect(global).await?;
    let wanted = wanted(&source).await?;
    let look = async || -> Result<Plan, ExpectedError> {
        let events = Events::read(&source.aws, &wanted).await.map_err(observe_failed)?;
        let reasons = events.against(&wanted);
        if !reasons.is_empty() {
            return Err(unfit(reasons));
        }
        let mut plan = Plan::default();
        if args.remove {
            events.remove(&wanted, &mut plan);
        } else {
            plan = events.ensure(&wanted);
        }
        Ok(plan)
    };
    let (nothing, done) = if args.remove {
        ("there is no queue of this cluster", "The queue and its rules are gone")
    } else {
        ("the queue and its rules are there", "The queue and its rules are there")
    };
    let QueueArgs { consent, remove, .. } = *args;
    let manner = Manner { consent, remove, nothing, done };
    carry_out(global, (&source, &kube), &wanted, look, &manner, printer).await
}

/// Carries a plan out. Answers how many steps were done.
pub(super) async fn apply(
    global: &GlobalArgs,
    context: Context,
    plan: Plan,
    printer: Printer,
) -> Result<usize, ExpectedError> {
    let options = Options { parallel: 4, fault_after: global.fault_exit_after_step };
    let progress: Arc<dyn Progress> = Arc::new(printer);
    let mut journal = Journal::unwritten();
    Ok(apply::run(Arc::new(context), plan, options, &mut journal, &progress).await?)
}

pub(super) async fn wanted(source: &Source) -> Result<Wanted, ExpectedError> {
    let caller = facts::read_caller(&source.aws).await.map_err(observe_failed)?;
    Ok(Wanted::new(&source.state.cluster.name, &source.region, &caller.account))
}

/// Shows the plan, asks, looks again, and carries it out. Nothing is recorded: what is there tells
/// the next run what is left.
async fn carry_out(
    global: &GlobalArgs,
    (source, kube): (&Source, &Cluster),
    wanted: &Wanted,
    look: impl AsyncFn() -> Result<Plan, ExpectedError>,
    manner: &Manner,
    printer: Printer,
) -> Result<u8, ExpectedError> {
    let plan = look().await?;
    let mut report = json!({
        "schema": SCHEMA,
        "cluster": source.state.cluster.name,
        "remove": manner.remove,
        "actions": plan.steps,
        "callerActions": plan.caller_actions(),
        "changed": 0,
    });
    if plan.steps.is_empty() {
        printer.json(&report);
        printer.prose(&format!("Nothing to do: {}.", manner.nothing));
        return Ok(0);
    }
    let lines = plan_lines(&plan, &Impact::default());
    if manner.consent.dry_run {
        printer.json(&report);
        printer.lines(&lines);
        return Ok(0);
    }
    printer.note_lines(&lines);
    if !manner.consent.yes {
        confirm(global, "Apply these changes?").await?;
        if look().await? != plan {
            return Err(unfit(vec!["something has changed since: review the plan again".into()]));
        }
    }
    let context = Context {
        aws: source.aws.clone(),
        cluster: kube.clone(),
        cluster_name: source.state.cluster.name.clone(),
        install_id: wanted.installation.id.clone(),
    };
    let done = apply(global, context, plan.clone(), printer).await?;
    report["changed"] = done.into();
    printer.json(&report);
    printer.prose(&format!("{} ({}).", manner.done, counts(&plan)));
    Ok(0)
}
