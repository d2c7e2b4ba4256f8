//! What the commands of `sandbox` share: the format of results, and the end by a signal.

use clap::ValueEnum;

/// How results are printed.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, ValueEnum)]
pub enum Output {
    /// Human-readable.
    #[default]
    Text,
    /// Machine-readable, as JSON.
    Json,
}

/// Waits for Ctrl-C or SIGTERM.
pub(crate) async fn interrupted() {
    use tokio::signal::unix::{SignalKind, signal};
    let mut term = signal(SignalKind::terminate()).expect("SIGTERM can be handled");
    tokio::select! {
        _ = tokio::signal::ctrl_c() => {}
        _ = term.recv() => {}
    }
}

/// The exit code of a program that was interrupted.
pub(crate) const INTERRUPTED: u8 = 130;
