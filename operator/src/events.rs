//! Kubernetes events, published without repeating themselves.
//!
//! [`Recorder::publish`] never waits and never fails: an event that was said a short while ago is dropped, the others go through a bounded channel to
//! one task ([`Publisher::run`]) that writes them. Losing an event is always better than delaying a decision, so a full channel drops too.

pub mod reason;

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Event as KubeEvent, EventSource, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::api::PostParams;
use kube::{Api, Client, Resource};
use parking_lot::Mutex;
use tokio::sync::mpsc;

pub use self::reason::Reason;
use crate::clock::Clock;

/// How long an event is not repeated, unless it says otherwise.
pub const DEFAULT_WINDOW: SignedDuration = SignedDuration::from_mins(2);

/// At 100 pods per event reason and pass this holds ten passes of the provisioner while the API server is slow.
const CHANNEL_SIZE: usize = 1024;

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
        }
    }

    /// Makes the event differ from others of its reason and object by `value` too. The message is never part of that: a changed message is still the
    /// same event.
    #[must_use]
    pub fn distinct_by(mut self, value: impl Into<String>) -> Self {
        self.dedupe.push(value.into());
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

    /// Its reason.
    pub fn reason(&self) -> Reason {
        self.reason
    }

    /// Its message.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Its object.
    pub fn regarding(&self) -> &ObjectReference {
        &self.regarding
    }

    /// The name of its object.
    pub fn object_name(&self) -> &str {
        self.regarding.name.as_deref().unwrap_or_default()
    }

    fn key(&self) -> String {
        format!("{}-{}", self.reason.as_str().to_lowercase(), self.dedupe.join("-"))
    }
}

/// Publishes Kubernetes events; clones share their memory of what was said.
#[derive(Clone, Debug)]
pub struct Recorder {
    clock: Clock,
    said: Arc<Mutex<Said>>,
    sender: mpsc::Sender<Event>,
}

/// What was said when.
#[derive(Debug, Default)]
struct Said {
    /// Until when the event with this key is not repeated.
    until: BTreeMap<String, Timestamp>,
    /// Tokens left per reason, and when they were counted.
    buckets: BTreeMap<Reason, (f64, Timestamp)>,
    /// When `until` was last swept.
    swept: Option<Timestamp>,
}

impl Recorder {
    /// A recorder, and the publisher that somebody has to run.
    pub fn new(clock: Clock) -> (Self, Publisher) {
        let (sender, receiver) = mpsc::channel(CHANNEL_SIZE);
        let said = Arc::new(Mutex::new(Said::default()));
        (Self { clock, said, sender }, Publisher { clock, receiver, count: 0 })
    }

    /// Says it, unless it was said within its window or there is too much to say.
    pub fn publish(&self, event: Event) {
        let now = self.clock.now();
        if !self.said.lock().admit(&event, now) {
            return;
        }
        if let Err(error) = self.sender.try_send(event) {
            tracing::debug!(%error, "dropped an event");
        }
    }
}

impl Said {
    fn admit(&mut self, event: &Event, now: Timestamp) -> bool {
        self.sweep(now);
        let key = event.key();
        if self.until.get(&key).is_some_and(|&until| now < until) {
            return false;
        }
        // Upstream's order: only what is not a repetition costs a token, and is remembered even when there is none left.
        let until = now.checked_add(event.window).unwrap_or(Timestamp::MAX);
        self.until.insert(key, until);
        let Some(Rate { per_second, burst }) = event.rate else {
            return true;
        };
        let (tokens, counted) = self.buckets.entry(event.reason).or_insert((burst, now));
        let elapsed = now.duration_since(*counted).as_secs_f64().max(0.0);
        *tokens = (*tokens + elapsed * per_second).min(burst);
        *counted = now;
        if *tokens < 1.0 {
            return false;
        }
        *tokens -= 1.0;
        true
    }

    fn sweep(&mut self, now: Timestamp) {
        let due = self
            .swept
            .is_none_or(|swept| now.duration_since(swept) > SignedDuration::from_secs(10));
        if due {
            self.until.retain(|_, until| now < *until);
            self.swept = Some(now);
        }
    }
}

/// Writes what [`Recorder`]s say.
#[derive(Debug)]
pub struct Publisher {
    clock: Clock,
    receiver: mpsc::Receiver<Event>,
    count: u64,
}

impl Publisher {
    /// Writes events until all recorders are gone. `instance` is the operator's pod.
    pub async fn run(mut self, client: Client, instance: String) {
        while let Some(event) = self.receiver.recv().await {
            let namespace = event.regarding.namespace.clone().unwrap_or_else(|| "default".into());
            let object = self.object(&event, &namespace, &instance);
            let api: Api<KubeEvent> = Api::namespaced(client.clone(), &namespace);
            if let Err(error) = api.create(&PostParams::default(), &object).await {
                tracing::debug!(
                    error = %crate::logging::chain(&error),
                    "failed to publish an event"
                );
            }
        }
    }

