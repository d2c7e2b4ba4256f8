//! The provider `kwok`: machines are plain Node objects that the kwok controller plays, so that
//! Tenon can be tried on any cluster and tested with thousands of nodes. It needs no cloud and no
//! credentials.
//!
//! A launch decides the offering and answers at once; the Node is created by [`boot`] after the
//! NodeClass's registration delay, from what the launched NodeClaim says, so that a restart in
//! between loses nothing.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{Api, Client, ResourceExt as _};
use parking_lot::RwLock;
use serde_json::json;
use tenon_crds::labels::{self, LabelRules};
use tenon_crds::{ConditionStatus, KWOKNodeClass, NodeClaim};
use tenon_planner::snapshot::{Catalog, InstanceType, NodeClassRef, Offering};
use tenon_state::node_class;

use crate::cloud_provider::{
    CloudError, CloudProvider, Instance, Launched, NodeClassKind, NodeClassState, RepairPolicy,
};
use crate::context::Context;
use crate::controller::{Controller, Reconciler as _};
use crate::node_classes::NodeClasses;
use crate::state::State;
use crate::tasks::Tasks;
use crate::write::Writer;

mod boot;
mod choice;
mod repair;

use boot::Boot;

pub(crate) use tenon_state::catalog;

/// Prefix of provider ids.
pub(crate) const PROVIDER_ID_PREFIX: &str = "kwok://";

const KINDS: &[NodeClassKind] = &[node_class::KWOK];

/// Creates Nodes instead of instances, for clusters with kwok.
pub(crate) struct Kwok {
    client: Client,
    types: Arc<[InstanceType]>,
    rules: LabelRules,
    classes: Arc<NodeClasses<KWOKNodeClass>>,
    /// What can be launched with each class, once somebody has asked.
    catalogs: RwLock<BTreeMap<String, Arc<Catalog>>>,
}

impl std::fmt::Debug for Kwok {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Kwok").field("types", &self.types.len()).finish_non_exhaustive()
    }
}

impl Kwok {
    /// The provider with the instance types of a file, or with the generated ones.
    pub(crate) fn new(
        client: Client,
        instance_types_file: Option<PathBuf>,
    ) -> Result<Self, catalog::CatalogError> {
        let types = match instance_types_file {
            Some(path) => catalog::read(&path)?,
            None => catalog::generate(),
        };
        let rules = LabelRules::kwok(catalog::offering_keys(&types));
        Ok(Self {
            client,
            types: types.into(),
            rules,
            classes: Arc::default(),
            catalogs: RwLock::default(),
        })
    }

    fn nodes(&self) -> Api<Node> {
        Api::all(self.client.clone())
    }

    fn delay(&self, class: &str) -> std::time::Duration {
        let class = self.classes.get(class);
        let delay = class.and_then(|class| class.spec.node_registration_delay.clone());
        delay.as_ref().map(tenon_crds::Duration::as_std).unwrap_or_default()
    }

    /// Forgets what was computed for classes that are gone.
    fn forget_gone(&self) {
        self.catalogs.write().retain(|name, _| self.classes.get(name).is_some());
    }
}

/// The reference to a KWOKNodeClass.
fn class_reference(name: &str) -> NodeClassRef {
    NodeClassRef {
        group: labels::kwok::GROUP.into(),
        kind: "KWOKNodeClass".into(),
        name: name.to_owned(),
    }
}

