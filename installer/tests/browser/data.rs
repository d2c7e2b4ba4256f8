//! A fleet and decisions to look at, among them names that would be markup if they were read as
//! such. The same at every run.

use serde_json::{Value, json};

/// Name of a pod.
pub(crate) const MARKUP: &str = "<img src=x onerror=window.owned=1>";

/// Types with their cores and GiB.
const TYPES: [(&str, u64, u64); 5] = [
    ("m7i.large", 2, 8),
    ("m7i.xlarge", 4, 16),
    ("m7i.2xlarge", 8, 32),
    ("c7i.4xlarge", 16, 32),
    ("r7i.8xlarge", 32, 256),
];

/// The manifests of so many nodes in three NodePools, with pods, three of which stay pending.
pub(crate) fn manifests(nodes: usize) -> Value {
    let mut items: Vec<Value> = ["default", "batch", "gpu"].iter().map(|name| pool(name)).collect();
    for at in 0..nodes {
        let (kind, cores, memory) = TYPES[[0, 1, 0, 2, 1, 3, 0, 4][at % 8]];
        let pool = ["default", "batch", "default", "default", "gpu"][at % 5];
        let zone = ["eu-west-1a", "eu-west-1b", "eu-west-1c<b>"][at % 3];
        let capacity_type = ["spot", "on-demand"][at / 3 % 2];
        let node = format!("ip-10-{}-{}-{}.ec2.internal", at / 65025, at / 255 % 255, at % 255);
        let capacity =
            json!({ "cpu": cores.to_string(), "memory": format!("{memory}Gi"), "pods": "58" });
        let free = format!("{}m", cores * 1000 - 100);
        let allocatable =
            json!({ "cpu": free, "memory": format!("{}Gi", memory - 1), "pods": "58" });
        let id = format!("aws:///eu-west-1a/i-{at}");
        let labels = json!({
            "karpenter.sh/nodepool": pool, "karpenter.sh/registered": "true",
            "karpenter.sh/initialized": "true", "karpenter.sh/capacity-type": capacity_type,
            "kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux",
            "kubernetes.io/hostname": node, "node.kubernetes.io/instance-type": kind,
            "topology.kubernetes.io/zone": zone,
        });
        let status = json!({ "capacity": capacity, "allocatable": allocatable });
        let mut claimed = status.clone();
        claimed["providerID"] = json!(id);
        items.push(json!({
            "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
            "metadata": { "name": format!("{pool}-{at:05}"), "labels": labels },
            "spec": { "nodeClassRef": class(), "requirements": [] },
            "status": claimed,
        }));
        items.push(json!({
            "apiVersion": "v1", "kind": "Node", "metadata": { "name": node, "labels": labels },
            "spec": { "providerID": id }, "status": status,
        }));
        for n in 0..2 + at * 7 % 6 {
            let is_markup = at == 0 && n == 0;
            let name = if is_markup { MARKUP.to_owned() } else { format!("web-{at}-{n}") };
            let cpu = cores * 1000 / 8 * ((at as u64 + n as u64) % 4) / 3;
            let memory = memory * 1024 / 8 * ((at as u64 + n as u64) % 5) / 4;
            let requests = json!({ "cpu": format!("{cpu}m"), "memory": format!("{memory}Mi") });
            items.push(pod(&name, Some(&node), &requests));
        }
    }
    let huge = json!({ "cpu": "900" });
    items.extend((0..3).map(|at| pod(&format!("huge-{at}"), None, &huge)));
    json!({ "apiVersion": "v1", "kind": "List", "items": items })
}

fn class() -> Value {
    json!({ "group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default" })
}

fn pool(name: &str) -> Value {
    let requirement = json!({
        "key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand", "spot"],
    });
    json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": { "name": name },
        "spec": {
            "template": { "spec": { "nodeClassRef": class(), "requirements": [requirement] } },
            "disruption": { "consolidateAfter": "0s", "budgets": [{ "nodes": "10%" }] },
        },
    })
}

fn pod(name: &str, node: Option<&str>, requests: &Value) -> Value {
    let owner = json!({ "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "w", "uid": "1", "controller": true });
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": name, "namespace": "shop", "ownerReferences": [owner] },
        "spec": { "containers": [{ "name": "a", "resources": { "requests": requests } }] },
    });
    if let Some(node) = node {
        pod["spec"]["nodeName"] = json!(node);
        pod["status"] = json!({ "phase": "Running" });
    }
    pod
}

/// The answer of a ledger with so many decisions, up to four; only those after a revision.
pub(crate) fn decisions(count: u64, after: u64) -> Value {
    let nodes = |name: &str| json!({ "count": 1, "names": [name] });
    let result = |state: &str, seconds: f64| json!({ "state": state, "at": "2026-11-25T12:32:01Z", "seconds": seconds, "message": "" });
    let all = [
        json!({
            "kind": "launch", "action": "launch", "reason": "2 pending pods fit on no existing node",
            "pods": { "count": 1, "names": [format!("shop/{MARKUP}")] },
            "nodeClaims": nodes("default-00002"), "price": { "before": 0.0, "after": 0.2 },
            "result": result("done", 41.2),
        }),
        json!({
            "kind": "consolidation", "action": "replace", "nodes": nodes("ip-10-0-0-1.ec2.internal"),
            "reason": "its 4 pods fit on other nodes and a cheaper one",
            "alternatives": ["delete it without a replacement: not all pods fit on other nodes"],
            "price": { "before": 0.2, "after": 0.1 }, "result": result("done", 54.2),
        }),
        json!({
            "kind": "refusal", "action": "stay", "nodes": nodes("<script>window.owned = 2</script>"),
            "reason": "<b>PDB</b> prevents pod evictions", "result": result("refused", 0.0),
        }),
        json!({
            "kind": "drift", "action": "delete", "nodes": nodes("ip-10-0-0-5.ec2.internal"),
            "reason": "NodePoolDrifted", "result": result("pending", 0.0),
        }),
    ];
    let numbered = (1..=count).zip(all).filter(|(seq, _)| *seq > after).map(|(seq, mut it)| {
        it["seq"] = seq.into();
        it["revision"] = seq.into();
        it["count"] = 1.into();
        it["time"] = json!(format!("2026-11-25T12:{:02}:07Z", 30 + seq));
        it["nodePools"] = json!(["default"]);
        it
    });
    json!({
        "version": 1, "leader": "karpenter-x_1", "since": "2026-11-25T12:00:00Z",
        "revision": count, "dropped": 0, "more": false,
        "decisions": numbered.collect::<Vec<_>>(),
    })
}
