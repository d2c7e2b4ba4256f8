//! kube's watcher, on a server that does the same, says what should be told.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use kube::runtime::watcher::Config;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::*;
use crate::testing::apiserver::{ApiServer, refused};
use crate::watch::wire::Node;

fn node(name: &str, label: &str) -> Value {
    json!({"metadata": {"name": name, "labels": {"label": label}}})
}

/// A server with two Nodes, which refuses the next request with a code that is not zero.
fn server() -> (ApiServer, Arc<AtomicU16>) {
    let code = Arc::new(AtomicU16::new(0));
    let next = Arc::clone(&code);
    let server = ApiServer::unless(move |_| {
        let code = next.swap(0, Ordering::Relaxed);
        (code != 0).then(|| refused(code, "Refused"))
    });
    for name in ["a", "b"] {
        server.put::<Node>(node(name, "first"));
    }
    (server, code)
}

/// What is told until nothing comes any more.
async fn told(
    events: &mut (impl Stream<Item = watcher::Result<Event<Guarded<Node>>>> + Unpin),
) -> Vec<String> {
    let object = |object: Guarded<Node>| {
        let object = object.into_result().expect("it parses");
        let label = object.metadata.labels.as_ref().and_then(|labels| labels.get("label"));
        format!("{} {}", object.name(), label.cloned().unwrap_or_default())
    };
    let mut told = Vec::new();
    while let Ok(Some(event)) = timeout(Duration::from_secs(1), events.next()).await {
        told.push(match event {
            Ok(Event::Init) => "list".to_owned(),
            Ok(Event::InitApply(it)) => format!("listed {}", object(it)),
            Ok(Event::InitDone) => "done".to_owned(),
            Ok(Event::Apply(it)) => format!("applied {}", object(it)),
            Ok(Event::Delete(it)) => format!("deleted {}", object(it)),
            Err(error) => {
                let text = format!("{error:?}");
                text.split_once('(').map_or(text.clone(), |(kind, _)| kind.to_owned())
            }
        });
    }
    told
}

/// All that is told while things happen to the server, and what it was asked for that.
async fn story<S>(events: impl FnOnce(Client) -> S) -> (Vec<Vec<String>>, Vec<String>)
where
    S: Stream<Item = watcher::Result<Event<Guarded<Node>>>>,
{
    let (server, refuse) = server();
    refuse.store(503, Ordering::Relaxed);
    let mut events = Box::pin(events(server.client()));
    let mut story = vec![told(&mut events).await];
    server.put::<Node>(node("c", "first"));
    server.put::<Node>(node("a", "second"));
    server.take::<Node>("b");
    story.push(told(&mut events).await);
    // The connection is silent for so long that it must be dead.
    tokio::time::sleep(Duration::from_mins(10)).await;
    refuse.store(500, Ordering::Relaxed);
    story.push(told(&mut events).await);
    server.put::<Node>(node("d", "first"));
    story.push(told(&mut events).await);
    server.compact();
    story.push(told(&mut events).await);
    server.put::<Node>(node("e", "first"));
    story.push(told(&mut events).await);
    let asked = server.requests();
    (story, asked.iter().map(|it| format!("{it} {}", it.query)).collect())
}

#[tokio::test(start_paused = true)]
async fn it_tells_and_asks_what_kubes_watcher_does() {
    let (expected, asked) =
        story(|client| watcher::watcher(Api::<Guarded<Node>>::all(client), Config::default()))
            .await;
    assert_eq!(
        expected[0],
        ["list", "InitialListFailed", "list", "listed a first", "listed b first", "done"]
    );
    assert_eq!(expected[1], ["applied c first", "applied a second", "deleted b first"]);
    let (ours, we_asked) = story(events::<Node>).await;
    assert_eq!(ours, expected);
    assert_eq!(we_asked, asked);
}

#[tokio::test(start_paused = true)]
async fn a_list_is_read_page_by_page() {
    let server = ApiServer::answering(|request| {
        let page = |name: &str, token: &str| {
            let metadata = json!({"resourceVersion": "7", "continue": token});
            json!({"metadata": metadata, "items": [node(name, "first")]})
        };
        let second = request.query.contains("continue=more");
        (200, if second { page("b", "") } else { page("a", "more") })
    });
    let mut events = Box::pin(events::<Node>(server.client()));
    let told: Vec<_> = events.by_ref().take(4).map(|event| format!("{event:?}")).collect().await;
    assert!(told[1].contains("\"a\"") && told[2].contains("\"b\""), "{told:?}");
    assert_eq!(told[3], "Ok(InitDone)");
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_is_refused_because_its_version_is_too_old_lists_again() {
    let (server, refuse) = server();
    let mut events = Box::pin(events::<Node>(server.client()));
    let listed: Vec<_> = events.by_ref().take(4).collect().await;
    assert!(matches!(listed[3], Ok(Event::InitDone)), "{listed:?}");
    refuse.store(410, Ordering::Relaxed);
    let expected = ["WatchStartFailed", "list", "listed a first", "listed b first", "done"];
    assert_eq!(told(&mut events).await, expected);
}
