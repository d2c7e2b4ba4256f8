//! Reading, applying and deleting objects of any type, with errors that say what was tried on what.

use futures::TryStreamExt;
use kube::api::{
    Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PropagationPolicy,
};
use kube::core::ApiResource;
use kube::{Client, Error};
use serde_json::Value;

use super::object::{Key, Object};

/// Owner of the fields that the installer writes.
pub const FIELD_MANAGER: &str = "tenon";

/// A call to Kubernetes failed.
#[derive(Debug, thiserror::Error)]
#[error("{verb} {resource}: {message}", message = short(.source))]
pub struct KubeError {
    /// `get`, `patch`, ….
    pub verb: &'static str,
    /// What it was tried on.
    pub resource: String,
    /// Why it failed.
    pub source: Box<Error>,
}

fn short(error: &Error) -> String {
    match error {
        Error::Api(status) => status.message.clone(),
        other => {
            use std::error::Error as _;
            let mut text = other.to_string();
            let mut source = other.source();
            while let Some(error) = source {
                text = format!("{text}: {error}");
                source = error.source();
            }
            text
        }
    }
}

impl KubeError {
    fn code(&self) -> Option<u16> {
        match &*self.source {
            Error::Api(status) => Some(status.code),
            _ => None,
        }
    }

    /// The caller may not do it.
    pub fn is_denied(&self) -> bool {
        matches!(self.code(), Some(401 | 403))
    }

    /// There is no such object, or no such type.
    pub fn is_not_found(&self) -> bool {
        self.code() == Some(404)
    }

    /// Trying again may help: conflicts, overload, a server that is starting.
    pub fn is_transient(&self) -> bool {
        match self.code() {
            Some(code) => matches!(code, 409 | 429 | 500..=599),
            None => matches!(&*self.source, Error::HyperError(_) | Error::Service(_)),
        }
    }
}

/// The API server, spoken to in objects of any type.
#[derive(Clone)]
pub struct Cluster {
    client: Client,
}

impl Cluster {
    /// Speaks through this client.
    pub fn new(client: Client) -> Self {
        Self { client }
    }

    /// The client itself, for typed calls.
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    fn api(&self, resource: &ApiResource, namespace: Option<&str>) -> Api<DynamicObject> {
        match namespace {
            Some(namespace) => Api::namespaced_with(self.client.clone(), namespace, resource),
            None => Api::all_with(self.client.clone(), resource),
        }
    }

    /// Reads an object; `None` if it or its type does not exist.
    pub async fn get(&self, resource: &ApiResource, key: &Key) -> Result<Option<Value>, KubeError> {
        match self.api(resource, key.namespace.as_deref()).get(&key.name).await {
            Ok(object) => Ok(Some(
                serde_json::to_value(object).expect("an object from JSON goes back to JSON"),
            )),
            Err(source) => {
                let error =
                    KubeError { verb: "get", resource: key.to_string(), source: Box::new(source) };
                if error.is_not_found() { Ok(None) } else { Err(error) }
            }
        }
    }

    /// All objects of a type in all namespaces; empty if the type does not exist.
    pub async fn list(&self, resource: &ApiResource) -> Result<Vec<DynamicObject>, KubeError> {
        match self.api(resource, None).list(&ListParams::default()).await {
            Ok(list) => Ok(list.items),
            Err(source) => {
                let error = KubeError {
                    verb: "list",
                    resource: resource.plural.clone(),
                    source: Box::new(source),
                };
                if error.is_not_found() { Ok(Vec::new()) } else { Err(error) }
            }
        }
    }

    /// Brings an object to what it should be, by server-side apply.
    pub async fn apply(&self, object: &Object) -> Result<(), KubeError> {
        let params = PatchParams::apply(FIELD_MANAGER).force();
        self.api(&object.resource, object.namespace.as_deref())
            .patch(&object.name, &params, &Patch::Apply(&object.body))
            .await
            .map(|_| ())
            .map_err(|source| KubeError {
                verb: "patch",
                resource: object.key().to_string(),
                source: Box::new(source),
            })
    }

    /// Changes parts of an object.
    pub async fn merge(
        &self,
        resource: &ApiResource,
        key: &Key,
        patch: &Value,
    ) -> Result<(), KubeError> {
        self.api(resource, key.namespace.as_deref())
            .patch(&key.name, &PatchParams::default(), &Patch::Merge(patch))
            .await
            .map(|_| ())
            .map_err(|source| KubeError {
                verb: "patch",
                resource: key.to_string(),
                source: Box::new(source),
            })
    }

    /// Removes one finalizer, if it is there, and touches no other: a JSON patch that fails when somebody else was faster is tried again.
    pub async fn remove_finalizer(
        &self,
        resource: &ApiResource,
        key: &Key,
        finalizer: &str,
    ) -> Result<(), KubeError> {
        loop {
            let Some(live) = self.get(resource, key).await? else { return Ok(()) };
            let finalizers = live
                .pointer("/metadata/finalizers")
                .and_then(Value::as_array)
                .cloned()
                .unwrap_or_default();
            let Some(index) = finalizers.iter().position(|value| value.as_str() == Some(finalizer))
            else {
                return Ok(());
            };
            let path = format!("/metadata/finalizers/{index}");
            let patch = serde_json::json!([
                {"op": "test", "path": path, "value": finalizer},
                {"op": "remove", "path": path},
            ]);
            let patch: Patch<()> = Patch::Json(
                serde_json::from_value(patch).expect("these are two operations of a JSON patch"),
            );
            let api = self.api(resource, key.namespace.as_deref());
            match api.patch(&key.name, &PatchParams::default(), &patch).await {
                Ok(_) => return Ok(()),
                Err(source) => {
                    let error = KubeError {
                        verb: "patch",
                        resource: key.to_string(),
                        source: Box::new(source),
                    };
                    // 422: the test failed, because the list changed in between.
                    match error.code() {
                        Some(404) => return Ok(()),
                        Some(409 | 422) => {}
                        _ => return Err(error),
                    }
                }
            }
        }
    }

    /// Deletes an object; one that does not exist is no error.
    pub async fn delete(
        &self,
        resource: &ApiResource,
        key: &Key,
        propagation: PropagationPolicy,
    ) -> Result<(), KubeError> {
        let params =
            DeleteParams { propagation_policy: Some(propagation), ..DeleteParams::default() };
        match self.api(resource, key.namespace.as_deref()).delete(&key.name, &params).await {
            Ok(_) => Ok(()),
            Err(source) => {
                let error = KubeError {
                    verb: "delete",
                    resource: key.to_string(),
                    source: Box::new(source),
                };
                if error.is_not_found() { Ok(()) } else { Err(error) }
            }
        }
    }

    /// Reads many objects at once.
    pub async fn get_all(
        &self,
        objects: &[(ApiResource, Key)],
    ) -> Result<Vec<(Key, Value)>, KubeError> {
        let reads = objects.iter().map(|(resource, key)| async move {
            Ok::<_, KubeError>(self.get(resource, key).await?.map(|live| (key.clone(), live)))
        });
        let found: Vec<Option<(Key, Value)>> =
            futures::stream::iter(reads.map(Ok)).try_buffer_unordered(16).try_collect().await?;
        Ok(found.into_iter().flatten().collect())
    }
}
