//! The objects of one kind as the API server has them, kept by a watch.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;

use futures::StreamExt as _;
use kube::api::Api;
use kube::core::ObjectMeta;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Resource, ResourceExt as _};
use parking_lot::RwLock;
use serde::de::DeserializeOwned;
use tokio::sync::{broadcast, watch};

use crate::state::change::version;
use tenon_state::guarded::{Guarded, Invalid};

/// As many changes as a controller may fall behind before it has to look at everything again.
pub const CHANGES: usize = 4096;

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

    /// Takes in an object, as the watch does. A version that is no news, because it was written here, is left out.
    pub fn apply(&self, object: K) {
        self.put(object, false);
    }

    /// Takes in what the API server answered to a write, so that the next look sees it, and answers it. What the watch has already seen go does not come back.
    pub fn written(&self, object: K) -> Arc<K> {
        self.put(object, true)
    }

    fn put(&self, object: K, known_only: bool) -> Arc<K> {
        let name = object.name_any();
        let object = Arc::new(object);
        {
            let mut objects = self.objects.write();
            let news = match objects.get(&name) {
                Some(known) => is_newer(object.meta(), known.meta()),
                None => !known_only,
            };
            if !news {
                return object;
            }
            objects.insert(name.clone(), Arc::clone(&object));
        }
        // Nobody listens until the controllers run.
        let _listeners = self.changes.send(name);
        object
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

/// Objects without a version (in tests) are always news.
fn is_newer(metadata: &ObjectMeta, known: &ObjectMeta) -> bool {
    let new = version(metadata.resource_version.as_deref());
    new == 0 || new > version(known.resource_version.as_deref())
}

fn parsed<K>(guarded: Guarded<K>, skip: &impl Fn(Invalid)) -> Option<K> {
    guarded.into_result().map_err(|invalid| skip(*invalid)).ok()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    use std::time::Duration;

    use parking_lot::Mutex;
    use serde_json::{Value, json};
    use tenon_crds::EC2NodeClass;

    use super::*;
    use crate::aws::catalog::tests::mk_class;
    use crate::testing::{ApiServer, refused};

    fn version(number: u64) -> EC2NodeClass {
        let mut class = mk_class();
        class.metadata.resource_version = Some(number.to_string());
        class
    }

    fn known(store: &Store<EC2NodeClass>) -> Option<String> {
        store.get("default")?.metadata.resource_version.clone()
    }

    #[test]
    fn what_was_written_is_seen_at_once_and_is_no_news_when_the_watch_brings_it() {
        let store = Store::new("EC2NodeClass");
        store.apply(version(1));
        let mut changes = store.changes();
        store.written(version(3));
        assert_eq!(known(&store).as_deref(), Some("3"));
        assert_eq!(changes.try_recv().as_deref(), Ok("default"));
        store.apply(version(2));
        store.apply(version(3));
        assert_eq!(known(&store).as_deref(), Some("3"));
        assert!(changes.try_recv().is_err(), "the reconciler is not called for its own writes");
        store.apply(version(4));
        assert_eq!(changes.try_recv().as_deref(), Ok("default"));
    }

    /// Puts a class of this name on the server.
    fn put(server: &ApiServer, name: &str, spec: Option<Value>) {
        let mut class = serde_json::to_value(mk_class()).unwrap();
        class["metadata"] = json!({ "name": name });
        if let Some(spec) = spec {
            class["spec"] = spec;
        }
        server.put::<EC2NodeClass>(class);
    }

    #[tokio::test(start_paused = true)]
    async fn it_has_what_the_api_server_has_also_after_the_watch_has_lost_the_thread() {
        let server = ApiServer::default();
        put(&server, "a", None);
        put(&server, "b", None);
        let store = Arc::new(Store::<EC2NodeClass>::new("EC2NodeClass"));
        let (skipped, told) = (Mutex::new(Vec::new()), AtomicUsize::new(0));
        let keeping = Arc::clone(&store).keep(
            Api::all(server.client()),
            |invalid| skipped.lock().push(invalid.metadata.name.unwrap_or_default()),
            || {
                told.fetch_add(1, Ordering::Relaxed);
            },
        );
        let names = || store.all().iter().map(|class| class.name_any()).collect::<Vec<_>>();
        let looking = async {
            assert!(!store.is_synced());
            store.synced().await;
            assert_eq!((names(), told.load(Ordering::Relaxed)), (vec!["a".into(), "b".into()], 1));
            let mut changes = store.changes();
            server.take::<EC2NodeClass>("a");
            assert_eq!(changes.recv().await.as_deref(), Ok("a"));
            put(&server, "c", None);
            assert_eq!(changes.recv().await.as_deref(), Ok("c"));
            assert_eq!(names(), ["b", "c"]);
            // What does not parse any more is not there, and somebody is told.
            put(&server, "c", Some(json!("nonsense")));
            assert_eq!(changes.recv().await.as_deref(), Ok("c"));
            assert_eq!((names(), skipped.lock().clone()), (vec!["b".into()], vec!["c".into()]));
            // Nobody tells the watch of these: it has to list anew.
            server.take::<EC2NodeClass>("b");
            put(&server, "d", None);
            server.compact();
            assert_eq!(changes.recv().await.as_deref(), Ok("b"));
            assert_eq!(changes.recv().await.as_deref(), Ok("d"));
            assert_eq!(names(), ["d"]);
            assert!(store.is_synced());
        };
        tokio::select! {
            () = keeping => {}
            () = looking => {}
        }
    }

    #[tokio::test(start_paused = true)]
    async fn it_is_not_synced_before_the_first_list_was_answered() {
        let answers = Arc::new(AtomicBool::new(false));
        let may = Arc::clone(&answers);
        let server = ApiServer::unless(move |_| {
            (!may.load(Ordering::Relaxed)).then(|| refused(403, "Forbidden"))
        });
        let store = Arc::new(Store::<EC2NodeClass>::new("EC2NodeClass"));
        let keeping = Arc::clone(&store).keep(Api::all(server.client()), |_| {}, || {});
        let looking = async {
            tokio::time::sleep(Duration::from_mins(5)).await;
            assert!(!store.is_synced());
            assert!(server.requests().len() > 2, "it asks again");
            answers.store(true, Ordering::Relaxed);
            store.synced().await;
        };
        tokio::select! {
            () = keeping => {}
            () = looking => {}
        }
    }

    #[test]
    fn what_was_written_does_not_bring_back_what_is_gone() {
        let store = Store::new("EC2NodeClass");
        store.apply(version(1));
        store.delete("default");
        store.written(version(2));
        assert_eq!(known(&store), None);
    }
}
