//! Objects that may not parse: one bad object must not stop the watch of all others.

use std::borrow::Cow;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer};

/// An object of a watch, parsed or not. Unlike kube's own guard it parses from a borrowed tree, without copying each object first.
#[derive(Clone, Debug)]
pub struct Guarded<K>(Result<K, Box<Invalid>>);

/// An object that does not parse.
#[derive(Clone, Debug)]
pub struct Invalid {
    /// Where it does not.
    pub error: String,
    /// Its metadata.
    pub metadata: ObjectMeta,
}

impl<K> Guarded<K> {
    /// The object, or why there is none.
    pub fn into_result(self) -> Result<K, Box<Invalid>> {
        self.0
    }
}

impl<'de, K: DeserializeOwned> Deserialize<'de> for Guarded<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct MetadataOnly {
            metadata: ObjectMeta,
        }
        let mut tree = serde_json::Value::deserialize(deserializer)?;
        if let Some(metadata) = tree.get_mut("metadata").and_then(|m| m.as_object_mut()) {
            metadata.remove("managedFields");
        }
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
}
