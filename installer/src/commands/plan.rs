//! `tenon plan`

use super::session::{Fallback, Session, source};
use crate::cli::{GlobalArgs, PlanArgs};
use crate::errors::ExpectedError;
use crate::printer::Printer;

/// Shows what `install` would do.
pub async fn run(
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
    printer.plan(&session.target_json(), &session.plan()?);
    Ok(0)
}
