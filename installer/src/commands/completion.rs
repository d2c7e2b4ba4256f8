//! `tenon completion`: what shells need to complete command lines.

use clap::CommandFactory;

use crate::cli::Cli;
use crate::cli::completion::CompletionArgs;
use crate::printer::Printer;

/// Prints the script.
pub(crate) fn run(args: &CompletionArgs, printer: Printer) -> u8 {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "tenon", &mut script);
    printer.raw(&String::from_utf8_lossy(&script));
    0
}
