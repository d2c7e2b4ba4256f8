//! `tenon freeze` and `tenon unfreeze`: all NodePools stand still, and go on.

use serde_json::json;
use tenon_installer_core::apply::StepError;
use tenon_installer_core::cleanup::Cleanup;

use super::session::{Fallback, Session, source};
use crate::cli::GlobalArgs;
use crate::cli::freeze::FreezeArgs;
use crate::errors::ExpectedError;
use crate::printer::Printer;
use crate::uninstall::{Motion, set_motion};

/// Freezes all NodePools, or thaws them.
pub(crate) async fn run(
    global: &GlobalArgs,
    args: &FreezeArgs,
    thaw: bool,
    printer: &Printer,
    cleanup: &Cleanup,
) -> Result<u8, ExpectedError> {
    let settings = args.installation.settings();
    let session =
        Box::pin(Session::open(global, &settings, source(&settings)?, Fallback::Record)).await?;
    session.introduce(*printer);
    let operation = if thaw { "unfreeze" } else { "freeze" };
    let _lock = session.lock(global, operation, cleanup).await?;
    let motion = if thaw { Motion::Free } else { Motion::Still };
    let mut changed = Vec::new();
    let done = set_motion(&session.target.cluster, motion, &mut changed).await;
    done.map_err(|error| {
        ExpectedError::Step(StepError {
            step: operation.to_owned(),
            done: changed.len(),
            source: error.into(),
        })
    })?;
    printer.json(&json!({
        "schema": "tenon.sh/freeze/v1alpha1",
        "target": session.target_json(),
        "frozen": !thaw,
        "changed": changed,
    }));
    let what = match (changed.is_empty(), thaw) {
        (true, false) => "All NodePools were already paused.".to_owned(),
        (true, true) => "No NodePool was paused.".to_owned(),
        (false, false) => format!(
            "Paused: {}. They launch nothing and disrupt nothing until `tenon unfreeze`; \
             interruptions are still handled.",
            changed.join(", ")
        ),
        (false, true) => format!("Resumed with their previous settings: {}.", changed.join(", ")),
    };
    printer.text(&what);
    Ok(0)
}
