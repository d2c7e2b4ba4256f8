//! `tenon doctor`

use std::path::PathBuf;

use clap::Args;

use super::preflight::CheckArgs;
use super::settings::InstallationArgs;

/// `tenon doctor`
#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// Which installation.
    #[command(flatten)]
    pub installation: InstallationArgs,
    /// Which checks.
    #[command(flatten)]
    pub checks: CheckArgs,
    /// Treat warnings as errors
    #[arg(long)]
    pub strict: bool,
    /// Also show passed checks
    #[arg(long)]
    pub all: bool,
    /// Connect as the ServiceAccount of the pod in which tenon runs; without AWS credentials, the
    /// checks that need them are skipped
    #[arg(long, conflicts_with_all = ["from", "kubeconfig", "context"])]
    pub service_account: bool,
    /// Also check whether AWS's bill can be split by the tags of your EC2NodeClasses: the output of
    /// `aws ce list-cost-allocation-tags --status Active`
    #[arg(long, value_name = "FILE")]
    pub cost_allocation_tags: Option<PathBuf>,
    /// Evaluate the file observed.json of a support bundle instead of inspecting the cluster
    #[arg(long, value_name = "FILE")]
    pub from: Option<PathBuf>,
}
