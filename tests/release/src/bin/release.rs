//! `cargo release`: see [`tenon_release::cli`].

use std::process::ExitCode;

use clap::Parser;
use tenon_release::cli::{Cli, run};

#[tokio::main]
async fn main() -> ExitCode {
    // It fails only when one is installed already, which serves as well.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    run(Cli::parse()).await
}
