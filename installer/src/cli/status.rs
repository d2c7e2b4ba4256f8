//! `tenon status`

use std::time::Duration;

use clap::Args;

use super::duration::parse_duration;
use super::settings::InstallationArgs;

/// `tenon status`
#[derive(Debug, Args)]
pub struct StatusArgs {
    /// Which installation.
    #[command(flatten)]
    pub installation: InstallationArgs,
    /// Wait until the operator, the EC2NodeClasses and the NodePools are ready
    #[arg(long)]
    pub wait: bool,
    /// Show the status again after every change (on a terminal, in place) until interrupted
    #[arg(long, conflicts_with_all = ["wait", "exit_code"])]
    pub watch: bool,
    /// Give up waiting after this time
    #[arg(long, env = "TENON_TIMEOUT", hide_env_values = true, value_parser = parse_duration, default_value = "20m", value_name = "TIME")]
    pub timeout: Duration,
    /// Exit with code 5 if something differs from the settings, and with 1 if something does not
    /// work
    #[arg(long)]
    pub exit_code: bool,
    /// The terminal's type: on one that moves no cursor, nothing is redrawn in place
    #[arg(long, env = "TERM", hide = true)]
    pub term: Option<String>,
}
