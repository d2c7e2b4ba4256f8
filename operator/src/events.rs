//! Kubernetes events, published without repeating themselves and without being lost.
//!
//! [`Recorder::publish`] never waits and never fails: the event goes into a bounded [`queue`],
//! from which one task ([`Publisher::run`]) writes to the API server. An event counts as said, and
//! rests for its window, only once the API server has taken it; while it waits, a newer one about
//! the same thing takes its place. In a cluster of 10,000 nodes everything that is there to be said
//! is therefore said in the end, in its newest form and at a rate that the API server can take;
//! what has to give way is what its producer will say again.

mod publisher;
mod queue;
pub(crate) mod reason;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use jiff::SignedDuration;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::Resource;
use parking_lot::Mutex;
use tenon_planner::plan::PodRef;
use tenon_state::wire;
use tokio::sync::Notify;

pub(crate) use self::publisher::Publisher;
use self::queue::{Limits, Queue};
pub(crate) use self::reason::Reason;
use crate::clock::Clock;
use crate::metrics::declare::Declared;
use crate::metrics::exposition::{Exposed, Exposition, Gone, LabelText, Number, Type};
use crate::text::truncate;

/// How long an event is not repeated, unless it says otherwise.
pub(crate) const DEFAULT_WINDOW: SignedDuration = SignedDuration::from_mins(2);

/// How much is kept: a Node and its NodeClaim with an obstacle each, at 10,000 nodes, and as many
/// pods again; at less than a kilobyte each about 40 MB. Writes are attempted over more than a
/// minute of failures, longer while the API server is away.
const LIMITS: Limits = Limits { waiting: 50_000, attempts: 8 };

/// Longest message of an event in bytes, as the API server takes it.
const MESSAGE: usize = 1024;

/// Component that events come from: upstream's, as dashboards filter by it.
const COMPONENT: &str = "karpenter";

/// Kinds of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventType {
    /// Something happened as it should.
    Normal,
    /// Something needs attention.
    Warning,
}

/// Something to say about an object.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    regarding: ObjectReference,
    kind: EventType,
    reason: Reason,
    message: String,
    dedupe: Vec<String>,
    window: SignedDuration,
    rate: Option<Rate>,
    supersedes: bool,
}

/// Token bucket of all events with one reason.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Rate {
    per_second: f64,
    burst: f64,
}

impl Event {
    /// A `Normal` event about an object. The message is for people.
    pub fn normal<K: Resource<DynamicType = ()>>(
        object: &K,
        reason: Reason,
        message: impl Into<String>,
    ) -> Self {
        Self::about(object.object_ref(&()), EventType::Normal, reason, message.into())
    }

    /// A `Warning` event about an object.
    pub fn warning<K: Resource<DynamicType = ()>>(
        object: &K,
        reason: Reason,
        message: impl Into<String>,
    ) -> Self {
        Self::about(object.object_ref(&()), EventType::Warning, reason, message.into())
    }

    /// An event about an object that is at hand only by reference.
    pub fn about(
        regarding: ObjectReference,
        event_type: EventType,
        reason: Reason,
        message: String,
    ) -> Self {
        let identity = regarding
            .uid
            .clone()
            .filter(|uid| !uid.is_empty())
            .unwrap_or_else(|| format!("{:?}/{:?}", regarding.namespace, regarding.name));
        Self {
            regarding,
            kind: event_type,
            reason,
            message,
            dedupe: vec![identity],
            window: DEFAULT_WINDOW,
            rate: None,
            supersedes: false,
        }
    }

    /// Makes the event differ from others of its reason and object by `value` too. The message is
    /// never part of that: a changed message is still the same event.
    #[must_use]
    pub(crate) fn distinct_by(mut self, value: impl Into<String>) -> Self {
        self.dedupe.push(value.into());
        self
    }

    /// Makes obsolete what still waits to be said about the object with this reason, whatever
    /// distinguishes it.
    #[must_use]
    pub(crate) fn superseding(mut self) -> Self {
        self.supersedes = true;
        self
    }

    /// Is not repeated for so long, instead of [`DEFAULT_WINDOW`].
    #[must_use]
    pub fn within(mut self, window: SignedDuration) -> Self {
        self.window = window;
        self
    }

    /// At most so many events with this reason, over all objects.
    #[must_use]
    pub fn limited(mut self, per_second: f64, burst: f64) -> Self {
        self.rate = Some(Rate { per_second, burst });
        self
    }

    /// The reason, which decides how long a repetition is suppressed.
    pub fn reason(&self) -> Reason {
        self.reason
    }

