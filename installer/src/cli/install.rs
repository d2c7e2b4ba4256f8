//! `tenon install`

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::duration::parse_duration;
use super::execution::ExecutionArgs;
use super::settings::SettingArgs;

/// `tenon install`
#[derive(Debug, Args)]
pub struct InstallArgs {
    /// Plan saved by `tenon plan --out`: it is applied exactly, or not at all
    #[arg(value_name = "PLAN", conflicts_with = "file")]
    pub plan: Option<PathBuf>,
    /// What is asked for.
    #[command(flatten)]
    pub settings: SettingArgs,
    /// How the plan is carried out.
    #[command(flatten)]
    pub execution: ExecutionArgs,
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
}
