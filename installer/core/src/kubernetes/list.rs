//! Lists whose elements are known by a key, such as containers by their name.

use std::collections::BTreeMap;

use serde_json::Value;

/// What can tell the elements of a list apart, the likeliest first.
const KEYS: [&str; 7] = ["name", "Sid", "key", "mountPath", "containerPort", "topologyKey", "id"];

/// The elements of a list by their key.
pub(crate) type Elements<'a> = BTreeMap<String, &'a Value>;

/// The key that all elements of both lists have, each another one within its list. A list of one is
/// enough to know it by.
pub(crate) fn common_key(old: &[Value], new: &[Value]) -> Option<&'static str> {
    if old.is_empty() && new.is_empty() {
        return None;
    }
    KEYS.into_iter().find(|key| by_key(key, old).is_some() && by_key(key, new).is_some())
}

/// The elements of a list by a key; `None` where one lacks it, or two have the same.
pub(crate) fn by_key<'a>(key: &str, list: &'a [Value]) -> Option<Elements<'a>> {
    let mut elements = Elements::new();
    for element in list {
        if elements.insert(name(element, key)?, element).is_some() {
            return None;
        }
    }
    Some(elements)
}

/// The value of an element's key, if it is one that can tell elements apart.
pub(crate) fn name(element: &Value, key: &str) -> Option<String> {
    match element.get(key)? {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}
