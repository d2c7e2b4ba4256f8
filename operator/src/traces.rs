//! Traces: what the operator spends its time on, span by span, for a collector that speaks OTLP.
//!
//! Spans are `tracing`'s, made by [`span!`] where a reconcile, a planning pass, a call to AWS or
//! one to the API server begins, and they exist only while somebody collects them. OpenTelemetry's
//! SDK makes its own of them. [`Spans`] hands those that have ended to the [`export`]er through a
//! queue of a fixed length: when the collector is away or slow, spans are dropped and counted, and
//! nobody waits.

pub mod export;
pub mod settings;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use opentelemetry::trace::{Status, TracerProvider as _};
use opentelemetry::{Context, InstrumentationScope, Value};
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{SdkTracer, SdkTracerProvider, SpanData, SpanProcessor};
use tokio::sync::mpsc;
use tracing::{Metadata, Span, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::registry::LookupSpan;

use self::settings::Settings;

/// Target of the spans that are traced; nothing else has it.
pub const TARGET: &str = "tenon_traces";

/// So many attributes of a span are kept.
const ATTRIBUTES: u32 = 16;
/// So many bytes of a text are kept.
const TEXT: usize = 256;

/// Makes a span that is traced: a name, then fields. The field `otel.name` replaces the name, which
/// otherwise is the same for all spans that are made here; [`fail`] fills
/// `otel.status_description`, and `otel.kind = "client"` marks a call to somebody else.
macro_rules! span {
    ($name:literal $(, $($fields:tt)*)?) => {
        tracing::info_span!(target: $crate::traces::TARGET, $name $(, $($fields)*)?)
    };
    (root: $name:literal $(, $($fields:tt)*)?) => {
        tracing::info_span!(target: $crate::traces::TARGET, parent: None, $name $(, $($fields)*)?)
    };
}
pub(crate) use span;

/// Notes that what a span is about failed, and why.
pub fn fail(span: &Span, why: &str) {
    span.record("otel.status_description", why);
}

/// A number as an attribute: of those that are not signed the layer makes texts, which nobody can
/// compare.
pub fn number(n: impl TryInto<i64>) -> i64 {
    n.try_into().unwrap_or(i64::MAX)
}

/// Whether what runs here is traced: a call gets a span of its own only where it belongs to
/// something.
pub(crate) fn is_traced() -> bool {
    Span::current().metadata().is_some_and(is_ours)
}

fn is_ours(metadata: &Metadata<'_>) -> bool {
    metadata.target() == TARGET
}

/// The layer that turns spans into OpenTelemetry's; of all spans only these.
pub fn layer<S>(tracer: SdkTracer) -> impl Layer<S>
where
    S: Subscriber + for<'s> LookupSpan<'s>,
{
    tracing_opentelemetry::layer()
        .with_tracer(tracer)
        .with_context_activation(false)
        .with_level(false)
        .with_location(false)
        .with_target(false)
        .with_threads(false)
        .with_tracked_inactivity(false)
        .with_filter(filter_fn(is_ours))
}

/// How many spans found no room in the queue. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Dropped(Arc<AtomicU64>);

impl Dropped {
    /// The number of spans so far.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Spans that have ended, for the exporter.
#[derive(Debug)]
pub struct Queue {
    receiver: mpsc::Receiver<SpanData>,
    dropped: Dropped,
}

/// What makes spans from now on, and the queue that somebody has to empty.
pub fn new(settings: &Settings) -> (SdkTracer, Queue) {
    let (sender, receiver) = mpsc::channel(settings.queue);
    let dropped = Dropped::default();
    let provider = SdkTracerProvider::builder()
        .with_span_processor(Spans { sender, dropped: dropped.clone() })
        .with_sampler(settings.sampler.clone())
        .with_resource(settings.resource.clone())
        .with_max_attributes_per_span(ATTRIBUTES)
        .build();
    let scope = InstrumentationScope::builder("tenon-operator");
    let scope = scope.with_version(env!("CARGO_PKG_VERSION")).build();
    (provider.tracer_with_scope(scope), Queue { receiver, dropped })
}

/// Takes spans that have ended. The SDK's own processors tell nobody how many they drop.
#[derive(Debug)]
struct Spans {
    sender: mpsc::Sender<SpanData>,
    dropped: Dropped,
}

impl SpanProcessor for Spans {
    fn on_start(&self, _: &mut opentelemetry_sdk::trace::Span, _: &Context) {}

    fn on_end(&self, mut span: SpanData) {
        shorten(&mut span);
        if self.sender.try_send(span).is_err() {
            self.dropped.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn force_flush(&self) -> OTelSdkResult {
        Ok(())
    }

    fn shutdown_with_timeout(&self, _: Duration) -> OTelSdkResult {
        Ok(())
    }
}

/// Cuts long texts: the SDK limits how many there are, not how long they are.
fn shorten(span: &mut SpanData) {
    for attribute in &mut span.attributes {
        if let Value::String(text) = &mut attribute.value
            && text.as_str().len() > TEXT
        {
            *text = crate::text::truncate(text.as_str(), TEXT).into();
        }
    }
    if let Status::Error { description } = &mut span.status
        && description.len() > TEXT
    {
        *description = crate::text::truncate(description, TEXT).into();
    }
}

#[cfg(test)]
mod tests;
