//! Rules of NodeOverlay.

use serde_json::json;

use super::schema::{Schema, rule};
use super::shared::{self, Conditions, Keys};
use super::{AGE_PATH, Column, READY_PATH};

pub(super) const COLUMNS: &[Column] = &[
    ("Ready", "string", READY_PATH, 0),
    ("Age", "date", AGE_PATH, 0),
    ("Weight", "integer", ".spec.weight", 1),
];

pub(super) fn constrain(schema: &mut Schema) {
    schema
        .rules(
            "spec",
            [rule(
                "!has(self.price) || !has(self.priceAdjustment)",
                "'price' and 'priceAdjustment' cannot both be set",
            )],
        )
        .rules(
            "spec.capacity",
            [rule(
                "self.all(name, !(name in ['cpu', 'memory', 'ephemeral-storage', 'pods']))",
                "'cpu', 'memory', 'ephemeral-storage' and 'pods' cannot be set: they are measured on nodes",
            )],
        )
        .at("spec.capacity", json!({ "maxProperties": 100 }))
        .at("spec.price", json!({ "maxLength": 64, "pattern": r"^\d+(\.\d+)?$" }))
        .at(
            "spec.priceAdjustment",
            json!({
                "maxLength": 64,
                "pattern": r"^(([+-]{1}(\d*\.?\d+))|(\+{1}\d*\.?\d+%)|(^(-\d{1,2}(\.\d+)?%)$)|(-100%))$",
            }),
        )
        .at("spec.weight", json!({ "minimum": 1, "maximum": 10000 }));
    shared::requirements(schema, "spec.requirements", Keys::Overlay);
    shared::conditions(schema, Conditions::Keyed);
}
