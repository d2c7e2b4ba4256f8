//! Tenon, installed on a bed: what a user does with it, and what comes of it. For end-to-end tests, which say what must come.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Event, Node, Pod};
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams};
use kube::{Api, Client};
use serde_json::{Value, json};

use crate::bed::Bed;
use crate::front::instance::Instance;
use crate::kubelet::Running;
use crate::process::{Signal, tail_of};
use crate::sandbox::Failure;
use crate::story::cluster;
use crate::wait::{Look, NotYet, eventually};

/// Long enough for everything that one decision of the operator brings about, on a machine whose cores are busy.
pub const LIMIT: Duration = Duration::from_secs(90);

/// The tag of an instance that names its NodeClaim.
const CLAIM_TAG: &str = "karpenter.sh/nodeclaim";
/// The tag of every instance that the operator launched.
const POOL_TAG: &str = "karpenter.sh/nodepool";
const LEASE: &str = "karpenter-leader-election";

/// A bed on which Tenon is installed. Cheap to clone.
#[derive(Clone)]
pub struct Installed {
    bed: Arc<Bed>,
    client: Client,
}

impl std::fmt::Debug for Installed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Installed").field("bed", &self.bed).finish_non_exhaustive()
    }
}

/// Where the operator's logs ended at some moment, by file.
#[derive(Clone, Debug)]
pub struct Mark(BTreeMap<PathBuf, usize>);

impl Installed {
    /// Installs Tenon with the real installer, with these settings beside the cluster's name and region, unless it is installed already.
    ///
    /// # Errors
    /// When the installer fails; with the end of what it said.
    pub async fn ensure(bed: &Arc<Bed>, settings: &Value) -> Result<Self, Failure> {
        let this = Self { bed: Arc::clone(bed), client: bed.client() };
        let deployments: Api<Deployment> = Api::all(bed.client());
        let all = deployments.list(&ListParams::default()).await?;
        if all.items.iter().any(runs_operator) {
            return Ok(this);
        }
        let mut document = json!({
            "apiVersion": "tenon.sh/v1alpha1",
            "kind": "Installation",
            "cluster": { "name": bed.cluster(), "region": bed.region() },
        });
        for (key, value) in settings.as_object().into_iter().flatten() {
            document[key] = value.clone();
        }
        let file = bed.dir().join("tenon.yaml");
        // JSON is YAML.
        std::fs::write(&file, format!("{document:#}\n"))?;
        let finished =
            bed.run_tenon(&["install", "-f", &file.display().to_string(), "--yes"]).await?;
        if finished.code != 0 {
            let said = tail_of(&finished.stderr, 30);
            return Err(format!("`tenon install` ended with {}:\n{said}", finished.code).into());
        }
        Ok(this)
    }

    /// The bed.
    pub fn bed(&self) -> &Bed {
        &self.bed
    }

