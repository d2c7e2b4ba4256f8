//! An object against the schema of a CRD that is not there yet: fields, types, values and limits.
//! Rules in CEL, patterns and formats are for the API server.

use serde_json::Value;

use super::plain;
use crate::kubernetes::object::Object;
use crate::words::count;

/// The schema of an object's type, if its CRD is among these objects.
pub(super) fn of<'a>(object: &Object, all: &[&'a Object]) -> Option<&'a Value> {
    let crd = all.iter().find(|crd| {
        let text = |pointer: &str| crd.body.pointer(pointer).and_then(Value::as_str);
        crd.resource.kind == "CustomResourceDefinition"
            && text("/spec/group") == Some(&object.resource.group)
            && text("/spec/names/kind") == Some(&object.resource.kind)
    })?;
    let versions = crd.body.pointer("/spec/versions").and_then(Value::as_array)?;
    let version = versions.iter().find(|one| one["name"] == object.resource.version.as_str())?;
    version.pointer("/schema/openAPIV3Schema")
}

/// Fields that don't fit, and why.
pub(super) fn problems(schema: &Value, body: &Value) -> Vec<(String, String)> {
    let mut problems = Vec::new();
    if let (Some(schema), Some(value)) = (schema.pointer("/properties/spec"), body.get("spec")) {
        walk(schema, value, "spec", &mut problems);
    }
    problems
}

fn walk(schema: &Value, value: &Value, path: &str, problems: &mut Vec<(String, String)>) {
    if value.is_null() {
        // The API server drops it.
        return;
    }
    let flag = |name: &str| schema[name] == true;
    let mut problem = |message: String| problems.push((path.to_owned(), message));
    if flag("x-kubernetes-int-or-string") {
        if !(value.is_string() || value.is_i64() || value.is_u64()) {
            problem("must be an integer or a string".to_owned());
        }
        return;
    }
    let kind = schema["type"].as_str().unwrap_or_default();
    let fits = match kind {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        _ => true,
    };
    if !fits {
        problem(format!("must be of type {kind}"));
        return;
    }
    if let Some(allowed) = schema["enum"].as_array().filter(|all| !all.contains(value)) {
        let allowed = allowed.iter().map(plain).collect::<Vec<_>>().join(", ");
        problem(format!("{value} is not allowed; allowed: {allowed}"));
    }
    let limit = |name: &str| schema[name].as_f64();
    if let Some(number) = value.as_f64() {
        if let Some(least) = limit("minimum").filter(|least| number < *least) {
            problem(format!("{value} is less than {least}"));
        }
        if let Some(most) = limit("maximum").filter(|most| number > *most) {
            problem(format!("{value} is more than {most}"));
        }
    }
    match value {
        Value::Object(fields) => {
            for name in schema["required"].as_array().into_iter().flatten() {
                let name = name.as_str().unwrap_or_default();
                if !fields.contains_key(name) {
                    problems.push((format!("{path}.{name}"), "is required".to_owned()));
                }
            }
            for (name, value) in fields {
                let below = format!("{path}.{name}");
                let of_field = schema.pointer("/properties").and_then(|all| all.get(name));
                let others = schema.get("additionalProperties").filter(|it| it.is_object());
                match of_field.or(others) {
                    Some(schema) => walk(schema, value, &below, problems),
                    None if flag("x-kubernetes-preserve-unknown-fields")
                        || schema["additionalProperties"] == true => {}
                    None => problems.push((below, "is not a field of this version".to_owned())),
                }
            }
        }
        Value::Array(elements) => {
            let n = elements.len();
            let most = schema["maxItems"].as_u64().and_then(|most| usize::try_from(most).ok());
            if let Some(most) = most.filter(|most| n > *most) {
                problems.push((
                    path.to_owned(),
                    format!("has {}, and the limit is {most}", count(n, "element")),
                ));
            }
            for (i, element) in elements.iter().enumerate() {
                walk(&schema["items"], element, &format!("{path}[{i}]"), problems);
            }
        }
        _ => {}
    }
}
