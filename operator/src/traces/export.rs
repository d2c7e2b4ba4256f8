//! Spans on their way to the collector: in batches, one request at a time, and never in anybody's way.
//!
//! A batch that the collector has no time for is tried a few times and then given up; meanwhile newer spans wait in the queue until that is full. When the
//! operator is told to stop what is left is sent, as far as that is done within [`FLUSH`].

use std::time::Duration;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value as Json, json};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::settings::Settings;
use super::{Finished, Queue, Value};
use crate::clock::Clock;
use crate::metrics::{Counters, Metrics};

/// How long the last spans may take when the operator is told to stop: it has handed the lease over by then.
const FLUSH: Duration = Duration::from_secs(1);
/// How often a batch is sent.
const ATTEMPTS: u32 = 3;
/// The first pause between attempts; each further one is twice as long.
const PAUSE: Duration = Duration::from_secs(1);
/// So often a collector that is away is told of in the log.
const COMPLAINT: SignedDuration = SignedDuration::from_mins(10);
/// Nobody reads more of an answer.
const ANSWER: usize = 64 * 1024;

/// What is counted: `tenon_trace_spans_total{result}`.
#[derive(Clone, Debug)]
pub struct Exported(Counters<1>);

impl Exported {
    /// Registers the family.
    pub fn new(metrics: &Metrics) -> Self {
        Self(metrics.counters(
            "tenon_trace_spans",
            "Spans of traces by what became of them: exported, refused by the collector, failed, or dropped because there was no room for them",
            ["result"],
        ))
    }
}

/// Posts spans.
#[derive(Debug)]
pub struct Exporter {
    queue: Queue,
    /// The batch that is being collected.
    pending: Vec<Finished>,
    settings: Settings,
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    clock: Clock,
    exported: Exported,
    /// Spans without room that were counted already.
    dropped: u64,
    complained: Option<Timestamp>,
}

/// Why a batch was not taken.
#[derive(Debug, thiserror::Error)]
enum Failed {
    #[error("the collector has not answered in time")]
    Late,
    #[error("the collector can't be reached")]
    Unreached(#[source] Box<dyn std::error::Error + Send + Sync>),
    #[error("the collector answers {0}")]
    Status(StatusCode),
}

impl Failed {
    /// Whether the same batch may be taken later.
    fn is_passing(&self) -> bool {
        match self {
            Self::Late | Self::Unreached(_) => true,
            Self::Status(status) => matches!(status.as_u16(), 429 | 502 | 503 | 504),
        }
    }
}

impl Exporter {
    /// Fails where the machine has no certificates and the collector is to be asked by TLS.
    pub fn new(
        queue: Queue,
        settings: Settings,
        clock: Clock,
        exported: Exported,
    ) -> Result<Self, std::io::Error> {
        let mut http = HttpConnector::new();
        http.enforce_http(false);
        http.set_nodelay(true);
        let provider = rustls::crypto::aws_lc_rs::default_provider();
        let tls = HttpsConnectorBuilder::new();
        let tls = if settings.url.scheme_str() == Some("https") {
            tls.with_provider_and_native_roots(provider)?
        } else {
            let none = rustls::ClientConfig::builder_with_provider(provider.into())
                .with_safe_default_protocol_versions()
                .map_err(std::io::Error::other)?
                .with_root_certificates(rustls::RootCertStore::empty());
            tls.with_tls_config(none.with_no_client_auth())
        };
        let connector = tls.https_or_http().enable_http1().wrap_connector(http);
        let client = Client::builder(TokioExecutor::new())
            .timer(TokioTimer::new())
            .pool_timer(TokioTimer::new())
            .pool_max_idle_per_host(1)
            .build(connector);
        Ok(Self {
            queue,
            pending: Vec::new(),
            settings,
            client,
            clock,
            exported,
            dropped: 0,
            complained: None,
        })
    }

    /// Posts spans until `stop`, and then what is left.
    pub async fn run(mut self, stop: CancellationToken) {
        while stop.run_until_cancelled(self.collect()).await.is_some() {
            self.count_dropped();
            let batch = std::mem::take(&mut self.pending);
            if stop.run_until_cancelled(self.send(&batch)).await.is_none() {
                // Perhaps it has arrived: a collector knows spans by their ids.
                self.pending = batch;
                break;
            }
        }
        let flush = async {
            loop {
                self.fill();
                if self.pending.is_empty() {
                    break;
                }
                let batch = std::mem::take(&mut self.pending);
                self.send(&batch).await;
            }
        };
        if tokio::time::timeout(FLUSH, flush).await.is_err() {
            tracing::debug!("the last spans were not sent in time");
        }
        self.count_dropped();
    }

    /// Waits for a span, and for a while for those that come after it. When it is cut off, what it has got is still there.
    async fn collect(&mut self) {
        let Self { queue, pending, settings, .. } = self;
        while pending.is_empty() {
            if queue.receiver.recv_many(pending, settings.batch).await == 0 {
                // Nobody notes spans any more.
                std::future::pending::<()>().await;
            }
        }
        let others = async {
            while pending.len() < settings.batch {
                let room = settings.batch - pending.len();
                if queue.receiver.recv_many(pending, room).await == 0 {
                    break;
                }
            }
        };
        tokio::time::timeout(settings.delay, others).await.ok();
    }

