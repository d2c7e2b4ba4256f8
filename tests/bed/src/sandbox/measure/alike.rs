//! Pods that are all alike come and go.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{DynamicObject, ListParams};
use kube::{Api, ResourceExt};
use serde::Serialize;
use serde_json::json;
use tenon_aws_double::progress::Progress;
use tokio::time::{Instant, sleep};

use super::metrics::fleet;
use super::{
    Failure, MeasureArgs, NAME, anonymous_mib, cpu_seconds, difference, mib, resident_mib, start,
};
use crate::bed::Bed;
use crate::kwok_operators::KwokOperators;
use crate::programs::TenonPrograms;
use crate::user::{User, one_of};
use crate::wait::eventually;

/// How long the operator has nothing to do before its memory is looked at.
const IDLE: Duration = Duration::from_secs(20);

/// What `cargo sandbox measure alike` prints.
#[derive(Debug, Serialize)]
pub(super) struct Figures {
    /// From its start to `/readyz`, seconds.
    operator_ready_seconds: f64,
    /// Resident memory of the operator with an empty cluster, MiB.
    rss_idle_mib: f64,
    /// The part of it that is no page of a file, MiB.
    anonymous_idle_mib: f64,
    /// From the creation of the pods to the first NodeClaim, seconds.
    first_claim_seconds: f64,
    /// When the last pod or NodeClaim had come so far, seconds after the first pod was created; to
    /// the second, as the objects say it.
    last_after_seconds: BTreeMap<&'static str, f64>,
    /// From the creation of the pods until all run, seconds.
    all_running_seconds: f64,
    /// What each program computed until then, seconds.
    cpu_seconds: BTreeMap<String, f64>,
    /// Nodes then.
    nodes: usize,
    /// What they cost then, dollars per hour.
    price: f64,
    /// How many plans had launches until then.
    launching_plans: usize,
    /// Resident memory of the operator then, MiB.
    rss_loaded_mib: f64,
    /// The part of it that is no page of a file, MiB.
    anonymous_loaded_mib: f64,
    /// From the deletion of the pods until no node is left, seconds.
    all_gone_seconds: f64,
    /// What each program computed for that, seconds.
    gone_cpu_seconds: BTreeMap<String, f64>,
    /// Resident memory of the operator then, MiB.
    rss_gone_mib: f64,
    /// Sizes of the programs, MiB.
    program_mib: BTreeMap<String, f64>,
}

pub(super) async fn measure(
    bed: &Bed,
    programs: &TenonPrograms,
    args: &MeasureArgs,
    progress: &Progress,
) -> Result<Figures, Failure> {
    let limit = Duration::from_secs(args.limit);
    let pods = args.pods.unwrap_or(1000);
    let tenon = KwokOperators::prepare(bed, programs.clone()).await?;
    let user = tenon.user();

    let started = Instant::now();
    let operator = start(&tenon, args)?;
    operator.ready(limit).await?;
    let operator_ready_seconds = started.elapsed().as_secs_f64();
    operator.leads(limit).await?;
    sleep(IDLE).await;
    let rss_idle_mib = resident_mib(operator.process().pid())?;
    let anonymous_idle_mib = anonymous_mib(operator.process().pid())?;
    pool(user, cpus(args)).await?;
    let mut pids = bed.pids();
    pids.insert("tenon-operator".to_owned(), operator.process().pid());

    let step = progress.step(format!("{pods} pods"));
    let started = Instant::now();
    let before = cpu_seconds(&pids)?;
    workload(user, pods, args.cpu).await?;
    let claims = user.objects("NodeClaim");
    eventually("a NodeClaim appears", limit, async || {
        Ok(!claims.list_metadata(&ListParams::default().limit(1)).await?.items.is_empty())
    })
    .await?;
    let first_claim_seconds = started.elapsed().as_secs_f64();
    all_available(bed, pods, limit).await?;
    let all_running_seconds = started.elapsed().as_secs_f64();
    let cpu_seconds = difference(&before, &cpu_seconds(&pids)?);
    step.done();
    let nodes: Api<Node> = Api::all(bed.client());
    let (n_nodes, price) = fleet(bed).await?;
    let launching_plans = operator.launching_plans()?.len();
    let rss_loaded_mib = resident_mib(operator.process().pid())?;
    let anonymous_loaded_mib = anonymous_mib(operator.process().pid())?;
    let last_after_seconds = timeline(user).await?;

    let step = progress.step("no pods".to_owned());
    let started = Instant::now();
    let before = self::cpu_seconds(&pids)?;
    workload(user, 0, args.cpu).await?;
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
        operator_ready_seconds,
        rss_idle_mib,
        anonymous_idle_mib,
        first_claim_seconds,
        last_after_seconds,
        all_running_seconds,
        cpu_seconds,
        nodes: n_nodes,
        price,
        launching_plans,
        rss_loaded_mib,
        anonymous_loaded_mib,
        all_gone_seconds,
        gone_cpu_seconds,
        rss_gone_mib,
        program_mib: [("tenon", &programs.tenon), ("tenon-operator", &programs.operator)]
            .into_iter()
            .map(|(name, path)| Ok((name.to_owned(), mib(std::fs::metadata(path)?.len()))))
            .collect::<Result<_, std::io::Error>>()?,
    })
}

/// When the last pod or NodeClaim had come so far, by the times that the objects carry: seconds
/// after the first pod was created.
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

/// Waits until all pods run.
pub(super) async fn all_available(bed: &Bed, pods: usize, limit: Duration) -> Result<(), Failure> {
    // The Deployment's own count: to list a thousand pods again and again would be a good part of
    // the load.
    let deployments: Api<Deployment> = Api::namespaced(bed.client(), "default");
    eventually("all pods run", limit, async || {
        let status = deployments.get(NAME).await?.status.unwrap_or_default();
        let available = status.available_replicas.and_then(|count| usize::try_from(count).ok());
        match available.unwrap_or(0) {
            available if available == pods => Ok(true),
            available => Err(format!("{available} of {pods} are available").into()),
        }
    })
    .await?;
    Ok(())
}

/// CPUs of the largest node.
pub(super) fn cpus(args: &MeasureArgs) -> u64 {
    (args.per_node.unwrap_or(4) * args.cpu).div_ceil(1000)
}

/// A pool of on-demand machines with so many CPUs at most.
async fn pool(user: &User, cpus: u64) -> Result<(), Failure> {
    let requirements = json!([
        one_of("kubernetes.io/os", &["linux"]),
        one_of("karpenter.sh/capacity-type", &["on-demand"]),
        { "key": "karpenter.kwok.sh/instance-cpu", "operator": "Lte", "values": [cpus.to_string()] },
    ]);
    let disruption = json!({ "consolidateAfter": "0s", "budgets": [{ "nodes": "100%" }] });
    user.pool(NAME, &requirements, &json!({ "disruption": disruption })).await
}

/// Pods with so many thousandths of a CPU each.
pub(super) async fn workload(user: &User, replicas: usize, cpu: u64) -> Result<(), kube::Error> {
    let requests = json!({ "cpu": format!("{cpu}m"), "memory": "256Mi" });
    let container =
        json!({ "name": "main", "image": "pause", "resources": { "requests": requests } });
    let spec = json!({ "terminationGracePeriodSeconds": 0, "containers": [container] });
    user.deploy(NAME, replicas, &json!({ "spec": spec })).await
}
