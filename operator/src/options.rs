//! Flags and environment variables: Karpenter's, with their names and defaults, and the few that
//! are Tenon's own.
//!
//! A flag wins over its variable. A value that can't be understood ends the program with exit code
//! 2 and says what is allowed; Karpenter silently takes the default for some of them, which hides
//! mistakes.

use std::net::IpAddr;
use std::path::PathBuf;
use std::str::FromStr;

use clap::{ArgAction, Args, Parser, ValueEnum};
use tenon_kops::Location;
use tenon_planner::policy::{MinValuesPolicy, Policy, PreferencePolicy};
use tenon_planner::resources::MicroUsd;
use tenon_state::options::{FeatureGates, dollars};
use tenon_state::scheduler::SchedulerConfig;

use crate::traces::settings::TraceOptions;

/// Runs the operator.
#[derive(Clone, Debug, Parser)]
#[command(name = "tenon-operator", version, about = "Node autoscaler for Kubernetes on AWS")]
pub struct Options {
    /// Options of every provider.
    #[command(flatten)]
    pub core: CoreOptions,
    /// Options of the AWS provider.
    #[command(flatten)]
    pub aws: AwsOptions,
    /// Options of the kwok provider.
    #[command(flatten)]
    pub kwok: KwokOptions,
}

/// Options of every provider.
#[derive(Clone, Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "they are switches on a command line")]
pub struct CoreOptions {
    /// Cloud provider: `aws`, or `kwok` for simulated nodes on any cluster.
    #[arg(long, env = "CLOUD_PROVIDER", value_enum, default_value_t = Provider::Aws)]
    pub cloud_provider: Provider,
    /// Name of the cluster, used in tags and in the nodes' user data. Required with the AWS
    /// provider.
    #[arg(long, env = "CLUSTER_NAME", default_value = "")]
    pub cluster_name: String,
    /// Address that the servers for metrics and health listen on.
    #[arg(long, env = "BIND_ADDRESS", default_value = "0.0.0.0")]
    pub bind_address: IpAddr,
    /// Port for metrics.
    #[arg(long, env = "METRICS_PORT", default_value_t = 8080)]
    pub metrics_port: u16,
    /// Port for /healthz and /readyz.
    #[arg(long, env = "HEALTH_PROBE_PORT", default_value_t = 8081)]
    pub health_probe_port: u16,
    /// Port for /debug, on the pod's loopback address only; 0 disables it, and so does the port of
    /// metrics or probes.
    #[arg(long, env = "DEBUG_PORT", default_value_t = 8082)]
    pub debug_port: u16,
    /// Port for /decisions, on the pod's loopback address only; 0 disables it, and so does the port
    /// of another of the operator's servers.
    #[arg(long, env = "DECISIONS_PORT", default_value_t = tenon_state::decision::PORT)]
    pub decisions_port: u16,
    /// Serve the dashboard, for callers whose token permits `get` on the non-resource URL
    /// /dashboard.
    #[arg(long, env = "ENABLE_DASHBOARD", action = ArgAction::Set, num_args = 0..=1, require_equals = true, default_value_t = false, default_missing_value = "true")]
    pub dashboard: bool,
    /// Port for the dashboard, on the pod's loopback address only.
    #[arg(long, env = "DASHBOARD_PORT", default_value_t = 8086)]
    pub dashboard_port: u16,
    /// Accepted for compatibility; the API server's own fairness limits the client.
    #[arg(long, env = "KUBE_CLIENT_QPS", default_value_t = 200)]
    pub kube_client_qps: u32,
    /// Accepted for compatibility; the API server's own fairness limits the client.
    #[arg(long, env = "KUBE_CLIENT_BURST", default_value_t = 300)]
    pub kube_client_burst: u32,
    /// Serve the allocator's memory statistics under /debug/pprof/heap on the debug port.
    #[arg(long, env = "ENABLE_PROFILING", action = ArgAction::Set, num_args = 0..=1, require_equals = true, default_value_t = false, default_missing_value = "true")]
    pub enable_profiling: bool,
    /// Accepted for compatibility; the caches of a standby are always warm.
    #[arg(long, env = "DISABLE_CONTROLLER_WARMUP", action = ArgAction::Set, num_args = 0..=1, require_equals = true, default_value_t = true, default_missing_value = "true")]
    pub disable_controller_warmup: bool,
    /// Run without leader election. Only for a single replica.
    #[arg(long, env = "DISABLE_LEADER_ELECTION", action = ArgAction::Set, num_args = 0..=1, require_equals = true, default_value_t = false, default_missing_value = "true")]
    pub disable_leader_election: bool,
    /// Don't expose the gauges about pods, nodes and nodepools.
    #[arg(long, env = "DISABLE_CLUSTER_STATE_OBSERVABILITY", action = ArgAction::Set, num_args = 0..=1, require_equals = true, default_value_t = false, default_missing_value = "true")]
    pub disable_cluster_state_observability: bool,
    /// Name of the lease.
    #[arg(long, env = "LEADER_ELECTION_NAME", default_value = "karpenter-leader-election")]
    pub leader_election_name: String,
    /// Namespace of the lease; the operator's own when empty.
    #[arg(long, env = "LEADER_ELECTION_NAMESPACE", default_value = "")]
    pub leader_election_namespace: String,
    /// The operator's own namespace.
    #[arg(long, env = "SYSTEM_NAMESPACE", default_value = "")]
    pub system_namespace: String,
    /// Name of the operator's own pod in the lease and in events; the host name when empty.
    #[arg(long, env = "HOSTNAME", default_value = "")]
    pub pod_name: String,
    /// Accepted for compatibility; memory is not garbage collected.
    #[arg(long, env = "MEMORY_LIMIT", default_value_t = -1, allow_negative_numbers = true)]
    pub memory_limit: i64,
    /// CPU request of the operator's pod in millicores: determines its concurrency.
    #[arg(long, env = "CPU_REQUESTS", default_value_t = 1000, allow_negative_numbers = true)]
    pub cpu_requests: i64,
    /// Log level.
    #[arg(long, env = "LOG_LEVEL", value_enum, default_value_t = LogLevel::Info)]
    pub log_level: LogLevel,
    /// Accepted for compatibility; logs go to standard output.
    #[arg(long, env = "LOG_OUTPUT_PATHS", default_value = "stdout")]
    pub log_output_paths: String,
    /// Accepted for compatibility.
    #[arg(long, env = "LOG_ERROR_OUTPUT_PATHS", default_value = "stderr")]
    pub log_error_output_paths: String,
    /// Maximum duration of a batch of pending pods.
    #[arg(long, env = "BATCH_MAX_DURATION", default_value = "10s")]
    pub batch_max_duration: PositiveDuration,
    /// Time without a new pod after which a batch of pending pods ends.
    #[arg(long, env = "BATCH_IDLE_DURATION", default_value = "1s")]
    pub batch_idle_duration: PositiveDuration,
    /// Whether to respect preferences of pods.
    #[arg(long, env = "PREFERENCE_POLICY", value_enum, default_value_t = Preference::Respect)]
    pub preference_policy: Preference,
    /// How to handle `minValues` that can't be met.
    #[arg(long, env = "MIN_VALUES_POLICY", value_enum, default_value_t = MinValues::Strict)]
    pub min_values_policy: MinValues,
    /// Dollars per hour that an additional node is assumed to cost beyond its price: higher values
    /// result in fewer, larger nodes.
    #[arg(long, env = "NODE_PRICE", default_value = "0.0005", value_parser = dollars)]
    pub node_price: MicroUsd,
    /// Largest share of the cluster's pods, in percent, that one new node is planned for; 100 sets
    /// no limit.
    #[arg(long, env = "LARGEST_SHARE", default_value_t = 100, value_parser = clap::value_parser!(u8).range(1..=100))]
    pub largest_share: u8,
    /// Share of the affected NodePools' nodes, in percent: a consolidation that lack of room limits
    /// to this many nodes or fewer removes none. 0 removes every node that can be removed.
    #[arg(long, env = "FEW_NODES", default_value_t = 2, value_parser = clap::value_parser!(u8).range(0..=100))]
    pub few_nodes: u8,
    /// Write the planned node into each pod's `status.nominatedNodeName`, so that kube-scheduler
    /// tries it first. Requires Kubernetes 1.35.
    #[arg(long, env = "NOMINATE_PODS", action = ArgAction::Set, num_args = 0..=1, require_equals = true, default_value_t = true, default_missing_value = "true")]
    pub nominate_pods: bool,
    /// Topology spread constraints that kube-scheduler gives to pods without their own, as a YAML
    /// or JSON document: `podTopologySpread.defaultConstraints`, or a KubeSchedulerConfiguration.
    /// Empty means none.
    #[arg(long, env = "SCHEDULER_CONFIG", default_value = "", hide_default_value = true)]
    pub scheduler_config: SchedulerConfig,
    /// Don't plan for pods with resource claims (DRA).
    #[arg(long, env = "IGNORE_DRA_REQUESTS", action = ArgAction::Set, num_args = 0..=1, require_equals = true, default_value_t = true, default_missing_value = "true")]
    pub ignore_dra_requests: bool,
    /// `gate=true|false`, separated by commas. Unknown gates are ignored.
    #[arg(long, env = "FEATURE_GATES", default_value = "")]
    pub feature_gates: FeatureGates,
    /// Repair nodes as before Karpenter 1.15: immediately, without budgets and replacements.
    /// Requires the feature gate NodeRepair.
    #[arg(long, env = "LEGACY_NODE_REPAIR", action = ArgAction::Set, num_args = 0..=1, require_equals = true, default_value_t = false, default_missing_value = "true")]
    pub legacy_node_repair: bool,
    /// Name of the legacy webhook service; accepted for compatibility.
    #[arg(long, env = "KARPENTER_SERVICE", default_value = "")]
    pub karpenter_service: String,
    /// Traces.
    #[command(flatten)]
    pub traces: TraceOptions,
}

