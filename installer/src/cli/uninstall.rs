//! `tenon uninstall`

use std::time::Duration;

use clap::Args;

use super::duration::parse_duration;
use super::settings::InstallationArgs;

/// `tenon uninstall`
#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag that is given or not")]
pub struct UninstallArgs {
    /// Which installation.
    #[command(flatten)]
    pub installation: InstallationArgs,
    /// Don't ask for confirmation
    #[arg(short, long, env = "TENON_YES", hide_env_values = true, value_parser = clap::builder::FalseyValueParser::new(), default_value = "", num_args = 0, default_missing_value = "true")]
    pub yes: bool,
    /// Show what would be removed, without changing anything
    #[arg(long)]
    pub dry_run: bool,
    /// Keep the nodes and the resources that they need; the operator, NodePools and queue are
    /// deleted
    #[arg(long, conflicts_with = "aws_only")]
    pub keep_nodes: bool,
    /// Remove nodes, operator and CRDs, but keep the AWS resources that the installer created
    #[arg(long, conflicts_with = "aws_only")]
    pub k8s_only: bool,
    /// Remove the AWS resources that the installer created, after GitOps has removed the operator
    #[arg(long)]
    pub aws_only: bool,
    /// Keep the CRDs
    #[arg(long)]
    pub keep_crds: bool,
    /// Restore a missing operator first, so that it drains its nodes and removes its finalizers
    /// itself
    #[arg(long, conflicts_with_all = ["aws_only", "keep_nodes"])]
    pub repair_first: bool,
    /// Continue even if the remaining nodes have no room for all pods that have to move; those stay
    /// pending
    #[arg(long, conflicts_with_all = ["aws_only", "keep_nodes"])]
    pub force_capacity: bool,
    /// Release NodeClaims whose instances can't be proven terminated; the instance ids are listed,
    /// and the exit code is 4
    #[arg(long, conflicts_with_all = ["aws_only", "keep_nodes"])]
    pub abandon_instances: bool,
    /// Drain the nodes of this many NodePools at a time and pause the others meanwhile; default:
    /// all at once
    #[arg(long, value_parser = clap::value_parser!(u8).range(1..), value_name = "N", conflicts_with_all = ["aws_only", "keep_nodes"])]
    pub parallel: Option<u8>,
    /// Time limit for PodDisruptionBudgets to block a drain; default: none while the operator
    /// drains, 5m without it
    #[arg(long, value_parser = parse_duration, value_name = "TIME")]
    pub drain_timeout: Option<Duration>,
    /// Time limit for each wait
    #[arg(long, env = "TENON_TIMEOUT", hide_env_values = true, value_parser = parse_duration, default_value = "20m", value_name = "TIME")]
    pub timeout: Duration,
}