    /// Takes what waits, as far as it goes into a batch.
    fn fill(&mut self) {
        while self.pending.len() < self.settings.batch
            && let Ok(span) = self.queue.receiver.try_recv()
        {
            self.pending.push(span);
        }
    }

    fn count(&self, result: &str, spans: usize) {
        self.exported.0.add([result], u64::try_from(spans).unwrap_or(u64::MAX));
    }

    fn count_dropped(&mut self) {
        let dropped = self.queue.dropped.get();
        self.exported.0.add(["dropped"], dropped - self.dropped);
        self.dropped = dropped;
    }

    /// Sends a batch, again where that may help.
    async fn send(&mut self, batch: &[Finished]) {
        if batch.is_empty() {
            return;
        }
        let body = Bytes::from(self.request(batch).to_string());
        let mut attempt = 1;
        let result = loop {
            match self.post(body.clone()).await {
                Err(failed) if failed.is_passing() && attempt < ATTEMPTS => {
                    self.complain(&failed);
                    tokio::time::sleep(PAUSE * 2_u32.pow(attempt - 1)).await;
                    attempt += 1;
                }
                Err(failed) => {
                    self.complain(&failed);
                    break if failed.is_passing() { "failed" } else { "refused" };
                }
                Ok(()) => {
                    self.complained = None;
                    break "exported";
                }
            }
        };
        self.count(result, batch.len());
    }

    async fn post(&self, body: Bytes) -> Result<(), Failed> {
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.settings.url.clone();
        *request.headers_mut() = self.settings.headers.clone();
        request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let call = async {
            let answer = self.client.request(request).await;
            let answer = answer.map_err(|error| Failed::Unreached(Box::new(error)))?;
            let status = answer.status();
            // Read to its end, so that the connection can be used again.
            Limited::new(answer.into_body(), ANSWER).collect().await.map_err(Failed::Unreached)?;
            if status.is_success() { Ok(()) } else { Err(Failed::Status(status)) }
        };
        tokio::time::timeout(self.settings.timeout, call).await.map_err(|_| Failed::Late)?
    }

    /// Says that the collector can't be used, now and then.
    fn complain(&mut self, failed: &Failed) {
        let now = self.clock.now();
        if self.complained.is_none_or(|last| now.duration_since(last) >= COMPLAINT) {
            self.complained = Some(now);
            let error = crate::logging::chain(failed);
            let url = self.settings.url.to_string();
            tracing::warn!(error, url, "traces are lost");
        }
    }

    /// OTLP's `ExportTraceServiceRequest` in JSON.
    fn request(&self, batch: &[Finished]) -> Json {
        let (now, instant) = (self.clock.now(), Instant::now());
        let at = |moment: Instant| {
            let ago = SignedDuration::try_from(instant.duration_since(moment));
            let time = now.checked_sub(ago.unwrap_or(SignedDuration::ZERO)).unwrap_or(now);
            time.as_nanosecond().to_string()
        };
        let spans: Vec<Json> = batch.iter().map(|span| json_of(span, &at)).collect();
        let resource = self.settings.resource.iter();
        let resource: Vec<Json> = resource
            .map(|(key, value)| json!({"key": key, "value": {"stringValue": value}}))
            .collect();
        let scope = json!({"name": "tenon-operator", "version": env!("CARGO_PKG_VERSION")});
        json!({"resourceSpans": [{
            "resource": {"attributes": resource},
            "scopeSpans": [{"scope": scope, "spans": spans}],
        }]})
    }
}

/// A span as OTLP has it in JSON: ids in hexadecimal, times and integers as texts, enumerations as numbers.
fn json_of(span: &Finished, at: &impl Fn(Instant) -> String) -> Json {
    let attributes = span.attributes.iter().map(|(key, value)| {
        let value = match value {
            Value::Text(text) => json!({"stringValue": text}),
            Value::Int(number) => json!({"intValue": number.to_string()}),
            Value::Bool(truth) => json!({"boolValue": truth}),
            Value::Float(number) => json!({"doubleValue": number}),
        };
        json!({"key": key, "value": value})
    });
    let mut json = json!({
        "traceId": format!("{:032x}", span.trace),
        "spanId": format!("{:016x}", span.id),
        "name": span.name,
        // Internal, or a client.
        "kind": if span.is_client { 3 } else { 1 },
        "startTimeUnixNano": at(span.began),
        "endTimeUnixNano": at(span.ended),
        "attributes": attributes.collect::<Vec<_>>(),
    });
    if let Some(parent) = span.parent {
        json["parentSpanId"] = format!("{parent:016x}").into();
    }
    if let Some(error) = &span.error {
        json["status"] = json!({"code": 2, "message": error});
    }
    json
}
