//! What a step changes, field by field: the path, the value before and the value after.
//!
//! Elements of lists are told apart by a key where they have one, so that a changed element is not
//! shown as another list. Lists without one are compared as a whole.

mod path;
mod secret;

use serde::{Serialize, Serializer};
use serde_json::{Map, Value};

pub use path::{Path, Segment};

use crate::kubernetes::list::{Elements, by_key, common_key, name};

/// One field that changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// Which field.
    pub path: Path,
    /// Its value now; `None` where it does not exist.
    pub before: Option<Value>,
    /// Its value after the step; `None` where it is removed.
    pub after: Option<Value>,
    /// Why it changes.
    pub origin: Origin,
}

/// Why a field changes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Origin {
    /// The settings, or the version, ask for another value than before.
    #[default]
    Settings,
    /// Another program, or a person, changed it after it was applied.
    Outside {
        /// The field managers that wrote it, where Kubernetes knows them.
        by: Vec<String>,
    },
}

impl Change {
    /// A field that becomes another one because of the settings.
    fn new(path: Path, before: Option<&Value>, after: Option<&Value>) -> Self {
        Self { path, before: before.cloned(), after: after.cloned(), origin: Origin::Settings }
    }

    /// The value before, without what must not be shown.
    pub(crate) fn shown_before(&self) -> Option<Value> {
        self.before.as_ref().map(|value| secret::without(&self.path, value))
    }

    /// The value after, without what must not be shown.
    pub(crate) fn shown_after(&self) -> Option<Value> {
        self.after.as_ref().map(|value| secret::without(&self.path, value))
    }
}

impl Serialize for Change {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Shown<'a> {
            path: String,
            before: Option<Value>,
            after: Option<Value>,
            origin: &'a str,
            #[serde(skip_serializing_if = "<[String]>::is_empty")]
            by: &'a [String],
        }
        let (origin, by) = match &self.origin {
            Origin::Settings => ("settings", &[][..]),
            Origin::Outside { by } => ("outside", by.as_slice()),
        };
        let path = self.path.to_string();
        Shown { path, before: self.shown_before(), after: self.shown_after(), origin, by }
            .serialize(serializer)
    }
}

/// What leads from one value to another, in the order of paths. Nulls and what is empty say
/// nothing, so a field that has one is the same as none.
pub fn changes(before: &Value, after: &Value) -> Vec<Change> {
    let mut found = Vec::new();
    walk(&Path::default(), Some(before), Some(after), &mut found);
    found
}

fn says_something(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Object(map) => map.values().any(says_something),
        Value::Array(list) => !list.is_empty(),
        _ => true,
    }
}

fn walk(path: &Path, before: Option<&Value>, after: Option<&Value>, found: &mut Vec<Change>) {
    let (before, after) =
        (before.filter(|it| says_something(it)), after.filter(|it| says_something(it)));
    // A map that appears or disappears does so field by field, and a list element by element; an
    // element, such as a statement or a container, is one thing.
    let descends = !path.is_element();
    let (no_fields, no_elements) = (Value::Object(Map::new()), Value::Array(Vec::new()));
    let (old, new) = match (before, after) {
        (None, None) => return,
        (Some(before), Some(after)) if is_same(before, after) => return,
        (None, Some(Value::Object(_))) if descends => (Some(&no_fields), after),
        (Some(Value::Object(_)), None) if descends => (before, Some(&no_fields)),
        (None, Some(Value::Array(_))) if descends => (Some(&no_elements), after),
        (Some(Value::Array(_)), None) if descends => (before, Some(&no_elements)),
        both => both,
    };
    match (old, new) {
        (Some(Value::Object(old)), Some(Value::Object(new))) => {
            let mut keys = old.keys().chain(new.keys()).collect::<Vec<_>>();
            keys.sort_unstable();
            keys.dedup();
            for key in keys {
                walk(&path.field(key), old.get(key), new.get(key), found);
            }
        }
        (Some(Value::Array(old)), Some(Value::Array(new))) => match elements(old, new) {
            Some((key, elements)) => {
                for (name, (old, new)) in elements {
                    walk(&path.element(key, name), old, new, found);
                }
            }
            None => found.push(Change::new(path.clone(), before, after)),
        },
        _ => found.push(Change::new(path.clone(), before, after)),
    }
}

/// Equal, where some writers of YAML say 300 and some 300.0.
pub(crate) fn is_same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => a == b || a.as_f64() == b.as_f64(),
        _ => a == b,
    }
}

type Pairs<'a> = Vec<(String, (Option<&'a Value>, Option<&'a Value>))>;

/// Elements of two lists side by side, those of the first one in its order and then the new ones;
/// `None` where they have no key, or where those that stay change their order. Where the new ones
/// stand is not said.
fn elements<'a>(old: &'a [Value], new: &'a [Value]) -> Option<(&'static str, Pairs<'a>)> {
    let key = common_key(old, new)?;
    let (by_old, by_new) = (by_key(key, old)?, by_key(key, new)?);
    let names = |list: &[Value], others: &Elements<'_>, kept: bool| {
        let names = list.iter().filter_map(|element| name(element, key));
        names.filter(|name| others.contains_key(name) == kept).collect::<Vec<_>>()
    };
    if names(old, &by_new, true) != names(new, &by_old, true) {
        return None;
    }
    let pair = |name: String| {
        let values = (by_old.get(&name).copied(), by_new.get(&name).copied());
        (name, values)
    };
    let all = old.iter().filter_map(|element| name(element, key)).chain(names(new, &by_old, false));
    Some((key, all.map(pair).collect()))
}

#[cfg(test)]
mod tests;