    /// The next event, without writing it: for tests, and for those who want events elsewhere.
    pub fn try_next(&mut self) -> Option<Event> {
        self.receiver.try_recv().ok()
    }

    fn object(&mut self, event: &Event, namespace: &str, instance: &str) -> KubeEvent {
        let now = self.clock.now();
        // Two events about one object within a nanosecond, or the operator restarting within one, would clash: the count keeps the former apart.
        self.count += 1;
        let suffix = now.as_nanosecond().wrapping_add(i128::from(self.count));
        let event_type = match event.kind {
            EventType::Normal => "Normal",
            EventType::Warning => "Warning",
        };
        KubeEvent {
            metadata: ObjectMeta {
                name: Some(format!("{}.{suffix:x}", event.object_name())),
                namespace: Some(namespace.to_owned()),
                ..ObjectMeta::default()
            },
            involved_object: event.regarding.clone(),
            reason: Some(event.reason.as_str().to_owned()),
            message: Some(truncate(&event.message, 1024)),
            type_: Some(event_type.to_owned()),
            source: Some(EventSource { component: Some(COMPONENT.to_owned()), host: None }),
            reporting_component: Some(COMPONENT.to_owned()),
            reporting_instance: Some(instance.to_owned()),
            first_timestamp: Some(Time(now)),
            last_timestamp: Some(Time(now)),
            count: Some(1),
            ..KubeEvent::default()
        }
    }
}

/// At most `limit` bytes of `text`, cut at a character, the last three being dots when something was cut.
pub fn truncate(text: &str, limit: usize) -> String {
    if text.len() <= limit {
        return text.to_owned();
    }
    let mut end = limit.saturating_sub(3);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}...", &text[..end])
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::Node;

    fn node(name: &str) -> Node {
        let metadata = ObjectMeta {
            name: Some(name.to_owned()),
            uid: Some(format!("uid-{name}")),
            ..ObjectMeta::default()
        };
        Node { metadata, ..Node::default() }
    }

    fn published(publisher: &mut Publisher) -> Vec<String> {
        std::iter::from_fn(|| publisher.try_next()).map(|event| event.message).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn says_the_same_about_the_same_object_once_per_window_even_in_other_words() {
        let (recorder, mut publisher) = Recorder::new(Clock::anchored(Timestamp::UNIX_EPOCH));
        recorder.publish(Event::warning(&node("a"), Reason::FailedDraining, "1"));
        recorder.publish(Event::warning(&node("a"), Reason::FailedDraining, "2"));
        recorder.publish(Event::warning(&node("b"), Reason::FailedDraining, "3"));
        recorder.publish(Event::normal(&node("a"), Reason::Evicted, "4"));
        assert_eq!(published(&mut publisher), ["1", "3", "4"]);
        tokio::time::advance(std::time::Duration::from_secs(121)).await;
        recorder.publish(Event::warning(&node("a"), Reason::FailedDraining, "5"));
        assert_eq!(published(&mut publisher), ["5"]);
    }

    #[tokio::test(start_paused = true)]
    async fn own_windows_and_distinguishing_values_are_respected() {
        let (recorder, mut publisher) = Recorder::new(Clock::anchored(Timestamp::UNIX_EPOCH));
        let event = |message| {
            Event::normal(&node("a"), Reason::Unconsolidatable, message)
                .within(SignedDuration::from_mins(15))
        };
        recorder.publish(event("1"));
        recorder.publish(event("2").distinct_by("other"));
        tokio::time::advance(std::time::Duration::from_secs(14 * 60)).await;
        recorder.publish(event("3"));
        assert_eq!(published(&mut publisher), ["1", "2"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_rate_limit_is_shared_by_all_objects_of_a_reason() {
        let (recorder, mut publisher) = Recorder::new(Clock::anchored(Timestamp::UNIX_EPOCH));
        for i in 0..30 {
            let event = Event::normal(&node(&format!("n{i}")), Reason::Nominated, format!("{i}"));
            recorder.publish(event.limited(5.0, 10.0));
        }
        assert_eq!(published(&mut publisher).len(), 10);
        tokio::time::advance(std::time::Duration::from_secs(1)).await;
        for i in 30..60 {
            let event = Event::normal(&node(&format!("n{i}")), Reason::Nominated, format!("{i}"));
            recorder.publish(event.limited(5.0, 10.0));
        }
        assert_eq!(published(&mut publisher).len(), 5);
    }

    #[test]
    fn truncation_keeps_characters_whole_and_says_that_something_is_missing() {
        assert_eq!(truncate("short", 10), "short");
        assert_eq!(truncate("0123456789abc", 10), "0123456...");
        assert_eq!(truncate("ääääääää", 10), "äää...");
    }
}
