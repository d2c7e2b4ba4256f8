//! Objects that may not parse: one bad object must not stop the watch of all others.

use std::borrow::Cow;
use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::de::{DeserializeOwned, DeserializeSeed, Error as _, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value, json};

use crate::pod::{DELETION_COST_MANAGER, NOMINATION_MANAGER};

/// An object of a watch, parsed or not. Unlike kube's own guard it parses from a borrowed tree,
/// without copying each object first, and leaves out of the tree what is not needed of
/// `metadata.managedFields`.
#[derive(Clone, Debug)]
pub struct Guarded<K>(Result<K, Box<Invalid>>);

/// An object that does not parse.
#[derive(Clone, Debug)]
pub struct Invalid {
    /// The parser's message, with the path of the field.
    pub error: String,
    /// Parsed on its own, so that the object can be named.
    pub metadata: ObjectMeta,
}

impl<K> Guarded<K> {
    /// The object, or why there is none.
    pub fn into_result(self) -> Result<K, Box<Invalid>> {
        self.0
    }
}

impl<K> From<Result<K, Box<Invalid>>> for Guarded<K> {
    fn from(result: Result<K, Box<Invalid>>) -> Self {
        Self(result)
    }
}

impl<'de, K: DeserializeOwned> Deserialize<'de> for Guarded<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct MetadataOnly {
            metadata: ObjectMeta,
        }
        let tree = Lean(&[("metadata", Read::Metadata)]).deserialize(deserializer)?;
        match K::deserialize(&tree) {
            Ok(object) => Ok(Self(Ok(object))),
            Err(error) => {
                let MetadataOnly { metadata } =
                    MetadataOnly::deserialize(&tree).map_err(D::Error::custom)?;
                Ok(Self(Err(Box::new(Invalid { error: error.to_string(), metadata }))))
            }
        }
    }
}

/// The managers whose values on pods the operator tells from others'.
const OURS: [&str; 2] = [DELETION_COST_MANAGER, NOMINATION_MANAGER];

/// Whether the values of this manager are told from others'.
pub(crate) fn is_ours(manager: &str) -> bool {
    OURS.contains(&manager)
}

/// Who has written something of an object, and how; not what, which is as large as the rest of the
/// object and is skipped without being built.
#[derive(Deserialize)]
struct Manager {
    manager: Option<String>,
    operation: Option<String>,
}

/// How a field is read that is not taken as it is.
#[derive(Clone, Copy)]
enum Read {
    /// `metadata`.
    Metadata,
    /// `metadata.managedFields`: our own entries, which tell our own values from others'.
    Managers,
}

impl<'de> DeserializeSeed<'de> for Read {
    type Value = Option<Value>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        match self {
            Self::Metadata => {
                Lean(&[("managedFields", Self::Managers)]).deserialize(deserializer).map(Some)
            }
            Self::Managers => {
                let managers: Vec<Manager> = Option::deserialize(deserializer)?.unwrap_or_default();
                let is_ours = |entry: &Manager| entry.manager.as_deref().is_some_and(is_ours);
                let ours: Vec<Value> = managers
                    .into_iter()
                    .filter(is_ours)
                    .map(|it| json!({ "manager": it.manager, "operation": it.operation }))
                    .collect();
                Ok(Some(ours).filter(|ours| !ours.is_empty()).map(Value::Array))
            }
        }
    }
}

/// Builds the tree of an object of which some fields are read in another way.
struct Lean<'a>(&'a [(&'static str, Read)]);

impl<'de> DeserializeSeed<'de> for Lean<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Lean<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut fields = Map::new();
        while let Some(name) = map.next_key::<String>()? {
            let value = match self.0.iter().find(|(field, _)| **field == name) {
                Some((_, read)) => map.next_value_seed(*read)?,
                None => Some(map.next_value()?),
            };
            if let Some(value) = value {
                fields.insert(name, value);
            }
        }
        Ok(Value::Object(fields))
    }
}

impl<K: Resource> Resource for Guarded<K> {
    type DynamicType = K::DynamicType;
    type Scope = K::Scope;

    fn kind(dt: &Self::DynamicType) -> Cow<'_, str> {
        K::kind(dt)
    }

    fn group(dt: &Self::DynamicType) -> Cow<'_, str> {
        K::group(dt)
    }

    fn version(dt: &Self::DynamicType) -> Cow<'_, str> {
        K::version(dt)
    }

    fn plural(dt: &Self::DynamicType) -> Cow<'_, str> {
        K::plural(dt)
    }

    fn meta(&self) -> &ObjectMeta {
        match &self.0 {
            Ok(object) => object.meta(),
            Err(invalid) => &invalid.metadata,
        }
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        match &mut self.0 {
            Ok(object) => object.meta_mut(),
            Err(invalid) => &mut invalid.metadata,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use tenon_crds::NodePool;

    #[test]
    fn a_bad_object_keeps_its_metadata_and_says_what_is_wrong() {
        let guarded: Guarded<NodePool> = serde_json::from_value(json!({
            "apiVersion": "karpenter.sh/v1", "kind": "NodePool",
            "metadata": {"name": "broken", "uid": "1"},
            "spec": {"template": "not-a-template"},
        }))
        .unwrap();
        assert_eq!(guarded.meta().name.as_deref(), Some("broken"));
        let invalid = guarded.into_result().unwrap_err();
        assert!(invalid.error.contains("not-a-template"), "{}", invalid.error);
    }

    #[test]
    fn of_who_manages_what_only_our_own_entries_are_kept() {
        let managers = |names: &[&str]| {
            let entries: Vec<_> = names
                .iter()
                .map(|name| json!({"manager": name, "operation": "Apply", "fieldsV1": {}}))
                .collect();
            let guarded: Guarded<crate::wire::Pod> =
                serde_json::from_value(json!({"metadata": {"managedFields": entries}})).unwrap();
            let kept = guarded.meta().managed_fields.clone();
            kept.map(|kept| kept.into_iter().filter_map(|it| it.manager).collect::<Vec<_>>())
        };
        assert_eq!(managers(&["kubelet"]), None);
        for ours in OURS {
            assert_eq!(managers(&["kubelet", ours]), Some(vec![ours.to_owned()]));
        }
    }
}
