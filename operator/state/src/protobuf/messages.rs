//! The messages, as far as they are read. Field numbers are Kubernetes'. A field that Kubernetes'
//! own types hold as a value is written even when it is empty, one that they hold as a pointer only
//! when it is set: the former are plain here, the latter optional.

use std::collections::BTreeMap;

use bytes::Bytes;
use prost::Message;

/// What is around every object.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Unknown {
    #[prost(bytes = "bytes", tag = "2")]
    pub(super) raw: Bytes,
}

/// Of a list of any kind.
#[derive(Clone, PartialEq, Message)]
pub(super) struct ListMeta {
    #[prost(string, tag = "2")]
    pub(super) resource_version: String,
    #[prost(string, tag = "3")]
    pub(super) continue_token: String,
}

/// What a request is refused with.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Status {
    #[prost(string, tag = "3")]
    pub(super) message: String,
    #[prost(string, tag = "4")]
    pub(super) reason: String,
    #[prost(int32, tag = "6")]
    pub(super) code: i32,
}

/// Of any object.
#[derive(Clone, PartialEq, Message)]
pub(super) struct MetadataOnly {
    #[prost(message, optional, tag = "1")]
    pub(super) metadata: Option<ObjectMeta>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ObjectMeta {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(string, tag = "2")]
    pub(super) generate_name: String,
    #[prost(string, tag = "3")]
    pub(super) namespace: String,
    #[prost(string, tag = "5")]
    pub(super) uid: String,
    #[prost(string, tag = "6")]
    pub(super) resource_version: String,
    #[prost(int64, tag = "7")]
    pub(super) generation: i64,
    #[prost(message, optional, tag = "8")]
    pub(super) creation_timestamp: Option<Time>,
    #[prost(message, optional, tag = "9")]
    pub(super) deletion_timestamp: Option<Time>,
    #[prost(int64, optional, tag = "10")]
    pub(super) deletion_grace_period_seconds: Option<i64>,
    #[prost(btree_map = "string, string", tag = "11")]
    pub(super) labels: BTreeMap<String, String>,
    #[prost(btree_map = "string, string", tag = "12")]
    pub(super) annotations: BTreeMap<String, String>,
    #[prost(message, repeated, tag = "13")]
    pub(super) owner_references: Vec<OwnerReference>,
    #[prost(string, repeated, tag = "14")]
    pub(super) finalizers: Vec<String>,
    #[prost(message, repeated, tag = "17")]
    pub(super) managed_fields: Vec<ManagedFieldsEntry>,
}

