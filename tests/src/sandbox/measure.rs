//! `sandbox measure`: what the operator costs, on the provider that needs no cloud. Prints the figures of `docs/src/reference/measurements.md`.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ApiResource, DynamicObject, ListParams, Patch, PatchParams};
use kube::core::GroupVersionKind;
use kube::{Api, Client, ResourceExt};
use serde::Serialize;
use serde_json::json;
use tokio::time::Instant;

use super::{Failure, Output};
use crate::bed::{Bed, BedConfig, Parts};
use crate::ports::Ports;
use crate::process::{Process, ProcessSpec};
use crate::programs::TenonPrograms;
use crate::progress::Progress;
use crate::wait::eventually;

/// Arguments of `sandbox measure`.
#[derive(Debug, Args)]
pub(super) struct MeasureArgs {
    /// How many pods are created at once
    #[arg(long, default_value_t = 1000)]
    pods: usize,
    /// How many of them fit on a node, at most
    #[arg(long, default_value_t = 4)]
    per_node: usize,
    /// Give up after so many seconds
    #[arg(long, default_value_t = 300)]
    limit: u64,
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
    /// From the creation of the pods until all run, seconds.
    all_running_seconds: f64,
    /// Nodes then.
    nodes: usize,
    /// Resident memory of the operator then, MiB.
    rss_loaded_mib: f64,
    /// From the deletion of the pods until no node is left, seconds.
    all_gone_seconds: f64,
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
    let config = BedConfig {
        parts: Parts::control_plane_only(),
        progress: progress.clone(),
        ..BedConfig::default()
    };
    let bed = Bed::start(config).await?;
    let bed_start_seconds = started.elapsed().as_secs_f64();
    let figures = measure(&bed, &programs, &args, bed_start_seconds, progress).await;
    if figures.is_err() {
        let kept = bed.stop_and_keep().await;
        anstream::eprintln!("the logs are in {}", kept.join("logs").display());
    } else {
        bed.stop().await?;
    }
    let figures = serde_json::to_value(figures?)?;
    match output {
        Output::Json => anstream::println!("{figures:#}"),
        Output::Text => {
            for (name, value) in figures.as_object().into_iter().flatten() {
                anstream::println!("{name:24} {value}");
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

async fn measure(
    bed: &Bed,
    programs: &TenonPrograms,
    args: &MeasureArgs,
    bed_start_seconds: f64,
    progress: &Progress,
) -> Result<Figures, Failure> {
    let client = bed.client();
    let limit = Duration::from_secs(args.limit);
    definitions(&client).await?;
    pools(&client, args.per_node).await?;

    let started = Instant::now();
    let (operator, health, _ports) = operator(bed, &programs.operator)?;
    eventually("the operator is ready", limit, async || Ok(is_ready(&health).await)).await?;
    let operator_ready_seconds = started.elapsed().as_secs_f64();
    let rss_idle_mib = resident_mib(operator.pid())?;

    let step = progress.step(format!("{} pods", args.pods));
    let started = Instant::now();
    workload(&client, args.pods).await?;
    let claims = custom(&client, "karpenter.sh", "v1", "NodeClaim", "nodeclaims");
    eventually("a NodeClaim appears", limit, async || {
        Ok(!claims.list_metadata(&ListParams::default().limit(1)).await?.items.is_empty())
    })
    .await?;
    let first_claim_seconds = started.elapsed().as_secs_f64();
    let pods: Api<Pod> = Api::namespaced(client.clone(), "default");
    eventually("all pods run", limit, async || {
        let running = pods
            .list(&ListParams::default().labels("app=measure").fields("status.phase=Running"))
            .await?
            .items
            .len();
        if running == args.pods {
            Ok(true)
        } else {
            Err(format!("{running} of {} run", args.pods).into())
        }
    })
    .await?;
    let all_running_seconds = started.elapsed().as_secs_f64();
    step.done();
    let nodes: Api<Node> = Api::all(client.clone());
    let n_nodes = nodes.list_metadata(&ListParams::default()).await?.items.len();
    let rss_loaded_mib = resident_mib(operator.pid())?;

    let step = progress.step("no pods".to_owned());
    let started = Instant::now();
    workload(&client, 0).await?;
    eventually("all nodes are gone", limit, async || {
        let left = nodes.list_metadata(&ListParams::default()).await?.items.len();
        if left == 0 { Ok(true) } else { Err(format!("{left} are left").into()) }
    })
    .await?;
    let all_gone_seconds = started.elapsed().as_secs_f64();
    step.done();
    operator.stop(Duration::from_secs(10)).await;
    Ok(Figures {
        bed_start_seconds,
        operator_ready_seconds,
        rss_idle_mib,
        first_claim_seconds,
        all_running_seconds,
        nodes: n_nodes,
        rss_loaded_mib,
        all_gone_seconds,
        program_mib: [("tenon", &programs.tenon), ("tenon-operator", &programs.operator)]
            .into_iter()
            .map(|(name, path)| Ok((name.to_owned(), mib(std::fs::metadata(path)?.len()))))
            .collect::<Result<_, std::io::Error>>()?,
    })
}

fn operator(bed: &Bed, program: &Path) -> Result<(Process, String, Ports), Failure> {
    let mut ports = Ports::reserve(&crate::cache::dir()?)?;
    let (health, metrics) = (ports.take()?, ports.take()?);
    let env = [
        ("KUBECONFIG", bed.control_plane().kubeconfig().display().to_string()),
        ("BIND_ADDRESS", "127.0.0.1".to_owned()),
        ("HEALTH_PROBE_PORT", health.to_string()),
        ("METRICS_PORT", metrics.to_string()),
        ("SYSTEM_NAMESPACE", "kube-system".to_owned()),
        ("HOSTNAME", "measured".to_owned()),
    ];
    let process = Process::spawn(ProcessSpec {
        name: "tenon-operator".to_owned(),
        program: program.to_path_buf(),
        args: vec!["--cloud-provider".into(), "kwok".into()],
        env: env.into_iter().map(|(name, value)| (name.to_owned(), value)).collect(),
        dir: bed.dir().to_path_buf(),
        log: bed.dir().join("logs/tenon-operator.log"),
    })?;
    Ok((process, format!("127.0.0.1:{health}"), ports))
}

/// `GET /readyz` answers 200.
async fn is_ready(address: &str) -> bool {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let answer = async {
        let mut stream = tokio::net::TcpStream::connect(address).await?;
        stream.write_all(b"GET /readyz HTTP/1.0\r\n\r\n").await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        Ok::<_, std::io::Error>(answer)
    };
    answer.await.is_ok_and(|answer| answer.split_whitespace().nth(1) == Some("200"))
}

async fn definitions(client: &Client) -> Result<(), Failure> {
    let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
    for crd in tenon_crds::manifests::all() {
        let name = crd.name_any();
        crds.patch(&name, &PatchParams::apply("measure").force(), &Patch::Apply(&crd)).await?;
        eventually(&format!("{name} is established"), Duration::from_secs(30), async || {
            let status = crds.get(&name).await?.status.unwrap_or_default();
            let conditions = status.conditions.unwrap_or_default();
            Ok(conditions.iter().any(|it| it.type_ == "Established" && it.status == "True"))
        })
        .await?;
    }
    Ok(())
}

/// A pool whose largest node holds `per_node` pods of the workload.
async fn pools(client: &Client, per_node: usize) -> Result<(), Failure> {
    let classes =
        custom(client, "karpenter.kwok.sh", "v1alpha1", "KWOKNodeClass", "kwoknodeclasses");
    let class = json!({ "apiVersion": "karpenter.kwok.sh/v1alpha1", "kind": "KWOKNodeClass", "metadata": { "name": "default" }, "spec": {} });
    classes.patch("default", &PatchParams::apply("measure").force(), &Patch::Apply(&class)).await?;
    let pools = custom(client, "karpenter.sh", "v1", "NodePool", "nodepools");
    let pool = json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": { "name": "default" },
        "spec": {
            "template": { "spec": {
                "nodeClassRef": { "group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default" },
                "requirements": [
                    { "key": "kubernetes.io/os", "operator": "In", "values": ["linux"] },
                    { "key": "karpenter.kwok.sh/instance-cpu", "operator": "Lte", "values": [per_node.to_string()] },
                ],
            } },
            "disruption": { "consolidateAfter": "0s", "budgets": [{ "nodes": "100%" }] },
        },
    });
    pools.patch("default", &PatchParams::apply("measure").force(), &Patch::Apply(&pool)).await?;
    Ok(())
}

/// Pods of a bit less than a CPU each, so that a node with n CPUs holds n of them less its overhead.
async fn workload(client: &Client, replicas: usize) -> Result<(), Failure> {
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": "measure", "namespace": "default" },
        "spec": {
            "replicas": replicas,
            "selector": { "matchLabels": { "app": "measure" } },
            "template": {
                "metadata": { "labels": { "app": "measure" } },
                "spec": {
                    "terminationGracePeriodSeconds": 0,
                    "containers": [{ "name": "pause", "image": "pause", "resources": { "requests": { "cpu": "950m", "memory": "256Mi" } } }],
                },
            },
        },
    });
    let gvk = GroupVersionKind::gvk("apps", "v1", "Deployment");
    let api: Api<DynamicObject> = Api::namespaced_with(
        client.clone(),
        "default",
        &ApiResource::from_gvk_with_plural(&gvk, "deployments"),
    );
    api.patch("measure", &PatchParams::apply("measure").force(), &Patch::Apply(&deployment))
        .await?;
    Ok(())
}

fn custom(
    client: &Client,
    group: &str,
    version: &str,
    kind: &str,
    plural: &str,
) -> Api<DynamicObject> {
    let gvk = GroupVersionKind::gvk(group, version, kind);
    Api::all_with(client.clone(), &ApiResource::from_gvk_with_plural(&gvk, plural))
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
