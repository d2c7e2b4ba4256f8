//! The APIs of custom resources, Tenon's and its neighbours', and what the objects of a cluster say
//! about themselves.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ApiResource, DynamicObject, ListParams};
use kube::core::GroupVersionKind;
use kube::{Api, Client, ResourceExt};

use crate::wait::{NotYet, eventually};

/// The API of a custom resource.
fn custom(
    client: &Client,
    group: &str,
    version: &str,
    kind: &str,
    plural: &str,
) -> Api<DynamicObject> {
    let gvk = GroupVersionKind::gvk(group, version, kind);
    Api::all_with(client.clone(), &ApiResource::from_gvk_with_plural(&gvk, plural))
}

/// The API of a custom resource in a namespace; `version` as in `apiVersion`. The resource is the
/// usual plural of its kind.
pub(crate) fn namespaced(
    client: &Client,
    namespace: &str,
    version: &str,
    kind: &str,
) -> Api<DynamicObject> {
    let (group, version) = version.split_once('/').expect("custom resources have a group");
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
    Api::namespaced_with(client.clone(), namespace, &resource)
}

pub(crate) fn node_claims(client: &Client) -> Api<DynamicObject> {
    custom(client, "karpenter.sh", "v1", "NodeClaim", "nodeclaims")
}

pub(crate) fn node_pools(client: &Client) -> Api<DynamicObject> {
    custom(client, "karpenter.sh", "v1", "NodePool", "nodepools")
}

pub(crate) fn node_classes(client: &Client) -> Api<DynamicObject> {
    custom(client, "karpenter.k8s.aws", "v1", "EC2NodeClass", "ec2nodeclasses")
}

pub(crate) fn node_overlays(client: &Client) -> Api<DynamicObject> {
    custom(client, "karpenter.sh", "v1alpha1", "NodeOverlay", "nodeoverlays")
}

pub(crate) fn capacity_buffers(client: &Client, namespace: &str) -> Api<DynamicObject> {
    namespaced(client, namespace, "autoscaling.x-k8s.io/v1beta1", "CapacityBuffer")
}

pub(crate) fn scaled_objects(client: &Client, namespace: &str) -> Api<DynamicObject> {
    namespaced(client, namespace, "keda.sh/v1alpha1", "ScaledObject")
}

pub(crate) fn kwok_node_classes(client: &Client) -> Api<DynamicObject> {
    custom(client, "karpenter.kwok.sh", "v1alpha1", "KWOKNodeClass", "kwoknodeclasses")
}

/// Waits until the API server serves all CRDs that there are.
pub(crate) async fn established(client: &Client) -> Result<(), NotYet> {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    let served = |crd: &CustomResourceDefinition| {
        let conditions = crd.status.as_ref().and_then(|status| status.conditions.as_ref());
        conditions.is_some_and(|all| {
            all.iter().any(|it| it.type_ == "Established" && it.status == "True")
        })
    };
    eventually("the API server serves all CRDs", Duration::from_secs(30), async || {
        let all = api.list(&ListParams::default()).await?.items;
        let waiting: Vec<String> =
            all.iter().filter(|crd| !served(crd)).map(ResourceExt::name_any).collect();
        if waiting.is_empty() { Ok(true) } else { Err(waiting.join(", ").into()) }
    })
    .await
}

/// Whether a custom resource's condition is True.
pub(crate) fn holds(object: &DynamicObject, condition: &str) -> bool {
    let conditions = object.data["status"]["conditions"].as_array();
    conditions
        .is_some_and(|all| all.iter().any(|it| it["type"] == condition && it["status"] == "True"))
}

/// The conditions that are not True, with reason and message: why something waits.
pub(crate) fn blockers(object: &DynamicObject) -> String {
    let conditions = object.data["status"]["conditions"].as_array();
    let texts: Vec<String> = conditions
        .into_iter()
        .flatten()
        .filter(|it| it["status"] != "True")
        .map(|it| {
            let of = |key: &str| it[key].as_str().unwrap_or_default().to_owned();
            format!("{}={} ({}: {})", of("type"), of("status"), of("reason"), of("message"))
        })
        .collect();
    if texts.is_empty() { "no condition is set yet".to_owned() } else { texts.join(", ") }
}

/// Whether a Node is ready.
pub(crate) fn is_ready_node(node: &Node) -> bool {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions.is_some_and(|all| all.iter().any(|it| it.type_ == "Ready" && it.status == "True"))
}

/// Whether a pod is ready and stays.
pub(crate) fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
    let ready = conditions
        .is_some_and(|all| all.iter().any(|it| it.type_ == "Ready" && it.status == "True"));
    ready && pod.metadata.deletion_timestamp.is_none()
}
