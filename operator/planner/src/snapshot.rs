//! The planner's input: everything that it may look at, as one immutable value.
//!
//! The operator builds a [`Snapshot`] from its watch state, `tenon simulate` from a file or a live list. It is plain data: it can be written to a
//! file, read back, and gives the same plan anywhere. Names stand at its border; the planner interns them to dense ids for its own use.
//!
//! Invariants that a builder keeps, and that [`Snapshot::validate`] checks:
//! - every list is sorted by its key (given with each field) and has no duplicates;
//! - every index ([`ShapeId`], [`NodeId`], [`CatalogId`]) is within its list;
//! - amounts are in the units of [`Resources`].

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Taint, Toleration};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde::{Deserialize, Serialize};

use crate::resources::{MicroUsd, Resources};

/// The version of the format. Raised when a field changes its meaning; new optional fields don't raise it.
pub const SNAPSHOT_VERSION: u32 = 1;

/// Index into [`Snapshot::shapes`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ShapeId(pub u32);

/// Index into [`Snapshot::nodes`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct NodeId(pub u32);

/// Index into [`Snapshot::catalogs`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CatalogId(pub u32);

/// Everything that a decision may depend on, at one moment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Snapshot {
    /// [`SNAPSHOT_VERSION`].
    pub version: u32,
    /// The NodePools that are managed by this provider, whether ready or not. Sorted by name.
    pub node_pools: Vec<NodePool>,
    /// What can be launched, one catalog per NodeClass. Sorted by node class.
    pub catalogs: Vec<Arc<Catalog>>,
    /// Machines: Kubernetes Nodes and NodeClaims that have no Node yet. Sorted by [`Node::key`].
    pub nodes: Vec<Node>,
    /// The distinct shapes of `pods`. In the order of first use by `pods`.
    pub shapes: Vec<Arc<PodShape>>,
    /// Pods that are pending or bound, without those that have ended. Sorted by namespace, then name.
    pub pods: Vec<Pod>,
    /// One representative pod per DaemonSet, for the overhead of new nodes. Sorted by namespace, then name.
    pub daemon_sets: Vec<DaemonSet>,
    /// Labels of namespaces, for selectors over namespaces. Sorted by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub namespaces: BTreeMap<String, BTreeMap<String, String>>,
}

/// A NodePool with its effective values.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodePool {
    /// `metadata.name`.
    pub name: String,
    /// `metadata.uid`.
    pub uid: String,
    /// Why nothing may be launched from this pool now, if so: not Ready, being deleted, its NodeClass not ready.
    pub not_ready: Option<String>,
    /// `spec.weight`, 0 when unset. Heavier pools come first; ties go to the lexicographically later name.
    pub weight: i32,
    /// `spec.replicas`: set on static pools, which take part neither in provisioning nor in consolidation.
    pub replicas: Option<i64>,
    /// What can be launched with the pool's NodeClass. `None` while it is unknown.
    pub catalog: Option<CatalogId>,
    /// Values that every machine of the pool carries.
    pub template: Template,
    /// `spec.limits` in the units of [`Resources`], `nodes` counts machines. An absent key is unlimited.
    pub limits: BTreeMap<String, i64>,
    /// `spec.disruption`.
    pub disruption: DisruptionPolicy,
}

/// What a NodePool puts on each NodeClaim.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Template {
    /// `spec.template.metadata.labels`, plus the pool's and the NodeClass's own label.
    pub labels: BTreeMap<String, String>,
    /// `spec.template.metadata.annotations`, plus the pool's hash and its version.
    pub annotations: BTreeMap<String, String>,
    /// `spec.template.spec.requirements`.
    pub requirements: Vec<Requirement>,
    /// `spec.template.spec.taints`.
    pub taints: Vec<Taint>,
    /// `spec.template.spec.startupTaints`: never counted in scheduling.
    pub startup_taints: Vec<Taint>,
    /// `spec.template.spec.nodeClassRef`.
    pub node_class: NodeClassRef,
    /// `spec.template.spec.expireAfter` as written (`720h`, `Never`).
    pub expire_after: Option<String>,
    /// `spec.template.spec.terminationGracePeriod` as written.
    pub termination_grace_period: Option<String>,
}

/// Reference to a NodeClass.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct NodeClassRef {
    /// API group, e.g. `karpenter.k8s.aws`.
    pub group: String,
    /// Kind, e.g. `EC2NodeClass`.
    pub kind: String,
    /// Name.
    pub name: String,
}

/// `key operator values` with Karpenter's operators.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Requirement {
    /// Label key, already normalised (no `beta.kubernetes.io/…` aliases).
    pub key: String,
    /// Operator.
    pub operator: Operator,
    /// Values; sorted, unique. One integer for the four comparisons, none for Exists and DoesNotExist.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<String>,
    /// `minValues`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_values: Option<u32>,
}

