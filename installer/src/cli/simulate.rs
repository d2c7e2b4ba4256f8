//! `tenon simulate` and `tenon explain`

use std::path::PathBuf;

use clap::{ArgAction, Args, ValueEnum};
use jiff::Timestamp;
use tenon_planner::resources::MicroUsd;
use tenon_simulate::Drain;
use tenon_state::ec2::offered::VM_MEMORY_OVERHEAD;
use tenon_state::options::{FeatureGates, dollars};
use tenon_state::scheduler::SchedulerConfig;

/// Where the objects come from.
#[derive(Debug, Clone, Args)]
pub struct SourceArgs {
    /// Manifests (YAML or JSON), a folder of manifests, `-` for standard input, or a snapshot saved
    /// by --save (may be repeated)
    #[arg(short = 'f', long = "file", value_name = "FILE|DIR", help_heading = "Input")]
    pub files: Vec<PathBuf>,
    /// Read the cluster of the current kubeconfig; files add objects to it, or replace objects of
    /// the same name
    #[arg(long, help_heading = "Input")]
    pub live: bool,
    /// What can be launched.
    #[command(flatten)]
    pub catalog: CatalogArgs,
    /// Time to plan for, such as 2026-01-31T12:00:00Z; default: now
    #[arg(long, value_name = "TIME", help_heading = "Input")]
    pub now: Option<Timestamp>,
    /// Seed for breaking ties: the same number gives the same plan
    #[arg(long, default_value_t = 0, value_name = "N", help_heading = "Input")]
    pub seed: u64,
    /// Ignore pods with resource claims (DRA), as the operator's option does; with `=false` they
    /// are planned for
    #[arg(long, action = ArgAction::Set, num_args = 0..=1, require_equals = true, default_value_t = true, default_missing_value = "true", value_name = "BOOL", help_heading = "Input")]
    pub ignore_dra_requests: bool,
    /// What the operator's administrator chose.
    #[command(flatten)]
    pub policy: PolicyArgs,
}

/// Options of the operator that its plans depend on, under the operator's names.
#[derive(Debug, Clone, Args)]
pub struct PolicyArgs {
    /// Feature gates of the operator, such as SpotToSpotConsolidation=true; with NodeOverlay and
    /// CapacityBuffer, --live also reads these objects (those in files always count)
    #[arg(
        long,
        default_value = "",
        value_name = "GATE=BOOL,…",
        hide_default_value = true,
        help_heading = "Operator"
    )]
    pub feature_gates: FeatureGates,
    /// Whether to respect preferences of pods
    #[arg(long, value_enum, default_value_t, value_name = "POLICY", help_heading = "Operator")]
    pub preference_policy: Preferences,
    /// How to handle minValues that can't be met
    #[arg(long, value_enum, default_value_t, value_name = "POLICY", help_heading = "Operator")]
    pub min_values_policy: MinValues,
    /// Dollars per hour that an additional node is assumed to cost beyond its price; default: the
    /// operator's
    #[arg(long, value_parser = dollars, value_name = "DOLLARS", help_heading = "Operator")]
    pub node_price: Option<MicroUsd>,
    /// Largest share of the cluster's pods, in percent, that one new node is planned for; default:
    /// the operator's
    #[arg(long, value_parser = clap::value_parser!(u8).range(1..=100), value_name = "PERCENT", help_heading = "Operator")]
    pub largest_share: Option<u8>,
    /// Share of the affected NodePools' nodes, in percent: a consolidation that lack of room limits
    /// to this many nodes or fewer removes none; default: the operator's
    #[arg(long, value_parser = clap::value_parser!(u8).range(0..=100), value_name = "PERCENT", help_heading = "Operator")]
    pub few_nodes: Option<u8>,
    /// Whether pods are nominated to their planned nodes, as by the operator's option; false before
    /// Kubernetes 1.35
    #[arg(long, action = ArgAction::Set, num_args = 0..=1, require_equals = true, default_value_t = true, default_missing_value = "true", value_name = "BOOL", help_heading = "Operator")]
    pub nominate_pods: bool,
    /// Topology spread that kube-scheduler applies to pods without constraints of their own, as a
    /// YAML or JSON document: podTopologySpread.defaultConstraints, or a KubeSchedulerConfiguration
    #[arg(
        long,
        default_value = "",
        value_name = "DOCUMENT",
        hide_default_value = true,
        help_heading = "Operator"
    )]
    pub scheduler_config: SchedulerConfig,
}

