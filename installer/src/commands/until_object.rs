//! Waiting for an object, in front of a person.

use std::time::Duration;

use serde_json::Value;
use tenon_installer_core::apply::wait::pods_in_trouble;
use tenon_installer_core::kubernetes::client::Cluster;
use tenon_installer_core::kubernetes::object::Object;
use tokio::time::Instant;

use crate::errors::ExpectedError;
use crate::printer::{Printer, StatusLine};

/// Waits until an object lacks nothing, and shows what it lacks: on a terminal in a line that
/// counts the seconds, elsewhere whenever it changes.
pub(super) async fn until_object(
    cluster: &Cluster,
    object: &Object,
    lacks: fn(Option<&Value>) -> Option<String>,
    end: Instant,
    printer: &Printer,
) -> Result<(), ExpectedError> {
    let began = Instant::now();
    let what = object.key().to_string();
    let mut status = StatusLine::new(*printer);
    loop {
        let missing = match cluster.get(&object.resource, &object.key()).await {
            Ok(live) => lacks(live.as_ref()),
            // The API server may restart while we wait.
            Err(error) if error.is_transient() => Some(error.to_string()),
            Err(error) => return Err(ExpectedError::Observe(error.into())),
        };
        let Some(missing) = missing else {
            status.end();
            printer.done(&what, "ready", began.elapsed());
            return Ok(());
        };
        status.show(&format!("{what}: {missing}"), began.elapsed());
        if Instant::now() >= end {
            status.end();
            let seconds = began.elapsed().as_secs();
            return Err(ExpectedError::Timeout {
                what,
                seconds,
                last: pods_in_trouble(cluster, object).await.unwrap_or(missing),
            });
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}
