//! Installs, checks and removes Tenon: the program `tenon`.
//!
//! [`tenon_installer_core`] goes from what was asked for to a plan and carries it out,
//! [`tenon_checks`] judges what is there, [`tenon_simulate`] plans in memory. What is about people
//! is here: what can be typed ([`cli`]), one file per command ([`commands`]), what they use
//! ([`adopt`], [`migrate`], [`uninstall`], [`upgrade`], …), and how failures read ([`errors`]).
//!
//! Invariants: a finalizer goes only after what it protects is proven gone; data is printed on
//! stdout and talk on stderr.

#![expect(
    clippy::missing_panics_doc,
    reason = "only invariants are expected, and each says why it holds"
)]

mod adopt;
mod canary;
pub mod cli;
mod commands;
mod dashboard;
pub mod errors;
mod exit_codes;
mod kops;
pub mod ledger;
mod migrate;
mod options;
mod prices;
pub mod printer;
mod prompt;
mod sweep;
mod top;
mod uninstall;
mod upgrade;
mod wizard;

use std::io::IsTerminal as _;
use std::process::ExitCode;

use tenon_installer_core::cleanup::Cleanup;

use cli::{Cli, Command};
use errors::ExpectedError;
use printer::{OutputFormat, Printer};

/// Runs one command and says how it ended (see `docs/src/reference/exit-codes.md`).
pub async fn run(cli: Cli) -> ExitCode {
    let printer = Printer::new(cli.global.output, cli.global.quiet);
    start_log(&cli);
    let cleanup = Cleanup::default();
    let result = tokio::select! {
        // In this order, so that Ctrl-C is listened for before the first question is on the screen.
        biased;
        Ok(()) = tokio::signal::ctrl_c() => Err(ExpectedError::Interrupted),
        result = dispatch(&cli, &printer, &cleanup) => result,
    };
    tokio::select! {
        () = cleanup.run() => {}
        // Whoever presses it twice does not want to wait.
        Ok(()) = tokio::signal::ctrl_c() => {}
    }
    match result {
        Ok(code) => ExitCode::from(code),
        // No question was open, and nothing is left to resume.
        Err(error @ ExpectedError::Interrupted) if runs_until_interrupted(&cli.command) => {
            ExitCode::from(error.exit_code())
        }
        Err(error) => {
            if matches!(error, ExpectedError::Interrupted) {
                prompt::give_back_terminal();
            }
            printer.error(&error.report());
            ExitCode::from(error.exit_code())
        }
    }
}

/// Whether Ctrl-C is how the command ends, so that there is nothing to say about it.
fn runs_until_interrupted(command: &Command) -> bool {
    match command {
        Command::Dashboard(_) | Command::Top(_) => true,
        Command::Status(args) => args.watch,
        Command::Cost(args) => args.watch,
        Command::Decisions(args) => args.follow,
        _ => false,
    }
}

async fn dispatch(cli: &Cli, printer: &Printer, cleanup: &Cleanup) -> Result<u8, ExpectedError> {
    match &cli.command {
        Command::Install(args) => {
            Box::pin(commands::install::run(&cli.global, args, printer, cleanup)).await
        }
        Command::Plan(args) => Box::pin(commands::plan::run(&cli.global, args, printer)).await,
        Command::Diff(args) => Box::pin(commands::diff::run(&cli.global, args, printer)).await,
        Command::Freeze(args) => {
            Box::pin(commands::freeze::run(&cli.global, args, false, printer, cleanup)).await
        }
        Command::Unfreeze(args) => {
            Box::pin(commands::freeze::run(&cli.global, args, true, printer, cleanup)).await
        }
        Command::Preflight(args) => {
            Box::pin(commands::preflight::run(&cli.global, args, printer)).await
        }
        Command::Doctor(args) => Box::pin(commands::doctor::run(&cli.global, args, printer)).await,
        Command::Iam(args) => Box::pin(commands::iam::run(&cli.global, args, printer)).await,
        Command::Status(args) => Box::pin(commands::status::run(&cli.global, args, printer)).await,
        Command::Top(args) => Box::pin(commands::top::run(&cli.global, args, printer)).await,
        Command::Cost(args) => Box::pin(commands::cost::run(&cli.global, args, *printer)).await,
        Command::Decisions(args) => {
            Box::pin(commands::decisions::run(&cli.global, args, printer)).await
        }
        Command::Dashboard(args) => {
            Box::pin(commands::dashboard::run(&cli.global, args, printer)).await
        }
        Command::Upgrade(args) => {
            Box::pin(commands::upgrade::run(&cli.global, args, printer, cleanup)).await
        }
        Command::Rollback(args) => {
            Box::pin(commands::rollback::run(&cli.global, args, printer, cleanup)).await
        }
        Command::Adopt(args) => {
            Box::pin(commands::adopt::run(&cli.global, args, printer, cleanup)).await
        }
        Command::Migrate(args) => {
            Box::pin(commands::migrate::run(&cli.global, args, printer, cleanup)).await
        }
        Command::Kops(args) => {
            Box::pin(commands::kops::run(&cli.global, args, printer, cleanup)).await
        }
        Command::Uninstall(args) => {
            Box::pin(commands::uninstall::run(&cli.global, args, printer, cleanup)).await
        }
        Command::Sweep(args) => {
            Box::pin(commands::sweep::run(&cli.global, args, printer, cleanup)).await
        }
        Command::Simulate(args) => {
            Box::pin(commands::simulate::run(&cli.global, args, printer)).await
        }
        Command::Explain(args) => {
            Box::pin(commands::simulate::explain(&cli.global, args, printer)).await
        }
        Command::Config(args) => Box::pin(commands::config::run(&cli.global, args, *printer)).await,
        Command::Export(args) => Box::pin(commands::export::run(&cli.global, args, printer)).await,
        Command::Bundle(args) => Box::pin(commands::bundle::run(&cli.global, args, printer)).await,
        Command::Completion(args) => Ok(commands::completion::run(args, *printer)),
        Command::Version => Ok(commands::version::run(*printer)),
    }
}

/// Says that the program could not even start.
pub fn start_failed(error: &std::io::Error) -> ExitCode {
    Printer::new(OutputFormat::Text, false)
        .note(&format!("error: can't start the runtime: {error}"));
    ExitCode::FAILURE
}

fn start_log(cli: &Cli) {
    use tracing_subscriber::EnvFilter;
    if matches!(cli.command, Command::Top(_)) && std::io::stderr().is_terminal() {
        // The screen is there already; `2>FILE` has the log.
        return;
    }
    let default = match cli.global.verbose {
        0 => "tenon=warn",
        1 => "tenon=debug,warn",
        _ => "debug",
    };
    let filter = cli
        .global
        .log
        .as_deref()
        .and_then(|text| EnvFilter::try_new(text).ok())
        .unwrap_or_else(|| EnvFilter::new(default));
    // Colours only where the printer's own lines have them. Fails only when a logger is installed
    // already, as in tests.
    let _ =
        tracing_subscriber::fmt().with_env_filter(filter).with_writer(anstream::stderr).try_init();
}
