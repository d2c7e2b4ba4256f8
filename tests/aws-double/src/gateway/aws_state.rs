//! What every service of the gateway can see: the account, the clock, moto behind us, EC2's state,
//! prices and faults, and the cluster that the account holds.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tenon_iam_policies::Partition;

use super::amis::{Ami, amis};
use super::catalog::Catalog;
use super::consistency::Consistency;
use super::faults::Faults;
use super::instances::{InstanceTable, StateTimes};
use super::moto_client::MotoClient;
use super::placement_groups::PlacementGroups;
use super::prices::Prices;
use super::request::Params;
use super::reservations::Reservations;
use super::scaling_groups::Groups;
use super::shifts::ZonalShifts;
use super::templates::Templates;
use crate::clock::Clock;

/// The EKS cluster of the bed, as `DescribeCluster` and the machines see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cluster {
    /// Name.
    pub name: String,
    /// URL of the API server.
    pub endpoint: String,
    /// The API server's CA certificate in PEM.
    pub ca_pem: String,
    /// Kubernetes minor version: `1.36`.
    pub version: String,
    /// Issuer URL of service account tokens.
    pub issuer: String,
    /// The VPC.
    pub vpc_id: String,
    /// Its subnets, one per zone.
    pub subnet_ids: Vec<String>,
    /// The cluster security group.
    pub cluster_security_group_id: String,
    /// Service CIDR (IPv4).
    pub service_cidr: String,
}

/// A fleet that was asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fleet {
    /// Tags for the fleet itself, from the request.
    pub tags: BTreeMap<String, String>,
    /// The client token of its request.
    pub client_token: Option<String>,
    /// The request, to tell a repetition from another request with the same token.
    pub(super) request: Params,
    /// The answer's content, given again to a repetition.
    pub(super) answer: String,
}

/// The state of the double that services share.
#[derive(Debug)]
pub struct AwsState {
    account: String,
    region: String,
    clock: Clock,
    moto: MotoClient,
    cluster: RwLock<Option<Cluster>>,
    rng: Mutex<StdRng>,
    instances: InstanceTable,
    templates: Templates,
    pub(super) fleets: Mutex<BTreeMap<String, Fleet>>,
    /// Tags that users put on images.
    pub(super) image_tags: Mutex<BTreeMap<String, BTreeMap<String, String>>>,
    /// Customer managed keys of queues, by the queue's name.
    pub(super) queue_keys: Mutex<BTreeMap<String, String>>,
    /// Auto Scaling groups.
    pub(super) auto_scaling: Mutex<Groups>,
    amis: Vec<Ami>,
    catalog: Arc<Catalog>,
    prices: Prices,
    consistency: Consistency,
    faults: Faults,
    reservations: Reservations,
    placement_groups: PlacementGroups,
    zonal_shifts: ZonalShifts,
}

impl AwsState {
    /// The state before moto, with an empty catalog.
    pub fn new(
        account: impl Into<String>,
        region: impl Into<String>,
        clock: Clock,
        moto: MotoClient,
    ) -> Self {
        let seed = 1;
        Self {
            account: account.into(),
            region: region.into(),
            clock,
            moto,
            cluster: RwLock::new(None),
            rng: Mutex::new(StdRng::seed_from_u64(seed)),
            instances: InstanceTable::new(clock, StateTimes::default()),
            templates: Templates::default(),
            fleets: Mutex::default(),
            image_tags: Mutex::default(),
            queue_keys: Mutex::default(),
            auto_scaling: Mutex::default(),
            amis: amis(),
            catalog: Arc::default(),
            prices: Prices::default(),
            consistency: Consistency::new(clock),
            faults: Faults::new(seed),
            reservations: Reservations::default(),
            placement_groups: PlacementGroups::default(),
            zonal_shifts: ZonalShifts::default(),
        }
    }

    /// The same state with these instance types.
    #[must_use]
    pub(crate) fn with_catalog(mut self, catalog: Catalog) -> Self {
        self.catalog = Arc::new(catalog);
        self
    }

    /// The same state with another seed for IDs and for faults with a probability.
    #[must_use]
    pub(crate) fn with_seed(mut self, seed: u64) -> Self {
        self.rng = Mutex::new(StdRng::seed_from_u64(seed));
        self.faults = Faults::new(seed);
        self
    }

