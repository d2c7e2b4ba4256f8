//! `sandbox measure`: what the operator costs, on the provider that needs no cloud unless it is about a cloud. Prints the figures of `docs/src/reference/measurements.md`.

mod mix;
mod soak;

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{DynamicObject, ListParams};
use kube::{Api, ResourceExt};
use serde::Serialize;
use serde_json::json;
use tokio::time::Instant;

use super::{Failure, Output};
use crate::bed::{Bed, BedConfig, Parts};
use crate::programs::TenonPrograms;
use crate::progress::Progress;
use crate::unclouded::{Operator, Unclouded};
use crate::user::{User, one_of};
use crate::wait::eventually;

/// The NodePool and the workload.
const NAME: &str = "measure";

/// Arguments of `sandbox measure`.
#[derive(Debug, Args)]
pub(super) struct MeasureArgs {
    /// What is measured
    #[arg(value_enum, default_value_t = Case::Alike)]
    case: Case,
    /// How many pods are created at once
    #[arg(long, default_value_t = 1000)]
    pods: usize,
    /// How many of them fit on a node, at most: two or more, as a node keeps some of its CPU to itself
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u64).range(2..))]
    per_node: u64,
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
    /// NodeClasses, NodePools, pods and nodes come and go for an hour on a bed with the provider `aws` and two replicas
    Soak,
}

/// The figures.
#[derive(Debug, Serialize)]
struct Figures {
    /// From nothing to a control plane that can be used, seconds.
    bed_start_seconds: f64,
    /// From its start to `/readyz`, seconds.
    operator_ready_seconds: f64,
    /// Resident memory of the operator with an empty cluster, MiB.
    rss_idle_mib: f64,
    /// From the creation of the pods to the first NodeClaim, seconds.
    first_claim_seconds: f64,
    /// When the last pod or NodeClaim had come so far, seconds after the first pod was created; to the second, as the objects say it.
    last_after_seconds: BTreeMap<&'static str, f64>,
    /// From the creation of the pods until all run, seconds.
    all_running_seconds: f64,
    /// What each program computed until then, seconds.
    cpu_seconds: BTreeMap<String, f64>,
    /// Nodes then.
    nodes: usize,
    /// Resident memory of the operator then, MiB.
    rss_loaded_mib: f64,
    /// From the deletion of the pods until no node is left, seconds.
    all_gone_seconds: f64,
    /// What each program computed for that, seconds.
    gone_cpu_seconds: BTreeMap<String, f64>,
    /// Resident memory of the operator then, MiB.
    rss_gone_mib: f64,
    /// Sizes of the programs, MiB.
    program_mib: BTreeMap<String, f64>,
}

