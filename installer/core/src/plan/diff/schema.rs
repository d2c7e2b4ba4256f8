//! What a CRD's schema gains and loses: fields and their types. Descriptions, defaults and
//! validation are too much to show, and the API server rewrites them.

use serde_json::{Map, Value, json};

use crate::plan::change::{Change, changes};

/// What leads from one CRD's fields to another's.
pub(super) fn changes_of(live: &Value, wanted: &Value) -> Vec<Change> {
    changes(&fields_of(live), &fields_of(wanted))
}

/// The fields of each version, and their types.
fn fields_of(crd: &Value) -> Value {
    let versions = crd.pointer("/spec/versions").and_then(Value::as_array);
    let versions = versions.into_iter().flatten().map(|version| {
        let schema = version.pointer("/schema/openAPIV3Schema").unwrap_or(&Value::Null);
        json!({"name": version["name"], "schema": fields(schema)})
    });
    json!({"spec": {"versions": versions.collect::<Vec<_>>()}})
}

fn fields(schema: &Value) -> Value {
    let properties = schema.get("properties").and_then(Value::as_object);
    if let Some(properties) = properties.filter(|properties| !properties.is_empty()) {
        let fields = properties.iter().map(|(name, schema)| (name.clone(), fields(schema)));
        return Value::Object(fields.collect::<Map<_, _>>());
    }
    if let Some(items) = schema.get("items") {
        return json!({"items": fields(items)});
    }
    schema.get("type").cloned().unwrap_or_else(|| "any".into())
}
