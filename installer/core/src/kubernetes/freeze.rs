//! NodePools that stand still: they launch nothing and disrupt nothing of their own accord.
//! Interruptions are still handled, and nodes still drain.
//!
//! Limits and budgets are no part of what makes nodes drift, so freezing and thawing replaces no
//! node.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tenon_crds::labels::FROZEN;

use super::merge_patch::merged;
use super::object::annotation;
use super::operator_deployment::{FLUX, gitops};

/// With the value `disabled` Flux leaves an object as it is, whatever git says.
pub(super) const FLUX_RECONCILES: &str = "kustomize.toolkit.fluxcd.io/reconcile";

/// What a NodePool was like before it was frozen.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Before {
    limits: Value,
    budgets: Value,
    /// Of a NodePool that Flux manages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    flux: Option<OfFlux>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct OfFlux {
    /// The value of [`FLUX_RECONCILES`], if it was there.
    reconcile: Option<String>,
}

/// Whether a NodePool is frozen.
pub fn is_frozen(pool: &Value) -> bool {
    annotation(pool, FROZEN).is_some()
}

/// The merge patch that freezes a NodePool, and keeps Flux from thawing it; `None` if it is frozen.
pub fn freeze(pool: &Value) -> Option<Value> {
    if is_frozen(pool) {
        return None;
    }
    let of = |pointer: &str| pool.pointer(pointer).cloned().unwrap_or(Value::Null);
    let is_of_flux = gitops(pool) == Some(FLUX);
    let before = Before {
        limits: of("/spec/limits"),
        budgets: of("/spec/disruption/budgets"),
        flux: is_of_flux
            .then(|| OfFlux { reconcile: annotation(pool, FLUX_RECONCILES).map(str::to_owned) }),
    };
    let before = serde_json::to_string(&before).expect("values are JSON");
    let mut annotations = json!({ FROZEN: before });
    if is_of_flux {
        annotations[FLUX_RECONCILES] = "disabled".into();
    }
    Some(json!({
        "metadata": {
            "resourceVersion": pool.pointer("/metadata/resourceVersion"),
            "annotations": annotations,
        },
        "spec": {"limits": {"cpu": "0"}, "disruption": {"budgets": [{"nodes": "0"}]}},
    }))
}

/// The merge patch that thaws a NodePool; `None` if it is not frozen.
pub fn thaw(pool: &Value) -> Option<Value> {
    let before: Before = serde_json::from_str(annotation(pool, FROZEN)?).ok()?;
    // A merge patch adds to maps: what only the frozen pool says has to be taken away by name.
    let mut limits = before.limits;
    match &mut limits {
        Value::Object(limits) => {
            limits.entry("cpu").or_insert(Value::Null);
        }
        other => *other = Value::Null,
    }
    let mut annotations = json!({ FROZEN: null });
    if let Some(flux) = before.flux {
        annotations[FLUX_RECONCILES] = flux.reconcile.into();
    }
    Some(json!({
        "metadata": {
            "resourceVersion": pool.pointer("/metadata/resourceVersion"),
            "annotations": annotations,
        },
        "spec": {"limits": limits, "disruption": {"budgets": before.budgets}},
    }))
}

/// A NodePool as it is when it does not stand still.
pub fn thawed(pool: Value) -> Value {
    match thaw(&pool) {
        Some(patch) => merged(pool, &patch),
        None => pool,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thawed_pool_is_what_it_was() {
        for spec in [
            json!({"limits": {"cpu": "100", "memory": "1Ti"}, "disruption": {"budgets": [{"nodes": "10%"}]}}),
            json!({"limits": {"memory": "1Ti"}, "disruption": {}}),
            json!({"disruption": {"consolidateAfter": "5m"}}),
        ] {
            let pool = json!({"metadata": {"name": "a", "resourceVersion": "1", "annotations": {"x": "y"}}, "spec": spec});
            let frozen = merged(pool.clone(), &freeze(&pool).expect("not frozen yet"));
            assert!(is_frozen(&frozen));
            assert_eq!(frozen["spec"]["limits"]["cpu"], "0");
            assert_eq!(frozen["spec"]["disruption"]["budgets"], json!([{"nodes": "0"}]));
            assert_eq!(freeze(&frozen), None);
            assert_eq!(thawed(frozen), pool);
            assert_eq!(thaw(&pool), None);
            assert_eq!(thawed(pool.clone()), pool);
        }
    }

    #[test]
    fn flux_leaves_a_frozen_pool_alone() {
        let mut pool = json!({"metadata": {
            "name": "a",
            "labels": {"kustomize.toolkit.fluxcd.io/name": "pools"},
            "annotations": {"x": "y"},
        }, "spec": {}});
        for before in [None, Some("enabled"), Some("disabled")] {
            if let Some(before) = before {
                pool["metadata"]["annotations"][FLUX_RECONCILES] = before.into();
            }
            let frozen = merged(pool.clone(), &freeze(&pool).expect("not frozen yet"));
            assert_eq!(annotation(&frozen, FLUX_RECONCILES), Some("disabled"));
            let thawed = merged(frozen.clone(), &thaw(&frozen).expect("frozen"));
            assert_eq!(annotation(&thawed, FLUX_RECONCILES), before);
        }
    }
}
