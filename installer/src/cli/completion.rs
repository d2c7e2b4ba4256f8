//! `tenon completion`

use clap::Args;
use clap_complete::Shell;

/// `tenon completion`
#[derive(Debug, Args)]
pub struct CompletionArgs {
    /// Shell
    #[arg(value_enum)]
    pub shell: Shell,
}
