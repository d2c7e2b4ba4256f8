//! `tenon preflight`: whether cluster and account are fit for Tenon. Changes nothing.

use std::collections::BTreeSet;

use tenon_checks::observed::Observed;
use tenon_checks::report::{Options, Report, judge};
use tenon_checks::{missing_image, placeholder};
use tenon_installer_core::plan::Plan;
use tenon_installer_core::settings::SettingsError;
use tenon_installer_core::settings::problem::Problem;
use tenon_installer_core::settings::values::Values;
use tenon_installer_core::target;
use tenon_installer_core::words::count;

use super::kops_cluster;
use super::kops_observation;
use super::observation::{Asking, Observation, observe_session};
use super::session::{Session, source};
use crate::cli::GlobalArgs;
use crate::cli::overlay::resolve;
use crate::cli::preflight::{CheckArgs, PreflightArgs};
use crate::errors::ExpectedError;
use crate::exit_codes::EXIT_PREFLIGHT;
use crate::printer::Printer;

/// What to check before an installation but these; ids that no check has are an error.
pub(super) fn all_but(skip: &[String]) -> Result<Options, ExpectedError> {
    let skip = skip.iter().map(|id| id.to_uppercase()).collect::<BTreeSet<_>>();
    let options = Options { skip, ..Options::default() };
    let unknown = options.unknown_ids();
    if unknown.is_empty() {
        return Ok(options);
    }
    let problems = unknown
        .into_iter()
        .map(|id| Problem::of_flag("--skip", format!("there is no check {id}")))
        .collect();
    Err(ExpectedError::Settings(SettingsError { problems }))
}

impl CheckArgs {
    /// What to check before an installation; ids that no check has are an error.
    pub(super) fn options(&self) -> Result<Options, ExpectedError> {
        all_but(&self.skip)
    }

    /// What to read before an installation.
    pub(super) fn asking(&self) -> Asking {
        Asking { proxies: self.proxies.both(), installed: false, inside: self.in_cluster }
    }
}

/// Makes the checks.
pub(crate) async fn run(
    global: &GlobalArgs,
    args: &PreflightArgs,
    printer: &Printer,
) -> Result<u8, ExpectedError> {
    let options = Options { strict: args.strict, ..args.checks.options()? };
    let given = source(&args.settings)?;
    let kops = kops_cluster::find(global, given.config.cluster.name.as_deref()).await;
    let asking = args.checks.asking();
    let seen = if let Some(cluster) = kops {
        let settings = &args.settings;
        Box::pin(kops_observation::observe(global, cluster, given, settings, asking)).await?
    } else {
        let inferred = target::infer(&global.kubeconfig());
        let settings = resolve(given, global, &args.settings, &inferred)?;
        let observation = Box::pin(Observation::at(global, settings)).await?;
        Box::pin(observation.observe(asking)).await
    };
    Ok(show(&judge(&seen, &options), args.all, *printer))
}

/// Prints a report; the exit code.
pub(super) fn show(report: &Report, all: bool, printer: Printer) -> u8 {
    printer.json(report);
    printer.prose(&report.text(all));
    if report.success { 0 } else { EXIT_PREFLIGHT }
}

/// The checks that `install` makes before it changes anything. A fatal one ends it.
pub(super) async fn before_install(
    session: &Session,
    plan: &Plan,
    checks: &CheckArgs,
    printer: &Printer,
) -> Result<(), ExpectedError> {
    let options = checks.options()?;
    let seen: Observed = Box::pin(observe_session(session, Some(plan), checks.asking())).await;
    let settings = &session.settings;
    is_fit(&seen, settings.manage_operator.then_some(&settings.values), &options, *printer)
}

/// Warns of what is not fatal; what is ends the command. `values` are the operator's, if it is
/// installed.
pub(super) fn is_fit(
    seen: &Observed,
    values: Option<&Values>,
    options: &Options,
    printer: Printer,
) -> Result<(), ExpectedError> {
    if let Some(values) = values {
        has_image(values, seen, options)?;
    }
    let report = judge(seen, options);
    for warning in report.warnings() {
        printer.warn(&warning);
    }
    let counts = report.counts;
    printer.note(&format!(
        "preflight: {} passed, {}, {} unknown",
        count(counts.passed, "check"),
        count(counts.warnings, "warning"),
        counts.unknown
    ));
    if report.success {
        Ok(())
    } else {
        Err(ExpectedError::Preflight { reasons: report.reasons() })
    }
}

/// The operator would not start without its image.
fn has_image(values: &Values, seen: &Observed, options: &Options) -> Result<(), ExpectedError> {
    if let Some(why) = placeholder(seen) {
        return Err(SettingsError { problems: vec![Problem::of_flag("--image", why)] }.into());
    }
    let has_secrets = !values.image_pull_secrets.is_empty();
    let missing = missing_image(seen, &values.controller.image.reference(), has_secrets);
    match missing.filter(|_| !options.skip.contains("IM-01")) {
        Some(why) => Err(ExpectedError::Preflight { reasons: vec![format!("IM-01 {why}")] }),
        None => Ok(()),
    }
}
