//! Label selectors of Kubernetes, as on PodDisruptionBudgets and in affinity.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};

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

/// Reads a selector as `kubectl -l` takes it: terms such as `a=b`, `a==b`, `a!=b`, `a`, `!a`,
/// `a in (b,c)` and `a notin (b,c)`, with commas between them.
///
/// # Errors
/// The term that is none of these, and what they look like.
pub fn parse(text: &str) -> Result<LabelSelector, String> {
    let mut expressions = Vec::new();
    let mut rest = text;
    while !rest.trim().is_empty() {
        let end = end_of_term(rest);
        let term = rest[..end].trim();
        let expression = expression(term).ok_or_else(|| {
            format!("`{term}` is no label selector; allowed: a=b, a!=b, a, !a, a in (b,c)")
        })?;
        expressions.push(expression);
        rest = rest[end..].strip_prefix(',').unwrap_or_default();
    }
    if expressions.is_empty() {
        return Err("it is empty; allowed: a=b, a!=b, a, !a, a in (b,c)".to_owned());
    }
    Ok(LabelSelector { match_expressions: Some(expressions), match_labels: None })
}

/// Where the first term ends: at a comma that stands in no parentheses.
fn end_of_term(text: &str) -> usize {
    let mut depth = 0_usize;
    for (at, character) in text.char_indices() {
        match character {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => return at,
            _ => {}
        }
    }
    text.len()
}

fn expression(term: &str) -> Option<LabelSelectorRequirement> {
    let of = |key: &str, operator: &str, values: Vec<String>| {
        let key = key.trim();
        let is_word = |text: &str| {
            let allowed = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
            text.chars().all(allowed)
        };
        let is_plain = !key.is_empty() && is_word(key) && values.iter().all(|it| is_word(it));
        is_plain.then(|| LabelSelectorRequirement {
            key: key.to_owned(),
            operator: operator.to_owned(),
            values: (!values.is_empty()).then_some(values),
        })
    };
    if let Some((key, values)) = term.split_once('(') {
        let values = values.strip_suffix(')')?.split(',').map(|it| it.trim().to_owned()).collect();
        let (key, operator) = key.trim_end().rsplit_once(char::is_whitespace)?;
        return match operator {
            "in" => of(key, "In", values),
            "notin" => of(key, "NotIn", values),
            _ => None,
        };
    }
    let value = |value: &str| vec![value.trim().to_owned()];
    if let Some((key, text)) = term.split_once("!=") {
        of(key, "NotIn", value(text))
    } else if let Some((key, text)) = term.split_once("==").or_else(|| term.split_once('=')) {
        of(key, "In", value(text))
    } else if let Some(key) = term.strip_prefix('!') {
        of(key, "DoesNotExist", Vec::new())
    } else {
        of(term, "Exists", Vec::new())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn selectors_are_read_as_kubectl_reads_them() {
        let labels: BTreeMap<_, _> =
            [("app", "web"), ("eks.amazonaws.com/nodegroup", "a")].into_iter().collect();
        let labels = labels.into_iter().map(|(k, v)| (k.to_owned(), v.to_owned())).collect();
        for (text, expected) in [
            ("app=web", true),
            ("app==web", true),
            ("app = db", false),
            ("app!=web", false),
            ("none!=web", true),
            ("app", true),
            ("none", false),
            ("!none", true),
            ("!app", false),
            ("app in (db, web)", true),
            ("app notin (db,web)", false),
            ("app in (web),eks.amazonaws.com/nodegroup=a", true),
            ("app=web, eks.amazonaws.com/nodegroup=b", false),
            // An empty value is one.
            ("app=", false),
        ] {
            let selector = parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
            assert_eq!(selects(&selector, &labels), expected, "{text}");
        }
        for text in
            ["", " ", "app=(web)", "app within (web)", "app in (web", "=web", "a b", "a=b=c"]
        {
            let error = parse(text).expect_err(text);
            assert!(error.contains("allowed: a=b"), "{text}: {error}");
        }
    }

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
