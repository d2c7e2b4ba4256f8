//! A user of a cluster on which Tenon runs: applies manifests, scales workloads, and looks at what
//! comes of it. For end-to-end tests, which say what must come.

use std::collections::BTreeMap;
use std::time::Duration;

use json_patch::merge;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Event, Node, Pod};
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams};
use kube::{Api, Client};
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::objects;
use crate::wait::{NotYet, Polled, eventually};

/// Long enough for everything that one decision of the operator brings about, on a machine whose
/// cores are busy.
pub const LIMIT: Duration = Duration::from_secs(90);

/// Who makes NodePools and workloads. Cheap to clone.
#[derive(Clone)]
pub struct User {
    client: Client,
    class: NodeClass,
}

/// The NodeClass of the user's NodePools.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum NodeClass {
    /// The EC2NodeClass that the installer makes.
    Ec2,
    /// A KWOKNodeClass.
    Kwok,
}

impl std::fmt::Debug for User {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("User").field("class", &self.class).finish_non_exhaustive()
    }
}

impl NodeClass {
    /// The reference to the one called `default`.
    fn reference(self) -> Value {
        let (group, kind) = match self {
            Self::Ec2 => ("karpenter.k8s.aws", "EC2NodeClass"),
            Self::Kwok => ("karpenter.kwok.sh", "KWOKNodeClass"),
        };
        json!({ "group": group, "kind": kind, "name": "default" })
    }
}

impl User {
    /// A user with the rights of this client, whose NodePools are of the NodeClass `default` of
    /// this kind.
    pub const fn new(client: Client, class: NodeClass) -> Self {
        Self { client, class }
    }

    /// The user's client.
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// The objects of a kind: NodePool, NodeClaim, NodeOverlay, EC2NodeClass or KWOKNodeClass, or
    /// CapacityBuffer in the namespace `default`.
    pub fn objects(&self, kind: &str) -> Api<DynamicObject> {
        match kind {
            "NodePool" => objects::node_pools(&self.client),
            "NodeOverlay" => objects::node_overlays(&self.client),
            "CapacityBuffer" => self.buffers("default"),
            "EC2NodeClass" => objects::node_classes(&self.client),
            "KWOKNodeClass" => objects::kwok_node_classes(&self.client),
            _ => objects::node_claims(&self.client),
        }
    }

    /// The CapacityBuffers of a namespace.
    pub fn buffers(&self, namespace: &str) -> Api<DynamicObject> {
        objects::capacity_buffers(&self.client, namespace)
    }

