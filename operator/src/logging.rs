//! Logs: JSON in a cluster, text on a terminal.

pub mod json;

use std::io::IsTerminal as _;

use tracing_subscriber::EnvFilter;

use crate::options::LogLevel;
use crate::tasks::{self, Panicked};

/// Starts logging to standard output, panics included. Called once, by `main`.
pub fn start(level: LogLevel) {
    let level = level.as_filter();
    // What libraries say about each request is of no use to anybody.
    let filter = EnvFilter::new(format!(
        "{level},hyper=warn,hyper_util=warn,tower=warn,rustls=warn,kube_client=warn,kube_runtime=error,h2=warn,aws_smithy_runtime=warn,aws_config=warn"
    ));
    let logs = tracing_subscriber::fmt().with_env_filter(filter);
    if std::io::stdout().is_terminal() {
        logs.init();
    } else {
        logs.event_format(json::Lines).init();
    }
    std::panic::set_hook(Box::new(|info| {
        let location = info.location().map(ToString::to_string).unwrap_or_default();
        let panicked = Panicked::new(info.payload());
        // Only when `RUST_BACKTRACE` asks for it.
        let backtrace = std::backtrace::Backtrace::capture();
        tracing::error!(location, controller = tasks::current(), %backtrace, "{panicked}");
    }));
}

/// An error with everything that caused it, for a log line: JSON logs would otherwise keep only the outermost.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let next = error.to_string();
        // Some libraries repeat the message of their source in their own.
        if !text.ends_with(&next) {
            text.push_str(": ");
            text.push_str(&next);
        }
        cause = error.source();
    }
    text
}

/// Logs a failure that is tried again: a warning when it may pass by itself (`passing`), an error when somebody has to look at it.
macro_rules! log_failure {
    (passing: $passing:expr, $($fields:tt)*) => {
        if $passing {
            tracing::warn!($($fields)*);
        } else {
            tracing::error!($($fields)*);
        }
    };
}
pub(crate) use log_failure;
