//! The objects of one kind as the API server has them, kept by a watch.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;

use futures::StreamExt as _;
use kube::api::Api;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Resource, ResourceExt as _};
use parking_lot::RwLock;
use serde::de::DeserializeOwned;
use tokio::sync::{broadcast, watch};

use crate::watch::guarded::{Guarded, Invalid};

/// As many changes as a controller may fall behind before it has to look at everything again.
const CHANGES: usize = 4096;

/// Objects by name; cluster-scoped kinds only.
#[derive(Debug)]
pub struct Store<K> {
    kind: &'static str,
    objects: RwLock<BTreeMap<String, Arc<K>>>,
    changes: broadcast::Sender<String>,
    synced: watch::Sender<bool>,
}

impl<K> Store<K>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
{
    /// An empty store; `kind` is for logs.
    pub fn new(kind: &'static str) -> Self {
        Self {
            kind,
            objects: RwLock::default(),
            changes: broadcast::Sender::new(CHANGES),
            synced: watch::Sender::new(false),
        }
    }

    /// An object.
    pub fn get(&self, name: &str) -> Option<Arc<K>> {
        self.objects.read().get(name).cloned()
    }

    /// All objects, by name.
    pub fn all(&self) -> Vec<Arc<K>> {
        self.objects.read().values().cloned().collect()
    }

    /// Takes it for listed, as the watch does after its first list.
    pub fn set_synced(&self) {
        self.synced.send_replace(true);
    }

    /// Names of objects that changed, from now on. One that lags has to look at everything.
    pub fn changes(&self) -> broadcast::Receiver<String> {
        self.changes.subscribe()
    }

    /// Makes the listeners look at an object again.
    pub fn touch(&self, name: &str) {
        let _listeners = self.changes.send(name.to_owned());
    }

    /// Waits until the first list was read.
    pub async fn synced(&self) {
        // The sender lives in self, so this ends only by the value.
        let mut synced = self.synced.subscribe();
        let _closed = synced.wait_for(|synced| *synced).await;
    }

    /// Whether the first list was read: until then an object that is not here may exist.
    pub fn is_synced(&self) -> bool {
        *self.synced.borrow()
    }

    /// Takes in an object, as the watch does.
    pub fn apply(&self, object: K) {
        let name = object.name_any();
        self.objects.write().insert(name.clone(), Arc::new(object));
        // Nobody listens until the controllers run.
        let _listeners = self.changes.send(name);
    }

    /// Takes out an object, as the watch does.
    pub fn delete(&self, name: &str) {
        if self.objects.write().remove(name).is_some() {
            let _listeners = self.changes.send(name.to_owned());
        }
    }

    /// Keeps the store; never returns. `skip` is called with each object that does not parse, which is then treated as absent; `on_change` after each
    /// change.
    pub async fn keep(
        self: Arc<Self>,
        api: Api<Guarded<K>>,
        skip: impl Fn(Invalid) + Send,
        on_change: impl Fn() + Send,
    ) {
        let mut events = std::pin::pin!(watcher(api, watcher::Config::default()).default_backoff());
        let mut listed: Option<BTreeMap<String, Arc<K>>> = None;
        while let Some(event) = events.next().await {
            match event {
                Ok(Event::Init) => listed = Some(BTreeMap::new()),
                Ok(Event::InitApply(guarded)) => {
                    if let (Some(listed), Some(object)) = (&mut listed, parsed(guarded, &skip)) {
                        listed.insert(object.name_any(), Arc::new(object));
                    }
                }
                Ok(Event::InitDone) => {
                    if let Some(listed) = listed.take() {
                        self.reset(listed);
                    }
                    self.set_synced();
                    on_change();
                }
                Ok(Event::Apply(guarded)) => {
                    let name = guarded.name_any();
                    match parsed(guarded, &skip) {
                        Some(object) => self.apply(object),
                        None => self.delete(&name),
                    }
                    on_change();
                }
                Ok(Event::Delete(guarded)) => {
                    self.delete(&guarded.name_any());
                    on_change();
                }
                Err(error) => {
                    tracing::warn!(kind = self.kind, %error, "watch failed, trying again");
                }
            }
        }
    }

    fn reset(&self, listed: BTreeMap<String, Arc<K>>) {
        let names: std::collections::BTreeSet<String> =
            self.objects.read().keys().chain(listed.keys()).cloned().collect();
        *self.objects.write() = listed;
        for name in names {
            let _listeners = self.changes.send(name);
        }
    }
}

fn parsed<K>(guarded: Guarded<K>, skip: &impl Fn(Invalid)) -> Option<K> {
    guarded.into_result().map_err(|invalid| skip(*invalid)).ok()
}
