//! How the state changes: objects come, change and go, and the indexes follow.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kube::core::ObjectMeta;
use tenon_crds::{NodeClaim, NodePool};

use super::versions::{Source, versions};
use super::{Claim, Cluster, DaemonSet, Names, name};
use crate::change::{Change, Kind, Object, ObjectKey, PodEvent, Touched, version};
use crate::{shape, wire};

/// So many reboots of a machine are remembered at most: its next trouble is cured in another way
/// before there are more.
const MOST_REBOOTS: usize = 8;

impl Cluster {
    /// Makes a change, and says what it touched.
    pub fn apply(&mut self, change: Change) -> Vec<Touched> {
        let mut touched = Vec::new();
        match change {
            Change::Applied(object) => self.put(object, Source::Watch, &mut touched),
            Change::ListBegan(kind) => {
                self.listing.insert(kind, BTreeSet::new());
            }
            Change::InList(object) => self.put(object, Source::List, &mut touched),
            Change::Written(object) => self.put(object, Source::Own, &mut touched),
            Change::Deleted(kind, key, version) => self.delete(kind, &key, version, &mut touched),
            Change::Listed(kind, keys) => self.reset(kind, &keys, &mut touched),
            Change::Created(claim) => {
                let name = name(&claim.metadata);
                // The watch may have been faster.
                if !self.claims.contains_key(&name) {
                    self.wrote(Kind::NodeClaim, &ObjectKey::cluster(name.as_str()));
                    self.put_claim(*claim, Source::Own, &mut touched);
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
            Change::Marked { claims, replacements } => {
                let replacements = Arc::new(replacements);
                for name in claims {
                    touched.push(Touched::NodeClaim(name.clone()));
                    self.marked.insert(name, Arc::clone(&replacements));
                }
            }
            Change::Unmarked(claims) => {
                for name in claims {
                    self.marked.remove(&name);
                    touched.push(Touched::NodeClaim(name));
                }
            }
            Change::Refused(name, refusal) => {
                if self.claims.contains_key(&name) {
                    self.refused.insert(name, refusal);
                }
            }
            Change::TookLead => {
                self.nominated.clear();
                self.plans.clear();
                for name in std::mem::take(&mut self.marked).into_keys() {
                    touched.push(Touched::NodeClaim(name));
                }
            }
            Change::Planned(pods, at) => {
                for (key, machine) in pods {
                    // Pods that are still to be evicted come again under other names.
                    let pod = self.pods.get(&key).filter(|pod| pod.node.is_none());
                    if let Some(shape) = pod.map(|pod| Arc::clone(&pod.shape)) {
                        self.plans.insert(key, machine, shape, at);
                    }
                }
            }
            Change::Unplanned(key) => {
                let waits = self.pods.get(&key).is_some_and(|pod| pod.node.is_none());
                if self.is_planned(&key) && waits {
                    self.plans.forget_pod(&key);
                    let event = PodEvent { provisionable: true, ..PodEvent::default() };
                    touched.push(Touched::Pod(key, event));
                }
            }
            Change::Nominating(on) => self.plans.nominating = on,
            Change::Rebooting(uid, at) => {
                let reboots = self.reboots.entry(uid).or_default();
                reboots.push(at);
                let surplus = reboots.len().saturating_sub(MOST_REBOOTS);
                reboots.drain(..surplus);
            }
        }
        touched
    }

    fn put(&mut self, object: Object, source: Source, touched: &mut Vec<Touched>) {
        match object {
            Object::NodePool(pool) => self.put_pool(*pool, source, touched),
            Object::NodeClaim(claim) => {
                let name = name(&claim.metadata);
                if source != Source::Own || self.claims.contains_key(&name) {
                    self.put_claim(*claim, source, touched);
                }
            }
            Object::Node(node) => {
                if source != Source::Own || self.nodes.contains_key(node.name()) {
                    self.put_node(*node, source, touched);
                }
            }
            Object::Pod(pod) => self.put_pod(&pod, source, touched),
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
            Object::NodeOverlay(overlay) => {
                let key = key(&overlay.metadata);
                let known = self.overlays.get(&*key.name).map(|known| &known.metadata);
                if self.takes(source, Kind::NodeOverlay, &key, &overlay.metadata, known) {
                    self.note(source, Kind::NodeOverlay, &key);
                    self.overlays.insert(key.name.to_string(), Arc::new(*overlay));
                    touched.push(Touched::Other(Kind::NodeOverlay));
                }
            }
            Object::CapacityBuffer(buffer) => self.put_buffer(*buffer, source, touched),
            Object::PodTemplate(template) => self.put_template(&template, touched),
            Object::Deployment(it) => {
                self.put_selector(Kind::Deployment, &it.metadata, it.spec.selector.clone());
                self.put_workload(Kind::Deployment, &it.metadata, &it.spec, touched);
            }
            Object::StatefulSet(it) => {
                self.put_selector(Kind::StatefulSet, &it.metadata, it.spec.selector.clone());
                self.put_workload(Kind::StatefulSet, &it.metadata, &it.spec, touched);
            }
            Object::ReplicaSet(it) => {
                self.put_selector(Kind::ReplicaSet, &it.metadata, it.spec.selector.clone());
                self.put_workload(Kind::ReplicaSet, &it.metadata, &it.spec, touched);
            }
            Object::ResourceQuota(quota) => self.put_quota(&quota, touched),
            Object::Service(service) => {
                self.put_labels(Kind::Service, &service.metadata, service.spec.selector);
            }
            Object::ReplicationController(it) => {
                self.put_labels(Kind::ReplicationController, &it.metadata, it.spec.selector);
            }
            Object::CSINode(node) => {
                let wire::CSINode { metadata, spec } = *node;
                let limits = spec.drivers.into_iter().map(|driver| {
                    (driver.name, driver.allocatable.and_then(|allocatable| allocatable.count))
                });
                self.volume_limits.insert(name(&metadata), limits.collect());
                touched.push(Touched::Other(Kind::CSINode));
            }
            Object::DeviceClass(class) => {
                let Some(devices) = &mut self.devices else { return };
                devices.classes.insert(name(&class.metadata), Arc::new(*class));
                touched.push(Touched::Other(Kind::DeviceClass));
            }
            Object::ResourceClaim(claim) => {
                let Some(devices) = &mut self.devices else { return };
                devices.claims.insert(key(&claim.metadata), Arc::new(*claim));
                touched.push(Touched::Other(Kind::ResourceClaim));
            }
            Object::ResourceClaimTemplate(template) => {
                let Some(devices) = &mut self.devices else { return };
                devices.templates.insert(key(&template.metadata), Arc::new(*template));
                touched.push(Touched::Other(Kind::ResourceClaimTemplate));
            }
            Object::ResourceSlice(slice) => self.put_slice(*slice, touched),
        }
    }

    fn put_slice(&mut self, slice: wire::ResourceSlice, touched: &mut Vec<Touched>) {
        let Some(devices) = &mut self.devices else { return };
        // A node may have waited for it to be initialised.
        touched.extend(slice.spec.node_name.clone().map(Touched::Node));
        touched.push(Touched::Other(Kind::ResourceSlice));
        devices.slices.insert(name(&slice.metadata), Arc::new(slice));
    }

    fn put_pool(&mut self, pool: NodePool, source: Source, touched: &mut Vec<Touched>) {
        let reference = &pool.spec.template.spec.node_class_ref;
        let managed = self.is_managed(&reference.group, &reference.kind);
        let key = key(&pool.metadata);
        let known = self.pools.get(&*key.name).map(|known| &known.metadata);
        if managed && self.takes(source, Kind::NodePool, &key, &pool.metadata, known) {
            self.note(source, Kind::NodePool, &key);
            self.pools.insert(key.name.to_string(), Arc::new(pool));
            touched.push(Touched::NodePool(key.name.to_string()));
        } else if !managed {
            self.pools.remove(&*key.name);
        }
    }

    fn put_claim(&mut self, mut claim: NodeClaim, source: Source, touched: &mut Vec<Touched>) {
        let reference = &claim.spec.node_class_ref;
        if !self.is_managed(&reference.group, &reference.kind) {
            return;
        }
        let key = key(&claim.metadata);
        let versions = self.claim(&key.name).map(|it| versions(&claim.metadata, &it.metadata));
        let news = versions.is_none_or(|it| self.is_news(source, Kind::NodeClaim, &key, it));
        let mut unconfirmed = false;
        if let Some(known) = self.claims.get_mut(&*key.name) {
            known.unconfirmed &= source == Source::Own;
            unconfirmed = known.unconfirmed;
        }
        if !news {
            return;
        }
        self.note(source, Kind::NodeClaim, &key);
        let name = key.name.to_string();
        let id = claim.provider_id().map(str::to_owned);
        // Answers to writes list them, which is more than all the rest.
        claim.metadata.managed_fields = None;
        self.requirements.share(&mut claim.spec.requirements);
        self.resources.share(&mut claim.spec.resources.requests);
        if let Some(status) = &mut claim.status {
            self.resources.share(&mut status.capacity);
            self.resources.share(&mut status.allocatable);
        }
        let claim = Claim { object: Arc::new(claim), unconfirmed };
        let before = self.claims.insert(name.clone(), claim);
        let before = before.as_ref().and_then(|claim| claim.object.provider_id());
        reindex(&mut self.claims_by_provider_id, &name, before, id.as_deref());
        touched.push(Touched::NodeClaim(name));
    }

    fn put_node(&mut self, mut node: wire::Node, source: Source, touched: &mut Vec<Touched>) {
        let key = key(&node.metadata);
        let before = self.nodes.get(&*key.name);
        let versions = before.map(|before| versions(&node.metadata, &before.metadata));
        if versions.is_some_and(|it| !self.is_news(source, Kind::Node, &key, it)) {
            return;
        }
        let before = before.and_then(|node| node.provider_id().map(str::to_owned));
        self.note(source, Kind::Node, &key);
        let name = key.name.to_string();
        let id = node.provider_id().map(str::to_owned);
        node.metadata.managed_fields = None;
        self.resources.share(&mut node.status.capacity);
        self.resources.share(&mut node.status.allocatable);
        self.nodes.insert(name.clone(), Arc::new(node));
        reindex(&mut self.nodes_by_provider_id, &name, before.as_deref(), id.as_deref());
        touched.push(Touched::Node(name));
    }

    fn delete(&mut self, kind: Kind, key: &ObjectKey, at: u64, touched: &mut Vec<Touched>) {
        let metadata_is_newer =
            |metadata: &ObjectMeta| at != 0 && version(metadata.resource_version.as_deref()) > at;
        let known = match kind {
            Kind::NodePool => self.pools.get(&*key.name).map(|pool| &pool.metadata),
            Kind::NodeClaim => self.claim(&key.name).map(|claim| &claim.metadata),
            Kind::Node => self.nodes.get(&*key.name).map(|node| &node.metadata),
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
        self.listing.remove(&kind);
        self.listed.insert(kind);
    }

    fn keys(&self, kind: Kind) -> Vec<ObjectKey> {
        fn cluster<T>(map: &BTreeMap<String, T>) -> Vec<ObjectKey> {
            map.keys().map(|name| ObjectKey::cluster(name.as_str())).collect()
        }
        match kind {
            Kind::NodePool => cluster(&self.pools),
            Kind::NodeClaim => self
                .claims
                .iter()
                .filter(|(_, claim)| !claim.unconfirmed)
                .map(|(name, _)| ObjectKey::cluster(name.as_str()))
                .collect(),
            Kind::Node => cluster(&self.nodes),
            Kind::Pod => self.pods.keys().cloned().collect(),
            Kind::Namespace => cluster(&self.namespaces),
            Kind::DaemonSet => self.daemon_sets.keys().cloned().collect(),
            Kind::PodDisruptionBudget => self.budgets.keys().cloned().collect(),
            Kind::PersistentVolume => cluster(&self.volumes),
            Kind::PersistentVolumeClaim => self.volume_claims.keys().cloned().collect(),
            Kind::StorageClass => cluster(&self.storage_classes),
            Kind::VolumeAttachment => cluster(self.attachments.all()),
            Kind::CSINode => cluster(&self.volume_limits),
            Kind::NodeOverlay => cluster(&self.overlays),
            Kind::CapacityBuffer
            | Kind::PodTemplate
            | Kind::Deployment
            | Kind::StatefulSet
            | Kind::ReplicaSet
            | Kind::ResourceQuota => {
                let mut keys = self.buffers.keys(kind);
                keys.extend(self.spread.iter().flat_map(|spread| spread.keys(kind)));
                keys
            }
            Kind::Service | Kind::ReplicationController => {
                self.spread.iter().flat_map(|spread| spread.keys(kind)).collect()
            }
            Kind::DeviceClass
            | Kind::ResourceClaim
            | Kind::ResourceClaimTemplate
            | Kind::ResourceSlice => self.devices.iter().flat_map(|it| it.keys(kind)).collect(),
        }
    }

    fn remove(&mut self, kind: Kind, key: &ObjectKey, touched: &mut Vec<Touched>) {
        match kind {
            Kind::NodePool => {
                if self.pools.remove(&*key.name).is_some() {
                    touched.push(Touched::NodePool(key.name.to_string()));
                }
            }
            Kind::NodeClaim => self.remove_claim(&key.name, touched),
            Kind::Node => {
                if let Some(node) = self.nodes.remove(&*key.name) {
                    self.nominated.remove(&*key.name);
                    reindex(&mut self.nodes_by_provider_id, &key.name, node.provider_id(), None);
                    // The machine is found by its provider ID only while the Node is there: its
                    // NodeClaims are touched here.
                    for claim in node.provider_id().into_iter().flat_map(|id| self.claims_of(id)) {
                        touched.push(Touched::NodeClaim(name(&claim.metadata)));
                    }
                    touched.push(Touched::Node(key.name.to_string()));
                }
            }
            Kind::Pod => {
                if self.pods.contains_key(key) {
                    self.replace_pod(key.clone(), None, touched);
                }
            }
            Kind::Namespace => {
                self.namespaces.remove(&*key.name);
            }
            Kind::DaemonSet => {
                self.daemon_sets.remove(key);
            }
            Kind::PodDisruptionBudget => {
                self.budgets.remove(key);
                touched.push(Touched::Other(kind));
            }
            Kind::PersistentVolume => {
                self.volumes.remove(&*key.name);
            }
            Kind::PersistentVolumeClaim => {
                self.volume_claims.remove(key);
            }
            Kind::StorageClass => {
                self.storage_classes.remove(&*key.name);
            }
            Kind::VolumeAttachment => {
                if let Some(attachment) = self.attachments.remove(&key.name) {
                    touched.push(Touched::Node(attachment.spec.node_name.clone()));
                }
            }
            Kind::CSINode => {
                self.volume_limits.remove(&*key.name);
            }
            Kind::NodeOverlay => {
                self.overlays.remove(&*key.name);
                touched.push(Touched::Other(kind));
            }
            Kind::CapacityBuffer
            | Kind::PodTemplate
            | Kind::Deployment
            | Kind::StatefulSet
            | Kind::ReplicaSet
            | Kind::ResourceQuota => {
                self.buffers.remove(kind, key);
                self.forget_selector(kind, key);
                touched.push(Touched::Other(kind));
            }
            Kind::Service | Kind::ReplicationController => self.forget_selector(kind, key),
            Kind::DeviceClass
            | Kind::ResourceClaim
            | Kind::ResourceClaimTemplate
            | Kind::ResourceSlice => {
                if let Some(devices) = &mut self.devices {
                    devices.remove(kind, key);
                    touched.push(Touched::Other(kind));
                }
            }
        }
    }

    fn remove_claim(&mut self, name: &str, touched: &mut Vec<Touched>) {
        let Some(claim) = self.claims.remove(name) else { return };
        reindex(&mut self.claims_by_provider_id, name, claim.object.provider_id(), None);
        self.marked.remove(name);
        self.refused.remove(name);
        self.nominated.remove(name);
        self.plans.forget_machine(name);
        self.reboots.remove(claim.object.metadata.uid.as_deref().unwrap_or_default());
        for node in claim.object.provider_id().into_iter().flat_map(|id| self.nodes_of(id)) {
            touched.push(Touched::Node(node.name().to_owned()));
        }
        touched.push(Touched::NodeClaim(name.to_owned()));
    }
}

pub(super) fn key(metadata: &ObjectMeta) -> ObjectKey {
    ObjectKey::new(metadata.namespace.as_deref().unwrap_or_default(), name(metadata))
}

fn reindex(
    index: &mut BTreeMap<String, Names>,
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
        names.retain(|known| known != name);
        if names.is_empty() {
            index.remove(id);
        }
    }
    if let Some(id) = after {
        let names = index.entry(id.to_owned()).or_default();
        if let Err(at) = names.binary_search_by(|known| known.as_str().cmp(name)) {
            names.insert(at, name.to_owned());
        }
    }
}
