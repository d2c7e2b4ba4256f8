//! `tenon kops install`: the operator, its queue, and the NodePools of the InstanceGroups.

use serde_json::json;
use tenon_checks::observe::gap_in_words;
use tenon_iam_policies::cover::gaps;
use tenon_installer_core::apply::{Context, wait};
use tenon_installer_core::cleanup::Cleanup;
use tenon_installer_core::kubernetes::client::Cluster;
use tenon_installer_core::kubernetes::{resources, trial};
use tenon_installer_core::observe::{granted, iam};
use tenon_installer_core::plan::Plan;
use tenon_installer_core::plan::text::{counts, plan_lines};
use tenon_installer_core::settings::config::Config;
use tenon_installer_core::settings::{Inferred, Settings, Source as Given};
use tenon_installer_core::words::some;
use tenon_kops::{Generated, queue_name};
use tokio::time::Instant;

use super::super::execution::confirm;
use super::super::kops_observation::observe_with;
use super::super::observation::Asking;
use super::super::preflight::{all_but, is_fit};
use super::super::session::{observe_failed, take_lock_of};
use super::super::shown_plan;
use super::super::until_object::until_object;
use super::addon::{apply, wanted};
use super::{Source, lock_file, role_of, say_rest, unfit};
use crate::canary::Canary;
use crate::cli::GlobalArgs;
use crate::cli::kops::InstallArgs;
use crate::cli::overlay::overlay_deploy;
use crate::errors::ExpectedError;
use crate::kops::augment::{Events, Wanted};
use crate::kops::compare::Comparison;
use crate::kops::operator::{self, ACCOUNT, Place};
use crate::kops::permissions::{is_of_kops, permissions, roles};
use crate::kops::software::{Found, Software};
use crate::printer::Printer;
use crate::upgrade::version::Version;

/// The schema of the report.
const SCHEMA: &str = "tenon.sh/kops-install/v1alpha1";

/// What creates the operator's role.
const ROLE_BY_KOPS: &str = "add the output of `tenon kops export cluster` with `kops edit \
                            cluster`, then run `kops update cluster --yes`";
/// Who gives the permissions to a role of an instance profile that an InstanceGroup names.
const ROLE_OF_OTHERS: &str = "kOps does not manage this role: add the statements that `tenon kops \
                              export cluster` prints to one of its policies";

/// What is to be there, and where.
struct Installation {
    source: Source,
    kube: Cluster,
    events: Wanted,
    software: Software,
    generated: Vec<Generated>,
    /// How long the pods of another version may take to become ready.
    seconds: u64,
}

pub(super) async fn run(
    global: &GlobalArgs,
    args: &InstallArgs,
    printer: Printer,
    cleanup: &Cleanup,
) -> Result<u8, ExpectedError> {
    let options = all_but(&args.skip)?;
    let (source, generated) = Source::with_objects(global, &args.state).await?;
    source.has_no_add_on()?;
    let kube = source.connect(global).await?;
    let place = source.place(true).await?;
    let settings = settings(global, args, &place)?;
    has_permissions(&source, &place).await?;
    source.say_identity(printer);
    let events = wanted(&source).await?;
    let software = Software::new(&settings.values, &events.installation.id);
    let seconds = args.timeout.as_secs();
    let installation = Installation { source, kube, events, software, generated, seconds };
    let kube = &installation.kube;
    let file = lock_file(global, &place.cluster);
    let take_lock = || take_lock_of(kube, file.as_deref(), global, "kops install", cleanup);
    let mut lock = None;
    if args.consent.yes && !args.consent.dry_run {
        lock = Some(take_lock().await?);
    }
    let (plan, compared) = installation.look().await?;
    let trial = trial::attempt(kube, &plan.applied_objects()).await;
    shown_plan::warn(printer, &trial);
    let mut report = json!({
        "schema": SCHEMA,
        "cluster": place.cluster,
        "actions": plan.steps,
        "callerActions": plan.caller_actions(),
        "outlook": compared.impact,
        "changed": 0,
        "ready": false,
    });
    let lines = plan_lines(&plan, &compared.impact);
    if args.consent.dry_run {
        shown_plan::print_or_refuse(printer, &trial, &report, &lines)?;
        say_rest(&compared, printer);
        return Ok(0);
    }
    shown_plan::accepted(&trial)?;
    if !plan.steps.is_empty() {
        let asking = Asking { proxies: args.proxies.both(), ..Asking::default() };
        let seen = Box::pin(observe_with(global, settings.clone(), asking)).await?;
        is_fit(&seen, Some(&settings.values), &options, printer)?;
        printer.note_lines(&lines);
        if lock.is_none() {
            confirm(global, "Apply these changes?").await?;
            lock = Some(take_lock().await?);
            if installation.look().await?.0 != plan {
                let why = "something has changed since: review the plan again";
                return Err(unfit(vec![why.to_owned()]));
            }
        }
    }
    let summary = counts(&plan);
    let done = apply(global, installation.context(), plan, printer).await?;
    drop(lock);
    if !args.no_wait {
        installation.until_ready(Instant::now() + args.timeout, printer).await?;
    }
    if args.canary {
        let context = installation.context();
        let queue = queue_name(&place.cluster);
        let timeout = args.timeout;
        let canary = Canary { context: &context, queue: Some(&queue), timeout, printer };
        report["canary"] = json!(Box::pin(canary.run(cleanup)).await?);
    }
    report["changed"] = done.into();
    report["ready"] = (!args.no_wait).into();
    printer.json(&report);
    printer.prose(&if done == 0 {
        "Nothing to do: Tenon is installed as asked for.".to_owned()
    } else {
        format!("Tenon is installed ({summary}).")
    });
    say_rest(&compared, printer);
    Ok(0)
}

