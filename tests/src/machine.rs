//! The machine simulator: turns instances of the AWS double into Nodes, as their images' bootstrap, their kubelet and the cloud controller manager would.
//!
//! For each instance one task: it waits until the instance runs and has booted, checks what a real node needs to join, reads the user data as the image
//! would, and registers the Node; later it reports Ready and hands the heartbeats to kwok. When the instance ends, the kubelet falls silent; the
//! cloud controller manager's clean-up of such Nodes is played after a delay. Whatever keeps a machine from joining is said in [`Simulator::problems`].

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use serde_json::json;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::clock::Clock;
use crate::front::instances::{Instance, Instances, State};
use crate::kwok;

pub mod bootstrap;
pub mod facts;
pub mod node;

use bootstrap::Bootstrap;
use facts::Facts;
use node::{Hardware, UNINITIALIZED};

/// How machines behave.
#[derive(Clone, Debug)]
pub struct Config {
    /// From running to registering.
    pub boot: Duration,
    /// From registering to Ready.
    pub ready: Duration,
    /// From the end of an instance to the removal of its Node by the cloud controller manager; `None` leaves the Node to the operator.
    pub node_removal: Option<Duration>,
    /// Seed of what happens by chance.
    pub seed: u64,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            boot: Duration::from_millis(500),
            ready: Duration::from_millis(500),
            node_removal: Some(Duration::from_mins(1)),
            seed: 1,
        }
    }
}

/// What goes wrong with a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fault {
    /// It never registers.
    NeverBoots,
    /// It registers this many milliseconds later.
    BootsLate(u64),
    /// It registers and never gets Ready.
    StaysNotReady,
    /// This many milliseconds after Ready the kubelet reports NotReady.
    GoesNotReady(u64),
    /// This many milliseconds after Ready the kubelet falls silent while the instance runs on.
    FallsSilent(u64),
}

/// Which machines a fault hits.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Target {
    /// One instance.
    Instance(String),
    /// Every new machine with this probability (0 to 1).
    Share(f64),
    /// The next so many machines.
    Next(u32),
}

/// The running simulator.
#[derive(Debug)]
pub struct Simulator {
    shared: Arc<Shared>,
    stop: CancellationToken,
    task: JoinSet<()>,
}

#[derive(Debug)]
struct Shared {
    config: Mutex<Config>,
    faults: Mutex<Vec<(Target, Fault)>>,
    chance: Mutex<StdRng>,
    problems: Mutex<BTreeMap<String, String>>,
}

impl Simulator {
    /// Starts to follow `instances` and to play their kubelets against the API server of `client`, whose rights must be an administrator's.
    pub fn start(
        client: Client,
        clock: Clock,
        instances: watch::Receiver<Instances>,
        facts: Facts,
        config: Config,
    ) -> Self {
        let shared = Arc::new(Shared {
            chance: Mutex::new(StdRng::seed_from_u64(config.seed)),
            config: Mutex::new(config),
            faults: Mutex::default(),
            problems: Mutex::default(),
        });
        let stop = CancellationToken::new();
        let mut task = JoinSet::new();
        let run = run(client, clock, instances, Arc::new(facts), Arc::clone(&shared));
        let token = stop.clone();
        task.spawn(async move {
            token.run_until_cancelled(run).await;
        });
        Self { shared, stop, task }
    }

    /// From now on these machines have this fault. Applies to machines that have not booted yet; `GoesNotReady` and `FallsSilent` to all that become ready.
    pub fn inject(&self, target: Target, fault: Fault) {
        self.shared.faults.lock().push((target, fault));
    }

    /// Forgets all faults; machines that they have hit already stay as they are.
    pub fn heal(&self) {
        self.shared.faults.lock().clear();
    }

    /// Changes the delays for machines that start from now on.
    pub fn configure(&self, change: impl FnOnce(&mut Config)) {
        change(&mut self.shared.config.lock());
    }

    /// Why machines have not joined, by instance id.
    pub fn problems(&self) -> BTreeMap<String, String> {
        self.shared.problems.lock().clone()
    }

    /// Stops all kubelets. The Nodes stay.
    pub async fn stop(mut self) {
        self.stop.cancel();
        while self.task.join_next().await.is_some() {}
    }
}

impl Shared {
    /// The faults of one machine, drawn once.
    fn draw(&self, instance: &str) -> Vec<Fault> {
        let mut drawn = Vec::new();
        self.faults.lock().retain_mut(|(target, fault)| match target {
            Target::Instance(id) => {
                if id == instance {
                    drawn.push(*fault);
                }
                true
            }
            Target::Share(probability) => {
                if self.chance.lock().random_bool(probability.clamp(0.0, 1.0)) {
                    drawn.push(*fault);
                }
                true
            }
            Target::Next(count) => {
                drawn.push(*fault);
                *count -= 1;
                *count > 0
            }
        });
        drawn
    }

    fn problem(&self, instance: &str, problem: String) {
        tracing::warn!(instance, problem, "machine does not join");
        self.problems.lock().insert(instance.to_owned(), problem);
    }
}

