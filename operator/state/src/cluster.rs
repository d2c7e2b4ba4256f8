//! The state itself: objects by name, and the indexes that join them. Plain data that changes only
//! through [`Cluster::apply`]; no clock, no client.

mod apply;
mod attachments;
mod buffers;
mod devices;
pub(crate) mod plans;
mod pods;
mod quotas;
mod rebuild;
pub(crate) mod spread;
mod versions;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use smallvec::SmallVec;
use tenon_crds::conditions::nodeclaim as condition;
use tenon_crds::labels::{self, LabelRules};
use tenon_crds::{ConditionStatus, NodeClaim, NodeOverlay, NodePool, Requirement, ResourceList};
use tenon_planner::resources::Resources;
use tenon_planner::snapshot::{PodShape, Refusal};

use crate::change::{Kind, ObjectKey};
use crate::node_class::NodeClassKind;
use crate::pod::Pod;
use crate::scheduler::SchedulerConfig;
use crate::shape::Shapes;
use crate::shared::Shared;
use crate::{resources, wire};
use attachments::Attachments;
pub use buffers::{Limited, Room, Unresolved};
pub(crate) use devices::DeviceObjects;
pub use pods::BACKLOG;
pub(crate) use spread::Spread;

/// Everything that is known about the cluster. A clone shares the objects, and is for questions
/// about what is not so.
#[derive(Clone, Debug)]
pub struct Cluster {
    kinds: &'static [NodeClassKind],
    rules: LabelRules,
    /// Kinds that were listed at least once.
    listed: BTreeSet<Kind>,
    /// Kinds that are being listed, with the objects that the operator wrote since the list began:
    /// the list may be too old to have that.
    listing: BTreeMap<Kind, BTreeSet<ObjectKey>>,
    /// Kinds that count besides those that always do, and devices.
    expected: BTreeSet<Kind>,

    pub(super) pools: BTreeMap<String, Arc<NodePool>>,
    overlays: BTreeMap<String, Arc<NodeOverlay>>,
    pub(super) claims: BTreeMap<String, Claim>,
    pub(super) nodes: BTreeMap<String, Arc<wire::Node>>,
    /// Boxed: what is listed comes in order, and leaves the nodes of the map half empty.
    pub(super) pods: BTreeMap<ObjectKey, Box<Pod>>,
    /// How many pods kube-scheduler has not tried to place yet.
    untried: usize,
    pub(super) namespaces: BTreeMap<String, BTreeMap<String, String>>,
    pub(super) daemon_sets: BTreeMap<ObjectKey, DaemonSet>,
    pub(super) budgets: BTreeMap<ObjectKey, Arc<wire::PodDisruptionBudget>>,
    volumes: BTreeMap<String, Arc<wire::PersistentVolume>>,
    volume_claims: BTreeMap<ObjectKey, Arc<wire::PersistentVolumeClaim>>,
    storage_classes: BTreeMap<String, Arc<wire::StorageClass>>,
    attachments: Attachments,
    /// How many volumes each CSI driver can attach, by Node; `None` is a driver without a limit.
    pub(super) volume_limits: BTreeMap<String, BTreeMap<String, Option<u32>>>,

    /// CapacityBuffers and what they refer to.
    buffers: buffers::Buffers,

    /// Devices and claims; `None` while claims are not planned for.
    pub(crate) devices: Option<Box<DeviceObjects>>,

    /// The topology spread of pods without constraints of their own; `None` where there is none.
    pub(crate) spread: Option<Box<Spread>>,

    /// What makes machines sick; nothing while they are not repaired.
    pub(super) repair_policies: Vec<tenon_planner::snapshot::RepairPolicy>,

    /// Pods' deletion costs are the operator's to write.
    pub(super) manages_deletion_costs: bool,

    /// NodeClaims by `status.providerID`, Nodes by `spec.providerID`. More than one is a mistake
    /// that reconcilers report.
    claims_by_provider_id: BTreeMap<String, Names>,
    nodes_by_provider_id: BTreeMap<String, Names>,
    /// What is bound to each Node, also to Nodes that are not (yet) known.
    usage: BTreeMap<String, Usage>,
    shapes: Shapes,
    /// Names of Nodes and of owners, which several pods have.
    texts: Shared<str>,
    /// Requirements of NodeClaims: those of a launch have the same.
    requirements: Shared<[Requirement]>,
    /// Capacity and allocatable of NodeClaims and Nodes: those of one instance type have the same.
    /// And requests of NodeClaims.
    resources: Shared<ResourceList>,

