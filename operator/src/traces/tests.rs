use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State as Shared;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use clap::Parser as _;
use jiff::Timestamp;
use opentelemetry::KeyValue;
use parking_lot::Mutex;
use serde_json::Value as Json;
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;
use tracing::field::Empty;
use tracing_subscriber::layer::SubscriberExt as _;

use super::export::{Exported, Exporter};
use super::settings::TraceOptions;
use super::*;
use crate::clock::Clock;
use crate::metrics::Metrics;
use crate::testing::listen;

#[derive(clap::Parser)]
struct Line {
    #[command(flatten)]
    traces: TraceOptions,
}

fn settings(args: &[&str]) -> Result<Settings, Vec<String>> {
    let args = ["tenon-operator", "--enable-tracing"].iter().chain(args).copied();
    Line::parse_from(args).traces.settings().map(Option::unwrap)
}

/// What a collector got, and how it answers.
#[derive(Debug)]
struct Collector {
    got: Mutex<Vec<(HeaderMap, Bytes)>>,
    answer: Mutex<StatusCode>,
}

impl Collector {
    /// Listens on the loopback address; its URL.
    async fn start() -> (Arc<Self>, String) {
        async fn take(
            Shared(collector): Shared<Arc<Collector>>,
            headers: HeaderMap,
            body: Bytes,
        ) -> StatusCode {
            collector.got.lock().push((headers, body));
            *collector.answer.lock()
        }
        let got = Mutex::default();
        let collector = Arc::new(Self { got, answer: Mutex::new(StatusCode::OK) });
        let router = Router::new().route("/v1/traces", post(take));
        let router = router.with_state(Arc::clone(&collector));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        crate::testing::spawn(async move { axum::serve(listener, router).await.unwrap() });
        (collector, url)
    }

    /// The bodies, which are JSON.
    fn bodies(&self) -> Vec<Json> {
        self.got.lock().iter().map(|(_, body)| serde_json::from_slice(body).unwrap()).collect()
    }

    /// All spans, in the order of their ends.
    fn spans(&self) -> Vec<Json> {
        let spans = |body: &Json| {
            body.pointer("/resourceSpans/0/scopeSpans/0/spans").unwrap().as_array().cloned()
        };
        self.bodies().iter().filter_map(spans).flatten().collect()
    }
}

/// An exporter that runs until its token is cancelled, and what it counts.
fn exporting(
    settings: Settings,
    queue: Queue,
) -> (tokio::task::JoinHandle<()>, CancellationToken, Metrics) {
    let (metrics, stop) = (Metrics::new(), CancellationToken::new());
    let clock = Clock::anchored(Timestamp::from_second(1_000_000).unwrap());
    let exported = Exported::new(&metrics);
    let exporter = Exporter::new(queue, settings, clock, exported).unwrap();
    (crate::testing::spawn(exporter.run(stop.clone())), stop, metrics)
}

fn subscriber(tracer: SdkTracer) -> impl Subscriber + Send + Sync {
    tracing_subscriber::registry().with(layer(tracer))
}

