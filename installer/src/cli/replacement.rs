//! What `upgrade`, `rollback` and `adopt` have in common: how the operator is replaced.

use std::time::Duration;

use clap::Args;

use super::duration::parse_duration;
use super::preflight::CheckArgs;

/// How the operator is replaced.
#[derive(Debug, Clone, Args)]
pub struct ReplacementArgs {
    /// Don't ask for confirmation
    #[arg(short, long, env = "TENON_YES", hide_env_values = true, value_parser = clap::builder::FalseyValueParser::new(), default_value = "", num_args = 0, default_missing_value = "true")]
    pub yes: bool,
    /// Which preflight checks are made.
    #[command(flatten)]
    pub checks: CheckArgs,
    /// Show differences and the plan, without changing anything
    #[arg(long)]
    pub dry_run: bool,
    /// Time limit for each wait: for the canary, for the pods, for the NodeClasses
    #[arg(long, env = "TENON_TIMEOUT", hide_env_values = true, value_parser = parse_duration, default_value = "10m", value_name = "TIME")]
    pub timeout: Duration,
    /// Maximum number of concurrent steps
    #[arg(long, default_value_t = 6, value_parser = clap::value_parser!(u8).range(1..=32), value_name = "N")]
    pub parallel: u8,
}