/// Operators of a [`Requirement`]. Comparisons are over integers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Operator {
    /// The label exists and has one of the values.
    In,
    /// The label is absent or has none of the values.
    NotIn,
    /// The label exists.
    Exists,
    /// The label is absent.
    DoesNotExist,
    /// Greater than the value.
    Gt,
    /// Less than the value.
    Lt,
    /// Greater than or equal to the value.
    Gte,
    /// Less than or equal to the value.
    Lte,
}

/// `spec.disruption` of a NodePool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DisruptionPolicy {
    /// `consolidationPolicy`.
    pub consolidation_policy: ConsolidationPolicy,
    /// `consolidateAfter`; `None` is `Never`.
    pub consolidate_after: Option<SignedDuration>,
    /// `budgets`, each already reduced to what is in force at the snapshot's moment: budgets whose schedule is not active are left out.
    pub budgets: Vec<Budget>,
}

/// `consolidationPolicy` of a NodePool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ConsolidationPolicy {
    /// Only nodes without pods.
    WhenEmpty,
    /// Also nodes that can be replaced by cheaper ones or whose pods fit elsewhere.
    WhenEmptyOrUnderutilized,
    /// As the former, when what it saves outweighs the disruption.
    Balanced,
}

/// A disruption budget that is in force.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Budget {
    /// How many nodes of the pool may be disrupted at once.
    pub nodes: BudgetNodes,
    /// The reasons that it covers; empty covers all.
    pub reasons: Vec<DisruptionReason>,
}

/// The amount of a [`Budget`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum BudgetNodes {
    /// A number of nodes.
    Count(u32),
    /// Percent of the pool's nodes, rounded up.
    Percent(u32),
}

/// Why a node is disrupted voluntarily.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum DisruptionReason {
    /// Nothing but daemons runs on it.
    Empty,
    /// It differs from what its NodePool or NodeClass now asks for.
    Drifted,
    /// Its pods can run for less.
    Underutilized,
    /// A repair policy gave it up.
    Unhealthy,
}

/// What can be launched with one NodeClass.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Catalog {
    /// The NodeClass that the types were computed for (its kubelet settings, storage and zones shape them).
    pub node_class: NodeClassRef,
    /// All types, with or without available offerings. Sorted by name.
    pub instance_types: Vec<InstanceType>,
}

/// A kind of machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InstanceType {
    /// Equal to the value of `node.kubernetes.io/instance-type`.
    pub name: String,
    /// A requirement for every well-known label: `In` for what the type has, `DoesNotExist` for what it has not. Sorted by key.
    pub requirements: Vec<Requirement>,
    /// What the machine has.
    pub capacity: Resources,
    /// Kube-reserved, system-reserved and eviction thresholds, summed.
    pub overhead: Resources,
    /// Where and how it can be bought.
    pub offerings: Vec<Offering>,
}

impl InstanceType {
    /// `capacity` less `overhead`; huge pages are taken off the memory, which does not fall below zero.
    pub fn allocatable(&self) -> Resources {
        let mut allocatable = self.capacity.clone();
        allocatable.subtract(&self.overhead);
        let huge: i64 = self
            .capacity
            .extended
            .iter()
            .filter(|(name, _)| name.starts_with("hugepages-"))
            .map(|(_, bytes)| bytes)
            .sum();
        allocatable.memory = (allocatable.memory - huge).max(0);
        allocatable
    }
}

/// One way to buy an [`InstanceType`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Offering {
    /// `topology.kubernetes.io/zone`.
    pub zone: String,
    /// `karpenter.sh/capacity-type`.
    pub capacity_type: CapacityType,
    /// Further labels of the offering (zone id, reservation id and type, …), as requirements. Sorted by key.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub requirements: Vec<Requirement>,
    /// Per hour.
    pub price: MicroUsd,
    /// Whether it can be asked for now (not in the ICE cache, zone served by a subnet).
    pub available: bool,
    /// For reservations: how many instances are left.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reservation_capacity: Option<u32>,
}

/// `karpenter.sh/capacity-type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CapacityType {
    /// `reserved`
    Reserved,
    /// `spot`
    Spot,
    /// `on-demand`
    OnDemand,
}

impl CapacityType {
    /// The label's value.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Reserved => "reserved",
            Self::Spot => "spot",
            Self::OnDemand => "on-demand",
        }
    }

    /// From the label's value.
    pub fn parse(value: &str) -> Option<Self> {
        match value {
            "reserved" => Some(Self::Reserved),
            "spot" => Some(Self::Spot),
            "on-demand" => Some(Self::OnDemand),
            _ => None,
        }
    }
}

