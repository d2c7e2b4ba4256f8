//! The program `tenon`: see the library for everything.

use std::process::ExitCode;

use clap::Parser;
use tenon::cli::Cli;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return tenon::cli::usage_exit(&error),
    };
    // One crypto provider for AWS and Kubernetes. It fails only when one is installed already,
    // which serves as well.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => {
            let code = runtime.block_on(tenon::run(cli));
            // A question that was interrupted still waits for a line; nobody else waits for that.
            runtime.shutdown_background();
            code
        }
        Err(error) => tenon::start_failed(&error),
    }
}
