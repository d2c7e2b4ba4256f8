//! `cargo sandbox`: see [`tenon_bed::sandbox`].

use std::process::ExitCode;

use clap::Parser;
use tenon_bed::sandbox::{Cli, run};

#[tokio::main]
async fn main() -> ExitCode {
    run(Cli::parse()).await
}
