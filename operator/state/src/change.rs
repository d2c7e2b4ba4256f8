//! What can happen to the state, as values: objects that watches saw, what the operator itself
//! wrote, and what it intends.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::sync::Arc;

use jiff::Timestamp;
use kube::Resource;
use serde::de::DeserializeOwned;
use tenon_crds::{CapacityBuffer, NodeClaim, NodeOverlay, NodePool};
use tenon_planner::plan::PodRef;
use tenon_planner::snapshot::Refusal;

use crate::wire;

/// Kinds of objects in the state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(missing_docs, reason = "the names are Kubernetes' own")]
pub enum Kind {
    NodePool,
    NodeClaim,
    Node,
    Pod,
    Namespace,
    DaemonSet,
    PodDisruptionBudget,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    VolumeAttachment,
    CSINode,
    DeviceClass,
    ResourceClaim,
    ResourceClaimTemplate,
    ResourceSlice,
    NodeOverlay,
    CapacityBuffer,
    PodTemplate,
    Deployment,
    StatefulSet,
    ReplicaSet,
    ResourceQuota,
    Service,
    ReplicationController,
}

impl Kind {
    /// Those that always count; [`crate::cluster::Cluster::watched`] has the others, too.
    pub const ALL: [Self; 12] = [
        Self::NodePool,
        Self::NodeClaim,
        Self::Node,
        Self::Pod,
        Self::Namespace,
        Self::DaemonSet,
        Self::PodDisruptionBudget,
        Self::PersistentVolume,
        Self::PersistentVolumeClaim,
        Self::StorageClass,
        Self::VolumeAttachment,
        Self::CSINode,
    ];

    /// Those that count only while claims are planned for
    /// ([`crate::cluster::Cluster::plan_for_claims`]).
    pub const DEVICES: [Self; 4] =
        [Self::DeviceClass, Self::ResourceClaim, Self::ResourceClaimTemplate, Self::ResourceSlice];

    /// CapacityBuffers, what they refer to, and what bounds them.
    pub const BUFFERS: [Self; 6] = [
        Self::CapacityBuffer,
        Self::PodTemplate,
        Self::Deployment,
        Self::StatefulSet,
        Self::ReplicaSet,
        Self::ResourceQuota,
    ];

    /// What says which pods belong together. These count only while there is a default topology
    /// spread ([`crate::cluster::Cluster::spread_by`]).
    pub const SPREAD: [Self; 4] =
        [Self::Service, Self::ReplicationController, Self::ReplicaSet, Self::StatefulSet];

    /// Its CRD need not be installed: as long as it is not there are no such objects.
    pub fn may_be_missing(self) -> bool {
        matches!(self, Self::NodeOverlay | Self::CapacityBuffer)
    }
}

/// An object of any kind.
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "the names are Kubernetes' own")]
pub enum Object {
    NodePool(Box<NodePool>),
    NodeClaim(Box<NodeClaim>),
    Node(Box<wire::Node>),
    Pod(Box<wire::Pod>),
    Namespace(Box<wire::Namespace>),
    DaemonSet(Box<wire::DaemonSet>),
    PodDisruptionBudget(Box<wire::PodDisruptionBudget>),
    PersistentVolume(Box<wire::PersistentVolume>),
    PersistentVolumeClaim(Box<wire::PersistentVolumeClaim>),
    StorageClass(Box<wire::StorageClass>),
    VolumeAttachment(Box<wire::VolumeAttachment>),
    CSINode(Box<wire::CSINode>),
    DeviceClass(Box<wire::DeviceClass>),
    ResourceClaim(Box<wire::ResourceClaim>),
    ResourceClaimTemplate(Box<wire::ResourceClaimTemplate>),
    ResourceSlice(Box<wire::ResourceSlice>),
    NodeOverlay(Box<NodeOverlay>),
    CapacityBuffer(Box<CapacityBuffer>),
    PodTemplate(Box<wire::PodTemplate>),
    Deployment(Box<wire::Deployment>),
    StatefulSet(Box<wire::StatefulSet>),
    ReplicaSet(Box<wire::ReplicaSet>),
    ResourceQuota(Box<wire::ResourceQuota>),
    Service(Box<wire::Service>),
    ReplicationController(Box<wire::ReplicationController>),
}

