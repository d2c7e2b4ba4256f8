//! Rules of CapacityBuffer.

use serde_json::json;

use super::schema::{Schema, rule};
use super::shared::{self, Conditions};
use super::{AGE_PATH, Column};
use crate::capacitybuffer::ACTIVE_CAPACITY;

pub(super) const COLUMNS: &[Column] = &[
    ("Strategy", "string", ".spec.provisioningStrategy", 0),
    ("PodTemplate", "string", ".spec.podTemplateRef.name", 0),
    ("Replicas", "integer", ".status.replicas", 0),
    ("Type", "string", ".status.conditions[0].type", 0),
    ("Status", "string", ".status.conditions[0].status", 0),
    ("Reason", "string", ".status.conditions[0].reason", 0),
    ("Age", "date", AGE_PATH, 0),
];

pub(super) fn constrain(schema: &mut Schema) {
    schema
        .rules(
            "spec",
            [
                rule(
                    "!has(self.podTemplateRef) || has(self.replicas) || has(self.limits)",
                    "'podTemplateRef' needs 'replicas' or 'limits'",
                ),
                rule(
                    "!has(self.podTemplateRef) || !has(self.scalableRef)",
                    "'podTemplateRef' and 'scalableRef' cannot both be set",
                ),
            ],
        )
        .at("spec.provisioningStrategy", json!({ "default": ACTIVE_CAPACITY }))
        .at("spec.replicas", json!({ "minimum": 0 }))
        .at("spec.percentage", json!({ "minimum": 0 }))
        .at("spec.podTemplateRef.name", json!({ "minLength": 1 }))
        .at("spec.scalableRef.kind", json!({ "minLength": 1 }))
        .at("spec.scalableRef.name", json!({ "minLength": 1 }));
    shared::conditions(schema, Conditions::Keyed);
}
