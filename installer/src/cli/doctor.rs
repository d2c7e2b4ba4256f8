//! `tenon doctor`

use std::path::PathBuf;

use clap::Args;

use super::preflight::CheckArgs;
use super::settings::SettingArgs;

/// `tenon doctor`
#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// What is asked for.
    #[command(flatten)]
    pub settings: SettingArgs,
    /// Which checks.
    #[command(flatten)]
    pub checks: CheckArgs,
    /// Let warnings fail, too
    #[arg(long)]
    pub strict: bool,
    /// Also show the checks that pass
    #[arg(long)]
    pub all: bool,
    /// Judge what a support bundle holds (its file observed.json) instead of looking
    #[arg(long, value_name = "FILE")]
    pub from: Option<PathBuf>,
}
