//! `tenon kops`

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};

use super::duration::parse_duration;
use super::preflight::ProxyArgs;
use super::settings::DeployArgs;

/// `tenon kops`
#[derive(Debug, Args)]
pub struct KopsArgs {
    /// What to do.
    #[command(subcommand)]
    pub what: KopsCommand,
}

/// What can be done with a kOps cluster.
#[derive(Debug, Subcommand)]
pub enum KopsCommand {
    /// Install the operator, its interruption queue, and the NodePools for the InstanceGroups
    ///
    /// kOps gives the operator its permissions in AWS, from what `tenon kops export cluster`
    /// prints. Run the command again after an upgrade of `tenon`, with other values, or after it
    /// was interrupted: what is there already is not changed.
    Install(InstallArgs),
    /// Remove the NodePools and their nodes, the operator, the CRDs, and the queue
    ///
    /// Nodes are drained as PodDisruptionBudgets allow, and nothing else is removed before their
    /// instances are terminated. The state store is not read.
    Uninstall(UninstallArgs),
    /// Print the NodePools and EC2NodeClasses for the InstanceGroups
    ///
    /// Reads InstanceGroups with `manager: Karpenter` from kOps' state store, and their images from
    /// EC2. Each field that has no equivalent is named in a comment.
    Generate(GenerateArgs),
    /// Show how the cluster differs from its InstanceGroups; exit with code 5 if it does
    Diff(DiffArgs),
    /// Apply the NodePools and EC2NodeClasses for the InstanceGroups to the cluster
    ///
    /// An operator that is given the state store (settings.kopsStateStore) follows later changes of
    /// the InstanceGroups. Otherwise, run this command after each `kops update cluster --yes`: the
    /// script of kOps for new nodes has changed then, and nodes that boot with the old one cannot
    /// join. Existing nodes are replaced as the disruption budgets of their NodePools allow. Fields
    /// that you set yourself are kept.
    Sync(SyncArgs),
    /// Print permissions and Helm values for the operator, or the IAM policies that you need
    Export(ExportArgs),
    /// Create the interruption queue of the cluster and the rules that feed it
    ///
    /// Their names are those by which `kops delete cluster` finds and deletes them.
    Queue(QueueArgs),
    /// Give kOps' own Karpenter add-on an interruption queue and further settings
    ///
    /// For clusters in which kOps installs Karpenter (`spec.karpenter.enabled`) and it stays.
    /// Creates the queue and its rules, with names by which `kops delete cluster` finds them, lets
    /// Karpenter read the queue, and sets its name. `kops update cluster` keeps these settings.
    Augment(AugmentArgs),
}

/// Which cluster.
#[derive(Debug, Args)]
pub struct StoreArgs {
    /// kOps' state store, such as s3://BUCKET or file:///PATH; by default that of ~/.kops.yaml
    #[arg(long, env = "KOPS_STATE_STORE", hide_env_values = true, value_name = "URL")]
    pub state: Option<String>,
    /// Name of the cluster in the state store; not needed if it holds one cluster
    #[arg(long, env = "KOPS_CLUSTER_NAME", hide_env_values = true, value_name = "NAME")]
    pub name: Option<String>,
}

/// Which cluster, and what is generated for it.
#[derive(Debug, Args)]
pub struct StateArgs {
    /// Which cluster.
    #[command(flatten)]
    pub store: StoreArgs,
    /// Only this InstanceGroup; may be repeated
    #[arg(long = "group", value_name = "NAME")]
    pub groups: Vec<String>,
    /// YAML documents with the kind and name of generated objects and the fields of `spec` that are
    /// to differ; the name "*" stands for all, null removes a field
    #[arg(long, value_name = "FILE")]
    pub patch: Option<PathBuf>,
}

/// Whether what is shown is done.
#[derive(Debug, Clone, Copy, Args)]
pub struct ConsentArgs {
    /// Don't ask for confirmation
    #[arg(short, long, env = "TENON_YES", hide_env_values = true, value_parser = clap::builder::FalseyValueParser::new(), default_value = "", num_args = 0, default_missing_value = "true")]
    pub yes: bool,
    /// Show the plan and change nothing
    #[arg(long)]
    pub dry_run: bool,
}

