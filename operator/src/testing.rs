//! For tests: an API server in this process, behind [`kube::Client`], and an operator that works on it.

pub(crate) mod idle;

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Router;
use axum::http::{Method, StatusCode, Uri};
use clap::Parser as _;
use jiff::Timestamp;
use kube::Client;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use crate::clock::Clock;
use crate::cloud_provider::{CloudProvider, Context, NodeClassKind};
use crate::events::{Publisher, Recorder};
use crate::kwok::Kwok;
use crate::metrics::Metrics;
use crate::nodeoverlay::offers::LatestOffers;
use crate::operator::Operator;
use crate::options::Options;
use crate::planning::quarantine::Quarantine;
use crate::state::State;
use crate::state::cluster::Cluster;
use crate::write::Writer;

/// The kinds of NodeClasses of [`operator`]'s provider.
pub(crate) const KINDS: &[NodeClassKind] = &[tenon_state::node_class::KWOK];

/// A request to the API server.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Request {
    /// `PATCH`
    pub method: String,
    /// `/api/v1/nodes/a`
    pub path: String,
    /// Null where there is none.
    pub body: Value,
}

type Answer = dyn Fn(&Request) -> (u16, Value) + Send + Sync;

/// An API server that notes what it is asked for, and answers as it is told. Clones are one server.
#[derive(Clone)]
pub(crate) struct ApiServer {
    requests: Arc<Mutex<Vec<Request>>>,
    answer: Arc<Answer>,
}

impl ApiServer {
    /// Answers with this status and body.
    pub(crate) fn answering(
        answer: impl Fn(&Request) -> (u16, Value) + Send + Sync + 'static,
    ) -> Self {
        Self { requests: Arc::default(), answer: Arc::new(answer) }
    }

    /// What it was asked for.
    pub(crate) fn requests(&self) -> Vec<Request> {
        self.requests.lock().clone()
    }

    /// A client of it.
    pub(crate) fn client(&self) -> Client {
        let server = self.clone();
        let handle = move |method: Method, uri: Uri, body: String| {
            let (method, path) = (method.to_string(), uri.path().to_owned());
            let body = serde_json::from_str(&body).unwrap_or_default();
            let request = Request { method, path, body };
            let (code, answer) = (server.answer)(&request);
            server.requests.lock().push(request);
            async move { (StatusCode::from_u16(code).unwrap(), answer.to_string()) }
        };
        Client::new(Router::new().fallback(handle), "default")
    }
}

/// Objects by their paths, as an API server keeps them: read, merged into, deleted. Clones are the same objects.
#[derive(Clone, Default)]
pub(crate) struct Objects(Arc<Mutex<BTreeMap<String, Value>>>);

impl Objects {
    /// With these at these paths.
    pub(crate) fn new<const N: usize>(objects: [(&str, Value); N]) -> Self {
        let objects = objects.map(|(path, object)| (path.to_owned(), object));
        Self(Arc::new(Mutex::new(objects.into())))
    }

    /// The object at a path.
    pub(crate) fn get(&self, path: &str) -> Option<Value> {
        self.0.lock().get(path).cloned()
    }

    /// Puts an object at a path.
    pub(crate) fn put(&self, path: &str, object: Value) {
        self.0.lock().insert(path.to_owned(), object);
    }

    /// What the API server answers to a request for one object.
    pub(crate) fn answer(&self, request: &Request) -> (u16, Value) {
        let mut objects = self.0.lock();
        let path = request.path.strip_suffix("/status").unwrap_or(&request.path);
        let Some(object) = objects.get_mut(path) else { return refused(404, "NotFound") };
        match request.method.as_str() {
            "GET" => (200, object.clone()),
            "PATCH" => {
                let version = &object["metadata"]["resourceVersion"];
                let meant = &request.body["metadata"]["resourceVersion"];
                if !meant.is_null() && meant != version {
                    return refused(409, "Conflict");
                }
                let next = version.as_str().and_then(|it| it.parse().ok()).unwrap_or(0_u64) + 1;
                merge(object, &request.body);
                object["metadata"]["resourceVersion"] = next.to_string().into();
                (200, object.clone())
            }
            "DELETE" if object["metadata"]["finalizers"].is_array() => {
                object["metadata"]["deletionTimestamp"] = "1970-01-01T00:00:00Z".into();
                (200, object.clone())
            }
            "DELETE" => (200, objects.remove(path).unwrap_or_default()),
            other => panic!("{other} {path}"),
        }
    }
}

