//! Values as people write them for Helm, which cares less about types: a switch in quotes, a number
//! where a text is meant, an empty map for an empty list.

use k8s_openapi::api::core::v1::Container;
use serde::de::Error;
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

/// A list, or the empty map that Karpenter's chart has for one: values that Helm has printed stay
/// valid.
pub(super) fn list_or_nothing<'de, D: Deserializer<'de>>(
    from: D,
) -> Result<Vec<Container>, D::Error> {
    let value = Value::deserialize(from)?;
    if value.is_null() || value.as_object().is_some_and(Map::is_empty) {
        return Ok(Vec::new());
    }
    serde_json::from_value(value).map_err(D::Error::custom)
}

/// A text, or a number that stands for one.
pub(super) fn text<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    match Value::deserialize(from)? {
        Value::String(text) => Ok(text),
        Value::Number(number) => Ok(number.to_string()),
        other => Err(D::Error::custom(format!("{other} is not text"))),
    }
}

/// `true` or `false`, also in quotes.
pub(super) fn switch<'de, D: Deserializer<'de>>(from: D) -> Result<bool, D::Error> {
    match Value::deserialize(from)? {
        Value::Bool(on) => Ok(on),
        Value::String(text) if ["true", "false"].contains(&text.as_str()) => Ok(text == "true"),
        other => Err(D::Error::custom(format!("{other} is not true or false"))),
    }
}

/// A number, also in quotes.
pub(super) fn number<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
    let value = Value::deserialize(from)?;
    let number = value.as_f64().or_else(|| value.as_str()?.parse().ok());
    number
        .filter(|it| it.is_finite())
        .ok_or_else(|| D::Error::custom(format!("{value} is not a number")))
}
