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
    /// Roll back to this Helm revision; default: the previous one, or, after an unfinished upgrade,
    /// the one from which it started
    #[arg(long, value_name = "N")]
    pub to_revision: Option<u32>,
    /// How it is done.
    #[command(flatten)]
    pub how: MoveArgs,
}
