//! Reading, applying and deleting objects of any type, with errors that say what was tried on what.
//!
//! The client's own retries are off ([`without_hidden_retries`]): they would say nothing while a
//! server is overloaded, and to the eviction API 429 is an answer. Reads are repeated here, and say
//! so; writes are repeated by whoever knows what a conflict means for them. A server that is silent
//! is given up ([`with_deadline`]): a network that drops packets tells nobody, and a call would
//! wait for ever.

mod error;

use std::fmt::Debug;
use std::future::Future;
use std::time::Duration;

use futures::TryStreamExt;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{
    Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams, PropagationPolicy,
};
use kube::core::{ApiResource, ObjectMeta};
use kube::{Client, Config, Error, Resource};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::time::Instant;

pub use self::error::{KubeError, failed};
use super::object::{Key, Object};
use crate::audit::Audit;

/// Owner of the fields that the installer writes.
pub(crate) const FIELD_MANAGER: &str = "tenon";

/// For how long a read is repeated while the API server is overloaded or restarting.
const PATIENCE: Duration = Duration::from_secs(20);

/// How long the API server may say nothing: as long as it gives itself for a call
/// (`--request-timeout`). It counts from the last byte, so that a long list over a slow line is
/// read to its end.
const SILENCE: Duration = Duration::from_mins(1);

/// How long a connection may take to be opened, TLS included.
const CONNECT: Duration = Duration::from_secs(30);

/// A configuration whose client gives up an API server that does not answer. It speaks HTTP/1, so
/// each connection carries one call at a time, and one that is given up is closed. The installer
/// watches nothing and follows no logs: no call is meant to be silent for long.
pub(crate) fn with_deadline(mut config: Config) -> Config {
    config.connect_timeout = Some(CONNECT);
    config.read_timeout = Some(SILENCE);
    // Else the time for which a connection was not used would count.
    config.reset_reader_on_write = true;
    config
}

/// A configuration whose client answers what the server answered, the first time.
pub(crate) fn without_hidden_retries(mut config: Config) -> Config {
    config.default_retry = false;
    config
}

/// Repeats a read while the server is overloaded or restarting, and says so.
async fn patiently<T, F>(mut call: impl FnMut() -> F) -> Result<T, KubeError>
where
    F: Future<Output = Result<T, KubeError>>,
{
    let end = Instant::now() + PATIENCE;
    let mut pause = Duration::from_millis(250);
    let mut warned = String::new();
    loop {
        match call().await {
            Err(error) if error.is_overload() && Instant::now() + pause < end => {
                let text = error.to_string();
                // Once is enough, until something else is wrong.
                if text == warned {
                    tracing::debug!("{text}; retrying in {} ms", pause.as_millis());
                } else {
                    tracing::warn!("{text}; retrying for up to {} s", PATIENCE.as_secs());
                    warned = text;
                }
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(Duration::from_secs(4));
            }
            result => return result,
        }
    }
}

/// What became of asking a pod to go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Eviction {
    /// It goes.
    Accepted,
    /// A disruption budget does not let it go now; the API server's words.
    Refused(String),
    /// It is gone, or another pod has its name.
    Gone,
}

/// The API server, spoken to in objects of any type.
#[derive(Clone)]
pub struct Cluster {
    client: Client,
    audit: Audit,
}

impl Cluster {
    /// Speaks through this client, and writes down what is deleted.
    pub fn new(client: Client, audit: Audit) -> Self {
        Self { client, audit }
    }

