//! Objects that bear the installation's label, also those that the settings do not ask for: what an
//! earlier run made under other settings, or another version.

use futures::future::try_join_all;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Service, ServiceAccount};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::core::{ApiResource, GroupVersionKind};

use crate::kubernetes::client::{Cluster, KubeError};
use crate::kubernetes::monitoring::DASHBOARD;
use crate::kubernetes::object::Object;
use crate::ownership::INSTALL_ID;

/// Every type that an operator's chart has had, those that pods hang on first, and CRDs. NodePools
/// and EC2NodeClasses are not in it: nodes hang on them. Of ConfigMaps only dashboards count: the
/// installation's record and `aws-auth` have the label, too, and steps of their own.
pub fn types() -> [ApiResource; 12] {
    [
        ApiResource::erase::<Deployment>(&()),
        ApiResource::erase::<PodDisruptionBudget>(&()),
        ApiResource::erase::<Service>(&()),
        ApiResource::erase::<RoleBinding>(&()),
        ApiResource::erase::<ClusterRoleBinding>(&()),
        ApiResource::erase::<Role>(&()),
        ApiResource::erase::<ClusterRole>(&()),
        ApiResource::erase::<ServiceAccount>(&()),
        ApiResource::erase::<CustomResourceDefinition>(&()),
        ApiResource::from_gvk_with_plural(
            &GroupVersionKind::gvk("monitoring.coreos.com", "v1", "ServiceMonitor"),
            "servicemonitors",
        ),
        ApiResource::from_gvk_with_plural(
            &GroupVersionKind::gvk("monitoring.coreos.com", "v1", "PrometheusRule"),
            "prometheusrules",
        ),
        ApiResource::erase::<ConfigMap>(&()),
    ]
}

/// Looks for them, where the types may be listed: those that the settings ask for are known by
/// name, too.
pub async fn read(cluster: &Cluster, install_id: &str) -> Result<Vec<Object>, KubeError> {
    look(cluster, install_id, true).await
}

/// Looks for all of them; an error where a type may not be listed, so that nothing found is proof
/// that nothing is there.
pub async fn read_all(cluster: &Cluster, install_id: &str) -> Result<Vec<Object>, KubeError> {
    look(cluster, install_id, false).await
}

async fn look(
    cluster: &Cluster,
    install_id: &str,
    skips_denied: bool,
) -> Result<Vec<Object>, KubeError> {
    let types = types();
    let lists = types.iter().map(|resource| async {
        let mut labels = format!("{INSTALL_ID}={install_id}");
        if resource.kind == "ConfigMap" {
            labels = format!("{labels},{DASHBOARD}");
        }
        match cluster.labelled(resource, &labels).await {
            Ok(keys) => Ok(keys),
            Err(error) if skips_denied && error.is_denied() => {
                tracing::debug!("{error}: objects of earlier settings are not searched for");
                Ok(Vec::new())
            }
            // Not every cluster has the Prometheus operator.
            Err(error) if error.is_not_found() => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    });
    let found = try_join_all(lists).await?;
    let objects = types
        .iter()
        .zip(found)
        .flat_map(|(resource, keys)| keys.into_iter().map(move |key| Object::at(resource, &key)));
    Ok(objects.collect())
}
