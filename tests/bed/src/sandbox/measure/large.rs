//! A large cluster is there when the operator starts: what it takes to know it, to lead, and to
//! launch for a few more pods.
//!
//! The operator itself makes one NodeClaim with its Node; all others are copies of these, and the
//! pods are made as bound. So the cluster is there in minutes, where kube-scheduler would take most
//! of an hour.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::stream::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod};
use kube::api::{DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use serde::Serialize;
use serde_json::{Value, json};
use tenon_aws_double::progress::Progress;
use tokio::time::{Instant, sleep};

use super::metrics::Metrics;
use super::{
    Failure, MeasureArgs, NAME, anonymous_mib, cpu_seconds, peak_mib, resident_mib, start,
};
use crate::bed::Bed;
use crate::kwok_operators::KwokOperators;
use crate::objects;
use crate::programs::TenonPrograms;
use crate::user::{LIMIT, User, one_of};
use crate::wait::eventually;

/// CPUs of each node.
const CPUS: u64 = 4;

/// Of which pods get so much, in thousandths; kwok's machines keep the rest for themselves.
const FOR_PODS: u64 = 3_800;

/// So many pods have the same labels.
const REPLICAS: usize = 100;

/// Requests to the API server that are under way at the same time.
const PARALLEL: usize = 64;

/// How long the operator goes on with nothing to do until its memory is looked at.
const AFTERWARDS: Duration = Duration::from_secs(60);

/// Pods that come in the end, which fit on no node.
const MORE: usize = 100;

/// What `cargo sandbox measure large` prints.
#[derive(Debug, Serialize)]
pub(super) struct Figures {
    /// Nodes that are there.
    nodes: usize,
    /// Pods on them.
    pods: usize,
    /// From the operator's start to `/readyz`, seconds.
    ready_seconds: f64,
    /// From the operator's start until it leads, seconds.
    leads_seconds: f64,
    /// Resident memory of the operator a minute later, MiB.
    rss_mib: f64,
    /// The part of it that is no page of a file, MiB.
    anonymous_mib: f64,
    /// The most that it had until then, MiB.
    peak_mib: f64,
    /// What it computed until then, seconds.
    cpu_seconds: f64,
    /// Its calls to the API server until then by method, resource and status.
    api_calls: BTreeMap<String, f64>,
    /// The lowest of three runs of `tenon explain nodepool` in this cluster, seconds.
    explain_seconds: f64,
    /// From the creation of 100 pods that fit nowhere to the first NodeClaim for them, seconds.
    first_claim_seconds: f64,
}

pub(super) async fn measure(
    bed: &Bed,
    programs: &TenonPrograms,
    args: &MeasureArgs,
    progress: &Progress,
) -> Result<Figures, Failure> {
    let limit = Duration::from_secs(args.limit);
    let per_node = usize::try_from(args.per_node.unwrap_or(10))?;
    let pods = args.pods.unwrap_or(100_000);
    let nodes = pods.div_ceil(per_node);
    let tenon = KwokOperators::prepare(bed, programs.clone()).await?;
    let user = tenon.user();
    let requirements = json!([
        one_of("kubernetes.io/os", &["linux"]),
        one_of("karpenter.sh/capacity-type", &["on-demand"]),
        one_of("karpenter.kwok.sh/instance-cpu", &[&CPUS.to_string()]),
    ]);
    let operator = tenon.start("first")?;
    operator.ready(limit).await?;
    user.pool(NAME, &requirements, &json!({ "disruption": { "consolidateAfter": "30s" } })).await?;
    let cpu = FOR_PODS / u64::try_from(per_node)?;
    user.deploy(NAME, 1, &json!({ "spec": spec(cpu) })).await?;
    user.runs(NAME, 1).await?;
    let fleet = Fleet::like_the_first(user, bed).await?;
    operator.process().stop(Duration::from_secs(10)).await;

    let step = progress.step(format!("{nodes} nodes, {pods} pods"));
    let names: Vec<String> = (1..nodes).map(|number| format!("{NAME}-{number:05}")).collect();
    let made = names.iter().map(|name| fleet.node(name));
    futures::stream::iter(made).buffer_unordered(PARALLEL).try_collect::<Vec<()>>().await?;
    let mut places: Vec<&str> =
        names.iter().flat_map(|name| std::iter::repeat_n(name.as_str(), per_node)).collect();
    places.truncate(pods);
    let spec_of_all = spec(cpu);
    let made =
        places.iter().enumerate().map(|(number, place)| fleet.pod(number, place, &spec_of_all));
    futures::stream::iter(made).buffer_unordered(PARALLEL).try_collect::<Vec<()>>().await?;
    step.done();

    let step = progress.step("the operator starts".to_owned());
    let started = Instant::now();
    let operator = start(&tenon, args)?;
    operator.ready(limit).await?;
    let ready_seconds = started.elapsed().as_secs_f64();
    operator.leads(limit).await?;
    let leads_seconds = started.elapsed().as_secs_f64();
    sleep(AFTERWARDS).await;
    let pid = operator.process().pid();
    let rss_mib = resident_mib(pid)?;
    let anonymous_mib = anonymous_mib(pid)?;
    let peak_mib = peak_mib(pid)?;
    let cpu_seconds = cpu_seconds(&BTreeMap::from([(String::new(), pid)]))?;
    let api_calls = Metrics::of(&operator).await?.calls();
    step.done();

    let explain_seconds = lowest(bed, programs, &["explain", "nodepool", NAME]).await?;

    let claims = user.objects("NodeClaim");
    let known = claims.list_metadata(&ListParams::default()).await?.items.len();
    let started = Instant::now();
    user.deploy("more", MORE, &json!({ "spec": spec(cpu) })).await?;
    eventually("a NodeClaim appears", limit, async || {
        let page = claims.list_metadata(&ListParams::default().limit(1)).await?;
        let rest = page.metadata.remaining_item_count.and_then(|count| usize::try_from(count).ok());
        Ok(page.items.len() + rest.unwrap_or(0) > known)
    })
    .await?;
    let first_claim_seconds = started.elapsed().as_secs_f64();
    operator.process().stop(Duration::from_secs(10)).await;
    Ok(Figures {
        nodes,
        pods,
        ready_seconds,
        leads_seconds,
        rss_mib,
        anonymous_mib,
        peak_mib,
        cpu_seconds: cpu_seconds.values().sum(),
        api_calls,
        explain_seconds,
        first_claim_seconds,
    })
}

/// The lowest of three runs of `tenon`, seconds.
async fn lowest(bed: &Bed, programs: &TenonPrograms, args: &[&str]) -> Result<f64, Failure> {
    let mut lowest = f64::INFINITY;
    for _ in 0..3 {
        let started = Instant::now();
        let output = bed.command(&programs.tenon).args(args).output().await?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            return Err(format!("tenon {}: {said}", args.join(" ")).into());
        }
        lowest = lowest.min(started.elapsed().as_secs_f64());
    }
    Ok(lowest)
}

