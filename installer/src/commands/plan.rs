//! `tenon plan`

use std::path::Path;

use tenon_installer_core::clock;
use tenon_installer_core::plan::saved::SavedPlan;

use super::session::{Fallback, Session, source};
use super::shown_plan;
use crate::cli::GlobalArgs;
use crate::cli::plan::PlanArgs;
use crate::errors::ExpectedError;
use crate::printer::Printer;

/// Shows what `install` would do.
pub(crate) async fn run(
    global: &GlobalArgs,
    args: &PlanArgs,
    printer: &Printer,
) -> Result<u8, ExpectedError> {
    let session = Box::pin(Session::open(
        global,
        &args.settings,
        source(&args.settings)?,
        Fallback::Defaults,
    ))
    .await?;
    session.introduce(*printer);
    let plan = session.plan()?;
    let target = session.target_json();
    let (impact, trial) = tokio::join!(session.impact(&plan), session.try_out(&plan));
    let impact = impact?;
    shown_plan::warn(*printer, &trial);
    shown_plan::print(*printer, &target, &plan, &impact, &trial)?;
    if let Some(out) = &args.out {
        let directory = args.settings.aws.installation.file.as_deref().and_then(Path::parent);
        let directory = directory.unwrap_or(Path::new(""));
        let config = &session.settings.config;
        SavedPlan::new(&plan, target, config, directory, clock::now()).write(out)?;
        printer
            .note(&format!("saved: `tenon apply {}` makes exactly these changes", out.display()));
    }
    Ok(0)
}
