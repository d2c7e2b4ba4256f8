//! One machine's kubelet, and the cloud controller manager's part in its Node: from a running
//! instance to the end of its Node.

use std::collections::BTreeSet;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use tenon_aws_double::clock::Clock;
use tenon_aws_double::instance::{Instance, State};
use tokio::sync::watch;
use tokio::time::Instant;

use super::bootstrap::{Bootstrap, Family};
use super::facts::{Facts, JoinError};
use super::kops::KopsController;
use super::node::{self, Hardware, UNINITIALIZED};
use super::{Config, Fault, Shared};
use crate::kwok;

/// Between two attempts.
const RETRY: Duration = Duration::from_millis(200);

/// Whether the machine has been told to stop, or has stopped: its kubelet is silent.
fn is_silent(state: State) -> bool {
    !matches!(state, State::Pending | State::Running)
}

/// What a kubelet says of itself.
#[derive(Clone, Copy, Debug)]
struct Report {
    ready: &'static str,
    reason: &'static str,
    message: &'static str,
}

const READY: Report =
    Report { ready: "True", reason: "KubeletReady", message: "kubelet is posting ready status" };
const NO_NETWORK: Report = Report {
    ready: "False",
    reason: "KubeletNotReady",
    message: "container runtime network not ready",
};
const UNHEALTHY: Report =
    Report { ready: "False", reason: "KubeletNotReady", message: "PLEG is not healthy" };

/// One machine's life.
pub(super) struct Kubelet {
    pub(super) nodes: Api<Node>,
    pub(super) clock: Clock,
    pub(super) facts: Arc<Facts>,
    pub(super) shared: Arc<Shared>,
    pub(super) instance: watch::Receiver<Arc<Instance>>,
    /// The Nodes that have to hear from their kubelets ([`super::heartbeats`]).
    pub(super) taken_for_dead: watch::Receiver<BTreeSet<String>>,
}

impl Kubelet {
    pub(super) async fn live(mut self) {
        let id = self.instance.borrow().id.clone();
        match self.play(&id).await {
            Ok(()) => {}
            Err(Death::Problem(problem)) => self.shared.problem(&id, problem),
            Err(Death::Ended) => {}
        }
    }

    async fn play(&mut self, id: &str) -> Result<(), Death> {
        let faults = self.shared.draw(id);
        let config = self.shared.config.lock().clone();
        self.reach_running().await?;
        let mut boot = config.boot;
        for fault in &faults {
            match fault {
                Fault::NeverBoots => return Err(Death::Problem("fault: it never boots".into())),
                Fault::BootsLate(millis) => boot += Duration::from_millis(*millis),
                _ => {}
            }
        }
        self.alive(boot).await?;
        let instance = Arc::clone(&self.instance.borrow());
        let joined = join(&self.facts, &instance, config.kops.as_ref());
        let (hardware, node) = joined.map_err(|error| Death::Problem(error.to_string()))?;
        let name = hardware.private_dns_name.clone();
        let uid = self.register(id, &node).await?;
        let outcome = self.joined(&name, &hardware, &config, &faults).await;
        if let Err(Death::Ended) = outcome {
            self.silence(&name).await?;
            if let Some(delay) = config.node_removal {
                tokio::time::sleep(delay).await;
                self.remove(&name, uid).await?;
            }
            return Ok(());
        }
        outcome
    }

    /// Registers the Node; answers its uid. As long as the Node of another machine has the name, it
    /// says so and tries again, as a kubelet does.
    async fn register(&mut self, id: &str, node: &Node) -> Result<Option<String>, Death> {
        let provider_id = |node: &Node| node.spec.as_ref()?.provider_id.clone();
        let mut in_the_way = None;
        loop {
            let parameters = PostParams::default();
            let created = persist(|| self.nodes.create(&parameters, node)).await;
            match created {
                Ok(created) => {
                    if in_the_way.is_some() {
                        self.shared.solved(id);
                    }
                    return Ok(created.metadata.uid);
                }
                Err(kube::Error::Api(status)) if status.code == 409 => {
                    let name = node.name_any();
                    let Some(present) = persist(|| self.nodes.get_opt(&name)).await? else {
                        continue;
                    };
                    let of = provider_id(&present);
                    if of == provider_id(node) {
                        // Its own: the answer to the first attempt was lost.
                        return Ok(present.metadata.uid);
                    }
                    let of = of.unwrap_or_else(|| "one without a providerID".to_owned());
                    if in_the_way.as_ref() != Some(&of) {
                        let problem = format!("the Node {name} is that of another machine: {of}");
                        self.shared.problem(id, problem);
                        in_the_way = Some(of);
                    }
                    self.alive(RETRY).await?;
                }
                Err(error) => {
                    let problem = format!("the API server refuses its Node: {error}");
                    return Err(Death::Problem(problem));
                }
            }
        }
    }

