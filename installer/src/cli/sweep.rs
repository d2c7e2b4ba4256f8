//! `tenon sweep`

use std::time::Duration;

use clap::Args;

use super::duration::parse_duration;
use super::settings::InstallationArgs;

/// `tenon sweep`
#[derive(Debug, Args)]
pub struct SweepArgs {
    /// Which installation.
    #[command(flatten)]
    pub installation: InstallationArgs,
    /// Remove without confirmation; without this flag and without a terminal, nothing is removed
    #[arg(short, long, env = "TENON_YES", hide_env_values = true, value_parser = clap::builder::FalseyValueParser::new(), default_value = "", num_args = 0, default_missing_value = "true")]
    pub yes: bool,
    /// Refuse to terminate more instances than this number
    #[arg(long, default_value_t = 500, value_name = "N")]
    pub max_terminate: usize,
    /// Time limit for draining a node before it is terminated
    #[arg(long, value_parser = parse_duration, default_value = "5m", value_name = "TIME")]
    pub drain_timeout: Duration,
}