impl CloudProvider for Kwok {
    fn name(&self) -> &'static str {
        "kwok"
    }

    fn node_class_kinds(&self) -> &'static [NodeClassKind] {
        KINDS
    }

    fn repair_policies(&self) -> Vec<RepairPolicy> {
        repair::policies()
    }

    fn label_rules(&self) -> LabelRules {
        self.rules.clone()
    }

    async fn synced(&self) {
        self.classes.synced().await;
    }

    fn node_class(&self, reference: &NodeClassRef) -> Option<NodeClassState> {
        let object = self.classes.get(&reference.name)?;
        let conditions =
            object.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
        let ready = conditions.iter().find(|condition| condition.type_ == "Ready");
        let unknown = ready.is_none_or(|ready| ready.status == ConditionStatus::Unknown);
        let ready = match ready {
            Some(ready) if ready.status == ConditionStatus::True => Ok(()),
            Some(ready) => Err((ready.reason.clone(), ready.message.clone())),
            None => Err((
                "AwaitingReconciliation".to_owned(),
                "object is awaiting reconciliation".to_owned(),
            )),
        };
        Some(NodeClassState {
            ready,
            unknown,
            deleting: object.metadata.deletion_timestamp.is_some(),
            generation: object.metadata.generation.unwrap_or_default(),
        })
    }

    fn catalog(&self, reference: &NodeClassRef) -> Result<Arc<Catalog>, CloudError> {
        let name = &reference.name;
        if self.classes.get(name).is_none() {
            let message = format!("KWOKNodeClass {name} does not exist");
            return Err(CloudError::NodeClassNotReady(message));
        }
        if let Some(known) = self.catalogs.read().get(name) {
            return Ok(Arc::clone(known));
        }
        let mut catalogs = self.catalogs.write();
        let catalog = catalogs.entry(name.clone()).or_insert_with(|| {
            let instance_types = self.types.to_vec();
            Arc::new(Catalog { node_class: class_reference(name), instance_types })
        });
        Ok(Arc::clone(catalog))
    }

    async fn create(
        &self,
        claim: &NodeClaim,
        overlaid: Option<Arc<Catalog>>,
    ) -> Result<Launched, CloudError> {
        let class = &claim.spec.node_class_ref.name;
        let reference = class_reference(class);
        let state = self.node_class(&reference).ok_or_else(|| {
            CloudError::InsufficientCapacity(format!("KWOKNodeClass {class} does not exist"))
        })?;
        if let (Err((reason, message)), false) = (&state.ready, state.unknown) {
            return Err(CloudError::NodeClassNotReady(format!(
                "KWOKNodeClass {class}: {reason}: {message}"
            )));
        }
        let catalog = match overlaid {
            Some(catalog) => catalog,
            None => self.catalog(&reference)?,
        };
        let (kind, offering) = choice::cheapest(&catalog, claim).ok_or_else(|| {
            CloudError::InsufficientCapacity(
                "no instance type of the claim has an available offering".to_owned(),
            )
        })?;
        Ok(Launched {
            instance: Instance {
                provider_id: format!("{PROVIDER_ID_PREFIX}{}", node_name(claim)),
                claim: Some(claim.name_any()),
                node_pool: claim.labels().get(labels::NODEPOOL).cloned(),
                created_at: None,
                terminating: false,
                labels: node_labels(kind, offering),
                image_id: None,
            },
            annotations: BTreeMap::new(),
            capacity: kind.capacity.clone(),
            allocatable: kind.allocatable(),
        })
    }

    async fn delete(&self, claim: &NodeClaim) -> Result<(), CloudError> {
        let Some(name) = claim.provider_id().and_then(|id| id.strip_prefix(PROVIDER_ID_PREFIX))
        else {
            return Err(CloudError::NotFound(claim.name_any()));
        };
        match self.nodes().delete(name, &DeleteParams::default()).await {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            Err(error) => return Err(other(format!("deleting node {name}"), error)),
        }
        // There is no machine that could outlive this call.
        Err(CloudError::NotFound(name.to_owned()))
    }

    async fn reboot(&self, claim: &NodeClaim, operation: &str) -> Result<(), CloudError> {
        let missing = || CloudError::NotFound(claim.name_any());
        let id = claim.provider_id().and_then(|id| id.strip_prefix(PROVIDER_ID_PREFIX));
        let name = id.ok_or_else(missing)?;
        // All that can be seen of it: another boot. The same one however often it is asked for.
        let body = json!({"status": {"nodeInfo": {"bootID": format!("kwok-{operation}")}}});
        let params = PatchParams::default();
        match self.nodes().patch_status(name, &params, &Patch::Merge(body)).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if status.code == 404 => Err(missing()),
            Err(error) => Err(other(format!("giving node {name} another boot"), error)),
        }
    }

    async fn get(&self, provider_id: &str) -> Result<Instance, CloudError> {
        let missing = || CloudError::NotFound(provider_id.to_owned());
        let name = provider_id.strip_prefix(PROVIDER_ID_PREFIX).ok_or_else(missing)?;
        let node = self
            .nodes()
            .get_opt(name)
            .await
            .map_err(|error| other(format!("reading node {name}"), error))?;
        node.filter(|node| node.metadata.deletion_timestamp.is_none())
            .map(|node| instance(&node))
            .ok_or_else(missing)
    }

    async fn list(&self) -> Result<Vec<Instance>, CloudError> {
        let only_ours = ListParams::default().labels(&format!("{}=fake", labels::kwok::NODE));
        let nodes = self
            .nodes()
            .list(&only_ours)
            .await
            .map_err(|error| other("listing nodes".to_owned(), error))?;
        Ok(nodes
            .items
            .iter()
            .filter(|node| provider_id(node).starts_with(PROVIDER_ID_PREFIX))
            .map(instance)
            .collect())
    }

    async fn is_drifted(&self, _claim: &NodeClaim) -> Result<Option<String>, CloudError> {
        Ok(None)
    }

    fn start_watching(self: &Arc<Self>, context: &Context, _: &State, tasks: &mut Tasks) {
        let (this, context) = (Arc::clone(self), context.clone());
        tasks.spawn("kwok.nodeclasses", async move {
            let on_change = || {
                this.forget_gone();
                context.wake.notify_one();
            };
            Arc::clone(&this.classes).keep(&context, on_change).await;
        });
    }

    fn start_controllers(self: &Arc<Self>, context: &Context, write: &Writer, tasks: &mut Tasks) {
        let state = write.state().clone();
        let boot = Boot { kwok: Arc::clone(self), state: state.clone(), clock: context.clock };
        let (metrics, stop) = (context.metrics.clone(), tasks.stop_token().clone());
        tasks.spawn(Boot::NAME, Controller::new(boot).run(state, metrics, stop));
    }
}