/// Options of the AWS provider.
#[derive(Clone, Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "they are switches on a command line")]
pub struct AwsOptions {
    /// URL of the API server for nodes; found through EKS when empty.
    #[arg(long, env = "CLUSTER_ENDPOINT", default_value = "", value_parser = endpoint)]
    pub cluster_endpoint: String,
    /// Certificate of the API server's CA for nodes, base64; the operator's own when empty.
    #[arg(long, env = "CLUSTER_CA_BUNDLE", default_value = "")]
    pub cluster_ca_bundle: String,
    /// Assume that the VPC has no route to the pricing and IAM APIs.
    #[arg(long, env = "ISOLATED_VPC", action = ArgAction::Set, num_args = 0..=1, require_equals = true, default_value_t = false, default_missing_value = "true")]
    pub isolated_vpc: bool,
    /// Neither create nor list instance profiles: EC2NodeClasses name existing ones.
    #[arg(long, env = "STATIC_INSTANCE_PROFILES", action = ArgAction::Set, num_args = 0..=1, require_equals = true, default_value_t = false, default_missing_value = "true")]
    pub static_instance_profiles: bool,
    /// Take the cluster's version from EKS.
    #[arg(long, env = "EKS_CONTROL_PLANE", action = ArgAction::Set, num_args = 0..=1, require_equals = true, default_value_t = false, default_missing_value = "true")]
    pub eks_control_plane: bool,
    /// Share of an instance's memory that its hypervisor and kernel are assumed to use.
    #[arg(long, env = "VM_MEMORY_OVERHEAD_PERCENT", default_value_t = 0.075, value_parser = share)]
    pub vm_memory_overhead_percent: f64,
    /// Name of the SQS queue with interruption messages; none when empty.
    #[arg(long, env = "INTERRUPTION_QUEUE", default_value = "")]
    pub interruption_queue: String,
    /// Network interfaces that pods can't use, for the number of pods per node.
    #[arg(long, env = "RESERVED_ENIS", default_value_t = 0)]
    pub reserved_enis: u32,
    /// Don't check EC2NodeClasses by dry runs.
    #[arg(long, env = "DISABLE_DRY_RUN", action = ArgAction::Set, num_args = 0..=1, require_equals = true, default_value_t = false, default_missing_value = "true")]
    pub disable_dry_run: bool,
    /// Launch nothing in zones from which a zonal shift moves the cluster away.
    #[arg(long, env = "ENABLE_ZONAL_SHIFT", action = ArgAction::Set, num_args = 0..=1, require_equals = true, default_value_t = false, default_missing_value = "true")]
    pub enable_zonal_shift: bool,
    /// Interval for looking up images.
    #[arg(long, env = "AMI_REFRESH_INTERVAL", default_value = "1m", value_parser = at_least_a_minute)]
    pub ami_refresh_interval: PositiveDuration,
    /// Interval for looking up subnets.
    #[arg(long, env = "SUBNET_REFRESH_INTERVAL", default_value = "1m", value_parser = at_least_a_minute)]
    pub subnet_refresh_interval: PositiveDuration,
    /// kOps' state store, such as s3://BUCKET: NodePools and EC2NodeClasses that `tenon kops sync`
    /// has created follow their InstanceGroups. Empty means none.
    #[arg(long, env = "KOPS_STATE_STORE", default_value = "", value_parser = state_store)]
    pub kops_state_store: String,
}

