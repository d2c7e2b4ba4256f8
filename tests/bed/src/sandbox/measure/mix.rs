//! The case `basic` of upstream's performance suite: small and large pods at once, of which three
//! in ten go later. What is planned is compared with what comes of it: nodes, price, where
//! kube-scheduler put the pods, and what consolidation had to mend.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Node;
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use serde::Serialize;
use serde_json::json;
use tenon_aws_double::progress::Progress;
use tokio::time::{Instant, sleep};

use super::metrics::{Metrics, fleet};
use super::{Failure, MeasureArgs, NAME, cpu_seconds, difference, resident_mib, start};
use crate::bed::Bed;
use crate::kwok_operators::KwokOperators;
use crate::programs::TenonPrograms;
use crate::user::{User, one_of};
use crate::wait::eventually;

/// The Deployments: name, CPU and memory of each pod.
const WORKLOADS: [(&str, &str, &str); 2] =
    [("small", "900m", "3100Mi"), ("large", "3500m", "28Gi")];

/// After this time without a change of the nodes the cluster is at rest.
const REST: Duration = Duration::from_secs(75);

/// What is looked at after all pods run.
const AFTERWARDS: Duration = Duration::from_secs(60);

/// What `cargo sandbox measure mix` prints.
#[derive(Debug, Serialize)]
pub(super) struct Figures {
    /// Nodes that the first plan had.
    nodes_of_first_plan: u64,
    /// How many plans had launches until all pods ran.
    launching_plans: usize,
    /// NodeClaims created until all pods ran.
    nodeclaims: f64,
    /// From the creation of the pods until all run, seconds.
    all_running_seconds: f64,
    /// Nodes then.
    nodes: usize,
    /// What they cost then, dollars per hour.
    price: f64,
    /// Of the pods that were planned for, the share that was bound where it was planned, per cent.
    bound_as_planned_percent: f64,
    /// What each program computed until then, seconds.
    cpu_seconds: BTreeMap<String, f64>,
    /// Resident memory of the operator then, MiB.
    rss_mib: f64,
    /// Evictions in the minute after all pods ran, though nothing had changed.
    evictions_afterwards: f64,
    /// Nodes and price at the end of that minute.
    settled: (usize, f64),
    /// From when three in ten pods were deleted until no node came or went any more, seconds;
    /// `None` when the limit came first.
    rest_seconds: Option<f64>,
    /// Nodes and price then.
    rest: (usize, f64),
    /// Evictions until then.
    rest_evictions: f64,
    /// Calls of the operator to the API server by method, resource and status.
    api_calls: BTreeMap<String, f64>,
}

