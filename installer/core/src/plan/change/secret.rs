//! What is not shown of a value: environment variables that hold one by their name, user data.

use serde_json::Value;

use super::path::{Path, Segment};

/// Stands for a value that is not shown.
pub(super) const HIDDEN: &str = "(sensitive)";

/// Fields whose values are not shown, wherever they are.
const FIELDS: [&str; 2] = ["userData", "stringData"];

/// Parts of names of environment variables.
const NAMES: [&str; 6] = ["TOKEN", "SECRET", "PASSWORD", "PASSWD", "CREDENTIAL", "ACCESS_KEY"];

fn is_secret_name(name: &str) -> bool {
    let name = name.to_uppercase();
    NAMES.iter().any(|part| name.contains(part))
}

/// A value without what must not be shown.
pub(super) fn without(path: &Path, value: &Value) -> Value {
    let hidden = path.0.windows(2).any(|pair| match pair {
        // The reference to a Secret is no secret.
        [Segment::Element { key: "name", name }, Segment::Field(field)] => {
            field == "value" && is_secret_name(name)
        }
        _ => false,
    });
    let by_field = path
        .0
        .iter()
        .any(|segment| matches!(segment, Segment::Field(name) if FIELDS.contains(&name.as_str())));
    if hidden || by_field { HIDDEN.into() } else { inside(value) }
}

fn inside(value: &Value) -> Value {
    match value {
        Value::Array(list) => list.iter().map(inside).collect(),
        Value::Object(map) => {
            let is_secret = map.get("name").and_then(Value::as_str).is_some_and(is_secret_name);
            let shown = map.iter().map(|(key, value)| {
                let hide = FIELDS.contains(&key.as_str()) || is_secret && key == "value";
                (key.clone(), if hide { HIDDEN.into() } else { inside(value) })
            });
            Value::Object(shown.collect())
        }
        other => other.clone(),
    }
}
