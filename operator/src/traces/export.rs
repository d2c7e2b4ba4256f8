//! Spans on their way to the collector: in batches, one request at a time, and never in anybody's
//! way.
//!
//! A batch that the collector has no time for is tried again, by OpenTelemetry's exporter, and then
//! given up; meanwhile newer spans wait in the queue until that is full. When the operator is told
//! to stop what is left is sent, as far as that is done within [`FLUSH`].

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use jiff::{SignedDuration, Timestamp};
use opentelemetry_http::{HttpClient, HttpError};
use opentelemetry_otlp::{SpanExporter, WithExportConfig as _, WithHttpConfig as _};
use opentelemetry_sdk::trace::{SpanData, SpanExporter as _};
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use super::Queue;
use super::settings::Settings;
use crate::clock::Clock;
use crate::metrics::declare::families;

/// How long the last spans may take when the operator is told to stop: it has handed the lease over
/// by then.
const FLUSH: Duration = Duration::from_secs(1);
/// So often a collector that is away is told of in the log.
const COMPLAINT: SignedDuration = SignedDuration::from_mins(10);
/// Nobody reads more of an answer.
const ANSWER: usize = 64 * 1024;

families! {
    /// What exporting counts.
    #[derive(Clone, Debug)]
    pub struct Exported {
        /// Number of spans of traces, by result: exported, refused by the collector, failed, or
        /// dropped for lack of room
        spans: counters("tenon_trace_spans_total", ["result"]),
    }
}

/// Posts spans.
#[derive(Debug)]
pub struct Exporter {
    queue: Queue,
    /// The batch that is being collected.
    pending: Vec<SpanData>,
    settings: Settings,
    spans: SpanExporter,
    /// Why the last request was not taken.
    failed: Failure,
    clock: Clock,
    exported: Exported,
    /// Spans without room that were counted already.
    dropped: u64,
    complained: Option<Timestamp>,
}

/// Why there is no exporter.
#[derive(Debug, thiserror::Error)]
pub enum ExporterError {
    /// The machine has none, and the collector is to be asked by TLS.
    #[error("reading the certificates for the collector of traces")]
    Certificates(#[from] std::io::Error),
    /// OpenTelemetry's exporter refuses its settings.
    #[error("OpenTelemetry's variables for the exporter of traces are invalid")]
    Settings(#[from] opentelemetry_otlp::ExporterBuildError),
}

/// Why a batch was not taken.
#[derive(Debug, thiserror::Error)]
enum Failed {
    #[error("the collector has not answered in time")]
    Late,
    #[error("the collector is unreachable")]
    Unreached(#[source] HttpError),
    #[error("the collector answers {0}")]
    Status(StatusCode),
}

impl Failed {
    /// Whether the collector has read the batch and does not want it.
    fn is_refusal(&self) -> bool {
        matches!(self, Self::Status(status) if status.is_client_error() && *status != StatusCode::TOO_MANY_REQUESTS)
    }
}

/// What the transport knows of the last failure, and the exporter's own error does not say.
type Failure = Arc<Mutex<Option<Failed>>>;

/// The operator's HTTP stack, for OpenTelemetry's exporter.
#[derive(Debug)]
struct Transport {
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    /// How long a request may take.
    timeout: Duration,
    failed: Failure,
}

#[async_trait::async_trait]
impl HttpClient for Transport {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let call = async {
            let answer = self.client.request(request.map(Full::new)).await;
            let (head, body) = answer.map_err(HttpError::from)?.into_parts();
            let body = Limited::new(body, ANSWER).collect().await?;
            Ok(Response::from_parts(head, body.to_bytes()))
        };
        let answer = tokio::time::timeout(self.timeout, call).await;
        let answer =
            answer.map_err(|_| Failed::Late).and_then(|sent| sent.map_err(Failed::Unreached));
        let mut failed = self.failed.lock();
        match answer {
            Ok(answer) => {
                let status = answer.status();
                *failed = (!status.is_success()).then_some(Failed::Status(status));
                Ok(answer)
            }
            Err(why) => {
                let error = why.to_string().into();
                *failed = Some(why);
                Err(error)
            }
        }
    }
}

impl Transport {
    fn new(settings: &Settings, failed: Failure) -> Result<Self, std::io::Error> {
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
        Ok(Self { client, timeout: settings.timeout, failed })
    }
}

impl Exporter {
    /// Sends nothing yet.
    pub fn new(
        queue: Queue,
        settings: Settings,
        clock: Clock,
        exported: Exported,
    ) -> Result<Self, ExporterError> {
        let failed = Failure::default();
        let headers = settings
            .headers
            .iter()
            .filter_map(|(key, value)| Some((key.to_string(), value.to_str().ok()?.to_owned())));
        let mut spans = SpanExporter::builder()
            .with_http()
            .with_http_client(Transport::new(&settings, Arc::clone(&failed))?)
            .with_endpoint(settings.url.to_string())
            .with_protocol(settings.protocol)
            .with_timeout(settings.timeout)
            .with_headers(headers.collect())
            .build()?;
        spans.set_resource(&settings.resource);
        Ok(Self {
            queue,
            pending: Vec::new(),
            settings,
            spans,
            failed,
            clock,
            exported,
            dropped: 0,
            complained: None,
        })
    }

    /// Posts spans until `stop`, and then what is left.
    pub async fn run(mut self, stop: CancellationToken) {
        let late = async {
            stop.cancelled().await;
            tokio::time::sleep(FLUSH).await;
        };
        let work = async {
            while stop.run_until_cancelled(self.collect()).await.is_some() {
                self.send().await;
            }
            self.fill();
            while !self.pending.is_empty() {
                self.send().await;
                self.fill();
            }
        };
        tokio::select! {
            () = work => {}
            () = late => tracing::debug!("the last spans were not sent in time"),
        }
        self.count_dropped();
    }

    /// Waits for a span, and for a while for those that come after it. When it is cut off, what it
    /// has got is still there.
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
        self.exported.spans.add([result], u64::try_from(spans).unwrap_or(u64::MAX));
    }

    fn count_dropped(&mut self) {
        let dropped = self.queue.dropped.get();
        self.exported.spans.add(["dropped"], dropped - self.dropped);
        self.dropped = dropped;
    }

    /// Sends what was collected.
    async fn send(&mut self) {
        self.count_dropped();
        let batch = std::mem::take(&mut self.pending);
        let spans = batch.len();
        match self.spans.export(batch).await {
            Ok(()) => {
                self.complained = None;
                self.count("exported", spans);
            }
            Err(error) => {
                let failed = self.failed.lock().take();
                let is_refused = failed.as_ref().is_some_and(Failed::is_refusal);
                self.count(if is_refused { "refused" } else { "failed" }, spans);
                match &failed {
                    Some(failed) => self.complain(failed),
                    None => self.complain(&error),
                }
            }
        }
    }

    /// Says that the collector can't be used, now and then.
    fn complain(&mut self, failed: &(dyn std::error::Error + 'static)) {
        let now = self.clock.now();
        if self.complained.is_none_or(|last| now.duration_since(last) >= COMPLAINT) {
            self.complained = Some(now);
            let error = crate::text::chain(failed);
            let url = self.settings.url.to_string();
            tracing::warn!(error, url, "traces are lost");
        }
    }
}