    /// The message for users.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// The object that the event is about.
    #[cfg(test)]
    pub(crate) fn regarding(&self) -> &ObjectReference {
        &self.regarding
    }

    /// The name of its object.
    pub(crate) fn object_name(&self) -> &str {
        self.regarding.name.as_deref().unwrap_or_default()
    }

    /// What it says, as far as repetitions go.
    fn key(&self) -> String {
        format!("{}-{}", self.reason.as_str(), self.dedupe.join("-"))
    }

    /// What at most one event waits for at a time.
    fn slot(&self) -> String {
        let told_apart = if self.supersedes { &self.dedupe[..1] } else { &self.dedupe };
        format!("{}-{}", self.reason.as_str(), told_apart.join("-"))
    }
}

/// Publishes Kubernetes events; clones share their queue.
#[derive(Clone, Debug)]
pub struct Recorder {
    clock: Clock,
    shared: Arc<Shared>,
}

/// What recorders and the publisher have in common.
#[derive(Debug)]
struct Shared {
    queue: Mutex<Queue>,
    /// Something came in.
    changed: Notify,
    /// Names that were given.
    count: AtomicU64,
    /// How many ask for quiet.
    hushes: AtomicUsize,
}

/// While it is there events are written slowly ([`Recorder::hush`]).
#[derive(Debug)]
pub struct Hush(Arc<Shared>);

impl Drop for Hush {
    fn drop(&mut self) {
        self.0.hushes.fetch_sub(1, Ordering::Relaxed);
        self.0.changed.notify_one();
    }
}

impl Recorder {
    /// A recorder, and the publisher that somebody has to run.
    pub fn new(clock: Clock) -> (Self, Publisher) {
        let queue = Mutex::new(Queue::new(LIMITS));
        let shared = Arc::new(Shared {
            queue,
            changed: Notify::new(),
            count: AtomicU64::new(0),
            hushes: AtomicUsize::new(0),
        });
        (Self { clock, shared: Arc::clone(&shared) }, Publisher::new(clock, shared))
    }

    /// Leaves the API server to what is more urgent than events, until the answer is dropped: in a
    /// moment when hundreds of writes decide what becomes of as many pods, hundreds of events at
    /// the same time would delay them. Events wait meanwhile; a few are still written.
    #[must_use]
    pub fn hush(&self) -> Hush {
        self.shared.hushes.fetch_add(1, Ordering::Relaxed);
        Hush(Arc::clone(&self.shared))
    }

    /// Says it as soon as there is time for it, unless it was said within its window.
    pub fn publish(&self, mut event: Event) {
        if event.message.len() > MESSAGE {
            event.message = truncate(&event.message, MESSAGE);
        }
        self.shared.queue.lock().push(event, self.clock.now());
        self.shared.changed.notify_one();
    }
}

const PUBLISHED: Declared = Declared {
    name: "tenon_events_total",
    labels: &["result"],
    help: "Number of events, by result: published, refused by the API server, or dropped",
};
const WAITING: Declared = Declared {
    name: "tenon_events_waiting",
    labels: &[],
    help: "Number of events that wait to be published",
};

/// What is exposed about events.
#[cfg(test)]
pub(crate) const DECLARED: [Declared; 2] = [PUBLISHED, WAITING];

impl Exposed for Recorder {
    fn expose(&self, out: &mut Exposition<'_>) -> Result<(), Gone> {
        let (counts, waiting) = {
            let queue = self.shared.queue.lock();
            (queue.counts(), u64::try_from(queue.len()).unwrap_or(u64::MAX))
        };
        let total = PUBLISHED.name.trim_end_matches("_total");
        out.family(total, Type::Counter, PUBLISHED.help);
        let (taken, refused) = (counts.taken, counts.refused);
        for (result, count) in
            [("published", taken), ("refused", refused), ("dropped", counts.dropped)]
        {
            let mut labels = LabelText::default();
            labels.push("result", result);
            out.sample(total, "_total", &labels, Number::Count(count));
        }
        out.family(WAITING.name, Type::Gauge, WAITING.help);
        out.sample(WAITING.name, "", &LabelText::default(), Number::Count(waiting));
        out.rest()
    }
}

/// A pod as events need it.
pub(crate) fn pod(reference: &PodRef) -> wire::Pod {
    wire::Pod {
        metadata: kube::core::ObjectMeta {
            name: Some(reference.name.to_string()),
            namespace: Some(reference.namespace.to_string()),
            uid: Some(reference.uid.to_string()),
            ..Default::default()
        },
        ..wire::Pod::default()
    }
}

#[cfg(test)]
mod tests;
