//! The parts of Kubernetes' own objects that the operator reads, and nothing else: with 100,000
//! pods every field that is not decoded counts.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Affinity, Taint, Toleration, TopologySpreadConstraint};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta, OwnerReference};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::Resource;
use serde::{Deserialize, Serialize};
use tenon_crds::ResourceList;

/// Implements [`Resource`] for a wire type, under the coordinates of the real one.
macro_rules! wire {
    ($type:ident, $scope:ty, $group:literal, $version:literal, $plural:literal) => {
        impl Resource for $type {
            type DynamicType = ();
            type Scope = $scope;

            fn kind((): &()) -> Cow<'_, str> {
                stringify!($type).into()
            }

            fn group((): &()) -> Cow<'_, str> {
                $group.into()
            }

            fn version((): &()) -> Cow<'_, str> {
                $version.into()
            }

            fn plural((): &()) -> Cow<'_, str> {
                $plural.into()
            }

            fn meta(&self) -> &ObjectMeta {
                &self.metadata
            }

            fn meta_mut(&mut self) -> &mut ObjectMeta {
                &mut self.metadata
            }
        }
    };
}

mod device;
mod storage;
mod workload;

pub use device::*;
pub use storage::*;
pub use workload::*;

type Cluster = k8s_openapi::ClusterResourceScope;
type Namespaced = k8s_openapi::NamespaceResourceScope;

wire!(Node, Cluster, "", "v1", "nodes");
wire!(Pod, Namespaced, "", "v1", "pods");
wire!(Namespace, Cluster, "", "v1", "namespaces");
wire!(DaemonSet, Namespaced, "apps", "v1", "daemonsets");
wire!(PodDisruptionBudget, Namespaced, "policy", "v1", "poddisruptionbudgets");

/// A Node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Node {
    /// Metadata.
    pub metadata: ObjectMeta,
    /// What is wanted of it.
    pub spec: NodeSpec,
    /// What it says about itself.
    pub status: NodeStatus,
}

/// `spec` of a Node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeSpec {
    /// `providerID`.
    #[serde(rename = "providerID", skip_serializing_if = "Option::is_none")]
    pub provider_id: Option<String>,
    /// `taints`.
    pub taints: Vec<Taint>,
    /// Cordoned.
    pub unschedulable: bool,
}

/// `status` of a Node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct NodeStatus {
    /// `capacity`.
    pub capacity: Arc<ResourceList>,
    /// `allocatable`.
    pub allocatable: Arc<ResourceList>,
    /// `conditions`.
    pub conditions: Vec<Condition>,
    /// `nodeInfo`.
    #[serde(rename = "nodeInfo")]
    pub node_info: NodeInfo,
}

/// `status.nodeInfo` of a Node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct NodeInfo {
    /// `bootID`: another one each time that the machine starts.
    #[serde(rename = "bootID")]
    pub boot_id: String,
}

/// A condition of a Node or a Pod.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Condition {
    /// What it is about.
    #[serde(rename = "type")]
    pub type_: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// Why.
    pub reason: Option<String>,
    /// Since when.
    pub last_transition_time: Option<Timestamp>,
}

/// A Pod.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Pod {
    /// Metadata.
    pub metadata: ObjectMeta,
    /// `spec`, as far as it is read.
    pub spec: PodSpec,
    /// What is.
    pub status: PodStatus,
}

/// `spec` of a Pod.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodSpec {
    /// The Node that it is bound to.
    pub node_name: Option<String>,
    /// `nodeSelector`.
    pub node_selector: BTreeMap<String, String>,
    /// `affinity`.
    pub affinity: Option<Affinity>,
    /// `tolerations`.
    pub tolerations: Vec<Toleration>,
    /// `topologySpreadConstraints`.
    pub topology_spread_constraints: Vec<TopologySpreadConstraint>,
    /// `containers`.
    pub containers: Vec<Container>,
    /// `initContainers`.
    pub init_containers: Vec<Container>,
    /// `overhead`.
    pub overhead: ResourceList,
    /// Resources of the pod as a whole.
    pub resources: Option<ContainerResources>,
    /// `schedulerName`.
    pub scheduler_name: Option<String>,
    /// `priority`.
    pub priority: i32,
    /// `priorityClassName`.
    pub priority_class_name: Option<String>,
    /// `terminationGracePeriodSeconds`.
    pub termination_grace_period_seconds: Option<i64>,
    /// `volumes`.
    pub volumes: Vec<Volume>,
    /// `resourceClaims` (DRA).
    pub resource_claims: Vec<PodResourceClaim>,
    /// `schedulingGates`: while there are any, kube-scheduler does not look at the pod.
    pub scheduling_gates: Vec<SchedulingGate>,
}

/// A scheduling gate of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SchedulingGate {
    /// Such as `example.com/quota`.
    pub name: String,
}

/// As far as the operator reads it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Container {
    /// `resources`.
    pub resources: ContainerResources,
    /// `ports`.
    pub ports: Vec<Port>,
    /// `Always` makes an init container a sidecar.
    pub restart_policy: Option<String>,
}

/// `resources` of a container or a pod.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ContainerResources {
    /// `requests`.
    pub requests: ResourceList,
    /// `limits`.
    pub limits: ResourceList,
}