/// A machine: a Kubernetes Node, or a NodeClaim that has none yet.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Node {
    /// Sorts and identifies: the NodeClaim's name when there is one, else the Node's name.
    pub key: String,
    /// `metadata.name` of the Node; `None` until it has joined.
    pub name: Option<String>,
    /// The NodeClaim; `None` for machines that are not ours.
    pub claim: Option<ClaimState>,
    /// How far it has come.
    pub phase: NodePhase,
    /// Labels that scheduling sees: the NodeClaim's until registered, then the Node's.
    pub labels: BTreeMap<String, String>,
    /// Taints that scheduling has to respect: known ephemeral and startup taints of a machine that is still initialising are left out.
    pub taints: Vec<Taint>,
    /// What it has: of the Node, or of the NodeClaim until the Node says so. Zero in a claim that is not launched (its requests stand in `allocatable`).
    pub capacity: Resources,
    /// What pods may use, before any pod is subtracted.
    pub allocatable: Resources,
    /// Price per hour of the offering that it runs on, when known.
    pub price: Option<MicroUsd>,
    /// Being deleted, or chosen for deletion by an earlier plan: takes no pods; its pods have to go elsewhere.
    pub deleting: bool,
    /// Pods are expected on it until then, so it is not disrupted.
    pub nominated_until: Option<Timestamp>,
    /// `karpenter.sh/do-not-disrupt: "true"` on the Node or the NodeClaim.
    pub do_not_disrupt: bool,
    /// Of the NodeClaim, else of the Node.
    pub created_at: Timestamp,
    /// The Node's condition Ready is True. Machines that are not count against disruption budgets.
    #[serde(default = "yes", skip_serializing_if = "is_yes")]
    pub ready: bool,
    /// `spec.requirements` of the NodeClaim while the phase is [`NodePhase::Pending`], empty afterwards: until the provider has chosen, these and not
    /// the labels say what the machine will be.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub requirements: Vec<Requirement>,
}

fn yes() -> bool {
    true
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde calls")]
fn is_yes(value: &bool) -> bool {
    *value
}

/// How far a machine has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum NodePhase {
    /// The NodeClaim exists; no instance is known.
    Pending,
    /// The instance exists, no Node yet.
    Launched,
    /// The Node has joined, is not ready for pods yet.
    Registered,
    /// Ready once; also every machine that is not ours.
    Initialized,
}

/// What the NodeClaim of a machine says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClaimState {
    /// `metadata.name`.
    pub name: String,
    /// `metadata.uid`.
    pub uid: String,
    /// Label `karpenter.sh/nodepool`.
    pub node_pool: Option<String>,
    /// `status.providerID`.
    pub provider_id: Option<String>,
    /// Reason of the condition Drifted when True, e.g. `NodePoolDrifted`, and since when.
    pub drifted: Option<(String, Timestamp)>,
    /// Since when the condition Consolidatable is True.
    pub consolidatable: Option<Timestamp>,
    /// When its `expireAfter` ends; `None` is never.
    pub expires_at: Option<Timestamp>,
    /// `spec.expireAfter`; `None` is never.
    pub expire_after: Option<SignedDuration>,
    /// Whether `spec.terminationGracePeriod` is set: then pods that block eviction do not block drift.
    pub has_termination_grace_period: bool,
}

/// Everything about a pod that scheduling can see. Pods with equal shapes are planned together.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodShape {
    /// Namespace: selectors of other pods see it.
    pub namespace: String,
    /// Labels that any selector could see. Builders leave out what no selector in the cluster uses, if they know.
    pub labels: BTreeMap<String, String>,
    /// Effective requests as kube-scheduler counts them (init containers, sidecars, overhead, pod-level); `pods` is 1.
    pub requests: Resources,
    /// `spec.nodeSelector`, keys normalised.
    pub node_selector: BTreeMap<String, String>,
    /// Required node affinity: one of the terms must hold, each a conjunction. Empty is no constraint.
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
    /// Where the pod's volumes can be attached: alternatives, each a conjunction. Empty is anywhere.
    pub volume_topology: Vec<Vec<Requirement>>,
    /// Names of resource claims (DRA).
    pub resource_claims: Vec<String>,
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
    /// Anti-affinity.
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
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "independent facts about a pod, as the API has them"
)]
#[serde(rename_all = "camelCase")]
pub struct Pod {
    /// `metadata.namespace`.
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
    /// `metadata.uid`.
    pub uid: String,
    /// Its shape.
    pub shape: ShapeId,
    /// Where it is.
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
    /// Owned by a StatefulSet: its successor comes only after it has gone, so its place is planned while it still terminates.
    pub stateful: bool,
    /// Has a deletion timestamp.
    pub terminating: bool,
    /// What forbids its eviction now, if anything.
    pub eviction: Eviction,
    /// Why no machine can be planned for it, in Karpenter's words, where the builder knows and the shape can't say it: a PersistentVolumeClaim that is
    /// missing or not bindable, `matchFields` in its node affinity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// Where a pod is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Placement {
    /// Marked unschedulable by kube-scheduler, not preempting anything: the operator may launch for it.
    Unschedulable,
    /// Not bound, and not (yet) the operator's business (gated, not seen by the scheduler, nominated by preemption).
    Waiting,
    /// Bound to a machine.
    Bound(NodeId),
}

/// Whether a pod may be evicted by a voluntary disruption.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Eviction {
    /// Yes.
    Allowed,
    /// `karpenter.sh/do-not-disrupt` is in force on it.
    DoNotDisrupt,
    /// A PodDisruptionBudget allows no disruption now (name), or more than one PDB selects the pod.
    BlockedByPdb(String),
    /// Its PodDisruptionBudget never allows one (name).
    FullyBlockedByPdb(String),
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
