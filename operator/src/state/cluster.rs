//! The state itself: objects by name, and the indexes that join them. Plain data that changes only through [`Cluster::apply`]; no clock, no client.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use tenon_crds::conditions::nodeclaim as condition;
use tenon_crds::labels::{self, LabelRules};
use tenon_crds::{ConditionStatus, NodeClaim, NodePool};
use tenon_planner::resources::Resources;
use tenon_planner::snapshot::PodShape;

use super::change::{Change, Kind, Object, ObjectKey, PodEvent, Touched};
use super::pod::{self, Pod};
use super::resources;
use super::shape::{self, Shapes};
use crate::cloud_provider::NodeClassKind;
use crate::watch::{version, wire};

/// Everything that is known about the cluster.
#[derive(Debug)]
pub struct Cluster {
    kinds: &'static [NodeClassKind],
    rules: LabelRules,
    /// Kinds that were listed at least once.
    listed: BTreeSet<Kind>,

    pub(super) pools: BTreeMap<String, Arc<NodePool>>,
    pub(super) claims: BTreeMap<String, Claim>,
    pub(super) nodes: BTreeMap<String, Arc<wire::Node>>,
    pub(super) pods: BTreeMap<ObjectKey, Pod>,
    pub(super) namespaces: BTreeMap<String, BTreeMap<String, String>>,
    pub(super) daemon_sets: BTreeMap<ObjectKey, DaemonSet>,
    pub(super) budgets: BTreeMap<ObjectKey, Arc<wire::PodDisruptionBudget>>,
    volumes: BTreeMap<String, Arc<wire::PersistentVolume>>,
    volume_claims: BTreeMap<ObjectKey, Arc<wire::PersistentVolumeClaim>>,
    storage_classes: BTreeMap<String, Arc<wire::StorageClass>>,
    attachments: BTreeMap<String, Arc<wire::VolumeAttachment>>,

    /// NodeClaims by `status.providerID`, Nodes by `spec.providerID`. More than one is a mistake that reconcilers report.
    claims_by_provider_id: BTreeMap<String, BTreeSet<String>>,
    nodes_by_provider_id: BTreeMap<String, BTreeSet<String>>,
    /// What is bound to each Node, also to Nodes that are not (yet) known.
    usage: BTreeMap<String, Usage>,
    shapes: Shapes,

    /// Machines that pods are expected on, by [`tenon_planner::snapshot::Node::key`], and until when.
    pub(super) nominated: BTreeMap<String, Timestamp>,
    /// NodeClaims whose deletion was decided.
    marked: BTreeSet<String>,
    /// The NodeClaim that a pending pod was last planned onto.
    planned: BTreeMap<ObjectKey, String>,
}

/// A NodeClaim.
#[derive(Clone, Debug)]
pub struct Claim {
    /// The object, in the newest version that was seen or written.
    pub object: Arc<NodeClaim>,
    /// Created by the operator and not seen by the watch yet: a list may be too old to have it.
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

/// What is bound to a Node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Usage {
    /// The pods.
    pub pods: BTreeSet<ObjectKey>,
    /// The sum of their requests.
    pub requests: Resources,
    /// The share of daemons in `requests`.
    pub daemon_requests: Resources,
}

impl Cluster {
    /// Nothing is known yet. NodePools and NodeClaims with other kinds of NodeClasses are somebody else's.
    pub fn new(kinds: &'static [NodeClassKind], rules: LabelRules) -> Self {
        Self {
            kinds,
            rules,
            listed: BTreeSet::new(),
            pools: BTreeMap::new(),
            claims: BTreeMap::new(),
            nodes: BTreeMap::new(),
            pods: BTreeMap::new(),
            namespaces: BTreeMap::new(),
            daemon_sets: BTreeMap::new(),
            budgets: BTreeMap::new(),
            volumes: BTreeMap::new(),
            volume_claims: BTreeMap::new(),
            storage_classes: BTreeMap::new(),
            attachments: BTreeMap::new(),
            claims_by_provider_id: BTreeMap::new(),
            nodes_by_provider_id: BTreeMap::new(),
            usage: BTreeMap::new(),
            shapes: Shapes::default(),
            nominated: BTreeMap::new(),
            marked: BTreeSet::new(),
            planned: BTreeMap::new(),
        }
    }

    // === reading ===

    /// Every kind was listed: what is not here is not there.
    pub fn has_listed_all(&self) -> bool {
        Kind::ALL.iter().all(|kind| self.listed.contains(kind))
    }

