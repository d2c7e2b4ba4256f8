//! kwok keeps up with the cluster size that the `kwok` cloud provider is measured at.

use std::time::Duration;

use futures::StreamExt;
use futures::stream;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::PostParams;
use serde_json::json;
use tenon_bed::bed::{Bed, BedConfig, Parts};
use tenon_bed::kwok;
use tenon_bed::wait::eventually;

const NODES: usize = 250;
const PODS: i32 = 1000;

#[tokio::test(flavor = "multi_thread")]
async fn two_hundred_and_fifty_nodes_run_a_thousand_pods() {
    let config = BedConfig { parts: Parts::control_plane_only(), ..BedConfig::default() };
    let bed = Bed::start(config).await.expect("the bed starts");
    let nodes: Api<Node> = Api::all(bed.client());
    let made = stream::iter(0..NODES)
        .map(|index| {
            let nodes = nodes.clone();
            let node = kwok::node(&format!("fake-{index}"), "4", "16Gi", "20");
            async move { nodes.create(&PostParams::default(), &node).await }
        })
        .buffer_unordered(16)
        .all(async |result| result.is_ok())
        .await;
    assert!(made, "all nodes are made");
    let deployments: Api<Deployment> = Api::namespaced(bed.client(), "default");
    let deployment = json!({
        "metadata": { "name": "web" },
        "spec": {
            "replicas": PODS,
            "selector": { "matchLabels": { "app": "web" } },
            "template": {
                "metadata": { "labels": { "app": "web" } },
                "spec": { "containers": [{ "name": "main", "image": "x", "resources": { "requests": { "cpu": "100m" } } }] },
            },
        },
    });
    let started = bed.clock().now();
    let deployment = serde_json::from_value(deployment).expect("a deployment");
    deployments.create(&PostParams::default(), &deployment).await.expect("created");
    eventually("all pods are available", Duration::from_mins(3), async || {
        let status = deployments.get("web").await?.status.unwrap_or_default();
        let available = status.available_replicas.unwrap_or(0);
        if available == PODS { Ok(true) } else { Err(format!("{available} of {PODS}").into()) }
    })
    .await
    .expect("kwok keeps up");
    let took = bed.clock().now().duration_since(started);
    println!("{NODES} nodes, {PODS} pods: available after {:.1} s", took.as_secs_f64());
    bed.stop().await.expect("the bed stops");
}
