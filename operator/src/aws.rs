//! The cloud provider for AWS: machines are EC2 instances, launched as `EC2NodeClass` objects say.
//!
//! [`AwsProvider`] is made once ([`AwsProvider::connect`]) and handed to the operator, which sees
//! it through [`CloudProvider`](crate::cloud_provider::CloudProvider). What it knows about AWS it
//! keeps in memory: tasks that only read refresh it on every replica ([`refresh`]), so that a
//! standby takes over with warm caches; the controllers that write run on the leader
//! ([`controllers`]): [`nodeclass`] keeps the status of NodeClasses, [`interruption`] reads the
//! queue, [`garbage`] collects what nobody uses.
//!
//! Nothing but [`ec2`], [`clients`], [`ssm`], [`cluster`], [`nodeclass::profile`],
//! [`catalog::pricing`], [`zonal_shift`], [`interruption`] and [`kops`] calls AWS.

use std::sync::{Arc, OnceLock};

use tenon_crds::{ConditionStatus, EC2NodeClass, NodeClaim};
use tenon_planner::snapshot::{Catalog, NodeClassRef};

use self::catalog::{CatalogSettings, Catalogs, NoCatalog};
use self::clients::Clients;
use self::cluster::Cluster;
use self::error::Error;
use self::instances::Instances;
use self::launcher::{LaunchInput, Launcher};
use self::leader::Leader;
use self::metrics::AwsMetrics;
use self::nodeclass::lookups::Lookups;
use self::nodeclass::profile::Profiles;
use self::nodeclass::validation::Validator;
use self::options::AwsSettings;
use self::recovery::{AdoptionScope, Recovery, RecoveryError};
use self::ssm::Parameters;
use self::ttl::TtlMap;
use self::zonal_shift::ZonalShifts;
use crate::clock::Clock;
use crate::cloud_provider::{CloudError, Launched, NodeClassKind, READINESS_UNKNOWN};
use crate::metrics::Metrics;
use crate::node_classes::NodeClasses;
use crate::state::State;

mod backoff;
mod call_batcher;
pub(crate) mod calls;
pub(crate) mod catalog;
mod clients;
mod cloud_provider;
mod cluster;
mod connect;
mod controllers;
mod conversion;
mod deprecation;
mod drift;
mod ec2;
mod error;
mod flight;
mod garbage;
mod instances;
pub mod interruption;
mod kops;
mod launcher;
mod leader;
mod matching;
pub(crate) mod metrics;
mod nodeclass;
mod objects;
mod offerings;
pub(crate) mod options;
mod pace;
pub mod probe;
mod provider_id;
mod recovery;
mod refresh;
mod repair;
mod reservation_end;
mod reservations;
mod ssm;
mod tagging;
mod tags;
mod ttl;
pub mod user_data;
mod zonal_shift;

/// The kind of NodeClass that AWS serves.
pub const KIND: NodeClassKind = tenon_state::node_class::EC2;

/// The cloud provider for AWS.
pub struct AwsProvider {
    options: AwsSettings,
    clients: Clients,
    cluster: Cluster,
    classes: Arc<NodeClasses<EC2NodeClass>>,
    /// NodeClaims and Nodes; nothing is known of them before
    /// [`CloudProvider::start_watching`](crate::cloud_provider::CloudProvider::start_watching).
    state: OnceLock<State>,
    /// The API server, from the same moment.
    kubernetes: OnceLock<kube::Client>,
    catalogs: Catalogs,
    launcher: Launcher,
    instances: Instances,
    parameters: Parameters,
    profiles: Profiles,
    validator: Validator,
    lookups: Lookups,
    metrics: AwsMetrics,
    /// Claims that this process has launched, by uid: a result that could not be written to
    /// Kubernetes is not lost.
    launched: TtlMap<String, Launched>,
    recovery: Recovery,
    zonal_shifts: Arc<ZonalShifts>,
    /// The ARN of the cluster, if its zonal shifts are watched.
    watches_shifts_of: Option<String>,
    clock: Clock,
}

impl std::fmt::Debug for AwsProvider {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AwsProvider")
            .field("cluster", &self.options.cluster_name)
            .finish_non_exhaustive()
    }
}

