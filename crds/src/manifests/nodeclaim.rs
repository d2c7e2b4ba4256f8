//! Rules of NodeClaim.

use super::schema::{Schema, rule};
use super::shared::{self, Conditions, Keys};
use super::{AGE_PATH, Column, READY_PATH};

pub(super) const COLUMNS: &[Column] = &[
    ("Type", "string", r".metadata.labels.node\.kubernetes\.io/instance-type", 0),
    ("Capacity", "string", r".metadata.labels.karpenter\.sh/capacity-type", 0),
    ("Zone", "string", r".metadata.labels.topology\.kubernetes\.io/zone", 0),
    ("Node", "string", ".status.nodeName", 0),
    ("Ready", "string", READY_PATH, 0),
    ("Age", "date", AGE_PATH, 0),
    ("ImageID", "string", ".status.imageID", 1),
    ("ID", "string", ".status.providerID", 1),
    ("NodePool", "string", r".metadata.labels.karpenter\.sh/nodepool", 1),
    ("NodeClass", "string", ".spec.nodeClassRef.name", 1),
    ("Drifted", "string", r#".status.conditions[?(@.type=="Drifted")].status"#, 1),
];

pub(super) fn constrain(schema: &mut Schema) {
    schema.rules("spec", [rule("self == oldSelf", "spec is immutable")]);
    shared::requirements(schema, "spec.requirements", Keys::Claim);
    shared::taints(schema, "spec.taints");
    shared::taints(schema, "spec.startupTaints");
    shared::node_class_ref(schema, "spec.nodeClassRef");
    shared::conditions(schema, Conditions::KeyedRelaxed);
}
