//! For unit tests: an [`ApiServer`] in this process, and what works on it: an operator with the
//! provider kwok ([`operator`]) or with a cloud that does nothing ([`idle`]), or the parts that a
//! controller of the AWS provider needs ([`bench`]).

pub(crate) mod apiserver;
pub(crate) mod bench;
pub(crate) mod idle;
pub(crate) mod joined;

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use clap::Parser as _;
use jiff::Timestamp;
use parking_lot::Mutex;
use tenon_planner::plan::{Launch, LaunchReason};
use tenon_planner::resources::{MicroUsd, Resources};
use tenon_planner::snapshot::NodeClassRef;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tracing::Dispatch;
use tracing::subscriber::DefaultGuard;

pub(crate) use self::apiserver::{ApiServer, Request, refused};
use crate::clock::Clock;
use crate::cloud_provider::{CloudProvider, NodeClassKind};
use crate::context::Context;
use crate::decisions::Decisions;
use crate::events::{Publisher, Recorder};
use crate::kwok::Kwok;
use crate::metrics::Metrics;
use crate::offers::LatestOffers;
use crate::operator::Operator;
use crate::options::Options;
use crate::pauses::Pauses;
use crate::quarantine::Quarantine;
use crate::state::State;
use crate::state::cluster::Cluster;
use crate::write::Writer;

/// The kinds of NodeClasses of [`operator`]'s provider.
pub(crate) const KINDS: &[NodeClassKind] = &[tenon_state::node_class::KWOK];

/// What is logged and traced in this thread goes to `subscriber` as long as the guard lives.
///
/// As long as a process has a single subscriber, `tracing` asks the thread that comes first to a
/// line of code whether anybody wants what is said there, and remembers the answer for all threads:
/// with other tests beside it, of one that listens to itself the lines are lost now and then. A
/// second subscriber, which nothing is sent to, makes it ask all of them.
#[expect(clippy::disallowed_methods, reason = "others are to come here")]
pub(crate) fn listen(subscriber: impl tracing::Subscriber + Send + Sync + 'static) -> DefaultGuard {
    static SECOND: LazyLock<Dispatch> =
        LazyLock::new(|| Dispatch::new(tracing_subscriber::registry()));
    LazyLock::force(&SECOND);
    tracing::subscriber::set_default(subscriber)
}

/// The lines that are logged in this thread as long as the guard lives.
#[derive(Clone, Debug, Default)]
pub(crate) struct Logs(Arc<Mutex<Vec<u8>>>);

impl Logs {
    /// Begins to collect.
    pub(crate) fn collect() -> (Self, DefaultGuard) {
        let logs = Self::default();
        let writer = logs.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(tracing::Level::DEBUG)
            .with_ansi(false)
            .with_writer(move || writer.clone())
            .finish();
        (logs, listen(subscriber))
    }

    /// Begins to collect, as lines are written in a cluster.
    pub(crate) fn collect_json() -> (Self, DefaultGuard) {
        let logs = Self::default();
        let writer = logs.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_writer(move || writer.clone())
            .event_format(crate::logging::json::Lines)
            .finish();
        (logs, listen(subscriber))
    }

    /// Those with this text.
    pub(crate) fn with(&self, text: &str) -> Vec<String> {
        let logs = String::from_utf8(self.0.lock().clone()).unwrap();
        logs.lines().filter(|line| line.contains(text)).map(str::to_owned).collect()
    }
}

impl std::io::Write for Logs {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Runs something beside a test, which ends it with itself.
#[expect(clippy::disallowed_methods, reason = "what a test spawns ends with the test")]
pub(crate) fn spawn<T: Send + 'static>(
    task: impl Future<Output = T> + Send + 'static,
) -> JoinHandle<T> {
    tokio::spawn(task)
}

/// An operator with the provider kwok that sees this cluster; its state takes changes in. The
/// events that it publishes are with the publisher.
pub(crate) fn operator(server: &ApiServer, cluster: Cluster) -> (Arc<Operator<Kwok>>, Publisher) {
    operator_on(Kwok::new(server.client(), None).unwrap(), server, cluster)
}

/// The same on another cloud.
pub(crate) fn operator_on<P: CloudProvider>(
    cloud: P,
    server: &ApiServer,
    cluster: Cluster,
) -> (Arc<Operator<P>>, Publisher) {
    let client = server.client();
    let clock = Clock::anchored(Timestamp::UNIX_EPOCH);
    let (recorder, publisher) = Recorder::new(clock);
    let (state, task) = State::new(cluster);
    spawn(task.run());
    let options = Options::parse_from(["tenon-operator", "--cloud-provider", "kwok"]).core;
    let context = Context {
        client: client.clone(),
        clock,
        recorder,
        decisions: Decisions::new(clock),
        metrics: Metrics::new(),
        wake: Arc::new(Notify::new()),
        liveness: crate::liveness::Liveness::default(),
        interrupted: Arc::new(Notify::new()),
        cluster_name: "test".into(),
    };
    let operator = Operator {
        context,
        write: Writer::new(client, state.clone()),
        state,
        cloud: Arc::new(cloud),
        policy: options.policy(),
        options,
        offers: LatestOffers::default(),
        quarantine: Quarantine::default(),
        nominations: crate::nominations::Nominations::default(),
        pauses: Pauses::default(),
        ledger: crate::ledger::Ledger::default(),
        eviction_order: crate::eviction_order::EvictionOrder::default(),
        settling: crate::settling::Settling::default(),
    };
    (Arc::new(operator), publisher)
}

/// A launch of the NodePool `default`, without pods and instance types, at this price in millionths
/// of a dollar.
pub(crate) fn launch(price: i64) -> Launch {
    Launch {
        node_pool: "default".to_owned(),
        node_pool_uid: String::new(),
        labels: BTreeMap::new().into(),
        annotations: BTreeMap::new().into(),
        requirements: vec![].into(),
        instance_types: vec![].into(),
        capacity_types: vec![],
        requests: Resources::default(),
        taints: vec![].into(),
        startup_taints: vec![].into(),
        node_class: NodeClassRef::default(),
        expire_after: None,
        termination_grace_period: None,
        pods: vec![],
        buffer_pods: vec![],
        devices: vec![],
        price: MicroUsd(price),
        reason: LaunchReason::Provisioned,
    }
}
