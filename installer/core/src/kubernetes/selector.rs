//! Whether a label selector selects something with these labels.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

/// As Kubernetes decides it. An empty selector selects everything.
pub fn selects(selector: &LabelSelector, labels: &BTreeMap<String, String>) -> bool {
    let by_labels =
        selector.match_labels.iter().flatten().all(|(key, value)| labels.get(key) == Some(value));
    let by_expressions = selector.match_expressions.iter().flatten().all(|expression| {
        let value = labels.get(&expression.key);
        let listed = |value: &String| expression.values.iter().flatten().any(|of| of == value);
        match expression.operator.as_str() {
            "In" => value.is_some_and(listed),
            "NotIn" => !value.is_some_and(listed),
            "Exists" => value.is_some(),
            _ => value.is_none(),
        }
    });
    by_labels && by_expressions
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn labels_and_expressions_must_all_hold() {
        let labels = BTreeMap::from([("app".to_owned(), "karpenter".to_owned())]);
        for (selector, expected) in [
            (json!({}), true),
            (json!({"matchLabels": {"app": "karpenter"}}), true),
            (json!({"matchLabels": {"app": "karpenter", "x": "y"}}), false),
            (
                json!({"matchExpressions": [{"key": "app", "operator": "In", "values": ["a", "karpenter"]}]}),
                true,
            ),
            (
                json!({"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["karpenter"]}]}),
                false,
            ),
            (json!({"matchExpressions": [{"key": "app", "operator": "Exists"}]}), true),
            (json!({"matchExpressions": [{"key": "app", "operator": "DoesNotExist"}]}), false),
        ] {
            let parsed = serde_json::from_value(selector.clone()).expect("a selector");
            assert_eq!(selects(&parsed, &labels), expected, "{selector}");
        }
    }
}
