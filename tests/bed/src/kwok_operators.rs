//! Tenon on its provider `kwok`, on a bed of nothing but Kubernetes: operators are plain processes
//! with an administrator's rights, one or several of them. For measurements, and for tests of what
//! is the same with every provider.

use std::path::{Path, PathBuf};
use std::time::Duration;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client, ResourceExt};
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::json;
use tenon_aws_double::process::{Process, ProcessError, ProcessSpec};

use crate::api_faults::ApiFaults;
use crate::bed::Bed;
use crate::failure::Failure;
use crate::http::get;
use crate::logs::Logs;
use crate::ports::Ports;
use crate::programs::TenonPrograms;
use crate::user::{NodeClass, User};
use crate::wait::eventually;

/// Operators' logs are called by this and their names.
const LOG: &str = "operator-";

/// A bed on which operators of the provider `kwok` can be started.
#[derive(Debug)]
pub struct KwokOperators {
    user: User,
    programs: TenonPrograms,
    kubeconfig: PathBuf,
    dir: PathBuf,
    ports: Mutex<Ports>,
}

/// A running operator; killed when dropped.
#[derive(Debug)]
pub struct Operator {
    spec: ProcessSpec,
    process: Process,
    health: String,
    metrics: String,
}

impl KwokOperators {
    /// Makes the CRDs and a KWOKNodeClass `default`.
    ///
    /// # Errors
    /// When the API server refuses, or no ports are free.
    pub async fn prepare(bed: &Bed, programs: TenonPrograms) -> Result<Self, Failure> {
        definitions(&bed.client()).await?;
        let user = User::new(bed.client(), NodeClass::Kwok);
        let class = json!({
            "apiVersion": "karpenter.kwok.sh/v1alpha1", "kind": "KWOKNodeClass",
            "metadata": { "name": "default" }, "spec": {},
        });
        user.apply(&class).await?;
        Ok(Self {
            user,
            programs,
            kubeconfig: bed.control_plane().kubeconfig().to_path_buf(),
            dir: bed.dir().to_path_buf(),
            ports: Mutex::new(Ports::reserve(&tenon_aws_double::cache::dir()?)?),
        })
    }

    /// Who makes NodePools and workloads on it.
    pub const fn user(&self) -> &User {
        &self.user
    }

    /// What the operators log.
    pub fn logs(&self) -> Logs {
        Logs::new(self.dir.join("logs"), |name| name.starts_with(LOG))
    }

    /// Starts an operator; its name is what its identity in the election begins with.
    ///
    /// # Errors
    /// When it can't be started, or no port is left.
    pub fn start(&self, name: &str) -> Result<Operator, Failure> {
        self.start_with(name, &[])
    }

    /// Starts an operator with further flags.
    ///
    /// # Errors
    /// When it can't be started, or no port is left.
    pub fn start_with(&self, name: &str, flags: &[&str]) -> Result<Operator, Failure> {
        self.start_at(&self.kubeconfig, name, flags)
    }

    /// Starts an operator with further flags whose every request to the API server passes `faults`.
    /// Each operator may have its own.
    ///
    /// # Errors
    /// When it can't be started, or no port is left.
    pub fn start_behind(
        &self,
        faults: &ApiFaults,
        name: &str,
        flags: &[&str],
    ) -> Result<Operator, Failure> {
        self.start_at(faults.kubeconfig(), name, flags)
    }

