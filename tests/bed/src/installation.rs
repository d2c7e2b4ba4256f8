//! Tenon, installed on a bed by the real installer: its operators, its instances, what it logs. For
//! end-to-end tests.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use kube::api::ListParams;
use serde_json::{Value, json};
use tenon_aws_double::instance::Instance;
use tenon_aws_double::process::{Signal, tail_of};

use crate::bed::Bed;
use crate::failure::Failure;
use crate::http::get;
use crate::kubelet::Running;
use crate::logs::Logs;
use crate::user::{NodeClass, User, instance_of};
use crate::wait::Polled;

/// The tag of an instance that names its NodeClaim.
const CLAIM_TAG: &str = "karpenter.sh/nodeclaim";
/// The tag of every instance that the operator launched.
const POOL_TAG: &str = "karpenter.sh/nodepool";
/// Where the operator serves its metrics, as the chart has it.
const METRICS_PORT: u16 = 8080;
const LEASE: &str = "karpenter-leader-election";

/// A bed on which Tenon is installed. Cheap to clone.
#[derive(Clone)]
pub struct Installation {
    bed: Arc<Bed>,
    user: User,
}

impl std::fmt::Debug for Installation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Installation").field("bed", &self.bed).finish_non_exhaustive()
    }
}

impl Installation {
    /// Installs Tenon with the real installer, with these settings beside the cluster's name and
    /// region, unless it is installed already.
    ///
    /// # Errors
    /// When the installer fails; with the end of what it said.
    pub async fn ensure(bed: &Arc<Bed>, settings: &Value) -> Result<Self, Failure> {
        let this = Self::on(bed);
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

    /// A bed as it is, whatever runs on it.
    pub fn on(bed: &Arc<Bed>) -> Self {
        Self { bed: Arc::clone(bed), user: User::new(bed.client(), NodeClass::Ec2) }
    }

    /// Where it is installed.
    pub fn bed(&self) -> &Bed {
        &self.bed
    }

    /// Who makes NodePools and workloads on it.
    pub const fn user(&self) -> &User {
        &self.user
    }

    /// The instances that the operator launched and that are alive, by id.
    ///
    /// # Errors
    /// When the bed has no AWS.
    pub fn instances(&self) -> Result<BTreeMap<String, Arc<Instance>>, Failure> {
        let mut alive = self.bed.aws()?.gateway().control().alive();
        alive.retain(|_, instance| instance.tags.contains_key(POOL_TAG));
        Ok(alive)
    }

    /// The instances that were ever launched for a NodeClaim, where there were several.
    ///
    /// # Errors
    /// When the bed has no AWS.
    pub fn doubled(&self) -> Result<Vec<(String, Vec<String>)>, Failure> {
        let mut by_claim: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (id, instance) in self.bed.aws()?.gateway().state().instances().all().iter() {
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
    pub async fn instances_match_claims(&self) -> Polled {
        let claims = self.user.objects("NodeClaim").list(&ListParams::default()).await?.items;
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

    /// What the operator logs.
    pub fn logs(&self) -> Logs {
        // Logs of containers are named by namespace, pod and container; the only ones are the
        // operator's.
        Logs::new(self.bed.dir().join("logs"), |name| name.matches('_').count() == 2)
    }

    /// The operator's processes.
    pub fn operators(&self) -> Vec<Running> {
        self.bed.kubelet().map(crate::kubelet::Kubelet::running).unwrap_or_default()
    }

    /// The metrics of one of them, in Prometheus' text format.
    ///
    /// # Errors
    /// When it does not answer.
    pub async fn metrics(operator: &Running) -> io::Result<String> {
        Ok(get(&format!("{}:{METRICS_PORT}", operator.address), "/metrics").await?.1)
    }

    /// Kills the operator's process that leads, without a chance to finish; all of them if none
    /// leads. Returns their pods.
    ///
    /// # Errors
    /// When the API server can't be asked who leads.
    pub async fn kill_leader(&self) -> Result<Vec<String>, Failure> {
        let leases: Api<Lease> = Api::all(self.bed.client());
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
}

fn runs_operator(deployment: &Deployment) -> bool {
    let pod = deployment.spec.template.spec.as_ref();
    let images =
        pod.into_iter().flat_map(|pod| &pod.containers).filter_map(|it| it.image.as_deref());
    images.into_iter().any(|image| image.contains("tenon-operator"))
}
