//! An API server within a unit test, behind a real [`kube::Client`]. Clones are one server.
//!
//! It keeps objects as JSON by their paths and does with them what the real one does: reads, lists
//! (of one namespace or all), creations, merge patches and deletions with their preconditions,
//! deletions that finalizers hold up, and watches, which go on from any version until the history
//! is [compacted](ApiServer::compact). It knows no schemas. It notes what it is asked
//! ([`ApiServer::requests`]), takes its time if it is told to ([`ApiServer::slow`]), and answers
//! otherwise where a test says so ([`ApiServer::answering`]).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Request as HttpRequest, State as Shared};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use futures::stream;
use json_patch::merge;
use kube::{Client, Resource};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::watch;

/// What the server is asked.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Request {
    /// `PATCH`
    pub method: String,
    /// `/api/v1/nodes/a`
    pub path: String,
    /// `watch=true&resourceVersion=1`; empty where there is none.
    pub query: String,
    /// Null where there is none.
    pub body: Value,
}

impl Request {
    fn parameter(&self, name: &str) -> Option<&str> {
        let pairs = self.query.split('&').filter_map(|pair| pair.split_once('='));
        pairs.into_iter().find(|(key, _)| *key == name).map(|(_, value)| value)
    }

    fn is_watch(&self) -> bool {
        self.parameter("watch").is_some()
    }
}

impl std::fmt::Display for Request {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.method, self.path)
    }
}

/// Status and body.
pub(crate) type Answer = (u16, Value);

type Instead = dyn Fn(&Request) -> Option<Answer> + Send + Sync;

/// Objects in memory, and what is asked of them.
#[derive(Clone)]
pub(crate) struct ApiServer {
    stored: Arc<Mutex<Stored>>,
    /// The version of the newest change, for watches.
    newest: watch::Sender<u64>,
    instead: Arc<Instead>,
    latency: Duration,
}

#[derive(Debug, Default)]
struct Stored {
    /// By path, e.g. `/apis/karpenter.sh/v1/nodeclaims/a`.
    objects: BTreeMap<String, Value>,
    version: u64,
    history: Vec<Event>,
    /// Watches from versions before this one are refused.
    compacted: u64,
    /// In the order of their arrival.
    requests: Vec<Request>,
    under_way: usize,
    most_under_way: usize,
}

/// What a watch tells.
#[derive(Clone, Debug)]
struct Event {
    version: u64,
    kind: &'static str,
    path: String,
    object: Value,
}

impl Default for ApiServer {
    fn default() -> Self {
        Self::unless(|_| None)
    }
}

impl ApiServer {
    /// A server that answers so instead where there is `Some`.
    pub(crate) fn unless(
        instead: impl Fn(&Request) -> Option<Answer> + Send + Sync + 'static,
    ) -> Self {
        Self {
            stored: Arc::default(),
            newest: watch::Sender::new(0),
            instead: Arc::new(instead),
            latency: Duration::ZERO,
        }
    }

    /// A server that answers so whatever it is asked.
    pub(crate) fn answering(answer: impl Fn(&Request) -> Answer + Send + Sync + 'static) -> Self {
        Self::unless(move |request| Some(answer(request)))
    }