pub(super) async fn run(
    args: MeasureArgs,
    output: Output,
    progress: &Progress,
) -> Result<ExitCode, Failure> {
    let programs = TenonPrograms::provide(progress).await?;
    let started = Instant::now();
    let parts = match args.case {
        Case::Alike | Case::Mix => Parts::control_plane_only(),
        Case::Soak => Parts::all(),
    };
    let config = BedConfig { parts, progress: progress.clone(), ..BedConfig::default() };
    let bed = Arc::new(Bed::start(config).await?);
    let bed_start_seconds = started.elapsed().as_secs_f64();
    let figures = match args.case {
        Case::Alike => measure(&bed, &programs, &args, bed_start_seconds, progress)
            .await
            .and_then(|figures| Ok(serde_json::to_value(figures)?)),
        Case::Mix => mix::measure(&bed, &programs, &args, progress)
            .await
            .and_then(|figures| Ok(serde_json::to_value(figures)?)),
        Case::Soak => soak::measure(&bed, &args, progress)
            .await
            .and_then(|figures| Ok(serde_json::to_value(figures)?)),
    };
    let bed = Arc::into_inner(bed).ok_or("something still uses the bed")?;
    if figures.is_err() {
        let kept = bed.stop_and_keep().await;
        anstream::eprintln!("the logs are in {}", kept.join("logs").display());
    } else {
        bed.stop().await?;
    }
    let figures = figures?;
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

fn start(tenon: &Unclouded, args: &MeasureArgs) -> Result<Operator, Failure> {
    let flags: Vec<&str> = args.flags.iter().map(String::as_str).collect();
    tenon.start_with("measured", &flags)
}

async fn measure(
    bed: &Bed,
    programs: &TenonPrograms,
    args: &MeasureArgs,
    bed_start_seconds: f64,
    progress: &Progress,
) -> Result<Figures, Failure> {
    let limit = Duration::from_secs(args.limit);
    let tenon = Unclouded::prepare(bed, programs.clone()).await?;
    let user = tenon.user();

    let started = Instant::now();
    let operator = start(&tenon, args)?;
    operator.ready(limit).await?;
    let operator_ready_seconds = started.elapsed().as_secs_f64();
    let rss_idle_mib = resident_mib(operator.process().pid())?;
    pool(user, args.per_node).await?;
    let mut pids = bed.pids();
    pids.insert("tenon-operator".to_owned(), operator.process().pid());

    let step = progress.step(format!("{} pods", args.pods));
    let started = Instant::now();
    let before = cpu_seconds(&pids)?;
    workload(user, args.pods).await?;
    let claims = user.objects("NodeClaim");
    eventually("a NodeClaim appears", limit, async || {
        Ok(!claims.list_metadata(&ListParams::default().limit(1)).await?.items.is_empty())
    })
    .await?;
    let first_claim_seconds = started.elapsed().as_secs_f64();
    // The Deployment's own count: to list a thousand pods again and again would be a good part of the load.
    let deployments: Api<Deployment> = Api::namespaced(bed.client(), "default");
    eventually("all pods run", limit, async || {
        let status = deployments.get(NAME).await?.status.unwrap_or_default();
        let available = status.available_replicas.and_then(|count| usize::try_from(count).ok());
        match available.unwrap_or(0) {
            available if available == args.pods => Ok(true),
            available => Err(format!("{available} of {} are available", args.pods).into()),
        }
    })
    .await?;
    let all_running_seconds = started.elapsed().as_secs_f64();
    let cpu_seconds = difference(&before, &cpu_seconds(&pids)?);
    step.done();
    let nodes: Api<Node> = Api::all(bed.client());
    let n_nodes = nodes.list_metadata(&ListParams::default()).await?.items.len();
    let rss_loaded_mib = resident_mib(operator.process().pid())?;
    let last_after_seconds = timeline(user).await?;

    let step = progress.step("no pods".to_owned());
    let started = Instant::now();
    let before = self::cpu_seconds(&pids)?;
    workload(user, 0).await?;
    eventually("all nodes are gone", limit, async || {
        let left = nodes.list_metadata(&ListParams::default()).await?.items.len();
        if left == 0 { Ok(true) } else { Err(format!("{left} are left").into()) }
    })
    .await?;
    let all_gone_seconds = started.elapsed().as_secs_f64();
    let gone_cpu_seconds = difference(&before, &self::cpu_seconds(&pids)?);
    let rss_gone_mib = resident_mib(operator.process().pid())?;
    step.done();
    operator.process().stop(Duration::from_secs(10)).await;
    Ok(Figures {
        bed_start_seconds,
        operator_ready_seconds,
        rss_idle_mib,
        first_claim_seconds,
        last_after_seconds,
        all_running_seconds,
        cpu_seconds,
        nodes: n_nodes,
        rss_loaded_mib,
        all_gone_seconds,
        gone_cpu_seconds,
        rss_gone_mib,
        program_mib: [("tenon", &programs.tenon), ("tenon-operator", &programs.operator)]
            .into_iter()
            .map(|(name, path)| Ok((name.to_owned(), mib(std::fs::metadata(path)?.len()))))
            .collect::<Result<_, std::io::Error>>()?,
    })
}

/// When the last pod or NodeClaim had come so far, by the times that the objects carry: seconds after the first pod was created.
async fn timeline(user: &User) -> Result<BTreeMap<&'static str, f64>, Failure> {
    let pods = user.pods(NAME).await?;
    let claims = user.claims(NAME).await?;
    let created = |pod: &Pod| pod.metadata.creation_timestamp.as_ref().map(|time| time.0);
    let first = pods.iter().filter_map(created).min().ok_or("there are no pods")?;
    let after =
        |time: Option<Timestamp>| time.map_or(0.0, |time| time.duration_since(first).as_secs_f64());
    let of_pod = |kind: &str, pod: &Pod| {
        let conditions = pod.status.as_ref()?.conditions.as_ref()?;
        let found = conditions.iter().find(|it| it.type_ == kind && it.status == "True")?;
        found.last_transition_time.as_ref().map(|time| time.0)
    };
    let of_claim = |kind: &str, claim: &DynamicObject| -> Option<Timestamp> {
        let conditions = claim.data["status"]["conditions"].as_array()?;
        let found = conditions.iter().find(|it| it["type"] == kind && it["status"] == "True")?;
        found["lastTransitionTime"].as_str()?.parse().ok()
    };
    let last_pod = |kind| after(pods.iter().filter_map(|pod| of_pod(kind, pod)).max());
    let last_claim = |kind| after(claims.iter().filter_map(|claim| of_claim(kind, claim)).max());
    let claimed = claims.iter().filter_map(ResourceExt::creation_timestamp).map(|time| time.0);
    Ok(BTreeMap::from([
        ("1 pod created", after(pods.iter().filter_map(created).max())),
        ("2 nodeclaim created", after(claimed.max())),
        ("3 nodeclaim launched", last_claim("Launched")),
        ("4 node registered", last_claim("Registered")),
        ("5 node initialized", last_claim("Initialized")),
        ("6 pod bound", last_pod("PodScheduled")),
        ("7 pod ready", last_pod("Ready")),
    ]))
}

/// A pool whose largest node holds `per_node` pods of the workload.
async fn pool(user: &User, per_node: u64) -> Result<(), Failure> {
    let requirements = json!([
        one_of("kubernetes.io/os", &["linux"]),
        { "key": "karpenter.kwok.sh/instance-cpu", "operator": "Lte", "values": [per_node.to_string()] },
    ]);
    let disruption = json!({ "consolidateAfter": "0s", "budgets": [{ "nodes": "100%" }] });
    user.pool(NAME, &requirements, &json!({ "disruption": disruption })).await
}

/// Pods of a bit less than a CPU each, so that a node with n CPUs holds n of them less its overhead.
async fn workload(user: &User, replicas: usize) -> Result<(), kube::Error> {
    let container = json!({ "name": "main", "image": "pause", "resources": { "requests": { "cpu": "950m", "memory": "256Mi" } } });
    let spec = json!({ "terminationGracePeriodSeconds": 0, "containers": [container] });
    user.deploy(NAME, replicas, &json!({ "spec": spec })).await
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
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib: u64 =
        line.and_then(|line| line.split_whitespace().next()?.parse().ok()).ok_or("no VmRSS")?;
    Ok(mib(kib * 1024))
}

#[expect(clippy::cast_precision_loss, reason = "for people")]
fn mib(bytes: u64) -> f64 {
    (bytes as f64 / 1024.0 / 1024.0 * 10.0).round() / 10.0
}
