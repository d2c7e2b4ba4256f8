//! What the demo does with the cluster by hand: a workload, and looks at nodes, claims and pods.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams};
use kube::core::GroupVersionKind;
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};

use super::StoryError;

/// The label of the demo's pods.
const APP: &str = "app=demo";
const NAME: &str = "demo";

/// A node that Tenon launched.
#[derive(Clone, Debug)]
pub(super) struct Launched {
    pub(super) name: String,
    pub(super) claim: String,
    pub(super) instance: String,
    pub(super) instance_type: String,
    pub(super) capacity_type: String,
    pub(super) zone: String,
    pub(super) pods: usize,
}

impl Launched {
    /// `m7a.large spot eu-central-1a, 3 pods`
    pub(super) fn summary(&self) -> String {
        let pods = if self.pods == 1 { "pod" } else { "pods" };
        format!(
            "{} {} in {}, {} {pods}",
            self.instance_type, self.capacity_type, self.zone, self.pods
        )
    }
}

/// The API of a custom resource.
pub(crate) fn custom(
    client: &Client,
    group: &str,
    version: &str,
    kind: &str,
    plural: &str,
) -> Api<DynamicObject> {
    let gvk = GroupVersionKind::gvk(group, version, kind);
    Api::all_with(client.clone(), &ApiResource::from_gvk_with_plural(&gvk, plural))
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
    let version = GroupVersionKind::gvk("autoscaling.x-k8s.io", "v1beta1", "CapacityBuffer");
    let resource = ApiResource::from_gvk_with_plural(&version, "capacitybuffers");
    Api::namespaced_with(client.clone(), namespace, &resource)
}

pub(crate) fn kwok_node_classes(client: &Client) -> Api<DynamicObject> {
    custom(client, "karpenter.kwok.sh", "v1alpha1", "KWOKNodeClass", "kwoknodeclasses")
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

/// Brings the workload to so many pods, of half a core and one GiB each.
pub(super) async fn scale(client: &Client, replicas: i32) -> Result<(), StoryError> {
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), "default");
    let deployment = json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": { "name": NAME },
        "spec": {
            "replicas": replicas,
            "selector": { "matchLabels": { "app": NAME } },
            "template": {
                "metadata": { "labels": { "app": NAME } },
                "spec": {
                    "terminationGracePeriodSeconds": 2,
                    "containers": [{
                        "name": "main",
                        "image": "registry.example/demo:1",
                        "resources": { "requests": { "cpu": "500m", "memory": "1Gi" } },
                    }],
                },
            },
        },
    });
    deployments
        .patch(NAME, &PatchParams::apply("demo").force(), &Patch::Apply(deployment))
        .await
        .map_err(|source| StoryError::Kubernetes {
        doing: format!("scale the workload to {replicas}"),
        source,
    })?;
    Ok(())
}

/// Removes the workload.
pub(super) async fn remove_workload(client: &Client) -> Result<(), StoryError> {
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), "default");
    match deployments.delete(NAME, &DeleteParams::foreground()).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(error)) if error.code == 404 => Ok(()),
        Err(source) => {
            Err(StoryError::Kubernetes { doing: "remove the workload".to_owned(), source })
        }
    }
}

/// The workload's pods.
pub(super) async fn pods(client: &Client) -> Result<Vec<Pod>, kube::Error> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), "default");
    Ok(pods.list(&ListParams::default().labels(APP)).await?.items)
}

pub(crate) fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
    let ready = conditions
        .is_some_and(|all| all.iter().any(|it| it.type_ == "Ready" && it.status == "True"));
    ready && pod.metadata.deletion_timestamp.is_none()
}

/// How many of the workload's pods are ready; as an error while it is another number than `wanted`,
/// and no other pod may be left.
pub(super) async fn all_ready(client: &Client, wanted: usize) -> crate::wait::Look {
    let pods = pods(client).await?;
    let ready = pods.iter().filter(|pod| is_ready(pod)).count();
    if ready == wanted && pods.len() == wanted {
        Ok(true)
    } else {
        Err(format!("{ready} of {wanted} pods are ready, {} exist", pods.len()).into())
    }
}

/// The nodes that Tenon launched, with the workload's pods on each.
pub(super) async fn launched(client: &Client) -> Result<Vec<Launched>, kube::Error> {
    let nodes: Api<Node> = Api::all(client.clone());
    let nodes = nodes.list(&ListParams::default().labels("karpenter.sh/nodepool")).await?;
    let claims = node_claims(client).list(&ListParams::default()).await?;
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for pod in pods(client).await?.iter().filter(|pod| is_ready(pod)) {
        if let Some(node) = pod.spec.as_ref().and_then(|spec| spec.node_name.clone()) {
            *counts.entry(node).or_default() += 1;
        }
    }
    let of_node = |name: &str| {
        let claim = claims.items.iter().find(|claim| claim.data["status"]["nodeName"] == name);
        claim.map(ResourceExt::name_any).unwrap_or_default()
    };
    let describe = |node: &Node| {
        let label = |key: &str| node.labels().get(key).cloned().unwrap_or_default();
        let name = node.name_any();
        let provider_id =
            node.spec.as_ref().and_then(|spec| spec.provider_id.clone()).unwrap_or_default();
        Launched {
            claim: of_node(&name),
            instance: provider_id.rsplit('/').next().unwrap_or_default().to_owned(),
            instance_type: label("node.kubernetes.io/instance-type"),
            capacity_type: label("karpenter.sh/capacity-type"),
            zone: label("topology.kubernetes.io/zone"),
            pods: counts.get(&name).copied().unwrap_or_default(),
            name,
        }
    };
    Ok(nodes.items.iter().map(describe).collect())
}

/// The names of all NodeClaims.
pub(super) async fn claim_names(client: &Client) -> Result<Vec<String>, kube::Error> {
    let claims = node_claims(client).list(&ListParams::default()).await?;
    Ok(claims.items.iter().map(ResourceExt::name_any).collect())
}

/// Merges a patch into a custom resource.
pub(super) async fn merge(
    api: &Api<DynamicObject>,
    name: &str,
    patch: &Value,
) -> Result<(), StoryError> {
    api.patch(name, &PatchParams::default(), &Patch::Merge(patch))
        .await
        .map(drop)
        .map_err(|source| StoryError::Kubernetes { doing: format!("change {name}"), source })
}