    /// Takes so long to answer.
    #[must_use]
    pub(crate) fn slow(mut self, latency: Duration) -> Self {
        self.latency = latency;
        self
    }

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
        self.stored.lock().objects.keys().filter(|path| path.starts_with(&prefix)).count()
    }

    /// Puts an object there, whatever was there before, and answers it as it is stored: with a uid
    /// and a new version.
    pub(crate) fn put<K: Resource<DynamicType = ()>>(&self, mut object: Value) -> Value {
        object["apiVersion"] = json!(K::api_version(&()));
        object["kind"] = json!(K::kind(&()));
        if let Some(metadata) = object["metadata"].as_object_mut() {
            metadata.remove("resourceVersion");
        }
        let namespace = object["metadata"]["namespace"].as_str();
        let name = object["metadata"]["name"].as_str().unwrap();
        let path = format!("{}/{name}", K::url_path(&(), namespace));
        self.put_at(&path, object)
    }

    /// Puts an object at a path. One that has a version keeps it, so that it is the one that a test
    /// has put into the state, too.
    pub(crate) fn put_at(&self, path: &str, mut object: Value) -> Value {
        let mut stored = self.stored.lock();
        let version = match object["metadata"]["resourceVersion"].as_str() {
            Some(version) => version.parse().unwrap(),
            None => stored.version + 1,
        };
        object["metadata"]["resourceVersion"] = json!(version.to_string());
        if object["metadata"]["uid"].is_null() {
            object["metadata"]["uid"] = json!(format!("uid-{version}"));
        }
        stored.version = stored.version.max(version);
        let kind = if stored.objects.contains_key(path) { "MODIFIED" } else { "ADDED" };
        stored.objects.insert(path.to_owned(), object.clone());
        stored.note(kind, path, &object);
        self.newest.send_replace(stored.version);
        object
    }

    /// Takes an object away.
    pub(crate) fn take<K: Resource<DynamicType = ()>>(&self, name: &str) {
        self.take_at(&path::<K>(name));
    }

    /// Takes away what is at a path.
    pub(crate) fn take_at(&self, path: &str) {
        let mut stored = self.stored.lock();
        if let Some(object) = stored.objects.remove(path) {
            stored.version += 1;
            stored.note("DELETED", path, &object);
            self.newest.send_replace(stored.version);
        }
    }

    /// An object as it is stored; null when there is none.
    pub(crate) fn get<K: Resource<DynamicType = ()>>(&self, name: &str) -> Value {
        self.at(&path::<K>(name)).unwrap_or_default()
    }

    /// What is stored at a path.
    pub(crate) fn at(&self, path: &str) -> Option<Value> {
        self.stored.lock().objects.get(path).cloned()
    }

    /// Forgets what was: watches go on only from now, and those that want more have to list again.
    pub(crate) fn compact(&self) {
        let mut stored = self.stored.lock();
        stored.version += 1;
        stored.compacted = stored.version;
        stored.history.clear();
        self.newest.send_replace(stored.version);
    }

    /// What it was asked.
    pub(crate) fn requests(&self) -> Vec<Request> {
        self.stored.lock().requests.clone()
    }

    /// What it was asked since the last time, as method and path.
    pub(crate) fn take_requests(&self) -> Vec<String> {
        let requests = std::mem::take(&mut self.stored.lock().requests);
        requests.iter().map(ToString::to_string).collect()
    }

    /// How many requests were made, and how many of them at the same time at most.
    pub(crate) fn load(&self) -> (usize, usize) {
        let stored = self.stored.lock();
        (stored.requests.len(), stored.most_under_way)
    }

    /// What happens at `prefix` after a version, line by line, for as long as somebody reads.
    fn watch(&self, prefix: String, after: u64) -> Response {
        let (stored, newest) = (Arc::clone(&self.stored), self.newest.subscribe());
        let lines = stream::unfold((newest, after), move |(mut newest, after)| {
            let (stored, prefix) = (Arc::clone(&stored), prefix.clone());
            async move {
                loop {
                    newest.mark_unchanged();
                    let (text, seen) = stored.lock().told(&prefix, after);
                    if !text.is_empty() {
                        return Some((Ok::<_, std::io::Error>(text), (newest, seen)));
                    }
                    newest.changed().await.ok()?;
                }
            }
        });
        Body::from_stream(lines).into_response()
    }
}

fn path<K: Resource<DynamicType = ()>>(name: &str) -> String {
    format!("{}/{name}", K::url_path(&(), None))
}

/// The API server's answer to what it refuses.
pub(crate) fn refused(code: u16, reason: &str) -> Answer {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": reason,
        "reason": reason, "code": code,
    });
    (code, status)
}

async fn answer(Shared(server): Shared<ApiServer>, request: HttpRequest) -> Response {
    let (parts, body) = request.into_parts();
    let body = to_bytes(body, usize::MAX).await.unwrap();
    let request = Request {
        method: parts.method.to_string(),
        path: parts.uri.path().to_owned(),
        query: parts.uri.query().unwrap_or_default().to_owned(),
        body: serde_json::from_slice(&body).unwrap_or_default(),
    };
    {
        let mut stored = server.stored.lock();
        stored.requests.push(request.clone());
        stored.under_way += 1;
        stored.most_under_way = stored.most_under_way.max(stored.under_way);
    }
    if !server.latency.is_zero() {
        tokio::time::sleep(server.latency).await;
    }
    let instead = (server.instead)(&request);
    let mut stored = server.stored.lock();
    stored.under_way -= 1;
    if instead.is_none() && request.is_watch() {
        let from = request.parameter("resourceVersion").and_then(|it| it.parse().ok());
        drop(stored);
        return server.watch(format!("{}/", request.path), from.unwrap_or_default());
    }
    let (code, answer) = instead.unwrap_or_else(|| stored.answer(&request));
    server.newest.send_replace(stored.version);
    (StatusCode::from_u16(code).unwrap(), answer.to_string()).into_response()
}