    /// Machines that pods are expected on, by [`tenon_planner::snapshot::Node::key`], and until
    /// when.
    pub(super) nominated: BTreeMap<String, Timestamp>,
    /// NodeClaims whose deletion was decided, and the names and uids of those that replace them.
    marked: BTreeMap<String, Arc<BTreeMap<String, String>>>,
    /// NodeClaims that the API server did not let us delete.
    pub(super) refused: BTreeMap<String, Refusal>,
    /// When reboots were decided, by the uid of the NodeClaim: no more than count against a further
    /// one.
    pub(super) reboots: BTreeMap<String, Vec<Timestamp>>,
    /// The machines that pending pods were last planned onto.
    pub(super) plans: plans::Plans,
}

/// Names in order: nearly always one, for which a set takes ten times the room.
type Names = SmallVec<[String; 1]>;

/// A NodeClaim.
#[derive(Clone, Debug)]
pub struct Claim {
    /// The object, in the newest version that was seen or written.
    pub object: Arc<NodeClaim>,
    /// Created by the operator and not seen by the watch yet: a list may be too old to have it.
    /// What the operator writes to it later proves nothing about the watch.
    unconfirmed: bool,
}

/// A DaemonSet.
#[derive(Clone, Debug, PartialEq)]
pub struct DaemonSet {
    /// `metadata.uid`.
    pub uid: String,
    /// Of its template.
    pub shape: Arc<PodShape>,
}

/// Pods that are bound to a Node, and their requests.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Usage {
    /// Namespaces and names of the pods.
    pub pods: BTreeSet<ObjectKey>,
    /// The sum of their requests.
    pub requests: Resources,
    /// The share of daemons in `requests`.
    pub daemon_requests: Resources,
    /// The sum of their limits.
    pub limits: Resources,
    /// The share of daemons in `limits`.
    pub daemon_limits: Resources,
}

impl Cluster {
    /// Nothing is known yet. NodePools and NodeClaims with other kinds of NodeClasses are somebody
    /// else's.
    pub fn new(kinds: &'static [NodeClassKind], rules: LabelRules) -> Self {
        Self {
            kinds,
            rules,
            listed: BTreeSet::new(),
            listing: BTreeMap::new(),
            expected: BTreeSet::new(),
            pools: BTreeMap::new(),
            overlays: BTreeMap::new(),
            claims: BTreeMap::new(),
            nodes: BTreeMap::new(),
            pods: BTreeMap::new(),
            namespaces: BTreeMap::new(),
            daemon_sets: BTreeMap::new(),
            budgets: BTreeMap::new(),
            volumes: BTreeMap::new(),
            volume_claims: BTreeMap::new(),
            storage_classes: BTreeMap::new(),
            attachments: Attachments::default(),
            volume_limits: BTreeMap::new(),
            buffers: buffers::Buffers::default(),
            devices: None,
            spread: None,
            repair_policies: Vec::new(),
            manages_deletion_costs: false,
            claims_by_provider_id: BTreeMap::new(),
            nodes_by_provider_id: BTreeMap::new(),
            untried: 0,
            usage: BTreeMap::new(),
            shapes: Shapes::default(),
            texts: Shared::default(),
            requirements: Shared::default(),
            resources: Shared::default(),
            nominated: BTreeMap::new(),
            marked: BTreeMap::new(),
            refused: BTreeMap::new(),
            reboots: BTreeMap::new(),
            plans: plans::Plans::default(),
        }
    }

    /// From now on objects of this kind count, which do not always: the state is not complete
    /// without them.
    pub fn expect(&mut self, kind: Kind) {
        self.expected.insert(kind);
    }

    /// From now on the deletion costs of pods are the operator's to write: what is written there
    /// says nothing about their eviction.
    pub fn manage_deletion_costs(&mut self) {
        self.manages_deletion_costs = true;
    }

    /// From now on pods without topology spread constraints of their own get those of
    /// kube-scheduler's configuration.
    pub fn spread_by(&mut self, config: &SchedulerConfig) {
        if !config.default_constraints.is_empty() {
            self.spread = Some(Box::new(Spread::new(config, &self.rules)));
            self.expected.extend(Kind::SPREAD);
        }
    }

    /// The kinds that count.
    pub fn watched(&self) -> impl Iterator<Item = Kind> {
        Kind::ALL.iter().chain(&self.expected).copied()
    }

    /// Every kind was listed: what is not here is not there.
    pub fn has_listed_all(&self) -> bool {
        self.unlisted().next().is_none()
    }

    /// The kinds that were not listed yet.
    pub fn unlisted(&self) -> impl Iterator<Item = Kind> {
        self.watched().filter(|kind| !self.listed.contains(kind))
    }

    /// NodePools and NodeClaims were listed, so their CRDs are there.
    pub fn has_found_crds(&self) -> bool {
        [Kind::NodePool, Kind::NodeClaim].iter().all(|kind| self.listed.contains(kind))
    }

