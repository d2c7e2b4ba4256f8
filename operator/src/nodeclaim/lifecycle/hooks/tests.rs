use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::Value;
use tenon_crds::labels::LabelRules;
use tenon_planner::snapshot::{Catalog, NodeClassRef};
use tenon_state::node_class;

use super::super::launch::Launches;
use super::super::reconcile;
use super::*;
use crate::cloud_provider::{
    Context, Hook, Instance, Launched, NodeClassKind, NodeClassState, RepairPolicy,
};
use crate::nodepool::registration::Health;
use crate::state::State;
use crate::state::change::{Change, Object};
use crate::state::cluster::Cluster;
use crate::tasks::Tasks;
use crate::testing::{self, ApiServer};
use crate::work::Action;
use crate::write::Writer;

const CLAIM: &str = "/apis/karpenter.sh/v1/nodeclaims/a";
const NODE: &str = "/api/v1/nodes/n";

/// A cloud whose two hooks are not done the first time; one of them fails the second time.
#[derive(Debug, Default)]
struct Hesitant {
    asked: AtomicUsize,
}

impl CloudProvider for Hesitant {
    fn name(&self) -> &'static str {
        "hesitant"
    }

    fn node_class_kinds(&self) -> &'static [NodeClassKind] {
        testing::KINDS
    }

    fn repair_policies(&self) -> Vec<RepairPolicy> {
        Vec::new()
    }

    async fn synced(&self) {}

    fn node_class(&self, _: &NodeClassRef) -> Option<NodeClassState> {
        None
    }

    fn catalog(&self, reference: &NodeClassRef) -> Result<Arc<Catalog>, CloudError> {
        Err(CloudError::NodeClassNotReady(reference.name.clone()))
    }

    async fn create(
        &self,
        claim: &NodeClaim,
        _: Option<Arc<Catalog>>,
    ) -> Result<Launched, CloudError> {
        panic!("{claim:?} is launched already")
    }

    async fn delete(&self, claim: &NodeClaim) -> Result<(), CloudError> {
        panic!("{claim:?} stays")
    }

    async fn get(&self, provider_id: &str) -> Result<Instance, CloudError> {
        Err(CloudError::NotFound(provider_id.to_owned()))
    }

    async fn list(&self) -> Result<Vec<Instance>, CloudError> {
        Ok(Vec::new())
    }

    async fn before_registration(&self, _: &NodeClaim) -> Vec<Hook> {
        let learnt = [("partition".to_owned(), "3".to_owned())];
        let (first, second) = match self.asked.fetch_add(1, Ordering::Relaxed) {
            0 => (
                Ok(HookProgress::Pending(Duration::from_secs(7))),
                Ok(HookProgress::Pending(Duration::from_secs(5))),
            ),
            1 => (
                Ok(HookProgress::Done(BTreeMap::new())),
                Err(CloudError::RebootRefused("not now".to_owned())),
            ),
            _ => (Ok(HookProgress::Done(BTreeMap::new())), Ok(HookProgress::Done(learnt.into()))),
        };
        [("First", first), ("Second", second)]
            .map(|(name, progress)| Hook { name, progress })
            .into()
    }

    async fn is_drifted(&self, _: &NodeClaim) -> Result<Option<String>, CloudError> {
        Ok(None)
    }

    fn start_watching(self: &Arc<Self>, _: &Context, _: &State, _: &mut Tasks) {}

    fn start_controllers(self: &Arc<Self>, _: &Context, _: &Writer, _: &mut Tasks) {}
}

fn joined() -> (Value, Value) {
    let at = "1970-01-01T00:00:00Z";
    let labels = json!({"karpenter.sh/nodepool": "default", "karpenter.kwok.sh/kwoknodeclass": "small",
        "partition": ""});
    let claim = json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
        "metadata": {"name": "a", "uid": "1", "resourceVersion": "1", "creationTimestamp": at, "labels": labels,
            "finalizers": ["karpenter.sh/termination"]},
        "spec": {"nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "small"}, "requirements": []},
        "status": {"providerID": "kwok://a", "conditions": [
            {"type": "Launched", "status": "True", "reason": "Launched", "message": "", "lastTransitionTime": at}]},
    });
    let node = json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": "n", "uid": "2", "resourceVersion": "1", "creationTimestamp": at},
        "spec": {"providerID": "kwok://a", "taints": [{"key": "karpenter.sh/unregistered", "effect": "NoExecute"}]},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    });
    (claim, node)
}

#[tokio::test(start_paused = true)]
async fn pods_are_kept_away_until_the_provider_has_seen_to_everything() {
    let (claim, node) = joined();
    let mut cluster = Cluster::new(&[node_class::KWOK], LabelRules::core());
    let seen = serde_json::from_value(claim.clone()).unwrap();
    cluster.apply(Change::Applied(Object::NodeClaim(Box::new(seen))));
    let seen = serde_json::from_value(node.clone()).unwrap();
    cluster.apply(Change::Applied(Object::Node(Box::new(seen))));
    let server = ApiServer::default();
    server.put_at(CLAIM, claim);
    server.put_at(NODE, node);
    let (operator, _publisher) = testing::operator_on(Hesitant::default(), &server, cluster);
    let (launches, health) = (Launches::default(), Health::default());
    let pass = || reconcile(&operator, &launches, &health, "a");
    let registered = || {
        let claim = server.at(CLAIM).unwrap();
        let conditions = claim["status"]["conditions"].as_array().unwrap().clone();
        let found = conditions.into_iter().find(|it| it["type"] == "Registered").unwrap();
        [&found["status"], &found["reason"], &found["message"]]
            .map(|value| value.as_str().unwrap_or_default().to_owned())
    };
    let taints = || server.at(NODE).unwrap()["spec"]["taints"].as_array().unwrap().len();
    let label = |path: &str| server.at(path).unwrap()["metadata"]["labels"]["partition"].clone();

    assert_eq!(pass().await.unwrap(), Action::After(Duration::from_secs(5)), "the shortest wait");
    assert_eq!(registered(), ["Unknown", "RegistrationHookPending", "First, Second"]);
    assert_eq!((taints(), label(NODE)), (1, json!("")));

    tokio::time::advance(Duration::from_secs(5)).await;
    let failed = pass().await.unwrap_err();
    assert!(failed.to_string().contains("hook Second"), "{failed}");
    assert_eq!(registered(), ["Unknown", "RegistrationHookPending", "Second"]);
    assert_eq!(taints(), 1);

    pass().await.unwrap();
    assert_eq!(registered()[0], "True");
    assert_eq!((taints(), label(NODE), label(CLAIM)), (0, json!("3"), json!("3")));
    let writes = |path: &str| server.requests().iter().filter(|it| it.path == path).count();
    assert_eq!(writes(NODE), 3, "joined, registered, initialised");
}
