//! `sandbox measure`: what the operator costs, on the provider that needs no cloud unless it is
//! about a cloud. Prints the figures of `docs/src/reference/measurements.md`.

mod alike;
mod floor;
mod large;
mod metrics;
mod mix;
mod soak;
mod table;

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::Arc;

use clap::Args;
use serde_json::Value;
use tenon_aws_double::progress::Progress;

use crate::bed::{Bed, BedConfig, Parts};
use crate::cli::Output;
use crate::failure::Failure;
use crate::kwok_operators::{KwokOperators, Operator};
use crate::programs::TenonPrograms;

/// The NodePool and the workload.
const NAME: &str = "measure";

/// Longer than any measurement: Nodes without a heartbeat stay Ready.
const NEVER_LOST: u32 = 24 * 60 * 60;

/// Arguments of `sandbox measure`.
#[derive(Clone, Debug, Args)]
pub(super) struct MeasureArgs {
    /// Workload to measure; without it, `mix`, `alike` and `floor` with 5,000 pods, and `large`, as
    /// a table beside Karpenter's figures
    #[arg(value_enum)]
    case: Option<Case>,
    /// Number of pods; default 100,000 for `large`, 1,000 for the others, and in the table the
    /// number that Karpenter was measured with
    #[arg(long)]
    pods: Option<usize>,
    /// Maximum number of pods on a node: two or more, because a node reserves some of its CPU
    ///
    /// For `large` it is the number on each node; default 10 for `large`, 4 for `alike` and
    /// `floor`, 62 in the table.
    #[arg(long, value_parser = clap::value_parser!(u64).range(2..))]
    per_node: Option<u64>,
    /// CPU request of each pod of `alike` and `floor`, in millicores; always 250 in the table
    #[arg(long, value_name = "MILLICPU", default_value_t = 950, value_parser = clap::value_parser!(u64).range(1..=950))]
    cpu: u64,
    /// Duration of the soak
    #[arg(long, default_value_t = 60)]
    minutes: u64,
    /// Number of NodePools, each with its NodeClass and pods, that the soak creates and deletes at
    /// the same time
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=16))]
    lanes: u64,
    /// Time limit in seconds
    #[arg(long, default_value_t = 300)]
    limit: u64,
    /// A flag of the operator, such as `--operator=--nominate-pods=false` (may be repeated)
    #[arg(long = "operator", value_name = "FLAG", allow_hyphen_values = true)]
    flags: Vec<String>,
}

/// Workloads to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Case {
    /// Create and delete identical pods
    Alike,
    /// Create small and large pods in equal numbers, as in upstream's performance suite; then
    /// delete three in ten
    Mix,
    /// Create the pods of `alike` on existing nodes without an autoscaler: the minimum on this
    /// machine
    Floor,
    /// Start the operator in a cluster of 10,000 nodes and 100,000 pods
    Large,
    /// Create and delete NodeClasses, NodePools, pods and nodes for an hour on a bed with the
    /// provider `aws` and two replicas
    Soak,
}

