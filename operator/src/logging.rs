//! Logs: JSON in a cluster, text on a terminal.

use std::io::IsTerminal as _;

use tracing_subscriber::EnvFilter;

use crate::options::LogLevel;

/// Starts logging to standard output. Called once, by `main`.
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
        logs.json().flatten_event(true).init();
    }
}