/// Options of the kwok provider.
#[derive(Clone, Debug, Args)]
pub struct KwokOptions {
    /// JSON file with instance types; a built-in list when absent.
    #[arg(long, env = "INSTANCE_TYPES_FILE_PATH")]
    pub instance_types_file_path: Option<PathBuf>,
}

/// Values of `--cloud-provider`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Provider {
    /// Amazon EC2.
    Aws,
    /// Simulated nodes.
    Kwok,
}

/// Log level.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogLevel {
    /// Details, including the reasons for waiting.
    Debug,
    /// Launches, disruptions and other changes.
    Info,
    /// Problems that resolve themselves.
    Warn,
    /// Problems that need attention.
    Error,
}

impl LogLevel {
    /// As `tracing` filters.
    pub(crate) fn as_filter(self) -> &'static str {
        match self {
            Self::Debug => "debug",
            Self::Info => "info",
            Self::Warn => "warn",
            Self::Error => "error",
        }
    }
}

/// `--preference-policy`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "PascalCase")]
pub enum Preference {
    /// Treat preferences as requirements that are dropped one by one.
    Respect,
    /// Ignore preferences.
    Ignore,
}

/// `--min-values-policy`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "PascalCase")]
pub enum MinValues {
    /// Refuse launches that can't meet `minValues`.
    Strict,
    /// Lower `minValues` to the number that can be met.
    BestEffort,
}

