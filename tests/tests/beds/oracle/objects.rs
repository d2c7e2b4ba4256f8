//! What the cluster is furnished with, and the objects that become of plans.

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{Namespace, Node, PersistentVolume, PersistentVolumeClaim};
use kube::api::PostParams;
use kube::{Api, Client};
use serde_json::{Value, json};
use tenon_bed::kwok::NODE_ANNOTATION;
use tenon_bed::user::LIMIT;
use tenon_bed::wait::{eventually, must};
use tenon_crds::NodePool;
use tenon_crds::labels;
use tenon_planner::plan::Launch;
use tenon_planner::snapshot::{InstanceType, Offering, Operator};
use tenon_state::node_class::KWOK;

use super::PIN;
use super::workloads::{App, NAMESPACES, ZONE};

/// A NodePool as a user writes it.
pub(super) fn manifest(name: &str, requirements: &Value, spec: &Value) -> Value {
    let mut pool = json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodePool",
        "metadata": { "name": name },
        "spec": {
            "weight": spec["weight"],
            "template": { "spec": {
                "nodeClassRef": { "group": KWOK.group, "kind": KWOK.kind, "name": "default" },
                "requirements": requirements,
            } },
            "disruption": { "consolidateAfter": "Never" },
        },
    });
    if let Some(taints) = spec.pointer("/template/spec/taints") {
        pool["spec"]["template"]["spec"]["taints"] = taints.clone();
    }
    pool
}

/// A NodePool as the API server would have it.
pub(super) fn pool(name: &str, requirements: &Value, spec: &Value) -> NodePool {
    let mut pool = manifest(name, requirements, spec);
    pool["metadata"]["uid"] = json!(name);
    pool["status"] = json!({ "conditions": [{
        "type": "Ready", "status": "True", "reason": "Ready", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z",
    }] });
    serde_json::from_value(pool).expect("a NodePool")
}

/// The Node that a launch leads to.
pub(super) fn node(name: &str, launch: &Launch, kind: &InstanceType, offering: &Offering) -> Node {
    let mut labels = launch.labels.clone();
    let single = kind.requirements.iter().chain(&launch.requirements);
    let single = single.filter(|it| it.operator == Operator::In && it.values.len() == 1);
    labels.extend(single.map(|it| (it.key.clone(), it.values[0].clone())));
    for (key, value) in [
        (ZONE, offering.zone.as_str()),
        (labels::CAPACITY_TYPE, offering.capacity_type.as_str()),
        ("node.kubernetes.io/instance-type", &kind.name),
        ("kubernetes.io/hostname", name),
    ] {
        labels.insert(key.to_owned(), value.to_owned());
    }
    let room = |capacity: i64, overhead: i64| capacity - overhead;
    let allocatable = json!({
        "cpu": format!("{}m", room(kind.capacity.cpu, kind.overhead.cpu)),
        "memory": room(kind.capacity.memory, kind.overhead.memory).to_string(),
        "ephemeral-storage": room(kind.capacity.ephemeral_storage, kind.overhead.ephemeral_storage).to_string(),
        "pods": room(kind.capacity.pods, kind.overhead.pods).to_string(),
    });
    let mut taints = json!(launch.taints);
    let pin = json!({ "key": PIN, "value": name, "effect": "NoSchedule" });
    taints.as_array_mut().expect("a list").push(pin);
    let node = json!({
        "metadata": { "name": name, "labels": labels, "annotations": { NODE_ANNOTATION: "fake" } },
        "spec": { "taints": taints, "providerID": format!("oracle:///{name}") },
        "status": { "capacity": allocatable, "allocatable": allocatable },
    });
    serde_json::from_value(node).expect("a Node")
}

/// Volumes that exist in one zone each, and the claims that are bound to them.
pub(super) async fn volumes(client: &Client, apps: &[App]) {
    for (app, zone) in apps.iter().filter_map(|app| Some((app, app.volume?))) {
        let spec = json!({
            "accessModes": ["ReadWriteMany"],
            "storageClassName": "",
            "volumeName": app.name,
            "resources": { "requests": { "storage": "1Gi" } },
        });
        let claim = json!({ "metadata": { "name": app.name }, "spec": spec });
        let volume = json!({
            "metadata": { "name": app.name },
            "spec": {
                "accessModes": ["ReadWriteMany"],
                "capacity": { "storage": "1Gi" },
                "claimRef": { "namespace": app.namespace, "name": app.name },
                "nfs": { "server": "192.0.2.1", "path": "/" },
                "persistentVolumeReclaimPolicy": "Retain",
                "nodeAffinity": { "required": { "nodeSelectorTerms": [{ "matchExpressions": [
                    { "key": ZONE, "operator": "In", "values": [zone] },
                ] }] } },
            },
        });
        let volumes: Api<PersistentVolume> = Api::all(client.clone());
        let claims: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), app.namespace);
        let volume = serde_json::from_value(volume).expect("a volume");
        must(volumes.create(&PostParams::default(), &volume).await);
        let claim = serde_json::from_value(claim).expect("a claim");
        must(claims.create(&PostParams::default(), &claim).await);
        let what = format!("the claim {} is bound", app.name);
        let is_bound = eventually(&what, LIMIT, async || {
            let status = claims.get(&app.name).await?.status;
            Ok(status.and_then(|status| status.phase).as_deref() == Some("Bound"))
        });
        must(is_bound.await);
    }
}

/// A second namespace, and a DaemonSet that runs on every machine.
pub(super) async fn furnish(client: &Client) {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let namespace = json!({ "metadata": { "name": NAMESPACES[1], "labels": { "tenant": "yes" } } });
    let namespace = serde_json::from_value(namespace).expect("a namespace");
    must(namespaces.create(&PostParams::default(), &namespace).await);
    let sets: Api<DaemonSet> = Api::namespaced(client.clone(), "kube-system");
    let set = json!({
        "metadata": { "name": "agent" },
        "spec": {
            "selector": { "matchLabels": { "app": "agent" } },
            "template": {
                "metadata": { "labels": { "app": "agent" } },
                "spec": {
                    "tolerations": [{ "operator": "Exists" }],
                    "terminationGracePeriodSeconds": 0,
                    "containers": [{
                        "name": "main", "image": "registry.example/agent:1",
                        "resources": { "requests": { "cpu": "60m", "memory": "100Mi" } },
                    }],
                },
            },
        },
    });
    let set = serde_json::from_value(set).expect("a DaemonSet");
    must(sets.create(&PostParams::default(), &set).await);
}