/// A port of a container.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Port {
    /// `hostPort`; 0 is none.
    pub host_port: u16,
    /// `hostIP`.
    #[serde(rename = "hostIP")]
    pub host_ip: Option<String>,
    /// `protocol`.
    pub protocol: Option<String>,
}

/// As far as the operator reads it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Volume {
    /// Its name in the pod.
    pub name: String,
    /// A claim by name.
    pub persistent_volume_claim: Option<ClaimName>,
    /// A claim of the pod's own, called `<pod>-<volume>`.
    pub ephemeral: Option<Present>,
}

/// Name of a PersistentVolumeClaim.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClaimName {
    /// `claimName`.
    pub claim_name: String,
}

/// A resource claim (DRA) of a pod.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodResourceClaim {
    /// Its name in the pod.
    pub name: String,
    /// A claim by name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource_claim_name: Option<String>,
    /// A claim of the pod's own that is made from this template.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource_claim_template_name: Option<String>,
}

/// What was made of a resource claim of a pod.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodResourceClaimStatus {
    /// Its name in the pod.
    pub name: String,
    /// The claim; `None` when none was needed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource_claim_name: Option<String>,
}

/// `status` of a Pod.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodStatus {
    /// `phase`.
    pub phase: Option<String>,
    /// `conditions`.
    pub conditions: Vec<Condition>,
    /// The Node that it is expected on: kube-scheduler writes it after a preemption, and others may
    /// where they make room.
    pub nominated_node_name: Option<String>,
    /// `startTime`.
    pub start_time: Option<Timestamp>,
    /// `resourceClaimStatuses`.
    pub resource_claim_statuses: Vec<PodResourceClaimStatus>,
}

/// A Namespace.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Namespace {
    /// Metadata.
    pub metadata: ObjectMeta,
}

/// A DaemonSet.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct DaemonSet {
    /// Metadata.
    pub metadata: ObjectMeta,
    /// `spec`, as far as it is read.
    pub spec: DaemonSetSpec,
}

/// `spec` of a DaemonSet.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct DaemonSetSpec {
    /// `spec.template`: the pods of new Nodes are planned from it.
    pub template: PodTemplateSpec,
}

/// The pods of something.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PodTemplateSpec {
    /// Labels and annotations.
    pub metadata: ObjectMeta,
    /// `spec`, as far as it is read.
    pub spec: PodSpec,
}

/// A PodDisruptionBudget.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PodDisruptionBudget {
    /// Metadata.
    pub metadata: ObjectMeta,
    /// `spec`, as far as it is read.
    pub spec: PodDisruptionBudgetSpec,
    /// What is.
    pub status: PodDisruptionBudgetStatus,
}

/// `spec` of a PodDisruptionBudget.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodDisruptionBudgetSpec {
    /// The pods that it protects.
    pub selector: Option<LabelSelector>,
    /// `maxUnavailable`.
    pub max_unavailable: Option<IntOrString>,
    /// `minAvailable`.
    pub min_available: Option<IntOrString>,
    /// `AlwaysAllow` or `IfHealthyBudget`.
    pub unhealthy_pod_eviction_policy: Option<String>,
}

/// `status` of a PodDisruptionBudget.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodDisruptionBudgetStatus {
    /// How many more pods may be evicted now.
    pub disruptions_allowed: i32,
}

impl Node {
    /// `metadata.name`; empty if it is absent, which the API server never sends.
    pub fn name(&self) -> &str {
        self.metadata.name.as_deref().unwrap_or_default()
    }

    /// A label's value.
    pub fn label(&self, key: &str) -> Option<&str> {
        self.metadata.labels.as_ref()?.get(key).map(String::as_str)
    }

    /// An annotation's value.
    pub fn annotation(&self, key: &str) -> Option<&str> {
        self.metadata.annotations.as_ref()?.get(key).map(String::as_str)
    }

    /// Its machine; `None` and empty are the same.
    pub fn provider_id(&self) -> Option<&str> {
        self.spec.provider_id.as_deref().filter(|id| !id.is_empty())
    }

    /// That of a type, if the pod has it.
    pub fn condition(&self, type_: &str) -> Option<&Condition> {
        self.status.conditions.iter().find(|condition| condition.type_ == type_)
    }

    /// Its condition Ready is True.
    pub fn is_ready(&self) -> bool {
        self.condition("Ready").is_some_and(|ready| ready.status == "True")
    }

    /// Whether it has a taint with this key and effect, whatever its value.
    pub fn has_taint(&self, key: &str, effect: &str) -> bool {
        self.spec.taints.iter().any(|taint| taint.key == key && taint.effect == effect)
    }

    /// Has a deletion timestamp.
    pub fn is_deleting(&self) -> bool {
        self.metadata.deletion_timestamp.is_some()
    }
}

/// The owner that controls an object.
pub fn controller(metadata: &ObjectMeta) -> Option<&OwnerReference> {
    metadata.owner_references.iter().flatten().find(|owner| owner.controller == Some(true))
}

/// Since when an object exists; never written objects have no such time.
pub fn created_at(metadata: &ObjectMeta) -> Timestamp {
    metadata.creation_timestamp.as_ref().map_or(Timestamp::UNIX_EPOCH, |time| time.0)
}
