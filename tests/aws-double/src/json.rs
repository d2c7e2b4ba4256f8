//! JSON values.

use serde_json::Value;

/// Puts `extra` into `target`, object by object; everything else is replaced.
pub fn merge(target: &mut Value, extra: &Value) {
    match (target, extra) {
        (Value::Object(target), Value::Object(extra)) => {
            for (key, value) in extra {
                merge(target.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (target, extra) => *target = extra.clone(),
    }
}