impl AwsProvider {
    /// Puts the parts together; calls nothing.
    pub(crate) fn assemble(
        options: AwsSettings,
        clients: Clients,
        cluster: Cluster,
        clock: Clock,
        metrics: &Metrics,
    ) -> Self {
        let metrics = AwsMetrics::new(metrics);
        let name: Arc<str> = Arc::from(options.cluster_name.as_str());
        let hour = std::time::Duration::from_secs(3600);
        let catalogs = Catalogs::new(CatalogSettings {
            region: clients.region.clone(),
            vm_memory_overhead: options.vm_memory_overhead_percent,
            reserved_enis: options.reserved_enis,
            reserved_capacity: options.reserved_capacity,
        });
        let zonal_shifts = Arc::clone(&catalogs.shifts);
        Self {
            catalogs,
            launcher: Launcher::new(
                clients.ec2.clone(),
                clients.region.clone(),
                Arc::clone(&name),
                options.subnet_refresh_interval,
                options.reserved_capacity,
                metrics.clone(),
            ),
            instances: Instances::new(
                clients.ec2.clone(),
                Arc::clone(&name),
                metrics.clone(),
                Arc::clone(&zonal_shifts),
            ),
            parameters: Parameters::new(clients.ssm.clone()),
            profiles: Profiles::new(clients.iam.clone(), name, clients.region.clone()),
            validator: Validator::new(
                clients.ec2.clone(),
                clients.region.clone(),
                !options.disable_dry_run,
            ),
            lookups: Lookups::new(options.ami_refresh_interval, options.subnet_refresh_interval),
            classes: Arc::new(NodeClasses::new()),
            state: OnceLock::new(),
            kubernetes: OnceLock::new(),
            launched: TtlMap::new(hour),
            recovery: Recovery::default(),
            zonal_shifts,
            watches_shifts_of: None,
            clock,
            metrics,
            options,
            clients,
            cluster,
        }
    }

    fn class_of(&self, reference: &NodeClassRef) -> Option<Arc<EC2NodeClass>> {
        (reference.group == KIND.group && reference.kind == KIND.kind)
            .then(|| self.classes.get(&reference.name))
            .flatten()
    }

    /// The NodeClaims that were listed and that the caller is after.
    fn claims(&self, wanted: impl Fn(&NodeClaim) -> bool) -> Vec<Arc<NodeClaim>> {
        let Some(state) = self.state.get() else { return Vec::new() };
        state.read().claims().filter(|claim| wanted(claim)).cloned().collect()
    }

    /// Forgets what was computed for NodeClasses that are gone. Every replica computes, so every
    /// replica forgets.
    fn forget_gone(&self) {
        let known = |class: &str| self.classes.get(class).is_some();
        self.catalogs.keep(known);
        self.validator.keep(known);
        self.lookups.drop_ended();
    }

    /// Refuses to touch a machine, or to take it for gone, while a zonal shift moves the cluster
    /// away from its zone.
    fn check_zone(&self, provider_id: &str) -> Result<(), CloudError> {
        let zone = provider_id::zone(provider_id).unwrap_or_default();
        let checked = self.zonal_shifts.check("DescribeInstances", zone);
        checked.map_err(|error| other("determine the state of the instance", error))
    }

    /// What can be launched with a class now.
    fn catalog_of(&self, class: &EC2NodeClass) -> Result<Arc<Catalog>, NoCatalog> {
        self.catalogs.catalog(class, self.lookups.placement_group(class).as_ref())
    }

    /// Whether there may be instance profiles that the operator made for this class and that nobody
    /// deletes but it. A list of them costs a permission, and in isolated networks IAM can't be
    /// reached.
    fn may_own_profiles(&self, class: &EC2NodeClass) -> bool {
        let made_elsewhere = self.options.static_instance_profiles && class.spec.role.is_none();
        !self.options.isolated_vpc && !made_elsewhere
    }

