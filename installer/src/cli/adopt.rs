//! `tenon adopt`

use clap::Args;

use super::replacement::ReplacementArgs;
use super::settings::SettingArgs;

/// `tenon adopt`
#[derive(Debug, Args)]
pub struct AdoptArgs {
    /// What is asked for beside what Karpenter's installation says.
    #[command(flatten)]
    pub settings: SettingArgs,
    /// Return the cluster to Karpenter
    #[arg(long)]
    pub undo: bool,
    /// How it is done.
    #[command(flatten)]
    pub how: ReplacementArgs,
}
