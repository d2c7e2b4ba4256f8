//! `tenon iam`

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use super::settings::{AwsArgs, SettingArgs};

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
    /// With --account-id, no AWS call is made.
    Print(PrintArgs),
    /// Print the policy that the caller of `tenon` needs
    Caller(CallerArgs),
    /// Compare the policies of the operator's role with the required permissions, and simulate them
    Verify(VerifyArgs),
}

/// `tenon iam print`
#[derive(Debug, Args)]
pub struct PrintArgs {
    /// What is asked for.
    #[command(flatten)]
    pub settings: AwsArgs,
    /// Tenon's permissions, or exactly those of Karpenter v1.14.1's template
    #[arg(long, value_enum, default_value_t, value_name = "LAYOUT")]
    pub layout: Layout,
    /// Instance profiles that the operator may write
    #[arg(long, value_enum, value_name = "WHICH")]
    pub instance_profiles: Option<Profiles>,
    /// ARN of a KMS key that encrypts node volumes (may be repeated)
    #[arg(long = "volume-key", value_name = "ARN")]
    pub volume_keys: Vec<String>,
    /// ARN of the KMS key that encrypts the interruption queue
    #[arg(long, value_name = "ARN")]
    pub queue_key: Option<String>,
    /// Omit the permission to read zonal shifts
    #[arg(long)]
    pub no_zonal_shift: bool,
    /// OIDC issuer of the cluster: also print the trust policy for IRSA
    #[arg(long, value_name = "URL")]
    pub oidc_issuer: Option<String>,
    /// Split the operator's policies to fit IAM's size limits
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
    /// As Karpenter v1.14.1's template grants them.
    Upstream,
}

/// Which instance profiles the operator may write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Profiles {
    /// Those under the cluster's path.
    OfCluster,
    /// Any with the cluster's tags.
    Tagged,
    /// None: they are created by other means.
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
    /// Commands that the caller is going to run
    #[arg(long = "for", value_enum, default_value_t, value_name = "WHAT")]
    pub purpose: For,
}

/// What the caller is going to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum For {
    /// `install`, limited to the steps that are currently necessary.
    #[default]
    Plan,
    /// `preflight`, `plan`, `status` and `doctor`.
    Read,
    /// `install` and `upgrade`, from any state.
    Install,
    /// `uninstall`.
    Uninstall,
    /// `migrate cas`.
    MigrateCas,
    /// `migrate nth`.
    MigrateNth,
}

/// `tenon iam verify`
#[derive(Debug, Args)]
pub struct VerifyArgs {
    /// What is asked for.
    #[command(flatten)]
    pub settings: AwsArgs,
    /// Only compare the documents, without a simulation by IAM
    #[arg(long)]
    pub no_simulation: bool,
}
