//! Traces: what the operator spends its time on, span by span, for a collector that speaks OTLP.
//!
//! Spans are `tracing`'s, made by [`span!`] where a reconcile, a planning pass, a call to AWS or one to the API server begins, and they exist only while
//! somebody collects them. [`Spans`] notes their beginning and end and hands them to the [`export`]er through a queue of a fixed length: when the collector
//! is away or slow, spans are dropped and counted, and nobody waits.
//!
//! The pieces are small enough to be ours: `docs/src/design/dependencies.md` says what the SDK of OpenTelemetry would bring.

pub mod export;
pub mod settings;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Metadata, Span, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::{FilterFn, filter_fn};
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;

use self::settings::Settings;

/// Target of the spans that are traced; nothing else has it.
pub const TARGET: &str = "tenon_traces";

/// So many attributes of a span are kept.
const ATTRIBUTES: usize = 16;
/// So many bytes of a text are kept.
const TEXT: usize = 256;

/// Makes a span that is traced: a name, then fields. The field `name` replaces the name, which otherwise is the same for all spans that are made here; `error`
/// says that it failed, and why; `client = true` marks a call to somebody else.
macro_rules! span {
    ($name:literal $(, $($fields:tt)*)?) => {
        tracing::info_span!(target: $crate::traces::TARGET, $name $(, $($fields)*)?)
    };
    (root: $name:literal $(, $($fields:tt)*)?) => {
        tracing::info_span!(target: $crate::traces::TARGET, parent: None, $name $(, $($fields)*)?)
    };
}
pub(crate) use span;

/// Whether what runs here is traced: a call gets a span of its own only where it belongs to something.
pub fn is_traced() -> bool {
    Span::current().metadata().is_some_and(is_ours)
}

fn is_ours(metadata: &Metadata<'_>) -> bool {
    metadata.target() == TARGET
}

/// The filter of the layer: of all spans only these are traced.
pub fn filter() -> FilterFn {
    filter_fn(is_ours)
}

/// A value of an attribute.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A text.
    Text(String),
    /// An integer.
    Int(i64),
    /// A truth.
    Bool(bool),
    /// A number.
    Float(f64),
}

/// A span that has ended.
#[derive(Clone, Debug, PartialEq)]
pub struct Finished {
    /// Of all spans of a piece of work, never zero.
    pub trace: u128,
    /// Its own, never zero.
    pub id: u64,
    /// The span that it is a part of.
    pub parent: Option<u64>,
    /// What was done.
    pub name: String,
    /// A call to somebody else.
    pub is_client: bool,
    /// When it began.
    pub began: Instant,
    /// When it ended.
    pub ended: Instant,
    /// What it was about.
    pub attributes: Vec<(&'static str, Value)>,
    /// Why it failed, if it did.
    pub error: Option<String>,
}

/// What became of spans. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Dropped(Arc<AtomicU64>);

impl Dropped {
    /// How many found no room in the queue.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Notes spans.
#[derive(Debug)]
pub struct Spans {
    sender: mpsc::Sender<Finished>,
    dropped: Dropped,
    /// The share of traces that is kept, in parts of `u64::MAX`.
    kept: u64,
    ids: Mutex<StdRng>,
}

/// Spans that have ended, for the exporter.
#[derive(Debug)]
pub struct Queue {
    receiver: mpsc::Receiver<Finished>,
    dropped: Dropped,
}

/// Notes spans from now on, and the queue that somebody has to empty.
pub fn new(settings: &Settings) -> (Spans, Queue) {
    let (sender, receiver) = mpsc::channel(settings.queue);
    let dropped = Dropped::default();
    // Ids only have to differ, from those of other replicas too.
    let seed = uuid::Uuid::new_v4().as_u128().to_le_bytes();
    let mut key = [0; 32];
    key[..16].copy_from_slice(&seed);
    let ids = Mutex::new(StdRng::from_seed(key));
    let spans = Spans { sender, dropped: dropped.clone(), kept: settings.kept, ids };
    (spans, Queue { receiver, dropped })
}

/// A span that has not ended. One that is not kept is absent, and so are its children.
#[derive(Debug)]
struct Open(Finished);

impl<S: Subscriber + for<'s> LookupSpan<'s>> Layer<S> for Spans {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        let parent = span.parent().map(|parent| {
            let extensions = parent.extensions();
            extensions.get::<Open>().map(|Open(parent)| (parent.trace, parent.id))
        });
        let (trace, parent) = match parent {
            Some(Some((trace, parent))) => (trace, Some(parent)),
            // Its parent is not kept.
            Some(None) => return,
            None => {
                let trace = self.ids.lock().random::<u128>().max(1);
                // As OpenTelemetry's samplers do: by the lower half of the id, so that everybody who takes part in a trace decides alike.
                #[expect(clippy::cast_possible_truncation, reason = "the lower half is meant")]
                let lower = trace as u64;
                if lower > self.kept {
                    return;
                }
                (trace, None)
            }
        };
        let now = Instant::now();
        let mut open = Open(Finished {
            trace,
            id: self.ids.lock().random::<u64>().max(1),
            parent,
            name: span.name().to_owned(),
            is_client: false,
            began: now,
            ended: now,
            attributes: Vec::new(),
            error: None,
        });
        attributes.record(&mut open);
        span.extensions_mut().insert(open);
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        if let Some(open) = span.extensions_mut().get_mut::<Open>() {
            values.record(open);
        }
    }

    fn on_close(&self, id: Id, context: Context<'_, S>) {
        let Some(span) = context.span(&id) else { return };
        let Some(Open(mut finished)) = span.extensions_mut().remove::<Open>() else { return };
        finished.ended = Instant::now();
        if self.sender.try_send(finished).is_err() {
            self.dropped.0.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Open {
    fn add(&mut self, field: &Field, value: Value) {
        let Self(span) = self;
        match (field.name(), value) {
            ("name", Value::Text(name)) => span.name = name,
            ("error", Value::Text(error)) => span.error = Some(error),
            ("client", Value::Bool(is_client)) => span.is_client = is_client,
            (name, value) if span.attributes.len() < ATTRIBUTES => {
                span.attributes.push((name, value));
            }
            _ => {}
        }
    }
}

fn text(text: &str) -> Value {
    Value::Text(crate::events::truncate(text, TEXT))
}

impl Visit for Open {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        self.add(field, text(&format!("{value:?}")));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.add(field, text(value));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.add(field, Value::Int(value));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.add(field, Value::Int(i64::try_from(value).unwrap_or(i64::MAX)));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.add(field, Value::Bool(value));
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.add(field, Value::Float(value));
    }
}

#[cfg(test)]
mod tests;
