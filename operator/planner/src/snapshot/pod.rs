//! Pods, their shapes, and DaemonSets.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Toleration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde::{Deserialize, Serialize};

use super::{NodeId, Requirement, ShapeId};
use crate::resources::Resources;

/// Everything about a pod that scheduling can see. Pods with equal shapes are planned together.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodShape {
    /// Namespace: selectors of other pods see it.
    pub namespace: String,
    /// Labels that any selector could see. Builders leave out what no selector in the cluster uses,
    /// if they know.
    pub labels: BTreeMap<String, String>,
    /// Effective requests as kube-scheduler counts them (init containers, sidecars, overhead,
    /// pod-level); `pods` is 1.
    pub requests: Resources,
    /// `spec.nodeSelector`, keys normalised.
    pub node_selector: BTreeMap<String, String>,
    /// Required node affinity: one of the terms must hold, each a conjunction. Empty is no
    /// constraint.
    pub required_affinity: Vec<Vec<Requirement>>,
    /// Preferred node affinity: weight and conjunction.
    pub preferred_affinity: Vec<(i32, Vec<Requirement>)>,
    /// `spec.tolerations`.
    pub tolerations: Vec<Toleration>,
    /// Host ports of containers: protocol, IP, port.
    pub host_ports: Vec<(String, String, u16)>,
    /// `spec.topologySpreadConstraints`.
    pub topology_spread: Vec<TopologySpread>,
    /// Required and preferred pod affinity and anti-affinity.
    pub pod_affinity: Vec<PodAffinityTerm>,
    /// Where the pod's volumes can be attached: alternatives, each a conjunction. Empty is
    /// anywhere.
    pub volume_topology: Vec<Vec<Requirement>>,
    /// Names of resource claims (DRA) while these are not planned for: the pod waits.
    pub resource_claims: Vec<String>,
    /// What its resource claims ask for, in their order: indices into [`super::Devices::specs`].
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub device_claims: Vec<u32>,
    /// How many volumes have to be attached that no other pod uses, by CSI driver.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub volumes: BTreeMap<String, u32>,
    /// Volumes that other pods use, too: a machine attaches each of them once. Sorted.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub shared_volumes: Vec<SharedVolume>,
}

impl PodShape {
    /// Its terms of required affinity: only where there are pods that match all of them may it go.
    pub fn required_pod_affinity(&self) -> impl Iterator<Item = &PodAffinityTerm> {
        self.pod_affinity.iter().filter(|term| !term.anti && term.weight.is_none())
    }
}

/// A volume that several pods use.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SharedVolume {
    /// Name of the CSI driver that attaches it.
    pub driver: String,
    /// The PersistentVolumeClaim, in the pod's namespace.
    pub claim: String,
}

/// One topology spread constraint.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TopologySpread {
    /// `topologyKey`, normalised.
    pub topology_key: String,
    /// `maxSkew`.
    pub max_skew: i32,
    /// `minDomains`.
    pub min_domains: Option<i32>,
    /// `whenUnsatisfiable: DoNotSchedule`.
    pub required: bool,
    /// `labelSelector` with `matchLabelKeys` merged in; `None` selects nothing.
    pub selector: Option<LabelSelector>,
    /// `nodeAffinityPolicy: Honor` (the default).
    pub honor_affinity: bool,
    /// `nodeTaintsPolicy: Honor`.
    pub honor_taints: bool,
}

/// One term of pod affinity or anti-affinity.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodAffinityTerm {
    /// `podAntiAffinity` instead of `podAffinity`.
    pub anti: bool,
    /// `None` is required, else the weight of the preference.
    pub weight: Option<i32>,
    /// `topologyKey`, normalised.
    pub topology_key: String,
    /// `labelSelector`; `None` selects nothing.
    pub selector: Option<LabelSelector>,
    /// Explicit namespaces; with no namespace selector an empty list means the pod's own.
    pub namespaces: Vec<String>,
    /// `namespaceSelector`; empty selects all.
    pub namespace_selector: Option<LabelSelector>,
}

