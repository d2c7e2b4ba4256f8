//! `tenon doctor`: all checks, also of the operator at work, with the cause of what it says.
//! Changes nothing.

use std::path::Path;

use tenon_checks::observed::{CostTags, Observed};
use tenon_checks::report::{Options, judge};
use tenon_installer_core::files::FileError;
use tenon_installer_core::settings::Inferred;
use tenon_installer_core::settings::SettingsError;
use tenon_installer_core::settings::problem::Problem;
use tenon_installer_core::target::{self, Target};

use super::kops_cluster::{self, KopsCluster};
use super::kops_observation;
use super::observation::{Asking, Observation, observe_session};
use super::preflight::show;
use super::session::{Fallback, Session, region_of_nodes, source};
use crate::cli::GlobalArgs;
use crate::cli::doctor::DoctorArgs;
use crate::cli::overlay::resolve;
use crate::errors::ExpectedError;
use crate::kops::compare::cluster_name;
use crate::printer::Printer;

/// Makes the checks.
pub(crate) async fn run(
    global: &GlobalArgs,
    args: &DoctorArgs,
    printer: &Printer,
) -> Result<u8, ExpectedError> {
    let mut options = Options { strict: args.strict, installed: true, ..args.checks.options()? };
    let cost_tags = args.cost_allocation_tags.as_deref().map(cost_tags).transpose()?;
    let mut seen = match &args.from {
        Some(file) => read(file)?,
        None if args.service_account => {
            let (seen, with_aws) = Box::pin(observe_from_pod(global, args)).await?;
            options.without_aws = !with_aws;
            seen
        }
        None => match kops_cluster_of(global, args).await? {
            Some(cluster) => {
                let settings = args.installation.settings();
                let asking = Asking { installed: true, ..args.checks.asking() };
                let given = source(&settings)?;
                Box::pin(kops_observation::observe(global, cluster, given, &settings, asking))
                    .await?
            }
            None => Box::pin(observe(global, args, printer)).await?,
        },
    };
    seen.cost_tags = cost_tags.or(seen.cost_tags);
    Ok(show(&judge(&seen, &options), args.all, *printer))
}

fn read(file: &Path) -> Result<Observed, ExpectedError> {
    let text = std::fs::read_to_string(file).map_err(FileError::reading(file))?;
    serde_json::from_str(&text).map_err(|error| {
        let line = u64::try_from(error.line()).ok();
        unreadable(file, line, error.to_string())
    })
}

fn cost_tags(file: &Path) -> Result<CostTags, ExpectedError> {
    let text = std::fs::read_to_string(file).map_err(FileError::reading(file))?;
    CostTags::parse(&text).map_err(|problem| unreadable(file, None, problem))
}

fn unreadable(file: &Path, line: Option<u64>, problem: String) -> ExpectedError {
    let problems = vec![Problem::in_file(file, line, "", problem)];
    ExpectedError::Settings(SettingsError { problems })
}

/// The settings of the installation's record where it can be read, else those that are given: a
/// doctor is called when things are broken.
async fn observe(
    global: &GlobalArgs,
    args: &DoctorArgs,
    printer: &Printer,
) -> Result<Observed, ExpectedError> {
    let asking = Asking { installed: true, ..args.checks.asking() };
    let settings = args.installation.settings();
    let given = source(&settings)?;
    let session = Session::open(global, &settings, given, Fallback::Record).await;
    if let Ok(session) = session {
        session.introduce(*printer);
        let plan = session.plan().ok();
        return Ok(observe_session(&session, plan.as_ref(), asking).await);
    }
    let inferred = target::infer(&global.kubeconfig());
    let settings = resolve(source(&settings)?, global, &settings, &inferred)?;
    let observation = Observation::at(global, settings).await?;
    Ok(observation.observe(asking).await)
}

async fn kops_cluster_of(
    global: &GlobalArgs,
    args: &DoctorArgs,
) -> Result<Option<KopsCluster>, ExpectedError> {
    let given = source(&args.installation.settings())?;
    Ok(kops_cluster::find(global, given.config.cluster.name.as_deref()).await)
}

/// What a pod sees, and whether it has credentials for AWS. There is no record without AWS, which
/// says whose it is; the region is that of the nodes, unless it is given.
async fn observe_from_pod(
    global: &GlobalArgs,
    args: &DoctorArgs,
) -> Result<(Observed, bool), ExpectedError> {
    let target = Target::of_service_account().await?;
    let mut global = global.clone();
    if global.region.is_none() && global.default_region.is_none() {
        global.region = region_of_nodes(&target.cluster.client()).await?;
    }
    let settings = args.installation.settings();
    let settings = resolve(source(&settings)?, &global, &settings, &Inferred::default())?;
    let asking = Asking { installed: true, inside: false, ..args.checks.asking() };
    // Charts before this one let nobody read it here.
    let kops = cluster_name(&target.cluster).await.ok().flatten();
    if kops.is_some_and(|name| name == settings.cluster) {
        let seen = kops_observation::observe_at(&global, target, settings, asking).await?;
        return Ok((seen, false));
    }
    let aws = global.connect_region(&settings.region).await?;
    let observation = Observation::with(&global, settings, aws, target).await;
    let with_aws = observation.has_aws();
    Ok((observation.observe(asking).await, with_aws))
}
