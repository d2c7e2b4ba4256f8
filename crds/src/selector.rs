//! Label selectors of Kubernetes, as on PodDisruptionBudgets and in affinity.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use crate::Operator;

/// Whether the selector selects an object with these labels. An empty selector selects everything;
/// an operator that Kubernetes does not know, nothing.
pub fn selects(selector: &LabelSelector, labels: &BTreeMap<String, String>) -> bool {
    let pairs = selector.match_labels.iter().flatten();
    let expressions = selector.match_expressions.iter().flatten();
    pairs.into_iter().all(|(key, value)| labels.get(key) == Some(value))
        && expressions.into_iter().all(|expression| {
            let value = labels.get(&expression.key).map(String::as_str);
            let values = expression.values.as_deref().unwrap_or_default();
            match expression.operator.parse() {
                Ok(Operator::Gt | Operator::Lt | Operator::Gte | Operator::Lte) | Err(_) => false,
                Ok(operator) => operator.admits(values, value),
            }
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn selectors_follow_kubernetes() {
        let labels: BTreeMap<_, _> =
            [("app", "web"), ("tier", "2")].map(|(k, v)| (k.to_owned(), v.to_owned())).into();
        for (selector, expected) in [
            (json!({}), true),
            (json!({"matchLabels": {"app": "web"}}), true),
            (json!({"matchLabels": {"app": "db"}}), false),
            (
                json!({"matchExpressions": [{"key": "app", "operator": "In", "values": ["web", "db"]}]}),
                true,
            ),
            (
                json!({"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["web"]}]}),
                false,
            ),
            (
                json!({"matchExpressions": [{"key": "none", "operator": "NotIn", "values": ["web"]}]}),
                true,
            ),
            (json!({"matchExpressions": [{"key": "tier", "operator": "Exists"}]}), true),
            (json!({"matchExpressions": [{"key": "tier", "operator": "DoesNotExist"}]}), false),
            (json!({"matchExpressions": [{"key": "tier", "operator": "Near"}]}), false),
            (
                json!({"matchExpressions": [{"key": "tier", "operator": "Gt", "values": ["1"]}]}),
                false,
            ),
        ] {
            let parsed: LabelSelector = serde_json::from_value(selector.clone()).unwrap();
            assert_eq!(selects(&parsed, &labels), expected, "{selector}");
        }
    }
}
