use super::*;
use serde_json::{Value, json};

fn workload(kind: WorkloadKind, value: Value) -> Workload {
    Workload { kind, ..serde_json::from_value(value).unwrap() }
}

fn metadata(name: &str) -> Value {
    json!({"namespace": "default", "name": name})
}

fn owned(name: &str, api: &str, kind: &str, owner: &str, labels: &Value) -> Value {
    json!({"namespace": "default", "name": name, "labels": labels, "ownerReferences": [
        {"apiVersion": api, "kind": kind, "name": owner, "uid": "u", "controller": true},
    ]})
}

fn names(input: &Input) -> Vec<String> {
    input.pods.iter().map(|pod| name(&pod.metadata)).collect()
}

#[test]
fn pods_that_are_there_count_for_the_root_of_their_owners() {
    let labels = json!({"pod-template-hash": "5d4f"});
    for with_replica_set in [true, false] {
        let mut input = Input::default();
        input.workloads.push(workload(
            WorkloadKind::Deployment,
            json!({"metadata": metadata("web"), "spec": {"replicas": 3}}),
        ));
        if with_replica_set {
            input.workloads.push(workload(
                WorkloadKind::ReplicaSet,
                json!({"metadata": owned("web-5d4f", "apps/v1", "Deployment", "web", &labels), "spec": {"replicas": 3}}),
            ));
        }
        for (name, phase) in [("web-5d4f-a", "Running"), ("web-5d4f-b", "Failed")] {
            let metadata = owned(name, "apps/v1", "ReplicaSet", "web-5d4f", &labels);
            let pod = json!({"metadata": metadata, "status": {"phase": phase}});
            input.pods.push(serde_json::from_value(pod).unwrap());
        }
        expand(&mut input);
        assert_eq!(
            names(&input),
            ["web-5d4f-a", "web-5d4f-b", "web-0", "web-1"],
            "{with_replica_set}"
        );
    }
}

#[test]
fn a_job_has_as_many_pods_as_may_run_at_once_and_are_left_to_do() {
    for (spec, status, expected) in [
        (json!({}), json!({}), 1),
        (json!({"parallelism": 4}), json!({}), 4),
        (json!({"parallelism": 4, "completions": 10}), json!({"succeeded": 8}), 2),
        (json!({"parallelism": 4, "completions": 2}), json!({}), 2),
        (json!({"parallelism": 4, "completions": 2}), json!({"succeeded": 2}), 0),
        (json!({"parallelism": 4, "suspend": true}), json!({}), 0),
    ] {
        let job = json!({"metadata": metadata("job"), "spec": spec, "status": status});
        assert_eq!(wanted(&workload(WorkloadKind::Job, job.clone())), expected, "{job}");
    }
}

#[test]
fn pods_of_a_stateful_set_bring_their_claims_once() {
    let mut input = Input::default();
    let claim = json!({"metadata": {"namespace": "default", "name": "data-db-0"}, "spec": {"volumeName": "v"}});
    let claim: wire::PersistentVolumeClaim = serde_json::from_value(claim).unwrap();
    input.others.push(Object::PersistentVolumeClaim(Box::new(claim)));
    input.workloads.push(workload(
        WorkloadKind::StatefulSet,
        json!({"metadata": metadata("db"), "spec": {
            "replicas": 2,
            "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": {"storageClassName": "fast"}}],
        }}),
    ));
    expand(&mut input);
    let claims: Vec<_> = input
        .others
        .iter()
        .map(|object| match object {
            Object::PersistentVolumeClaim(claim) => {
                (name(&claim.metadata), claim.spec.storage_class_name.clone())
            }
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(
        claims,
        [("data-db-0".to_owned(), None), ("data-db-1".to_owned(), Some("fast".to_owned()))]
    );
    let volume = input.pods[1].spec.volumes[0].persistent_volume_claim.as_ref().unwrap();
    assert_eq!(volume.claim_name, "data-db-1");
}

#[test]
fn daemons_come_to_the_nodes_that_take_them() {
    let node = |name: &str, extra: Value| -> wire::Node {
        serde_json::from_value(
            json!({"metadata": {"name": name, "labels": {"os": "linux"}}, "spec": extra}),
        )
        .unwrap()
    };
    let set = json!({"metadata": metadata("agent"), "spec": {"template": {"spec": {
        "nodeSelector": {"os": "linux"},
        "tolerations": [{"key": "team", "operator": "Equal", "value": "a"}],
    }}}});
    let taint = |key: &str, value: &str, effect: &str| json!({"taints": [{"key": key, "value": value, "effect": effect}]});
    let mut input =
        Input { daemon_sets: vec![serde_json::from_value(set).unwrap()], ..Input::default() };
    for (name, spec) in [
        ("plain", json!({})),
        ("tolerated", taint("team", "a", "NoSchedule")),
        ("foreign", taint("team", "b", "NoSchedule")),
        ("preferred", taint("team", "b", "PreferNoSchedule")),
        ("cordoned", taint("node.kubernetes.io/unschedulable", "", "NoSchedule")),
    ] {
        input.nodes.push(node(name, spec));
    }
    expand(&mut input);
    assert_eq!(
        names(&input),
        ["agent-plain", "agent-tolerated", "agent-preferred", "agent-cordoned"]
    );
    // Once more changes nothing: they are there now.
    expand(&mut input);
    assert_eq!(input.pods.len(), 4);
}