impl Object {
    /// What it is, and its name.
    fn identity(&self) -> (Kind, ObjectKey) {
        fn of<K: Watched>(object: &K) -> (Kind, ObjectKey) {
            (K::KIND, ObjectKey::of(object))
        }
        match self {
            Self::NodePool(it) => of(&**it),
            Self::NodeClaim(it) => of(&**it),
            Self::Node(it) => of(&**it),
            Self::Pod(it) => of(&**it),
            Self::Namespace(it) => of(&**it),
            Self::DaemonSet(it) => of(&**it),
            Self::PodDisruptionBudget(it) => of(&**it),
            Self::PersistentVolume(it) => of(&**it),
            Self::PersistentVolumeClaim(it) => of(&**it),
            Self::StorageClass(it) => of(&**it),
            Self::VolumeAttachment(it) => of(&**it),
            Self::CSINode(it) => of(&**it),
            Self::DeviceClass(it) => of(&**it),
            Self::ResourceClaim(it) => of(&**it),
            Self::ResourceClaimTemplate(it) => of(&**it),
            Self::ResourceSlice(it) => of(&**it),
            Self::NodeOverlay(it) => of(&**it),
            Self::CapacityBuffer(it) => of(&**it),
            Self::PodTemplate(it) => of(&**it),
            Self::Deployment(it) => of(&**it),
            Self::StatefulSet(it) => of(&**it),
            Self::ReplicaSet(it) => of(&**it),
            Self::ResourceQuota(it) => of(&**it),
            Self::Service(it) => of(&**it),
            Self::ReplicationController(it) => of(&**it),
        }
    }
}

/// A kind that the state is made of.
pub trait Watched:
    Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static
{
    /// Which one.
    const KIND: Kind;

    /// As the state takes it.
    fn into_object(self) -> Object;
}

/// Implements [`Watched`] for the types of [`Object`].
macro_rules! watched {
    ($($kind:ident: $type:ty,)*) => {$(
        impl Watched for $type {
            const KIND: Kind = Kind::$kind;

            fn into_object(self) -> Object {
                Object::$kind(Box::new(self))
            }
        }
    )*};
}

watched! {
    NodePool: NodePool,
    NodeClaim: NodeClaim,
    Node: wire::Node,
    Pod: wire::Pod,
    Namespace: wire::Namespace,
    DaemonSet: wire::DaemonSet,
    PodDisruptionBudget: wire::PodDisruptionBudget,
    PersistentVolume: wire::PersistentVolume,
    PersistentVolumeClaim: wire::PersistentVolumeClaim,
    StorageClass: wire::StorageClass,
    VolumeAttachment: wire::VolumeAttachment,
    CSINode: wire::CSINode,
    DeviceClass: wire::DeviceClass,
    ResourceClaim: wire::ResourceClaim,
    ResourceClaimTemplate: wire::ResourceClaimTemplate,
    ResourceSlice: wire::ResourceSlice,
    NodeOverlay: NodeOverlay,
    CapacityBuffer: CapacityBuffer,
    PodTemplate: wire::PodTemplate,
    Deployment: wire::Deployment,
    StatefulSet: wire::StatefulSet,
    ReplicaSet: wire::ReplicaSet,
    ResourceQuota: wire::ResourceQuota,
    Service: wire::Service,
    ReplicationController: wire::ReplicationController,
}

/// An object's name; `namespace` is empty for kinds that have none.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectKey {
    /// `metadata.namespace`.
    pub namespace: Arc<str>,
    /// `metadata.name`.
    pub name: Arc<str>,
}

impl ObjectKey {
    /// The key of an object in a namespace.
    pub fn new(namespace: impl Into<Arc<str>>, name: impl Into<Arc<str>>) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }

    /// The key of an object without a namespace.
    pub fn cluster(name: impl Into<Arc<str>>) -> Self {
        Self { namespace: Arc::default(), name: name.into() }
    }

    /// The pod of this name, and no other one that was made under it.
    pub fn pod(&self, uid: Arc<str>) -> PodRef {
        PodRef { namespace: Arc::clone(&self.namespace), name: Arc::clone(&self.name), uid }
    }

    /// The key of an object.
    pub fn of<K: Resource<DynamicType = ()>>(object: &K) -> Self {
        Self {
            namespace: object.meta().namespace.as_deref().unwrap_or_default().into(),
            name: object.meta().name.as_deref().unwrap_or_default().into(),
        }
    }
}

impl From<&PodRef> for ObjectKey {
    fn from(pod: &PodRef) -> Self {
        Self { namespace: Arc::clone(&pod.namespace), name: Arc::clone(&pod.name) }
    }
}

impl std::fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.namespace.is_empty() {
            f.write_str(&self.name)
        } else {
            write!(f, "{}/{}", self.namespace, self.name)
        }
    }
}

