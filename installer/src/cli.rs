//! The command line: what can be typed, one file per command. Nothing is done here: [`overlay`]
//! lays flags over settings, the commands read the rest.

pub mod adopt;
pub mod bundle;
pub mod completion;
pub mod config;
pub mod cost;
pub mod dashboard;
pub mod decisions;
pub mod doctor;
mod duration;
pub mod execution;
pub mod export;
pub mod freeze;
pub mod global;
pub mod iam;
pub mod install;
pub mod kops;
pub mod migrate;
pub mod overlay;
pub mod plan;
pub mod preflight;
pub mod replacement;
pub mod rollback;
pub mod settings;
pub mod simulate;
pub mod status;
pub mod sweep;
pub mod top;
pub mod uninstall;
pub mod upgrade;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use self::adopt::AdoptArgs;
use self::bundle::BundleArgs;
use self::completion::CompletionArgs;
use self::config::ConfigArgs;
use self::cost::CostArgs;
use self::dashboard::DashboardArgs;
use self::decisions::DecisionsArgs;
use self::doctor::DoctorArgs;
use self::export::ExportArgs;
use self::freeze::FreezeArgs;
pub use self::global::GlobalArgs;
use self::iam::IamArgs;
use self::install::InstallArgs;
use self::kops::KopsArgs;
use self::migrate::MigrateArgs;
use self::plan::{DiffArgs, PlanArgs};
use self::preflight::PreflightArgs;
use self::rollback::RollbackArgs;
pub use self::settings::SettingArgs;
use self::simulate::{ExplainArgs, SimulateArgs};
use self::status::StatusArgs;
use self::sweep::SweepArgs;
use self::top::TopArgs;
use self::uninstall::UninstallArgs;
use self::upgrade::UpgradeArgs;
use crate::exit_codes::EXIT_USAGE;

/// Install, check and remove Tenon, a node autoscaler for Kubernetes on AWS.
#[derive(Debug, Parser)]
#[command(
    name = "tenon",
    version,
    max_term_width = 100,
    propagate_version = false,
    disable_help_subcommand = true
)]
pub struct Cli {
    /// What every command understands.
    #[command(flatten)]
    pub global: GlobalArgs,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What `tenon` can do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Install Tenon, or update an installation to match its settings
    ///
    /// Without a settings file, on a terminal, a wizard prompts for the values that it cannot
    /// detect.
    #[command(visible_alias = "apply")]
    Install(InstallArgs),
    /// Show what `install` would change, without changing anything
    Plan(PlanArgs),
    /// Show how the installation differs from the settings; exit with code 5 if it does
    Diff(DiffArgs),
    /// Pause all NodePools: no launches, no voluntary disruption
    Freeze(FreezeArgs),
    /// Resume all NodePools that `freeze` paused
    Unfreeze(FreezeArgs),
    /// Check whether the cluster and the account meet Tenon's requirements, without changing
    /// anything
    Preflight(PreflightArgs),
    /// Show the installation and its health
    Status(StatusArgs),
    /// Watch nodes, prices, pending pods, disruptions and decisions on the terminal
    ///
    /// Connects with the kubeconfig alone. Needs AWS credentials and a region only for the prices
    /// of spot instances.
    Top(TopArgs),
    /// Show what the cluster costs, what of that is idle, and what consolidation saved
    Cost(CostArgs),
    /// Show what the operator decided, why, and the results
    Decisions(DecisionsArgs),
    /// Show nodes, decisions and what-ifs in a browser on this machine, without changing anything
    ///
    /// Prints a URL with a token and serves it on 127.0.0.1 until it is interrupted.
    Dashboard(DashboardArgs),
    /// Diagnose problems and their causes
    Doctor(DoctorArgs),
    /// Upgrade the operator without replacing nodes
    Upgrade(UpgradeArgs),
    /// Roll back to the previous version
    Rollback(RollbackArgs),
    /// Take over a cluster from Karpenter without replacing nodes, or return it
    Adopt(AdoptArgs),
    /// Move a cluster from another tool to Tenon
    Migrate(MigrateArgs),
    /// Run a kOps cluster's InstanceGroups as NodePools
    Kops(KopsArgs),
    /// Remove nodes, the operator and everything that the installer created
    Uninstall(UninstallArgs),
    /// Find orphaned resources of an operator or an installation in AWS; remove them with --yes
    ///
    /// Works without an installation, and after the cluster itself is gone.
    Sweep(SweepArgs),
    /// Show what the operator would launch, place and remove, without changing anything
    Simulate(SimulateArgs),
    /// Explain the state of a pod, node or NodePool
    Explain(ExplainArgs),
    /// Print and verify the IAM policies of the operator, the nodes and the caller
    Iam(IamArgs),
    /// Create, show, validate and explain settings files
    Config(ConfigArgs),
    /// Export the installation for another tool, such as Terraform, Flux or Helm
    Export(ExportArgs),
    /// Create a redacted support bundle
    Bundle(BundleArgs),
    /// Generate a shell completion script
    Completion(CompletionArgs),
    /// Print the version
    Version,
}

/// Prints what clap has to say (help, version or a usage error) and tells the exit code: 0 or 2.
pub fn usage_exit(error: &clap::Error) -> ExitCode {
    // Nothing better can be done when the terminal is gone.
    let _ = error.print();
    if error.use_stderr() { ExitCode::from(EXIT_USAGE) } else { ExitCode::SUCCESS }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
