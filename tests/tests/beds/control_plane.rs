//! The bed's control plane and kwok, without anything of AWS: it runs pods, survives the fall of
//! its API server, and leaves nothing behind.

use std::path::Path;
use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::{Api, Client};
use serde_json::json;
use tenon_bed::bed::{Bed, BedConfig, Parts};
use tenon_bed::kwok;
use tenon_bed::wait::eventually;

fn deployment(name: &str, replicas: i32) -> Deployment {
    serde_json::from_value(json!({
        "metadata": { "name": name },
        "spec": {
            "replicas": replicas,
            "selector": { "matchLabels": { "app": name } },
            "template": {
                "metadata": { "labels": { "app": name } },
                "spec": {
                    "terminationGracePeriodSeconds": 2,
                    "containers": [{ "name": "main", "image": "pause", "resources": { "requests": { "cpu": "100m" } } }],
                },
            },
        },
    }))
    .expect("a deployment")
}

async fn running(client: &Client) -> Result<usize, kube::Error> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), "default");
    let pods = pods.list(&ListParams::default()).await?;
    let ready = |pod: &&Pod| {
        let status = pod.status.as_ref();
        let conditions = status.and_then(|status| status.conditions.as_ref());
        conditions
            .is_some_and(|all| all.iter().any(|it| it.type_ == "Ready" && it.status == "True"))
    };
    Ok(pods.items.iter().filter(ready).count())
}

fn runs(pid: u32) -> bool {
    Path::new(&format!("/proc/{pid}")).exists()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bare_bed_runs_a_deployment_survives_its_api_server_and_leaves_no_process() {
    let config = BedConfig { parts: Parts::control_plane_only(), ..BedConfig::default() };
    let bed = Bed::start(config).await.expect("the bed starts");
    let client = bed.client();
    let (nodes, deployments): (Api<Node>, Api<Deployment>) =
        (Api::all(client.clone()), Api::namespaced(client.clone(), "default"));
    nodes
        .create(&PostParams::default(), &kwok::node("fake-1", "16", "64Gi", "110"))
        .await
        .expect("a node");
    deployments.create(&PostParams::default(), &deployment("web", 5)).await.expect("a deployment");
    let limit = Duration::from_mins(1);
    eventually("five pods are ready", limit, async || Ok(running(&client).await? == 5))
        .await
        .expect("kwok plays them");

    let started = jiff::Timestamp::UNIX_EPOCH;
    assert!(bed.clock().now() > started);
    deployments.delete("web", &DeleteParams::default()).await.expect("deleted");
    let pods: Api<Pod> = Api::namespaced(client.clone(), "default");
    eventually("its pods begin to end", limit, async || {
        let pods = pods.list(&ListParams::default()).await?;
        Ok(pods.items.iter().any(|pod| pod.metadata.deletion_timestamp.is_some()))
    })
    .await
    .expect("garbage collection deletes them");
    let deleted = pods.list(&ListParams::default()).await.expect("listed");
    let until =
        deleted.items.iter().filter_map(|pod| pod.metadata.deletion_timestamp.clone()).max();
    eventually("all pods are gone", limit, async || {
        Ok(pods.list(&ListParams::default()).await?.items.is_empty())
    })
    .await
    .expect("kwok deletes them");
    let until = until.expect("pods were being deleted").0;
    assert!(bed.clock().now() >= until, "pods go only when their grace period is over");

    bed.restart_api_server(Duration::from_millis(200)).await.expect("it comes back");
    deployments
        .create(&PostParams::default(), &deployment("again", 2))
        .await
        .expect("a deployment");
    eventually("two pods are ready", limit, async || Ok(running(&client).await? == 2))
        .await
        .expect("all parts found the API server again");

    let pids = bed.pids();
    let directory = bed.dir().to_path_buf();
    assert_eq!(pids.len(), 5, "{pids:?}");
    assert!(pids.values().all(|pid| runs(*pid)));
    bed.stop().await.expect("the bed stops");
    for (name, pid) in pids {
        assert!(!runs(pid), "{name} still runs");
    }
    assert!(!directory.exists(), "the bed's directory is gone");
}
