//! An object to apply, whatever its type.

use std::collections::BTreeMap;
use std::fmt;

use kube::core::{ApiResource, GroupVersionKind};
use kube::{Resource, ResourceExt};
use serde::Serialize;
use serde_json::{Map, Value};

use crate::names;
use crate::ownership::{INSTALL_ID, SPEC_HASH, VERSION};

/// What identifies an object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Key {
    /// `group/version`, or `v1`.
    pub api_version: String,
    /// Such as `Deployment`.
    pub kind: String,
    /// `None` for objects of the cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Unique for kind and namespace.
    pub name: String,
}

impl Key {
    /// `namespace/name`, or the name alone.
    pub fn path(&self) -> String {
        match &self.namespace {
            Some(namespace) => format!("{namespace}/{}", self.name),
            None => self.name.clone(),
        }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind, self.path())
    }
}

/// An object as it should be.
#[derive(Debug, Clone, PartialEq)]
pub struct Object {
    /// Where the API server has it.
    pub resource: ApiResource,
    /// `None` for objects of the cluster.
    pub namespace: Option<String>,
    /// As in `metadata.name`.
    pub name: String,
    /// All of it.
    pub body: Value,
}

impl Serialize for Object {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.body.serialize(serializer)
    }
}

impl Object {
    /// From a typed object.
    pub fn new<K: Resource<DynamicType = ()> + Serialize>(object: &K) -> Self {
        let mut body = serde_json::to_value(object).expect("Kubernetes objects always serialise");
        let resource = ApiResource::erase::<K>(&());
        body["apiVersion"] = resource.api_version.clone().into();
        body["kind"] = resource.kind.clone().into();
        Self { resource, namespace: object.namespace(), name: object.name_any(), body }
    }

    /// From JSON. `plural` as in the API's path.
    pub fn from_json(body: Value, plural: &str) -> Self {
        let text = |pointer: &str| {
            body.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned()
        };
        let api_version = text("/apiVersion");
        let (group, version) = api_version.split_once('/').unwrap_or(("", &api_version));
        let gvk = GroupVersionKind::gvk(group, version, &text("/kind"));
        let namespace = Some(text("/metadata/namespace")).filter(|namespace| !namespace.is_empty());
        Self {
            resource: ApiResource::from_gvk_with_plural(&gvk, plural),
            namespace,
            name: text("/metadata/name"),
            body,
        }
    }

    /// Where an object is, without what it holds: enough to delete it.
    pub fn at(resource: &ApiResource, key: &Key) -> Self {
        let body = serde_json::json!({
            "apiVersion": key.api_version,
            "kind": key.kind,
            "metadata": {"name": key.name, "namespace": key.namespace},
        });
        Self {
            resource: resource.clone(),
            namespace: key.namespace.clone(),
            name: key.name.clone(),
            body,
        }
    }

    /// What identifies it.
    pub fn key(&self) -> Key {
        Key {
            api_version: self.resource.api_version.clone(),
            kind: self.resource.kind.clone(),
            namespace: self.namespace.clone(),
            name: self.name.clone(),
        }
    }

    /// It runs pods.
    pub fn is_deployment(&self) -> bool {
        self.resource.kind == "Deployment"
    }

    /// Adds annotations.
    pub fn annotate(&mut self, annotations: BTreeMap<String, String>) {
        for (key, value) in annotations {
            put(&mut self.body, "annotations", &key, &value);
        }
    }

    /// The object as a Helm release owns it, and our marks alone. The first says whose it is, the
    /// second what it was made from: if only the first was written, the object differs from what it
    /// should be, and the next run writes both.
    pub(crate) fn by_owner(&self) -> (Self, Self) {
        let mut of_chart = self.clone();
        if let Some(annotations) = of_chart.body["metadata"]["annotations"].as_object_mut() {
            annotations.retain(|key, _| key != SPEC_HASH && key != VERSION);
        }
        let mut marks = self.clone();
        marks.body = serde_json::json!({
            "apiVersion": self.resource.api_version,
            "kind": self.resource.kind,
            "metadata": {"name": self.name},
        });
        if let Some(namespace) = &self.namespace {
            marks.body["metadata"]["namespace"] = namespace.as_str().into();
        }
        if let Some(id) = label(&self.body, INSTALL_ID) {
            put(&mut marks.body, "labels", INSTALL_ID, id);
        }
        for key in [SPEC_HASH, VERSION] {
            if let Some(value) = annotation(&self.body, key) {
                put(&mut marks.body, "annotations", key, value);
            }
        }
        (of_chart, marks)
    }

