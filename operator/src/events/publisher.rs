//! Writes events to the API server: several at a time, no more per second than it is meant to take,
//! and with ever longer pauses while it fails.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Event as KubeEvent, EventSource};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::api::PostParams;
use kube::{Api, Client};
use tokio_util::sync::CancellationToken;

#[cfg(test)]
use super::Event;
use super::queue::{Outcome, Slot, Waiting};
use super::{COMPONENT, EventType, MESSAGE, Shared};
use crate::clock::Clock;
use crate::liveness;
use crate::text::truncate;
use crate::work_queue::Backoff;

/// Events per second that are written in the long run: 20,000 (a Node and its NodeClaim, 10,000
/// times) take less than seven minutes, and an hour of them, which is how long the API server keeps
/// them, less than 200 MB of etcd.
pub(crate) const PER_SECOND: u32 = 50;

/// Events that may be written at once after a quiet time.
pub(crate) const BURST: u32 = 100;

/// Events per second while somebody has asked for quiet
/// ([`Recorder::hush`](super::Recorder::hush)): nothing starves.
const HUSHED_PER_SECOND: u32 = 5;

/// Writes that are under way at the same time: 50 per second at 300 ms each.
const WRITERS: usize = 16;

/// A write that takes longer has failed.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Pause after a failure; from then on one write is tried at a time until one succeeds.
const BACKOFF: Backoff = Backoff { min: Duration::from_secs(1), max: Duration::from_secs(30) };

/// When the operator stops, what was done is still told, for at most so long: Kubernetes ends the
/// process thirty seconds after SIGTERM, and the controllers may take twenty of them.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// Writes what [`Recorder`](super::Recorder)s say.
#[derive(Debug)]
pub struct Publisher {
    clock: Clock,
    shared: Arc<Shared>,
    pace: Pace,
    /// When a refusal was last logged for everybody to see.
    warned: Option<Timestamp>,
}

/// How fast events are written.
#[derive(Clone, Copy, Debug)]
struct Pace {
    tokens: f64,
    counted: Timestamp,
    /// Failures in a row.
    failures: u32,
    /// Nothing is written before.
    not_before: Timestamp,
}

impl Pace {
    fn new(now: Timestamp) -> Self {
        Self { tokens: f64::from(BURST), counted: now, failures: 0, not_before: now }
    }

    /// How many writes may be under way.
    fn writers(&self) -> usize {
        if self.failures == 0 { WRITERS } else { 1 }
    }

    /// When the next write may begin.
    fn next_at(&mut self, now: Timestamp, hushed: bool) -> Timestamp {
        let (rate, most) = if hushed { (HUSHED_PER_SECOND, 1) } else { (PER_SECOND, BURST) };
        let elapsed = now.duration_since(self.counted).as_secs_f64().max(0.0);
        let tokens = self.tokens + elapsed * f64::from(rate);
        (self.tokens, self.counted) = (tokens.min(f64::from(most)), now);
        let wait = (1.0 - self.tokens).max(0.0) / f64::from(rate);
        let wait = SignedDuration::try_from_secs_f64(wait).unwrap_or(SignedDuration::ZERO);
        now.checked_add(wait).unwrap_or(now).max(self.not_before)
    }

    fn spend(&mut self) {
        self.tokens -= 1.0;
    }

    fn learn(&mut self, outcome: Outcome, now: Timestamp) {
        if outcome != Outcome::Failed {
            self.failures = 0;
            self.not_before = now;
            return;
        }
        // Writes that began before a failure was known, and fail like it, say nothing new.
        if now < self.not_before {
            return;
        }
        self.failures = self.failures.saturating_add(1);
        self.not_before = now.checked_add(BACKOFF.delay(self.failures)).unwrap_or(now);
    }
}

impl Publisher {
    pub(super) fn new(clock: Clock, shared: Arc<Shared>) -> Self {
        Self { clock, shared, pace: Pace::new(clock.now()), warned: None }
    }

    /// Writes events until `stop`; then, for a moment, what must not be lost. `instance` is the
    /// operator's pod.
    pub async fn run(mut self, client: Client, instance: String, stop: CancellationToken) {
        let writer = Writer { client, instance };
        let mut under_way = FuturesUnordered::new();
        let mut end = None;
        // As long as writes are under way one of them has to end now and then.
        let mut turn = None;
        loop {
            let now = self.clock.now();
            if stop.is_cancelled() && end.is_none() {
                end = now.checked_add(LAST_WORDS).ok();
                // How things are is found out by the next leader, too; what was done is not.
                self.shared.queue.lock().keep_deeds();
                self.pace.tokens = f64::from(BURST);
            }
            if end.is_some_and(|end| end <= now) {
                return;
            }
            let mut wake_at = None;
            while under_way.len() < self.pace.writers() {
                let now = self.clock.now();
                let hushed = end.is_none() && self.shared.hushes.load(Ordering::Relaxed) > 0;
                let at = self.pace.next_at(now, hushed);
                if at > now {
                    wake_at = self.shared.queue.lock().next_at(now).map(|next| next.max(at));
                    break;
                }
                let mut queue = self.shared.queue.lock();
                let Some((slot, waiting)) = queue.pop(now) else {
                    wake_at = queue.next_at(now);
                    break;
                };
                self.pace.spend();
                under_way.push(writer.write(slot, self.named(waiting)));
            }
            if end.is_some() && under_way.is_empty() && wake_at.is_none() {
                return;
            }
            let until = [wake_at, end].into_iter().flatten().min();
            if turn.is_none() && !under_way.is_empty() {
                turn = liveness::begin(liveness::PASSING);
            }
            tokio::select! {
                Some(written) = under_way.next(), if !under_way.is_empty() => {
                    turn = None;
                    self.learn(written);
                }
                () = self.shared.changed.notified() => {}
                () = self.clock.sleep_until(until.unwrap_or(now)), if until.is_some() => {}
                () = stop.cancelled(), if end.is_none() => {}
            }
        }
    }

