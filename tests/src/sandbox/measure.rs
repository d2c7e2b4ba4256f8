//! `sandbox measure`: what the operator costs, on the provider that needs no cloud unless it is about a cloud. Prints the figures of `docs/src/reference/measurements.md`.

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

use super::{Failure, Output};
use crate::bed::{Bed, BedConfig, Parts};
use crate::kwok_operators::{KwokOperators, Operator};
use crate::programs::TenonPrograms;
use crate::progress::Progress;

/// The NodePool and the workload.
const NAME: &str = "measure";

/// Longer than any measurement: Nodes without a heartbeat stay Ready.
const NEVER_LOST: u32 = 24 * 60 * 60;

/// Arguments of `sandbox measure`.
#[derive(Clone, Debug, Args)]
pub(super) struct MeasureArgs {
    /// What is measured; without it `mix`, `alike` and `floor` with 5,000 pods, and `large`, as one table beside what Karpenter takes
    #[arg(value_enum)]
    case: Option<Case>,
    /// How many pods there are; unless it is given 100,000 in the case `large`, 1,000 in the others, and in the table as many as Karpenter was measured with
    #[arg(long)]
    pods: Option<usize>,
    /// How many pods fit on a node, at most: two or more, as a node keeps some of its CPU to itself
    ///
    /// In the case `large` so many are on each node; 10 there unless it is given, 4 in the cases `alike` and `floor`, 62 in the table.
    #[arg(long, value_parser = clap::value_parser!(u64).range(2..))]
    per_node: Option<u64>,
    /// CPU that each pod of the cases `alike` and `floor` requests, in thousandths; 250 in the table, whatever is given
    #[arg(long, value_name = "MILLICPU", default_value_t = 950, value_parser = clap::value_parser!(u64).range(1..=950))]
    cpu: u64,
    /// How long the soak goes on
    #[arg(long, default_value_t = 60)]
    minutes: u64,
    /// How many NodePools, each with its NodeClass and pods, come and go at the same time in the soak
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=16))]
    lanes: u64,
    /// Give up after so many seconds
    #[arg(long, default_value_t = 300)]
    limit: u64,
    /// A flag of the operator, e.g. `--operator=--nominate-pods=false`; may be given several times
    #[arg(long = "operator", value_name = "FLAG", allow_hyphen_values = true)]
    flags: Vec<String>,
}

/// Workloads to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Case {
    /// Pods that are all alike come and go
    Alike,
    /// Half of the pods small, half large, as upstream's performance suite has them; then three in ten go
    Mix,
    /// The pods of `alike` where the nodes are there before and no autoscaler runs: the least that it can take on this machine
    Floor,
    /// A cluster of 10,000 nodes and 100,000 pods is there when the operator starts
    Large,
    /// NodeClasses, NodePools, pods and nodes come and go for an hour on a bed with the provider `aws` and two replicas
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
