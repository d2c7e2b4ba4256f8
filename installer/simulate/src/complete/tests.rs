use super::*;
use serde_json::{Value, json};

const NOW: Timestamp = Timestamp::UNIX_EPOCH;

fn parse<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

fn completed(mut input: Input) -> Input {
    complete(&mut input, &LabelRules::core(), NOW, false);
    input
}

#[test]
fn pods_that_nobody_has_looked_at_are_pending_and_gated_ones_wait() {
    let refused = |pod: Value| {
        let input = completed(Input { pods: vec![parse(pod)], ..Input::default() });
        input.pods[0].status.conditions.iter().any(|c| c.reason.as_deref() == Some("Unschedulable"))
    };
    let pod = |spec: Value, status: Value| json!({"metadata": {"name": "a"}, "spec": spec, "status": status});
    assert!(refused(pod(json!({}), json!({}))));
    assert!(refused(pod(json!({}), json!({"phase": "Pending"}))));
    assert!(!refused(pod(json!({"nodeName": "n"}), json!({}))));
    assert!(!refused(pod(json!({"schedulingGates": [{"name": "g"}]}), json!({}))));
    let decided = json!({"conditions": [{"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}]});
    assert!(!refused(pod(json!({}), decided)));
}

#[test]
fn names_namespaces_and_uids_are_given_where_they_are_missing() {
    let pods = vec![
        parse(json!({"metadata": {"generateName": "a-"}})),
        parse(json!({"metadata": {"generateName": "a-", "namespace": "x", "uid": "own"}})),
    ];
    let input = completed(Input { pods, ..Input::default() });
    let of = |index: usize| {
        let metadata = &input.pods[index].metadata;
        format!("{}/{} {}", namespace(metadata), name(metadata), metadata.uid.clone().unwrap())
    };
    assert_eq!(of(0), "default/a-0 Pod/default/a-0");
    assert_eq!(of(1), "x/a-1 own");
}

#[test]
fn of_objects_with_one_name_the_last_counts() {
    let pod =
        |priority: i32| parse(json!({"metadata": {"name": "a"}, "spec": {"priority": priority}}));
    let input = completed(Input { pods: vec![pod(1), pod(2)], ..Input::default() });
    assert_eq!(input.pods.iter().map(|pod| pod.spec.priority).collect::<Vec<_>>(), [2]);
}

#[test]
fn priorities_come_from_classes_unless_the_pod_was_admitted_already() {
    let classes = vec![
        parse(json!({"metadata": {"name": "high"}, "value": 1000})),
        parse(json!({"metadata": {"name": "usual"}, "value": 5, "globalDefault": true})),
    ];
    let pods = [json!({"priorityClassName": "high"}), json!({}), json!({"priority": 7})];
    let pods = pods
        .into_iter()
        .enumerate()
        .map(|(i, spec)| parse(json!({"metadata": {"name": i.to_string()}, "spec": spec})))
        .collect();
    let input = completed(Input { pods, priority_classes: classes, ..Input::default() });
    assert_eq!(input.pods.iter().map(|pod| pod.spec.priority).collect::<Vec<_>>(), [1000, 5, 7]);
}

#[test]
fn a_node_pool_that_makes_no_sense_is_not_ready_and_says_why() {
    let pool = |key: &str| -> NodePool {
        parse(json!({
            "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "p"},
            "spec": {"template": {"spec": {
                "nodeClassRef": {"group": "g", "kind": "K", "name": "n"},
                "requirements": [{"key": key, "operator": "In", "values": ["a"]}],
            }}},
        }))
    };
    let ready = |key: &str| {
        let input = completed(Input { pools: vec![pool(key)], ..Input::default() });
        let condition = input.pools[0].status.as_ref().unwrap().conditions[0].clone();
        (condition.status, condition.message)
    };
    assert_eq!(ready("topology.kubernetes.io/zone").0, ConditionStatus::True);
    let (status, message) = ready("kubernetes.io/hostname");
    assert_eq!(status, ConditionStatus::False);
    assert!(message.contains("kubernetes.io/hostname"), "{message}");
}

#[test]
fn a_budget_without_a_status_allows_what_is_healthy_beyond_what_is_needed() {
    let allowed = |spec: Value, version: Option<&str>| {
        let pod = |i: usize| {
            let status = if i == 0 {
                json!({"conditions": [{"type": "Ready", "status": "False"}]})
            } else {
                json!({})
            };
            parse(json!({
                "metadata": {"name": i.to_string(), "labels": {"app": "a"}},
                "spec": {"nodeName": "n"}, "status": status,
            }))
        };
        let mut spec = spec;
        spec["selector"] = json!({"matchLabels": {"app": "a"}});
        let budget =
            parse(json!({"metadata": {"name": "b", "resourceVersion": version}, "spec": spec}));
        let input =
            Input { pods: (0..4).map(pod).collect(), budgets: vec![budget], ..Input::default() };
        completed(input).budgets[0].status.disruptions_allowed
    };
    assert_eq!(allowed(json!({"minAvailable": 2}), None), 1);
    assert_eq!(allowed(json!({"minAvailable": "51%"}), None), 0);
    assert_eq!(allowed(json!({"maxUnavailable": 1}), None), 0);
    assert_eq!(allowed(json!({"maxUnavailable": "50%"}), None), 1);
    assert_eq!(
        allowed(json!({"maxUnavailable": "50%"}), Some("7")),
        0,
        "what the controller said stands"
    );
}

#[test]
fn claims_that_name_no_class_get_the_default_one() {
    let class = parse(json!({"metadata": {"name": "gp3", "annotations": {DEFAULT_CLASS: "true"}}}));
    let claim = parse(json!({"metadata": {"name": "c"}}));
    let input = completed(Input {
        others: vec![
            Object::PersistentVolumeClaim(Box::new(claim)),
            Object::StorageClass(Box::new(class)),
        ],
        ..Input::default()
    });
    let Object::PersistentVolumeClaim(claim) = &input.others[0] else { panic!("the order stays") };
    assert_eq!(claim.spec.storage_class_name.as_deref(), Some("gp3"));
}