/// A pod as services have them: with an environment, probes, and mounts, which the operator has to
/// read and to forget.
fn spec(cpu: u64) -> Value {
    let environment: Vec<Value> = (0..12)
        .map(|number| json!({ "name": format!("SETTING_{number}"), "value": "a value of some length" }))
        .collect();
    let probe = json!({ "httpGet": { "path": "/healthz", "port": 8080 }, "periodSeconds": 10 });
    json!({
        "terminationGracePeriodSeconds": 0,
        "volumes": [{ "name": "scratch", "emptyDir": {} }],
        "containers": [{
            "name": "main",
            "image": "pause",
            "env": environment,
            "livenessProbe": probe,
            "readinessProbe": probe,
            "ports": [{ "containerPort": 8080 }],
            "volumeMounts": [{ "name": "scratch", "mountPath": "/scratch" }],
            "resources": { "requests": { "cpu": format!("{cpu}m"), "memory": "256Mi" } },
        }],
    })
}

/// Makes nodes that are like the first one, and pods.
struct Fleet {
    claims: Api<DynamicObject>,
    nodes: Api<Node>,
    pods: Api<Pod>,
    claim: DynamicObject,
    node: Node,
    /// The controller of the pods, as their metadata has it. A ReplicaSet would make pods of its
    /// own.
    owner: Value,
}

