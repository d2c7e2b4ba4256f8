//! `cargo sandbox`: see [`tenon_tests::sandbox`].

use std::process::ExitCode;

use clap::Parser;
use tenon_tests::sandbox::{Cli, run};

#[tokio::main]
async fn main() -> ExitCode {
    run(Cli::parse()).await
}
