//! What the checks look at in a kOps cluster.

use tenon_checks::observed::Observed;
use tenon_installer_core::audit::Audit;
use tenon_installer_core::kubernetes::client::Cluster;
use tenon_installer_core::settings::{Inferred, Settings, Source};
use tenon_installer_core::target::{self, Target};

use super::kops_cluster::KopsCluster;
use super::observation::{Asking, Observation};
use super::session::{observe_failed, region_of_nodes};
use crate::cli::overlay::resolve;
use crate::cli::{GlobalArgs, SettingArgs};
use crate::errors::ExpectedError;
use crate::kops::compare::cluster_name;

/// What the API server of a kOps cluster says.
pub(super) async fn observe(
    global: &GlobalArgs,
    KopsCluster { name, kube }: KopsCluster,
    source: Source,
    args: &SettingArgs,
    asking: Asking,
) -> Result<Observed, ExpectedError> {
    let region = region_of_nodes(&kube.client()).await.unwrap_or_default();
    let inferred = Inferred { cluster: Some(name), region };
    let settings = resolve(source, global, args, &inferred)?;
    observe_with(global, settings, asking).await
}

/// The same with settings that are known. Nothing of AWS is read.
pub(super) async fn observe_with(
    global: &GlobalArgs,
    settings: Settings,
    asking: Asking,
) -> Result<Observed, ExpectedError> {
    if asking.inside {
        return Err(ExpectedError::Unfit {
            what: format!(
                "{} is a kOps cluster, and --in-cluster is for EKS clusters",
                settings.cluster
            ),
            reasons: vec!["leave --in-cluster out, or run `helm test`".to_owned()],
        });
    }
    let target = Target::by_kubeconfig(&global.kubeconfig(), Audit::default()).await?;
    observe_at(global, target, settings, asking).await
}

/// The same by an API server that is known.
pub(super) async fn observe_at(
    global: &GlobalArgs,
    target: Target,
    settings: Settings,
    asking: Asking,
) -> Result<Observed, ExpectedError> {
    let aws = global.connect_region(&settings.region).await?;
    let mut seen = Observation::of_kops(settings, aws, target).observe_kubernetes(asking).await;
    seen.asked.kops = true;
    Ok(seen)
}

/// What to do where [`region`] is not known.
pub(super) const NO_REGION: &str = "no node says in which region the cluster is: add --region";

/// The region of a kOps cluster: the one that is named, that of its nodes, or the default.
pub(super) async fn region(
    global: &GlobalArgs,
    kube: &Cluster,
) -> Result<Option<String>, ExpectedError> {
    if global.region.is_some() {
        return Ok(global.region.clone());
    }
    let of_nodes = region_of_nodes(&kube.client()).await?;
    Ok(of_nodes.or_else(|| global.default_region.clone()))
}

/// The cluster of the kubeconfig, which has to be one of kOps.
pub(super) async fn connect(global: &GlobalArgs) -> Result<KopsCluster, ExpectedError> {
    let client = target::client(&global.kubeconfig()).await?;
    let kube = Cluster::new(client, Audit::default());
    let name = cluster_name(&kube).await.map_err(observe_failed)?;
    let reason = match (name, &global.cluster) {
        (None, _) => {
            "the kubeconfig is for a cluster without kops-controller, so it is not a kOps \
                      cluster: choose the context with --context; for an EKS cluster, leave `kops` \
                      out of the command"
                .to_owned()
        }
        (Some(name), Some(asked)) if name != *asked => {
            format!("the kubeconfig is for cluster {name}: choose the context with --context")
        }
        (Some(name), _) => return Ok(KopsCluster { name, kube }),
    };
    Err(ExpectedError::Unfit { what: "nothing was changed".to_owned(), reasons: vec![reason] })
}
