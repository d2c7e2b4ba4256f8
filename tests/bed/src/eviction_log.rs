//! Pods that go, and what made them go: for tests that hold the operator to the eviction API.

use std::sync::Arc;

use futures::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, ResourceExt};
use parking_lot::Mutex;
use tokio::task::JoinSet;

/// The pods of an app that have gone since this was made, as they were last.
#[derive(Debug)]
pub struct EvictionLog {
    gone: Arc<Mutex<Vec<Pod>>>,
    _task: JoinSet<()>,
}

impl EvictionLog {
    /// Watches the pods of the Deployment `app`, from now on.
    pub fn watch(client: Client, app: &str) -> Self {
        let pods: Api<Pod> = Api::namespaced(client, "default");
        let config = watcher::Config::default().labels(&format!("app={app}"));
        let gone = Arc::new(Mutex::new(Vec::new()));
        let sink = Arc::clone(&gone);
        let mut task = JoinSet::new();
        task.spawn(async move {
            // A watch that was interrupted goes on by itself. Without a pause it would take a whole
            // thread when the API server is gone, and never let go of it.
            let mut events = std::pin::pin!(watcher(pods, config).default_backoff());
            while let Some(event) = events.next().await {
                if let Ok(Event::Delete(pod)) = event {
                    sink.lock().push(pod);
                }
            }
        });
        Self { gone, _task: task }
    }

    /// Those that have gone, as they were last.
    pub fn gone(&self) -> Vec<Pod> {
        self.gone.lock().clone()
    }

    /// The names of those that went through the eviction API, and of those that did not.
    pub fn by_eviction(&self) -> (Vec<String>, Vec<String>) {
        let gone = self.gone.lock();
        let (evicted, other): (Vec<&Pod>, Vec<&Pod>) =
            gone.iter().partition(|pod| was_evicted(pod));
        let names = |pods: Vec<&Pod>| pods.into_iter().map(ResourceExt::name_any).collect();
        (names(evicted), names(other))
    }
}

/// Whether the API server deleted the pod because its eviction was asked for: then it says so in
/// the pod's status.
fn was_evicted(pod: &Pod) -> bool {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|it| {
        it.type_ == "DisruptionTarget" && it.reason.as_deref() == Some("EvictionByEvictionAPI")
    })
}
