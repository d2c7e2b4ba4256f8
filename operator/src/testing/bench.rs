//! What a controller of the AWS provider is handed, for unit tests: an [`ApiServer`], a state, a
//! writer, and a context.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tenon_crds::labels::LabelRules;
use tenon_state::node_class;
use tokio_util::sync::CancellationToken;

use super::apiserver::ApiServer;
use crate::clock::Clock;
use crate::context::Context;
use crate::decisions::Decisions;
use crate::events::{Publisher, Recorder};
use crate::metrics::Metrics;
use crate::state::State;
use crate::state::change::{Change, Kind, Watched};
use crate::state::cluster::Cluster;
use crate::tasks::Tasks;
use crate::write::Writer;

/// An API server with a state, a writer, and what else a controller of the AWS provider is handed.
pub(crate) struct Bench {
    pub(crate) api: ApiServer,
    pub(crate) state: State,
    pub(crate) write: Writer,
    pub(crate) context: Context,
    /// What is published ends here, unread.
    _events: Publisher,
    /// The state lives as long as its task.
    _tasks: Tasks,
}

impl Bench {
    /// Nothing is there, and that is known.
    pub(crate) async fn new() -> Self {
        Self::with(ApiServer::default()).await
    }

    /// The same on this server.
    pub(crate) async fn with(api: ApiServer) -> Self {
        const KINDS: &[node_class::NodeClassKind] = &[node_class::EC2];
        let (state, task) = State::new(Cluster::new(KINDS, LabelRules::aws()));
        let mut tasks = Tasks::new(CancellationToken::new());
        tasks.spawn("state", task.run());
        for kind in Kind::ALL {
            state.apply(Change::Listed(kind, BTreeSet::new())).await;
        }
        let clock = Clock::anchored("2026-11-20T00:00:00Z".parse().unwrap());
        let (recorder, publisher) = Recorder::new(clock);
        let context = Context {
            liveness: crate::liveness::Liveness::default(),
            client: api.client(),
            clock,
            recorder,
            decisions: Decisions::new(clock),
            metrics: Metrics::new(),
            wake: Arc::default(),
            interrupted: Arc::default(),
            cluster_name: "demo".into(),
        };
        let write = Writer::new(api.client(), state.clone());
        Self { api, state, write, context, _events: publisher, _tasks: tasks }
    }

    /// Puts an object on the server and, as the watch would, into the state; answers it as it is
    /// stored.
    pub(crate) async fn seen<K: Watched + DeserializeOwned>(&self, object: Value) -> K {
        let stored: K = serde_json::from_value(self.api.put::<K>(object)).unwrap();
        self.state.apply(Change::Applied(stored.clone().into_object())).await;
        stored
    }
}

/// A NodeClaim of the AWS provider on the instance `i-NAME`, on the Node `NAME`, held by the
/// finalizer.
pub(crate) fn nodeclaim(name: &str) -> Value {
    json!({
        "metadata": {
            "name": name, "finalizers": ["karpenter.sh/termination"],
            "labels": { "karpenter.sh/nodepool": "default" },
        },
        "spec": {
            "requirements": [],
            "nodeClassRef": { "group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default" },
        },
        "status": { "providerID": provider_id(name), "nodeName": name },
    })
}

/// The Node `NAME` on the instance `i-NAME`.
pub(crate) fn node(name: &str) -> Value {
    json!({
        "metadata": {
            "name": name,
            "labels": {
                "karpenter.k8s.aws/ec2nodeclass": "default", "karpenter.sh/nodepool": "default",
                "karpenter.sh/registered": "true", "karpenter.sh/initialized": "true",
            },
        },
        "spec": { "providerID": provider_id(name) },
    })
}

/// The provider id of the machine of `NAME`.
pub(crate) fn provider_id(name: &str) -> String {
    format!("aws:///eu-central-1a/i-{name}")
}