/// `--preference-policy`
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "PascalCase")]
pub enum Preferences {
    /// Respect them as long as they can be met.
    #[default]
    Respect,
    /// Ignore them.
    Ignore,
}

/// `--min-values-policy`
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "PascalCase")]
pub enum MinValues {
    /// A launch that can't meet `minValues` does not happen.
    #[default]
    Strict,
    /// `minValues` is lowered to what can be met.
    BestEffort,
}

/// What can be launched.
#[derive(Debug, Clone, Args)]
pub struct CatalogArgs {
    /// Instance types: a list in the format of the kwok provider's instance-types file, or the
    /// output of `aws ec2 describe-instance-types` or `describe-capacity-reservations` (may be
    /// repeated)
    #[arg(id = "catalog", long = "catalog", value_name = "FILE", help_heading = "Input")]
    pub files: Vec<PathBuf>,
    /// Share of an instance's memory that is not available to its node, as configured in the
    /// operator
    #[arg(long, default_value_t = VM_MEMORY_OVERHEAD, value_name = "SHARE", help_heading = "Input")]
    pub vm_memory_overhead_percent: f64,
    /// Number of network interfaces that pods can't use, as configured in the operator
    #[arg(long, default_value_t = 0, value_name = "N", help_heading = "Input")]
    pub reserved_enis: u32,
}

/// `tenon simulate`
#[derive(Debug, Args)]
pub struct SimulateArgs {
    /// Where the objects come from.
    #[command(flatten)]
    pub source: SourceArgs,
    /// What to plan: nodes for pending pods, nodes to remove, or both
    #[arg(long, value_enum, default_value_t, value_name = "WHAT")]
    pub what: What,
    /// Plan as if the nodes with these labels were drained: they are gone, and their pods are
    /// pending (may be repeated)
    #[arg(long, value_name = "SELECTOR", help_heading = "Input")]
    pub drain: Vec<Drain>,
    /// Compare the plans with the NodePools of this file, in place of those of the same name, and
    /// without them
    #[arg(long, value_name = "FILE", conflicts_with_all = ["what", "save"])]
    pub what_if: Option<PathBuf>,
    /// Save the planner's input to this file
    #[arg(long, value_name = "FILE")]
    pub save: Option<PathBuf>,
}

/// What to plan.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum What {
    /// Nodes for pending pods.
    Provision,
    /// Nodes to remove.
    Disrupt,
    /// Both.
    #[default]
    Both,
}

/// `tenon explain`
#[derive(Debug, Args)]
pub struct ExplainArgs {
    /// Kind of the object
    #[arg(value_enum, value_name = "KIND")]
    pub kind: Explained,
    /// Name of the object
    #[arg(value_name = "NAME")]
    pub name: String,
    /// Namespace of the pod
    #[arg(short, long, default_value = "default", value_name = "NAME")]
    pub namespace: String,
    /// Where the objects come from; without files, the cluster of the current kubeconfig.
    #[command(flatten)]
    pub source: SourceArgs,
}

/// Kinds that can be explained.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Explained {
    /// Where it runs, where it would run, or why it is pending.
    Pod,
    /// Why it stays, or why it would be removed.
    Node,
    /// As for its Node.
    #[value(name = "nodeclaim")]
    NodeClaim,
    /// Its usage and limits, its launches, and the pods that it excludes.
    #[value(name = "nodepool")]
    NodePool,
}
