//! An API server within a unit test, behind a real `kube::Client`: objects as JSON, merge patches with their preconditions, deletions that finalizers hold up.
//! It knows no schemas, and serves no watches: what a test wants watched it puts into the state with [`Bench::seen`].

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use axum::Router;
use axum::body::to_bytes;
use axum::extract::{Request, State as Shared};
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse, Response};
use kube::{Client, Resource};
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tenon_crds::labels::LabelRules;
use tenon_state::node_class;
use tokio_util::sync::CancellationToken;

use crate::clock::Clock;
use crate::cloud_provider::Context;
use crate::events::{Publisher, Recorder};
use crate::metrics::Metrics;
use crate::state::State;
use crate::state::change::{Change, Kind, Watched};
use crate::state::cluster::Cluster;
use crate::tasks::Tasks;
use crate::write::Writer;

/// The server; clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct ApiServer(Arc<Mutex<Stored>>);

#[derive(Debug, Default)]
struct Stored {
    /// By path, e.g. `/apis/karpenter.sh/v1/nodeclaims/a`.
    objects: BTreeMap<String, Value>,
    version: u64,
    /// Method and path of everything that was asked, the oldest first.
    requests: Vec<String>,
}

impl ApiServer {
    /// A client of it.
    pub(crate) fn client(&self) -> Client {
        Client::new(self.router(), "default")
    }

    /// What answers requests, for connections that are not what they should be.
    pub(crate) fn router(&self) -> Router {
        Router::new().fallback(answer).with_state(self.clone())
    }

    /// How many objects of a kind there are.
    pub(crate) fn count<K: Resource<DynamicType = ()>>(&self) -> usize {
        let prefix = path::<K>("");
        self.0.lock().objects.keys().filter(|path| path.starts_with(&prefix)).count()
    }

    /// Puts an object there, whatever was there before, and answers it as it is stored: with a uid and a resource version.
    pub(crate) fn put<K: Resource<DynamicType = ()>>(&self, mut object: Value) -> Value {
        let mut stored = self.0.lock();
        let path = path::<K>(object["metadata"]["name"].as_str().unwrap());
        let version = stored.next_version();
        object["apiVersion"] = json!(K::api_version(&()));
        object["kind"] = json!(K::kind(&()));
        object["metadata"]["resourceVersion"] = json!(version);
        if object["metadata"]["uid"].is_null() {
            object["metadata"]["uid"] = json!(format!("uid-{version}"));
        }
        stored.objects.insert(path, object.clone());
        object
    }

    /// Takes an object away.
    pub(crate) fn take<K: Resource<DynamicType = ()>>(&self, name: &str) {
        self.0.lock().objects.remove(&path::<K>(name));
    }

    /// An object as it is stored; null when there is none.
    pub(crate) fn get<K: Resource<DynamicType = ()>>(&self, name: &str) -> Value {
        self.0.lock().objects.get(&path::<K>(name)).cloned().unwrap_or_default()
    }

    /// What was asked since the last time, as method and path.
    pub(crate) fn take_requests(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().requests)
    }
}

fn path<K: Resource<DynamicType = ()>>(name: &str) -> String {
    format!("{}/{name}", K::url_path(&(), None))
}

/// Why a request is refused.
struct Refused {
    code: StatusCode,
    reason: &'static str,
    /// The field that is to blame.
    field: Option<&'static str>,
}

impl Refused {
    const fn new(code: StatusCode, reason: &'static str) -> Self {
        Self { code, reason, field: None }
    }
}

const NOT_FOUND: Refused = Refused::new(StatusCode::NOT_FOUND, "NotFound");
const ALREADY_EXISTS: Refused = Refused::new(StatusCode::CONFLICT, "AlreadyExists");
const CONFLICT: Refused = Refused::new(StatusCode::CONFLICT, "Conflict");

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        let causes: Vec<Value> =
            self.field.iter().map(|field| json!({ "field": field, "message": "" })).collect();
        let status = json!({
            "kind": "Status", "apiVersion": "v1", "status": "Failure", "message": self.reason,
            "reason": self.reason, "code": self.code.as_u16(), "details": { "causes": causes },
        });
        (self.code, status.to_string()).into_response()
    }
}