    /// The objects of a kind: NodePool, EC2NodeClass or NodeClaim.
    pub fn objects(&self, kind: &str) -> Api<DynamicObject> {
        match kind {
            "NodePool" => cluster::node_pools(&self.client),
            "EC2NodeClass" => cluster::node_classes(&self.client),
            _ => cluster::node_claims(&self.client),
        }
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

    /// Makes a NodePool of the installer's EC2NodeClass, whose nodes have the label `scenario` with its name, and waits until it is Ready.
    /// `requirements` are added; nothing is consolidated unless `disruption` says so.
    ///
    /// # Errors
    /// When it is refused or does not become Ready.
    pub async fn pool(
        &self,
        name: &str,
        requirements: &Value,
        disruption: Option<Value>,
    ) -> Result<(), Failure> {
        let nothing = json!({ "consolidateAfter": "Never" });
        let pool = json!({
            "apiVersion": "karpenter.sh/v1",
            "kind": "NodePool",
            "metadata": { "name": name },
            "spec": {
                "template": {
                    "metadata": { "labels": { "scenario": name } },
                    "spec": {
                        "nodeClassRef": { "group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default" },
                        "requirements": requirements,
                    },
                },
                "disruption": disruption.unwrap_or(nothing),
            },
        });
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
            if cluster::holds(&object, "Ready") {
                Ok(true)
            } else {
                Err(cluster::blockers(&object).into())
            }
        })
        .await
    }

    /// Brings the Deployment `app` to so many pods of half a core and 512 MiB each, on nodes with these labels.
    ///
    /// # Errors
    /// When the API server refuses.
    pub async fn scale(
        &self,
        app: &str,
        replicas: usize,
        node_selector: &Value,
    ) -> Result<(), kube::Error> {
        let deployments: Api<Deployment> = Api::namespaced(self.client.clone(), "default");
        let deployment = json!({
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": { "name": app },
            "spec": {
                "replicas": replicas,
                "selector": { "matchLabels": { "app": app } },
                "template": {
                    "metadata": { "labels": { "app": app } },
                    "spec": {
                        "terminationGracePeriodSeconds": 1,
                        "nodeSelector": node_selector,
                        "containers": [{
                            "name": "main",
                            "image": "registry.example/app:1",
                            "resources": { "requests": { "cpu": "500m", "memory": "512Mi" } },
                        }],
                    },
                },
            },
        });
        let parameters = PatchParams::apply("user").force();
        deployments.patch(app, &parameters, &Patch::Apply(deployment)).await?;
        Ok(())
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
    pub async fn all_run(&self, app: &str, wanted: usize) -> Look {
        let pods = self.pods(app).await?;
        let ready = pods.iter().filter(|pod| cluster::is_ready(pod)).count();
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

    /// The instances that the operator launched and that are alive, by id.
    ///
    /// # Errors
    /// When the bed has no AWS.
    pub fn instances(&self) -> Result<BTreeMap<String, Arc<Instance>>, Failure> {
        let mut alive = self.bed.aws()?.front().control().alive();
        alive.retain(|_, instance| instance.tags.contains_key(POOL_TAG));
        Ok(alive)
    }

    /// The instances that were ever launched for a NodeClaim, where there were several.
    ///
    /// # Errors
    /// When the bed has no AWS.
    pub fn doubled(&self) -> Result<Vec<(String, Vec<String>)>, Failure> {
        let mut by_claim: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (id, instance) in self.bed.aws()?.front().world().instances().all().iter() {
            if let Some(claim) = instance.tags.get(CLAIM_TAG) {
                by_claim.entry(claim.clone()).or_default().push(id.clone());
            }
        }
        Ok(by_claim.into_iter().filter(|(_, instances)| instances.len() > 1).collect())
    }

    /// Whether every instance has its NodeClaim and every NodeClaim its instance, one for one.
    ///
    /// # Errors
    /// What is left over, if not.
    pub async fn instances_match_claims(&self) -> Look {
        let claims = self.objects("NodeClaim").list(&ListParams::default()).await?.items;
        let alive: BTreeSet<String> = self.instances()?.into_keys().collect();
        let claimed: Vec<String> = claims.iter().map(instance_of).collect();
        let distinct: BTreeSet<String> = claimed.iter().cloned().collect();
        if alive == distinct && claimed.len() == alive.len() {
            return Ok(true);
        }
        let orphans: Vec<_> = alive.difference(&distinct).collect();
        let lost: Vec<_> = distinct.difference(&alive).collect();
        Err(format!(
            "{} NodeClaims, {} instances; without NodeClaim: {orphans:?}; without instance: {lost:?}",
            claims.len(),
            alive.len()
        )
        .into())
    }

    /// Where the operator's logs end now.
    ///
    /// # Errors
    /// When they can't be read.
    pub fn mark(&self) -> Result<Mark, Failure> {
        let logs = self.logs()?;
        Ok(Mark(logs.into_iter().map(|(path, text)| (path, text.len())).collect()))
    }

    /// The lines that the operator logged since `mark` that contain all of `parts`.
    ///
    /// # Errors
    /// When the logs can't be read.
    pub fn said(&self, mark: &Mark, parts: &[&str]) -> Result<Vec<String>, Failure> {
        let mut lines = Vec::new();
        for (path, text) in self.logs()? {
            let new = text.get(mark.0.get(&path).copied().unwrap_or(0)..).unwrap_or_default();
            let fits = |line: &&str| parts.iter().all(|part| line.contains(part));
            lines.extend(new.lines().filter(fits).map(str::to_owned));
        }
        Ok(lines)
    }

    /// Waits until the operator has logged a line with all of `parts` since `mark`; returns the first.
    ///
    /// # Errors
    /// When it has not in time.
    pub async fn says(&self, mark: &Mark, parts: &[&str]) -> Result<String, Failure> {
        eventually(&format!("the operator logs {parts:?}"), LIMIT, async || {
            Ok(!self.said(mark, parts)?.is_empty())
        })
        .await?;
        let first = self.said(mark, parts)?.into_iter().next();
        first.ok_or_else(|| "the log has lost a line".into())
    }

    fn logs(&self) -> Result<Vec<(PathBuf, String)>, Failure> {
        let mut logs = Vec::new();
        for entry in std::fs::read_dir(self.bed.dir().join("logs"))? {
            let path = entry?.path();
            // Logs of containers are named by namespace, pod and container; the only ones are the operator's.
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if name.matches('_').count() == 2 {
                let bytes = std::fs::read(&path)?;
                logs.push((path, String::from_utf8_lossy(&bytes).into_owned()));
            }
        }
        Ok(logs)
    }

    /// The operator's processes.
    pub fn operators(&self) -> Vec<Running> {
        self.bed.kubelet().map(crate::kubelet::Kubelet::running).unwrap_or_default()
    }

    /// Kills the operator's process that leads, without a chance to finish; all of them if none leads. Returns their pods.
    ///
    /// # Errors
    /// When the API server can't be asked who leads.
    pub async fn kill_leader(&self) -> Result<Vec<String>, Failure> {
        let leases: Api<Lease> = Api::all(self.client.clone());
        let named = ListParams::default().fields(&format!("metadata.name={LEASE}"));
        let lease = leases.list(&named).await?.items.into_iter().next();
        let holder = lease.and_then(|lease| lease.spec?.holder_identity).unwrap_or_default();
        let operators = self.operators();
        let leads = |operator: &Running| holder.starts_with(&operator.pod);
        let one_leads = operators.iter().any(leads);
        let killed = operators.iter().filter(|operator| !one_leads || leads(operator));
        Ok(killed
            .map(|operator| {
                operator.signal(Signal::Kill);
                operator.pod.clone()
            })
            .collect())
    }

    /// How often the API server was told to evict each pod that the operator says it evicted, by the pod's uid: name and count.
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

fn runs_operator(deployment: &Deployment) -> bool {
    let pod = deployment.spec.template.spec.as_ref();
    let images =
        pod.into_iter().flat_map(|pod| &pod.containers).filter_map(|it| it.image.as_deref());
    images.into_iter().any(|image| image.contains("tenon-operator"))
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
