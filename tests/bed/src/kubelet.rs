//! The kubelet of the bed's system nodes: runs the operator's own pods as local processes, as a
//! real kubelet would run their containers.
//!
//! Which: containers whose image is one of [`KubeletConfig::images`] become the built program.
//! Containers of any other image on these nodes are played (Running at once). What a container
//! sees: its args, its environment (literals, downward API, ConfigMap and Secret keys), its volumes
//! at their mount paths, a service account token that is renewed, the EKS identity webhook's
//! additions ([`identity`]), and the API server in `KUBERNETES_SERVICE_HOST`. What the cluster
//! sees: status, readiness, restarts with back-off, termination with `SIGTERM` and grace period.
//!
//! Two things a process has not, and what stands for them ([`isolation`]): files come by a mount
//! namespace of its own (else by rewritten paths); an address comes from the loopback range, one
//! per pod, and `BIND_ADDRESS` tells the process to listen only there, so that two replicas can use
//! the same ports.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::select_all;
use futures::{Stream, StreamExt};
use k8s_openapi::api::core::v1::Pod;
use kube::runtime::utils::Backoff;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client, ResourceExt};
use parking_lot::Mutex;
use tenon_aws_double::clock::Clock;
use tenon_aws_double::process::{Process, Signal};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

mod container;
mod environment;
pub mod identity;
mod images;
pub mod isolation;
pub mod logs;
mod nodes;
mod pod;
mod portforward;
mod probes;
mod status;
mod volumes;

pub use nodes::{NodeError, SystemNode};

use images::Images;
use isolation::Isolation;
use logs::LogServer;

/// How long processes may take to end when the bed stops, whatever their pods say.
const STOP_GRACE: Duration = Duration::from_secs(5);

/// An image that is run as a process.
#[derive(Clone, Debug)]
pub struct Image {
    /// The last part of the image's repository, without tag and digest: `tenon-operator` for
    /// `registry.example/x/tenon-operator:1.2@sha256:…`.
    pub name: String,
    /// The program that stands for it.
    pub program: PathBuf,
}

/// Tells which role Pod Identity gives to a service account: the seam to the EKS double.
pub trait PodIdentity: Send + Sync {
    /// Whether an association exists for this namespace and service account.
    fn associated<'a>(
        &'a self,
        namespace: &'a str,
        service_account: &'a str,
    ) -> BoxFuture<'a, bool>;
}

/// Nobody has an identity: for beds without AWS.
#[derive(Clone, Copy, Debug)]
pub struct NoPodIdentity;

impl PodIdentity for NoPodIdentity {
    fn associated<'a>(&'a self, _: &'a str, _: &'a str) -> BoxFuture<'a, bool> {
        Box::pin(std::future::ready(false))
    }
}

/// What the kubelet runs and with what.
#[derive(Clone)]
pub struct KubeletConfig {
    /// Its directory: volumes of pods; must exist.
    pub dir: PathBuf,
    /// The directory of the containers' logs, `<namespace>_<pod>_<container>.log`; must exist.
    pub logs: PathBuf,
    /// An administrator's client.
    pub client: Client,
    /// The port on loopback where pods find the API server.
    pub api_server_port: u16,
    /// The images that are run as processes.
    pub images: Vec<Image>,
    /// The first three bytes of the pods' loopback addresses.
    pub addresses: [u8; 3],
    /// Who has a Pod Identity association.
    pub pod_identity: Arc<dyn PodIdentity>,
    /// Where Pod Identity hands out credentials (the agent's address in a real cluster).
    pub credentials_url: String,
    /// Where each system node finds its instance's metadata, by name; pods on the node's own
    /// network find it there, too.
    pub metadata: BTreeMap<String, String>,
    /// The region, as the identity webhook tells it to pods.
    pub region: String,
    /// Variables that every process gets unless its container sets them: what the network does in a
    /// real cluster (`AWS_ENDPOINT_URL`).
    pub env: BTreeMap<String, String>,
    /// Nodes that are there from the beginning.
    pub nodes: Vec<SystemNode>,
    /// Gives all times in statuses.
    pub clock: Clock,
}

/// A container that runs as a process.
#[derive(Clone, Debug)]
pub struct Running {
    /// Namespace of its pod.
    pub namespace: String,
    /// Name of its pod.
    pub pod: String,
    /// Name of the container.
    pub container: String,
    /// The loopback address of its pod.
    pub address: Ipv4Addr,
    /// How often it was restarted.
    pub restarts: i32,
    /// File with its output.
    pub log: PathBuf,
    process: Arc<Process>,
}

impl Running {
    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Sends it a signal: [`Signal::Kill`] is the `kill -9` that an out-of-memory kill is, too.
    pub fn signal(&self, signal: Signal) {
        self.process.signal(signal);
    }
}

