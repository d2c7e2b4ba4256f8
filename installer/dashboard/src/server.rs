//! The server: HTTP/1.1 on the loopback address, bounded in connections, requests at once, sizes
//! and time.

use std::convert::Infallible;
use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::header::{
    ALLOW, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, HeaderName, HeaderValue,
    IF_NONE_MATCH, REFERRER_POLICY, RETRY_AFTER, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use http::request::Parts;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::{Body, Bytes};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use percent_encoding::percent_decode_str;
use serde_json::{Value, json};
use tenon_simulate::{Kind, Simulation, Subject};
use tenon_state::decision::{Decision, Decisions};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::reader::Reader;
use crate::{Backend, Failure, assets, guard, words};

/// Connections at once; a browser opens six.
const CONNECTIONS: usize = 32;

/// Requests for data at once.
const REQUESTS: usize = 8;

/// The largest body: a manifest of a NodePool has a few KiB.
pub const BODY: usize = 256 << 10;

/// How long the head of a request may take, and its body.
const PATIENCE: Duration = Duration::from_secs(10);

/// Where the page's own files come from, and nothing else: no other server, no inline script or
/// style, no markup made of text.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
                      connect-src 'self'; base-uri 'none'; form-action 'none'; \
                      frame-ancestors 'none'; require-trusted-types-for 'script'; \
                      trusted-types 'none'";

type Answer = Response<Full<Bytes>>;

/// What answers.
pub struct App<B> {
    backend: B,
    fleet: Reader<B>,
    requests: Semaphore,
    /// What-ifs read and plan twice: one at a time.
    what_ifs: Semaphore,
}

/// Accepts connections until it is dropped.
pub async fn serve<B: Backend>(listener: TcpListener, app: Arc<App<B>>) {
    let mut connections = JoinSet::new();
    loop {
        while connections.len() >= CONNECTIONS {
            connections.join_next().await;
        }
        match listener.accept().await {
            Ok((stream, _)) => {
                connections.spawn(connection(stream, Arc::clone(&app)));
            }
            // Such as too many open files; the next attempt may succeed.
            Err(error) => {
                tracing::debug!(%error, "accepting a connection");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
        while connections.try_join_next().is_some() {}
    }
}

async fn connection<B: Backend>(stream: TcpStream, app: Arc<App<B>>) {
    let service = service_fn(|request| async { Ok::<_, Infallible>(app.answer(request).await) });
    let mut server = http1::Builder::new();
    server.timer(TokioTimer::new()).header_read_timeout(PATIENCE).max_buf_size(64 << 10);
    if let Err(error) = server.serve_connection(TokioIo::new(stream), service).await {
        tracing::debug!(%error, "a connection to the dashboard ended");
    }
}

impl<B> fmt::Debug for App<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("App").finish_non_exhaustive()
    }
}

impl<B: Backend> App<B> {
    /// Nothing is read yet.
    pub fn new(backend: B) -> Self {
        let (requests, what_ifs) = (Semaphore::new(REQUESTS), Semaphore::new(1));
        let fleet = Reader::new(backend.clone());
        Self { backend, fleet, requests, what_ifs }
    }

    /// Starts with what has been read already.
    pub async fn begin(&self, read: (Simulation, Vec<String>)) {
        self.fleet.begin(read).await;
    }

    /// Answers a request. Every answer has the headers that keep the page to itself.
    pub async fn answer<T>(&self, request: Request<T>) -> Response<Full<Bytes>>
    where
        T: Body<Data = Bytes>,
        T::Error: Into<Box<dyn Error + Send + Sync>>,
    {
        let mut answer = self.route(request).await.unwrap_or_else(|failure| failed(&failure));
        let headers = answer.headers_mut();
        for (name, value) in [
            (CONTENT_SECURITY_POLICY, POLICY),
            (X_CONTENT_TYPE_OPTIONS, "nosniff"),
            (X_FRAME_OPTIONS, "DENY"),
            (REFERRER_POLICY, "no-referrer"),
            (CACHE_CONTROL, "no-store"),
            (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
            (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
        ] {
            headers.insert(name, HeaderValue::from_static(value));
        }
        answer
    }

    async fn route<T>(&self, request: Request<T>) -> Result<Answer, Failure>
    where
        T: Body<Data = Bytes>,
        T::Error: Into<Box<dyn Error + Send + Sync>>,
    {
        let (head, body) = request.into_parts();
        let path = head.uri.path();
        let from = |failure: Failure| failure.hint(self.backend.how_to_open());
        guard::page(&head.headers, self.backend.port()).map_err(from)?;
        let is_data = path.starts_with("/api/");
        let allowed = if path == "/api/what-if" { Method::POST } else { Method::GET };
        if head.method != allowed {
            return Ok(not_allowed(&allowed));
        }
        if !is_data {
            let asset = assets::find(path).ok_or_else(not_found)?;
            return Ok(sent(StatusCode::OK, asset.kind, asset.text.into()));
        }
        guard::data(&head.headers).map_err(from)?;
        let Ok(_permit) = self.requests.try_acquire() else { return Ok(busy()) };
        self.backend.authorize(guard::token(&head.headers)).await?;
        self.data(&head, body).await
    }

    async fn data<T>(&self, head: &Parts, body: T) -> Result<Answer, Failure>
    where
        T: Body<Data = Bytes>,
        T::Error: Into<Box<dyn Error + Send + Sync>>,
    {
        let query = query(head.uri.query().unwrap_or_default());
        let text =
            |name: &str| query.iter().find(|(key, _)| key == name).map(|(_, value)| value.clone());
        Ok(match head.uri.path() {
            "/api/state" => {
                let state = self.fleet.state().await?;
                let known = head.headers.get(IF_NONE_MATCH).and_then(|it| it.to_str().ok());
                let mut answer = if known == Some(state.tag.as_str()) {
                    sent(StatusCode::NOT_MODIFIED, JSON, Bytes::new())
                } else {
                    sent(StatusCode::OK, JSON, state.body)
                };
                if let Ok(tag) = HeaderValue::try_from(state.tag) {
                    answer.headers_mut().insert(ETAG, tag);
                }
                answer
            }
            "/api/decisions" => {
                let after = text("after").map(|after| after.parse::<u64>());
                let Ok(after) = after.transpose() else {
                    return Err(wrong("after is a revision: a whole number"));
                };
                data(&in_words(&self.backend.decisions(after).await?))
            }
            "/api/explain" => {
                let kind = match text("kind").as_deref() {
                    Some("pod") => Kind::Pod,
                    Some("node") => Kind::Node,
                    Some("nodeclaim") => Kind::NodeClaim,
                    Some("nodepool") => Kind::NodePool,
                    _ => return Err(wrong("kind is one of pod, node, nodeclaim, nodepool")),
                };
                let Some(name) = text("name") else { return Err(wrong("name is missing")) };
                let namespace = text("namespace").unwrap_or_else(|| "default".to_owned());
                data(&self.fleet.explain(Subject { kind, namespace, name }).await?)
            }
            "/api/pods" => match text("node") {
                Some(node) => data(&self.fleet.pods(node).await?),
                None => return Err(wrong("node is missing")),
            },
            "/api/nodepool" => match text("name") {
                Some(name) => data(&self.fleet.node_pool(name).await?),
                None => return Err(wrong("name is missing")),
            },
            "/api/what-if" => self.what_if(head, body).await?,
            _ => return Err(not_found()),
        })
    }

    async fn what_if<T>(&self, head: &Parts, body: T) -> Result<Answer, Failure>
    where
        T: Body<Data = Bytes>,
        T::Error: Into<Box<dyn Error + Send + Sync>>,
    {
        // One that no form can send.
        let kind = head.headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
        if kind != Some("application/yaml") {
            let message = "the body is a manifest: Content-Type application/yaml";
            return Err(Failure::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, message));
        }
        let read = tokio::time::timeout(PATIENCE, Limited::new(body, BODY).collect());
        let Ok(Ok(read)) = read.await else {
            let message = format!("the manifest has more than {} KiB, or was cut off", BODY >> 10);
            return Err(Failure::new(StatusCode::PAYLOAD_TOO_LARGE, message));
        };
        let Ok(manifests) = String::from_utf8(read.to_bytes().into()) else {
            return Err(wrong("the manifest is no UTF-8"));
        };
        let Ok(_permit) = self.what_ifs.try_acquire() else { return Ok(busy()) };
        Ok(data(&json!(self.fleet.what_if(manifests).await?)))
    }
}

const JSON: &str = "application/json";

fn sent(status: StatusCode, kind: &'static str, body: Bytes) -> Answer {
    let mut answer = Response::new(Full::new(body));
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    answer
}

fn data(value: &Value) -> Answer {
    sent(StatusCode::OK, JSON, value.to_string().into())
}

/// Decisions as the ledger has them, with what was decided and what became of it in words.
fn in_words(answer: &Decisions) -> Value {
    let worded = |decision: &Decision| {
        let mut value = json!(decision);
        value["what"] = words::what(decision).into();
        value["outcome"] = words::outcome(decision).into();
        value
    };
    json!({
        "leader": answer.leader,
        "since": answer.since,
        "revision": answer.revision,
        "dropped": answer.dropped,
        "more": answer.more,
        "decisions": answer.decisions.iter().map(worded).collect::<Vec<_>>(),
    })
}

/// What could not be read or is not there, or who may not see it.
fn failed(failure: &Failure) -> Answer {
    let Failure { status, message, details, hints } = failure;
    let body = json!({ "error": { "message": message, "details": details, "hints": hints } });
    sent(*status, JSON, body.to_string().into())
}

fn wrong(message: &str) -> Failure {
    Failure::new(StatusCode::BAD_REQUEST, message)
}

fn not_found() -> Failure {
    Failure::new(StatusCode::NOT_FOUND, "there is nothing at this path")
}

fn not_allowed(method: &Method) -> Answer {
    let message = format!("this path takes {method} only");
    let mut answer = failed(&Failure::new(StatusCode::METHOD_NOT_ALLOWED, message));
    if let Ok(method) = HeaderValue::from_str(method.as_str()) {
        answer.headers_mut().insert(ALLOW, method);
    }
    answer
}

fn busy() -> Answer {
    let failure = Failure::new(StatusCode::SERVICE_UNAVAILABLE, "other requests are in progress");
    let mut answer = failed(&failure.hint("try again in a moment"));
    answer.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
    answer
}

/// The pairs of a query, decoded; a plus sign is a space, as forms write it.
fn query(text: &str) -> Vec<(String, String)> {
    let decoded = |part: &str| {
        let spaced = part.replace('+', " ");
        percent_decode_str(&spaced).decode_utf8_lossy().into_owned()
    };
    let pairs = text.split('&').filter_map(|pair| pair.split_once('='));
    pairs.map(|(key, value)| (decoded(key), decoded(value))).collect()
}
