//! `tenon migrate`

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};

use super::duration::parse_duration;
use super::settings::InstallationArgs;

/// `tenon migrate`
#[derive(Debug, Args)]
pub struct MigrateArgs {
    /// From what.
    #[command(subcommand)]
    pub from: MigrateFrom,
}

/// What is replaced.
#[derive(Debug, Subcommand)]
pub enum MigrateFrom {
    /// Move the nodes of Cluster Autoscaler's groups to Tenon
    ///
    /// Finds the groups that Cluster Autoscaler scales, writes a NodePool and an EC2NodeClass for
    /// each, and simulates where their pods would go. Then it stops Cluster Autoscaler, creates the
    /// NodePools, and empties one group after the other as PodDisruptionBudgets allow. Run it again
    /// to continue after an interruption.
    Cas(CasArgs),
    /// Move interruption handling from AWS Node Termination Handler to Tenon
    ///
    /// Checks that Tenon handles every event that Node Termination Handler does, stops its pods,
    /// moves the messages in its queue to Tenon's queue, and removes the lifecycle hooks, rules and
    /// queue that were only its own.
    Nth(NthArgs),
}

/// `tenon migrate cas`
#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag that is given or not")]
pub struct CasArgs {
    /// Which installation.
    #[command(flatten)]
    pub installation: InstallationArgs,
    /// Don't ask for confirmation
    #[arg(short, long, env = "TENON_YES", hide_env_values = true, value_parser = clap::builder::FalseyValueParser::new(), default_value = "", num_args = 0, default_missing_value = "true")]
    pub yes: bool,
    /// Show the plan and change nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Print the NodePools and EC2NodeClasses for the groups, and change nothing
    #[arg(long, conflicts_with_all = ["abort", "node_pools", "dry_run"])]
    pub propose: bool,
    /// Start Cluster Autoscaler again, with the sizes that its groups had
    #[arg(long)]
    pub abort: bool,
    /// Only this group, by the name of the node group or Auto Scaling group; may be repeated
    #[arg(long = "group", value_name = "NAME", conflicts_with = "abort")]
    pub groups: Vec<String>,
    /// Use the NodePools and EC2NodeClasses of this file instead of the proposed ones
    #[arg(long, value_name = "FILE", conflicts_with = "abort")]
    pub node_pools: Option<PathBuf>,
    /// Continue even if pods would stay pending
    #[arg(long, conflicts_with = "abort")]
    pub allow_pending: bool,
    /// Also evict pods that are annotated not to be evicted, and pods without a controller, which
    /// nothing starts again; by default, their nodes stay
    #[arg(long, conflicts_with = "abort")]
    pub force: bool,
    /// Ask before each further group; stop there if there is no terminal
    #[arg(long, conflicts_with = "abort")]
    pub pause_between: bool,
    /// How many nodes to drain at once
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=50), value_name = "N")]
    pub parallel: u8,
    /// Time limit for one pod to leave its node
    #[arg(long, value_parser = parse_duration, default_value = "5m", value_name = "TIME")]
    pub pod_timeout: Duration,
    /// Time limit for draining one node, and for its pods to be ready elsewhere
    #[arg(long, value_parser = parse_duration, default_value = "15m", value_name = "TIME")]
    pub node_timeout: Duration,
    /// Time limit for each other wait
    #[arg(long, env = "TENON_TIMEOUT", hide_env_values = true, value_parser = parse_duration, default_value = "10m", value_name = "TIME")]
    pub timeout: Duration,
}

/// `tenon migrate nth`
#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag that is given or not")]
pub struct NthArgs {
    /// Which installation.
    #[command(flatten)]
    pub installation: InstallationArgs,
    /// Don't ask for confirmation
    #[arg(short, long, env = "TENON_YES", hide_env_values = true, value_parser = clap::builder::FalseyValueParser::new(), default_value = "", num_args = 0, default_missing_value = "true")]
    pub yes: bool,
    /// Show the plan and change nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Start Node Termination Handler again; possible as long as its queue exists
    #[arg(long)]
    pub undo: bool,
    /// Keep its lifecycle hooks, rules and queue
    #[arg(long, conflicts_with = "undo")]
    pub keep_aws: bool,
    /// Continue even if nodes that Tenon does not manage lose their interruption handling
    #[arg(long, conflicts_with = "undo")]
    pub allow_unhandled_nodes: bool,
    /// Time limit for each wait: for its pods to end, and for its queue to be empty
    #[arg(long, env = "TENON_TIMEOUT", hide_env_values = true, value_parser = parse_duration, default_value = "10m", value_name = "TIME")]
    pub timeout: Duration,
}
