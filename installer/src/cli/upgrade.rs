//! `tenon upgrade`

use clap::Args;

use super::replacement::ReplacementArgs;
use super::settings::SettingArgs;

/// `tenon upgrade`
#[derive(Debug, Args)]
pub struct UpgradeArgs {
    /// What is asked for; default: what the installation recorded.
    #[command(flatten)]
    pub settings: SettingArgs,
    /// The operator's version; default: that of this program
    #[arg(long, value_name = "VERSION")]
    pub to: Option<String>,
    /// How it is done.
    #[command(flatten)]
    pub how: ReplacementArgs,
}
