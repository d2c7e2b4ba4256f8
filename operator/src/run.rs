//! The one place where the operator's parts are made and connected.
//!
//! Watches and the provider's refreshes run from the start, so that a standby is warm; what only
//! the leader does is [`leadership`]'s to start and to stop.

mod controllers;
#[cfg(test)]
mod metric_names;

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

use crate::aws::AwsProvider;
use crate::aws::options::AwsSettings;
use crate::client::Deadlines;
use crate::client::calls::CallMetrics;
use crate::cloud_provider::metered::Metered;
use crate::cloud_provider::{CloudProvider, RepairPolicy};
use crate::context::Context;
use crate::decisions::Decisions;
use crate::events::Recorder;
use crate::eviction_order::EvictionOrder;
use crate::gauges;
use crate::leader::Election;
use crate::leadership::{self, Replica};
use crate::ledger::Ledger;
use crate::liveness::Liveness;
use crate::logging::Level;
use crate::metrics::{self, Metrics};
use crate::nominations::Nominations;
use crate::offers::LatestOffers;
use crate::operator::Operator;
use crate::options::{CoreOptions, Options, Provider};
use crate::pauses::Pauses;
use crate::quarantine::Quarantine;
use crate::settling::Settling;
use crate::state::State;
use crate::state::change::{Change, Kind};
use crate::state::cluster::Cluster;
use crate::tasks::{TaskEnded, Tasks};
use crate::traces::Queue;
use crate::traces::export::{Exported, Exporter, ExporterError};
use crate::traces::settings::Settings;
use crate::write::Writer;
use crate::{client, clock::Clock, deletioncost, http, kwok};

/// How often the log says what a standby still waits for before it campaigns.
const TELL_WAITING: Duration = Duration::from_secs(30);

