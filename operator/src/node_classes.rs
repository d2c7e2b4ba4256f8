//! The NodeClasses of a provider, kept by the same watch, and by the same rules, as the kinds of
//! the state.
//!
//! They are not in the state itself. What the planner is asked about comes from a look at the
//! state, in the middle of which the provider is asked for the catalog of a NodeClass: were
//! NodeClasses behind the same lock, that would be a second look inside of the first, which never
//! ends when somebody waits to write in between.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::sync::Arc;

use kube::core::ObjectMeta;
use kube::{Resource, ResourceExt as _};
use parking_lot::RwLock;
use serde::de::DeserializeOwned;
use tokio::sync::broadcast;

use crate::context::Context;
use crate::state::change::{ObjectKey, version};
use crate::watch::{self, Seen, Sink};

/// As many changes as a controller may fall behind before it has to look at everything again.
const CHANGES: usize = 4096;

/// Objects by name; cluster-scoped kinds only.
#[derive(Debug)]
pub(crate) struct NodeClasses<K> {
    kept: RwLock<Kept<K>>,
    changes: broadcast::Sender<String>,
    synced: tokio::sync::watch::Sender<bool>,
}

#[derive(Debug)]
struct Kept<K> {
    objects: BTreeMap<String, Arc<K>>,
    /// While a list is under way: what was written here since it began. The list may be too old to
    /// have that.
    listing: Option<BTreeSet<String>>,
}

/// Where a version of an object comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    /// An event of the watch: events may be older than what was written here.
    Watch,
    List,
    /// The answer to a write.
    Own,
}

impl<K> Default for NodeClasses<K>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
{
    fn default() -> Self {
        Self::new()
    }
}

impl<K> NodeClasses<K>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
{
    /// None is known, and that means nothing yet.
    pub(crate) fn new() -> Self {
        Self {
            kept: RwLock::new(Kept { objects: BTreeMap::new(), listing: None }),
            changes: broadcast::Sender::new(CHANGES),
            synced: tokio::sync::watch::Sender::new(false),
        }
    }

    /// An object.
    pub(crate) fn get(&self, name: &str) -> Option<Arc<K>> {
        self.kept.read().objects.get(name).cloned()
    }

    /// All objects, by name.
    pub(crate) fn all(&self) -> Vec<Arc<K>> {
        self.kept.read().objects.values().cloned().collect()
    }

    /// Takes it for listed, as the watch does after its first list.
    pub(crate) fn set_synced(&self) {
        self.synced.send_replace(true);
    }

    /// Names of objects that changed, from now on. One that lags has to look at everything.
    pub(crate) fn changes(&self) -> broadcast::Receiver<String> {
        self.changes.subscribe()
    }

    /// Waits until the first list was read.
    pub(crate) async fn synced(&self) {
        // The sender lives in self, so this ends only by the value.
        let mut synced = self.synced.subscribe();
        let _closed = synced.wait_for(|synced| *synced).await;
    }

    /// Whether the first list was read: until then an object that is not here may exist.
    pub(crate) fn is_synced(&self) -> bool {
        *self.synced.borrow()
    }

    /// Takes in an object, as an event of the watch does. A version that is no news, because it was
    /// written here, is left out.
    pub(crate) fn apply(&self, object: K) {
        self.put(object, Source::Watch);
    }

    /// Takes in what the API server answered to a write, so that the next look sees it, and answers
    /// it. What the watch has already seen go does not come back.
    pub(crate) fn written(&self, object: K) -> Arc<K> {
        self.put(object, Source::Own)
    }

    fn put(&self, object: K, source: Source) -> Arc<K> {
        let name = object.name_any();
        let object = Arc::new(object);
        {
            let mut kept = self.kept.write();
            let Kept { objects, listing } = &mut *kept;
            let (new, known) = (object.meta(), objects.get(&name).map(|known| known.meta()));
            let older_than_own = || listing.as_ref().is_some_and(|own| own.contains(&name));
            let news = match (source, known) {
                (Source::Own, None) => false,
                (_, None) => true,
                // A list is newer than whatever was known when it began.
                (Source::List, Some(known)) if !older_than_own() => is_other(new, known),
                (_, Some(known)) => is_newer(new, known),
            };
            if !news {
                return object;
            }
            if let (Source::Own, Some(own)) = (source, listing) {
                own.insert(name.clone());
            }
            objects.insert(name.clone(), Arc::clone(&object));
        }
        // Nobody listens until the controllers run.
        let _listeners = self.changes.send(name);
        object
    }

    /// Takes out an object, as the watch does.
    pub(crate) fn delete(&self, name: &str) {
        if self.kept.write().objects.remove(name).is_some() {
            let _listeners = self.changes.send(name.to_owned());
        }
    }

    fn keep_only(&self, listed: &BTreeSet<ObjectKey>) {
        let gone: Vec<String> = {
            let mut kept = self.kept.write();
            kept.listing = None;
            let names = kept.objects.keys().cloned();
            let gone: Vec<String> =
                names.filter(|name| !listed.contains(&ObjectKey::cluster(name.as_str()))).collect();
            for name in &gone {
                kept.objects.remove(name);
            }
            gone
        };
        for name in gone {
            let _listeners = self.changes.send(name);
        }
    }

    /// Keeps them; never returns. `on_change` is called after each change.
    pub(crate) async fn keep(self: Arc<Self>, context: &Context, on_change: impl Fn() + Send) {
        watch::keep::<K>(context, false, ToStore { store: self, on_change }).await;
    }
}

/// The store takes what the watch sees.
struct ToStore<K, F> {
    store: Arc<NodeClasses<K>>,
    on_change: F,
}

