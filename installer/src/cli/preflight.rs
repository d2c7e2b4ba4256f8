//! `tenon preflight`, and the checks that other commands begin with.

use clap::Args;

use super::settings::SettingArgs;

/// `tenon preflight`
#[derive(Debug, Args)]
pub struct PreflightArgs {
    /// What is asked for.
    #[command(flatten)]
    pub settings: SettingArgs,
    /// Which checks, and how strictly.
    #[command(flatten)]
    pub checks: CheckArgs,
    /// Let warnings fail, too
    #[arg(long)]
    pub strict: bool,
    /// Also show the checks that pass
    #[arg(long)]
    pub all: bool,
}

/// Which checks are made.
#[derive(Debug, Clone, Default, Args)]
pub struct CheckArgs {
    /// Leave out these checks, by id
    #[arg(long, value_delimiter = ',', value_name = "ID,…")]
    pub skip: Vec<String>,
    /// Also ask from inside the cluster what the operator's pods reach, by a Job that is removed again
    #[arg(long)]
    pub in_cluster: bool,
    /// The proxy that this program was given
    #[arg(long, env = "HTTPS_PROXY", hide = true)]
    pub https_proxy: Option<String>,
    /// What goes past the proxy
    #[arg(long, env = "NO_PROXY", hide = true)]
    pub no_proxy: Option<String>,
}