    /// The cloud controller manager's clean-up: of this machine's Node, not of one that has got its
    /// name since.
    async fn remove(&self, name: &str, uid: Option<String>) -> Result<(), Death> {
        let preconditions = Preconditions { uid, resource_version: None };
        let parameters = DeleteParams::background().preconditions(preconditions);
        match persist(|| self.nodes.delete(name, &parameters)).await {
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
            other => ignore_missing(other),
        }
    }

    /// What happens on a Node that has been registered, until the instance ends.
    async fn joined(
        &mut self,
        name: &str,
        hardware: &Hardware,
        config: &Config,
        faults: &[Fault],
    ) -> Result<(), Death> {
        self.initialise_cloud(name, hardware).await?;
        if faults.contains(&Fault::StaysNotReady) {
            self.shared
                .problem(&hardware.instance_id, "fault: it joined and stays NotReady".into());
            return self.post(name, NO_NETWORK, None).await;
        }
        self.post(name, NO_NETWORK, Some(config.ready)).await?;
        self.report(name, READY).await?;
        for fault in faults {
            match fault {
                Fault::GoesNotReady(millis) => {
                    self.post(name, READY, Some(Duration::from_millis(*millis))).await?;
                    self.silence(name).await?;
                    self.report(name, UNHEALTHY).await?;
                    return self.until_ended().await;
                }
                Fault::FallsSilent(millis) => {
                    self.post(name, READY, Some(Duration::from_millis(*millis))).await?;
                    self.silence(name).await?;
                    return self.until_ended().await;
                }
                _ => {}
            }
        }
        self.post(name, READY, None).await
    }

    /// Reports this, for some time or until the instance ends: again whenever the cluster has taken
    /// the kubelet for dead meanwhile.
    async fn post(
        &mut self,
        name: &str,
        report: Report,
        time: Option<Duration>,
    ) -> Result<(), Death> {
        let until = time.map(|time| Instant::now() + time);
        self.report(name, report).await?;
        loop {
            let Self { instance, taken_for_dead, .. } = self;
            let over = async {
                match until {
                    Some(until) => tokio::time::sleep_until(until).await,
                    None => pending().await,
                }
            };
            tokio::select! {
                // An error means that the simulator stops, which ends the machine's part in it too.
                _ = instance.wait_for(|instance| is_silent(instance.state)) => {
                    return Err(Death::Ended);
                }
                () = over => return Ok(()),
                told = taken_for_dead.changed() => {
                    if told.is_err() {
                        return Err(Death::Ended);
                    }
                }
            }
            let is_meant = taken_for_dead.borrow_and_update().contains(name);
            if is_meant {
                self.report(name, report).await?;
            }
        }
    }

    async fn reach_running(&mut self) -> Result<(), Death> {
        let started = self.instance.wait_for(|instance| instance.state != State::Pending).await;
        let instance = started.map_err(|_| Death::Ended)?;
        if instance.state == State::Running { Ok(()) } else { Err(Death::Ended) }
    }

    async fn until_ended(&mut self) -> Result<(), Death> {
        // An error means that the simulator stops, which ends the machine's part in it too.
        let _ = self.instance.wait_for(|instance| is_silent(instance.state)).await;
        Err(Death::Ended)
    }

    /// Lets time pass unless the instance ends before.
    async fn alive(&mut self, time: Duration) -> Result<(), Death> {
        match tokio::time::timeout(time, self.until_ended()).await {
            Ok(ended) => ended,
            Err(_) => Ok(()),
        }
    }

