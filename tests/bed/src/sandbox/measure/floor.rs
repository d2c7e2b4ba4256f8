//! What pods that are all alike take where the nodes are there before and no autoscaler runs:
//! nothing that launches nodes can be faster on this machine.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::stream::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{ListParams, PostParams};
use serde::Serialize;
use tenon_aws_double::progress::Progress;
use tokio::time::Instant;

use super::alike::{all_available, cpus, workload};
use super::{Failure, MeasureArgs, cpu_seconds, difference};
use crate::bed::Bed;
use crate::kwok;
use crate::objects::is_ready_node;
use crate::user::{NodeClass, User};
use crate::wait::eventually;

/// What a machine of kwok's keeps of a CPU for itself.
const OVERHEAD: u64 = 100;

/// Nodes that are made at the same time.
const PARALLEL: usize = 16;

/// What `cargo sandbox measure floor` prints.
#[derive(Debug, Serialize)]
pub(super) struct Figures {
    /// Nodes that were there before.
    nodes: usize,
    /// From the creation of the pods until all run, seconds.
    all_running_seconds: f64,
    /// What each program computed until then, seconds.
    cpu_seconds: BTreeMap<String, f64>,
}

pub(super) async fn measure(
    bed: &Bed,
    args: &MeasureArgs,
    progress: &Progress,
) -> Result<Figures, Failure> {
    let limit = Duration::from_secs(args.limit);
    let pods = args.pods.unwrap_or(1000);
    let user = User::new(bed.client(), NodeClass::Kwok);
    let room = cpus(args) * 1000 - OVERHEAD;
    let n_nodes = pods.div_ceil(usize::try_from(room / args.cpu)?);
    let nodes: Api<Node> = Api::all(bed.client());
    let step = progress.step(format!("{n_nodes} nodes"));
    let made = (0..n_nodes).map(async |number| {
        let memory = format!("{}Gi", 2 * cpus(args));
        let node = kwok::node(&format!("node-{number:05}"), &format!("{room}m"), &memory, "1000");
        nodes.create(&PostParams::default(), &node).await.map(drop)
    });
    futures::stream::iter(made).buffer_unordered(PARALLEL).try_collect::<Vec<()>>().await?;
    eventually("all nodes are ready", limit, async || {
        let found = nodes.list(&ListParams::default()).await?.items;
        let n_ready = found.iter().filter(|node| is_ready_node(node)).count();
        if n_ready == n_nodes {
            Ok(true)
        } else {
            Err(format!("{n_ready} of {n_nodes} are ready").into())
        }
    })
    .await?;
    step.done();

    let step = progress.step(format!("{pods} pods"));
    let pids = bed.pids();
    let before = cpu_seconds(&pids)?;
    let started = Instant::now();
    workload(&user, pods, args.cpu).await?;
    all_available(bed, pods, limit).await?;
    let all_running_seconds = started.elapsed().as_secs_f64();
    let cpu_seconds = difference(&before, &cpu_seconds(&pids)?);
    step.done();
    Ok(Figures { nodes: n_nodes, all_running_seconds, cpu_seconds })
}
