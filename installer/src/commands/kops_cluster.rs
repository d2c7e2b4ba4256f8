//! Whether the kubeconfig is for a cluster of kOps, which has no EKS API.

use std::time::Duration;

use tenon_installer_core::audit::Audit;
use tenon_installer_core::kubernetes::client::Cluster;
use tenon_installer_core::target;
use tokio::time::timeout;

use crate::cli::GlobalArgs;
use crate::errors::ExpectedError;
use crate::kops::compare::cluster_name;

/// A cluster that does not answer for so long is no reason to wait before EKS is asked.
const ANSWER: Duration = Duration::from_secs(5);

/// A cluster of kOps.
pub(super) struct KopsCluster {
    /// As in `metadata.name` of its Cluster.
    pub(super) name: String,
    /// The connection.
    pub(super) kube: Cluster,
}

/// The cluster of the kubeconfig, if it is one of kOps and no EKS cluster is named: by a flag, by
/// the settings (`named`), or by the kubeconfig.
pub(super) async fn find(global: &GlobalArgs, named: Option<&str>) -> Option<KopsCluster> {
    let named = global.cluster.as_deref().or(named);
    let is_of_eks = match named {
        // Names in EKS have no dots, and those in kOps are DNS names.
        Some(name) => !name.contains('.'),
        None => target::infer(&global.kubeconfig()).cluster.is_some(),
    };
    if is_of_eks {
        return None;
    }
    let asked = async {
        let client = target::client(&global.kubeconfig()).await.ok()?;
        let kube = Cluster::new(client, Audit::default());
        let name = cluster_name(&kube).await.ok()??;
        Some(KopsCluster { name, kube })
    };
    let found = timeout(ANSWER, asked).await.ok()??;
    named.is_none_or(|name| name == found.name).then_some(found)
}

/// Refuses what only EKS clusters can have.
pub(super) async fn refuse(global: &GlobalArgs, named: Option<&str>) -> Result<(), ExpectedError> {
    let Some(KopsCluster { name, .. }) = find(global, named).await else { return Ok(()) };
    Err(ExpectedError::Unfit {
        what: format!("{name} is a kOps cluster, and this command is for EKS clusters"),
        reasons: vec![
            "to install or upgrade Tenon, run `tenon kops install`; to remove it, `tenon kops \
             uninstall`"
                .to_owned(),
            "to pause the NodePools, run `tenon freeze`; `tenon status` and `tenon doctor` show how \
             they are"
                .to_owned(),
            "to use an EKS cluster, name it with --cluster, or choose its context with --context"
                .to_owned(),
        ],
    })
}
