//! `sandbox up` and `sandbox build`.

use std::process::ExitCode;

use clap::Args;
use serde_json::json;
use tenon_aws_double::moto;
use tenon_aws_double::progress::Progress;

use crate::bed::{Bed, BedConfig, Parts};
use crate::cli::{INTERRUPTED, Output, interrupted};
use crate::control_plane::programs::{Programs, PrometheusPrograms, registry};
use crate::failure::Failure;
use crate::programs::TenonPrograms;

/// Arguments of `sandbox up`.
#[derive(Debug, Args)]
pub(super) struct UpArgs {
    /// Start an empty cluster without Tenon, for any other operator or test suite
    #[arg(long)]
    bare: bool,
    /// Name of the cluster
    #[arg(long, default_value = "bed", value_name = "NAME")]
    cluster: String,
    /// AWS region
    #[arg(long, default_value = "eu-central-1", value_name = "REGION")]
    region: String,
}

pub(super) async fn run(
    args: UpArgs,
    output: Output,
    progress: &Progress,
) -> Result<ExitCode, Failure> {
    let UpArgs { bare, cluster, region } = args;
    // A bare bed is for other operators, too: nobody should have to build ours for it.
    let parts = Parts { tenon: !bare, ..Parts::all() };
    let config =
        BedConfig { cluster, region, parts, progress: progress.clone(), ..BedConfig::default() };
    let started = tokio::select! {
        bed = Bed::start(config) => bed?,
        () = interrupted() => return Ok(INTERRUPTED.into()),
    };
    let code = tokio::select! {
        result = serve(&started, bare, output, progress) => result,
        () = interrupted() => Ok(ExitCode::SUCCESS),
    };
    let step = progress.step("stopping the bed");
    started.stop().await?;
    step.done();
    code
}

async fn serve(
    bed: &Bed,
    bare: bool,
    output: Output,
    progress: &Progress,
) -> Result<ExitCode, Failure> {
    if !bare {
        crate::demo::install(bed, progress).await?;
    }
    let exports = bed.exports();
    let file = bed.dir().join("exports.sh");
    std::fs::write(&file, exports.shell())?;
    match output {
        Output::Json => {
            anstream::println!(
                "{}",
                json!({ "exports": exports.variables, "path": exports.path, "file": file })
            );
        }
        Output::Text => {
            anstream::println!("{}", exports.shell());
            anstream::eprintln!("In another terminal:  source {}", file.display());
            anstream::eprintln!(
                "Logs are in {}. Ctrl-C stops everything.",
                bed.dir().join("logs").display()
            );
        }
    }
    Err(bed.failed().await.into())
}

/// Builds all that a bed needs, so that the next start takes seconds.
pub(super) async fn build(output: Output, progress: &Progress) -> Result<ExitCode, Failure> {
    let tenon = TenonPrograms::provide(progress).await?;
    let moto = moto::install(progress).await?;
    let programs = Programs::provide(progress).await?;
    let registry = registry(progress).await?;
    let prometheus = PrometheusPrograms::provide(progress).await?.prometheus;
    if output == Output::Json {
        let built = json!({ "tenon": tenon.tenon, "operator": tenon.operator, "moto": moto, "programs": programs.directories(), "registry": registry, "prometheus": prometheus });
        anstream::println!("{built}");
    }
    Ok(ExitCode::SUCCESS)
}
