//! `tenon rollback`

use clap::Args;

use super::replacement::ReplacementArgs;
use super::settings::InstallationArgs;

/// `tenon rollback`
#[derive(Debug, Args)]
pub struct RollbackArgs {
    /// Which installation.
    #[command(flatten)]
    pub installation: InstallationArgs,
    /// Roll back to this Helm revision; default: the previous one, or, after an unfinished upgrade,
    /// the one from which it started
    #[arg(long, value_name = "N")]
    pub to_revision: Option<u32>,
    /// How it is done.
    #[command(flatten)]
    pub how: ReplacementArgs,
}
