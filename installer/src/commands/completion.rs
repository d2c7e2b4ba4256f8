//! `tenon completion`: what shells need to complete command lines.

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use crate::cli::Cli;
use crate::printer::Printer;

/// `tenon completion`
#[derive(Debug, Args)]
pub struct CompletionArgs {
    /// The shell
    #[arg(value_enum)]
    pub shell: Shell,
}

/// Prints the script.
pub fn run(args: &CompletionArgs, printer: &Printer) -> u8 {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "tenon", &mut script);
    printer.raw(&String::from_utf8_lossy(&script));
    0
}