pub(super) async fn run(
    args: MeasureArgs,
    output: Output,
    progress: &Progress,
) -> Result<ExitCode, Failure> {
    let programs = TenonPrograms::provide(progress).await?;
    let Some(case) = args.case else {
        let table = table::measure(&programs, &args, progress).await?;
        match output {
            Output::Json => anstream::println!("{:#}", serde_json::to_value(&table)?),
            Output::Text => anstream::print!("{table}"),
        }
        return Ok(ExitCode::SUCCESS);
    };
    let figures = of(case, &programs, &args, progress).await?;
    match output {
        Output::Json => anstream::println!("{figures:#}"),
        Output::Text => {
            for (name, value) in figures.as_object().into_iter().flatten() {
                match value.as_object() {
                    None => anstream::println!("{name:24} {value}"),
                    Some(parts) => {
                        anstream::println!("{name}");
                        for (part, value) in parts {
                            anstream::println!("    {part:24} {value}");
                        }
                    }
                }
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Measures one case on a bed of its own.
async fn of(
    case: Case,
    programs: &TenonPrograms,
    args: &MeasureArgs,
    progress: &Progress,
) -> Result<Value, Failure> {
    let parts = match case {
        Case::Alike | Case::Floor | Case::Mix | Case::Large => Parts::control_plane_only(),
        Case::Soak => Parts::all(),
    };
    let mut config = BedConfig { parts, progress: progress.clone(), ..BedConfig::default() };
    if case == Case::Large {
        config.node_monitor_grace_seconds = NEVER_LOST;
    }
    let bed = Arc::new(Bed::start(config).await?);
    let figures = match case {
        Case::Alike => to_value(alike::measure(&bed, programs, args, progress).await),
        Case::Floor => to_value(floor::measure(&bed, args, progress).await),
        Case::Mix => to_value(mix::measure(&bed, programs, args, progress).await),
        Case::Large => to_value(large::measure(&bed, programs, args, progress).await),
        Case::Soak => to_value(soak::measure(&bed, args, progress).await),
    };
    let bed = Arc::into_inner(bed).ok_or("something still uses the bed")?;
    if figures.is_err() {
        let kept = bed.stop_and_keep().await;
        anstream::eprintln!("the logs are in {}", kept.join("logs").display());
    } else {
        bed.stop().await?;
    }
    figures
}

fn to_value(figures: Result<impl serde::Serialize, Failure>) -> Result<Value, Failure> {
    Ok(serde_json::to_value(figures?)?)
}

fn start(tenon: &KwokOperators, args: &MeasureArgs) -> Result<Operator, Failure> {
    let flags: Vec<&str> = args.flags.iter().map(String::as_str).collect();
    tenon.start_with("measured", &flags)
}

/// What processes have computed so far, by their names.
fn cpu_seconds(pids: &BTreeMap<String, u32>) -> Result<BTreeMap<String, f64>, Failure> {
    /// The kernel's unit is the same on all of Linux' platforms.
    const TICKS_PER_SECOND: f64 = 100.0;
    let of = |pid: &u32| -> Result<f64, Failure> {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
        // Fields are counted from behind the name, which may hold spaces.
        let (_, fields) = stat.rsplit_once(") ").ok_or("a process without a name")?;
        let ticks: f64 =
            fields.split(' ').skip(11).take(2).filter_map(|it| it.parse::<f64>().ok()).sum();
        Ok(ticks / TICKS_PER_SECOND)
    };
    pids.iter().map(|(name, pid)| Ok((name.clone(), of(pid)?))).collect()
}

fn difference(
    before: &BTreeMap<String, f64>,
    after: &BTreeMap<String, f64>,
) -> BTreeMap<String, f64> {
    let since = |name: &String, seconds: &f64| seconds - before.get(name).copied().unwrap_or(0.0);
    after.iter().map(|(name, seconds)| (name.clone(), since(name, seconds))).collect()
}

/// Resident memory of a process.
fn resident_mib(pid: u32) -> Result<f64, Failure> {
    memory_mib(pid, "VmRSS")
}

/// The part of a process' resident memory that is no page of a file: what it needs for itself, and
/// can't be read again.
fn anonymous_mib(pid: u32) -> Result<f64, Failure> {
    memory_mib(pid, "RssAnon")
}

/// The most resident memory that a process has had.
fn peak_mib(pid: u32) -> Result<f64, Failure> {
    memory_mib(pid, "VmHWM")
}

fn memory_mib(pid: u32, field: &str) -> Result<f64, Failure> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let mut lines = status.lines();
    let line = lines.find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    let kib: u64 = line
        .and_then(|line| line.split_whitespace().next()?.parse().ok())
        .ok_or_else(|| format!("no {field}"))?;
    Ok(mib(kib * 1024))
}

#[expect(clippy::cast_precision_loss, reason = "for people")]
fn mib(bytes: u64) -> f64 {
    (bytes as f64 / 1024.0 / 1024.0 * 10.0).round() / 10.0
}
