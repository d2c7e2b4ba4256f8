//! The system nodes: two small machines of a managed node group, where the operator's pods run.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::json;
use tenon_aws_double::clock::Clock;

use crate::attacher::MANAGED_ANNOTATION;

/// A system node to register.
#[derive(Clone, Debug)]
pub struct SystemNode {
    /// Name of the Node.
    pub name: String,
    /// Its availability zone.
    pub zone: String,
    /// Value of `topology.kubernetes.io/region`.
    pub region: String,
    /// Its address in the VPC; nothing listens there.
    pub address: String,
    /// The EC2 instance that it is in the AWS double.
    pub instance_id: String,
    /// Value of `node.kubernetes.io/instance-type`.
    pub instance_type: String,
    /// Labels beside Kubernetes' own.
    pub labels: BTreeMap<String, String>,
    /// Whether it is kept for critical add-ons by the taint `CriticalAddonsOnly`, so that other
    /// pods need nodes of their own.
    pub critical_addons_only: bool,
}

/// A node can't be registered.
#[derive(Debug, thiserror::Error)]
#[error("can't register the system node {node}")]
pub struct NodeError {
    node: String,
    source: kube::Error,
}

pub(super) async fn register(
    client: &Client,
    node: &SystemNode,
    kubelet_port: u16,
    clock: Clock,
) -> Result<(), NodeError> {
    let failed = |source| NodeError { node: node.name.clone(), source };
    let mut labels = node.labels.clone();
    for (key, value) in [
        ("kubernetes.io/hostname", &node.name),
        ("node.kubernetes.io/instance-type", &node.instance_type),
        ("topology.kubernetes.io/zone", &node.zone),
        ("topology.kubernetes.io/region", &node.region),
    ] {
        labels.insert(key.to_owned(), value.clone());
    }
    for (key, value) in [("kubernetes.io/os", "linux"), ("kubernetes.io/arch", "amd64")] {
        labels.insert(key.to_owned(), value.to_owned());
    }
    let taints = if node.critical_addons_only {
        json!([{ "key": "CriticalAddonsOnly", "value": "true", "effect": "NoSchedule" }])
    } else {
        json!([])
    };
    let capacity =
        json!({ "cpu": "4", "memory": "15896Mi", "pods": "58", "ephemeral-storage": "80Gi" });
    let object: Node = serde_json::from_value(json!({
        "metadata": {
            "name": node.name, "labels": labels, "annotations": { MANAGED_ANNOTATION: "true" },
        },
        "spec": { "providerID": format!("aws:///{}/{}", node.zone, node.instance_id), "taints": taints },
        "status": {
            "capacity": capacity,
            "allocatable": capacity,
            "addresses": [
                { "type": "InternalIP", "address": node.address },
                { "type": "Hostname", "address": node.name },
                // Where the API server finds the kubelet.
                { "type": "ExternalIP", "address": "127.0.0.1" },
            ],
            "daemonEndpoints": { "kubeletEndpoint": { "Port": kubelet_port } },
            "nodeInfo": {
                "architecture": "amd64", "operatingSystem": "linux", "kubeletVersion": "v1.36.3", "kubeProxyVersion": "",
                "containerRuntimeVersion": "processes://1", "kernelVersion": "", "osImage": "the bed", "machineID": "",
                "bootID": "", "systemUUID": "",
            },
            "conditions": conditions(clock),
        },
    }))
    .expect("a valid node");
    let nodes: Api<Node> = Api::all(client.clone());
    nodes.create(&PostParams::default(), &object).await.map_err(failed)?;
    renew(client, &node.name, clock).await.map_err(failed)
}

/// Heartbeats: the lease every ten seconds, the status every minute.
pub(super) async fn keep_alive(client: Client, name: String, clock: Clock) {
    let nodes: Api<Node> = Api::all(client.clone());
    let mut beats = tokio::time::interval(Duration::from_secs(10));
    for beat in 0_u64.. {
        beats.tick().await;
        let mut result = renew(&client, &name, clock).await;
        if result.is_ok() && beat % 6 == 0 {
            let status = json!({ "status": { "conditions": conditions(clock) } });
            result = nodes
                .patch_status(&name, &PatchParams::default(), &Patch::Strategic(status))
                .await
                .map(drop);
        }
        if let Err(error) = result {
            tracing::warn!(
                node = name,
                error = &error as &dyn std::error::Error,
                "a heartbeat failed"
            );
        }
    }
}

async fn renew(client: &Client, name: &str, clock: Clock) -> Result<(), kube::Error> {
    let leases: Api<Lease> = Api::namespaced(client.clone(), "kube-node-lease");
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": { "name": name },
        "spec": { "holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": clock.micro_time() },
    });
    leases.patch(name, &PatchParams::apply("kubelet").force(), &Patch::Apply(lease)).await.map(drop)
}

fn conditions(clock: Clock) -> serde_json::Value {
    let now = clock.time();
    let all = [
        ("Ready", "True", "KubeletReady"),
        ("MemoryPressure", "False", "KubeletHasSufficientMemory"),
        ("DiskPressure", "False", "KubeletHasNoDiskPressure"),
        ("PIDPressure", "False", "KubeletHasSufficientPID"),
    ];
    all.map(|(type_, status, reason)| {
        json!({ "type": type_, "status": status, "reason": reason, "message": "", "lastHeartbeatTime": now, "lastTransitionTime": now })
    })
    .into()
}