/// The operator can't start, or can't go on.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no configuration for the API server.
    #[error("no configuration for the API server: not in a pod, and KUBECONFIG is not set")]
    Config(#[source] kube::config::InferConfigError),
    /// There is no client for it.
    #[error("creating a client for the API server")]
    Client(#[source] kube::Error),
    /// A port is taken.
    #[error(transparent)]
    Listen(#[from] http::ListenError),
    /// The kwok provider's instance types.
    #[error(transparent)]
    Catalog(#[from] kwok::catalog::CatalogError),
    /// The AWS provider.
    #[error("starting the AWS provider")]
    Aws(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// Traces can't be sent.
    #[error("preparing to send traces")]
    Traces(#[source] ExporterError),
    /// Signals can't be handled.
    #[error("listening for signals")]
    Signal(#[source] std::io::Error),
    /// A controller ended, or could not be stopped in time.
    #[error(transparent)]
    Leadership(#[from] leadership::Error),
    /// The gate NodeRepair is on, and the provider's policies can't be used.
    #[error("{0}")]
    Repair(String),
    /// A part of the operator ended.
    #[error(transparent)]
    Task(#[from] TaskEnded),
}

/// Runs the operator until it is told to stop.
pub async fn run(
    options: Options,
    level: Level,
    traces: Option<(Queue, Settings)>,
) -> Result<(), Error> {
    let config = kube::Config::infer().await.map_err(Error::Config)?;
    let namespace = namespace(&options.core, &config);
    let identity = identity(&options.core);
    // The election has a client of its own: a queue of other requests must not cost the lease.
    let metrics = Metrics::new();
    let calls = CallMetrics::new(&metrics);
    let connect = |deadlines| client::connect(&config, deadlines, &calls).map_err(Error::Client);
    let (election_client, client) = (connect(Deadlines::LEASE)?, connect(Deadlines::API)?);
    let clock = Clock::system();
    let (recorder, publisher) = Recorder::new(clock);
    let context = Context {
        client: client.clone(),
        clock,
        recorder,
        decisions: Decisions::new(clock),
        metrics,
        liveness: Liveness::default(),
        wake: Arc::new(Notify::new()),
        interrupted: Arc::new(Notify::new()),
        cluster_name: options.core.cluster_name.as_str().into(),
    };
    context.metrics.expose(Arc::new(context.recorder.clone()));
    context.metrics.expose(Arc::new(metrics::process::Process::new(clock)));
    let lease = options.core.leader_election_name.clone();
    let election = Election::new(election_client, &namespace, lease, identity.clone(), clock);
    let election = (!options.core.disable_leader_election).then_some(election);
    let mut tasks = Tasks::new(CancellationToken::new()).observed(context.observer());
    debug(&options.core, level, &mut tasks).await;
    if let Some((queue, settings)) = traces {
        let exported = Exported::new(&context.metrics);
        let exporter = Exporter::new(queue, settings, clock, exported).map_err(Error::Traces)?;
        tasks.spawn_graceful("traces", exporter.run(tasks.stop_token().clone()));
    }
    let stopped = tasks.stop_token().clone();
    tasks.spawn_graceful("events", publisher.run(client, identity.clone(), stopped));
    decisions(&options.core, &context, election.clone(), &mut tasks).await;
    match options.core.cloud_provider {
        Provider::Kwok => {
            let file = options.kwok.instance_types_file_path.clone();
            let cloud = Arc::new(kwok::Kwok::new(context.client.clone(), file)?);
            operate(options, context, cloud, (election, identity, namespace), tasks).await
        }
        Provider::Aws => {
            let settings = AwsSettings::from(&options);
            let (client, metrics) = (&context.client, &context.metrics);
            let cloud = AwsProvider::connect(settings, client, context.clock, metrics)
                .await
                .map_err(|error| Error::Aws(Box::new(error)))?;
            operate(options, context, cloud, (election, identity, namespace), tasks).await
        }
    }
}

async fn operate<P: CloudProvider>(
    options: Options,
    context: Context,
    cloud: Arc<P>,
    (election, identity, namespace): (Option<Election>, String, String),
    mut tasks: Tasks,
) -> Result<(), Error> {
    let stop = CancellationToken::new();
    let core = options.core;
    let cloud = Arc::new(Metered::new(cloud, context.metrics.clone()));
    let mut cluster = Cluster::new(cloud.node_class_kinds(), cloud.label_rules());
    if !core.ignore_dra_requests {
        if crate::watch::serves_devices(&context.client).await {
            cluster.plan_for_claims();
        } else {
            tracing::warn!(
                "pods with resource claims stay pending: the API server does not serve \
                 resource.k8s.io/v1"
            );
        }
    }
    if core.feature_gates.is_on("NodeOverlay") {
        cluster.expect(Kind::NodeOverlay);
    }
    if core.feature_gates.is_on("CapacityBuffer") {
        for kind in Kind::BUFFERS {
            cluster.expect(kind);
        }
    }
    let constraints = core.scheduler_config.default_constraints.len();
    if constraints > 0 {
        tracing::info!(
            constraints,
            "pods without topology spread constraints get those of the scheduler's configuration"
        );
        cluster.spread_by(&core.scheduler_config);
    }
    if core.feature_gates.is_on("NodeRepair") {
        cluster.repair_by(repair_policies(cloud.repair_policies())?);
    }
    if core.feature_gates.is_on(deletioncost::GATE) {
        cluster.manage_deletion_costs();
    }
    let process = metrics::underway::Process::new(context.liveness.clone());
    context.metrics.collector(Box::new(process));
    let kinds = cluster.watched().collect();
    let (state, state_task) = State::new(cluster);
    let existing = state.clone();
    context.metrics.forget_all_but(move || gauges::live(&existing));
    if !core.disable_cluster_state_observability {
        gauges::pods::observe(&state, context.metrics.clone(), context.clock);
        let pods = gauges::pods::Pods::new(state.clone(), context.clock, &context.metrics);
        context.metrics.expose(Arc::new(pods));
        context.metrics.expose(Arc::new(gauges::Gauges::new(state.clone(), context.clock)));
        let conditions = gauges::conditions::Conditions::new(state.clone(), context.clock);
        context.metrics.expose(Arc::new(conditions));
        let (metrics, node_classes) = (context.metrics.clone(), cloud.node_class_kinds());
        gauges::transitions::observe(&state, metrics, context.clock, node_classes);
    }
    let health = http::listen("health", core.bind_address, core.health_probe_port).await?;
    let metrics = http::listen("metrics", core.bind_address, core.metrics_port).await?;
    tasks.spawn("state", state_task.run());
    crate::watch::start(&context, &state.updates(), &kinds, &mut tasks);
    cloud.start_watching(&context, &state, &mut tasks);
    let (woken, wake) = watch::channel(0);
    tasks.spawn("wake", relay(Arc::clone(&context.wake), woken));
    let served = tasks.stop_token().clone();
    let liveness = context.liveness.clone();
    let health = http::serve_health(health, state.clone(), liveness, served.clone());
    tasks.spawn_graceful("health", health);
    let exposed = context.metrics.clone();
    tasks.spawn_graceful("metrics", http::serve_metrics(metrics, exposed, served));

    let policy = core.policy();
    let operator = Arc::new(Operator {
        write: Writer::new(context.client.clone(), state.clone()),
        context,
        state,
        cloud,
        options: core,
        policy,
        offers: LatestOffers::default(),
        quarantine: Quarantine::default(),
        nominations: Nominations::default(),
        pauses: Pauses::default(),
        ledger: Ledger::default(),
        eviction_order: EvictionOrder::default(),
        settling: Settling::default(),
    });
    dashboard(&operator, election.clone(), namespace, &mut tasks).await;
    let leading = Leading { operator, identity, wake };
    leading.tell(false);
    let stopped = stop.clone();
    let signals = told_to_stop()?;
    tasks.spawn("signals", async move {
        signals.await;
        tracing::info!("received a signal to stop");
        stopped.cancel();
        std::future::pending::<()>().await;
    });
    let work = leadership::run(election.as_ref(), &leading, &stop);
    tokio::pin!(work);
    tokio::select! {
        ended = tasks.supervise() => {
            stop.cancel();
            work.await?;
            ended?;
        }
        ended = &mut work => {
            tasks.stop_token().cancel();
            tasks.join().await.ok();
            ended?;
        }
    }
    Ok(())
}

/// Waits for a signal to stop.
fn told_to_stop() -> Result<impl Future<Output = ()> + Send, Error> {
    let mut term = signal(SignalKind::terminate()).map_err(Error::Signal)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(Error::Signal)?;
    Ok(async move {
        tokio::select! {
            _ = term.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}

/// What this replica does when it leads.
struct Leading<P> {
    operator: Arc<Operator<P>>,
    /// The name by which it leads.
    identity: String,
    wake: watch::Receiver<u64>,
}

impl<P: CloudProvider> Leading<P> {
    /// The kinds that were not listed yet.
    fn missing(&self) -> Vec<String> {
        let kinds =
            |cluster: &Cluster| cluster.unlisted().map(|kind| format!("{kind:?}")).collect();
        let mut missing: Vec<String> = kinds(&self.operator.state.read());
        if self.operator.cloud.synced().now_or_never().is_none() {
            let classes = self.operator.cloud.node_class_kinds().iter();
            missing.extend(classes.map(|kind| kind.kind.to_owned()));
        }
        missing
    }

    /// Tells in the metrics whether this replica leads.
    fn tell(&self, leads: bool) {
        let lease = &self.operator.options.leader_election_name;
        self.operator.context.metrics.leader.set([lease], f64::from(u8::from(leads)));
    }
}

impl<P: CloudProvider> Replica for Leading<P> {
    async fn warm_up(&self) {
        let warm = async {
            self.operator.state.listed().await;
            self.operator.cloud.synced().await;
        };
        tokio::pin!(warm);
        while tokio::time::timeout(TELL_WAITING, &mut warm).await.is_err() {
            let missing = self.missing().join(", ");
            tracing::warn!(missing, "not campaigning before everything was listed once");
        }
    }

    async fn lead(&self, tasks: &mut Tasks) {
        let operator = &self.operator;
        operator.context.decisions.lead(self.identity.clone());
        tasks.observe(operator.context.observer());
        operator.state.apply(Change::TookLead).await;
        let state = operator.state.until(tasks.stop_token().clone());
        let operator = Operator {
            write: Writer::new(operator.context.client.clone(), state.clone()),
            context: operator.context.clone(),
            state,
            cloud: Arc::clone(&operator.cloud),
            options: operator.options.clone(),
            policy: operator.policy.clone(),
            offers: LatestOffers::default(),
            quarantine: Quarantine::default(),
            nominations: Nominations::default(),
            pauses: Pauses::default(),
            ledger: Ledger::default(),
            eviction_order: EvictionOrder::default(),
            settling: Settling::default(),
        };
        controllers::start(&Arc::new(operator), &self.wake, tasks);
        self.tell(true);
    }

    fn step_down(&self) {
        self.operator.context.metrics.forget_leading();
        self.operator.context.decisions.step_down();
        self.tell(false);
    }
}

/// Serves what helps to find out what the operator does. It is no reason not to work when it can't,
/// e.g. beside another operator on the host's network.
async fn debug(options: &CoreOptions, level: Level, tasks: &mut Tasks) {
    let Some(port) = options.debug_port() else {
        if options.debug_port != 0 {
            tracing::warn!(
                port = options.debug_port,
                "the log level can't be changed at run time: metrics or probes use the debug port; \
                 set another one with --debug-port (DEBUG_PORT)"
            );
        }
        return;
    };
    let loopback = std::net::Ipv4Addr::LOCALHOST.into();
    match http::listen("debugging", loopback, port).await {
        Ok(listener) => {
            let stop = tasks.stop_token().clone();
            let server = http::serve_debug(listener, level, options.enable_profiling, stop);
            tasks.spawn_graceful("debug", server);
        }
        Err(error) => {
            let error = crate::text::chain(&error);
            tracing::warn!(error, "the log level can't be changed at run time");
        }
    }
}

/// Serves the decision ledger. It is no reason not to work when it can't.
async fn decisions(
    options: &CoreOptions,
    context: &Context,
    election: Option<Election>,
    tasks: &mut Tasks,
) {
    let Some(port) = options.decisions_port() else {
        if options.decisions_port != 0 {
            tracing::warn!(
                port = options.decisions_port,
                "decisions are not served: another server uses their port; set another one with \
                 --decisions-port (DECISIONS_PORT)"
            );
        }
        return;
    };
    let address = http::decisions::address(options.bind_address);
    match http::listen("decisions", address, port).await {
        Ok(listener) => {
            let ledger = http::decisions::Ledger {
                decisions: context.decisions.clone(),
                client: context.client.clone(),
                election,
            };
            let stop = tasks.stop_token().clone();
            let server = http::decisions::serve_decisions(listener, ledger, stop);
            tasks.spawn_graceful("decisions", server);
        }
        Err(error) => {
            let error = crate::text::chain(&error);
            tracing::warn!(error, "decisions are not served");
        }
    }
}

/// Serves the dashboard if it is wanted. It is no reason not to work when it can't.
async fn dashboard<P: CloudProvider>(
    operator: &Arc<Operator<P>>,
    election: Option<Election>,
    namespace: String,
    tasks: &mut Tasks,
) {
    let options = &operator.options;
    let Some(port) = options.dashboard_port() else {
        if options.dashboard {
            tracing::warn!(
                port = options.dashboard_port,
                "the dashboard is not served: another server uses its port; set another one with \
                 --dashboard-port (DASHBOARD_PORT)"
            );
        }
        return;
    };
    let address = http::decisions::address(options.bind_address);
    match http::listen("the dashboard", address, port).await {
        Ok(listener) => {
            let fleet = crate::dashboard::Fleet {
                operator: Arc::clone(operator),
                client: operator.context.client.clone(),
                election,
                // That of the Lease can be another one.
                namespace: match &*options.system_namespace {
                    "" => namespace,
                    own => own.to_owned(),
                },
                port,
                reader: match &*options.karpenter_service {
                    "" => "karpenter-dashboard-reader".to_owned(),
                    name => format!("{name}-dashboard-reader"),
                },
            };
            let stop = tasks.stop_token().clone();
            let server = crate::dashboard::serve(listener, fleet, stop);
            tasks.spawn_graceful("dashboard", server);
        }
        Err(error) => {
            let error = crate::text::chain(&error);
            tracing::warn!(error, "the dashboard is not served");
        }
    }
}

/// The provider's policies for sick machines, once they have been checked.
fn repair_policies(policies: Vec<RepairPolicy>) -> Result<Vec<RepairPolicy>, Error> {
    if policies.is_empty() {
        let message =
            "node repair requires the cloud provider to define RepairPolicies, but it defines none";
        return Err(Error::Repair(message.to_owned()));
    }
    tenon_planner::repair::validate(&policies).map_err(|errors| {
        let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
        Error::Repair(format!("node repair requires valid RepairPolicies, {}", errors.join("; ")))
    })?;
    Ok(policies)
}

/// Passes a wake-up on to everybody who waits for one.
async fn relay(wake: Arc<Notify>, woken: watch::Sender<u64>) {
    loop {
        wake.notified().await;
        woken.send_modify(|count| *count += 1);
    }
}

fn namespace(options: &CoreOptions, config: &kube::Config) -> String {
    let given = [&options.leader_election_namespace, &options.system_namespace];
    let given = given.into_iter().find(|namespace| !namespace.is_empty());
    given.unwrap_or(&config.default_namespace).clone()
}

fn identity(options: &CoreOptions) -> String {
    let name = if options.pod_name.is_empty() { "tenon-operator" } else { &options.pod_name };
    // Two processes must never take each other's lease for their own, whatever the host calls
    // itself.
    format!("{name}_{}", uuid::Uuid::new_v4())
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenon_planner::snapshot::RepairAction;

    #[tokio::test(start_paused = true)]
    async fn who_waits_for_the_first_lists_says_what_is_missing() {
        let server =
            crate::testing::ApiServer::answering(|_| crate::testing::refused(404, "NotFound"));
        let kinds = crate::testing::KINDS;
        let cluster = Cluster::new(kinds, tenon_crds::labels::LabelRules::core());
        let (operator, _publisher) = crate::testing::operator(&server, cluster);
        let identity = String::new();
        let leading = Leading { operator, identity, wake: watch::channel(0).1 };
        let missing = leading.missing();
        assert_eq!(missing.len(), Kind::ALL.len() + 1, "{missing:?}");
        for kind in Kind::ALL {
            let listed = Change::Listed(kind, std::collections::BTreeSet::new());
            leading.operator.state.apply(listed).await;
        }
        assert_eq!(leading.missing(), ["KWOKNodeClass"]);
    }

    #[test]
    fn repair_needs_policies_that_make_sense() {
        let policy = |reason: Option<&str>, action| RepairPolicy {
            condition: "Ready".to_owned(),
            status: "False".to_owned(),
            reason: reason.map(str::to_owned),
            toleration: jiff::SignedDuration::ZERO,
            termination_grace_period: None,
            priority: 0,
            action,
        };
        let fallback = policy(None, RepairAction::ReplaceNode);
        let told = |policies: Vec<RepairPolicy>| {
            repair_policies(policies).map(|it| it.len()).map_err(|error| error.to_string())
        };
        assert_eq!(told(vec![fallback.clone()]), Ok(1));
        assert!(told(vec![]).unwrap_err().contains("it defines none"));
        let none = told(vec![policy(Some(".*"), RepairAction::ReplaceNode)]).unwrap_err();
        assert!(none.starts_with("node repair requires valid RepairPolicies, "), "{none}");
        let reboots = told(vec![fallback, policy(Some("Hung"), RepairAction::RebootNode)]);
        assert_eq!(reboots, Ok(2));
    }
}
