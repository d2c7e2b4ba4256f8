//! Watches of kinds whose lists come in the Protobuf encoding: in a large cluster, pods and Nodes
//! are most of what an operator reads when it starts.
//!
//! kube's watcher lists in JSON. What happens after the list, and after each kind of error, is the
//! same here: a version that is too old means that everything is listed again, and any other error
//! that the watch goes on from the last version that is known.

use std::pin::Pin;
use std::time::Duration;
use std::vec::IntoIter;

use futures::{Stream, StreamExt as _, stream};
use kube::api::{ListParams, WatchEvent, WatchParams};
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client, ResourceExt as _};
use tenon_state::guarded::Guarded;
use tenon_state::protobuf::Encoded;
use tokio::time::timeout;

/// The code of an error that means that a version is too old.
const GONE: u16 = 410;

/// Objects per request.
const PAGE: u32 = 500;

/// The API server ends a watch sooner than that; a connection that is silent for longer is dead.
const SILENT: Duration = Duration::from_secs(300);

/// What a watch sends.
type Events<K> = Pin<Box<dyn Stream<Item = kube::Result<WatchEvent<Guarded<K>>>> + Send>>;

/// Where a watch is.
enum Watch<K> {
    /// A list begins.
    Begin,
    /// Objects of a page are handed on, then the next page is read.
    Listing { objects: IntoIter<Guarded<K>>, next: Option<ListParams>, version: String },
    /// The watch is opened at a version.
    Resume { version: String },
    /// The watch is open. The version is the last one that is known.
    Open { version: String, events: Events<K> },
}

/// All objects of a kind and what becomes of them, as kube's [`watcher::watcher`] tells it, without
/// an end.
pub(super) fn events<K: Encoded>(
    client: Client,
) -> impl Stream<Item = watcher::Result<Event<Guarded<K>>>> {
    stream::unfold(Watch::Begin, move |mut watch| {
        let client = client.clone();
        async move {
            loop {
                let (event, next) = step(&client, watch).await;
                if let Some(event) = event {
                    return Some((event, next));
                }
                watch = next;
            }
        }
    })
}

/// What is to be told, if there is anything, and what follows.
type Step<K> = (Option<watcher::Result<Event<Guarded<K>>>>, Watch<K>);

async fn step<K: Encoded>(client: &Client, watch: Watch<K>) -> Step<K> {
    match watch {
        Watch::Begin => {
            let next = Some(ListParams::default().limit(PAGE));
            let (objects, version) = (Vec::new().into_iter(), String::new());
            (Some(Ok(Event::Init)), Watch::Listing { objects, next, version })
        }
        Watch::Listing { mut objects, next, version } => {
            if let Some(object) = objects.next() {
                let event = Event::InitApply(object);
                return (Some(Ok(event)), Watch::Listing { objects, next, version });
            }
            let Some(params) = next else {
                return (Some(Ok(Event::InitDone)), Watch::Resume { version });
            };
            let page = match tenon_simulate::list_page::<K>(client, &params).await {
                Ok(page) => page,
                Err(error) => {
                    return (Some(Err(watcher::Error::InitialListFailed(error))), Watch::Begin);
                }
            };
            let next = page.continue_token.map(|token| params.continue_token(&token));
            match page.resource_version {
                None if next.is_none() => {
                    (Some(Err(watcher::Error::NoResourceVersion)), Watch::Begin)
                }
                version => {
                    let objects = page.items.into_iter();
                    (None, Watch::Listing { objects, next, version: version.unwrap_or_default() })
                }
            }
        }
        Watch::Resume { version } => {
            let api = Api::<Guarded<K>>::all(client.clone());
            match api.watch(&WatchParams::default(), &version).await {
                Ok(events) => (None, Watch::Open { version, events: events.boxed() }),
                Err(error) => {
                    let expired = matches!(&error, kube::Error::Api(status) if status.code == GONE);
                    let next = if expired { Watch::Begin } else { Watch::Resume { version } };
                    (Some(Err(watcher::Error::WatchStartFailed(error))), next)
                }
            }
        }
        Watch::Open { version, mut events } => match timeout(SILENT, events.next()).await {
            Err(_) => (None, Watch::Resume { version }),
            Ok(event) => sent(event, version, events),
        },
    }
}

/// What a watch that is open has sent; `None` is its end.
fn sent<K: Encoded>(
    event: Option<kube::Result<WatchEvent<Guarded<K>>>>,
    version: String,
    events: Events<K>,
) -> Step<K> {
    match event {
        None => (None, Watch::Resume { version }),
        Some(Ok(WatchEvent::Bookmark(bookmark))) => {
            (None, Watch::Open { version: bookmark.metadata.resource_version, events })
        }
        Some(Ok(WatchEvent::Added(object) | WatchEvent::Modified(object))) => {
            changed(object, events, Event::Apply)
        }
        Some(Ok(WatchEvent::Deleted(object))) => changed(object, events, Event::Delete),
        Some(Ok(WatchEvent::Error(status))) => {
            let expired = status.code == GONE;
            let next = if expired { Watch::Begin } else { Watch::Open { version, events } };
            (Some(Err(watcher::Error::WatchError(status.boxed()))), next)
        }
        Some(Err(error)) => {
            (Some(Err(watcher::Error::WatchFailed(error))), Watch::Open { version, events })
        }
    }
}

fn changed<K: Encoded>(
    object: Guarded<K>,
    events: Events<K>,
    event: fn(Guarded<K>) -> Event<Guarded<K>>,
) -> Step<K> {
    match object.resource_version().filter(|version| !version.is_empty()) {
        None => (Some(Err(watcher::Error::NoResourceVersion)), Watch::Begin),
        Some(version) => (Some(Ok(event(object))), Watch::Open { version, events }),
    }
}

#[cfg(test)]
mod tests;