/// The name of the Node of a claim: the same whenever the launch is tried again.
fn node_name(claim: &NodeClaim) -> String {
    let uid = claim.metadata.uid.as_deref().unwrap_or_default();
    let short: String = uid.chars().filter(char::is_ascii_alphanumeric).take(8).collect();
    format!("kwok-{}-{short}", claim.name_any())
}

/// What the machine's nature labels it with.
fn node_labels(kind: &InstanceType, offering: &Offering) -> BTreeMap<String, String> {
    let mut all: BTreeMap<String, String> = kind
        .requirements
        .iter()
        .chain(&offering.requirements)
        .filter(|requirement| requirement.operator == tenon_planner::snapshot::Operator::In)
        .filter_map(|requirement| match requirement.values.as_slice() {
            [only] => Some((requirement.key.clone(), only.clone())),
            _ => None,
        })
        .collect();
    all.insert(labels::ZONE.into(), offering.zone.clone());
    all.insert(labels::CAPACITY_TYPE.into(), offering.capacity_type.as_str().to_owned());
    all.insert(labels::kwok::INSTANCE_PRICE.into(), format!("{:.6}", offering.price.as_usd()));
    all.insert(labels::kwok::NODE.into(), "fake".into());
    all.insert(labels::kwok::PARTITION.into(), "a".into());
    all
}

fn provider_id(node: &Node) -> &str {
    node.spec.as_ref().and_then(|spec| spec.provider_id.as_deref()).unwrap_or_default()
}

fn instance(node: &Node) -> Instance {
    Instance {
        provider_id: provider_id(node).to_owned(),
        claim: node.annotations().get(boot::CLAIM_ANNOTATION).cloned(),
        node_pool: node.labels().get(labels::NODEPOOL).cloned(),
        created_at: node.metadata.creation_timestamp.as_ref().map(|time| time.0),
        terminating: node.metadata.deletion_timestamp.is_some(),
        labels: node.labels().clone(),
        image_id: None,
    }
}

fn other(operation: String, error: kube::Error) -> CloudError {
    CloudError::Other { operation, source: Box::new(error) }
}
