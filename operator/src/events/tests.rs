use std::collections::BTreeMap;
use std::time::Duration;

use axum::Router;
use axum::extract::State as Shared;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use axum::routing::post;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event as KubeEvent, Node};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Client;
use serde_json::json;
use tokio::task::JoinHandle;
use tokio::time::{Instant, advance, sleep};
use tokio_util::sync::CancellationToken;

use super::publisher::{BURST, PER_SECOND};
use super::queue::Outcome;
use super::*;
use crate::testing;

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

fn recorder_and_publisher() -> (Recorder, Publisher) {
    Recorder::new(Clock::anchored(Timestamp::UNIX_EPOCH))
}

/// The events of an API server: when each came, in order, and what is answered instead of taking
/// it.
#[derive(Clone, Default)]
struct Events {
    came: Arc<Mutex<Vec<(Instant, KubeEvent)>>>,
    answer: Arc<Mutex<Option<(u16, &'static str)>>>,
    latency: Duration,
}

impl Events {
    fn client(&self) -> Client {
        async fn create(Shared(events): Shared<Events>, body: String) -> impl IntoResponse {
            sleep(events.latency).await;
            if let Some((code, reason)) = *events.answer.lock() {
                let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
                    "message": "no", "reason": reason, "code": code});
                return (StatusCode::from_u16(code).unwrap(), status.to_string());
            }
            let event = serde_json::from_str(&body).unwrap();
            events.came.lock().push((Instant::now(), event));
            (StatusCode::CREATED, body)
        }
        let router = Router::new().route("/api/v1/namespaces/{namespace}/events", post(create));
        Client::new(router.with_state(self.clone()), "default")
    }

    fn answer(&self, answer: Option<(u16, &'static str)>) {
        *self.answer.lock() = answer;
    }

    fn messages(&self) -> Vec<String> {
        let came = self.came.lock();
        came.iter().map(|(_, event)| event.message.clone().unwrap_or_default()).collect()
    }

    /// The largest number of events that came within any second.
    fn most_in_a_second(&self) -> usize {
        let came = self.came.lock();
        let within = |first: usize| {
            let end = came[first].0 + Duration::from_secs(1);
            came[first..].iter().take_while(|(at, _)| *at < end).count()
        };
        (0..came.len()).map(within).max().unwrap_or_default()
    }
}

fn run(publisher: Publisher, events: &Events) -> (JoinHandle<()>, CancellationToken) {
    let stop = CancellationToken::new();
    let task = publisher.run(events.client(), "tenon-0".to_owned(), stop.clone());
    (testing::spawn(task), stop)
}

#[tokio::test(start_paused = true)]
async fn says_the_same_about_the_same_object_once_per_window_even_in_other_words() {
    let (recorder, mut publisher) = recorder_and_publisher();
    recorder.publish(Event::warning(&node("a"), Reason::FailedDraining, "1"));
    assert_eq!(published(&mut publisher), ["1"]);
    recorder.publish(Event::warning(&node("a"), Reason::FailedDraining, "2"));
    recorder.publish(Event::warning(&node("b"), Reason::FailedDraining, "3"));
    recorder.publish(Event::normal(&node("a"), Reason::Unconsolidatable, "4"));
    assert_eq!(published(&mut publisher), ["3", "4"]);
    advance(Duration::from_secs(121)).await;
    recorder.publish(Event::warning(&node("a"), Reason::FailedDraining, "5"));
    assert_eq!(published(&mut publisher), ["5"]);
}

