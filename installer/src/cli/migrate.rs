//! `tenon migrate`

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
    /// Move interruption handling from AWS Node Termination Handler to Tenon
    ///
    /// Checks that Tenon handles every event that Node Termination Handler does, stops its pods,
    /// moves the messages in its queue to Tenon's queue, and removes the lifecycle hooks, rules and
    /// queue that were only its own.
    Nth(NthArgs),
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
