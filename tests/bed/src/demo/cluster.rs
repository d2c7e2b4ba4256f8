//! What the demo does with the cluster by hand: a workload, and looks at nodes, claims and pods.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};

use super::StoryError;
use crate::objects::{is_ready, node_claims};
use crate::words::count;

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
        format!(
            "{} {} in {}, {}",
            self.instance_type,
            self.capacity_type,
            self.zone,
            count(self.pods, "pod")
        )
    }
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

/// How many of the workload's pods are ready; as an error while it is another number than `wanted`,
/// and no other pod may be left.
pub(super) async fn all_ready(client: &Client, wanted: usize) -> crate::wait::Polled {
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
