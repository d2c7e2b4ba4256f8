//! `tenon freeze` and `tenon unfreeze`

use clap::Args;

use super::settings::InstallationArgs;

/// `tenon freeze`, `tenon unfreeze`
#[derive(Debug, Args)]
pub struct FreezeArgs {
    /// Which installation.
    #[command(flatten)]
    pub installation: InstallationArgs,
}