impl<K, F: Fn() + Send> Sink<K> for ToStore<K, F>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
{
    async fn take(&mut self, seen: Seen<K>) -> bool {
        match seen {
            Seen::ListBegan => {
                self.store.kept.write().listing = Some(BTreeSet::new());
                return true;
            }
            Seen::InList(object) => {
                self.store.put(object, Source::List);
                return true;
            }
            Seen::Listed(names) => {
                self.store.keep_only(&names);
                self.store.set_synced();
            }
            Seen::Applied(object) => self.store.apply(object),
            Seen::Deleted(key, at) => {
                // It may have been made again under the same name, and that is known already.
                let known = self.store.get(&key.name);
                let known = known.map(|it| version(it.meta().resource_version.as_deref()));
                if at == 0 || known.is_none_or(|known| known <= at) {
                    self.store.delete(&key.name);
                }
            }
        }
        (self.on_change)();
        true
    }
}

fn is_other(metadata: &ObjectMeta, known: &ObjectMeta) -> bool {
    let new = version(metadata.resource_version.as_deref());
    new == 0 || new != version(known.resource_version.as_deref())
}

/// Objects without a version (in tests) are always news.
fn is_newer(metadata: &ObjectMeta, known: &ObjectMeta) -> bool {
    let new = version(metadata.resource_version.as_deref());
    new == 0 || new > version(known.resource_version.as_deref())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    use std::time::Duration;

    use serde_json::{Value, json};
    use tenon_crds::EC2NodeClass;

    use super::*;
    use crate::aws::catalog::tests::mk_class;
    use crate::testing::bench::Bench;
    use crate::testing::{ApiServer, refused};

    fn version(number: u64) -> EC2NodeClass {
        let mut class = mk_class();
        class.metadata.resource_version = Some(number.to_string());
        class
    }

    fn known(store: &NodeClasses<EC2NodeClass>) -> Option<String> {
        store.get("default")?.metadata.resource_version.clone()
    }

    #[test]
    fn what_was_written_is_seen_at_once_and_is_no_news_when_the_watch_brings_it() {
        let store = NodeClasses::new();
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
        let bench = Bench::new().await;
        let server = &bench.api;
        put(server, "a", None);
        put(server, "b", None);
        let store = Arc::new(NodeClasses::<EC2NodeClass>::new());
        let told = AtomicUsize::new(0);
        let keeping = Arc::clone(&store).keep(&bench.context, || {
            told.fetch_add(1, Ordering::Relaxed);
        });
        let names = || store.all().iter().map(|class| class.name_any()).collect::<Vec<_>>();
        let looking = async {
            assert!(!store.is_synced());
            store.synced().await;
            assert_eq!((names(), told.load(Ordering::Relaxed)), (vec!["a".into(), "b".into()], 1));
            let mut changes = store.changes();
            server.take::<EC2NodeClass>("a");
            assert_eq!(changes.recv().await.as_deref(), Ok("a"));
            put(server, "c", None);
            assert_eq!(changes.recv().await.as_deref(), Ok("c"));
            assert_eq!(names(), ["b", "c"]);
            // Of what does not parse any more stays what was known, and somebody is told.
            put(server, "c", Some(json!("nonsense")));
            let skipped = || bench.context.metrics.invalid_objects.get(["EC2NodeClass"]);
            while skipped() == 0 {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            assert_eq!(names(), ["b", "c"]);
            // Nobody tells the watch of these: it has to list anew.
            server.take::<EC2NodeClass>("b");
            put(server, "d", None);
            server.compact();
            assert_eq!(changes.recv().await.as_deref(), Ok("d"));
            assert_eq!(changes.recv().await.as_deref(), Ok("b"));
            assert_eq!(names(), ["c", "d"]);
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
        let bench = Bench::with(server).await;
        let store = Arc::new(NodeClasses::<EC2NodeClass>::new());
        let keeping = Arc::clone(&store).keep(&bench.context, || {});
        let looking = async {
            tokio::time::sleep(Duration::from_mins(5)).await;
            assert!(!store.is_synced());
            assert!(bench.api.requests().len() > 2, "it asks again");
            answers.store(true, Ordering::Relaxed);
            store.synced().await;
        };
        tokio::select! {
            () = keeping => {}
            () = looking => {}
        }
    }

    #[test]
    fn a_list_counts_but_for_what_was_written_since_it_began() {
        let store = Arc::new(NodeClasses::new());
        let mut sink = ToStore { store: Arc::clone(&store), on_change: || {} };
        let mut take = |seen| futures::FutureExt::now_or_never(sink.take(seen)).unwrap();
        store.apply(version(7));
        // As after a restore of etcd.
        assert!(take(Seen::ListBegan) && take(Seen::InList(version(5))));
        assert_eq!(known(&store).as_deref(), Some("5"));
        store.written(version(6));
        assert!(take(Seen::InList(version(5))));
        assert_eq!(known(&store).as_deref(), Some("6"));
        assert!(take(Seen::Listed([ObjectKey::cluster("default")].into())));
        assert_eq!(known(&store).as_deref(), Some("6"));
        // It was made again since.
        assert!(take(Seen::Deleted(ObjectKey::cluster("default"), 5)));
        assert_eq!(known(&store).as_deref(), Some("6"));
        assert!(take(Seen::ListBegan) && take(Seen::Listed(BTreeSet::new())));
        assert_eq!(known(&store), None);
    }

    #[test]
    fn what_was_written_does_not_bring_back_what_is_gone() {
        let store = NodeClasses::new();
        store.apply(version(1));
        store.delete("default");
        store.written(version(2));
        assert_eq!(known(&store), None);
    }
}