    /// NodePools and NodeClaims were listed, so their CRDs are there.
    pub fn has_found_crds(&self) -> bool {
        [Kind::NodePool, Kind::NodeClaim].iter().all(|kind| self.listed.contains(kind))
    }

    /// The state can be planned on: everything was listed, and every NodeClaim is known to have a machine. A NodeClaim without one says nothing about
    /// what it will be, so plans would be made twice.
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
        self.pods.get(key)
    }

    /// All pods that have not ended, by namespace and name.
    pub fn pods(&self) -> impl Iterator<Item = (&ObjectKey, &Pod)> {
        self.pods.iter()
    }

    /// The pods that are bound to a Node.
    pub fn pods_on(&self, node: &str) -> impl Iterator<Item = (&ObjectKey, &Pod)> {
        let keys = self.usage.get(node).into_iter().flat_map(|usage| &usage.pods);
        keys.filter_map(|key| self.pods.get_key_value(key))
    }

    /// What is bound to a Node.
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
        self.attachments.values().filter(move |attachment| attachment.spec.node_name == node)
    }

    /// Whether the deletion of a NodeClaim was decided or is under way.
    pub fn is_going(&self, claim: &NodeClaim) -> bool {
        let name = claim.metadata.name.as_deref().unwrap_or_default();
        claim.metadata.deletion_timestamp.is_some()
            || self.marked.contains(name)
            || condition_of(claim, condition::INSTANCE_TERMINATING)
                .is_some_and(|(status, _)| status == ConditionStatus::True)
    }

    /// Until when pods are expected on a machine.
    pub fn nominated_until(&self, key: &str) -> Option<Timestamp> {
        self.nominated.get(key).copied()
    }

    /// The pods that were last planned onto a NodeClaim and are not bound yet.
    pub fn planned_onto<'a>(
        &'a self,
        claim: &'a str,
    ) -> impl Iterator<Item = (&'a ObjectKey, &'a Pod)> {
        let keys = self.planned.iter().filter(move |(_, onto)| *onto == claim).map(|(key, _)| key);
        keys.filter_map(|key| self.pods.get_key_value(key))
            .filter(|(_, pod)| pod.node.is_none() && !pod.is_terminating())
    }

    /// What the machines of a NodePool have together, without those that go; `nodes` is their number.
    pub fn pool_usage(&self, pool: &str) -> (Resources, i64) {
        let mut sum = Resources::default();
        let mut n_nodes = 0;
        for claim in self.claims() {
            if label(claim, labels::NODEPOOL) == Some(pool) && !self.is_going(claim) {
                sum.add(&self.capacity(claim));
                n_nodes += 1;
            }
        }
        (sum, n_nodes)
    }

    /// What the machine of a NodeClaim has: what its Node says, and what the NodeClaim says where the Node, which is still starting, says nothing.
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
        of: impl Fn(&wire::Node) -> &tenon_crds::ResourceList,
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

    // === changing ===

    /// Makes a change, and says what it touched.
    pub fn apply(&mut self, change: Change) -> Vec<Touched> {
        let mut touched = Vec::new();
        match change {
            Change::Applied(object) => self.put(object, false, &mut touched),
            Change::Written(object) => self.put(object, true, &mut touched),
            Change::Deleted(kind, key, version) => self.delete(kind, &key, version, &mut touched),
            Change::Listed(kind, keys) => self.reset(kind, &keys, &mut touched),
            Change::Created(claim) => {
                let name = name(&claim.metadata);
                // The watch may have been faster.
                if !self.claims.contains_key(&name) {
                    self.put_claim(*claim, &mut touched);
                    if let Some(claim) = self.claims.get_mut(&name) {
                        claim.unconfirmed = true;
                    }
                }
            }
            Change::ClaimGone(name, uid) => {
                if self.claim(&name).is_some_and(|claim| claim.metadata.uid.as_ref() == Some(&uid))
                {
                    self.remove_claim(&name, &mut touched);
                }
            }
            Change::Nominated(keys, until) => {
                for key in keys {
                    let entry = self.nominated.entry(key).or_insert(until);
                    *entry = until.max(*entry);
                }
            }
            Change::Marked(claims) => {
                for name in claims {
                    touched.push(Touched::NodeClaim(name.clone()));
                    self.marked.insert(name);
                }
            }
            Change::Unmarked(claims) => {
                for name in claims {
                    self.marked.remove(&name);
                    touched.push(Touched::NodeClaim(name));
                }
            }
            Change::Planned(pods) => self.planned.extend(pods),
        }
        touched
    }

    /// `known_only`: the object was written by the operator; when the watch has already seen it go, it must not come back.
    fn put(&mut self, object: Object, known_only: bool, touched: &mut Vec<Touched>) {
        match object {
            Object::NodePool(pool) => self.put_pool(*pool, known_only, touched),
            Object::NodeClaim(claim) => {
                if !known_only || self.claims.contains_key(&name(&claim.metadata)) {
                    self.put_claim(*claim, touched);
                }
            }
            Object::Node(node) => {
                if !known_only || self.nodes.contains_key(node.name()) {
                    self.put_node(*node, touched);
                }
            }
            Object::Pod(pod) => self.put_pod(&pod, touched),
            Object::Namespace(namespace) => {
                let labels = namespace.metadata.labels.unwrap_or_default();
                self.namespaces.insert(namespace.metadata.name.unwrap_or_default(), labels);
            }
            Object::DaemonSet(daemon_set) => {
                let wire::DaemonSet { metadata, spec } = *daemon_set;
                let namespace = metadata.namespace.clone().unwrap_or_default();
                let labels = spec.template.metadata.labels.unwrap_or_default();
                let shape = shape::shape(&namespace, &labels, &spec.template.spec, &self.rules);
                let shape = self.shapes.intern(shape);
                let uid = metadata.uid.clone().unwrap_or_default();
                self.daemon_sets.insert(key(&metadata), DaemonSet { uid, shape });
                touched.push(Touched::Other(Kind::DaemonSet));
            }
            Object::PodDisruptionBudget(budget) => {
                self.budgets.insert(key(&budget.metadata), Arc::new(*budget));
                touched.push(Touched::Other(Kind::PodDisruptionBudget));
            }
            Object::PersistentVolume(volume) => {
                self.volumes.insert(name(&volume.metadata), Arc::new(*volume));
                touched.push(Touched::Other(Kind::PersistentVolume));
            }
            Object::PersistentVolumeClaim(claim) => {
                self.volume_claims.insert(key(&claim.metadata), Arc::new(*claim));
                touched.push(Touched::Other(Kind::PersistentVolumeClaim));
            }
            Object::StorageClass(class) => {
                self.storage_classes.insert(name(&class.metadata), Arc::new(*class));
                touched.push(Touched::Other(Kind::StorageClass));
            }
            Object::VolumeAttachment(attachment) => {
                touched.push(Touched::Node(attachment.spec.node_name.clone()));
                self.attachments.insert(name(&attachment.metadata), Arc::new(*attachment));
            }
        }
    }

    fn put_pool(&mut self, pool: NodePool, known_only: bool, touched: &mut Vec<Touched>) {
        let reference = &pool.spec.template.spec.node_class_ref;
        let managed = self.is_managed(&reference.group, &reference.kind);
        let name = name(&pool.metadata);
        let known = self.pools.get(&name);
        let newer = known.is_none_or(|known| is_newer(&pool.metadata, &known.metadata));
        if managed && newer && (known.is_some() || !known_only) {
            self.pools.insert(name.clone(), Arc::new(pool));
            touched.push(Touched::NodePool(name));
        } else if !managed {
            self.pools.remove(&name);
        }
    }

    fn put_claim(&mut self, claim: NodeClaim, touched: &mut Vec<Touched>) {
        let reference = &claim.spec.node_class_ref;
        if !self.is_managed(&reference.group, &reference.kind) {
            return;
        }
        let name = name(&claim.metadata);
        if let Some(known) = self.claims.get_mut(&name) {
            known.unconfirmed = false;
            if !is_newer(&claim.metadata, &known.object.metadata) {
                return;
            }
        }
        let id = claim.provider_id().map(str::to_owned);
        let claim = Claim { object: Arc::new(claim), unconfirmed: false };
        let before = self.claims.insert(name.clone(), claim);
        let before = before.as_ref().and_then(|claim| claim.object.provider_id());
        reindex(&mut self.claims_by_provider_id, &name, before, id.as_deref());
        touched.push(Touched::NodeClaim(name));
    }

    fn put_node(&mut self, node: wire::Node, touched: &mut Vec<Touched>) {
        let name = node.name().to_owned();
        let before = self.nodes.get(&name);
        if before.is_some_and(|before| !is_newer(&node.metadata, &before.metadata)) {
            return;
        }
        let before = before.and_then(|node| node.provider_id().map(str::to_owned));
        let id = node.provider_id().map(str::to_owned);
        self.nodes.insert(name.clone(), Arc::new(node));
        reindex(&mut self.nodes_by_provider_id, &name, before.as_deref(), id.as_deref());
        touched.push(Touched::Node(name));
    }

    fn put_pod(&mut self, pod: &wire::Pod, touched: &mut Vec<Touched>) {
        let key = pod::key(pod);
        let version = version(pod.metadata.resource_version.as_deref());
        let before = self.pods.get(&key);
        if before.is_some_and(|before| version != 0 && version < before.version) {
            return;
        }
        let labels = pod.metadata.labels.clone().unwrap_or_default();
        let shape = shape::shape(&key.namespace, &labels, &pod.spec, &self.rules);
        // Most updates change nothing that scheduling sees.
        let shape = match before {
            Some(before) if *before.shape == shape => Arc::clone(&before.shape),
            _ => self.shapes.intern(shape),
        };
        let after = Pod::from_wire(pod, version, shape);
        self.replace_pod(key, after, touched);
    }

    fn replace_pod(&mut self, key: ObjectKey, after: Option<Pod>, touched: &mut Vec<Touched>) {
        let before = self.pods.remove(&key);
        let event = pod::event(before.as_ref(), after.as_ref());
        if let Some(before) = &before {
            self.release(&key, before);
        }
        if let Some(after) = after {
            self.occupy(&key, &after);
            if after.node.is_some() {
                self.planned.remove(&key);
            }
            self.pods.insert(key.clone(), after);
        } else {
            self.planned.remove(&key);
        }
        let nothing = PodEvent { node: None, provisionable: false, moved: false };
        if event != nothing || before.is_some() {
            touched.push(Touched::Pod(key, event));
        }
    }

    fn occupy(&mut self, key: &ObjectKey, pod: &Pod) {
        let Some(node) = &pod.node else { return };
        let usage = self.usage.entry(node.clone()).or_default();
        usage.pods.insert(key.clone());
        usage.requests.add(&pod.shape.requests);
        if pod.is_daemon() {
            usage.daemon_requests.add(&pod.shape.requests);
        }
    }

    fn release(&mut self, key: &ObjectKey, pod: &Pod) {
        let Some(node) = &pod.node else { return };
        let Some(usage) = self.usage.get_mut(node) else { return };
        usage.pods.remove(key);
        usage.requests.subtract(&pod.shape.requests);
        usage.requests.extended.retain(|_, amount| *amount != 0);
        if pod.is_daemon() {
            usage.daemon_requests.subtract(&pod.shape.requests);
            usage.daemon_requests.extended.retain(|_, amount| *amount != 0);
        }
        if usage.pods.is_empty() {
            self.usage.remove(node);
        }
    }

    fn delete(&mut self, kind: Kind, key: &ObjectKey, at: u64, touched: &mut Vec<Touched>) {
        let metadata_is_newer = |metadata: &kube::core::ObjectMeta| {
            at != 0 && version(metadata.resource_version.as_deref()) > at
        };
        let known = match kind {
            Kind::NodePool => self.pools.get(&key.name).map(|pool| &pool.metadata),
            Kind::NodeClaim => self.claim(&key.name).map(|claim| &claim.metadata),
            Kind::Node => self.nodes.get(&key.name).map(|node| &node.metadata),
            _ => None,
        };
        // It was made again under the same name, and that is known already.
        let again = known.is_some_and(metadata_is_newer)
            || (kind == Kind::Pod
                && at != 0
                && self.pods.get(key).is_some_and(|pod| pod.version > at));
        if !again {
            self.remove(kind, key, touched);
        }
    }

    fn reset(&mut self, kind: Kind, listed: &BTreeSet<ObjectKey>, touched: &mut Vec<Touched>) {
        let gone: Vec<ObjectKey> =
            self.keys(kind).into_iter().filter(|key| !listed.contains(key)).collect();
        for key in gone {
            self.remove(kind, &key, touched);
        }
        self.listed.insert(kind);
    }

    fn keys(&self, kind: Kind) -> Vec<ObjectKey> {
        fn cluster<T>(map: &BTreeMap<String, T>) -> Vec<ObjectKey> {
            map.keys().map(ObjectKey::cluster).collect()
        }
        match kind {
            Kind::NodePool => cluster(&self.pools),
            Kind::NodeClaim => self
                .claims
                .iter()
                .filter(|(_, claim)| !claim.unconfirmed)
                .map(|(name, _)| ObjectKey::cluster(name))
                .collect(),
            Kind::Node => cluster(&self.nodes),
            Kind::Pod => self.pods.keys().cloned().collect(),
            Kind::Namespace => cluster(&self.namespaces),
            Kind::DaemonSet => self.daemon_sets.keys().cloned().collect(),
            Kind::PodDisruptionBudget => self.budgets.keys().cloned().collect(),
            Kind::PersistentVolume => cluster(&self.volumes),
            Kind::PersistentVolumeClaim => self.volume_claims.keys().cloned().collect(),
            Kind::StorageClass => cluster(&self.storage_classes),
            Kind::VolumeAttachment => cluster(&self.attachments),
        }
    }

    fn remove(&mut self, kind: Kind, key: &ObjectKey, touched: &mut Vec<Touched>) {
        match kind {
            Kind::NodePool => {
                if self.pools.remove(&key.name).is_some() {
                    touched.push(Touched::NodePool(key.name.clone()));
                }
            }
            Kind::NodeClaim => self.remove_claim(&key.name, touched),
            Kind::Node => {
                if let Some(node) = self.nodes.remove(&key.name) {
                    self.nominated.remove(&key.name);
                    reindex(&mut self.nodes_by_provider_id, &key.name, node.provider_id(), None);
                    // The machine is found by its provider ID only while the Node is there: its NodeClaims are touched here.
                    for claim in node.provider_id().into_iter().flat_map(|id| self.claims_of(id)) {
                        touched.push(Touched::NodeClaim(name(&claim.metadata)));
                    }
                    touched.push(Touched::Node(key.name.clone()));
                }
            }
            Kind::Pod => {
                if self.pods.contains_key(key) {
                    self.replace_pod(key.clone(), None, touched);
                }
            }
            Kind::Namespace => {
                self.namespaces.remove(&key.name);
            }
            Kind::DaemonSet => {
                self.daemon_sets.remove(key);
            }
            Kind::PodDisruptionBudget => {
                self.budgets.remove(key);
                touched.push(Touched::Other(kind));
            }
            Kind::PersistentVolume => {
                self.volumes.remove(&key.name);
            }
            Kind::PersistentVolumeClaim => {
                self.volume_claims.remove(key);
            }
            Kind::StorageClass => {
                self.storage_classes.remove(&key.name);
            }
            Kind::VolumeAttachment => {
                if let Some(attachment) = self.attachments.remove(&key.name) {
                    touched.push(Touched::Node(attachment.spec.node_name.clone()));
                }
            }
        }
    }

    fn remove_claim(&mut self, name: &str, touched: &mut Vec<Touched>) {
        let Some(claim) = self.claims.remove(name) else { return };
        reindex(&mut self.claims_by_provider_id, name, claim.object.provider_id(), None);
        self.marked.remove(name);
        self.nominated.remove(name);
        self.planned.retain(|_, onto| onto != name);
        for node in claim.object.provider_id().into_iter().flat_map(|id| self.nodes_of(id)) {
            touched.push(Touched::Node(node.name().to_owned()));
        }
        touched.push(Touched::NodeClaim(name.to_owned()));
    }

    /// Whether a NodeClass of this kind is the provider's.
    pub fn is_managed(&self, group: &str, kind: &str) -> bool {
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

fn key(metadata: &kube::core::ObjectMeta) -> ObjectKey {
    ObjectKey::new(metadata.namespace.clone().unwrap_or_default(), name(metadata))
}

/// Objects without a version (in tests) are always news.
fn is_newer(metadata: &kube::core::ObjectMeta, known: &kube::core::ObjectMeta) -> bool {
    let new = version(metadata.resource_version.as_deref());
    new == 0 || new > version(known.resource_version.as_deref())
}

fn reindex(
    index: &mut BTreeMap<String, BTreeSet<String>>,
    name: &str,
    before: Option<&str>,
    after: Option<&str>,
) {
    if before == after {
        return;
    }
    if let Some(id) = before
        && let Some(names) = index.get_mut(id)
    {
        names.remove(name);
        if names.is_empty() {
            index.remove(id);
        }
    }
    if let Some(id) = after {
        index.entry(id.to_owned()).or_default().insert(name.to_owned());
    }
}

#[cfg(test)]
mod tests;
