//! `cargo sandbox`: see [`tenon_tests::sandbox`].

use std::process::ExitCode;

use clap::Parser;
use tenon_tests::sandbox::{Cli, run};

#[tokio::main]
async fn main() -> ExitCode {
    let cli = Cli::parse();
    tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::from_default_env())
        .with_writer(std::io::stderr)
        .init();
    run(cli).await
}