    /// The cloud controller manager's part: labels, addresses, and the taint taken away.
    async fn initialise_cloud(&self, name: &str, hardware: &Hardware) -> Result<(), Death> {
        let node = persist(|| self.nodes.get(name)).await?;
        let taints: Vec<_> = node
            .spec
            .and_then(|spec| spec.taints)
            .into_iter()
            .flatten()
            .filter(|taint| taint.key != UNINITIALIZED)
            .collect();
        // The resource version keeps a taint that somebody else puts on the Node at this very
        // moment.
        let patch = json!({
            "metadata": { "labels": node::cloud_labels(hardware), "resourceVersion": node.metadata.resource_version },
            "spec": { "taints": taints },
        });
        let patch = Patch::Merge(patch);
        let parameters = PatchParams::default();
        match persist(|| self.nodes.patch(name, &parameters, &patch)).await {
            Err(kube::Error::Api(status)) if status.code == 409 => {
                return Box::pin(self.initialise_cloud(name, hardware)).await;
            }
            other => ignore_missing(other)?,
        }
        self.patch_status(name, json!({ "addresses": node::addresses(hardware) })).await
    }

    async fn report(&self, name: &str, report: Report) -> Result<(), Death> {
        let Report { ready, reason, message } = report;
        let now = self.clock.time();
        let condition = |type_: &str, status: &str, reason: &str, message: &str| json!({ "type": type_, "status": status, "reason": reason, "message": message, "lastHeartbeatTime": now, "lastTransitionTime": now });
        let conditions = json!([
            condition(
                "MemoryPressure",
                "False",
                "KubeletHasSufficientMemory",
                "kubelet has sufficient memory available"
            ),
            condition(
                "DiskPressure",
                "False",
                "KubeletHasNoDiskPressure",
                "kubelet has no disk pressure"
            ),
            condition(
                "PIDPressure",
                "False",
                "KubeletHasSufficientPID",
                "kubelet has sufficient PID available"
            ),
            condition("Ready", ready, reason, message),
        ]);
        self.patch_status(name, json!({ "conditions": conditions })).await
    }

    async fn patch_status(&self, name: &str, status: Value) -> Result<(), Death> {
        let patch = Patch::Strategic(json!({ "status": status }));
        let parameters = PatchParams::default();
        let patched = persist(|| self.nodes.patch_status(name, &parameters, &patch)).await;
        ignore_missing(patched)
    }

    async fn silence(&self, name: &str) -> Result<(), Death> {
        // Without its annotation kwok would go on to renew the lease of a node that it has once
        // known.
        let client = || self.nodes.clone().into_client();
        ignore_missing(persist(|| kwok::silence(client(), name, self.clock)).await)
    }
}

/// Why a machine's life as a Node ends.
enum Death {
    /// Its instance ended.
    Ended,
    /// Something keeps it from joining or from working.
    Problem(String),
}

impl From<kube::Error> for Death {
    fn from(error: kube::Error) -> Self {
        Self::Problem(format!("its kubelet can't reach the API server: {error}"))
    }
}

/// What a real node needs to join, then the Node that it registers.
fn join(
    facts: &Facts,
    instance: &Instance,
    kops: Option<&KopsController>,
) -> Result<(Hardware, Node), JoinError> {
    facts.network(instance)?;
    let family = facts.family(instance)?;
    let hardware = facts.hardware(instance)?;
    let bootstrap = match (family, kops) {
        (Family::Ubuntu, Some(controller)) => controller.bootstrap(instance)?,
        _ => {
            facts.admission(instance)?;
            let user_data = instance.user_data.as_deref().unwrap_or_default();
            Bootstrap::read(family, user_data)?
        }
    };
    let node = node::register(&hardware, family, &bootstrap)?;
    Ok((hardware, node))
}

/// Makes a call until the API server answers it: neither a kubelet nor the cloud controller manager
/// gives up because the API server restarts.
async fn persist<T, F: Future<Output = Result<T, kube::Error>>>(
    call: impl Fn() -> F,
) -> Result<T, kube::Error> {
    loop {
        match call().await {
            Err(kube::Error::Api(status)) if status.code < 500 && status.code != 429 => {
                return Err(kube::Error::Api(status));
            }
            Err(error) => {
                tracing::debug!(%error, "trying again");
                tokio::time::sleep(RETRY).await;
            }
            Ok(answer) => return Ok(answer),
        }
    }
}

/// Somebody may delete the Node at any time; a kubelet that has lost its Node goes on in silence.
fn ignore_missing<T, E: Into<Death> + IsMissing>(result: Result<T, E>) -> Result<(), Death> {
    match result {
        Ok(_) => Ok(()),
        Err(error) if error.is_missing() => Ok(()),
        Err(error) => Err(error.into()),
    }
}

trait IsMissing {
    fn is_missing(&self) -> bool;
}

impl IsMissing for kube::Error {
    fn is_missing(&self) -> bool {
        matches!(self, Self::Api(status) if status.code == 404)
    }
}