impl Fleet {
    async fn like_the_first(user: &User, bed: &Bed) -> Result<Self, Failure> {
        let claim = user.claims(NAME).await?.pop().ok_or("there is no NodeClaim")?;
        let claims = user.objects("NodeClaim");
        let name = claim.name_any();
        eventually("the first node is initialized", LIMIT, async || {
            Ok(objects::holds(&claims.get(&name).await?, "Initialized"))
        })
        .await?;
        let claim = claims.get(&name).await?;
        let node = user.nodes(NAME).await?.pop().ok_or("there is no Node")?;
        let client = bed.client();
        let owners: Api<ConfigMap> = Api::namespaced(client.clone(), "default");
        let owner: ConfigMap = serde_json::from_value(json!({ "metadata": { "name": NAME } }))?;
        let owner = owners.create(&PostParams::default(), &owner).await?;
        let owner = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "name": NAME, "uid": owner.uid(), "controller": true,
        });
        Ok(Self {
            claims: user.objects("NodeClaim"),
            nodes: Api::all(client.clone()),
            pods: Api::namespaced(client, "default"),
            claim,
            node,
            owner,
        })
    }

    /// A NodeClaim that is launched, registered and initialized, and its Node.
    async fn node(&self, name: &str) -> Result<(), kube::Error> {
        let id = format!("kwok://{name}");
        let mut claim = self.claim.clone();
        claim.metadata = kube::api::ObjectMeta {
            name: Some(name.to_owned()),
            labels: claim.metadata.labels,
            annotations: claim.metadata.annotations,
            owner_references: claim.metadata.owner_references,
            finalizers: claim.metadata.finalizers,
            ..Default::default()
        };
        let mut status = claim.data["status"].take();
        status["providerID"] = json!(id);
        status["nodeName"] = json!(name);
        let made = self.claims.create(&PostParams::default(), &claim).await?;
        let body = Patch::Merge(json!({ "status": status }));
        self.claims.patch_status(name, &PatchParams::default(), &body).await?;

        let mut node = self.node.clone();
        let labels = node.metadata.labels.map(|mut labels| {
            labels.insert("kubernetes.io/hostname".to_owned(), name.to_owned());
            labels
        });
        let annotations = node.metadata.annotations.map(|mut annotations| {
            // Whose node it is.
            let first = self.claim.name_any();
            for value in annotations.values_mut().filter(|value| **value == first) {
                name.clone_into(value);
            }
            // Ten thousand heartbeats would be all that the API server has time for.
            annotations.remove(crate::kwok::NODE_ANNOTATION);
            annotations
        });
        let owners = node.metadata.owner_references.map(|mut owners| {
            for owner in owners.iter_mut().filter(|owner| owner.kind == "NodeClaim") {
                name.clone_into(&mut owner.name);
                owner.uid = made.uid().unwrap_or_default();
            }
            owners
        });
        node.metadata = kube::api::ObjectMeta {
            name: Some(name.to_owned()),
            labels,
            annotations,
            owner_references: owners,
            finalizers: node.metadata.finalizers,
            ..Default::default()
        };
        if let Some(spec) = &mut node.spec {
            spec.provider_id = Some(id);
        }
        self.nodes.create(&PostParams::default(), &node).await.map(drop)
    }

    /// A pod that is bound to a node.
    async fn pod(&self, number: usize, place: &str, spec: &Value) -> Result<(), Failure> {
        let mut spec = spec.clone();
        spec["nodeName"] = json!(place);
        let pod = json!({
            "metadata": {
                "name": format!("pod-{number:06}"),
                "labels": { "app": format!("app-{:03}", number / REPLICAS) },
                "ownerReferences": [self.owner],
            },
            "spec": spec,
        });
        let pod: Pod = serde_json::from_value(pod)?;
        self.pods.create(&PostParams::default(), &pod).await?;
        Ok(())
    }
}
