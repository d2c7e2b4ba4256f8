//! `tenon plan` and `tenon diff`

use std::path::PathBuf;

use clap::Args;

use super::settings::SettingArgs;

/// `tenon plan`
#[derive(Debug, Args)]
pub struct PlanArgs {
    /// What is asked for.
    #[command(flatten)]
    pub settings: SettingArgs,
    /// Save the plan: `tenon apply FILE` makes exactly these changes, or none if the cluster or
    /// account has changed
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
}

/// `tenon diff`
#[derive(Debug, Args)]
pub struct DiffArgs {
    /// What is asked for; default: what the installation recorded.
    #[command(flatten)]
    pub settings: SettingArgs,
}
