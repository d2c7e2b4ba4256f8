//! `tenon freeze` and `tenon unfreeze`: all NodePools stand still, and go on.

use serde_json::json;
use tenon_installer_core::apply::StepError;
use tenon_installer_core::cleanup::Cleanup;
use tenon_installer_core::kubernetes::client::Cluster;
use tenon_installer_core::kubernetes::operator_deployment::{ARGO_CD, gitops};
use tenon_installer_core::kubernetes::resources;

use super::kops_cluster::{self, KopsCluster};
use super::session::{Fallback, Session, observe_failed, source, take_lock_of};
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
    let source = source(&settings)?;
    let operation = if thaw { "unfreeze" } else { "freeze" };
    let kops = kops_cluster::find(global, source.config.cluster.name.as_deref()).await;
    // The session keeps the connection's token fresh.
    let (cluster, target, _lock, _session) = if let Some(KopsCluster { name, kube }) = kops {
        printer.note(&format!("kOps cluster {name}, by kubeconfig"));
        let lock = take_lock_of(&kube, None, global, operation, cleanup).await?;
        (kube, json!({"cluster": name}), lock, None)
    } else {
        let session = Box::pin(Session::open(global, &settings, source, Fallback::Record)).await?;
        session.introduce(*printer);
        let lock = session.lock(global, operation, cleanup).await?;
        (session.target.cluster.clone(), session.target_json(), lock, Some(session))
    };
    let motion = if thaw { Motion::Free } else { Motion::Still };
    if !thaw {
        warn_of_argo_cd(&cluster, *printer).await?;
    }
    let mut changed = Vec::new();
    let done = set_motion(&cluster, motion, &mut changed).await;
    done.map_err(|error| {
        ExpectedError::Step(StepError {
            step: operation.to_owned(),
            done: changed.len(),
            source: error.into(),
        })
    })?;
    printer.json(&json!({
        "schema": "tenon.sh/freeze/v1alpha1",
        "target": target,
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

/// Argo CD reverts what is not in git, and no mark on an object keeps it from that.
async fn warn_of_argo_cd(cluster: &Cluster, printer: Printer) -> Result<(), ExpectedError> {
    let pools = cluster.list(&resources::node_pools()).await;
    for pool in pools.map_err(observe_failed)? {
        let live = json!(pool);
        if gitops(&live) == Some(ARGO_CD) {
            let name = pool.metadata.name.as_deref().unwrap_or_default();
            printer.warn(&format!(
                "Argo CD manages NodePool {name} and resumes it at its next sync: annotate its \
                 Application with argocd.argoproj.io/skip-reconcile=true until `tenon unfreeze`"
            ));
        }
    }
    Ok(())
}
