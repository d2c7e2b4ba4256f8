//! The `sandbox` program: runs the demo of Tenon on a bed, keeps a playground, and injects faults.

use std::process::ExitCode;

use clap::{Parser, Subcommand, ValueEnum};
use tenon_aws_double::progress::Progress;
use tracing_subscriber::EnvFilter;

use crate::cli::Output;
use crate::demo::Neighbour;
use crate::environment::Environment;
use crate::failure::Failure;
use crate::wait::chain;

mod doctor;
mod measure;
mod up;
mod verbs;

/// A Kubernetes cluster with simulated machines and an AWS double, on this machine
///
/// Without a command it runs the demo: install Tenon, launch nodes for pods, consolidate,
/// interrupt, drift, uninstall, and prove that nothing is left.
#[derive(Debug, Parser)]
#[command(name = "sandbox", max_term_width = 100, disable_help_subcommand = true)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    command: Option<Command>,
    /// Format of the results on stdout
    #[arg(short, long, global = true, value_enum, default_value_t, value_name = "FORMAT")]
    output: Output,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the demo (the default)
    Demo,
    /// Start a playground, print the variables that a shell needs, and run until Ctrl-C
    Up(up::UpArgs),
    /// Run Tenon beside other programs, each on a bed of its own
    ///
    /// KEDA, Flux and Argo CD are built on first use, which takes minutes; of the others, the bed
    /// has what they create in the cluster and in AWS.
    Neighbours {
        /// Only this program
        #[arg(value_enum)]
        name: Option<Neighbour>,
    },
    /// Build the parts of a bed: the control plane, moto, and the programs of this workspace
    Build,
    /// Check the requirements on this machine, and say how to fix what is missing
    Doctor,
    /// Draw the pictures of the README from a report of the demo
    Picture(crate::picture::PictureArgs),
    /// Measure the memory and speed of the operator
    Measure(measure::MeasureArgs),
    /// Commands for a running bed, which the exported variables of `sandbox up` name.
    #[command(flatten)]
    Control(verbs::Verb),
}

/// Runs the program; the exit code is 0 when all went well, 1 when something failed, 130 after
/// Ctrl-C.
pub async fn run(cli: Cli) -> ExitCode {
    if let Err(error) = log() {
        anstream::eprintln!("error: {}", chain(error.as_ref()));
        return ExitCode::FAILURE;
    }
    let progress = Progress::stderr();
    let output = cli.output;
    let result = match cli.command {
        None | Some(Command::Demo) => crate::demo::run(output, &progress).await,
        Some(Command::Neighbours { name }) => {
            let all = name.map_or_else(|| Neighbour::value_variants().to_vec(), |one| vec![one]);
            crate::demo::neighbours(&all, output, &progress).await
        }
        Some(Command::Up(args)) => up::run(args, output, &progress).await,
        Some(Command::Build) => up::build(output, &progress).await,
        Some(Command::Doctor) => doctor::run(output).await,
        Some(Command::Picture(args)) => crate::picture::run(&args),
        Some(Command::Measure(args)) => measure::run(args, output, &progress).await,
        Some(Command::Control(verb)) => verbs::run(verb, output).await,
    };
    match result {
        Ok(code) => code,
        Err(error) => {
            anstream::eprintln!("error: {}", chain(error.as_ref()));
            ExitCode::FAILURE
        }
    }
}

fn log() -> Result<(), Failure> {
    let filter = Environment::read()?.log;
    let filter = EnvFilter::try_new(&filter)
        .map_err(|error| format!("RUST_LOG={filter} is not valid: {error}"))?;
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    Ok(())
}
