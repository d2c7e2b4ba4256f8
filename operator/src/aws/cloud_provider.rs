//! What the operator asks of AWS, through [`CloudProvider`]: NodeClasses and what can be launched
//! with them, machines that come and go, and which have drifted.

use std::sync::Arc;

use tenon_crds::labels::{LabelRules, aws as keys};
use tenon_crds::{ConditionStatus, NodeClaim};
use tenon_planner::snapshot::{Catalog, NodeClassRef};

use super::drift::{self, Drift};
use super::instances::parse_provider_id;
use super::{
    AwsProvider, KIND, Leader, controllers, conversion, ec2, launcher, nodeclass, other,
    provider_id, refresh, repair, zonal_shift,
};
use crate::cloud_provider::{
    CloudError, CloudProvider, Hook, Instance, Launched, NodeClassKind, NodeClassState,
    RepairPolicy,
};
use crate::context::Context;
use crate::state::State;
use crate::tasks::Tasks;
use crate::write::Writer;

impl CloudProvider for AwsProvider {
    fn name(&self) -> &'static str {
        "aws"
    }

    fn node_class_kinds(&self) -> &'static [NodeClassKind] {
        std::slice::from_ref(&KIND)
    }

    fn repair_policies(&self) -> Vec<RepairPolicy> {
        repair::policies()
    }

    fn label_rules(&self) -> LabelRules {
        LabelRules::aws()
    }

    async fn synced(&self) {
        self.classes.synced().await;
    }

    fn node_class(&self, reference: &NodeClassRef) -> Option<NodeClassState> {
        let class = self.class_of(reference)?;
        let ready = nodeclass::status::ready(&class);
        Some(NodeClassState {
            ready: match ready {
                Some(ready) if ready.status == ConditionStatus::True => Ok(()),
                Some(ready) => Err((ready.reason.clone(), ready.message.clone())),
                None => Err((
                    "AwaitingReconciliation".to_owned(),
                    "object is awaiting reconciliation".to_owned(),
                )),
            },
            unknown: ready.is_none_or(|ready| ready.status == ConditionStatus::Unknown),
            deleting: class.metadata.deletion_timestamp.is_some(),
            generation: class.metadata.generation.unwrap_or_default(),
        })
    }

    fn catalog(&self, reference: &NodeClassRef) -> Result<Arc<Catalog>, CloudError> {
        let operation = || format!("resolve the instance types of {}", reference.name);
        let class = self.class_of(reference).ok_or_else(|| CloudError::Other {
            operation: operation(),
            source: "the EC2NodeClass does not exist".into(),
        })?;
        self.catalog_of(&class).map_err(|missing| CloudError::Other {
            operation: operation(),
            source: Box::new(missing),
        })
    }

    async fn create(
        &self,
        claim: &NodeClaim,
        overlaid: Option<Arc<Catalog>>,
    ) -> Result<Launched, CloudError> {
        let uid = claim.metadata.uid.clone().unwrap_or_default();
        if let Some(launched) = self.launched.get(&uid) {
            return Ok(launched);
        }
        let launched = self.create_instance(claim, &uid, overlaid).await?;
        self.launched.insert(uid, launched.clone());
        Ok(launched)
    }

    async fn delete(&self, claim: &NodeClaim) -> Result<(), CloudError> {
        let uid = claim.metadata.uid.as_deref().unwrap_or_default();
        let Some(provider_id) = self.provider_id_of(claim, uid).await? else {
            return Err(CloudError::NotFound(format!(
                "for NodeClaim {}",
                claim.metadata.name.as_deref().unwrap_or_default()
            )));
        };
        self.check_zone(&provider_id)?;
        let id = parse_provider_id(&provider_id).map_err(|error| other("delete", error))?;
        let operation = || format!("terminate instance {id}");
        let found = self.instances.get(id).await.map_err(|error| other(&operation(), error))?;
        let Some(instance) = found else {
            self.launched.remove(uid);
            let labels = claim.metadata.labels.as_ref();
            if let Some(id) = labels.and_then(|all| all.get(keys::CAPACITY_RESERVATION_ID)) {
                self.catalogs.reservations.give_back(id);
            }
            return Err(CloudError::NotFound(provider_id));
        };
        if instance.is_terminating() {
            return Ok(());
        }
        self.instances.terminate(&instance).await.map_err(|error| other(&operation(), error))
    }

    async fn get(&self, provider_id: &str) -> Result<Instance, CloudError> {
        let id = parse_provider_id(provider_id).map_err(|error| other("get", error))?;
        let found = self
            .instances
            .get(id)
            .await
            .map_err(|error| other(&format!("get instance {id}"), error))?;
        let Some(found) = found else {
            self.check_zone(provider_id)?;
            return Err(CloudError::NotFound(provider_id.to_owned()));
        };
        Ok(self.present(&found))
    }

    async fn list(&self) -> Result<Vec<Instance>, CloudError> {
        let found =
            self.instances.list().await.map_err(|error| other("list the instances", error))?;
        Ok(found.iter().map(|instance| self.present(instance)).collect())
    }

    async fn before_registration(&self, claim: &NodeClaim) -> Vec<Hook> {
        launcher::placement::hook(&self.instances, claim).await.into_iter().collect()
    }

    async fn is_drifted(&self, claim: &NodeClaim) -> Result<Option<String>, CloudError> {
        let reference = &claim.spec.node_class_ref;
        let Some(class) = self
            .classes
            .get(&reference.name)
            .filter(|class| class.metadata.deletion_timestamp.is_none())
        else {
            return Ok(None);
        };
        let unclear = |source: Box<dyn std::error::Error + Send + Sync>| CloudError::Other {
            operation: format!("detect drift from EC2NodeClass {}", reference.name),
            source,
        };
        // Prices say nothing about drift, but without them there are no offerings. They come soon
        // after the start; that they are not there yet is no failure.
        self.catalogs.prices.known().await;
        let catalog = self.catalog_of(&class).map_err(|error| unclear(Box::new(error)))?;
        let seen = drift::without_instance(claim, &class, &catalog)
            .map_err(|error| unclear(Box::new(error)))?;
        if let Some(drift) = seen {
            return Ok(Some(drift.reason().to_owned()));
        }
        let Some(id) = claim.provider_id().and_then(provider_id::instance_id) else {
            return Ok(None);
        };
        let instance = self
            .instances
            .get_known(id)
            .await
            .map_err(|error| other(&format!("get instance {id}"), error))?
            .ok_or_else(|| CloudError::NotFound(id.to_owned()))?;
        let placement_group = self.lookups.placement_group(&class);
        let compare = |instance: &ec2::Instance| {
            drift::of_instance(claim, &class, instance, placement_group.as_ref())
                .map_err(|error| unclear(Box::new(error)))
        };
        let mut seen = compare(&instance)?;
        // An instance whose reservation has ended may not be in it any more: then nothing has
        // drifted.
        if seen == Some(Drift::CapacityReservation)
            && let Some(instance) =
                self.instances.get(id).await.map_err(|error| other("get the instance", error))?
        {
            seen = compare(&instance)?;
        }
        Ok(seen.map(|drift| drift.reason().to_owned()))
    }

    fn start_watching(self: &Arc<Self>, context: &Context, state: &State, tasks: &mut Tasks) {
        self.kubernetes.get_or_init(|| context.client.clone());
        let state = self.state.get_or_init(|| state.clone());
        refresh::start(self, context, state, tasks);
    }

    fn start_controllers(self: &Arc<Self>, context: &Context, write: &Writer, tasks: &mut Tasks) {
        self.recovery.lead_since(self.clock.now());
        let term = Term(Arc::clone(self));
        tasks.spawn("recovery.term", async move {
            let _ends_with_the_task = term;
            std::future::pending::<()>().await;
        });
        let (provider, context) = (Arc::clone(self), context.clone());
        controllers::start(
            &Leader { provider, context: context.clone(), write: write.clone() },
            tasks,
        );
        if self.watches_shifts_of.is_some() {
            let (this, ctx) = (Arc::clone(self), context.clone());
            tasks.spawn("zonalshift.events", async move { zonal_shift::tell(&this, &ctx).await });
        }
    }
}

/// Ends this process' term as the leader when it is dropped.
struct Term(Arc<AwsProvider>);

impl Drop for Term {
    fn drop(&mut self) {
        self.0.recovery.lead_until(self.0.clock.now());
    }
}

impl AwsProvider {
    /// An instance in the operator's words; its labels are fewer when its NodeClass is gone.
    fn present(&self, instance: &ec2::Instance) -> Instance {
        let class = instance.tags.get(keys::EC2NODECLASS).and_then(|name| self.classes.get(name));
        let catalog = class.as_ref().and_then(|class| self.catalog_of(class).ok());
        let instance_type = catalog.as_ref().and_then(|catalog| {
            catalog.instance_types.iter().find(|known| known.name == instance.instance_type)
        });
        conversion::instance(instance, instance_type, class.as_deref())
    }
}
