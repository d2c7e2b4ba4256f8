//! What it takes to list a large cluster: the time to parse the API server's answers and to take
//! the objects in, and the memory that stays.
//!
//! `cargo bench -p tenon-state --bench start [-- NODES [PODS_PER_NODE]]` (Linux: it reads
//! `/proc/self/statm`); 10,000 nodes with 10 pods each otherwise.
#![expect(
    clippy::print_stdout,
    reason = "a benchmark reads its own process and the clock, and says what it measured"
)]

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use kube::core::ObjectList;
use serde_json::{Value, json};
use tenon_crds::NodeClaim;
use tenon_crds::labels::LabelRules;
use tenon_state::change::{Change, ObjectKey, Watched};
use tenon_state::cluster::Cluster;
use tenon_state::guarded::Guarded;
use tenon_state::node_class::NodeClassKind;
use tenon_state::wire::{Node, Pod};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Objects in a page of a list, as kube asks for them.
const PAGE: usize = 500;

const KINDS: &[NodeClassKind] = &[NodeClassKind {
    group: "karpenter.kwok.sh",
    kind: "KWOKNodeClass",
    label: "karpenter.kwok.sh/kwoknodeclass",
}];

/// Resident memory in KiB, with pages of 4 KiB.
fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("Linux has it");
    let pages = statm.split_whitespace().nth(1).and_then(|pages| pages.parse::<usize>().ok());
    pages.expect("the second number is the resident set") * 4
}

/// What one kind took.
#[derive(Default)]
struct Taken {
    bytes: usize,
    parsing: Duration,
    applying: Duration,
}

/// Lists objects of one kind page by page, as the watches do.
fn list<K: Watched>(cluster: &mut Cluster, count: usize, object: impl Fn(usize) -> Value) {
    let before = resident();
    let mut taken = Taken::default();
    let mut listed = BTreeSet::new();
    cluster.apply(Change::ListBegan(K::KIND));
    for first in (0..count).step_by(PAGE) {
        let items: Vec<Value> = (first..count.min(first + PAGE)).map(&object).collect();
        let page = json!({ "kind": "List", "apiVersion": "v1", "metadata": {}, "items": items })
            .to_string();
        drop(items);
        taken.bytes += page.len();
        let started = Instant::now();
        let parsed: ObjectList<Guarded<K>> = serde_json::from_str(&page).expect("a page");
        taken.parsing += started.elapsed();
        let started = Instant::now();
        for object in parsed.items {
            listed.insert(ObjectKey::of(&object));
            let object = object.into_result().unwrap_or_else(|invalid| panic!("{}", invalid.error));
            cluster.apply(Change::InList(object.into_object()));
        }
        taken.applying += started.elapsed();
    }
    let started = Instant::now();
    cluster.apply(Change::Listed(K::KIND, listed));
    taken.applying += started.elapsed();
    let Taken { bytes, parsing, applying } = taken;
    println!(
        "{count:>7} {:<10} {:>6} KiB of JSON, {:>5} B each; parsed in {:>5} ms, taken in in {:>5} ms; {:>6} KiB stay, {:>5} B each",
        K::kind(&()),
        bytes >> 10,
        bytes / count,
        parsing.as_millis(),
        applying.as_millis(),
        resident().saturating_sub(before),
        (resident().saturating_sub(before) << 10) / count,
    );
}

/// Who wrote what, as the API server keeps it: about as large as the rest.
fn managers(fields: usize) -> Value {
    let fields: serde_json::Map<String, Value> = (0..fields)
        .map(|number| (format!("f:aFieldOfSomeName{number}"), json!({ ".": {}, "f:name": {} })))
        .collect();
    json!([
        { "manager": "kube-controller-manager", "operation": "Update", "apiVersion": "v1", "time": "2026-01-01T00:00:00Z", "fieldsType": "FieldsV1", "fieldsV1": { "f:spec": fields } },
        { "manager": "kubelet", "operation": "Update", "apiVersion": "v1", "time": "2026-01-01T00:00:00Z", "fieldsType": "FieldsV1", "subresource": "status",
            "fieldsV1": { "f:status": { "f:conditions": { "k:{\"type\":\"Ready\"}": { ".": {}, "f:type": {} } }, "f:phase": {}, "f:podIP": {} } } },
    ])
}

