//! `CapacityBuffer` (`autoscaling.x-k8s.io/v1beta1`): room that is kept free for pods to come. The
//! API is SIG Autoscaling's, shared with other autoscalers.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::conditions::Condition;
use crate::quantity::ResourceList;

/// The provisioning strategy that means machines which run and are empty.
pub const ACTIVE_CAPACITY: &str = "buffer.x-k8s.io/active-capacity";

/// Size of the buffer, and the pods that it reserves room for.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "autoscaling.x-k8s.io",
    version = "v1beta1",
    kind = "CapacityBuffer",
    plural = "capacitybuffers",
    shortname = "cb",
    category = "autoscaling",
    namespaced,
    status = "CapacityBufferStatus",
    derive = "PartialEq",
    derive = "Default",
    doc = "CapacityBuffer reserves room for future pods."
)]
#[serde(rename_all = "camelCase")]
pub struct CapacityBufferSpec {
    /// Limit on the total requests of the pods of the buffer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<ResourceList>,
    /// Size in percent of the pods of the workload in `scalableRef`, rounded up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub percentage: Option<i32>,
    /// PodTemplate, in the buffer's namespace, of the pods to reserve room for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_template_ref: Option<LocalReference>,
    /// Strategy by which the room is reserved. Tenon ignores buffers with other strategies than
    /// `buffer.x-k8s.io/active-capacity`.
    #[serde(default = "active_capacity")]
    pub provisioning_strategy: Option<String>,
    /// Number of pods to reserve room for. With `percentage`, the larger number counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
    /// Workload, in the buffer's namespace, for whose pods room is reserved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scalable_ref: Option<ScalableReference>,
}

#[expect(clippy::unnecessary_wraps, reason = "the default of an optional field")]
fn active_capacity() -> Option<String> {
    Some(ACTIVE_CAPACITY.to_owned())
}

/// An object in the same namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LocalReference {
    /// Name of the object.
    pub name: String,
}

/// A workload in the same namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ScalableReference {
    /// API group of the workload; empty means `apps`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub api_group: String,
    /// Kind of the workload.
    pub kind: String,
    /// Name of the object.
    pub name: String,
}

/// Observed state of the CapacityBuffer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CapacityBufferStatus {
    /// Conditions: `ReadyForProvisioning`, `Provisioning` and `LimitedByQuotas`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// Generation of the PodTemplate from which the size is computed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_template_generation: Option<i64>,
    /// PodTemplate from which the size is computed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_template_ref: Option<LocalReference>,
    /// Strategy by which the room is reserved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provisioning_strategy: Option<String>,
    /// Number of pods that room is reserved for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
}