    async fn create_instance(
        &self,
        claim: &NodeClaim,
        uid: &str,
        overlaid: Option<Arc<Catalog>>,
    ) -> Result<Launched, CloudError> {
        let class_name = claim.spec.node_class_ref.name.as_str();
        if !self.classes.is_synced() {
            return Err(not_known("EC2NodeClasses were not read yet"));
        }
        let class = self
            .classes
            .get(class_name)
            .filter(|class| class.metadata.deletion_timestamp.is_none())
            .ok_or_else(|| {
                CloudError::InsufficientCapacity(format!(
                    "resolving EC2NodeClass {class_name}: it does not exist"
                ))
            })?;
        check_ready(&class)?;
        self.catalogs.prices.known().await;
        let known = self.catalog_of(&class).map_err(|missing| CloudError::Create {
            reason: "InstanceTypeResolutionFailed".to_owned(),
            message: format!("Error resolving instance types: {missing}"),
            source: None,
        })?;
        let catalog = overlaid.unwrap_or(known);
        let fleet = |launched: launcher::LaunchedInstance| {
            if let Some(reservation) = &launched.reservation {
                self.catalogs.reservations.take(&reservation.id);
            }
            conversion::launched_fleet(&launched, claim, &class, &catalog, self.clock.now())
        };
        if let Some(resumed) = self.launcher.resume(uid, &self.catalogs).await {
            return resumed.map(fleet);
        }
        if let Some(found) = self.recover(claim, &class, &catalog).await? {
            tracing::info!(instance = found.id, "found the instance that was launched before");
            return Ok(conversion::launched_instance(&found, claim, &class, &catalog));
        }
        let cluster = self.cluster.facts();
        let placement_group = self.lookups.placement_group(&class);
        let input = LaunchInput {
            claim,
            class: &class,
            catalog: &catalog,
            cluster: &cluster,
            placement_group: placement_group.as_ref(),
        };
        self.launcher.launch(&input, &self.catalogs).await.map(fleet)
    }

    /// The instance that a former leader launched for the claim.
    async fn recover(
        &self,
        claim: &NodeClaim,
        class: &EC2NodeClass,
        catalog: &Catalog,
    ) -> Result<Option<ec2::Instance>, CloudError> {
        if !self.recovery.may_have_been_launched(claim) {
            return Ok(None);
        }
        let Some(kubernetes) = self.kubernetes.get() else {
            return Err(not_known("NodeClaims were not read yet"));
        };
        let scope = AdoptionScope { kubernetes, instances: &self.instances, class, catalog };
        self.recovery.find_or_adopt(claim, scope).await.map_err(|error| match error {
            RecoveryError::Aws(error) => launcher::call_failed(error),
            error => CloudError::Create {
                reason: "LaunchFailed".to_owned(),
                message: "checking whether the instance was launched before".to_owned(),
                source: Some(Box::new(error)),
            },
        })
    }

    /// The machine of a claim, also when the claim's status does not name it yet.
    async fn provider_id_of(
        &self,
        claim: &NodeClaim,
        uid: &str,
    ) -> Result<Option<String>, CloudError> {
        if let Some(provider_id) = claim.provider_id() {
            return Ok(Some(provider_id.to_owned()));
        }
        if let Some(launched) = self.launched.get(uid) {
            return Ok(Some(launched.instance.provider_id));
        }
        if !self.recovery.may_have_been_launched(claim) && !self.launcher.is_unfinished(uid) {
            return Ok(None);
        }
        let found = self.recovery.find(&self.instances, claim).await;
        let found = found.map_err(|error| other("find the instance", error))?;
        Ok(found.map(|instance| provider_id::provider_id(&instance.zone, &instance.id)))
    }
}

fn other(operation: &str, error: Error) -> CloudError {
    CloudError::Other { operation: operation.to_owned(), source: Box::new(error) }
}

/// Whether machines may be launched with the class as it is now.
fn check_ready(class: &EC2NodeClass) -> Result<(), CloudError> {
    let Some(ready) = nodeclass::status::ready(class) else {
        return Err(not_known("object is awaiting reconciliation"));
    };
    match ready.status {
        ConditionStatus::False => Err(CloudError::NodeClassNotReady(ready.message.clone())),
        ConditionStatus::Unknown => Err(not_known(&ready.message)),
        ConditionStatus::True if ready.observed_generation != class.metadata.generation => {
            Err(CloudError::NodeClassNotReady(
                "EC2NodeClass status has not been reconciled against the latest spec".to_owned(),
            ))
        }
        ConditionStatus::True => Ok(()),
    }
}

fn not_known(message: &str) -> CloudError {
    CloudError::Create {
        reason: READINESS_UNKNOWN.to_owned(),
        message: format!("resolving NodeClass readiness, NodeClass is in Ready=Unknown, {message}"),
        source: None,
    }
}

#[cfg(test)]
mod tests;
