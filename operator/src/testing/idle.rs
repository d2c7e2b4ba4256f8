//! An operator for unit tests: with a cluster that is described by JSON, an API server that keeps
//! what is written to it, and a cloud that does nothing.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use clap::Parser as _;
use json_patch::merge;
use serde_json::{Value, json};
use tenon_crds::NodeClaim;
use tenon_crds::labels::LabelRules;
use tenon_planner::snapshot::{Catalog, NodeClassRef};
use tenon_state::node_class;
use tokio::sync::Notify;

use super::apiserver::ApiServer;
use crate::clock::Clock;
use crate::cloud_provider::{
    CloudError, CloudProvider, Instance, Launched, NodeClassKind, NodeClassState, RepairPolicy,
};
use crate::context::Context;
use crate::decisions::Decisions;
use crate::events::{Publisher, Recorder};
use crate::metrics::Metrics;
use crate::operator::Operator;
use crate::options::Options;
use crate::state::State;
use crate::state::change::{Change, Object};
use crate::state::cluster::Cluster;
use crate::tasks::Tasks;
use crate::write::Writer;

/// How long the API server takes to answer.
pub(crate) const LATENCY: Duration = Duration::from_millis(10);

const CLASS: &str = "karpenter.kwok.sh";

/// A cloud that sells kwok's instance types for every NodeClass, and has no machine.
#[derive(Debug)]
pub(crate) struct Idle {
    catalog: Arc<Catalog>,
}

impl CloudProvider for Idle {
    fn name(&self) -> &'static str {
        "idle"
    }

    fn node_class_kinds(&self) -> &'static [NodeClassKind] {
        &[node_class::KWOK]
    }

    fn repair_policies(&self) -> Vec<RepairPolicy> {
        Vec::new()
    }

    async fn synced(&self) {}

    fn node_class(&self, _: &NodeClassRef) -> Option<NodeClassState> {
        Some(NodeClassState { ready: Ok(()), unknown: false, deleting: false, generation: 1 })
    }

    fn catalog(&self, _: &NodeClassRef) -> Result<Arc<Catalog>, CloudError> {
        Ok(Arc::clone(&self.catalog))
    }

    async fn create(
        &self,
        claim: &NodeClaim,
        _: Option<Arc<Catalog>>,
    ) -> Result<Launched, CloudError> {
        Err(CloudError::NotFound(claim.metadata.name.clone().unwrap_or_default()))
    }

    async fn delete(&self, claim: &NodeClaim) -> Result<(), CloudError> {
        Err(CloudError::NotFound(claim.metadata.name.clone().unwrap_or_default()))
    }

    async fn get(&self, provider_id: &str) -> Result<Instance, CloudError> {
        Err(CloudError::NotFound(provider_id.to_owned()))
    }

    async fn list(&self) -> Result<Vec<Instance>, CloudError> {
        Ok(Vec::new())
    }

    async fn is_drifted(&self, _: &NodeClaim) -> Result<Option<String>, CloudError> {
        Ok(None)
    }

    fn start_watching(self: &Arc<Self>, _: &Context, _: &State, _: &mut Tasks) {}

    fn start_controllers(self: &Arc<Self>, _: &Context, _: &Writer, _: &mut Tasks) {}
}

/// An operator of a cluster with these objects, which are all there is.
pub(crate) async fn operator(objects: Vec<Value>) -> (Arc<Operator<Idle>>, ApiServer) {
    let (operator, _, api) = watched(objects).await;
    (operator, api)
}

