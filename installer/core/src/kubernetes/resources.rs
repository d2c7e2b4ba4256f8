//! The types whose objects hold nodes, and nodes.

use kube::core::{ApiResource, GroupVersionKind};
use serde_json::Value;

use super::object::Object;

fn resource(group: &str, version: &str, kind: &str, plural: &str) -> ApiResource {
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), plural)
}

/// NodePools.
pub fn node_pools() -> ApiResource {
    resource("karpenter.sh", "v1", "NodePool", "nodepools")
}

/// NodeClaims.
pub fn node_claims() -> ApiResource {
    resource("karpenter.sh", "v1", "NodeClaim", "nodeclaims")
}

/// EC2NodeClasses.
pub fn node_classes() -> ApiResource {
    resource("karpenter.k8s.aws", "v1", "EC2NodeClass", "ec2nodeclasses")
}

/// A manifest of a NodePool or an EC2NodeClass as an object; none if it is something else.
pub fn node_object(body: Value) -> Option<Object> {
    let resource = match (body["apiVersion"].as_str()?, body["kind"].as_str()?) {
        ("karpenter.sh/v1", "NodePool") => node_pools(),
        ("karpenter.k8s.aws/v1", "EC2NodeClass") => node_classes(),
        _ => return None,
    };
    let name = body["metadata"]["name"].as_str()?.to_owned();
    Some(Object { resource, namespace: None, name, body })
}

/// Nodes.
pub fn nodes() -> ApiResource {
    resource("", "v1", "Node", "nodes")
}

/// NodeOverlays.
pub fn node_overlays() -> ApiResource {
    resource("karpenter.sh", "v1alpha1", "NodeOverlay", "nodeoverlays")
}

/// Applications of Argo CD.
pub(super) fn applications() -> ApiResource {
    resource("argoproj.io", "v1alpha1", "Application", "applications")
}

/// `HelmReleases` of Flux.
pub(super) fn helm_releases() -> ApiResource {
    resource("helm.toolkit.fluxcd.io", "v2", "HelmRelease", "helmreleases")
}

/// Kustomizations of Flux.
pub(super) fn kustomizations() -> ApiResource {
    resource("kustomize.toolkit.fluxcd.io", "v1", "Kustomization", "kustomizations")
}

/// The type that a CRD defines.
pub fn served_by(crd: &Value) -> Option<ApiResource> {
    let text = |pointer: &str| crd.pointer(pointer).and_then(Value::as_str);
    let version = text("/spec/versions/0/name")?;
    let gvk = GroupVersionKind::gvk(text("/spec/group")?, version, text("/spec/names/kind")?);
    Some(ApiResource::from_gvk_with_plural(&gvk, text("/spec/names/plural")?))
}
