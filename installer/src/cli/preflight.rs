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
    /// Treat warnings as errors
    #[arg(long)]
    pub strict: bool,
    /// Also show passed checks
    #[arg(long)]
    pub all: bool,
}

/// Which checks are made.
#[derive(Debug, Clone, Default, Args)]
pub struct CheckArgs {
    /// Skip these checks, by id
    #[arg(long, value_delimiter = ',', value_name = "ID,…")]
    pub skip: Vec<String>,
    /// Also check connectivity from inside the cluster, with a temporary Job
    #[arg(long)]
    pub in_cluster: bool,
    /// By which registries are asked.
    #[command(flatten)]
    pub proxies: ProxyArgs,
}

/// The proxies of this program's environment.
#[derive(Debug, Clone, Default, Args)]
pub struct ProxyArgs {
    /// The proxy that this program was given
    #[arg(long, env = "HTTPS_PROXY", hide = true)]
    pub https_proxy: Option<String>,
    /// What goes past the proxy
    #[arg(long, env = "NO_PROXY", hide = true)]
    pub no_proxy: Option<String>,
}

impl ProxyArgs {
    /// The proxy for HTTPS, and what goes past it.
    pub fn both(&self) -> (Option<String>, Option<String>) {
        (self.https_proxy.clone(), self.no_proxy.clone())
    }
}