/// Something that happened.
#[derive(Clone, Debug)]
pub enum Change {
    /// A watch saw this version.
    Applied(Object),
    /// A watch begins to list its kind: whatever the operator has written before this is in the
    /// list.
    ListBegan(Kind),
    /// A list has this version. It counts even when a higher one is known, as after a restore of
    /// etcd, unless that was written after the list began.
    InList(Object),
    /// A watch saw it go, at this resource version.
    Deleted(Kind, ObjectKey, u64),
    /// A watch has listed its kind: what is not among these is gone.
    Listed(Kind, BTreeSet<ObjectKey>),
    /// The operator changed an object and this is what the API server answered. Ignored when the
    /// object is not known or a newer version is.
    Written(Object),
    /// The operator created a NodeClaim.
    Created(Box<NodeClaim>),
    /// The API server says that a NodeClaim, with this uid, does not exist.
    ClaimGone(String, String),
    /// Pods are expected on machines (by [`tenon_planner::snapshot::Node::key`]) until then.
    Nominated(BTreeSet<String>, Timestamp),
    /// NodeClaims whose deletion was decided: they count as deleting from now on, as long as all
    /// that replace them stay.
    Marked {
        /// Their names.
        claims: BTreeSet<String>,
        /// The NodeClaims that replace them, which exist: uids by name.
        replacements: BTreeMap<String, String>,
    },
    /// The decision was taken back.
    Unmarked(BTreeSet<String>),
    /// The API server refused to delete a NodeClaim: it is left alone for a while.
    Refused(String, Refusal),
    /// This replica begins to lead: what it intended when it led before counts no more. Another may
    /// have led meanwhile.
    TookLead,
    /// The reboot of the NodeClaim with this uid was decided at this moment.
    Rebooting(String, Timestamp),
    /// Pods were planned onto machines (by [`tenon_planner::snapshot::Node::key`]) at this moment;
    /// the last plan counts.
    Planned(BTreeMap<ObjectKey, String>, Timestamp),
    /// The plan of a pod that waits holds no more: it is planned for again.
    Unplanned(ObjectKey),
    /// Pods are, or are not, nominated to the Nodes of the machines that they are planned onto:
    /// then they count as if they were there.
    Nominating(bool),
}

impl Change {
    /// The object that it is about, if it is about one.
    pub fn subject(&self) -> Option<(Kind, ObjectKey)> {
        match self {
            Self::Applied(object) | Self::InList(object) | Self::Written(object) => {
                Some(object.identity())
            }
            Self::Deleted(kind, key, _) => Some((*kind, key.clone())),
            Self::Created(claim) => Some((Kind::NodeClaim, ObjectKey::of(&**claim))),
            Self::ClaimGone(name, _) | Self::Refused(name, _) => {
                Some((Kind::NodeClaim, ObjectKey::cluster(name.as_str())))
            }
            Self::ListBegan(_)
            | Self::Listed(..)
            | Self::Nominated(..)
            | Self::Marked { .. }
            | Self::Unmarked(_)
            | Self::TookLead
            | Self::Rebooting(..)
            | Self::Planned(..)
            | Self::Unplanned(_)
            | Self::Nominating(_) => None,
        }
    }
}

/// What a change touched, for those who have to look again.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Touched {
    /// A NodePool came, went or changed.
    NodePool(String),
    /// A NodeClaim came, went or changed.
    NodeClaim(String),
    /// A Node came, went or changed.
    Node(String),
    /// A pod came, went or changed.
    Pod(ObjectKey, PodEvent),
    /// Something else changed, such as volumes, PodDisruptionBudgets, devices or NodeOverlays.
    Other(Kind),
}

/// What happened to a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct PodEvent {
    /// The Node that it is, or was, bound to.
    pub node: Option<String>,
    /// It waits for the operator.
    pub provisionable: bool,
    /// It was bound just now; when it was created.
    pub bound: Option<Timestamp>,
    /// It was bound just now to the machine that it was planned onto, or to another one.
    pub as_planned: Option<bool>,
    /// It left the phase Pending just now; when it was created.
    pub started: Option<Timestamp>,
    /// It came, went, was bound, ended, or began to terminate, and is no daemon: what
    /// `lastPodEventTime` is about.
    pub moved: bool,
}

/// A resource version as the number that it is; 0 when there is none.
pub fn version(text: Option<&str>) -> u64 {
    text.and_then(|text| text.parse().ok()).unwrap_or(0)
}