/// One pod.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "independent facts about a pod, as the API has them"
)]
#[serde(rename_all = "camelCase")]
pub struct Pod {
    /// `metadata.namespace`.
    pub namespace: Arc<str>,
    /// `metadata.name`.
    pub name: Arc<str>,
    /// `metadata.uid`.
    pub uid: Arc<str>,
    /// Everything else that scheduling can see of it.
    pub shape: ShapeId,
    /// Whether it is bound, and otherwise whether the operator may launch for it.
    pub placement: Placement,
    /// `metadata.creationTimestamp`.
    pub created_at: Timestamp,
    /// `spec.priority`.
    pub priority: i32,
    /// `controller.kubernetes.io/pod-deletion-cost`.
    pub deletion_cost: i32,
    /// Owned by a DaemonSet.
    pub daemon: bool,
    /// A static pod (owned by its Node).
    pub mirror: bool,
    /// Owned by a StatefulSet: its successor comes only after it has gone, so its place is planned
    /// while it still terminates.
    pub stateful: bool,
    /// The controller that owns it, as far as [`crate::deletion_costs`] has to know.
    #[serde(default, skip_serializing_if = "Owner::is_other")]
    pub owner: Owner,
    /// `metadata.deletionTimestamp` is set.
    pub terminating: bool,
    /// Whether a voluntary disruption may evict it at the moment.
    pub eviction: Eviction,
    /// The PodDisruptionBudget that its eviction counts against, where nothing forbids it: an index
    /// into [`super::Snapshot::pod_budgets`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_budget: Option<u32>,
    /// Why no machine can be planned for it, in Karpenter's words, for reasons outside of the
    /// shape: a PersistentVolumeClaim that is missing or can't be bound, `matchFields` in its node
    /// affinity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// The CapacityBuffer in the pod's namespace that this virtual pod belongs to. Virtual pods are
    /// planned after all real ones, and nothing is announced for them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub buffer: Option<String>,
    /// Its resource claims: indices into [`super::Devices::claims`], one for each of
    /// [`PodShape::device_claims`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub claims: Vec<u32>,
}

impl Pod {
    /// Whether it has to get another place when it leaves its machine: not if it stays, comes back
    /// by itself on every machine, or has ended.
    pub fn is_reschedulable(&self) -> bool {
        (!self.terminating || self.stateful) && !self.daemon && !self.mirror
    }

    /// Whether it may leave its machine now.
    pub(crate) fn is_currently_reschedulable(&self) -> bool {
        let held = matches!(self.eviction, Eviction::DoNotDisrupt | Eviction::FullyBlockedByPdb(_));
        self.is_reschedulable() && !held
    }
}

/// The controller of a pod.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Owner {
    /// An `apps/v1` ReplicaSet.
    ReplicaSet,
    /// A `batch/v1` Job.
    Job,
    /// Another one, or none.
    #[default]
    Other,
}

impl Owner {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde calls")]
    fn is_other(&self) -> bool {
        *self == Self::Other
    }
}

/// Where a pod runs, or why it does not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Placement {
    /// Marked unschedulable by kube-scheduler, not preempting anything: the operator may launch for
    /// it.
    Unschedulable,
    /// Not bound, and not (yet) the operator's business (gated, not seen by the scheduler,
    /// nominated by preemption).
    #[default]
    Waiting,
    /// Bound to a machine.
    Bound(NodeId),
}

/// Whether a pod may be evicted by a voluntary disruption.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Eviction {
    /// Nothing forbids it.
    #[default]
    Allowed,
    /// `karpenter.sh/do-not-disrupt` is in force on it.
    DoNotDisrupt,
    /// A PodDisruptionBudget allows no disruption now (name), or more than one PDB selects the pod.
    BlockedByPdb(String),
    /// Its PodDisruptionBudget never allows one (name).
    FullyBlockedByPdb(String),
}

/// A PodDisruptionBudget that allows disruptions now.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodBudget {
    /// `metadata.namespace`.
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
    /// `status.disruptionsAllowed`: how many of its pods may be evicted before others have taken
    /// their place.
    pub allowed: u32,
}

/// A DaemonSet as new nodes will run it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DaemonSet {
    /// `metadata.namespace`.
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
    /// The shape of its pods, with the node affinity of its template.
    pub shape: Arc<PodShape>,
}
