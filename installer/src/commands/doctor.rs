//! `tenon doctor`: all checks, also of the operator at work, with the cause of what it says.
//! Changes nothing.

use tenon_checks::observed::Observed;
use tenon_checks::report::judge;
use tenon_installer_core::files::FileError;
use tenon_installer_core::settings::SettingsError;
use tenon_installer_core::settings::problem::Problem;
use tenon_installer_core::target;

use super::observation::{Look, observe_session};
use super::preflight::show;
use super::session::{Fallback, Session, source};
use crate::cli::GlobalArgs;
use crate::cli::doctor::DoctorArgs;
use crate::cli::overlay::resolve;
use crate::errors::ExpectedError;
use crate::printer::Printer;

/// Makes the checks.
pub(crate) async fn run(
    global: &GlobalArgs,
    args: &DoctorArgs,
    printer: &Printer,
) -> Result<u8, ExpectedError> {
    let options = args.checks.options(args.strict, true)?;
    let seen = match &args.from {
        Some(file) => read(file)?,
        None => Box::pin(look(global, args, printer)).await?,
    };
    Ok(show(&judge(&seen, &options), args.all, *printer))
}

fn read(file: &std::path::Path) -> Result<Observed, ExpectedError> {
    let text = std::fs::read_to_string(file).map_err(FileError::reading(file))?;
    serde_json::from_str(&text).map_err(|error| {
        ExpectedError::Settings(SettingsError {
            problems: vec![Problem::in_file(
                file,
                u64::try_from(error.line()).ok(),
                "",
                error.to_string(),
            )],
        })
    })
}

/// The settings of the installation's record where it can be read, else those that are given: a
/// doctor is called when things are broken.
async fn look(
    global: &GlobalArgs,
    args: &DoctorArgs,
    printer: &Printer,
) -> Result<Observed, ExpectedError> {
    let asking = args.checks.asking(true);
    let settings = args.installation.settings();
    let session = Session::open(global, &settings, source(&settings)?, Fallback::Record).await;
    if let Ok(session) = session {
        session.introduce(*printer);
        let plan = session.plan().ok();
        return Ok(observe_session(&session, plan.as_ref(), asking).await);
    }
    let inferred = target::infer(&global.kubeconfig());
    let settings = resolve(source(&settings)?, global, &settings, &inferred)?;
    let look = Look::at(global, settings).await?;
    Ok(look.observe(asking).await)
}