/// `tenon kops install`
#[derive(Debug, Args)]
pub struct InstallArgs {
    /// Which cluster.
    #[command(flatten)]
    pub state: StateArgs,
    /// The operator's image, and values of the chart.
    #[command(flatten)]
    pub deploy: DeployArgs,
    /// Whether it is done.
    #[command(flatten)]
    pub consent: ConsentArgs,
    /// Skip these checks, by id
    #[arg(long, value_delimiter = ',', value_name = "ID,…")]
    pub skip: Vec<String>,
    /// By which registries are asked.
    #[command(flatten)]
    pub proxies: ProxyArgs,
    /// Don't wait until the operator and the EC2NodeClasses are ready
    #[arg(long)]
    pub no_wait: bool,
    /// Test the installation with one small node: launch it, wait until it joins, and remove it
    /// through the interruption queue
    #[arg(long, conflicts_with = "no_wait")]
    pub canary: bool,
    /// Give up waiting after this time, such as `90s`, `20m`
    #[arg(long, env = "TENON_TIMEOUT", hide_env_values = true, value_parser = parse_duration, default_value = "20m", value_name = "TIME")]
    pub timeout: Duration,
}

/// `tenon kops uninstall`
#[derive(Debug, Args)]
pub struct UninstallArgs {
    /// Whether it is done.
    #[command(flatten)]
    pub consent: ConsentArgs,
    /// Continue even if the remaining nodes have no room for all pods that have to move; those stay
    /// pending
    #[arg(long)]
    pub force_capacity: bool,
    /// Time limit for each wait
    #[arg(long, env = "TENON_TIMEOUT", hide_env_values = true, value_parser = parse_duration, default_value = "20m", value_name = "TIME")]
    pub timeout: Duration,
}

/// `tenon kops generate`
#[derive(Debug, Args)]
pub struct GenerateArgs {
    /// Which cluster.
    #[command(flatten)]
    pub state: StateArgs,
}

/// `tenon kops diff`
#[derive(Debug, Args)]
pub struct DiffArgs {
    /// Which cluster.
    #[command(flatten)]
    pub state: StateArgs,
}

/// `tenon kops augment`
#[derive(Debug, Args)]
pub struct AugmentArgs {
    /// Which cluster.
    #[command(flatten)]
    pub state: StateArgs,
    /// Whether it is done.
    #[command(flatten)]
    pub consent: ConsentArgs,
    /// Remove everything that the command has created and set
    #[arg(long, conflicts_with = "patch")]
    pub remove: bool,
}

/// `tenon kops export`
#[derive(Debug, Args)]
pub struct ExportArgs {
    /// What to print
    #[arg(value_enum)]
    pub what: KopsExport,
    /// Which cluster.
    #[command(flatten)]
    pub store: StoreArgs,
}

/// What the operator needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum KopsExport {
    /// A part of the Cluster, for `kops edit cluster`: the permissions of the operator
    Cluster,
    /// Values of the chart
    Values,
    /// The IAM policy that you need to run `tenon kops`, but for `augment`
    Caller,
    /// The IAM policy that you need to run `tenon kops augment`
    AugmentCaller,
}

/// `tenon kops queue`
#[derive(Debug, Args)]
pub struct QueueArgs {
    /// Which cluster.
    #[command(flatten)]
    pub store: StoreArgs,
    /// Whether it is done.
    #[command(flatten)]
    pub consent: ConsentArgs,
    /// Remove the queue and the rules
    #[arg(long)]
    pub remove: bool,
}

/// `tenon kops sync`
#[derive(Debug, Args)]
pub struct SyncArgs {
    /// Which cluster.
    #[command(flatten)]
    pub state: StateArgs,
    /// Whether it is done.
    #[command(flatten)]
    pub consent: ConsentArgs,
    /// Also delete NodePools and EC2NodeClasses that no InstanceGroup asks for any more; their
    /// nodes are drained
    #[arg(long, conflicts_with = "groups")]
    pub prune: bool,
}