fn conditions(types: &[&str]) -> Vec<Value> {
    types.iter().map(|type_| condition(type_)).collect()
}

fn condition(type_: &str) -> Value {
    json!({ "type": type_, "status": "True", "lastProbeTime": null, "lastTransitionTime": "2026-01-01T00:00:00Z", "reason": type_, "observedGeneration": 1, "message": "" })
}

fn uid(number: usize) -> String {
    format!("7bf9b7cf-0000-4000-8000-{number:012x}")
}

fn node_name(number: usize) -> String {
    format!(
        "ip-10-{}-{}-{}.eu-central-1.compute.internal",
        number >> 16,
        number >> 8 & 255,
        number & 255
    )
}

fn claim_name(number: usize) -> String {
    format!("default-{number:05}")
}

fn node_labels(number: usize) -> Value {
    json!({
        "beta.kubernetes.io/arch": "amd64", "beta.kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux",
        "kubernetes.io/hostname": node_name(number), "karpenter.sh/nodepool": "default", "karpenter.sh/capacity-type": "on-demand",
        "karpenter.sh/registered": "true", "karpenter.sh/initialized": "true", "karpenter.kwok.sh/kwoknodeclass": "default",
        "node.kubernetes.io/instance-type": "m5.xlarge", "topology.kubernetes.io/zone": "eu-central-1a", "topology.kubernetes.io/region": "eu-central-1",
        "karpenter.kwok.sh/instance-cpu": "4", "karpenter.kwok.sh/instance-memory": "16384", "karpenter.kwok.sh/instance-family": "m5",
        "karpenter.kwok.sh/instance-size": "xlarge",
    })
}

fn resources() -> Value {
    json!({ "cpu": "4", "memory": "16Gi", "ephemeral-storage": "20Gi", "pods": "110", "hugepages-1Gi": "0", "hugepages-2Mi": "0" })
}

fn node(number: usize) -> Value {
    json!({
        "metadata": {
            "name": node_name(number), "uid": uid(number), "resourceVersion": number.to_string(), "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": node_labels(number), "finalizers": ["karpenter.sh/termination"],
            "annotations": { "node.alpha.kubernetes.io/ttl": "0", "volumes.kubernetes.io/controller-managed-attach-detach": "true" },
            "ownerReferences": [{ "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim", "name": claim_name(number), "uid": uid(number), "blockOwnerDeletion": true }],
            "managedFields": managers(20),
        },
        "spec": { "providerID": format!("kwok://{}", claim_name(number)), "podCIDR": "10.0.0.0/24" },
        "status": {
            "capacity": resources(), "allocatable": resources(),
            "conditions": conditions(&["MemoryPressure", "DiskPressure", "PIDPressure", "Ready"]),
            "addresses": [{ "type": "InternalIP", "address": "10.0.0.1" }],
            "images": (0..10).map(|image| json!({ "names": [format!("registry/some/image-{image}@sha256:0000000000000000")], "sizeBytes": 100_000_000 })).collect::<Vec<_>>(),
            "nodeInfo": { "bootID": uid(number), "kubeletVersion": "v1.36.0", "operatingSystem": "linux", "architecture": "amd64" },
        },
    })
}

