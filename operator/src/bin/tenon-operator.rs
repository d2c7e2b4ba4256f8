//! The operator: reads its options, and runs.

use std::process::ExitCode;

use clap::Parser as _;
use tenon_operator::options::Options;
use tenon_operator::{logging, run};

// musl's allocator is slow with several threads.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[tokio::main]
async fn main() -> ExitCode {
    let options = Options::parse();
    // Fails only when one is installed already, which is as good.
    rustls::crypto::aws_lc_rs::default_provider().install_default().ok();
    logging::start(options.core.log_level);
    if let Err(problems) = options.validate() {
        for problem in &problems {
            tracing::error!("{problem}");
        }
        return ExitCode::from(2);
    }
    match run::run(options).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!(error = %logging::chain(&error), "the operator ends");
            ExitCode::FAILURE
        }
    }
}
