//! Logs: JSON in a cluster, text on a terminal. How much is logged can be changed while the
//! operator runs.

pub mod json;

use std::io::IsTerminal as _;
use std::sync::Arc;

use opentelemetry_sdk::trace::SdkTracer;
use parking_lot::Mutex;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Layer as _, reload};

use crate::options::LogLevel;
use crate::tasks::{self, Panicked};
use crate::traces;

/// How much is logged. Clones share it.
#[derive(Clone)]
pub struct Level {
    current: Arc<Mutex<LogLevel>>,
    reload: Arc<dyn Fn(EnvFilter) -> Result<(), reload::Error> + Send + Sync>,
}

impl std::fmt::Debug for Level {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Level").field(&self.get()).finish()
    }
}

impl Level {
    fn new(
        level: LogLevel,
        reload: impl Fn(EnvFilter) -> Result<(), reload::Error> + Send + Sync + 'static,
    ) -> Self {
        Self { current: Arc::new(Mutex::new(level)), reload: Arc::new(reload) }
    }

    /// What is logged now.
    pub fn get(&self) -> LogLevel {
        *self.current.lock()
    }

    /// Logs this much from now on. Fails only when nothing is logged any more, because the process
    /// ends.
    pub fn set(&self, level: LogLevel) -> Result<(), reload::Error> {
        let mut current = self.current.lock();
        (self.reload)(filter(level))?;
        *current = level;
        Ok(())
    }
}

/// Starts logging to standard output, panics included, and noting spans where they are traced.
/// Called once, by `main`.
pub fn start(level: LogLevel, tracer: Option<SdkTracer>) -> Level {
    std::panic::set_hook(Box::new(|info| {
        let location = info.location().map(ToString::to_string).unwrap_or_default();
        let panicked = Panicked::new(info.payload());
        // Only when `RUST_BACKTRACE` asks for it.
        let backtrace = std::backtrace::Backtrace::capture();
        tracing::error!(location, controller = tasks::current(), %backtrace, "{panicked}");
    }));
    let (filter, handle) = reload::Layer::new(filter(level));
    let registry = tracing_subscriber::registry().with(tracer.map(traces::layer));
    let logs = tracing_subscriber::fmt::layer();
    if std::io::stdout().is_terminal() {
        registry.with(logs.with_filter(filter)).init();
    } else {
        registry.with(logs.event_format(json::Lines).with_filter(filter)).init();
    }
    Level::new(level, move |filter| handle.reload(filter))
}

/// Our own logs as they are asked for; what libraries say about each request is of no use to
/// anybody.
fn filter(level: LogLevel) -> EnvFilter {
    let level = level.as_filter();
    EnvFilter::new(format!(
        "{level},hyper=warn,hyper_util=warn,tower=warn,rustls=warn,kube_client=warn,kube_runtime=error,h2=warn,aws_smithy_runtime=warn,aws_config=warn,{}=off",
        traces::TARGET
    ))
}

/// Logs a failure that is tried again: a warning when it may pass by itself (`passing`), an error
/// when somebody has to look at it.
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

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A level that changes the filter of a subscriber which nobody else uses.
    pub(crate) fn mk_level() -> (Level, impl tracing::Subscriber + Send + Sync) {
        let logs = tracing_subscriber::fmt().with_env_filter(filter(LogLevel::Info));
        let logs = logs.with_writer(std::io::sink).with_filter_reloading();
        let handle = logs.reload_handle();
        (Level::new(LogLevel::Info, move |filter| handle.reload(filter)), logs.finish())
    }

    #[test]
    fn what_is_logged_can_be_changed_while_the_operator_runs() {
        let (level, logs) = mk_level();
        let _guard = crate::testing::listen(logs);
        let debugs = || tracing::enabled!(tracing::Level::DEBUG);
        assert!(!debugs());
        level.set(LogLevel::Debug).unwrap();
        assert!(debugs());
        level.set(LogLevel::Error).unwrap();
        assert!(!tracing::enabled!(tracing::Level::WARN));
        assert_eq!(level.get(), LogLevel::Error);
    }
}
