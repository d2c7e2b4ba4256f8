//! The JSON schema of the chart's values, with which Helm validates them
//! (`charts/tenon/values.schema.json`), and what of it also holds for settings files.

use serde_json::{Map, Value, json};

use super::Values;

const DEFINITIONS: &str = "#/definitions/";

/// The schema of draft 7, which all versions of Helm read.
pub fn schema() -> Value {
    let mut schema = schemars::schema_for!(Values).to_value();
    refuse_unknown_fields(&mut schema);
    join_lines(&mut schema);
    let mut root = for_helm(&schema, false);
    let definitions = schema["$defs"].as_object().into_iter().flatten();
    let definitions = definitions.map(|(name, definition)| {
        let is_of_kubernetes = name.starts_with("io.k8s.");
        let definition = match name.rsplit('.').next() {
            Some("Quantity") if is_of_kubernetes => json!({"type": ["string", "number"]}),
            Some("IntOrString") if is_of_kubernetes => json!({"type": ["string", "integer"]}),
            _ => for_helm(definition, is_of_kubernetes),
        };
        (name.clone(), definition)
    });
    root["definitions"] = Value::Object(definitions.collect());
    root["$schema"] = "http://json-schema.org/draft-07/schema#".into();
    root["title"] = "Values of the chart tenon".into();
    if let Some(root) = root.as_object_mut() {
        root.remove("$defs");
        root.remove("description");
    }
    // Karpenter's chart has an empty map for an empty list, and for profiles that are not set.
    for place in [
        "/properties/initContainers",
        "/definitions/Controller/properties/sidecarContainer",
        "/definitions/ContainerSecurity/properties/appArmorProfile",
        "/definitions/ContainerSecurity/properties/seccompProfile",
    ] {
        let place = root.pointer_mut(place).expect("the values have it");
        let description = place.as_object_mut().and_then(|schema| schema.remove("description"));
        let branches = json!([place.take(), { "type": "object", "maxProperties": 0 }]);
        *place = json!({ "description": description, "anyOf": branches });
    }
    root
}

/// Kubernetes' own types say nothing about fields that they don't have; they would be dropped
/// without a word.
pub(in crate::settings) fn refuse_unknown_fields(schema: &mut Value) {
    let definitions = schema.get_mut("$defs").and_then(Value::as_object_mut);
    for (name, definition) in definitions.into_iter().flatten() {
        if name.starts_with("io.k8s.")
            && definition.get("properties").is_some()
            && let Some(definition) = definition.as_object_mut()
        {
            definition.entry("additionalProperties").or_insert(false.into());
        }
    }
}

/// Descriptions come from doc comments, where a paragraph has as many lines as the source needs;
/// here each paragraph is one line.
pub(in crate::settings) fn join_lines(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            if let Some(Value::String(text)) = fields.get_mut("description") {
                let paragraphs = text.split("\n\n").map(|paragraph| paragraph.replace('\n', " "));
                *text = paragraphs.collect::<Vec<_>>().join("\n\n");
            }
            fields.values_mut().for_each(join_lines);
        }
        Value::Array(items) => items.iter_mut().for_each(join_lines),
        _ => {}
    }
}

/// A schema of one type as Helm needs it: `null` may stand for every value, and templates may stand
/// for switches. `brief`: without descriptions.
fn for_helm(schema: &Value, brief: bool) -> Value {
    let Value::Object(fields) = schema else { return schema.clone() };
    let mut made = Map::new();
    for (key, value) in fields {
        match (key.as_str(), value) {
            ("format" | "default" | "$defs" | "$schema", _) => {}
            ("description", _) if brief => {}
            ("$ref", Value::String(target)) => {
                made.insert(key.clone(), target.replace("#/$defs/", DEFINITIONS).into());
            }
            ("properties", Value::Object(properties)) => {
                let properties = properties
                    .iter()
                    .map(|(name, schema)| (name.clone(), nullable(for_helm(schema, brief))));
                made.insert(key.clone(), Value::Object(properties.collect()));
            }
            ("items" | "additionalProperties", _) => {
                made.insert(key.clone(), for_helm(value, brief));
            }
            ("anyOf", Value::Array(branches)) => {
                let branches = branches.iter().map(|branch| for_helm(branch, brief));
                made.insert(key.clone(), branches.collect());
            }
            _ => {
                made.insert(key.clone(), value.clone());
            }
        }
    }
    Value::Object(made)
}

fn nullable(mut schema: Value) -> Value {
    let Some(fields) = schema.as_object_mut() else { return schema };
    if let Some(target) = fields.remove("$ref") {
        fields.insert("anyOf".to_owned(), json!([{ "$ref": target }, { "type": "null" }]));
    } else if fields.contains_key("enum") {
        fields.remove("enum");
        fields.remove("type");
        let branches = json!([
            { "type": ["boolean", "null"] },
            { "enum": ["true", "false"] },
            { "type": "string", "pattern": "\\{\\{" },
        ]);
        fields.insert("anyOf".to_owned(), branches);
    } else if let Some(types) = fields.get_mut("type") {
        let mut all = match types.take() {
            Value::Array(all) => all,
            one => vec![one],
        };
        if !all.contains(&json!("null")) {
            all.push("null".into());
        }
        *types = all.into();
    }
    schema
}