    /// Applies a manifest as `kubectl apply` does: made if it is not there.
    ///
    /// # Errors
    /// When the API server refuses it.
    pub async fn apply(&self, manifest: &Value) -> Result<DynamicObject, kube::Error> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let api = self.objects(&text(&manifest["kind"]));
        let parameters = PatchParams::apply("user").force();
        api.patch(&text(&manifest["metadata"]["name"]), &parameters, &Patch::Apply(manifest)).await
    }

    /// Makes or changes a NodePool whose nodes have the label `scenario` with its name, and waits
    /// until it is Ready. Nothing is consolidated unless `spec` says so, which is merged over the
    /// rest.
    ///
    /// # Errors
    /// When it is refused or does not become Ready.
    pub async fn pool(
        &self,
        name: &str,
        requirements: &Value,
        spec: &Value,
    ) -> Result<(), Failure> {
        let mut pool = json!({
            "apiVersion": "karpenter.sh/v1",
            "kind": "NodePool",
            "metadata": { "name": name },
            "spec": {
                "template": {
                    "metadata": { "labels": { "scenario": name } },
                    "spec": { "nodeClassRef": self.class.reference(), "requirements": requirements },
                },
                "disruption": { "consolidateAfter": "Never" },
            },
        });
        merge(&mut pool["spec"], spec);
        self.apply(&pool).await?;
        Ok(self.ready("NodePool", name).await?)
    }

    /// Waits until an object's condition Ready is True.
    ///
    /// # Errors
    /// When it is not in time; with the conditions that stand in the way.
    pub async fn ready(&self, kind: &str, name: &str) -> Result<(), NotYet> {
        let api = self.objects(kind);
        eventually(&format!("the {kind} {name} is Ready"), LIMIT, async || {
            let object = api.get(name).await?;
            if objects::holds(&object, "Ready") {
                Ok(true)
            } else {
                Err(objects::blockers(&object).into())
            }
        })
        .await
    }

    /// Makes or changes the Deployment `app`: so many pods of half a core and 512 MiB each, which
    /// take a second to end. `template` is merged over the rest of the pod template.
    ///
    /// # Errors
    /// When the API server refuses.
    pub async fn deploy(
        &self,
        app: &str,
        replicas: usize,
        template: &Value,
    ) -> Result<(), kube::Error> {
        let mut pod = json!({
            "metadata": { "labels": { "app": app } },
            "spec": {
                "terminationGracePeriodSeconds": 1,
                "containers": [{
                    "name": "main",
                    "image": "registry.example/app:1",
                    "resources": { "requests": { "cpu": "500m", "memory": "512Mi" } },
                }],
            },
        });
        merge(&mut pod, template);
        let deployment = json!({
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": { "name": app },
            "spec": {
                "replicas": replicas,
                "selector": { "matchLabels": { "app": app } },
                "template": pod,
            },
        });
        let deployments: Api<Deployment> = Api::namespaced(self.client.clone(), "default");
        let parameters = PatchParams::apply("user").force();
        deployments.patch(app, &parameters, &Patch::Apply(deployment)).await?;
        Ok(())
    }

    /// Brings the Deployment `app` to so many pods, on nodes with these labels.
    ///
    /// # Errors
    /// When the API server refuses.
    pub async fn scale(
        &self,
        app: &str,
        replicas: usize,
        node_selector: &Value,
    ) -> Result<(), kube::Error> {
        self.deploy(app, replicas, &json!({ "spec": { "nodeSelector": node_selector } })).await
    }

    /// Removes the Deployment `app`.
    ///
    /// # Errors
    /// When the API server refuses.
    pub async fn remove(&self, app: &str) -> Result<(), kube::Error> {
        let deployments: Api<Deployment> = Api::namespaced(self.client.clone(), "default");
        deployments.delete(app, &DeleteParams::foreground()).await.map(drop)
    }

    /// The pods of the Deployment `app`.
    ///
    /// # Errors
    /// When the API server can't be asked.
    pub async fn pods(&self, app: &str) -> Result<Vec<Pod>, kube::Error> {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), "default");
        Ok(pods.list(&ListParams::default().labels(&format!("app={app}"))).await?.items)
    }

    /// Whether `app` has so many pods, all of them ready and none beside them.
    ///
    /// # Errors
    /// How many are ready, if it has not.
    pub async fn all_run(&self, app: &str, wanted: usize) -> Polled {
        let pods = self.pods(app).await?;
        let ready = pods.iter().filter(|pod| objects::is_ready(pod)).count();
        if ready == wanted && pods.len() == wanted {
            Ok(true)
        } else {
            Err(format!("{ready} of {wanted} pods are ready, {} exist", pods.len()).into())
        }
    }

    /// Waits until `app` has so many pods and all of them run.
    ///
    /// # Errors
    /// When they do not in time.
    pub async fn runs(&self, app: &str, wanted: usize) -> Result<(), NotYet> {
        eventually(&format!("all {wanted} pods of {app} run"), LIMIT, async || {
            self.all_run(app, wanted).await
        })
        .await
    }

    /// The NodeClaims of a NodePool.
    ///
    /// # Errors
    /// When the API server can't be asked.
    pub async fn claims(&self, pool: &str) -> Result<Vec<DynamicObject>, kube::Error> {
        let parameters = ListParams::default().labels(&format!("karpenter.sh/nodepool={pool}"));
        Ok(self.objects("NodeClaim").list(&parameters).await?.items)
    }

    /// Waits until each NodeClaim of a NodePool names its Node. A Node is opened for pods first, so
    /// pods may run there a moment before its NodeClaim says that it has joined.
    ///
    /// # Errors
    /// When one of them has no Node in time.
    pub async fn joined(&self, pool: &str) -> Result<(), NotYet> {
        eventually(&format!("the NodeClaims of {pool} name their Nodes"), LIMIT, async || {
            let claims = self.claims(pool).await?;
            Ok(claims.iter().all(|claim| claim.data["status"]["nodeName"].is_string()))
        })
        .await
    }

    /// The Nodes of a NodePool.
    ///
    /// # Errors
    /// When the API server can't be asked.
    pub async fn nodes(&self, pool: &str) -> Result<Vec<Node>, kube::Error> {
        let nodes: Api<Node> = Api::all(self.client.clone());
        let parameters = ListParams::default().labels(&format!("karpenter.sh/nodepool={pool}"));
        Ok(nodes.list(&parameters).await?.items)
    }

    /// The events with this reason, in all namespaces.
    ///
    /// # Errors
    /// When the API server can't be asked.
    pub async fn events(&self, reason: &str) -> Result<Vec<Event>, kube::Error> {
        let events: Api<Event> = Api::all(self.client.clone());
        Ok(events.list(&ListParams::default().fields(&format!("reason={reason}"))).await?.items)
    }

    /// How often the API server was told to evict each pod that the operator says it evicted, by
    /// the pod's uid: name and count.
    ///
    /// # Errors
    /// When the API server can't be asked.
    pub async fn evictions(&self) -> Result<BTreeMap<String, (String, usize)>, kube::Error> {
        let mut by_pod: BTreeMap<String, (String, usize)> = BTreeMap::new();
        for event in self.events("Evicted").await? {
            let pod = event.involved_object;
            let entry = by_pod.entry(pod.uid.unwrap_or_default()).or_default();
            entry.0 = pod.name.unwrap_or_default();
            entry.1 += 1;
        }
        Ok(by_pod)
    }
}

/// A condition of an object: its status, reason and message; empty when it is not set.
pub fn condition(object: &DynamicObject, kind: &str) -> (String, String, String) {
    let conditions = object.data["status"]["conditions"].as_array();
    let found = conditions.into_iter().flatten().find(|it| it["type"] == kind);
    let text = |key: &str| found.and_then(|it| it[key].as_str()).unwrap_or_default().to_owned();
    (text("status"), text("reason"), text("message"))
}

/// The id of a NodeClaim's instance; empty when it has none yet.
pub fn instance_of(claim: &DynamicObject) -> String {
    let id = claim.data["status"]["providerID"].as_str().unwrap_or_default();
    id.rsplit('/').next().unwrap_or_default().to_owned()
}

/// A requirement of a NodePool: one of these values.
pub fn one_of(key: &str, values: &[&str]) -> Value {
    json!({ "key": key, "operator": "In", "values": values })
}