/// What all parts of the kubelet share.
struct Shared {
    config: KubeletConfig,
    isolation: Isolation,
    pulled: Images,
    running: Mutex<BTreeMap<(String, String), Running>>,
    addresses: Mutex<Vec<bool>>,
}

/// The running kubelet; its processes are killed when it is dropped.
pub struct Kubelet {
    shared: Arc<Shared>,
    stop: CancellationToken,
    /// What runs until the kubelet stops: background work, and answers to requests for logs.
    background: JoinSet<()>,
    pods: JoinSet<()>,
}

impl std::fmt::Debug for Kubelet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Kubelet").field("running", &self.shared.running).finish_non_exhaustive()
    }
}

impl Kubelet {
    /// Registers the system nodes, begins to run their pods and to serve their logs.
    ///
    /// # Errors
    /// When a node can't be registered.
    pub async fn start(config: KubeletConfig, log_server: LogServer) -> Result<Self, NodeError> {
        for node in &config.nodes {
            nodes::register(&config.client, node, log_server.port(), config.clock).await?;
        }
        let shared = Arc::new(Shared {
            isolation: Isolation::detect().await,
            pulled: Images::new(config.dir.join("images")),
            config,
            running: Mutex::default(),
            addresses: Mutex::new(vec![false; 256]),
        });
        let stop = CancellationToken::new();
        let (mut background, mut pods) = (JoinSet::new(), JoinSet::new());
        for node in &shared.config.nodes {
            let (client, clock) = (shared.config.client.clone(), shared.config.clock);
            background.spawn(nodes::keep_alive(client, node.name.clone(), clock));
        }
        pods.spawn(drive(Arc::clone(&shared), stop.clone()));
        let running = Arc::clone(&shared);
        let addresses = Arc::new(move |namespace: &str, pod: &str| {
            let running = running.running.lock();
            let mut running = running.values();
            running.find(|it| it.namespace == namespace && it.pod == pod).map(|it| it.address)
        });
        background.spawn(log_server.serve(shared.config.logs.clone(), addresses));
        Ok(Self { shared, stop, background, pods })
    }

    /// How processes get their files.
    pub fn isolation(&self) -> &Isolation {
        &self.shared.isolation
    }

    /// The containers that run as processes now.
    pub fn running(&self) -> Vec<Running> {
        self.shared.running.lock().values().cloned().collect()
    }

    /// Ends all processes and the kubelet; the pods and nodes stay in the API server as they are.
    pub async fn stop(mut self) {
        self.background.shutdown().await;
        self.stop.cancel();
        let ended = async { while self.pods.join_next().await.is_some() {} };
        if tokio::time::timeout(STOP_GRACE, ended).await.is_err() {
            // Kills what has not ended.
            self.pods.shutdown().await;
        }
    }
}

/// A pod of ours: the newest state goes in, the task ends when the pod is gone.
struct Entry {
    newest: watch::Sender<Arc<Pod>>,
    gone: CancellationToken,
}

/// Between tries of a watch that fails: at once it would take a whole thread while the API server
/// is gone, and long pauses would let pods wait that are to end when it is back.
#[derive(Debug)]
struct Pauses {
    next: Duration,
    last: Option<Instant>,
}

impl Pauses {
    const FIRST: Duration = Duration::from_millis(200);
    const LONGEST: Duration = Duration::from_secs(2);
    /// A watch that has not failed for so long begins anew.
    const CALM: Duration = Duration::from_secs(10);
}

impl Default for Pauses {
    fn default() -> Self {
        Self { next: Self::FIRST, last: None }
    }
}

impl Iterator for Pauses {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        let now = Instant::now();
        if self.last.is_some_and(|last| now - last > Self::CALM) {
            self.next = Self::FIRST;
        }
        self.last = Some(now);
        let pause = self.next;
        self.next = (pause * 2).min(Self::LONGEST);
        Some(pause)
    }
}

impl Backoff for Pauses {
    /// Every try begins with an event, also one that fails then: an event is no sign that the API
    /// server is back.
    fn reset(&mut self) {}
}

/// What becomes of the pods of a node, for ever.
fn pods_of(
    client: Client,
    node: &str,
) -> impl Stream<Item = watcher::Result<watcher::Event<Pod>>> + Send + use<> {
    let config = watcher::Config::default().fields(&format!("spec.nodeName={node}"));
    watcher(Api::all(client), config).backoff(Pauses::default())
}