/// A duration in Go's notation that is more than nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PositiveDuration(pub std::time::Duration);

impl FromStr for PositiveDuration {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let duration: tenon_crds::Duration = text.parse().map_err(|error| format!("{error}"))?;
        if duration.as_nanos() <= 0 {
            return Err("must be more than 0".to_owned());
        }
        Ok(Self(duration.as_std()))
    }
}

impl Options {
    /// What clap can't check by itself: all problems at once.
    pub fn validate(&self) -> Result<(), Vec<String>> {
        let mut problems = Vec::new();
        if self.core.cloud_provider == Provider::Aws && self.core.cluster_name.is_empty() {
            problems
                .push("missing field, cluster-name (--cluster-name or CLUSTER_NAME)".to_owned());
        }
        if self.core.batch_idle_duration > self.core.batch_max_duration {
            problems.push("batch-idle-duration is longer than batch-max-duration".to_owned());
        }
        if self.core.metrics_port == self.core.health_probe_port && self.core.metrics_port != 0 {
            problems.push("metrics-port and health-probe-port are the same".to_owned());
        }
        problems.extend(self.core.traces.settings().err().into_iter().flatten());
        if problems.is_empty() { Ok(()) } else { Err(problems) }
    }
}

impl CoreOptions {
    /// The port to debug through: none where the administrator wants none, or gave the same one to
    /// metrics or probes, which the cluster relies on.
    pub(crate) fn debug_port(&self) -> Option<u16> {
        let is_taken = [0, self.metrics_port, self.health_probe_port].contains(&self.debug_port);
        (!is_taken).then_some(self.debug_port)
    }

    /// The port to serve decisions on: none where the administrator wants none, or gave the same
    /// one to another server.
    pub(crate) fn decisions_port(&self) -> Option<u16> {
        let others = [0, self.metrics_port, self.health_probe_port, self.debug_port];
        (!others.contains(&self.decisions_port)).then_some(self.decisions_port)
    }

    /// The port to serve the dashboard on: none where it is not wanted, or the port is another
    /// server's.
    pub(crate) fn dashboard_port(&self) -> Option<u16> {
        let others = [0, self.metrics_port, self.health_probe_port, self.debug_port];
        let is_taken =
            others.contains(&self.dashboard_port) || self.dashboard_port == self.decisions_port;
        (self.dashboard && !is_taken).then_some(self.dashboard_port)
    }