/// An object after a merge patch, with another version.
pub(crate) fn patched(object: &Value, patch: &Value, version: u64) -> Value {
    let mut object = object.clone();
    merge(&mut object, patch);
    object["metadata"]["resourceVersion"] = version.to_string().into();
    object
}

/// RFC 7386.
fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    for (key, value) in patch {
        if value.is_null() {
            target.as_object_mut().expect("made one").remove(key);
        } else {
            merge(&mut target[key], value);
        }
    }
}

/// The API server's answer to what it refuses.
pub(crate) fn refused(code: u16, reason: &str) -> (u16, Value) {
    let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": reason, "reason": reason, "code": code});
    (code, status)
}

/// The lines that are logged in this thread as long as the guard lives.
#[derive(Clone, Debug, Default)]
pub(crate) struct Logs(Arc<Mutex<Vec<u8>>>);

impl Logs {
    /// Begins to collect.
    pub(crate) fn collect() -> (Self, tracing::subscriber::DefaultGuard) {
        let logs = Self::default();
        let writer = logs.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(tracing::Level::DEBUG)
            .with_ansi(false)
            .with_writer(move || writer.clone())
            .finish();
        (logs, tracing::subscriber::set_default(subscriber))
    }

    /// Begins to collect, as lines are written in a cluster.
    pub(crate) fn collect_json() -> (Self, tracing::subscriber::DefaultGuard) {
        let logs = Self::default();
        let writer = logs.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_writer(move || writer.clone())
            .event_format(crate::logging::json::Lines)
            .finish();
        (logs, tracing::subscriber::set_default(subscriber))
    }

    /// Those with this text.
    pub(crate) fn with(&self, text: &str) -> Vec<String> {
        let logs = String::from_utf8(self.0.lock().clone()).unwrap();
        logs.lines().filter(|line| line.contains(text)).map(str::to_owned).collect()
    }
}

impl std::io::Write for Logs {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Runs something beside a test, which ends it with itself.
#[expect(clippy::disallowed_methods, reason = "what a test spawns ends with the test")]
pub(crate) fn spawn<T: Send + 'static>(
    task: impl Future<Output = T> + Send + 'static,
) -> JoinHandle<T> {
    tokio::spawn(task)
}

/// An operator with the provider kwok that sees this cluster; its state takes changes in. The events that it publishes are with the publisher.
pub(crate) fn operator(server: &ApiServer, cluster: Cluster) -> (Arc<Operator<Kwok>>, Publisher) {
    operator_on(Kwok::new(server.client(), None).unwrap(), server, cluster)
}

/// The same on another cloud.
pub(crate) fn operator_on<P: CloudProvider>(
    cloud: P,
    server: &ApiServer,
    cluster: Cluster,
) -> (Arc<Operator<P>>, Publisher) {
    let client = server.client();
    let clock = Clock::anchored(Timestamp::UNIX_EPOCH);
    let (recorder, publisher) = Recorder::new(clock);
    let (state, task) = State::new(cluster);
    spawn(task.run());
    let options = Options::parse_from(["tenon-operator", "--cloud-provider", "kwok"]).core;
    let context = Context {
        client: client.clone(),
        clock,
        recorder,
        metrics: Metrics::new(),
        wake: Arc::new(Notify::new()),
        liveness: crate::liveness::Liveness::default(),
        interrupted: Arc::new(Notify::new()),
        cluster_name: "test".into(),
    };
    let operator = Operator {
        context,
        write: Writer::new(client, state.clone()),
        state,
        cloud: Arc::new(cloud),
        policy: options.policy(),
        options,
        offers: LatestOffers::default(),
        quarantine: Quarantine::default(),
        nominations: crate::nomination::Nominations::default(),
        ledger: crate::actuate::ledger::Ledger::default(),
    };
    (Arc::new(operator), publisher)
}