#[tokio::test(start_paused = true)]
async fn own_windows_and_distinguishing_values_are_respected() {
    let (recorder, mut publisher) = recorder_and_publisher();
    let event = |message| {
        Event::normal(&node("a"), Reason::Unconsolidatable, message)
            .within(SignedDuration::from_mins(15))
    };
    recorder.publish(event("1"));
    recorder.publish(event("2").distinct_by("other"));
    assert_eq!(published(&mut publisher), ["1", "2"]);
    advance(Duration::from_mins(14)).await;
    recorder.publish(event("3"));
    assert_eq!(published(&mut publisher), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_rate_limit_is_shared_by_all_objects_of_a_reason_and_the_rest_is_said_later() {
    let (recorder, mut publisher) = recorder_and_publisher();
    for i in 0..30 {
        let event = Event::normal(&node(&format!("n{i}")), Reason::Nominated, format!("{i}"));
        recorder.publish(event.limited(5.0, 10.0));
    }
    assert_eq!(published(&mut publisher).len(), 10);
    advance(Duration::from_secs(1)).await;
    assert_eq!(published(&mut publisher), ["10", "11", "12", "13", "14"]);
    // What waits for longer than its window is worth nothing any more.
    advance(Duration::from_mins(3)).await;
    assert_eq!(published(&mut publisher), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn of_what_waits_the_newest_form_is_said_in_the_turn_of_the_oldest() {
    let (recorder, mut publisher) = recorder_and_publisher();
    for (name, message) in [("a", "1"), ("b", "2"), ("a", "3")] {
        recorder.publish(Event::normal(&node(name), Reason::DisruptionBlocked, message));
    }
    assert_eq!(published(&mut publisher), ["3", "2"]);
}

#[tokio::test(start_paused = true)]
async fn of_several_obstacles_of_a_node_only_the_one_that_holds_now_waits() {
    let (recorder, mut publisher) = recorder_and_publisher();
    let blocked = |why: &str| {
        let event = Event::normal(&node("a"), Reason::DisruptionBlocked, why);
        recorder.publish(event.distinct_by(why).superseding());
    };
    blocked("a pod");
    blocked("a budget");
    assert_eq!(published(&mut publisher), ["a budget"]);
    blocked("a budget");
    blocked("a pod");
    assert_eq!(published(&mut publisher), ["a pod"]);
    // It has been said, and what came in between is not true any more.
    blocked("a volume");
    blocked("a pod");
    assert_eq!(published(&mut publisher), Vec::<String>::new());
}

#[test]
fn an_obstacle_that_comes_while_another_is_on_its_way_is_said_after_it() {
    let now = Timestamp::UNIX_EPOCH;
    let mut queue = Queue::new(Limits { waiting: 2, attempts: 2 });
    let blocked = |why: &str| {
        let event = Event::normal(&node("a"), Reason::DisruptionBlocked, why.to_owned());
        event.distinct_by(why).superseding()
    };
    queue.push(blocked("a pod"), now);
    let (slot, first) = queue.pop(now).unwrap();
    queue.push(blocked("a budget"), now);
    assert!(queue.pop(now).is_none(), "one of them is on its way");
    queue.settle(&slot, first, Outcome::Taken, now);
    assert_eq!(queue.pop(now).unwrap().1.event.message, "a budget");
}

#[tokio::test(start_paused = true)]
async fn what_was_done_is_said_first_and_starves_nothing() {
    let (recorder, mut publisher) = recorder_and_publisher();
    for i in 0..6 {
        recorder.publish(Event::normal(&node(&format!("{i}")), Reason::DisruptionBlocked, "is"));
        recorder.publish(Event::normal(&node(&format!("{i}")), Reason::Evicted, "was"));
    }
    let expected = "was was was is was was was is is is is is";
    assert_eq!(published(&mut publisher).join(" "), expected);
}

#[test]
fn a_full_queue_drops_what_will_be_said_again_and_does_not_take_it_for_said() {
    let now = Timestamp::UNIX_EPOCH;
    let mut queue = Queue::new(Limits { waiting: 2, attempts: 1 });
    let blocked =
        |name: &str| Event::normal(&node(name), Reason::DisruptionBlocked, name.to_owned());
    queue.push(blocked("a"), now);
    queue.push(blocked("b"), now);
    queue.push(blocked("c"), now);
    queue.push(Event::normal(&node("d"), Reason::Evicted, "d"), now);
    queue.push(Event::normal(&node("e"), Reason::Evicted, "e"), now);
    queue.push(Event::normal(&node("f"), Reason::Evicted, "f"), now);
    let mut said = Vec::new();
    while let Some((slot, waiting)) = queue.pop(now) {
        said.push(waiting.event.message.clone());
        queue.settle(&slot, waiting, Outcome::Taken, now);
    }
    assert_eq!(said, ["d", "e"]);
    assert_eq!(queue.counts().dropped, 4);
    queue.push(blocked("a"), now);
    assert_eq!(queue.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn ten_thousand_obstacles_are_all_said_in_the_end_in_their_newest_form_and_no_faster_than_allowed()
 {
    const NODES: usize = 10_000;
    let (recorder, publisher) = recorder_and_publisher();
    let events = Events { latency: Duration::from_millis(5), ..Events::default() };
    let (task, stop) = run(publisher, &events);
    let blocked = |i: usize, why: &str| {
        Event::normal(&node(&format!("n{i}")), Reason::DisruptionBlocked, why.to_owned())
    };
    for i in 0..NODES {
        recorder.publish(blocked(i, "Pod has a PodDisruptionBudget"));
    }
    sleep(Duration::from_secs(10)).await;
    for i in 0..NODES {
        recorder.publish(blocked(i, "Node is nominated"));
    }
    let began = Instant::now();
    while events.came.lock().len() < NODES {
        sleep(Duration::from_secs(1)).await;
        assert!(began.elapsed() < Duration::from_mins(5), "{} of them", events.came.lock().len());
    }
    let mut newest: BTreeMap<String, usize> = BTreeMap::new();
    for (_, event) in &*events.came.lock() {
        *newest.entry(event.message.clone().unwrap()).or_default() += 1;
    }
    let early = newest["Pod has a PodDisruptionBudget"];
    // Those of the first ten seconds: what is allowed at once, and 50 per second.
    assert!((550..=650).contains(&early), "{early}");
    assert_eq!(newest["Node is nominated"], NODES - early);
    let most = events.most_in_a_second();
    assert!(most <= usize::try_from(BURST + PER_SECOND + 1).unwrap(), "{most}");
    stop.cancel();
    task.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn events_are_written_slowly_while_somebody_asks_for_quiet_and_then_as_ever() {
    let (recorder, publisher) = recorder_and_publisher();
    let events = Events::default();
    let (task, stop) = run(publisher, &events);
    let hush = recorder.hush();
    for i in 0..1000 {
        recorder.publish(Event::normal(&node(&format!("{i}")), Reason::DisruptionBlocked, "1"));
    }
    sleep(Duration::from_secs(4)).await;
    let written = events.came.lock().len();
    assert!((15..=25).contains(&written), "{written}");
    drop(hush);
    sleep(Duration::from_secs(10)).await;
    let written = events.came.lock().len();
    assert!((480..=560).contains(&written), "{written}");
    // Whoever stops says what was done at once.
    let _hush = recorder.hush();
    recorder.publish(Event::normal(&node("last"), Reason::Evicted, "done"));
    stop.cancel();
    task.await.unwrap();
    assert!(events.came.lock().iter().any(|(_, event)| event.message.as_deref() == Some("done")));
}

#[tokio::test(start_paused = true)]
async fn an_api_server_that_fails_is_given_time_and_told_everything_once_when_it_is_back() {
    let (recorder, publisher) = recorder_and_publisher();
    let events = Events::default();
    events.answer(Some((503, "ServiceUnavailable")));
    let (task, stop) = run(publisher, &events);
    for i in 0..200 {
        recorder.publish(Event::normal(&node(&format!("{i}")), Reason::DisruptionBlocked, "1"));
    }
    sleep(Duration::from_mins(2)).await;
    for i in 0..200 {
        recorder.publish(Event::normal(&node(&format!("{i}")), Reason::DisruptionBlocked, "2"));
    }
    events.answer(None);
    sleep(Duration::from_mins(1)).await;
    assert_eq!(events.messages(), vec!["2"; 200]);
    stop.cancel();
    task.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn what_the_api_server_refuses_is_not_tried_again_within_its_window() {
    let (recorder, publisher) = recorder_and_publisher();
    let events = Events::default();
    events.answer(Some((403, "Forbidden")));
    let (task, stop) = run(publisher, &events);
    recorder.publish(Event::normal(&node("a"), Reason::DisruptionBlocked, "1"));
    sleep(Duration::from_secs(1)).await;
    events.answer(None);
    recorder.publish(Event::normal(&node("a"), Reason::DisruptionBlocked, "2"));
    recorder.publish(Event::normal(&node("b"), Reason::DisruptionBlocked, "3"));
    sleep(Duration::from_secs(1)).await;
    assert_eq!(events.messages(), ["3"]);
    sleep(Duration::from_mins(2)).await;
    recorder.publish(Event::normal(&node("a"), Reason::DisruptionBlocked, "4"));
    sleep(Duration::from_secs(1)).await;
    assert_eq!(events.messages(), ["3", "4"]);
    stop.cancel();
    task.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_arrived_unnoticed_is_not_repeated_as_another_object() {
    let (recorder, publisher) = recorder_and_publisher();
    let events = Events::default();
    events.answer(Some((409, "AlreadyExists")));
    let (task, stop) = run(publisher, &events);
    recorder.publish(Event::normal(&node("a"), Reason::Evicted, "1"));
    sleep(Duration::from_secs(1)).await;
    events.answer(None);
    sleep(Duration::from_mins(1)).await;
    assert_eq!(events.messages(), Vec::<String>::new());
    stop.cancel();
    task.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn what_was_done_is_told_before_the_operator_ends_and_an_api_server_that_hangs_does_not_hold_it_up()
 {
    let (recorder, publisher) = recorder_and_publisher();
    let events = Events { latency: Duration::from_millis(20), ..Events::default() };
    let (task, stop) = run(publisher, &events);
    for i in 0..1000 {
        recorder.publish(Event::normal(&node(&format!("{i}")), Reason::DisruptionBlocked, "is"));
    }
    sleep(Duration::from_secs(5)).await;
    for i in 0..90 {
        recorder.publish(Event::normal(&node(&format!("{i}")), Reason::Evicted, "was"));
    }
    stop.cancel();
    task.await.unwrap();
    let told = events.messages().iter().filter(|message| *message == "was").count();
    assert_eq!(told, 90);

    let (recorder, publisher) = recorder_and_publisher();
    let hung = Events { latency: Duration::from_hours(1), ..Events::default() };
    let (task, stop) = run(publisher, &hung);
    recorder.publish(Event::normal(&node("a"), Reason::Evicted, "was"));
    sleep(Duration::from_secs(1)).await;
    let began = Instant::now();
    stop.cancel();
    task.await.unwrap();
    assert_eq!(began.elapsed(), Duration::from_secs(2));
}

#[tokio::test(start_paused = true)]
async fn an_event_carries_the_time_when_it_came_to_be_true_and_a_name_that_the_api_server_takes() {
    let (recorder, publisher) = recorder_and_publisher();
    let events = Events::default();
    let name = "n".repeat(253);
    recorder.publish(Event::normal(&node(&name), Reason::Evicted, "1"));
    advance(Duration::from_secs(7)).await;
    let (task, stop) = run(publisher, &events);
    sleep(Duration::from_secs(1)).await;
    let came = events.came.lock()[0].1.clone();
    assert_eq!(came.last_timestamp.unwrap().0, Timestamp::UNIX_EPOCH);
    assert!(came.metadata.name.unwrap().len() <= 253);
    stop.cancel();
    task.await.unwrap();
}

#[test]
fn truncation_keeps_characters_whole_and_says_that_something_is_missing() {
    assert_eq!(truncate("short", 10), "short");
    assert_eq!(truncate("0123456789abc", 10), "0123456...");
    assert_eq!(truncate("ääääääää", 10), "äää...");
}

#[tokio::test(start_paused = true)]
async fn writes_that_are_under_way_are_a_turn_that_has_to_end() {
    let (recorder, publisher) = recorder_and_publisher();
    let events = Events { latency: Duration::from_secs(5), ..Events::default() };
    let liveness = crate::liveness::Liveness::default();
    let observer = crate::tasks::Observer {
        metrics: crate::metrics::Metrics::new(),
        liveness: liveness.clone(),
    };
    let stop = CancellationToken::new();
    let mut tasks = crate::tasks::Tasks::new(stop.clone()).observed(observer);
    tasks.spawn("events", publisher.run(events.client(), "pod".to_owned(), stop));
    sleep(Duration::from_secs(60)).await;
    assert!(liveness.unfinished().is_empty(), "nothing to write");
    recorder.publish(Event::normal(&node("a"), Reason::Nominated, "hello"));
    sleep(Duration::from_secs(3)).await;
    assert!(liveness.unfinished().contains_key("events"));
    sleep(Duration::from_secs(3)).await;
    assert!(liveness.unfinished().is_empty(), "it was written");
}
