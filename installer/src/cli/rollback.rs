//! `tenon rollback`

use clap::Args;

use super::moving::MoveArgs;
use super::settings::SettingArgs;

/// `tenon rollback`
#[derive(Debug, Args)]
pub struct RollbackArgs {
    /// What was asked for; default: what the installation recorded.
    #[command(flatten)]
    pub settings: SettingArgs,
    /// Go back to this Helm revision; default: the one before, or, after an upgrade that did not end, the one that it began from
    #[arg(long, value_name = "N")]
    pub to_revision: Option<u32>,
    /// How it is done.
    #[command(flatten)]
    pub how: MoveArgs,
}