    /// What the planner has to know.
    pub fn policy(&self) -> Policy {
        Policy {
            min_values: match self.min_values_policy {
                MinValues::Strict => MinValuesPolicy::Strict,
                MinValues::BestEffort => MinValuesPolicy::BestEffort,
            },
            preferences: match self.preference_policy {
                Preference::Respect => PreferencePolicy::Respect,
                Preference::Ignore => PreferencePolicy::Ignore,
            },
            node_price: self.node_price,
            largest_share: self.largest_share,
            few_nodes: self.few_nodes,
            // Whether the cluster knows nominations shows later: `Operator::provisioning_policy`.
            nominations: self.nominate_pods,
            ..self.feature_gates.policy()
        }
    }

    /// Upstream's scale for concurrency: `min` workers with one core, `max` with sixty.
    pub fn workers(&self, min: i64, max: i64) -> usize {
        let cores = if self.cpu_requests <= 0 { 1 } else { (self.cpu_requests + 999) / 1000 };
        // As upstream cuts: A.5 of the core's specification.
        let workers = (max - min) * (cores - 1) / 59 + min;
        usize::try_from(workers.clamp(min, max)).unwrap_or(1)
    }
}

fn endpoint(text: &str) -> Result<String, String> {
    let host = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
    if text.is_empty() || host.is_some_and(|host| !host.is_empty() && !host.starts_with('/')) {
        Ok(text.to_owned())
    } else {
        Err("is not an absolute URL with a host, such as https://ABC.gr7.eu-central-1.eks.amazonaws.com".to_owned())
    }
}

fn share(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(share) if share >= 0.0 && share.is_finite() => Ok(share),
        _ => Err("is not a number of 0 or more".to_owned()),
    }
}

fn state_store(text: &str) -> Result<String, String> {
    match Location::parse(text) {
        _ if text.is_empty() => Ok(String::new()),
        Ok(Location::Bucket { .. }) => Ok(text.to_owned()),
        Ok(Location::Folder(_)) => {
            Err("the operator reads state stores in S3 only: write s3://BUCKET".to_owned())
        }
        Err(error) => Err(error.to_string()),
    }
}