#[tokio::test]
async fn a_piece_of_work_comes_as_one_trace_with_its_parts_and_why_they_failed() {
    let (collector, url) = Collector::start().await;
    let settings = settings(&[
        &format!("--otel-exporter-otlp-endpoint={url}/"),
        "--otel-exporter-otlp-protocol=http/json",
        "--otel-exporter-otlp-headers=x-key=a%20secret",
        "--otel-resource-attributes=k8s.cluster.name=demo,service.name=ignored",
        "--otel-service-name=tenon",
    ])
    .unwrap();
    let (tracer, queue) = new(&settings);
    let _guard = listen(subscriber(tracer));
    async {
        assert!(is_traced());
        let call = span!(
            "API server",
            otel.name = "PATCH nodes",
            otel.kind = "client",
            attempts = number(2_u32),
            otel.status_description = Empty
        );
        fail(&call, "409");
    }
    .instrument(span!("reconcile", key = ?"default"))
    .await;
    let (exporting, stop, metrics) = exporting(settings, queue);
    // The delay is far longer than the test: what is left is sent at the end.
    stop.cancel();
    exporting.await.unwrap();
    let spans = collector.spans();
    let [call, reconcile] = spans.as_slice() else { panic!("{spans:?}") };
    assert_eq!(call["traceId"], reconcile["traceId"]);
    assert_eq!(call["parentSpanId"], reconcile["spanId"]);
    assert_eq!(reconcile["parentSpanId"].as_str().unwrap_or_default(), "");
    assert_eq!(call["traceId"].as_str().unwrap().len(), 32);
    assert_eq!(call["spanId"].as_str().unwrap().len(), 16);
    assert_eq!((&call["name"], &call["kind"]), (&"PATCH nodes".into(), &3.into()));
    assert_eq!((&call["status"]["code"], &call["status"]["message"]), (&2.into(), &"409".into()));
    assert_eq!(
        call["attributes"],
        serde_json::json!([{"key": "attempts", "value": {"intValue": "2"}}])
    );
    assert!(reconcile["startTimeUnixNano"].as_str().unwrap().parse::<u128>().is_ok());
    let headers = collector.got.lock()[0].0.clone();
    let body = &collector.bodies()[0];
    assert_eq!(headers["x-key"], "a secret");
    assert_eq!(headers["content-type"], "application/json");
    let resource = body.pointer("/resourceSpans/0/resource/attributes").unwrap().to_string();
    assert!(resource.contains(r#"{"key":"service.name","value":{"stringValue":"tenon"}}"#));
    assert!(resource.contains("demo") && !resource.contains("ignored"), "{resource}");
    let told = metrics.encode().unwrap();
    assert!(told.contains(r#"tenon_trace_spans_total{result="exported"} 2"#), "{told}");
}

#[tokio::test]
async fn a_collector_that_is_away_costs_nobody_time_and_no_more_memory_than_the_queue() {
    // Nobody listens there any more.
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let settings = settings(&[
        &format!("--otel-exporter-otlp-endpoint={url}"),
        "--otel-bsp-max-queue-size=10",
        "--otel-bsp-max-export-batch-size=100",
    ])
    .unwrap();
    assert_eq!(settings.batch, 10);
    let (tracer, queue) = new(&settings);
    let dropped = queue.dropped.clone();
    let _guard = listen(subscriber(tracer));
    for _ in 0..25 {
        drop(span!("reconcile"));
    }
    assert_eq!((queue.receiver.len(), dropped.get()), (10, 15));
    let (exporting, stop, metrics) = exporting(settings, queue);
    stop.cancel();
    // It ends although it has not got rid of them.
    tokio::time::timeout(Duration::from_secs(30), exporting).await.unwrap().unwrap();
    let told = metrics.encode().unwrap();
    assert!(told.contains(r#"tenon_trace_spans_total{result="dropped"} 15"#), "{told}");
    assert!(!told.contains(r#"result="exported""#), "{told}");
}

#[tokio::test]
async fn a_collector_that_has_no_time_is_asked_again_and_one_that_refuses_is_not() {
    for (first, asked, result) in
        [(StatusCode::SERVICE_UNAVAILABLE, 2, "exported"), (StatusCode::BAD_REQUEST, 1, "refused")]
    {
        let (collector, url) = Collector::start().await;
        *collector.answer.lock() = first;
        let settings = settings(&[
            &format!("--otel-exporter-otlp-endpoint={url}"),
            "--otel-bsp-schedule-delay=1",
        ])
        .unwrap();
        let (tracer, queue) = new(&settings);
        let guard = listen(subscriber(tracer));
        drop(span!("reconcile"));
        drop(guard);
        let (exporting, stop, metrics) = exporting(settings, queue);
        while collector.got.lock().is_empty() {
            tokio::task::yield_now().await;
        }
        *collector.answer.lock() = StatusCode::OK;
        let expected = format!("tenon_trace_spans_total{{result=\"{result}\"}} 1");
        while !metrics.encode().unwrap().contains(&expected) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        stop.cancel();
        exporting.await.unwrap();
        assert_eq!(collector.got.lock().len(), asked, "{first}");
    }
}

#[test]
fn of_a_trace_that_is_not_kept_no_part_is() {
    for (share, expected) in [("0", 0), ("1", 3)] {
        let settings = settings(&[
            "--otel-traces-sampler=parentbased_traceidratio",
            &format!("--otel-traces-sampler-arg={share}"),
        ])
        .unwrap();
        let (tracer, mut queue) = new(&settings);
        let _guard = listen(subscriber(tracer));
        span!("a").in_scope(|| span!("b").in_scope(|| drop(span!("c"))));
        let mut ended = Vec::new();
        while let Ok(span) = queue.receiver.try_recv() {
            ended.push(span.name);
        }
        assert_eq!(ended.len(), expected, "{ended:?}");
    }
}

#[test]
fn a_share_of_traces_is_kept() {
    let settings =
        settings(&["--otel-traces-sampler=traceidratio", "--otel-traces-sampler-arg=0.25"]);
    let (tracer, mut queue) = new(&settings.unwrap());
    let _guard = listen(subscriber(tracer));
    for _ in 0..2_000 {
        drop(span!("reconcile"));
    }
    let mut kept = 0;
    while queue.receiver.try_recv().is_ok() {
        kept += 1;
    }
    // Ten standard deviations to either side.
    assert!((300..700).contains(&kept), "{kept}");
}

#[test]
fn long_texts_and_many_attributes_are_cut() {
    let (tracer, mut queue) = new(&settings(&[]).unwrap());
    let _guard = listen(subscriber(tracer));
    let span = span!("reconcile", key = "x".repeat(1_000), otel.status_description = Empty);
    fail(&span, &"y".repeat(1_000));
    drop(span);
    let span = queue.receiver.try_recv().unwrap();
    let [KeyValue { value: Value::String(text), .. }] = span.attributes.as_slice() else {
        panic!("{span:?}")
    };
    assert!((TEXT / 2..=TEXT).contains(&text.as_str().len()), "{}", text.as_str().len());
    let Status::Error { description } = &span.status else { panic!("{span:?}") };
    assert!((TEXT / 2..=TEXT).contains(&description.len()), "{}", description.len());
}

#[test]
fn what_can_not_be_used_is_told_with_its_variable_and_without_its_secrets() {
    let problems = settings(&[
        "--otel-exporter-otlp-endpoint=collector:4317",
        "--otel-exporter-otlp-headers=authorization Bearer secret",
        "--otel-exporter-otlp-protocol=grpc",
        "--otel-traces-sampler=sometimes",
        "--otel-bsp-max-queue-size=0",
        "--otel-exporter-otlp-timeout=10s",
    ])
    .unwrap_err();
    let told = problems.join("\n");
    for variable in [
        "OTEL_EXPORTER_OTLP_ENDPOINT is not a URL",
        "OTEL_EXPORTER_OTLP_HEADERS is not a list",
        "only by http/protobuf or http/json",
        "OTEL_TRACES_SAMPLER is sometimes",
        "OTEL_BSP_MAX_QUEUE_SIZE is 0",
        "OTEL_EXPORTER_OTLP_TIMEOUT is 10s",
    ] {
        assert!(told.contains(variable), "{variable}: {told}");
    }
    assert!(!told.contains("secret"), "{told}");
    // None of it matters while traces are off.
    let off = Line::parse_from(["tenon-operator", "--otel-exporter-otlp-protocol=grpc"]);
    assert!(off.traces.settings().unwrap().is_none());
}

#[test]
fn an_endpoint_of_its_own_is_taken_as_it_stands() {
    let url = |args: &[&str]| settings(args).unwrap().url.to_string();
    assert_eq!(url(&[]), "http://localhost:4318/v1/traces");
    let base = "--otel-exporter-otlp-endpoint=https://collector:4318/otlp/";
    assert_eq!(url(&[base]), "https://collector:4318/otlp/v1/traces");
    let own = "--otel-exporter-otlp-traces-endpoint=http://other/spans";
    assert_eq!(url(&[base, own]), "http://other/spans");
}

#[tokio::test]
async fn protobuf_is_what_a_collector_gets_that_nobody_asked() {
    let (collector, url) = Collector::start().await;
    let settings = settings(&[&format!("--otel-exporter-otlp-endpoint={url}")]).unwrap();
    let (tracer, queue) = new(&settings);
    let _guard = listen(subscriber(tracer));
    drop(span!("reconcile"));
    let (exporting, stop, _) = exporting(settings, queue);
    stop.cancel();
    exporting.await.unwrap();
    let got = collector.got.lock();
    let [(headers, body)] = got.as_slice() else { panic!("{got:?}") };
    assert_eq!(headers["content-type"], "application/x-protobuf");
    // A field of the message: the name of the span is the fifth, a text of nine bytes.
    let name = b"\x2a\x09reconcile";
    assert!(body.windows(name.len()).any(|window| window == name), "{body:?}");
}