    fn learn(&mut self, Written { slot, waiting, outcome, error }: Written) {
        /// A missing permission concerns all events: it is not told with each.
        const QUIET: SignedDuration = SignedDuration::from_mins(10);
        let now = self.clock.now();
        self.pace.learn(outcome, now);
        if let Some(error) = error {
            let reason = waiting.event.reason.as_str();
            let loud = outcome == Outcome::Refused
                && self.warned.is_none_or(|warned| now.duration_since(warned) >= QUIET);
            if loud {
                self.warned = Some(now);
                tracing::warn!(reason, error, "the API server refuses an event");
            } else {
                tracing::debug!(reason, error, ?outcome, "failed to publish an event");
            }
        }
        self.shared.queue.lock().settle(&slot, waiting, outcome, now);
    }

    /// The next event, as if it had been written.
    #[cfg(test)]
    pub(crate) fn try_next(&mut self) -> Option<Event> {
        let now = self.clock.now();
        let mut queue = self.shared.queue.lock();
        let (slot, waiting) = queue.pop(now)?;
        let event = waiting.event.clone();
        queue.settle(&slot, waiting, Outcome::Taken, now);
        Some(event)
    }

    /// With the name that all attempts to write it use.
    fn named(&self, waiting: Waiting) -> Waiting {
        /// The API server takes names of 253 characters; the rest is for the time.
        const OBJECT: usize = 220;
        if waiting.name.is_some() {
            return waiting;
        }
        // Two events about one object within a nanosecond, or the operator restarting within one,
        // would clash: the count keeps the former apart.
        let count = self.shared.count.fetch_add(1, Ordering::Relaxed);
        let suffix = self.clock.now().as_nanosecond().wrapping_add(i128::from(count));
        let object: String = waiting.event.object_name().chars().take(OBJECT).collect();
        let object = object.trim_end_matches(['.', '-']);
        Waiting { name: Some(format!("{object}.{suffix:x}")), ..waiting }
    }
}

struct Writer {
    client: Client,
    instance: String,
}

/// A write that has ended.
struct Written {
    slot: Slot,
    waiting: Waiting,
    outcome: Outcome,
    error: Option<String>,
}

impl Writer {
    fn write(&self, slot: Slot, waiting: Waiting) -> impl Future<Output = Written> + use<> {
        let namespace = waiting.event.regarding.namespace.clone();
        let namespace = namespace.unwrap_or_else(|| "default".to_owned());
        let object = object(&waiting, &namespace, &self.instance);
        let api: Api<KubeEvent> = Api::namespaced(self.client.clone(), &namespace);
        async move {
            let params = PostParams::default();
            let answer = tokio::time::timeout(TIMEOUT, api.create(&params, &object)).await;
            let (outcome, error) = match answer {
                Ok(Ok(_)) => (Outcome::Taken, None),
                Ok(Err(error)) => (judge(&error), Some(crate::text::chain(&error))),
                Err(_) => (Outcome::Failed, Some("no answer in time".to_owned())),
            };
            Written { slot, waiting, outcome, error }
        }
    }
}

/// What an error means for the event.
fn judge(error: &kube::Error) -> Outcome {
    let kube::Error::Api(status) = error else { return Outcome::Failed };
    match status.code {
        // An earlier attempt arrived after all, its answer did not.
        409 if status.reason == "AlreadyExists" => Outcome::Taken,
        // Unlike others in their range these pass: credentials are renewed, conflicts end, the
        // server gets round to it.
        401 | 408 | 409 | 429 => Outcome::Failed,
        400..500 => Outcome::Refused,
        _ => Outcome::Failed,
    }
}

fn object(waiting: &Waiting, namespace: &str, instance: &str) -> KubeEvent {
    let event = &waiting.event;
    let event_type = match event.kind {
        EventType::Normal => "Normal",
        EventType::Warning => "Warning",
    };
    KubeEvent {
        metadata: ObjectMeta {
            name: waiting.name.clone(),
            namespace: Some(namespace.to_owned()),
            ..ObjectMeta::default()
        },
        involved_object: event.regarding.clone(),
        reason: Some(event.reason.as_str().to_owned()),
        message: Some(truncate(&event.message, MESSAGE)),
        type_: Some(event_type.to_owned()),
        source: Some(EventSource { component: Some(COMPONENT.to_owned()), host: None }),
        reporting_component: Some(COMPONENT.to_owned()),
        reporting_instance: Some(instance.to_owned()),
        // When it came to be true, not when its turn came.
        first_timestamp: Some(Time(waiting.since)),
        last_timestamp: Some(Time(waiting.since)),
        count: Some(1),
        ..KubeEvent::default()
    }
}