fn at_least_a_minute(text: &str) -> Result<PositiveDuration, String> {
    let duration: PositiveDuration = text.parse()?;
    if duration.0 < std::time::Duration::from_mins(1) {
        return Err("must be at least 1m".to_owned());
    }
    Ok(duration)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(args: &[&str]) -> Result<Options, String> {
        let args = std::iter::once("tenon-operator").chain(args.iter().copied());
        Options::try_parse_from(args).map_err(|error| error.to_string())
    }

    #[test]
    fn the_defaults_are_karpenters() {
        let options = parse(&["--cluster-name=c"]).unwrap();
        options.validate().unwrap();
        let core = &options.core;
        assert_eq!((core.metrics_port, core.health_probe_port), (8080, 8081));
        assert_eq!(core.batch_idle_duration.0.as_secs(), 1);
        assert_eq!(core.batch_max_duration.0.as_secs(), 10);
        assert!(core.feature_gates.is_on("ReservedCapacity"));
        assert!(!core.feature_gates.is_on("NodeRepair"));
        assert!(core.ignore_dra_requests && core.disable_controller_warmup);
        assert_eq!(core.policy(), Policy::default());
        assert_eq!(options.aws.ami_refresh_interval.0.as_secs(), 60);
    }

    #[test]
    fn switches_stand_alone_or_take_true_and_false() {
        for (args, expected) in [
            (&["--disable-leader-election"][..], true),
            (&["--disable-leader-election=true"], true),
            (&["--disable-leader-election=false"], false),
        ] {
            assert_eq!(parse(args).unwrap().core.disable_leader_election, expected, "{args:?}");
        }
    }

    #[test]
    fn values_that_can_not_be_understood_are_refused() {
        for args in [
            ["--feature-gates=NodeRepair"],
            ["--feature-gates=NodeRepair=yes"],
            ["--batch-idle-duration=soon"],
            ["--batch-idle-duration=0s"],
            ["--metrics-port=http"],
            ["--preference-policy=ignore-them"],
            ["--cluster-endpoint=example.com"],
            ["--vm-memory-overhead-percent=-1"],
            ["--ami-refresh-interval=30s"],
            ["--kops-state-store=states"],
            ["--kops-state-store=file:///states"],
            ["--kops-state-store=gs://states"],
            ["--disable-leader-election=yes"],
            ["--cloud-provider=gcp"],
            ["--node-price=-1"],
            ["--node-price=free"],
            ["--node-price=NaN"],
            ["--largest-share=0"],
            ["--largest-share=101"],
            ["--few-nodes=101"],
            ["--scheduler-config=spread: them"],
            ["--scheduler-config={podTopologySpread: {defaultConstraints: [{maxSkew: 0}]}}"],
        ] {
            assert!(parse(&args).is_err(), "{args:?}");
        }
    }

    #[test]
    fn what_a_further_machine_costs_and_how_much_one_may_hold_can_be_said() {
        let policy = parse(&["--node-price=0.02", "--largest-share=25"]).unwrap().core.policy();
        assert_eq!((policy.node_price, policy.largest_share), (MicroUsd(20_000), 25));
        let policy = parse(&["--node-price=0"]).unwrap().core.policy();
        assert_eq!(
            (policy.node_price, policy.few_nodes),
            (MicroUsd(0), Policy::default().few_nodes)
        );
        assert_eq!(parse(&["--few-nodes=0"]).unwrap().core.policy().few_nodes, 0);
        assert!(!parse(&["--nominate-pods=false"]).unwrap().core.policy().nominations);
    }

    #[test]
    fn a_configuration_of_the_scheduler_that_makes_no_sense_is_told_with_its_field() {
        let error = parse(&[
            "--scheduler-config={podTopologySpread: {defaultConstraints: [{maxSkew: 0}]}}",
        ]);
        let error = error.unwrap_err();
        assert!(error.contains("podTopologySpread.defaultConstraints[0].maxSkew is 0"), "{error}");
        let constraint = "{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: DoNotSchedule}";
        let config = format!(
            "--scheduler-config={{podTopologySpread: {{defaultConstraints: [{constraint}]}}}}"
        );
        assert_eq!(parse(&[&config]).unwrap().core.scheduler_config.default_constraints.len(), 1);
        assert_eq!(parse(&[]).unwrap().core.scheduler_config, SchedulerConfig::default());
    }

    #[test]
    fn all_problems_are_told_at_once() {
        let options = parse(&["--batch-idle-duration=1m", "--metrics-port=8081"]).unwrap();
        assert_eq!(options.validate().unwrap_err().len(), 3);
    }

    #[test]
    fn the_debug_port_gives_way_to_metrics_and_probes() {
        let port = |args: &[&str]| parse(args).unwrap().core.debug_port();
        assert_eq!(port(&[]), Some(8082));
        assert_eq!(port(&["--debug-port=0"]), None);
        // As an adoption chooses them beside Karpenter on the network of the nodes.
        let beside = ["--metrics-port=8082", "--health-probe-port=8083"];
        assert_eq!(port(&beside), None);
        assert_eq!(port(&[beside[0], beside[1], "--debug-port=8084"]), Some(8084));
        assert_eq!(port(&["--health-probe-port=8082"]), None);
    }

    #[test]
    fn the_port_for_decisions_gives_way_to_all_others() {
        let port = |args: &[&str]| parse(args).unwrap().core.decisions_port();
        assert_eq!(port(&[]), Some(8085));
        assert_eq!(port(&["--decisions-port=0"]), None);
        for taken in ["--metrics-port=8085", "--health-probe-port=8085", "--debug-port=8085"] {
            assert_eq!(port(&[taken]), None, "{taken}");
        }
    }

    #[test]
    fn the_dashboard_is_served_only_if_wanted_and_on_a_port_of_its_own() {
        let port = |args: &[&str]| parse(args).unwrap().core.dashboard_port();
        assert_eq!(port(&[]), None);
        assert_eq!(port(&["--dashboard"]), Some(8086));
        assert_eq!(port(&["--dashboard", "--dashboard-port=9000"]), Some(9000));
        for taken in ["0", "8080", "8081", "8082", "8085"] {
            assert_eq!(port(&["--dashboard", &format!("--dashboard-port={taken}")]), None);
        }
    }

    #[test]
    fn workers_scale_as_upstreams() {
        let with = |cores: i64| {
            let mut core = parse(&[]).unwrap().core;
            core.cpu_requests = cores;
            core
        };
        for (millicores, expected) in
            [(500, 10), (1000, 10), (1500, 26), (4000, 60), (8000, 127), (60_000, 1000)]
        {
            assert_eq!(with(millicores).workers(10, 1000), expected, "{millicores}");
        }
        assert_eq!(with(2000).workers(100, 5000), 183);
        assert_eq!(with(0).workers(10, 1000), 10);
    }
}