    fn note(&self, call: &str, on: &str, result: &Result<(), KubeError>) {
        let result = result.as_ref().map_or_else(ToString::to_string, |()| "ok".to_owned());
        self.audit.note(call, on, &result, None);
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
        let api = self.api(resource, key.namespace.as_deref());
        let found = patiently(|| async {
            let found = api.get(&key.name).await;
            found.map_err(|source| failed("get", key.to_string(), source))
        });
        match found.await {
            Ok(object) => Ok(Some(
                serde_json::to_value(object).expect("an object from JSON goes back to JSON"),
            )),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// All objects of a type in all namespaces; empty if the type does not exist.
    pub async fn list(&self, resource: &ApiResource) -> Result<Vec<DynamicObject>, KubeError> {
        let api = self.api(resource, None);
        let listed = patiently(|| async {
            let listed = api.list(&ListParams::default()).await;
            listed.map_err(|source| failed("list", resource.plural.clone(), source))
        });
        match listed.await {
            Ok(list) => Ok(list.items),
            Err(error) if error.is_not_found() => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }

    /// The metadata of objects with these labels in a namespace.
    pub async fn metadata<K>(
        &self,
        namespace: &str,
        labels: &str,
    ) -> Result<Vec<ObjectMeta>, KubeError>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug,
        K: DeserializeOwned,
    {
        let api: Api<K> = Api::namespaced(self.client.clone(), namespace);
        let params = ListParams::default().labels(labels);
        let listed = patiently(|| async {
            let listed = api.list_metadata(&params).await;
            listed.map_err(|source| failed("list", K::plural(&()).into_owned(), source))
        });
        Ok(listed.await?.items.into_iter().map(|item| item.metadata).collect())
    }

    /// The keys of a type's objects with these labels, in all namespaces.
    pub async fn labelled(
        &self,
        resource: &ApiResource,
        labels: &str,
    ) -> Result<Vec<Key>, KubeError> {
        let api = self.api(resource, None);
        let params = ListParams::default().labels(labels);
        let listed = patiently(|| async {
            let listed = api.list_metadata(&params).await;
            listed.map_err(|source| failed("list", resource.plural.clone(), source))
        });
        let keys = listed.await?.items.into_iter().map(|item| Key {
            api_version: resource.api_version.clone(),
            kind: resource.kind.clone(),
            namespace: item.metadata.namespace,
            name: item.metadata.name.unwrap_or_default(),
        });
        Ok(keys.collect())
    }

    /// All objects of a type, in all namespaces.
    pub async fn all<K>(&self) -> Result<Vec<K>, KubeError>
    where
        K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
    {
        let api: Api<K> = Api::all(self.client.clone());
        let listed = patiently(|| async {
            let listed = api.list(&ListParams::default()).await;
            listed.map_err(|source| failed("list", K::plural(&()).into_owned(), source))
        });
        Ok(listed.await?.items)
    }

    /// The pods that match.
    pub async fn pods(&self, what: &str, params: &ListParams) -> Result<Vec<Pod>, KubeError> {
        let api: Api<Pod> = Api::all(self.client.clone());
        let listed = patiently(|| async {
            let listed = api.list(params).await;
            listed.map_err(|source| failed("list", what.to_owned(), source))
        });
        Ok(listed.await?.items)
    }

    /// Asks this very pod to go, as its disruption budgets allow.
    pub async fn evict(&self, pod: &Pod) -> Result<Eviction, KubeError> {
        let metadata = &pod.metadata;
        let (namespace, name) = (
            metadata.namespace.as_deref().unwrap_or_default(),
            metadata.name.as_deref().unwrap_or_default(),
        );
        let api: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        // Not `Api::evict`: it spells the delete options in a way that the API server does not
        // read, and the precondition would be lost.
        let eviction = json!({
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"namespace": namespace, "name": name},
            "deleteOptions": {"preconditions": {"uid": metadata.uid}},
        });
        let asked: Result<Value, Error> =
            api.create_subresource("eviction", name, &PostParams::default(), &eviction).await;
        let Err(source) = asked else {
            self.note("evict", &format!("Pod {namespace}/{name}"), &Ok(()));
            return Ok(Eviction::Accepted);
        };
        let error = failed("create", format!("eviction of {namespace}/{name}"), source);
        match error.code() {
            // 500: several budgets select the pod, which the eviction API does not support.
            Some(429 | 500) => Ok(Eviction::Refused(error.reason())),
            Some(404 | 409) => Ok(Eviction::Gone),
            _ => Err(error),
        }
    }

    /// Brings an object to what it should be, by server-side apply.
    pub async fn apply(&self, object: &Object) -> Result<(), KubeError> {
        self.apply_as(object, FIELD_MANAGER).await
    }

    /// The same, for another owner of fields.
    pub(crate) async fn apply_as(&self, object: &Object, manager: &str) -> Result<(), KubeError> {
        let params = PatchParams::apply(manager).force();
        self.api(&object.resource, object.namespace.as_deref())
            .patch(&object.name, &params, &Patch::Apply(&object.body))
            .await
            .map(|_| ())
            .map_err(|source| failed("patch", object.key().to_string(), source))
    }

    /// Asks what would become of applying an object; nothing is kept.
    pub(crate) async fn try_apply(&self, object: &Object, manager: &str) -> Result<(), KubeError> {
        let params = PatchParams::apply(manager).force().dry_run();
        self.api(&object.resource, object.namespace.as_deref())
            .patch(&object.name, &params, &Patch::Apply(&object.body))
            .await
            .map(|_| ())
            .map_err(|source| failed("patch", object.key().to_string(), source))
    }

    /// Makes an object; one that exists is a conflict.
    pub async fn create(
        &self,
        resource: &ApiResource,
        key: &Key,
        body: &Value,
    ) -> Result<(), KubeError> {
        let object: DynamicObject =
            serde_json::from_value(body.clone()).expect("a body has kind and metadata");
        let api = self.api(resource, key.namespace.as_deref());
        let created = api.create(&PostParams::default(), &object).await;
        created.map(drop).map_err(|source| failed("create", key.to_string(), source))
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
            .map_err(|source| failed("patch", key.to_string(), source))
    }

    /// Removes one finalizer, if it is there, and touches no other: a JSON patch that fails when
    /// somebody else was faster is tried again.
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
                Ok(_) => {
                    self.note(&format!("remove finalizer {finalizer}"), &key.to_string(), &Ok(()));
                    return Ok(());
                }
                Err(source) => {
                    let error = failed("patch", key.to_string(), source);
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
        let deleted = self.api(resource, key.namespace.as_deref()).delete(&key.name, &params).await;
        let result = deleted.map(drop).map_err(|source| failed("delete", key.to_string(), source));
        if result.as_ref().is_err_and(KubeError::is_not_found) {
            return Ok(());
        }
        self.note("delete", &key.to_string(), &result);
        result
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

#[cfg(test)]
mod tests;
