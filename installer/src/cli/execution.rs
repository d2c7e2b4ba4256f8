//! What the commands that carry a plan out have in common.

use clap::Args;

use super::preflight::CheckArgs;

/// How a plan is carried out.
#[derive(Debug, Clone, Args)]
pub struct ExecutionArgs {
    /// Don't ask for confirmation
    #[arg(short, long, env = "TENON_YES", hide_env_values = true, value_parser = clap::builder::FalseyValueParser::new(), default_value = "", num_args = 0, default_missing_value = "true")]
    pub yes: bool,
    /// Which preflight checks are made.
    #[command(flatten)]
    pub checks: CheckArgs,
    /// Show the plan and change nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Maximum number of concurrent steps
    #[arg(long, default_value_t = 6, value_parser = clap::value_parser!(u8).range(1..=32), value_name = "N")]
    pub parallel: u8,
}

impl ExecutionArgs {
    /// Whether the plan is carried out without a question: then it can be made under the lock.
    pub fn is_unattended(&self) -> bool {
        self.yes && !self.dry_run
    }
}