pub(super) async fn measure(
    bed: &Bed,
    programs: &TenonPrograms,
    args: &MeasureArgs,
    progress: &Progress,
) -> Result<Figures, Failure> {
    let limit = Duration::from_secs(args.limit);
    let tenon = KwokOperators::prepare(bed, programs.clone()).await?;
    let user = tenon.user();
    let operator = start(&tenon, args)?;
    operator.ready(limit).await?;
    let requirements = json!([
        one_of("kubernetes.io/os", &["linux"]),
        one_of("karpenter.sh/capacity-type", &["on-demand"]),
        { "key": "karpenter.kwok.sh/instance-size", "operator": "Lt", "values": ["32"] },
    ]);
    let disruption = json!({ "consolidateAfter": "30s", "budgets": [{ "nodes": "100%" }] });
    user.pool(NAME, &requirements, &json!({ "disruption": disruption })).await?;
    operator.leads(limit).await?;
    let mut pids = bed.pids();
    pids.insert("tenon-operator".to_owned(), operator.process().pid());

    let each = args.pods.unwrap_or(1000) / 2;
    let step = progress.step(format!("{each} small and {each} large pods"));
    let before = cpu_seconds(&pids)?;
    let started = Instant::now();
    scale(user, each).await?;
    all_run(bed, each, limit).await?;
    let all_running_seconds = started.elapsed().as_secs_f64();
    let cpu_seconds = difference(&before, &cpu_seconds(&pids)?);
    let rss_mib = resident_mib(operator.process().pid())?;
    step.done();
    let plans = operator.launching_plans()?;
    let metrics = Metrics::of(&operator).await?;
    let (as_planned, elsewhere) = (
        metrics.sum("tenon_planned_pods_bound_total", "as_planned=\"true\""),
        metrics.sum("tenon_planned_pods_bound_total", "as_planned=\"false\""),
    );
    let (nodes, price) = fleet(bed).await?;
    let nodeclaims = metrics.sum("karpenter_nodeclaims_created_total", "");

    let step = progress.step("a minute of nothing".to_owned());
    sleep(AFTERWARDS).await;
    let metrics = Metrics::of(&operator).await?;
    let evictions = metrics.evictions();
    let settled = fleet(bed).await?;
    step.done();

    let step = progress.step("three in ten pods go".to_owned());
    let started = Instant::now();
    scale(user, each * 7 / 10).await?;
    let rest_seconds = at_rest(bed, started, limit).await?;
    step.done();
    let metrics = Metrics::of(&operator).await?;
    let rest = fleet(bed).await?;
    let rest_evictions = metrics.evictions() - evictions;
    operator.process().stop(Duration::from_secs(10)).await;
    Ok(Figures {
        nodes_of_first_plan: plans.first().map_or(0, |plan| plan.nodeclaims),
        launching_plans: plans.len(),
        nodeclaims,
        all_running_seconds,
        nodes,
        price,
        bound_as_planned_percent: 100.0 * as_planned / (as_planned + elsewhere).max(1.0),
        cpu_seconds,
        rss_mib,
        evictions_afterwards: evictions,
        settled,
        rest_seconds,
        rest,
        rest_evictions,
        api_calls: metrics.calls(),
    })
}

/// Gives both Deployments this many pods.
async fn scale(user: &User, replicas: usize) -> Result<(), kube::Error> {
    for (name, cpu, memory) in WORKLOADS {
        let requests = json!({ "cpu": cpu, "memory": memory });
        let container =
            json!({ "name": "main", "image": "pause", "resources": { "requests": requests } });
        let spec = json!({ "terminationGracePeriodSeconds": 0, "containers": [container] });
        user.deploy(name, replicas, &json!({ "spec": spec })).await?;
    }
    Ok(())
}

async fn all_run(bed: &Bed, each: usize, limit: Duration) -> Result<(), Failure> {
    let deployments: Api<Deployment> = Api::namespaced(bed.client(), "default");
    eventually("all pods run", limit, async || {
        let mut available = 0;
        for (name, ..) in WORKLOADS {
            let status = deployments.get(name).await?.status.unwrap_or_default();
            let count = status.available_replicas.and_then(|count| usize::try_from(count).ok());
            available += count.unwrap_or(0);
        }
        if available == 2 * each {
            Ok(true)
        } else {
            Err(format!("{available} of {} are available", 2 * each).into())
        }
    })
    .await?;
    Ok(())
}

/// Waits until the same nodes are there for a while; answers when the last one came or went.
async fn at_rest(bed: &Bed, since: Instant, limit: Duration) -> Result<Option<f64>, Failure> {
    let nodes: Api<Node> = Api::all(bed.client());
    let (mut known, mut changed) = (Vec::new(), since);
    while since.elapsed() < limit {
        let found = nodes.list_metadata(&ListParams::default()).await?.items;
        let mut names: Vec<String> = found.iter().map(ResourceExt::name_any).collect();
        names.sort();
        if names != known {
            (known, changed) = (names, Instant::now());
        } else if changed.elapsed() > REST {
            return Ok(Some(changed.duration_since(since).as_secs_f64()));
        }
        sleep(Duration::from_secs(1)).await;
    }
    Ok(None)
}
