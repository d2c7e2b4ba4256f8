//! Rules of KWOKNodeClass.

use serde_json::json;

use super::schema::Schema;
use super::shared::{self, Conditions};

pub(super) fn constrain(schema: &mut Schema) {
    shared::conditions(schema, Conditions::Whole);
    schema
        // Nothing has to be set, and nothing has to be reconciled: it is ready from the start.
        .required("", &[])
        .at("spec", json!({ "default": {} }))
        .at(
            "status",
            json!({
                "default": {
                    "conditions": [{
                        "type": "Ready",
                        "status": "True",
                        "reason": "Ready",
                        "message": "",
                        "lastTransitionTime": "2024-01-01T01:01:01Z",
                    }],
                },
            }),
        );
}
