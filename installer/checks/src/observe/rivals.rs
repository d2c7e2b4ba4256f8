//! Other autoscalers that run in the cluster, before anything else is known of it.

use tenon_installer_core::kubernetes::client::Cluster;

use super::super::autoscalers::{is_cluster_autoscaler, is_karpenter, is_ours};
use super::super::observed::WorkloadView;
use super::kubernetes::{builtin, list, workload};
use super::unread::Unread;

/// What it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RivalKind {
    /// Karpenter, with the APIs that Tenon has.
    Karpenter,
    /// The Cluster Autoscaler, which scales node groups.
    ClusterAutoscaler,
}

/// A Deployment of another autoscaler, with at least one replica.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rival {
    /// What it is.
    pub kind: RivalKind,
    /// Namespace of its workload.
    pub namespace: String,
    /// Name of its workload.
    pub name: String,
}

/// Other autoscalers that run.
pub async fn rivals(cluster: &Cluster) -> Result<Vec<Rival>, Unread> {
    let deployments = list(cluster, &builtin("apps", "v1", "Deployment", "deployments")).await?;
    Ok(deployments.iter().map(workload).filter_map(rival).collect())
}

fn rival(deployment: WorkloadView) -> Option<Rival> {
    if deployment.wanted == 0 || is_ours(&deployment) {
        return None;
    }
    let kind = if is_karpenter(&deployment) {
        RivalKind::Karpenter
    } else if is_cluster_autoscaler(&deployment) {
        RivalKind::ClusterAutoscaler
    } else {
        return None;
    };
    Some(Rival { kind, namespace: deployment.namespace, name: deployment.name })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_runs_and_is_not_ours_is_a_rival() {
        let deployment = |image: &str, wanted| WorkloadView {
            namespace: "kube-system".to_owned(),
            name: "x".to_owned(),
            images: vec![image.to_owned()],
            wanted,
            ..WorkloadView::default()
        };
        let kind = |image: &str, wanted| rival(deployment(image, wanted)).map(|found| found.kind);
        let autoscaler = "registry.k8s.io/autoscaling/cluster-autoscaler:v1.34.0";
        assert_eq!(kind(autoscaler, 1), Some(RivalKind::ClusterAutoscaler));
        assert_eq!(kind(autoscaler, 0), None);
        let karpenter = "public.ecr.aws/karpenter/controller:1.6.0";
        assert_eq!(kind(karpenter, 2), Some(RivalKind::Karpenter));
        assert_eq!(kind("registry.example/tenon-operator:0.1.0", 2), None);
        assert_eq!(kind("nginx", 1), None);
    }
}
