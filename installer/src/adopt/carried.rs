//! What becomes of Karpenter's Deployment, while it is put together.

use serde_json::{Value, json};

/// What becomes of Karpenter's Deployment: values of the chart, and what could not become any.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Carried {
    /// Values of the chart, as a values file has them.
    pub values: Value,
    /// What is not carried over, each with what to do about it.
    pub told: Vec<String>,
}

/// Sets a value by its JSON pointer.
pub(super) fn put(values: &mut Value, pointer: &str, value: Value) {
    let mut place = values;
    for key in pointer.split('/').skip(1) {
        if !place.is_object() {
            *place = json!({});
        }
        place = &mut place[key];
    }
    *place = value;
}
