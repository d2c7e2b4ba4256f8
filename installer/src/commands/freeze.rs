//! `tenon freeze` and `tenon unfreeze`: all NodePools stand still, and go on.

use serde_json::json;

use super::session::{Fallback, Session, observe_failed, source};
use crate::cleanup::Cleanup;
use crate::cli::{FreezeArgs, GlobalArgs};
use crate::errors::{ExpectedError, Failure};
use crate::kubernetes::freeze;
use crate::kubernetes::object::Key;
use crate::printer::Printer;
use crate::uninstall::resources;

/// Freezes all NodePools, or thaws them.
pub async fn run(
    global: &GlobalArgs,
    args: &FreezeArgs,
    thaw: bool,
    printer: &Printer,
    cleanup: &Cleanup,
) -> Result<u8, ExpectedError> {
    let session =
        Box::pin(Session::open(global, &args.settings, source(&args.settings)?, Fallback::Record))
            .await?;
    session.introduce(*printer);
    let operation = if thaw { "unfreeze" } else { "freeze" };
    let _lock = session.lock(global, operation, cleanup).await?;
    let resource = resources::node_pools();
    let cluster = &session.target.cluster;
    let mut changed = Vec::new();
    for pool in cluster.list(&resource).await.map_err(observe_failed)? {
        let name = pool.metadata.name.clone().unwrap_or_default();
        let key = Key {
            api_version: resource.api_version.clone(),
            kind: resource.kind.clone(),
            namespace: None,
            name: name.clone(),
        };
        let live = serde_json::to_value(&pool).expect("an object from JSON goes back to JSON");
        let patch = if thaw { freeze::thaw(&live) } else { freeze::freeze(&live) };
        let Some(patch) = patch else { continue };
        cluster.merge(&resource, &key, &patch).await.map_err(|error| ExpectedError::Step {
            step: key.to_string(),
            done: changed.len(),
            source: Failure::from(error),
        })?;
        changed.push(name);
    }
    printer.json(&json!({
        "schema": "tenon.sh/freeze/v1alpha1",
        "target": session.target_json(),
        "frozen": !thaw,
        "changed": changed,
    }));
    let what = match (changed.is_empty(), thaw) {
        (true, false) => "All NodePools were frozen already.".to_owned(),
        (true, true) => "No NodePool was frozen.".to_owned(),
        (false, false) => format!(
            "Frozen: {}. They launch nothing and disrupt nothing until `tenon unfreeze`; interruptions are still handled.",
            changed.join(", ")
        ),
        (false, true) => format!("As they were before: {}.", changed.join(", ")),
    };
    printer.text(&what);
    Ok(0)
}
