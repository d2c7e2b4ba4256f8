//! `tenon uninstall`

use std::time::Duration;

use clap::Args;

use super::duration::parse_duration;
use super::settings::SettingArgs;

/// `tenon uninstall`
#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag that is given or not")]
pub struct UninstallArgs {
    /// What was asked for; default: what the installation recorded.
    #[command(flatten)]
    pub settings: SettingArgs,
    /// Don't ask for confirmation
    #[arg(short, long, env = "TENON_YES", hide_env_values = true, value_parser = clap::builder::FalseyValueParser::new(), default_value = "", num_args = 0, default_missing_value = "true")]
    pub yes: bool,
    /// Show what would be removed and change nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Keep the nodes, and what they need to run: operator, NodePools and queue go, instances stay
    #[arg(long, conflicts_with = "aws_only")]
    pub keep_nodes: bool,
    /// Remove nodes, operator and CRDs, and leave what the installer made in AWS
    #[arg(long, conflicts_with = "aws_only")]
    pub k8s_only: bool,
    /// Remove what the installer made in AWS, after somebody else (GitOps) has removed the operator
    #[arg(long)]
    pub aws_only: bool,
    /// Keep the CRDs
    #[arg(long)]
    pub keep_crds: bool,
    /// Bring a missing operator back first, so that it drains its nodes and takes its finalizers off itself
    #[arg(long, conflicts_with_all = ["aws_only", "keep_nodes"])]
    pub repair_first: bool,
    /// Go on although the nodes that stay have no room for all pods that have to move: those will wait
    #[arg(long, conflicts_with_all = ["aws_only", "keep_nodes"])]
    pub force_capacity: bool,
    /// Let go of NodeClaims whose instances can't be proven gone: their ids are listed, and the exit code is 4
    #[arg(long, conflicts_with_all = ["aws_only", "keep_nodes"])]
    pub abandon_instances: bool,
    /// Drain the nodes of so many NodePools at once, the others standing still meanwhile; default: of all
    #[arg(long, value_parser = clap::value_parser!(u8).range(1..), value_name = "N", conflicts_with_all = ["aws_only", "keep_nodes"])]
    pub parallel: Option<u8>,
    /// How long disruption budgets may hold pods up; default: as long as they want while the operator drains, 5m without it
    #[arg(long, value_parser = parse_duration, value_name = "TIME")]
    pub drain_timeout: Option<Duration>,
    /// Give up waiting for any one thing after this time
    #[arg(long, env = "TENON_TIMEOUT", hide_env_values = true, value_parser = parse_duration, default_value = "20m", value_name = "TIME")]
    pub timeout: Duration,
}
