//! `tenon diff`

use super::session::{Fallback, Session, source};
use super::shown_plan;
use crate::cli::GlobalArgs;
use crate::cli::plan::DiffArgs;
use crate::errors::ExpectedError;
use crate::exit_codes::EXIT_DRIFT;
use crate::printer::Printer;

/// Shows what differs from the settings.
pub(crate) async fn run(
    global: &GlobalArgs,
    args: &DiffArgs,
    printer: &Printer,
) -> Result<u8, ExpectedError> {
    let session =
        Box::pin(Session::open(global, &args.settings, source(&args.settings)?, Fallback::Record))
            .await?;
    session.introduce(*printer);
    let plan = session.plan()?;
    let (impact, trial) = tokio::join!(session.impact(&plan), session.try_out(&plan));
    let impact = impact?;
    shown_plan::warn(*printer, &trial);
    shown_plan::print(*printer, &session.target_json(), &plan, &impact, &trial)?;
    Ok(if plan.steps.is_empty() { 0 } else { EXIT_DRIFT })
}