/// The chart's values: those that the operator needs here, with the person's own over them.
fn settings(
    global: &GlobalArgs,
    args: &InstallArgs,
    place: &Place,
) -> Result<Settings, ExpectedError> {
    let mut config = Config::default();
    config.cluster.name = Some(place.cluster.clone());
    config.cluster.region = Some(place.region.clone());
    let problems = overlay_deploy(&mut config.deploy, &args.deploy);
    let own = std::mem::take(&mut config.deploy.values);
    config.deploy.values = operator::values_with(place, own);
    let mut given = Given::recorded(config);
    given.problems = problems;
    given.allow_unknown_region = global.allow_unknown_region;
    let mut settings = Settings::resolve(given, &Inferred::default())?;
    let values = &mut settings.values;
    values.settings.cluster_name.clone_from(&place.cluster);
    values.settings.interruption_queue = queue_name(&place.cluster);
    let account = values.service_account_name();
    if account != ACCOUNT {
        return Err(unfit(vec![format!(
            "the operator's ServiceAccount would be {account}, and its role is for {ACCOUNT}: \
             leave nameOverride and fullnameOverride out, or set serviceAccount.name to {ACCOUNT}"
        )]));
    }
    Ok(settings)
}

/// Without its role, or with too few permissions, the operator could launch nothing.
async fn has_permissions(source: &Source, place: &Place) -> Result<(), ExpectedError> {
    let needed = permissions(place).map_err(|error| unfit(vec![error.to_string()]))?;
    for arn in roles(place) {
        let name = role_of(&arn);
        let Some(role) = iam::role(&source.aws, name).await.map_err(observe_failed)? else {
            return Err(unfit(vec![format!(
                "the operator's IAM role {name} does not exist: {ROLE_BY_KOPS}"
            )]));
        };
        let granted = granted::documents(&source.aws, &role).await.map_err(observe_failed)?;
        let gaps = needed.iter().flat_map(|document| gaps(granted.values(), document));
        let gaps = gaps.map(|gap| gap_in_words(&gap)).collect::<Vec<_>>();
        if !gaps.is_empty() {
            let remedy = if is_of_kops(place, name) { ROLE_BY_KOPS } else { ROLE_OF_OTHERS };
            return Err(unfit(vec![format!(
                "the operator's IAM role {name} lacks permissions ({}): {remedy}",
                some(&gaps, 3)
            )]));
        }
    }
    Ok(())
}

impl Installation {
    /// What is to be done, or why nothing must be.
    async fn look(&self) -> Result<(Plan, Comparison), ExpectedError> {
        let Self { source, kube, events, software, generated, seconds } = self;
        let queue = async { Events::read(&source.aws, events).await.map_err(observe_failed) };
        let objects = async { Found::read(kube, software).await.map_err(observe_failed) };
        let compared = source.compare(generated, kube, false);
        let (queue, found, mut compared) = tokio::try_join!(queue, objects, compared)?;
        let mut reasons = queue.against(events);
        reasons.extend(found.against(software));
        reasons.append(&mut compared.reasons);
        let version = found.version(software).and_then(|version| version.parse::<Version>().ok());
        if let Some(newer) = version.filter(|version| version.is_newer_than(&Version::own())) {
            reasons.push(format!(
                "the operator in the cluster has version {newer}, and this `tenon` is older: use \
                 version {newer} or later"
            ));
        }
        if !reasons.is_empty() {
            return Err(unfit(reasons));
        }
        let mut plan = queue.ensure(events);
        found.ensure(software, &mut plan, *seconds);
        let first = plan.steps.iter().map(|step| step.id.clone()).collect::<Vec<_>>();
        let then = compared.plan.steps.drain(..).map(|step| step.after(first.clone()));
        plan.steps.extend(then);
        Ok((plan, compared))
    }

    fn context(&self) -> Context {
        Context {
            aws: self.source.aws.clone(),
            cluster: self.kube.clone(),
            cluster_name: self.source.state.cluster.name.clone(),
            install_id: self.events.installation.id.clone(),
        }
    }

    /// Waits until the operator serves and finds what its EC2NodeClasses name.
    async fn until_ready(&self, end: Instant, printer: Printer) -> Result<(), ExpectedError> {
        if let Some(deployment) = self.software.deployment() {
            until_object(&self.kube, deployment, wait::deployment_lacks, end, &printer).await?;
        }
        let objects = self.generated.iter().flat_map(|one| one.objects.iter().cloned());
        for class in objects.filter_map(resources::node_object) {
            if class.resource.kind == "EC2NodeClass" {
                until_object(&self.kube, &class, wait::readiness_lacks, end, &printer).await?;
            }
        }
        Ok(())
    }
}