impl Stored {
    fn note(&mut self, kind: &'static str, path: &str, object: &Value) {
        let version = self.version;
        let (path, object) = (path.to_owned(), object.clone());
        self.history.push(Event { version, kind, path, object });
    }

    /// What a watch is told that has seen everything up to `after`, and up to where it has then.
    fn told(&self, prefix: &str, after: u64) -> (String, u64) {
        if after < self.compacted {
            let (_, status) = refused(410, "Expired");
            // Nothing comes after that.
            return (format!("{}\n", json!({"type": "ERROR", "object": status})), u64::MAX);
        }
        let news = self.history.iter().filter(|it| it.version > after && is_in(&it.path, prefix));
        let line = |it: &Event| format!("{}\n", json!({"type": it.kind, "object": it.object}));
        (news.map(line).collect(), self.version.max(after))
    }

    fn answer(&mut self, request: &Request) -> Answer {
        let path = request.path.as_str();
        let answer = match request.method.as_str() {
            "GET" if self.objects.contains_key(path) => Ok(self.objects[path].clone()),
            "GET" if depth(path) != 1 => Err(refused(404, "NotFound")),
            "GET" => Ok(self.list(path)),
            "POST" => self.create(path, request.body.clone()),
            "PATCH" => self.patch(path, &request.body),
            "DELETE" => self.delete(path, &request.body),
            _ => Err(refused(405, "MethodNotAllowed")),
        };
        answer.map_or_else(|refused| refused, |object| (200, object))
    }

    /// The objects of a kind.
    fn list(&self, path: &str) -> Value {
        let prefix = format!("{path}/");
        let items = self.objects.iter().filter(|(path, _)| is_in(path, &prefix));
        let items: Vec<&Value> = items.map(|(_, object)| object).collect();
        let metadata = json!({ "resourceVersion": self.version.to_string() });
        json!({ "kind": "List", "apiVersion": "v1", "metadata": metadata, "items": items })
    }

    fn create(&mut self, path: &str, mut object: Value) -> Result<Value, Answer> {
        if depth(path) == 3 {
            // A subresource, such as an eviction: whoever wants something to come of it says so.
            return Ok(json!({ "kind": "Status", "apiVersion": "v1", "status": "Success" }));
        }
        let version = (self.version + 1).to_string();
        let metadata = &mut object["metadata"];
        if metadata["name"].is_null() {
            let prefix = metadata["generateName"].as_str().unwrap_or_default();
            metadata["name"] = json!(format!("{prefix}{version}"));
        }
        metadata["uid"] = json!(format!("uid-{version}"));
        metadata["resourceVersion"] = json!(version);
        let path = format!("{path}/{}", metadata["name"].as_str().unwrap_or_default());
        if self.objects.contains_key(&path) {
            return Err(refused(409, "AlreadyExists"));
        }
        self.version += 1;
        self.objects.insert(path.clone(), object.clone());
        self.note("ADDED", &path, &object);
        Ok(object)
    }

    fn patch(&mut self, path: &str, body: &Value) -> Result<Value, Answer> {
        let (path, is_status) = match path.strip_suffix("/status") {
            Some(path) => (path, true),
            None => (path, false),
        };
        let version = self.version + 1;
        let object = self.objects.get_mut(path).ok_or_else(|| refused(404, "NotFound"))?;
        if body.is_array() {
            patch_json(object, body).map_err(|_| refused(422, "Invalid"))?;
        } else {
            patch_merge(object, body, is_status)?;
        }
        object["metadata"]["resourceVersion"] = json!(version.to_string());
        let patched = object.clone();
        self.version = version;
        self.settle(path, &patched);
        Ok(patched)
    }