async fn answer(Shared(server): Shared<ApiServer>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let body = to_bytes(body, usize::MAX).await.unwrap();
    let body: Value = serde_json::from_slice(&body).unwrap_or_default();
    let path = parts.uri.path();
    let mut stored = server.0.lock();
    stored.requests.push(format!("{} {path}", parts.method));
    let answer = match parts.method {
        Method::GET => stored.read(path),
        Method::POST => stored.create(path, body),
        Method::PATCH => stored.patch(path, &body),
        Method::DELETE => stored.delete(path, &body),
        _ => Err(Refused::new(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed")),
    };
    answer.map_or_else(Refused::into_response, |object| object.to_string().into_response())
}

impl Stored {
    fn next_version(&mut self) -> String {
        self.version += 1;
        self.version.to_string()
    }

    /// An object, or the objects of a kind.
    fn read(&self, path: &str) -> Result<Value, Refused> {
        match self.objects.get(path) {
            Some(object) => Ok(object.clone()),
            None if is_object(path) => Err(NOT_FOUND),
            None => Ok(self.list(path)),
        }
    }

    /// The objects of a kind.
    fn list(&self, path: &str) -> Value {
        let prefix = format!("{path}/");
        let items: Vec<&Value> = self
            .objects
            .iter()
            .filter(|(path, _)| path.starts_with(&prefix))
            .map(|(_, object)| object)
            .collect();
        let metadata = json!({ "resourceVersion": self.version.to_string() });
        json!({ "kind": "List", "apiVersion": "v1", "metadata": metadata, "items": items })
    }

    fn create(&mut self, path: &str, mut object: Value) -> Result<Value, Refused> {
        let version = self.next_version();
        let metadata = &mut object["metadata"];
        if metadata["name"].is_null() {
            let prefix = metadata["generateName"].as_str().unwrap_or_default();
            metadata["name"] = json!(format!("{prefix}{version}"));
        }
        metadata["uid"] = json!(format!("uid-{version}"));
        metadata["resourceVersion"] = json!(version);
        let path = format!("{path}/{}", metadata["name"].as_str().unwrap_or_default());
        if self.objects.contains_key(&path) {
            return Err(ALREADY_EXISTS);
        }
        self.objects.insert(path, object.clone());
        Ok(object)
    }

    fn patch(&mut self, path: &str, body: &Value) -> Result<Value, Refused> {
        let (path, is_status) = match path.strip_suffix("/status") {
            Some(path) => (path, true),
            None => (path, false),
        };
        let version = self.next_version();
        let object = self.objects.get_mut(path).ok_or(NOT_FOUND)?;
        let differs = |field: &str| {
            let expected = &body["metadata"][field];
            !expected.is_null() && *expected != object["metadata"][field]
        };
        if differs("resourceVersion") {
            return Err(CONFLICT);
        }
        if differs("uid") {
            let invalid = Refused::new(StatusCode::UNPROCESSABLE_ENTITY, "Invalid");
            return Err(Refused { field: Some("metadata.uid"), ..invalid });
        }
        let mut body = body.clone();
        if let Some(fields) = body.as_object_mut() {
            // The subresource takes nothing but the status, and the object itself everything else.
            fields.retain(|field, _| (field == "status") == is_status);
        }
        merge(object, &body);
        object["metadata"]["resourceVersion"] = json!(version);
        let patched = object.clone();
        if is_let_go(&patched) {
            self.objects.remove(path);
        }
        Ok(patched)
    }

    fn delete(&mut self, path: &str, options: &Value) -> Result<Value, Refused> {
        let version = self.next_version();
        let object = self.objects.get_mut(path).ok_or(NOT_FOUND)?;
        let uid = &options["preconditions"]["uid"];
        if !uid.is_null() && *uid != object["metadata"]["uid"] {
            return Err(CONFLICT);
        }
        object["metadata"]["deletionTimestamp"] = json!("2026-11-20T00:00:00Z");
        object["metadata"]["resourceVersion"] = json!(version);
        let deleted = object.clone();
        if is_let_go(&deleted) {
            self.objects.remove(path);
            return Ok(json!({ "kind": "Status", "apiVersion": "v1", "status": "Success" }));
        }
        Ok(deleted)
    }
}

/// Whether a path names an object rather than a kind: `/api/v1/nodes/a`, `/apis/karpenter.sh/v1/nodeclaims/a`.
fn is_object(path: &str) -> bool {
    let parts: Vec<&str> = path.trim_start_matches('/').split('/').collect();
    let kind_at = if parts.first() == Some(&"api") { 2 } else { 3 };
    let in_namespace = parts.get(kind_at) == Some(&"namespaces") && parts.len() > kind_at + 2;
    let kind_at = if in_namespace { kind_at + 2 } else { kind_at };
    parts.len() > kind_at + 1
}

/// Whether it is being deleted, and nothing holds it.
fn is_let_go(object: &Value) -> bool {
    let metadata = &object["metadata"];
    let held = metadata["finalizers"].as_array().is_some_and(|held| !held.is_empty());
    !metadata["deletionTimestamp"].is_null() && !held
}

/// A JSON merge patch (RFC 7396).
fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(fields) = patch else {
        target.clone_from(patch);
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    for (field, value) in fields {
        if value.is_null() {
            target.as_object_mut().unwrap().remove(field);
        } else {
            merge(&mut target[field.as_str()], value);
        }
    }
}

/// An API server with a state, a writer, and what else a controller of the AWS provider is handed.
pub(crate) struct Bench {
    pub(crate) api: ApiServer,
    pub(crate) state: State,
    pub(crate) write: Writer,
    pub(crate) context: Context,
    /// What is published ends here, unread.
    _events: Publisher,
    /// The state lives as long as its task.
    _tasks: Tasks,
}

impl Bench {
    /// Nothing is there, and that is known.
    pub(crate) async fn new() -> Self {
        const KINDS: &[node_class::NodeClassKind] = &[node_class::EC2];
        let api = ApiServer::default();
        let (state, task) = State::new(Cluster::new(KINDS, LabelRules::aws()));
        let mut tasks = Tasks::new(CancellationToken::new());
        tasks.spawn("state", task.run());
        for kind in Kind::ALL {
            state.apply(Change::Listed(kind, BTreeSet::new())).await;
        }
        let clock = Clock::anchored("2026-11-20T00:00:00Z".parse().unwrap());
        let (recorder, publisher) = Recorder::new(clock);
        let context = Context {
            liveness: crate::liveness::Liveness::default(),
            client: api.client(),
            clock,
            recorder,
            metrics: Metrics::new(),
            wake: Arc::default(),
            interrupted: Arc::default(),
            cluster_name: "demo".into(),
        };
        let write = Writer::new(api.client(), state.clone());
        Self { api, state, write, context, _events: publisher, _tasks: tasks }
    }

    /// Puts an object on the server and, as the watch would, into the state; answers it as it is stored.
    pub(crate) async fn seen<K: Watched + DeserializeOwned>(&self, object: Value) -> K {
        let stored: K = serde_json::from_value(self.api.put::<K>(object)).unwrap();
        self.state.apply(Change::Applied(stored.clone().into_object())).await;
        stored
    }
}

/// A NodeClaim of the AWS provider on the instance `i-NAME`, on the Node `NAME`, held by the finalizer.
pub(crate) fn nodeclaim(name: &str) -> Value {
    json!({
        "metadata": {
            "name": name, "finalizers": ["karpenter.sh/termination"],
            "labels": { "karpenter.sh/nodepool": "default" },
        },
        "spec": {
            "requirements": [],
            "nodeClassRef": { "group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default" },
        },
        "status": { "providerID": provider_id(name), "nodeName": name },
    })
}

/// The Node `NAME` on the instance `i-NAME`.
pub(crate) fn node(name: &str) -> Value {
    json!({
        "metadata": {
            "name": name,
            "labels": {
                "karpenter.k8s.aws/ec2nodeclass": "default", "karpenter.sh/nodepool": "default",
                "karpenter.sh/registered": "true", "karpenter.sh/initialized": "true",
            },
        },
        "spec": { "providerID": provider_id(name) },
    })
}

/// The provider id of the machine of `NAME`.
pub(crate) fn provider_id(name: &str) -> String {
    format!("aws:///eu-central-1a/i-{name}")
}
