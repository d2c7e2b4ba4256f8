//! `tenon iam`

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use super::settings::SettingArgs;

/// `tenon iam`
#[derive(Debug, Args)]
pub struct IamArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: IamCommand,
}

/// The subcommands of `tenon iam`.
#[derive(Debug, Subcommand)]
pub enum IamCommand {
    /// Print the policies and trust policies that Tenon needs
    ///
    /// With --account-id nothing is called.
    Print(PrintArgs),
    /// Print the policy that whoever runs `tenon` needs
    Caller(CallerArgs),
    /// Compare what is attached to the roles with what is needed, and simulate it
    Verify(VerifyArgs),
}

/// `tenon iam print`
#[derive(Debug, Args)]
pub struct PrintArgs {
    /// What is asked for.
    #[command(flatten)]
    pub settings: SettingArgs,
    /// Whose permissions: as Tenon grants them, or exactly as Karpenter v1.14.1's template does
    #[arg(long, value_enum, default_value_t, value_name = "LAYOUT")]
    pub layout: Layout,
    /// Which instance profiles the operator may write
    #[arg(long, value_enum, value_name = "WHICH")]
    pub instance_profiles: Option<Profiles>,
    /// ARN of a KMS key that encrypts node volumes (may be repeated)
    #[arg(long = "volume-key", value_name = "ARN")]
    pub volume_keys: Vec<String>,
    /// ARN of the KMS key that encrypts the interruption queue
    #[arg(long, value_name = "ARN")]
    pub queue_key: Option<String>,
    /// Leave out the permission to read zonal shifts
    #[arg(long)]
    pub no_zonal_shift: bool,
    /// The cluster's OIDC issuer: also print the trust policy for IRSA
    #[arg(long, value_name = "URL")]
    pub oidc_issuer: Option<String>,
    /// Cut the operator's policies into pieces that IAM stores
    #[arg(long, value_enum, value_name = "FORM")]
    pub split: Option<Form>,
    /// Write one file per document into this directory instead of printing
    #[arg(long, value_name = "DIR")]
    pub directory: Option<PathBuf>,
}

/// Whose permissions are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum Layout {
    /// As `tenon install` grants them.
    #[default]
    Tenon,
    /// As Karpenter v1.14.1's template does.
    Upstream,
}

/// Which instance profiles the operator may write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Profiles {
    /// Those under the cluster's path.
    OfCluster,
    /// Any with the cluster's tags.
    Tagged,
    /// None: somebody else makes them.
    Static,
}

/// How policies are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Form {
    /// As managed policies of at most 6,144 characters each.
    Managed,
    /// As inline policies of at most 10,240 characters together.
    Inline,
}

/// `tenon iam caller`
#[derive(Debug, Args)]
pub struct CallerArgs {
    /// What is asked for.
    #[command(flatten)]
    pub settings: SettingArgs,
    /// What the caller is going to run
    #[arg(long = "for", value_enum, default_value_t, value_name = "WHAT")]
    pub purpose: For,
}

/// What the caller is going to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum For {
    /// `install`, for what is left to do right now.
    #[default]
    Plan,
    /// `preflight`, `plan`, `status` and `doctor`.
    Look,
    /// `install` and `upgrade`, whatever is there.
    Install,
    /// `uninstall`.
    Uninstall,
}

/// `tenon iam verify`
#[derive(Debug, Args)]
pub struct VerifyArgs {
    /// What is asked for.
    #[command(flatten)]
    pub settings: SettingArgs,
    /// Only compare the documents, and ask IAM for no simulation
    #[arg(long)]
    pub no_simulation: bool,
}
