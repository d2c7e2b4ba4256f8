//! The machine simulator: turns instances of the AWS double into Nodes, as their images' bootstrap,
//! their kubelet and the cloud controller manager would.
//!
//! For each instance one task: it waits until the instance runs and has booted, checks what a real
//! node needs to join, reads the user data as the image would, and registers the Node; later it
//! reports Ready and hands the heartbeats to kwok. When the instance ends, the kubelet falls
//! silent; the cloud controller manager's clean-up of such Nodes is played after a delay. Whatever
//! keeps a machine from joining is said in [`Simulator::problems`].

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use kube::{Api, Client};
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use tenon_aws_double::clock::Clock;
use tenon_aws_double::instance::Instance;
use tenon_aws_double::instances::Instances;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

pub mod bootstrap;
pub mod facts;
mod heartbeats;
mod kops;
mod kubelet;
pub mod node;

use facts::Facts;
pub use kops::{KopsController, KopsError};
use kubelet::Kubelet;

/// How machines behave.
#[derive(Clone, Debug)]
pub struct Config {
    /// From running to registering.
    pub boot: Duration,
    /// From registering to Ready.
    pub ready: Duration,
    /// From the end of an instance to the removal of its Node by the cloud controller manager;
    /// `None` leaves the Node to the operator.
    pub node_removal: Option<Duration>,
    /// Seed of what happens by chance.
    pub seed: u64,
    /// What lets machines of a kOps cluster in, if there is any.
    pub kops: Option<KopsController>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            boot: Duration::from_millis(500),
            ready: Duration::from_millis(500),
            node_removal: Some(Duration::from_mins(1)),
            seed: 1,
            kops: None,
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
    /// Starts to follow `instances` and to play their kubelets against the API server of `client`,
    /// whose rights must be an administrator's.
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

    /// From now on these machines have this fault. Applies to machines that have not booted yet;
    /// `GoesNotReady` and `FallsSilent` to all that become ready.
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

    fn solved(&self, instance: &str) {
        self.problems.lock().remove(instance);
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
    let (dead, taken_for_dead) = watch::channel(BTreeSet::new());
    lives.spawn(heartbeats::watch_dead_nodes(client.clone(), dead));
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
                    taken_for_dead: taken_for_dead.clone(),
                };
                lives.spawn(kubelet.live());
            }
        }
        if instances.changed().await.is_err() {
            break;
        }
    }
    // Nobody looks any more when the last kubelet has ended.
    drop(taken_for_dead);
    while lives.join_next().await.is_some() {}
}