/// Watches the pods of the system nodes and keeps a task per pod.
async fn drive(shared: Arc<Shared>, stop: CancellationToken) {
    let streams = shared.config.nodes.iter().map(|node| {
        let name = node.name.clone();
        let events = pods_of(shared.config.client.clone(), &name);
        events.map(move |event| (name.clone(), event)).boxed()
    });
    let mut events = select_all(streams);
    let mut entries: BTreeMap<String, Entry> = BTreeMap::new();
    let mut relisted: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut tasks = JoinSet::new();
    loop {
        let (node, event) = tokio::select! {
            () = stop.cancelled() => break,
            Some(_) = tasks.join_next(), if !tasks.is_empty() => continue,
            event = events.next() => match event {
                Some(event) => event,
                None => break,
            },
        };
        match event {
            Ok(watcher::Event::Init) => {
                relisted.insert(node, Vec::new());
            }
            Ok(watcher::Event::InitApply(pod)) => {
                relisted.entry(node).or_default().push(uid(&pod));
                apply(&shared, pod, &mut entries, &mut tasks);
            }
            Ok(watcher::Event::InitDone) => {
                let present = relisted.remove(&node).unwrap_or_default();
                entries.retain(|uid, entry| {
                    let other_node =
                        entry.newest.borrow().spec.as_ref().and_then(|it| it.node_name.clone());
                    let stays = other_node.as_deref() != Some(&node) || present.contains(uid);
                    if !stays {
                        entry.gone.cancel();
                    }
                    stays
                });
            }
            Ok(watcher::Event::Apply(pod)) => apply(&shared, pod, &mut entries, &mut tasks),
            Ok(watcher::Event::Delete(pod)) => {
                if let Some(entry) = entries.remove(&uid(&pod)) {
                    entry.gone.cancel();
                }
            }
            Err(error) => {
                tracing::warn!(
                    node,
                    error = &error as &dyn std::error::Error,
                    "the watch of a system node's pods failed"
                );
            }
        }
    }
    for entry in entries.values() {
        entry.gone.cancel();
    }
    while tasks.join_next().await.is_some() {}
}

fn apply(
    shared: &Arc<Shared>,
    pod: Pod,
    entries: &mut BTreeMap<String, Entry>,
    tasks: &mut JoinSet<()>,
) {
    let uid = uid(&pod);
    let pod = Arc::new(pod);
    if let Some(entry) = entries.get(&uid) {
        entry.newest.send_replace(pod);
        return;
    }
    let (newest, watched) = watch::channel(pod);
    let gone = CancellationToken::new();
    tasks.spawn(pod::run(Arc::clone(shared), watched, gone.clone()));
    entries.insert(uid, Entry { newest, gone });
}

fn uid(pod: &Pod) -> String {
    pod.uid().unwrap_or_default()
}

impl Shared {
    /// The program that stands for an image, if it is one of ours.
    fn program(&self, image: &str) -> Option<PathBuf> {
        let name = repository_name(image);
        self.config
            .images
            .iter()
            .find(|image| image.name == name)
            .map(|image| image.program.clone())
    }

    /// A loopback address that no other pod has.
    fn take_address(&self) -> Option<Ipv4Addr> {
        let mut taken = self.addresses.lock();
        let last = (2..=254_u8).find(|last| !taken[usize::from(*last)])?;
        taken[usize::from(last)] = true;
        let [a, b, c] = self.config.addresses;
        Some(Ipv4Addr::new(a, b, c, last))
    }

    fn give_back(&self, address: Ipv4Addr) {
        self.addresses.lock()[usize::from(address.octets()[3])] = false;
    }
}

fn repository_name(image: &str) -> &str {
    let without_digest = image.split('@').next().unwrap_or(image);
    let last = without_digest.rsplit('/').next().unwrap_or(without_digest);
    last.split(':').next().unwrap_or(last)
}

#[cfg(test)]
mod tests {
    use std::future::ready;

    use super::*;

    #[test]
    fn an_image_is_known_by_the_last_part_of_its_repository() {
        for image in
            ["tenon-operator", "tenon-operator:1.0", "r.example:5000/a/tenon-operator:v1@sha256:ab"]
        {
            assert_eq!(repository_name(image), "tenon-operator");
        }
        assert_ne!(repository_name("r.example/tenon-operator/other"), "tenon-operator");
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_of_an_api_server_that_is_gone_pauses_between_its_tries() {
        // Nobody listens there: the port was just given back.
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        drop(listener);
        let mut config = kube::Config::new(address.parse().unwrap());
        config.default_retry = false;
        let events = pods_of(Client::try_from(config).unwrap(), "node");
        let minute = tokio::time::sleep(Duration::from_mins(1));
        let n_tries = events.take_until(minute).filter(|it| ready(it.is_err())).count().await;
        assert!((25..=40).contains(&n_tries), "{n_tries} tries in a minute");
    }
}