    /// The state can be planned on: everything was listed, and every NodeClaim is known to have a
    /// machine. A NodeClaim without one says nothing about what it will be, so plans would be made
    /// twice.
    pub fn is_synced(&self) -> bool {
        self.has_listed_all()
            && self.claims.values().all(|claim| claim.object.provider_id().is_some())
    }

    /// What the provider knows about labels.
    pub fn rules(&self) -> &LabelRules {
        &self.rules
    }

    /// A NodePool.
    pub fn pool(&self, name: &str) -> Option<&Arc<NodePool>> {
        self.pools.get(name)
    }

    /// All NodePools, by name.
    pub fn pools(&self) -> impl Iterator<Item = &Arc<NodePool>> {
        self.pools.values()
    }

    /// All NodeOverlays, by name.
    pub fn overlays(&self) -> impl Iterator<Item = &Arc<NodeOverlay>> {
        self.overlays.values()
    }

    /// A NodeClaim.
    pub fn claim(&self, name: &str) -> Option<&Arc<NodeClaim>> {
        self.claims.get(name).map(|claim| &claim.object)
    }

    /// All NodeClaims, by name.
    pub fn claims(&self) -> impl Iterator<Item = &Arc<NodeClaim>> {
        self.claims.values().map(|claim| &claim.object)
    }

    /// A Node.
    pub fn node(&self, name: &str) -> Option<&Arc<wire::Node>> {
        self.nodes.get(name)
    }

    /// All Nodes, by name.
    pub fn nodes(&self) -> impl Iterator<Item = &Arc<wire::Node>> {
        self.nodes.values()
    }

    /// The Nodes that say that they are this machine.
    pub fn nodes_of(&self, provider_id: &str) -> impl Iterator<Item = &Arc<wire::Node>> {
        let names = self.nodes_by_provider_id.get(provider_id).into_iter().flatten();
        names.filter_map(|name| self.nodes.get(name))
    }

    /// The NodeClaims that say that they are this machine.
    pub fn claims_of(&self, provider_id: &str) -> impl Iterator<Item = &Arc<NodeClaim>> {
        let names = self.claims_by_provider_id.get(provider_id).into_iter().flatten();
        names.filter_map(|name| self.claim(name))
    }

    /// The one Node of a NodeClaim; `None` when there is none or more than one.
    pub fn node_of(&self, claim: &NodeClaim) -> Option<&Arc<wire::Node>> {
        let mut nodes = self.nodes_of(claim.provider_id()?);
        nodes.next().filter(|_| nodes.next().is_none())
    }

    /// The one NodeClaim of a Node; `None` when there is none or more than one.
    pub fn claim_of(&self, node: &wire::Node) -> Option<&Arc<NodeClaim>> {
        let mut claims = self.claims_of(node.provider_id()?);
        claims.next().filter(|_| claims.next().is_none())
    }

    /// A pod that has not ended.
    pub fn pod(&self, key: &ObjectKey) -> Option<&Pod> {
        self.pods.get(key).map(|pod| &**pod)
    }

    /// All pods that have not ended, by namespace and name.
    pub fn pods(&self) -> impl Iterator<Item = (&ObjectKey, &Pod)> {
        self.pods.iter().map(|(key, pod)| (key, &**pod))
    }

    /// The pods that are bound to a Node.
    pub fn pods_on(&self, node: &str) -> impl Iterator<Item = (&ObjectKey, &Pod)> {
        let keys = self.usage.get(node).into_iter().flat_map(|usage| &usage.pods);
        keys.filter_map(|key| self.pods.get_key_value(key)).map(|(key, pod)| (key, &**pod))
    }

    /// Pods that are bound to a Node, and their requests.
    pub fn usage(&self, node: &str) -> Option<&Usage> {
        self.usage.get(node)
    }

    /// A PersistentVolume.
    pub fn volume(&self, name: &str) -> Option<&Arc<wire::PersistentVolume>> {
        self.volumes.get(name)
    }

    /// A PersistentVolumeClaim.
    pub fn volume_claim(&self, key: &ObjectKey) -> Option<&Arc<wire::PersistentVolumeClaim>> {
        self.volume_claims.get(key)
    }

    /// A StorageClass.
    pub fn storage_class(&self, name: &str) -> Option<&Arc<wire::StorageClass>> {
        self.storage_classes.get(name)
    }

    /// What is attached to a Node.
    pub fn attachments_of(&self, node: &str) -> impl Iterator<Item = &Arc<wire::VolumeAttachment>> {
        self.attachments.of(node)
    }

