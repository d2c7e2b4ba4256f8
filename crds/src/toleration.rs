//! Which taints of Nodes pods tolerate.

use k8s_openapi::api::core::v1::{Taint, Toleration};

/// Whether a toleration of a pod is about a taint, as kube-scheduler compares them: an empty key
/// with `Exists` is about every taint, and an empty effect about every effect.
pub fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let exists = toleration.operator.as_deref() == Some("Exists");
    let key = toleration.key.as_deref().unwrap_or_default();
    let effect = toleration.effect.as_deref().unwrap_or_default();
    let value = toleration.value.as_deref().unwrap_or_default();
    (key == taint.key || (key.is_empty() && exists))
        && (effect.is_empty() || effect == taint.effect)
        && (exists || value == taint.value.as_deref().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn toleration(key: &str, operator: &str, value: &str, effect: &str) -> Toleration {
        let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        Toleration {
            key: some(key),
            operator: some(operator),
            value: some(value),
            effect: some(effect),
            toleration_seconds: None,
        }
    }

    #[test]
    fn key_value_and_effect_have_to_match_unless_they_are_left_out() {
        let taint = Taint {
            key: "team".to_owned(),
            value: Some("ml".to_owned()),
            effect: "NoSchedule".to_owned(),
            time_added: None,
        };
        for (key, operator, value, effect, holds) in [
            ("team", "Equal", "ml", "NoSchedule", true),
            ("team", "", "ml", "", true),
            ("team", "Exists", "", "", true),
            ("", "Exists", "", "", true),
            ("", "Exists", "", "NoExecute", false),
            ("", "", "ml", "", false),
            ("team", "Equal", "web", "", false),
            ("other", "Exists", "", "", false),
        ] {
            let said = tolerates(&toleration(key, operator, value, effect), &taint);
            assert_eq!(said, holds, "{key} {operator} {value} {effect}");
        }
    }
}