/// The same with the events that it publishes.
#[expect(
    clippy::disallowed_methods,
    reason = "a test ends with its runtime, and nothing waits for the state's task"
)]
pub(crate) async fn watched(objects: Vec<Value>) -> (Arc<Operator<Idle>>, Publisher, ApiServer) {
    fn parse<T: serde::de::DeserializeOwned>(value: &Value) -> T {
        serde_json::from_value(value.clone()).unwrap()
    }
    let api = ApiServer::default().slow(LATENCY);
    let client = api.client();
    let cluster = Cluster::new(&[node_class::KWOK], LabelRules::core());
    let (state, task) = State::new(cluster);
    tokio::spawn(task.run());
    let kinds: Vec<_> = state.read().watched().collect();
    for kind in kinds {
        state.apply(Change::Listed(kind, BTreeSet::new())).await;
    }
    for value in objects {
        let name = value["metadata"]["name"].as_str().unwrap();
        let (path, object) = match value["kind"].as_str().unwrap() {
            "NodePool" => ("/apis/karpenter.sh/v1/nodepools", Object::NodePool(parse(&value))),
            "NodeClaim" => ("/apis/karpenter.sh/v1/nodeclaims", Object::NodeClaim(parse(&value))),
            "Node" => ("/api/v1/nodes", Object::Node(parse(&value))),
            "Pod" => ("/api/v1/namespaces/default/pods", Object::Pod(parse(&value))),
            kind => panic!("no {kind}"),
        };
        api.put_at(&format!("{path}/{name}"), value);
        state.apply(Change::Applied(object)).await;
    }
    let clock = Clock::anchored("2026-11-20T12:00:00Z".parse().unwrap());
    let (recorder, publisher) = Recorder::new(clock);
    let context = Context {
        client: client.clone(),
        clock,
        recorder,
        decisions: Decisions::new(clock),
        metrics: Metrics::new(),
        wake: Arc::new(Notify::new()),
        liveness: crate::liveness::Liveness::default(),
        interrupted: Arc::new(Notify::new()),
        cluster_name: "test".into(),
    };
    let catalog = Catalog {
        node_class: NodeClassRef::default(),
        instance_types: tenon_state::catalog::generate(),
    };
    let options = Options::parse_from(["tenon-operator", "--cluster-name", "test"]).core;
    let policy = options.policy();
    let operator = Operator {
        write: Writer::new(client, state.clone()),
        context,
        state,
        cloud: Arc::new(Idle { catalog: Arc::new(catalog) }),
        options,
        policy,
        offers: crate::offers::LatestOffers::default(),
        quarantine: crate::quarantine::Quarantine::default(),
        pauses: crate::pauses::Pauses::default(),
        ledger: crate::ledger::Ledger::default(),
        eviction_order: crate::eviction_order::EvictionOrder::default(),
        settling: crate::settling::Settling::default(),
        nominations: crate::nominations::Nominations::default(),
    };
    (Arc::new(operator), publisher, api)
}

fn condition(type_: &str) -> Value {
    json!({"type": type_, "status": "True", "reason": type_, "message": "", "lastTransitionTime": "2026-11-20T11:00:00Z"})
}

fn class() -> Value {
    json!({"group": CLASS, "kind": "KWOKNodeClass", "name": "default"})
}

/// A NodePool that is ready, without budgets.
#[expect(clippy::needless_pass_by_value, reason = "tests write it where they need it")]
pub(crate) fn pool(name: &str, spec: Value) -> Value {
    let template = json!({"spec": {"requirements": [], "nodeClassRef": class()}});
    let disruption = json!({"consolidateAfter": "0s", "budgets": [{"nodes": "100%"}]});
    let mut pool = json!({
        "kind": "NodePool",
        "metadata": {"name": name, "uid": name, "generation": 1, "resourceVersion": "1"},
        "spec": {"template": template, "disruption": disruption},
        "status": {"conditions": [condition("Ready")]},
    });
    merge(&mut pool["spec"], &spec);
    pool
}

/// A machine that has long been initialised: its NodeClaim and its Node.
pub(crate) fn machine(name: &str, pool: &str) -> [Value; 2] {
    let labels = json!({
        "karpenter.sh/nodepool": pool,
        "karpenter.sh/registered": "true",
        "karpenter.sh/initialized": "true",
        "node.kubernetes.io/instance-type": "s-4x-amd64-linux",
        "topology.kubernetes.io/zone": "test-zone-a",
        "karpenter.sh/capacity-type": "on-demand",
        "kubernetes.io/hostname": name,
    });
    let metadata = json!({"name": name, "uid": name, "resourceVersion": "1", "labels": labels, "creationTimestamp": "2026-11-20T10:00:00Z"});
    let (id, amounts) =
        (format!("idle://{name}"), json!({"cpu": "4", "memory": "16Gi", "pods": "110"}));
    let conditions: Vec<Value> =
        ["Launched", "Registered", "Initialized", "Consolidatable"].map(condition).into();
    let claim = json!({
        "kind": "NodeClaim", "metadata": metadata,
        "spec": {"requirements": [], "nodeClassRef": class()},
        "status": {"providerID": id, "capacity": amounts, "allocatable": amounts, "conditions": conditions},
    });
    let node = json!({
        "kind": "Node", "metadata": metadata, "spec": {"providerID": id},
        "status": {"capacity": amounts, "allocatable": amounts, "conditions": [{"type": "Ready", "status": "True"}]},
    });
    [claim, node]
}

/// A pod that kube-scheduler found no place for.
pub(crate) fn pending(name: &str, cpu: &str) -> Value {
    let requests = json!({"requests": {"cpu": cpu}});
    json!({
        "kind": "Pod",
        "metadata": {"namespace": "default", "name": name, "uid": name, "creationTimestamp": "2026-11-20T11:00:00Z"},
        "spec": {"containers": [{"name": "main", "resources": requests}]},
        "status": {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]},
    })
}
