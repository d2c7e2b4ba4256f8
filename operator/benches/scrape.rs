//! What a scrape of a cluster of 10,000 nodes and 100,000 pods takes: time, bytes, and the memory
//! that it adds at its peak. Written in pieces, as the server does it, and as a whole, which is
//! what a scrape would cost otherwise.
//!
//! `cargo bench -p tenon-operator --bench scrape` (Linux: it reads `/proc/self`). The AWS SDK is
//! compiled for it in the profile `bench`; with `--profile dev` nothing is compiled that `cargo
//! test` has not compiled already, and the times are upper bounds.

use std::sync::Arc;

use serde_json::{Value, json};
use tenon_crds::labels::LabelRules;
use tenon_operator::clock::Clock;
use tenon_operator::gauges::{Gauges, conditions::Conditions, pods::Pods};
use tenon_operator::metrics::Metrics;
use tenon_operator::state::State;
use tenon_operator::state::change::{Change, Object};
use tenon_operator::state::cluster::Cluster;
use tenon_state::node_class;
use tokio::time::Instant;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const NODES: usize = 10_000;
const PODS_PER_NODE: usize = 10;

#[expect(clippy::unnecessary_box_returns, reason = "changes carry objects in boxes")]
fn object<T: serde::de::DeserializeOwned>(value: Value) -> Box<T> {
    Box::new(serde_json::from_value(value).expect("it is as the API server writes it"))
}

fn cluster() -> Cluster {
    let mut cluster = Cluster::new(&[node_class::KWOK], LabelRules::core());
    let created = "2026-11-20T00:00:00Z";
    let conditions = |types: &[&str]| -> Vec<Value> {
        let condition = |type_: &&str| json!({"type": type_, "status": "True", "reason": type_, "message": "", "lastTransitionTime": created});
        types.iter().map(condition).collect()
    };
    let resources =
        json!({"cpu": "16", "memory": "64Gi", "ephemeral-storage": "100Gi", "pods": "110"});
    for i in 0..NODES {
        let (name, id) = (
            format!("ip-10-0-{}-{}.eu-central-1.compute.internal", i / 250, i % 250),
            format!("kwok://{i}"),
        );
        let labels = json!({"karpenter.sh/nodepool": "default", "topology.kubernetes.io/zone": "eu-central-1a",
            "topology.kubernetes.io/region": "eu-central-1", "node.kubernetes.io/instance-type": "m7i.4xlarge",
            "kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux", "karpenter.sh/capacity-type": "spot"});
        cluster.apply(Change::Applied(Object::NodeClaim(object(json!({
            "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
            "metadata": {"name": format!("default-{i:05}"), "uid": format!("c{i}"), "creationTimestamp": created, "labels": labels},
            "spec": {"requirements": [], "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"}},
            "status": {"providerID": id, "capacity": resources,
                "conditions": conditions(&["Launched", "Registered", "Initialized", "Ready", "Consolidatable", "ConsistentStateFound"])},
        })))));
        cluster.apply(Change::Applied(Object::Node(object(json!({
            "metadata": {"name": name, "uid": format!("n{i}"), "creationTimestamp": created, "labels": labels},
            "spec": {"providerID": id},
            "status": {"capacity": resources, "allocatable": resources,
                "conditions": conditions(&["Ready", "MemoryPressure", "DiskPressure", "PIDPressure"])},
        })))));
        for j in 0..PODS_PER_NODE {
            cluster.apply(Change::Applied(Object::Pod(object(json!({
                "metadata": {"namespace": format!("team-{}", i % 100), "name": format!("web-6b4f9c7d5-{i:05}{j}"), "uid": format!("p{i}-{j}"),
                    "creationTimestamp": created},
                "spec": {"nodeName": name, "containers": [{"resources": {"requests": {"cpu": "500m", "memory": "1Gi"}}}]},
                "status": {"phase": "Running"},
            })))));
        }
    }
    cluster
}

/// A line of `/proc/self/status` in MiB.
fn memory(field: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux has it");
    let line = status.lines().find_map(|line| line.strip_prefix(field)).expect("it has this line");
    line.split_whitespace().next().and_then(|kb| kb.parse::<u64>().ok()).expect("a number") / 1024
}

#[expect(clippy::print_stdout, reason = "a benchmark says what it measured")]
fn main() {
    let (state, _task) = State::new(cluster());
    let metrics = Metrics::new();
    let clock = Clock::system();
    metrics.expose(Arc::new(Gauges::new(state.clone(), clock)));
    metrics.expose(Arc::new(Conditions::new(state.clone(), clock)));
    metrics.expose(Arc::new(Pods::new(state, clock, &metrics)));
    let in_pieces = || {
        let mut bytes = 0;
        let written = metrics.write(&mut |piece| {
            bytes += piece.len();
            Ok(())
        });
        written.expect("nobody goes away");
        bytes
    };
    let as_a_whole = || metrics.encode().expect("nobody goes away").len();
    // In this order: what the second has taken would be there for the first already.
    let ways: [(&str, &dyn Fn() -> usize); 2] =
        [("in pieces", &in_pieces), ("as a whole", &as_a_whole)];
    for (way, scrape) in ways {
        // Resets the peak to what is resident now.
        std::fs::write("/proc/self/clear_refs", "5").expect("Linux takes it");
        let (before, began) = (memory("VmRSS:"), Instant::now());
        let bytes = scrape();
        let took = began.elapsed();
        let peak = memory("VmHWM:").saturating_sub(before);
        println!("{way}: {} MiB in {took:?}, at most {peak} MiB above {before} MiB", bytes >> 20);
    }
}