    fn start_at(&self, kubeconfig: &Path, name: &str, flags: &[&str]) -> Result<Operator, Failure> {
        let (health, metrics) = {
            let mut ports = self.ports.lock();
            (ports.take()?, ports.take()?)
        };
        let env = [
            ("KUBECONFIG", kubeconfig.display().to_string()),
            ("BIND_ADDRESS", "127.0.0.1".to_owned()),
            ("HEALTH_PROBE_PORT", health.to_string()),
            ("METRICS_PORT", metrics.to_string()),
            // One of several operators on an address can have it.
            ("DECISIONS_PORT", "0".to_owned()),
            ("SYSTEM_NAMESPACE", "kube-system".to_owned()),
            ("HOSTNAME", name.to_owned()),
        ];
        let spec = ProcessSpec {
            name: format!("tenon-operator {name}"),
            program: self.programs.operator.clone(),
            args: ["--cloud-provider", "kwok"].iter().chain(flags).map(Into::into).collect(),
            env: env.into_iter().map(|(name, value)| (name.to_owned(), value)).collect(),
            dir: self.dir.clone(),
            log: self.dir.join("logs").join(format!("{LOG}{name}.log")),
        };
        let process = Process::spawn(spec.clone())?;
        let [health, metrics] = [health, metrics].map(|port| format!("127.0.0.1:{port}"));
        Ok(Operator { spec, process, health, metrics })
    }
}

/// What the operator's log tells of a plan.
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct LaunchingPlan {
    /// How many NodeClaims it made.
    pub nodeclaims: u64,
    /// For how many pods.
    pub pods: u64,
}

impl Operator {
    /// By which it is stopped and killed.
    pub const fn process(&self) -> &Process {
        &self.process
    }

    /// Kills it without a chance to finish (`kill -9`), and starts it again as it was: same name,
    /// flags, ports and way to the API server. Its log goes on.
    ///
    /// # Errors
    /// When it can't be started.
    pub async fn kill_and_restart(&mut self) -> Result<(), ProcessError> {
        self.process.stop(Duration::ZERO).await;
        self.process = Process::spawn(self.spec.clone())?;
        Ok(())
    }

    /// Where its log is.
    pub fn log(&self) -> &Path {
        self.process.log()
    }

    /// Waits until `/readyz` answers 200.
    ///
    /// # Errors
    /// When it ends before, or is not ready in time.
    pub async fn ready(&self, limit: Duration) -> Result<(), ProcessError> {
        let answers = async || matches!(get(&self.health, "/readyz").await, Ok((200, _)));
        self.process.ready("/readyz answers 200", limit, answers).await
    }

    /// Waits until it leads.
    ///
    /// # Errors
    /// When it does not in time.
    pub async fn leads(&self, limit: Duration) -> Result<(), Failure> {
        eventually("the operator leads", limit, async || {
            let metrics = self.metrics().await?;
            let mut lines = metrics.lines();
            let leads = |line: &str| {
                line.starts_with("leader_election_master_status{") && line.ends_with(" 1.0")
            };
            Ok(lines.any(leads))
        })
        .await?;
        Ok(())
    }

    /// The plans that launched something, as its log tells them.
    ///
    /// # Errors
    /// When its log can't be read.
    pub fn launching_plans(&self) -> std::io::Result<Vec<LaunchingPlan>> {
        let log = std::fs::read_to_string(self.log())?;
        let plans = log.lines().filter(|line| line.contains("computed new nodeclaim(s)"));
        Ok(plans.filter_map(|line| serde_json::from_str(line).ok()).collect())
    }

    /// Its metrics, in Prometheus' text format.
    ///
    /// # Errors
    /// When it does not answer.
    pub async fn metrics(&self) -> std::io::Result<String> {
        Ok(get(&self.metrics, "/metrics").await?.1)
    }
}

/// Makes the CRDs of Tenon's kinds, and waits until the API server serves them.
///
/// # Errors
/// When the API server refuses, or takes too long.
pub async fn definitions(client: &Client) -> Result<(), Failure> {
    let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
    let all = tenon_crds::manifests::all();
    for crd in &all {
        let parameters = PatchParams::apply("user").force();
        crds.patch(&crd.name_any(), &parameters, &Patch::Apply(crd)).await?;
    }
    for crd in &all {
        let name = crd.name_any();
        eventually(&format!("{name} is established"), Duration::from_secs(30), async || {
            let status = crds.get(&name).await?.status.unwrap_or_default();
            let conditions = status.conditions.unwrap_or_default();
            Ok(conditions.iter().any(|it| it.type_ == "Established" && it.status == "True"))
        })
        .await?;
    }
    Ok(())
}
