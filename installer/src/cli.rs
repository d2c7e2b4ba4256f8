//! The command line: what can be typed, one file per command. Nothing is done here: [`overlay`] lays flags over settings, the commands read the rest.

pub mod adopt;
pub mod bundle;
pub mod completion;
pub mod config;
pub mod doctor;
mod duration;
pub mod export;
pub mod freeze;
pub mod global;
pub mod iam;
pub mod install;
pub mod moving;
pub mod overlay;
pub mod plan;
pub mod preflight;
pub mod rollback;
pub mod settings;
pub mod simulate;
pub mod status;
pub mod sweep;
pub mod uninstall;
pub mod upgrade;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use self::adopt::AdoptArgs;
use self::bundle::BundleArgs;
use self::completion::CompletionArgs;
use self::config::ConfigArgs;
use self::doctor::DoctorArgs;
use self::export::ExportArgs;
use self::freeze::FreezeArgs;
pub use self::global::GlobalArgs;
use self::iam::IamArgs;
use self::install::InstallArgs;
use self::plan::{DiffArgs, PlanArgs};
use self::preflight::PreflightArgs;
use self::rollback::RollbackArgs;
pub use self::settings::SettingArgs;
use self::simulate::{ExplainArgs, SimulateArgs};
use self::status::StatusArgs;
use self::sweep::SweepArgs;
use self::uninstall::UninstallArgs;
use self::upgrade::UpgradeArgs;
use crate::exit_codes::EXIT_USAGE;

/// Installs, checks and removes Tenon, a node autoscaler for Kubernetes on AWS.
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

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Install Tenon, or bring an installation to what the settings say
    ///
    /// Without a settings file, on a terminal, a wizard asks for what it cannot find out.
    #[command(visible_alias = "apply")]
    Install(InstallArgs),
    /// Show what `install` would do, and change nothing
    Plan(PlanArgs),
    /// Show what differs from the settings, and end with code 5 if anything does
    Diff(DiffArgs),
    /// Let all NodePools stand still: no launches, no voluntary disruption
    Freeze(FreezeArgs),
    /// Let frozen NodePools go on
    Unfreeze(FreezeArgs),
    /// Check whether cluster and account are fit for Tenon, and change nothing
    Preflight(PreflightArgs),
    /// Show what is installed and whether it works
    Status(StatusArgs),
    /// Find out what is wrong, and why
    Doctor(DoctorArgs),
    /// Bring a newer version of the operator, without replacing a node
    Upgrade(UpgradeArgs),
    /// Go back to the version before
    Rollback(RollbackArgs),
    /// Take a cluster over from Karpenter without replacing a node, or give it back
    Adopt(AdoptArgs),
    /// Remove nodes, operator and everything that the installer made
    Uninstall(UninstallArgs),
    /// Find what an operator or an installation left behind in AWS, and remove it with --yes
    ///
    /// Works without an installation, and after the cluster itself is gone.
    Sweep(SweepArgs),
    /// Show what the operator would launch, place and remove, and change nothing
    Simulate(SimulateArgs),
    /// Tell why a pod, node or NodePool is as it is
    Explain(ExplainArgs),
    /// Print and verify IAM policies: of the operator, of nodes, of the caller
    Iam(IamArgs),
    /// Begin, check and explain settings files
    Config(ConfigArgs),
    /// Print what would be made, for another tool to make
    Export(ExportArgs),
    /// Write what somebody else needs to see to help
    Bundle(BundleArgs),
    /// Print what a shell needs to complete command lines
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
