//! `tenon install`

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::duration::parse_duration;
use super::preflight::CheckArgs;
use super::settings::SettingArgs;

/// `tenon install`
#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag that is given or not")]
pub struct InstallArgs {
    /// Plan saved by `tenon plan --out`: it is applied exactly, or not at all
    #[arg(value_name = "PLAN", conflicts_with = "file")]
    pub plan: Option<PathBuf>,
    /// What is asked for.
    #[command(flatten)]
    pub settings: SettingArgs,
    /// Don't ask for confirmation
    #[arg(short, long, env = "TENON_YES", hide_env_values = true, value_parser = clap::builder::FalseyValueParser::new(), default_value = "", num_args = 0, default_missing_value = "true")]
    pub yes: bool,
    /// Which preflight checks are made.
    #[command(flatten)]
    pub checks: CheckArgs,
    /// Show the plan and change nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Don't wait until the operator and the NodeClasses are ready
    #[arg(long)]
    pub no_wait: bool,
    /// Test the installation with one small node: launch it, wait until it joins, and remove it
    /// through the interruption queue
    #[arg(long, conflicts_with = "no_wait")]
    pub canary: bool,
    /// Give up waiting after this time, such as `90s`, `20m`
    #[arg(long, env = "TENON_TIMEOUT", hide_env_values = true, value_parser = parse_duration, default_value = "20m", value_name = "TIME")]
    pub timeout: Duration,
    /// Maximum number of concurrent steps
    #[arg(long, default_value_t = 6, value_parser = clap::value_parser!(u8).range(1..=32), value_name = "N")]
    pub parallel: u8,
}