/// What is managed, which is as large as the rest of the object, is skipped.
#[derive(Clone, PartialEq, Message)]
pub(super) struct ManagedFieldsEntry {
    #[prost(string, tag = "1")]
    pub(super) manager: String,
    #[prost(string, tag = "2")]
    pub(super) operation: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct OwnerReference {
    #[prost(string, tag = "1")]
    pub(super) kind: String,
    #[prost(string, tag = "3")]
    pub(super) name: String,
    #[prost(string, tag = "4")]
    pub(super) uid: String,
    #[prost(string, tag = "5")]
    pub(super) api_version: String,
    #[prost(bool, optional, tag = "6")]
    pub(super) controller: Option<bool>,
    #[prost(bool, optional, tag = "7")]
    pub(super) block_owner_deletion: Option<bool>,
}

/// Seconds since 1970; Kubernetes writes no fractions.
#[derive(Clone, Copy, PartialEq, Message)]
pub(super) struct Time {
    #[prost(int64, tag = "1")]
    pub(super) seconds: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct LabelSelector {
    #[prost(btree_map = "string, string", tag = "1")]
    pub(super) match_labels: BTreeMap<String, String>,
    #[prost(message, repeated, tag = "2")]
    pub(super) match_expressions: Vec<Requirement>,
}

/// Of a label selector or a node selector.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Requirement {
    #[prost(string, tag = "1")]
    pub(super) key: String,
    #[prost(string, tag = "2")]
    pub(super) operator: String,
    #[prost(string, repeated, tag = "3")]
    pub(super) values: Vec<String>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Quantity {
    #[prost(string, tag = "1")]
    pub(super) string: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Pod {
    #[prost(message, optional, tag = "1")]
    pub(super) metadata: Option<ObjectMeta>,
    #[prost(message, optional, tag = "2")]
    pub(super) spec: Option<PodSpec>,
    #[prost(message, optional, tag = "3")]
    pub(super) status: Option<PodStatus>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct PodSpec {
    #[prost(message, repeated, tag = "1")]
    pub(super) volumes: Vec<Volume>,
    #[prost(message, repeated, tag = "2")]
    pub(super) containers: Vec<Container>,
    #[prost(int64, optional, tag = "4")]
    pub(super) termination_grace_period_seconds: Option<i64>,
    #[prost(btree_map = "string, string", tag = "7")]
    pub(super) node_selector: BTreeMap<String, String>,
    #[prost(string, tag = "10")]
    pub(super) node_name: String,
    #[prost(message, optional, tag = "18")]
    pub(super) affinity: Option<Affinity>,
    #[prost(string, tag = "19")]
    pub(super) scheduler_name: String,
    #[prost(message, repeated, tag = "20")]
    pub(super) init_containers: Vec<Container>,
    #[prost(message, repeated, tag = "22")]
    pub(super) tolerations: Vec<Toleration>,
    #[prost(string, tag = "24")]
    pub(super) priority_class_name: String,
    #[prost(int32, optional, tag = "25")]
    pub(super) priority: Option<i32>,
    #[prost(btree_map = "string, message", tag = "32")]
    pub(super) overhead: BTreeMap<String, Quantity>,
    #[prost(message, repeated, tag = "33")]
    pub(super) topology_spread_constraints: Vec<TopologySpreadConstraint>,
    #[prost(message, repeated, tag = "38")]
    pub(super) scheduling_gates: Vec<SchedulingGate>,
    #[prost(message, repeated, tag = "39")]
    pub(super) resource_claims: Vec<PodResourceClaim>,
    #[prost(message, optional, tag = "40")]
    pub(super) resources: Option<Resources>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct SchedulingGate {
    #[prost(string, tag = "1")]
    pub(super) name: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct PodResourceClaim {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(string, optional, tag = "3")]
    pub(super) resource_claim_name: Option<String>,
    #[prost(string, optional, tag = "4")]
    pub(super) resource_claim_template_name: Option<String>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Container {
    #[prost(message, repeated, tag = "6")]
    pub(super) ports: Vec<Port>,
    #[prost(message, optional, tag = "8")]
    pub(super) resources: Option<Resources>,
    #[prost(string, optional, tag = "24")]
    pub(super) restart_policy: Option<String>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Resources {
    #[prost(btree_map = "string, message", tag = "1")]
    pub(super) limits: BTreeMap<String, Quantity>,
    #[prost(btree_map = "string, message", tag = "2")]
    pub(super) requests: BTreeMap<String, Quantity>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Port {
    #[prost(int32, tag = "2")]
    pub(super) host_port: i32,
    #[prost(string, tag = "4")]
    pub(super) protocol: String,
    #[prost(string, tag = "5")]
    pub(super) host_ip: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Volume {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(message, optional, tag = "2")]
    pub(super) source: Option<VolumeSource>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct VolumeSource {
    #[prost(message, optional, tag = "10")]
    pub(super) persistent_volume_claim: Option<ClaimName>,
    /// Only its presence counts.
    #[prost(message, optional, tag = "29")]
    pub(super) ephemeral: Option<()>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ClaimName {
    #[prost(string, tag = "1")]
    pub(super) claim_name: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Affinity {
    #[prost(message, optional, tag = "1")]
    pub(super) node_affinity: Option<NodeAffinity>,
    #[prost(message, optional, tag = "2")]
    pub(super) pod_affinity: Option<PodAffinity>,
    #[prost(message, optional, tag = "3")]
    pub(super) pod_anti_affinity: Option<PodAffinity>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct NodeAffinity {
    #[prost(message, optional, tag = "1")]
    pub(super) required: Option<NodeSelector>,
    #[prost(message, repeated, tag = "2")]
    pub(super) preferred: Vec<PreferredTerm>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct NodeSelector {
    #[prost(message, repeated, tag = "1")]
    pub(super) terms: Vec<NodeSelectorTerm>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct NodeSelectorTerm {
    #[prost(message, repeated, tag = "1")]
    pub(super) match_expressions: Vec<Requirement>,
    #[prost(message, repeated, tag = "2")]
    pub(super) match_fields: Vec<Requirement>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct PreferredTerm {
    #[prost(int32, tag = "1")]
    pub(super) weight: i32,
    #[prost(message, optional, tag = "2")]
    pub(super) preference: Option<NodeSelectorTerm>,
}

/// Affinity or anti-affinity.
#[derive(Clone, PartialEq, Message)]
pub(super) struct PodAffinity {
    #[prost(message, repeated, tag = "1")]
    pub(super) required: Vec<PodAffinityTerm>,
    #[prost(message, repeated, tag = "2")]
    pub(super) preferred: Vec<WeightedTerm>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct WeightedTerm {
    #[prost(int32, tag = "1")]
    pub(super) weight: i32,
    #[prost(message, optional, tag = "2")]
    pub(super) term: Option<PodAffinityTerm>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct PodAffinityTerm {
    #[prost(message, optional, tag = "1")]
    pub(super) label_selector: Option<LabelSelector>,
    #[prost(string, repeated, tag = "2")]
    pub(super) namespaces: Vec<String>,
    #[prost(string, tag = "3")]
    pub(super) topology_key: String,
    #[prost(message, optional, tag = "4")]
    pub(super) namespace_selector: Option<LabelSelector>,
    #[prost(string, repeated, tag = "5")]
    pub(super) match_label_keys: Vec<String>,
    #[prost(string, repeated, tag = "6")]
    pub(super) mismatch_label_keys: Vec<String>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Toleration {
    #[prost(string, tag = "1")]
    pub(super) key: String,
    #[prost(string, tag = "2")]
    pub(super) operator: String,
    #[prost(string, tag = "3")]
    pub(super) value: String,
    #[prost(string, tag = "4")]
    pub(super) effect: String,
    #[prost(int64, optional, tag = "5")]
    pub(super) toleration_seconds: Option<i64>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct TopologySpreadConstraint {
    #[prost(int32, tag = "1")]
    pub(super) max_skew: i32,
    #[prost(string, tag = "2")]
    pub(super) topology_key: String,
    #[prost(string, tag = "3")]
    pub(super) when_unsatisfiable: String,
    #[prost(message, optional, tag = "4")]
    pub(super) label_selector: Option<LabelSelector>,
    #[prost(int32, optional, tag = "5")]
    pub(super) min_domains: Option<i32>,
    #[prost(string, optional, tag = "6")]
    pub(super) node_affinity_policy: Option<String>,
    #[prost(string, optional, tag = "7")]
    pub(super) node_taints_policy: Option<String>,
    #[prost(string, repeated, tag = "8")]
    pub(super) match_label_keys: Vec<String>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct PodStatus {
    #[prost(string, tag = "1")]
    pub(super) phase: String,
    #[prost(message, repeated, tag = "2")]
    pub(super) conditions: Vec<Condition>,
    #[prost(message, optional, tag = "7")]
    pub(super) start_time: Option<Time>,
    #[prost(string, tag = "11")]
    pub(super) nominated_node_name: String,
    #[prost(message, repeated, tag = "15")]
    pub(super) resource_claim_statuses: Vec<PodResourceClaimStatus>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct PodResourceClaimStatus {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(string, optional, tag = "2")]
    pub(super) resource_claim_name: Option<String>,
}

/// Those of pods and nodes have the same numbers for these.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Condition {
    #[prost(string, tag = "1")]
    pub(super) type_: String,
    #[prost(string, tag = "2")]
    pub(super) status: String,
    #[prost(message, optional, tag = "4")]
    pub(super) last_transition_time: Option<Time>,
    #[prost(string, tag = "5")]
    pub(super) reason: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Node {
    #[prost(message, optional, tag = "1")]
    pub(super) metadata: Option<ObjectMeta>,
    #[prost(message, optional, tag = "2")]
    pub(super) spec: Option<NodeSpec>,
    #[prost(message, optional, tag = "3")]
    pub(super) status: Option<NodeStatus>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct NodeSpec {
    #[prost(string, tag = "3")]
    pub(super) provider_id: String,
    #[prost(bool, tag = "4")]
    pub(super) unschedulable: bool,
    #[prost(message, repeated, tag = "5")]
    pub(super) taints: Vec<Taint>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Taint {
    #[prost(string, tag = "1")]
    pub(super) key: String,
    #[prost(string, tag = "2")]
    pub(super) value: String,
    #[prost(string, tag = "3")]
    pub(super) effect: String,
    #[prost(message, optional, tag = "4")]
    pub(super) time_added: Option<Time>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct NodeStatus {
    #[prost(btree_map = "string, message", tag = "1")]
    pub(super) capacity: BTreeMap<String, Quantity>,
    #[prost(btree_map = "string, message", tag = "2")]
    pub(super) allocatable: BTreeMap<String, Quantity>,
    #[prost(message, repeated, tag = "4")]
    pub(super) conditions: Vec<Condition>,
    #[prost(message, optional, tag = "7")]
    pub(super) node_info: Option<NodeInfo>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct NodeInfo {
    #[prost(string, tag = "3")]
    pub(super) boot_id: String,
}