    /// The account ID.
    pub fn account(&self) -> &str {
        &self.account
    }

    /// The bed's region.
    pub fn region(&self) -> &str {
        &self.region
    }

    /// The partition of the bed's region.
    pub fn partition(&self) -> Partition {
        Partition::of_region(&self.region)
    }

    /// ARN of something of a service in the bed's region and account.
    pub fn arn(&self, service: &str, resource: &str) -> String {
        format!("arn:{}:{service}:{}:{}:{resource}", self.partition(), self.region, self.account)
    }

    /// ARN of something in IAM.
    pub(crate) fn iam_arn(&self, resource: &str) -> String {
        format!("arn:{}:iam::{}:{resource}", self.partition(), self.account)
    }

    /// Gives all times that answers hold.
    pub fn clock(&self) -> Clock {
        self.clock
    }

    /// moto, for calls of our own that are neither authorised nor logged.
    pub fn moto(&self) -> &MotoClient {
        &self.moto
    }

    /// The cluster, once the bed has announced it.
    pub fn cluster(&self) -> Option<Cluster> {
        self.cluster.read().clone()
    }

    /// Announces the cluster.
    pub fn set_cluster(&self, cluster: Cluster) {
        *self.cluster.write() = Some(cluster);
    }

    /// The customer managed key that encrypts a queue.
    pub(crate) fn queue_key(&self, queue: &str) -> Option<String> {
        self.queue_keys.lock().get(queue).cloned()
    }

    /// EC2 instances.
    pub fn instances(&self) -> &InstanceTable {
        &self.instances
    }

    /// EC2 launch templates.
    pub fn templates(&self) -> &Templates {
        &self.templates
    }

    /// Machine images.
    pub fn amis(&self) -> &[Ami] {
        &self.amis
    }

    /// Instance types and their zones.
    pub fn catalog(&self) -> &Arc<Catalog> {
        &self.catalog
    }

    /// Prices.
    pub fn prices(&self) -> &Prices {
        &self.prices
    }

    /// Eventual consistency.
    pub fn consistency(&self) -> &Consistency {
        &self.consistency
    }

    /// Capacity reservations.
    pub fn reservations(&self) -> &Reservations {
        &self.reservations
    }

    /// Placement groups.
    pub fn placement_groups(&self) -> &PlacementGroups {
        &self.placement_groups
    }

    /// Zones that the cluster's traffic is moved away from.
    pub fn zonal_shifts(&self) -> &ZonalShifts {
        &self.zonal_shifts
    }

    /// Faults.
    pub fn faults(&self) -> &Faults {
        &self.faults
    }

    /// A new resource ID: `i-` and 17 hexadecimal digits, from the seeded source.
    pub fn id(&self, prefix: &str) -> String {
        let number: u128 = self.rng.lock().random();
        format!("{prefix}-{:017x}", number & ((1 << 68) - 1))
    }

    /// Tags of an EC2 resource that the gateway holds (instance, volume, network interface, spot
    /// request, fleet, launch template, image, placement group); `None` for those that moto holds
    /// (VPCs, subnets, security groups, …).
    pub(crate) fn ec2_tags(&self, id: &str) -> Option<BTreeMap<String, String>> {
        let kind = id.split_once('-').map_or("", |(kind, _)| kind);
        match kind {
            "i" => self.instances.get(id).map(|instance| instance.tags.clone()),
            "lt" => self.templates.get(id).map(|template| template.tags),
            "pg" => self.placement_groups.get(id).map(|group| group.tags),
            "fleet" => self.fleets.lock().get(id).map(|fleet| fleet.tags.clone()),
            "ami" => Some(self.image_tags.lock().get(id).cloned().unwrap_or_default()),
            "vol" => self
                .instances
                .all()
                .values()
                .flat_map(|instance| &instance.volumes)
                .find(|volume| volume.id == id)
                .map(|volume| volume.tags.clone()),
            "eni" => {
                let all = self.instances.all();
                all.values()
                    .flat_map(|instance| &instance.interfaces)
                    .find(|interface| interface.id == id)
                    .map(|interface| interface.tags.clone())
            }
            "sir" => {
                let all = self.instances.all();
                all.values()
                    .find(|instance| instance.spot_request_id.as_deref() == Some(id))
                    .map(|instance| instance.tags.clone())
            }
            _ => None,
        }
    }
}
