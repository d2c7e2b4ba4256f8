use serde_json::json;

use super::*;

fn pool(name: &str, weight: Option<i32>) -> NodePool {
    serde_json::from_value(json!({
        "metadata": { "name": name },
        "spec": {
            "weight": weight,
            "template": { "spec": { "nodeClassRef": { "group": "g", "kind": "K", "name": "n" }, "requirements": [] } },
        },
    }))
    .unwrap()
}

#[test]
fn absent_fields_mean_what_the_api_server_would_fill_in() {
    let pool = pool("a", None);
    assert_eq!(pool.spec.disruption, Disruption::default());
    assert_eq!(
        serde_json::to_value(&pool.spec.disruption).unwrap(),
        json!({ "budgets": [{ "nodes": "10%" }], "consolidateAfter": "0s", "consolidationPolicy": "WhenEmptyOrUnderutilized" })
    );
    assert_eq!(pool.spec.template.spec.expire_after.as_str(), "720h");
    let empty: Disruption = serde_json::from_value(json!({ "budgets": [] })).unwrap();
    assert_eq!(empty.budgets, [], "an empty list is not an absent one");
}

#[test]
fn fields_of_later_versions_are_no_obstacle() {
    let mut json = serde_json::to_value(pool("a", None)).unwrap();
    json["spec"]["future"] = json!({ "a": 1 });
    json["spec"]["template"]["spec"]["requirements"] =
        json!([{ "key": "a", "operator": "Exists", "future": true }]);
    let read: NodePool = serde_json::from_value(json).unwrap();
    let mut known = pool("a", None);
    known.spec.template.spec.requirements = read.spec.template.spec.requirements.clone();
    assert_eq!(read, known);
    assert_eq!(read.spec.template.spec.requirements[0].key, "a");
}

#[test]
fn the_label_of_a_node_class_is_its_group_and_kind() {
    let reference = NodeClassReference {
        group: "karpenter.k8s.aws".into(),
        kind: "EC2NodeClass".into(),
        name: "n".into(),
    };
    assert_eq!(reference.label(), (crate::labels::aws::EC2NODECLASS.to_owned(), "n"));
}
