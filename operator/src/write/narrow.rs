//! Patches that are refused only when what they replace has changed.
//!
//! A Node that has just joined is written to by its kubelet, by the node controller and by the
//! operator within the same second. A patch that insists on the whole object's resource version
//! loses most of these races, though nobody touched what it changes. Here each list that is
//! replaced is tested against the one that it was computed from, and nothing else; the API server
//! applies the patch to whatever the rest has become.

use serde_json::{Value, json};

/// Makes a JSON patch (RFC 6902) of a merge patch: `body` merged into `object`, where each list
/// that it replaces must be as it is in `object`. Empty if nothing would change.
///
/// An empty list counts as none: the API server leaves those out.
pub(super) fn operations(object: &Value, body: &Value) -> Vec<Value> {
    let mut operations = Vec::new();
    merge(&mut operations, "", Some(object), body);
    if !operations.is_empty() {
        let uid = &object["metadata"]["uid"];
        operations.insert(0, json!({"op": "test", "path": "/metadata/uid", "value": uid}));
    }
    operations
}

fn merge(operations: &mut Vec<Value>, path: &str, current: Option<&Value>, wanted: &Value) {
    let current = current.filter(|current| !is_nothing(current));
    match (current, wanted) {
        (Some(Value::Object(current)), Value::Object(wanted)) => {
            for (key, wanted) in wanted {
                let path = format!("{path}/{}", escape(key));
                merge(operations, &path, current.get(key), wanted);
            }
        }
        (current, wanted) if current.unwrap_or(&Value::Null) == wanted => {}
        (None, wanted) if is_nothing(&without_nulls(wanted)) => {}
        (_, Value::Null) => operations.push(json!({"op": "remove", "path": path})),
        (current, Value::Array(_) | Value::Object(_)) => {
            operations.push(json!({"op": "test", "path": path, "value": current}));
            operations.push(json!({"op": "add", "path": path, "value": without_nulls(wanted)}));
        }
        (_, wanted) => operations.push(json!({"op": "add", "path": path, "value": wanted})),
    }
}

/// Whether the API server leaves it out.
fn is_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        _ => false,
    }
}

/// What a merge patch leaves where there was nothing.
fn without_nulls(wanted: &Value) -> Value {
    match wanted {
        Value::Object(fields) => {
            let kept = fields.iter().filter(|(_, value)| !value.is_null());
            kept.map(|(key, value)| (key.clone(), without_nulls(value))).collect()
        }
        other => other.clone(),
    }
}

/// A key as a part of a JSON pointer (RFC 6901).
fn escape(key: &str) -> String {
    key.replace('~', "~0").replace('/', "~1")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node() -> Value {
        json!({
            "metadata": {"uid": "1", "name": "n", "labels": {"a": "1", "b/c": "2"}},
            "spec": {"taints": [{"key": "t", "effect": "NoSchedule"}]},
        })
    }

    fn patched(object: &Value, body: &Value) -> Result<Value, json_patch::PatchError> {
        let operations = operations(&node(), body);
        let mut object = object.clone();
        crate::testing::apiserver::patch_json(&mut object, &json!(operations)).map(|()| object)
    }

    #[test]
    fn it_comes_to_the_same_as_a_merge() {
        for body in [
            json!({}),
            json!({"metadata": {"labels": {"a": null, "gone": null, "b/c": "3", "d~e": "4"}}}),
            json!({"metadata": {"annotations": {"x": "y", "z": null}, "finalizers": ["f"]}}),
            json!({"spec": {"taints": [], "unschedulable": true}}),
            json!({"spec": {"taints": [{"key": "u", "effect": "NoExecute"}]}}),
        ] {
            let mut merged = node();
            json_patch::merge(&mut merged, &body);
            assert_eq!(patched(&node(), &body).unwrap(), merged, "{body}");
        }
    }

    #[test]
    fn what_would_change_nothing_is_not_sent() {
        let same = json!({
            "metadata": {"labels": {"a": "1", "gone": null}, "annotations": {}, "finalizers": []},
            "spec": {"taints": [{"key": "t", "effect": "NoSchedule"}]},
        });
        assert_eq!(operations(&node(), &same), Vec::<Value>::new());
    }

    #[test]
    fn it_is_refused_when_a_list_has_changed_or_the_object_is_another_one_and_only_then() {
        let body = json!({"spec": {"taints": []}, "metadata": {"finalizers": ["f"]}});
        let mut elsewhere = node();
        elsewhere["status"] = json!({"conditions": []});
        elsewhere["metadata"]["labels"]["new"] = json!("3");
        elsewhere["metadata"]["resourceVersion"] = json!("9");
        assert!(patched(&elsewhere, &body).is_ok());
        let mut tainted = node();
        tainted["spec"]["taints"] = json!([]);
        assert!(patched(&tainted, &body).is_err());
        let mut held = node();
        held["metadata"]["finalizers"] = json!(["other"]);
        assert!(patched(&held, &body).is_err());
        let mut another = node();
        another["metadata"]["uid"] = json!("2");
        assert!(patched(&another, &body).is_err());
    }
}
