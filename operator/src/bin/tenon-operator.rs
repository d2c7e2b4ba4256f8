//! The operator: reads its options, and runs.

use std::process::ExitCode;

use clap::Parser as _;
use tenon_operator::aws::probe::Probe;
use tenon_operator::options::{LogLevel, Options};
use tenon_operator::{logging, run, traces};

// musl's allocator is slow with several threads.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The calls of the AWS SDK nest deeply, and ours around them: without optimisation they take more
/// than the two megabytes that tokio gives its threads. What is not touched costs no memory.
const STACK_SIZE: usize = 8 * 1024 * 1024;

/// How many milliseconds the allocator keeps freed memory before it gives it back: a planning pass
/// frees as much as the whole state takes, and a second later the next one has begun elsewhere.
const PURGE_DELAY: (&str, &str) = ("MIMALLOC_PURGE_DELAY", "0");

fn main() -> ExitCode {
    set_up_allocator();
    // The allocator asks for huge pages, of which each stays for as long as anything is left in it.
    // A kernel without them has nothing to switch off.
    #[cfg(target_os = "linux")]
    rustix::thread::disable_transparent_huge_pages(true).ok();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .thread_stack_size(STACK_SIZE)
        .build()
        .expect("threads can be started");
    // On a thread of the runtime, for the main thread's stack is not ours to size.
    #[expect(clippy::disallowed_methods, reason = "the task that all others come from")]
    let ended = runtime.block_on(async { tokio::spawn(operate()).await });
    ended.unwrap_or(ExitCode::FAILURE)
}

/// The allocator reads its options before `main`, and only from the environment: the program
/// executes itself once more, as the same process. Where it can't, it works with the defaults.
#[cfg(unix)]
fn set_up_allocator() {
    use std::os::unix::process::CommandExt as _;
    let (name, value) = PURGE_DELAY;
    if std::env::var_os(name).is_none()
        && let Ok(program) = std::env::current_exe()
    {
        let arguments = std::env::args_os().skip(1);
        // Answers only when it failed.
        let _failed = std::process::Command::new(program).args(arguments).env(name, value).exec();
    }
}

#[cfg(not(unix))]
fn set_up_allocator() {}

async fn operate() -> ExitCode {
    // Fails only when one is installed already, which is as good.
    rustls::crypto::aws_lc_rs::default_provider().install_default().ok();
    let mut args: Vec<_> = std::env::args_os().collect();
    if args.get(1).is_some_and(|first| first == "probe") {
        args.remove(1);
        return match Probe::parse_from(args).run().await {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                logging::start(LogLevel::Error, None);
                tracing::error!(%error, "there is no report");
                ExitCode::FAILURE
            }
        };
    }
    let options = Options::parse_from(args);
    // What is wrong with them is told below, with all that is wrong.
    let traces = options.core.traces.settings().ok().flatten();
    let (tracer, traces) = traces
        .map(|settings| (traces::new(&settings), settings))
        .map_or((None, None), |((tracer, queue), settings)| {
            (Some(tracer), Some((queue, settings)))
        });
    let level = logging::start(options.core.log_level, tracer);
    if let Err(problems) = options.validate() {
        for problem in &problems {
            tracing::error!("{problem}");
        }
        return ExitCode::from(2);
    }
    match run::run(options, level, traces).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!(error = %tenon_operator::text::chain(&error), "the operator ends");
            ExitCode::FAILURE
        }
    }
}
