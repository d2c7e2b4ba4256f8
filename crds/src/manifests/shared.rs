//! Rules that several kinds share: label keys, requirements, taints, references to NodeClasses and
//! conditions.

use serde_json::json;

use super::schema::{Schema, cel_list, rule};
use crate::labels;

/// A label key or any other qualified name: an optional DNS prefix, then a name.
pub(super) const QUALIFIED_NAME: &str = r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*(\/))?([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]$";

/// A label value; may be empty.
pub(super) const LABEL_VALUE: &str = r"^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$";

/// Which requirement keys are for users.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Keys {
    /// In a NodePool: its own name is none of them.
    Pool,
    /// In a NodeClaim: the NodePool's name may be one.
    Claim,
    /// In a NodeOverlay: the NodePool's name may be one; what a NodeClass or a NodePool decides is
    /// none.
    Overlay,
}

/// Labels of AWS that NodePools may require and NodeOverlays may not.
const NOT_OVERLAID: [&str; 6] = [
    labels::aws::INSTANCE_TENANCY,
    labels::aws::CAPACITY_RESERVATION_ID,
    labels::aws::CAPACITY_RESERVATION_INTERRUPTIBLE,
    labels::aws::CAPACITY_RESERVATION_TYPE,
    labels::aws::PLACEMENT_GROUP_ID,
    labels::aws::PLACEMENT_GROUP_PARTITION,
];

/// Rules for a label key, where `key` is the CEL expression that stands for it, such as `self`.
///
/// The domain is compared by its ending, so that `foo-karpenter.sh/x` is refused too; that is what
/// Karpenter's API does.
fn key_rules(key: &str, keys: Keys) -> Vec<(String, String)> {
    let restricted = |domain: &str, allowed: &[&str]| {
        (
            format!(
                "{key} in {} || !{key}.find('^([^/]+)').endsWith('{domain}')",
                cel_list(allowed.iter().copied())
            ),
            format!("label domain \"{domain}\" is restricted"),
        )
    };
    let forbidden =
        |label: &str| (format!("{key} != '{label}'"), format!("label \"{label}\" is restricted"));
    let of_aws: Vec<&str> = labels::aws::ALLOWED
        .iter()
        .filter(|key| keys != Keys::Overlay || !NOT_OVERLAID.contains(key))
        .copied()
        .collect();
    let mut rules = vec![
        restricted(labels::GROUP, &[labels::CAPACITY_TYPE, labels::NODEPOOL]),
        forbidden(labels::HOSTNAME),
        restricted(labels::aws::GROUP, &of_aws),
    ];
    if keys == Keys::Pool {
        rules.push(forbidden(labels::NODEPOOL));
    }
    rules
}

/// Rules for a list of requirements at `path`.
pub(super) fn requirements(schema: &mut Schema, path: &str, keys: Keys) {
    let at = |field: &str| format!("{path}[].{field}");
    let needs_values = |operator: &str| {
        rule(
            format!(
                "self.all(r, r.operator != '{operator}' || (has(r.values) && size(r.values) > 0))"
            ),
            format!("a requirement with operator '{operator}' needs at least one value"),
        )
    };
    let one_integer = rule(
        "self.all(r, !(r.operator in ['Gt', 'Lt', 'Gte', 'Lte']) || (has(r.values) && size(r.values) == 1 && int(r.values[0]) >= 0))",
        "a requirement with operator 'Gt', 'Lt', 'Gte' or 'Lte' needs exactly one value, an integer that is not negative",
    );
    schema
        .at(path, json!({ "maxItems": 100, "x-kubernetes-list-type": "atomic" }))
        .rules(path, [needs_values("In"), one_integer])
        .at(&at("key"), json!({ "maxLength": 316, "pattern": QUALIFIED_NAME }))
        .rules(
            &at("key"),
            key_rules("self", keys)
                .into_iter()
                .map(|(expression, message)| rule(expression, message)),
        )
        .at(&at("values"), json!({ "x-kubernetes-list-type": "atomic" }));
    if keys == Keys::Overlay {
        schema.rules(path, [needs_values("NotIn")]);
        return;
    }
    schema
        .rules(
            path,
            [rule(
                "self.all(r, r.operator != 'In' || !has(r.minValues) || (has(r.values) && size(r.values) >= r.minValues))",
                "a requirement with operator 'In' needs at least as many values as 'minValues' says",
            )],
        )
        .without(&at("minValues"), &["format"])
        .at(&at("minValues"), json!({ "minimum": 1, "maximum": 50 }));
}

/// Rules for a map of labels at `path`.
pub(super) fn template_labels(schema: &mut Schema, path: &str) {
    schema
        .at(path, json!({ "maxProperties": 100, "x-kubernetes-map-type": "atomic" }))
        .rules(
            path,
            key_rules("key", Keys::Pool)
                .into_iter()
                .map(|(expression, message)| rule(format!("self.all(key, {expression})"), message)),
        )
        .at(&format!("{path}{{}}"), json!({ "maxLength": 63, "pattern": LABEL_VALUE }));
}

/// Rules for a list of taints at `path`.
pub(super) fn taints(schema: &mut Schema, path: &str) {
    schema
        .at(path, json!({ "x-kubernetes-list-type": "atomic" }))
        .at(&format!("{path}[].key"), json!({ "minLength": 1, "pattern": QUALIFIED_NAME }))
        .at(&format!("{path}[].value"), json!({ "pattern": QUALIFIED_NAME }));
}

/// Rules for a reference to a NodeClass at `path`.
pub(super) fn node_class_ref(schema: &mut Schema, path: &str) {
    for field in ["group", "kind", "name"] {
        schema.rules(
            &format!("{path}.{field}"),
            [rule("self != ''", format!("{field} may not be empty"))],
        );
    }
    schema.at(&format!("{path}.group"), json!({ "pattern": "^[^/]*$" }));
}

/// How much a condition must say.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Conditions {
    /// The list is keyed by type; reason and message are required.
    Keyed,
    /// The list is keyed by type; reason and message may be absent or empty.
    KeyedRelaxed,
    /// As `Keyed`, but the list is replaced as a whole.
    Whole,
}

/// Rules for the conditions of a kind.
pub(super) fn conditions(schema: &mut Schema, conditions: Conditions) {
    let path = "status.conditions";
    if conditions != Conditions::Whole {
        schema.at(
            path,
            json!({ "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"] }),
        );
    }
    if conditions == Conditions::KeyedRelaxed {
        schema.required("status.conditions[]", &["lastTransitionTime", "status", "type"]).at(
            "status.conditions[].reason",
            json!({ "pattern": "^([A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?|)$" }),
        );
    } else {
        schema
            .required(
                "status.conditions[]",
                &["lastTransitionTime", "message", "reason", "status", "type"],
            )
            .at(
                "status.conditions[].reason",
                json!({ "minLength": 1, "pattern": "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$" }),
            );
    }
    schema
        .without("status.conditions[].message", &["default"])
        .without("status.conditions[].reason", &["default"])
        .at("status.conditions[].message", json!({ "maxLength": 32768 }))
        .at("status.conditions[].reason", json!({ "maxLength": 1024 }))
        .at("status.conditions[].observedGeneration", json!({ "minimum": 0 }))
        .at(
            "status.conditions[].type",
            json!({
                "maxLength": 316,
                "pattern": r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$",
            }),
        );
}
