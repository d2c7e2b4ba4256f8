//! `tenon freeze` and `tenon unfreeze`

use clap::Args;

use super::settings::SettingArgs;

/// `tenon freeze`, `tenon unfreeze`
#[derive(Debug, Args)]
pub struct FreezeArgs {
    /// What was asked for; default: what the installation recorded.
    #[command(flatten)]
    pub settings: SettingArgs,
}
