use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::json;
use tenon_planner::snapshot::{Catalog, NodeClassRef};

use super::super::{Unwritten, reconcile};
use super::*;
use crate::cloud_provider::{
    Hook, Instance, Launched, NodeClassKind, NodeClassState, RepairPolicy,
};
use crate::context::Context;
use crate::nodepool::registration::Health;
use crate::state::State;
use crate::tasks::Tasks;
use crate::testing;
use crate::testing::joined::{CLAIM, NODE, joined};
use crate::work_queue::Action;
use crate::write::Writer;

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

#[tokio::test(start_paused = true)]
async fn pods_are_kept_away_until_the_provider_has_seen_to_everything() {
    let (server, cluster) = joined(&[("partition", "")], true);
    let (operator, _publisher) = testing::operator_on(Hesitant::default(), &server, cluster);
    let (unwritten, health) = (Unwritten::default(), Health::default());
    let pass = || reconcile(&operator, &unwritten, &health, "a");
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
    assert_eq!(registered()[2], "First, Second", "what passes at once is not worth a write");
    assert_eq!(taints(), 1);

    pass().await.unwrap();
    assert_eq!(registered()[0], "True");
    assert_eq!((taints(), label(NODE), label(CLAIM)), (0, json!("3"), json!("3")));
    let writes = |path: &str| server.requests().iter().filter(|it| it.path == path).count();
    assert_eq!(writes(NODE), 3, "joined, registered, initialised");
}
