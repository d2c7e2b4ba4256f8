//! `CapacityBuffer` (`autoscaling.x-k8s.io/v1beta1`): room that is kept free for pods to come. The API is SIG Autoscaling's, shared with other autoscalers.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::conditions::Condition;
use crate::quantity::ResourceList;

/// The provisioning strategy that means machines which run and are empty.
pub const ACTIVE_CAPACITY: &str = "buffer.x-k8s.io/active-capacity";

/// How much room is kept free, and for what pods.
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
    doc = "CapacityBuffer keeps room free for pods to come."
)]
#[serde(rename_all = "camelCase")]
pub struct CapacityBufferSpec {
    /// What all pods of the buffer may request together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<ResourceList>,
    /// Room for so many hundredths of the pods that the workload of `scalableRef` has, rounded up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub percentage: Option<i32>,
    /// The PodTemplate, in the buffer's namespace, of the pods that room is kept for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_template_ref: Option<LocalReference>,
    /// How the room is kept. Tenon knows `buffer.x-k8s.io/active-capacity` and leaves all other buffers alone.
    #[serde(default = "active_capacity")]
    pub provisioning_strategy: Option<String>,
    /// Room for so many pods. With `percentage` the larger of both counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
    /// The workload, in the buffer's namespace, for whose pods room is kept.
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
    /// Its name.
    pub name: String,
}

/// A workload in the same namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ScalableReference {
    /// Its API group; empty is `apps`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub api_group: String,
    /// Its kind.
    pub kind: String,
    /// Its name.
    pub name: String,
}

/// What became of a CapacityBuffer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CapacityBufferStatus {
    /// Conditions: `ReadyForProvisioning`, `Provisioning` and `LimitedByQuotas`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// The generation of the PodTemplate that the room is computed from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_template_generation: Option<i64>,
    /// The PodTemplate that the room is computed from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_template_ref: Option<LocalReference>,
    /// The strategy by which the room is kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provisioning_strategy: Option<String>,
    /// Room is kept for so many pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
}