fn claim(number: usize) -> Value {
    let types: Vec<String> = (0..60).map(|number| format!("m{number}.xlarge")).collect();
    json!({
        "metadata": {
            "name": claim_name(number), "uid": uid(number), "resourceVersion": number.to_string(), "creationTimestamp": "2026-01-01T00:00:00Z", "generation": 1,
            "labels": node_labels(number), "finalizers": ["karpenter.sh/termination"],
            "annotations": { "karpenter.sh/nodepool-hash": "3966394518163087183", "karpenter.sh/nodepool-hash-version": "v3" },
            "ownerReferences": [{ "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "name": "default", "uid": uid(0), "blockOwnerDeletion": true }],
            "managedFields": managers(20),
        },
        "spec": {
            "expireAfter": "720h", "nodeClassRef": { "group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default" },
            "requirements": [
                { "key": "node.kubernetes.io/instance-type", "operator": "In", "values": types },
                { "key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"] },
                { "key": "karpenter.sh/nodepool", "operator": "In", "values": ["default"] },
                { "key": "kubernetes.io/os", "operator": "In", "values": ["linux"] },
                { "key": "karpenter.kwok.sh/instance-cpu", "operator": "In", "values": ["4"] },
            ],
            "resources": { "requests": { "cpu": "3800m", "memory": "2560Mi", "pods": "10" } },
        },
        "status": {
            "providerID": format!("kwok://{}", claim_name(number)), "nodeName": node_name(number), "imageID": "ami-0123456789abcdef0",
            "capacity": resources(), "allocatable": resources(),
            "conditions": conditions(&["ConsistentStateFound", "Consolidatable", "Initialized", "Launched", "Ready", "Registered"]),
        },
    })
}

fn pod(number: usize, per_node: usize) -> Value {
    let environment: Vec<Value> =
        (0..12).map(|number| json!({ "name": format!("SETTING_{number}"), "value": "a value of some length" })).collect();
    let probe = json!({ "httpGet": { "path": "/healthz", "port": 8080, "scheme": "HTTP" }, "periodSeconds": 10, "timeoutSeconds": 1, "successThreshold": 1, "failureThreshold": 3 });
    let app = format!("app-{:03}", number / 100);
    json!({
        "metadata": {
            "name": format!("{app}-7d4b9c6f5d-{number:06}"), "generateName": format!("{app}-7d4b9c6f5d-"), "namespace": "default", "uid": uid(number),
            "resourceVersion": number.to_string(), "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": { "app": app, "pod-template-hash": "7d4b9c6f5d" },
            "ownerReferences": [{ "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": format!("{app}-7d4b9c6f5d"), "uid": uid(number / 100), "controller": true, "blockOwnerDeletion": true }],
            "managedFields": managers(40),
        },
        "spec": {
            "nodeName": node_name(number / per_node), "serviceAccountName": "default", "schedulerName": "default-scheduler", "restartPolicy": "Always", "dnsPolicy": "ClusterFirst",
            "terminationGracePeriodSeconds": 30, "priority": 0, "preemptionPolicy": "PreemptLowerPriority", "enableServiceLinks": true, "securityContext": {},
            "tolerations": [
                { "key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300 },
                { "key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300 },
            ],
            "volumes": [{ "name": "scratch", "emptyDir": {} }, { "name": "kube-api-access", "projected": { "defaultMode": 420, "sources": [{ "serviceAccountToken": { "expirationSeconds": 3607, "path": "token" } }] } }],
            "containers": [{
                "name": "main", "image": "pause", "env": environment, "livenessProbe": probe, "readinessProbe": probe, "ports": [{ "containerPort": 8080, "protocol": "TCP" }],
                "volumeMounts": [{ "name": "scratch", "mountPath": "/scratch" }], "resources": { "requests": { "cpu": "380m", "memory": "256Mi" } },
                "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File", "imagePullPolicy": "Always",
            }],
        },
        "status": {
            "phase": "Running", "hostIP": "10.0.0.1", "podIP": "10.0.0.2", "podIPs": [{ "ip": "10.0.0.2" }], "startTime": "2026-01-01T00:00:00Z", "qosClass": "Burstable",
            "conditions": conditions(&["PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"]),
            "containerStatuses": [{ "name": "main", "ready": true, "restartCount": 0, "image": "pause", "imageID": "sha256:0000", "started": true, "containerID": "containerd://0000",
                "state": { "running": { "startedAt": "2026-01-01T00:00:00Z" } }, "lastState": {} }],
        },
    })
}

fn main() {
    let mut numbers = std::env::args().skip(1).filter_map(|text| text.parse().ok());
    let nodes: usize = numbers.next().unwrap_or(10_000);
    let per_node: usize = numbers.next().unwrap_or(10);
    let mut cluster = Cluster::new(KINDS, LabelRules::core());
    list::<NodeClaim>(&mut Cluster::new(KINDS, LabelRules::core()), 500, claim);
    list::<Pod>(&mut Cluster::new(KINDS, LabelRules::core()), 1000, |number| pod(number, per_node));
    list::<NodeClaim>(&mut cluster, nodes, claim);
    list::<Node>(&mut cluster, nodes, node);
    list::<Pod>(&mut cluster, nodes * per_node, |number| pod(number, per_node));
    assert_eq!(cluster.pods().count(), nodes * per_node, "every pod is there");
}
