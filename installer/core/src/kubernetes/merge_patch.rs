//! What a merge patch does, where no API server is asked.

use serde_json::{Value, json};

/// An object as the API server would make it of a merge patch.
pub fn merged(mut live: Value, patch: &Value) -> Value {
    fn merge(into: &mut Value, patch: &Value) {
        match (into, patch) {
            (Value::Object(into), Value::Object(patch)) => {
                for (key, value) in patch {
                    if value.is_null() {
                        into.remove(key);
                    } else {
                        merge(into.entry(key.clone()).or_insert_with(|| json!({})), value);
                    }
                }
            }
            (into, value) => *into = value.clone(),
        }
    }
    merge(&mut live, patch);
    live
}
