//! `tenon doctor`: all checks, also of the operator at work, with the cause of what it says. Changes nothing.

use std::path::PathBuf;

use clap::Args;

use super::look::{Look, observe_session};
use super::preflight::{CheckArgs, show};
use super::session::{Fallback, Session, source};
use crate::checks::observed::Observed;
use crate::checks::report::judge;
use crate::cli::{GlobalArgs, SettingArgs};
use crate::errors::ExpectedError;
use crate::printer::Printer;
use crate::settings::Settings;
use crate::settings::problem::Problem;
use crate::target;

/// `tenon doctor`
#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// What is asked for.
    #[command(flatten)]
    pub settings: SettingArgs,
    /// Which checks.
    #[command(flatten)]
    pub checks: CheckArgs,
    /// Let warnings fail, too
    #[arg(long)]
    pub strict: bool,
    /// Also show the checks that pass
    #[arg(long)]
    pub all: bool,
    /// Judge what a support bundle holds (its file observed.json) instead of looking
    #[arg(long, value_name = "FILE")]
    pub from: Option<PathBuf>,
}

/// Makes the checks.
pub async fn run(
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
    let text = std::fs::read_to_string(file).map_err(|source| ExpectedError::File {
        operation: "read",
        path: file.to_owned(),
        source,
    })?;
    serde_json::from_str(&text).map_err(|error| ExpectedError::Settings {
        problems: vec![Problem::in_file(
            file,
            u64::try_from(error.line()).ok(),
            "",
            error.to_string(),
        )],
    })
}

/// The settings of the installation's record where it can be read, else those that are given: a doctor is called when things are broken.
async fn look(
    global: &GlobalArgs,
    args: &DoctorArgs,
    printer: &Printer,
) -> Result<Observed, ExpectedError> {
    let asking = args.checks.asking(true);
    let session =
        Session::open(global, &args.settings, source(&args.settings)?, Fallback::Record).await;
    if let Ok(session) = session {
        session.introduce(*printer);
        let plan = session.plan().ok();
        return Ok(observe_session(&session, plan.as_ref(), asking).await);
    }
    let inferred = target::infer(global);
    let settings = Settings::resolve(source(&args.settings)?, global, &args.settings, &inferred)?;
    let look = Look::at(global, settings).await;
    Ok(look.observe(asking).await)
}
