//! What `upgrade`, `rollback` and `adopt` have in common: how the operator is replaced.

use std::time::Duration;

use clap::Args;

use super::duration::parse_duration;
use super::execution::ExecutionArgs;

/// How the operator is replaced.
#[derive(Debug, Clone, Args)]
pub struct ReplacementArgs {
    /// How the plan is carried out.
    #[command(flatten)]
    pub execution: ExecutionArgs,
    /// Time limit for each wait: for the canary, for the pods, for the NodeClasses
    #[arg(long, env = "TENON_TIMEOUT", hide_env_values = true, value_parser = parse_duration, default_value = "10m", value_name = "TIME")]
    pub timeout: Duration,
}