async fn run(
    client: Client,
    clock: Clock,
    mut instances: watch::Receiver<Instances>,
    facts: Arc<Facts>,
    shared: Arc<Shared>,
) {
    let mut lives = JoinSet::new();
    let mut known: BTreeMap<String, watch::Sender<Arc<Instance>>> = BTreeMap::new();
    loop {
        let now = Arc::clone(&instances.borrow_and_update());
        for (id, instance) in now.iter() {
            if let Some(sender) = known.get(id) {
                sender.send_if_modified(|present| {
                    let changed = present.state != instance.state;
                    *present = Arc::clone(instance);
                    changed
                });
            } else if instance.state.is_alive() {
                let (sender, receiver) = watch::channel(Arc::clone(instance));
                known.insert(id.clone(), sender);
                let kubelet = Kubelet {
                    nodes: Api::all(client.clone()),
                    clock,
                    facts: Arc::clone(&facts),
                    shared: Arc::clone(&shared),
                    instance: receiver,
                };
                lives.spawn(kubelet.live());
            }
        }
        if instances.changed().await.is_err() {
            break;
        }
    }
    while lives.join_next().await.is_some() {}
}

/// Whether the machine has been told to stop, or has stopped: its kubelet is silent.
fn is_silent(state: State) -> bool {
    !matches!(state, State::Pending | State::Running)
}

/// One machine's life.
struct Kubelet {
    nodes: Api<Node>,
    clock: Clock,
    facts: Arc<Facts>,
    shared: Arc<Shared>,
    instance: watch::Receiver<Arc<Instance>>,
}

impl Kubelet {
    async fn live(mut self) {
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
        let (hardware, node) = join(&self.facts, &instance).map_err(Death::Problem)?;
        let name = hardware.private_dns_name.clone();
        self.nodes.create(&PostParams::default(), &node).await.map_err(|error| {
            Death::Problem(format!("the API server refuses the Node {name}: {error}"))
        })?;
        let outcome = self.joined(&name, &hardware, &config, &faults).await;
        if let Err(Death::Ended) = outcome {
            self.silence(&name).await?;
            if let Some(delay) = config.node_removal {
                tokio::time::sleep(delay).await;
                ignore_missing(self.nodes.delete(&name, &DeleteParams::background()).await)?;
            }
            return Ok(());
        }
        outcome
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
            self.report(name, "False", "KubeletNotReady", "container runtime network not ready")
                .await?;
            return self.until_ended().await;
        }
        self.report(name, "False", "KubeletNotReady", "container runtime network not ready")
            .await?;
        self.alive(config.ready).await?;
        self.report(name, "True", "KubeletReady", "kubelet is posting ready status").await?;
        for fault in faults {
            match fault {
                Fault::GoesNotReady(millis) => {
                    self.alive(Duration::from_millis(*millis)).await?;
                    self.silence(name).await?;
                    self.report(name, "False", "KubeletNotReady", "PLEG is not healthy").await?;
                }
                Fault::FallsSilent(millis) => {
                    self.alive(Duration::from_millis(*millis)).await?;
                    self.silence(name).await?;
                }
                _ => {}
            }
        }
        self.until_ended().await
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
        let node = self.nodes.get(name).await?;
        let taints: Vec<_> = node
            .spec
            .and_then(|spec| spec.taints)
            .into_iter()
            .flatten()
            .filter(|taint| taint.key != UNINITIALIZED)
            .collect();
        // The resource version keeps a taint that somebody else puts on the Node at this very moment.
        let patch = json!({
            "metadata": { "labels": node::cloud_labels(hardware), "resourceVersion": node.metadata.resource_version },
            "spec": { "taints": taints },
        });
        match self.nodes.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await {
            Err(kube::Error::Api(status)) if status.code == 409 => {
                return Box::pin(self.initialise_cloud(name, hardware)).await;
            }
            other => ignore_missing(other)?,
        }
        let status = json!({ "status": { "addresses": node::addresses(hardware) } });
        ignore_missing(
            self.nodes.patch_status(name, &PatchParams::default(), &Patch::Strategic(status)).await,
        )
    }

    async fn report(
        &self,
        name: &str,
        ready: &str,
        reason: &str,
        message: &str,
    ) -> Result<(), Death> {
        let now = self.clock.time();
        let condition = |type_: &str, status: &str, reason: &str, message: &str| json!({ "type": type_, "status": status, "reason": reason, "message": message, "lastHeartbeatTime": now, "lastTransitionTime": now });
        let status = json!({ "status": { "conditions": [
            condition("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
            condition("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
            condition("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
            condition("Ready", ready, reason, message),
        ] } });
        ignore_missing(
            self.nodes.patch_status(name, &PatchParams::default(), &Patch::Strategic(status)).await,
        )
    }

    async fn silence(&self, name: &str) -> Result<(), Death> {
        // Without its annotation kwok would go on to renew the lease of a node that it has once known.
        ignore_missing(kwok::silence(self.nodes.clone().into_client(), name, self.clock).await)
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
fn join(facts: &Facts, instance: &Instance) -> Result<(Hardware, Node), String> {
    facts.network(instance)?;
    facts.admission(instance)?;
    let family = facts.family(instance)?;
    let hardware = facts.hardware(instance)?;
    let user_data = instance.user_data.as_deref().unwrap_or_default();
    let bootstrap = Bootstrap::read(family, user_data).map_err(|error| error.to_string())?;
    let node = node::register(&hardware, family, &bootstrap)?;
    Ok((hardware, node))
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