    /// Marks it as an installation's, and with the hash of what was asked for.
    pub fn stamp(&mut self, install_id: &str) {
        let hash = names::hash(&self.body.to_string(), 12);
        put(&mut self.body, "labels", INSTALL_ID, install_id);
        put(&mut self.body, "annotations", SPEC_HASH, &hash);
        put(&mut self.body, "annotations", VERSION, env!("CARGO_PKG_VERSION"));
    }
}

fn put(body: &mut Value, section: &str, key: &str, value: &str) {
    let metadata = &mut body["metadata"];
    if !metadata[section].is_object() {
        metadata[section] = Value::Object(Map::new());
    }
    metadata[section][key] = value.into();
}

/// The value of a label.
pub fn label<'a>(body: &'a Value, key: &str) -> Option<&'a str> {
    body.get("metadata")?.get("labels")?.get(key)?.as_str()
}

/// The value of an annotation.
pub fn annotation<'a>(body: &'a Value, key: &str) -> Option<&'a str> {
    body.get("metadata")?.get("annotations")?.get(key)?.as_str()
}

/// The first path at which `live` lacks something that `wanted` says; what only `live` has
/// (defaults, status, other managers' fields) doesn't matter. Empty maps and nulls say nothing.
pub fn first_difference(wanted: &Value, live: &Value) -> Option<String> {
    fn walk(wanted: &Value, live: Option<&Value>, path: &str) -> Option<String> {
        match (wanted, live) {
            (Value::Null, _) => None,
            (Value::Object(wanted), live) => wanted.iter().find_map(|(key, value)| {
                let inner = live.and_then(|live| live.get(key));
                walk(
                    value,
                    inner,
                    &if path.is_empty() { key.clone() } else { format!("{path}.{key}") },
                )
            }),
            (Value::Array(wanted), None) if wanted.is_empty() => None,
            (Value::Array(wanted), Some(Value::Array(live))) if wanted.len() == live.len() => {
                wanted.iter().zip(live).enumerate().find_map(|(i, (wanted, live))| {
                    walk(wanted, Some(live), &format!("{path}[{i}]"))
                })
            }
            (wanted, Some(live)) if wanted == live => None,
            // Some writers of YAML say 300 and some 300.0.
            (Value::Number(wanted), Some(Value::Number(live)))
                if wanted.as_f64() == live.as_f64() =>
            {
                None
            }
            _ => Some(path.to_owned()),
        }
    }
    walk(wanted, Some(live), "")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn fields_of_others_are_no_difference() {
        let wanted = json!({"a": 1, "list": [{"name": "x"}], "empty": {}, "none": null});
        assert_eq!(
            first_difference(
                &wanted,
                &json!({"a": 1, "b": 2, "list": [{"name": "x", "defaulted": true}]})
            ),
            None
        );
        assert_eq!(
            first_difference(&wanted, &json!({"a": 2, "list": [{"name": "x"}]})).as_deref(),
            Some("a")
        );
        assert_eq!(
            first_difference(&wanted, &json!({"a": 1, "list": []})).as_deref(),
            Some("list")
        );
        assert_eq!(
            first_difference(&wanted, &json!({"a": 1, "list": [{"name": "y"}]})).as_deref(),
            Some("list[0].name")
        );
    }

    #[test]
    fn what_helm_owns_and_our_marks_are_apart() {
        let body = json!({"apiVersion": "v1", "kind": "X", "metadata": {"name": "x", "labels": {"a": "b"}}, "spec": 1});
        let mut object = Object::from_json(body, "xs");
        object.stamp("abcd0123");
        let (of_chart, marks) = object.by_owner();
        assert_eq!(annotation(&of_chart.body, SPEC_HASH), None);
        assert_eq!(label(&of_chart.body, INSTALL_ID), Some("abcd0123"));
        assert_eq!(marks.body["spec"], Value::Null);
        assert_eq!(label(&marks.body, "a"), None);
        assert_eq!(annotation(&marks.body, SPEC_HASH), annotation(&object.body, SPEC_HASH));
    }

    #[test]
    fn a_stamp_is_the_same_for_the_same_object_only() {
        let stamped = |replicas: i32| {
            let body = json!({"apiVersion": "v1", "kind": "X", "metadata": {"name": "x"}, "replicas": replicas});
            let mut object = Object::from_json(body, "xs");
            object.stamp("abcd0123");
            annotation(&object.body, SPEC_HASH).expect("stamped").to_owned()
        };
        assert_eq!(stamped(1), stamped(1));
        assert_ne!(stamped(1), stamped(2));
    }
}
