//! Rules of NodePool.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinitionVersion, CustomResourceSubresourceScale,
};
use serde_json::json;

use super::schema::{Schema, rule};
use super::shared::{self, Conditions, Keys};
use super::{AGE_PATH, Column, READY_PATH};

pub(super) const COLUMNS: &[Column] = &[
    ("NodeClass", "string", ".spec.template.spec.nodeClassRef.name", 0),
    ("Nodes", "string", ".status.nodes", 0),
    ("Ready", "string", READY_PATH, 0),
    ("Age", "date", AGE_PATH, 0),
    ("Weight", "integer", ".spec.weight", 1),
    ("CPU", "string", ".status.resources.cpu", 1),
    ("Memory", "string", ".status.resources.memory", 1),
];

pub(super) fn constrain(schema: &mut Schema) {
    schema
        .rules(
            "spec",
            [
                rule(
                    "has(self.replicas) == has(oldSelf.replicas)",
                    "'replicas' can be neither added nor removed: a NodePool stays static or dynamic",
                ),
                rule(
                    "!has(self.replicas) || !has(self.limits) || size(self.limits) == 0 || (size(self.limits) == 1 && 'nodes' in self.limits)",
                    "with 'replicas', the only limit can be 'limits.nodes'",
                ),
                rule("!has(self.replicas) || !has(self.weight)", "with 'replicas', 'weight' cannot be set"),
            ],
        )
        .at("spec.replicas", json!({ "minimum": 0 }))
        .at("spec.weight", json!({ "minimum": 1, "maximum": 100 }))
        .at("spec.disruption.budgets", json!({ "maxItems": 50, "x-kubernetes-list-type": "atomic" }))
        .rules(
            "spec.disruption.budgets",
            [rule("self.all(b, has(b.schedule) == has(b.duration))", "a budget needs both 'schedule' and 'duration', or neither")],
        )
        .at("spec.disruption.budgets[].nodes", json!({ "pattern": "^((100|[0-9]{1,2})%|[0-9]+)$" }))
        .at("spec.disruption.budgets[].reasons", json!({ "maxItems": 50, "x-kubernetes-list-type": "set" }))
        .at("spec.disruption.budgets[].duration", json!({ "pattern": "^((([0-9]+(h|m))|([0-9]+h[0-9]+m))(0s)?)$" }))
        .at(
            "spec.disruption.budgets[].schedule",
            // Anchored on one side only, as in Karpenter's API; what a schedule means is decided by
            // the operator.
            json!({ "pattern": r"^(@(annually|yearly|monthly|weekly|daily|midnight|hourly))|((.+)\s(.+)\s(.+)\s(.+)\s(.+))$" }),
        )
        .at("spec.template.metadata.annotations", json!({ "x-kubernetes-map-type": "granular" }))
        .rules(
            "spec.template.spec.nodeClassRef",
            [
                rule("self.group == oldSelf.group", "nodeClassRef.group is immutable"),
                rule("self.kind == oldSelf.kind", "nodeClassRef.kind is immutable"),
            ],
        );
    shared::template_labels(schema, "spec.template.metadata.labels");
    shared::requirements(schema, "spec.template.spec.requirements", Keys::Pool);
    shared::taints(schema, "spec.template.spec.taints");
    shared::taints(schema, "spec.template.spec.startupTaints");
    shared::node_class_ref(schema, "spec.template.spec.nodeClassRef");
    shared::conditions(schema, Conditions::Keyed);
}

/// `kubectl scale` sets the size of a static pool.
pub(super) fn finish(version: &mut CustomResourceDefinitionVersion) {
    version.subresources.get_or_insert_default().scale = Some(CustomResourceSubresourceScale {
        label_selector_path: None,
        spec_replicas_path: ".spec.replicas".to_owned(),
        status_replicas_path: ".status.nodes".to_owned(),
    });
}