    fn delete(&mut self, path: &str, options: &Value) -> Result<Value, Answer> {
        let version = self.version + 1;
        let object = self.objects.get_mut(path).ok_or_else(|| refused(404, "NotFound"))?;
        for field in ["uid", "resourceVersion"] {
            let expected = &options["preconditions"][field];
            if !expected.is_null() && *expected != object["metadata"][field] {
                return Err(refused(409, "Conflict"));
            }
        }
        if object["metadata"]["deletionTimestamp"].is_null() {
            object["metadata"]["deletionTimestamp"] = json!("2026-11-20T00:00:00Z");
            object["metadata"]["resourceVersion"] = json!(version.to_string());
        }
        let deleted = object.clone();
        self.version = version;
        if self.settle(path, &deleted) {
            return Ok(json!({ "kind": "Status", "apiVersion": "v1", "status": "Success" }));
        }
        Ok(deleted)
    }

    /// Tells watches of an object that has changed, and lets it go if it is being deleted and
    /// nothing holds it; answers whether it went.
    fn settle(&mut self, path: &str, object: &Value) -> bool {
        let metadata = &object["metadata"];
        let held = metadata["finalizers"].as_array().is_some_and(|held| !held.is_empty());
        let goes = !metadata["deletionTimestamp"].is_null() && !held;
        if goes {
            self.objects.remove(path);
        }
        self.note(if goes { "DELETED" } else { "MODIFIED" }, path, object);
        goes
    }
}

/// Merges `body` into an object, or into its status, if it is the one that the body's metadata
/// tells of.
fn patch_merge(object: &mut Value, body: &Value, is_status: bool) -> Result<(), Answer> {
    let differs = |field: &str| {
        let expected = &body["metadata"][field];
        !expected.is_null() && *expected != object["metadata"][field]
    };
    if differs("resourceVersion") {
        return Err(refused(409, "Conflict"));
    }
    if differs("uid") {
        let (code, mut status) = refused(422, "Invalid");
        status["details"] = json!({"causes": [{"field": "metadata.uid", "message": ""}]});
        return Err((code, status));
    }
    let mut body = body.clone();
    if let Some(fields) = body.as_object_mut() {
        // The subresource takes nothing but the status, and the object itself everything else.
        fields.retain(|field, _| (field == "status") == is_status);
    }
    merge(object, &body);
    Ok(())
}

/// Whether an object is in a collection: `/api/v1/pods/` has those of all namespaces.
fn is_in(path: &str, collection: &str) -> bool {
    let plain = |rest: &str| !rest.contains('/');
    if path.strip_prefix(collection).is_some_and(plain) {
        return true;
    }
    let Some((version, plural)) = collection.trim_end_matches('/').rsplit_once('/') else {
        return false;
    };
    let namespaced = path.strip_prefix(&format!("{version}/namespaces/"));
    let parts: Vec<&str> = namespaced.unwrap_or_default().split('/').collect();
    matches!(parts.as_slice(), [_, kind, _] if *kind == plural)
}

/// 1 for the path of a collection, 2 for that of an object, 3 for a part of one.
fn depth(path: &str) -> usize {
    let parts: Vec<&str> = path.split('/').skip(1).collect();
    let rest = match parts.as_slice() {
        ["api", _, rest @ ..] | ["apis", _, _, rest @ ..] => rest,
        _ => &[],
    };
    match rest {
        ["namespaces", _, rest @ ..] if !rest.is_empty() => rest.len(),
        rest => rest.len(),
    }
}

/// A JSON patch (RFC 6902), with the API server's reading of a test for `null`: that there is
/// nothing. What is empty it does not keep.
pub(crate) fn patch_json(
    target: &mut Value,
    operations: &Value,
) -> Result<(), json_patch::PatchError> {
    let mut operations = operations.as_array().cloned().unwrap_or_default();
    let missing = |it: &Value| {
        let path = it["path"].as_str().unwrap_or_default();
        let there = target.pointer(path);
        let nothing = there.is_none_or(|it| *it == json!([]) || *it == json!({}));
        it["op"] == "test" && it["value"].is_null() && nothing
    };
    operations.retain(|it| !missing(it));
    let patch: json_patch::Patch = serde_json::from_value(Value::Array(operations)).unwrap();
    json_patch::patch(target, &patch)
}
