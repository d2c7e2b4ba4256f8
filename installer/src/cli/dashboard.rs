//! `tenon dashboard`

use clap::Args;

use super::decisions::ReachArgs;
use super::simulate::SourceArgs;

/// `tenon dashboard`
#[derive(Debug, Args)]
pub struct DashboardArgs {
    /// Port on 127.0.0.1; 0 is any that is free
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    pub port: u16,
    /// How the operator is reached.
    #[command(flatten)]
    pub reach: ReachArgs,
    /// Where the objects come from; without files, the cluster of the current kubeconfig.
    #[command(flatten)]
    pub source: SourceArgs,
}
