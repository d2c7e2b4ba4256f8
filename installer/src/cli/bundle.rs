//! `tenon bundle`

use std::path::PathBuf;

use clap::Args;

use super::settings::InstallationArgs;

/// `tenon bundle`
#[derive(Debug, Args)]
pub struct BundleArgs {
    /// Which installation.
    #[command(flatten)]
    pub installation: InstallationArgs,
    /// Directory to create; it must not exist
    #[arg(long, default_value = "tenon-bundle", value_name = "DIR")]
    pub directory: PathBuf,
    /// Keep account ids instead of replacing them
    #[arg(long)]
    pub keep_account_ids: bool,
}
