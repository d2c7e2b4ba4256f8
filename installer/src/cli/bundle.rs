//! `tenon bundle`

use std::path::PathBuf;

use clap::Args;

use super::settings::SettingArgs;

/// `tenon bundle`
#[derive(Debug, Args)]
pub struct BundleArgs {
    /// What is asked for.
    #[command(flatten)]
    pub settings: SettingArgs,
    /// Directory to write into; it must not be there yet
    #[arg(long, default_value = "tenon-bundle", value_name = "DIR")]
    pub directory: PathBuf,
    /// Keep account ids; without this each is replaced
    #[arg(long)]
    pub keep_account_ids: bool,
}