    /// Whether the deletion of a NodeClaim was decided or is under way.
    ///
    /// A decision holds no more once a replacement is being deleted: the NodeClaim stays, and
    /// nothing must be launched for its pods until the command is taken back.
    pub fn is_going(&self, claim: &NodeClaim) -> bool {
        let name = claim.metadata.name.as_deref().unwrap_or_default();
        claim.metadata.deletion_timestamp.is_some()
            || self.marked.get(name).is_some_and(|replacements| self.stay(replacements))
            || condition_of(claim, condition::INSTANCE_TERMINATING)
                .is_some_and(|(status, _)| status == ConditionStatus::True)
    }

    /// Whether NodeClaims, by name and uid, exist and are not being deleted.
    fn stay(&self, claims: &BTreeMap<String, String>) -> bool {
        claims.iter().all(|(name, uid)| {
            self.claim(name).is_some_and(|claim| {
                claim.metadata.uid.as_ref() == Some(uid)
                    && claim.metadata.deletion_timestamp.is_none()
            })
        })
    }

    /// Until when pods are expected on a machine.
    pub fn nominated_until(&self, key: &str) -> Option<Timestamp> {
        self.nominated.get(key).copied()
    }

    /// Why the API server did not let a NodeClaim be deleted when it was last asked.
    pub fn refusal(&self, claim: &str) -> Option<&Refusal> {
        self.refused.get(claim)
    }

    /// What the machines of each NodePool have together, without those that go, and their number.
    /// NodePools without machines are left out.
    pub fn pool_usages(&self) -> BTreeMap<String, (Resources, i64)> {
        let mut sums: BTreeMap<String, (Resources, i64)> = BTreeMap::new();
        for claim in self.claims().filter(|claim| !self.is_going(claim)) {
            let Some(pool) = label(claim, labels::NODEPOOL) else { continue };
            let (sum, n_nodes) = sums.entry(pool.to_owned()).or_default();
            sum.add(&self.capacity(claim));
            *n_nodes += 1;
        }
        sums
    }

    /// What the machine of a NodeClaim has: what its Node says, and what the NodeClaim says where
    /// the Node, which is still starting, says nothing.
    pub fn capacity(&self, claim: &NodeClaim) -> Resources {
        let status = claim.status.as_ref();
        let promised = status.map(|status| resources::from_list(&status.capacity));
        self.grown(claim, promised.unwrap_or_default(), |node| &node.status.capacity)
    }

    /// What pods may use of the machine of a NodeClaim, by the same rule.
    pub fn allocatable(&self, claim: &NodeClaim) -> Resources {
        let status = claim.status.as_ref();
        let promised = status.map(|status| resources::from_list(&status.allocatable));
        self.grown(claim, promised.unwrap_or_default(), |node| &node.status.allocatable)
    }

    fn grown(
        &self,
        claim: &NodeClaim,
        promised: Resources,
        of: impl Fn(&wire::Node) -> &ResourceList,
    ) -> Resources {
        let Some(node) = self.node_of(claim) else { return promised };
        let mut real = resources::from_list(of(node));
        if node.label(labels::INITIALIZED) != Some("true") {
            for (name, amount) in promised.iter() {
                if real.get(name) == 0 {
                    real.set(name, amount);
                }
            }
        }
        real
    }

    /// Whether a NodeClass of this kind is the provider's.
    pub(crate) fn is_managed(&self, group: &str, kind: &str) -> bool {
        self.kinds.iter().any(|known| known.group == group && known.kind == kind)
    }

    /// Whether a Node carries the label of one of the provider's kinds of NodeClasses.
    pub fn is_managed_node(&self, node: &wire::Node) -> bool {
        self.kinds.iter().any(|kind| node.label(kind.label).is_some())
    }
}

/// Status and last transition of a NodeClaim's condition, if it was ever set.
pub fn condition_of(claim: &NodeClaim, type_: &str) -> Option<(ConditionStatus, Timestamp)> {
    let conditions = &claim.status.as_ref()?.conditions;
    let condition = conditions.iter().find(|condition| condition.type_ == type_)?;
    Some((condition.status, condition.last_transition_time.0))
}

/// Whether a NodeClaim's condition is True.
pub fn is_true(claim: &NodeClaim, type_: &str) -> bool {
    condition_of(claim, type_).is_some_and(|(status, _)| status == ConditionStatus::True)
}

/// A NodeClaim's label.
pub fn label<'a>(claim: &'a NodeClaim, key: &str) -> Option<&'a str> {
    claim.metadata.labels.as_ref()?.get(key).map(String::as_str)
}

/// A NodeClaim's annotation.
pub fn annotation<'a>(claim: &'a NodeClaim, key: &str) -> Option<&'a str> {
    claim.metadata.annotations.as_ref()?.get(key).map(String::as_str)
}

/// `metadata.name`.
pub fn name(metadata: &kube::core::ObjectMeta) -> String {
    metadata.name.clone().unwrap_or_default()
}

#[cfg(test)]
mod tests;
