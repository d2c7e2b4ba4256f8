//! `NodeClaim` (`karpenter.sh/v1`): the request for one machine and what became of it.

use std::sync::Arc;

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::conditions::Condition;
use crate::duration::{Duration, NillableDuration};
use crate::nodepool::{NodeClassReference, default_expire_after};
use crate::quantity::ResourceList;
use crate::requirement::Requirement;
use crate::taint::Taint;
use crate::timestamp::Timestamp;

/// Requested node. It is immutable.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "karpenter.sh",
    version = "v1",
    kind = "NodeClaim",
    plural = "nodeclaims",
    category = "karpenter",
    status = "NodeClaimStatus",
    derive = "PartialEq",
    doc = "NodeClaim is the request for one node, and its state."
)]
#[serde(rename_all = "camelCase")]
pub struct NodeClaimSpec {
    /// Age at which the node is replaced, or `Never`.
    #[serde(default = "default_expire_after")]
    pub expire_after: NillableDuration,
    /// The NodeClass that holds the settings of the cloud provider.
    pub node_class_ref: NodeClassReference,
    /// Requirements on the labels of the node.
    pub requirements: Arc<[Requirement]>,
    /// Resources that the node must offer.
    #[serde(default, skip_serializing_if = "ResourceRequirements::is_empty")]
    pub resources: ResourceRequirements,
    /// Taints that another component removes once the node is ready for pods.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub startup_taints: Vec<Taint>,
    /// Taints that stay on the node.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub taints: Vec<Taint>,
    /// Limit on the drain of the node, after which its remaining pods are deleted. Absent sets no
    /// limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub termination_grace_period: Option<Duration>,
}

/// What a node must have room for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ResourceRequirements {
    /// Minimum of each resource that the node must offer to pods.
    #[serde(default, skip_serializing_if = "ResourceList::is_empty")]
    pub requests: Arc<ResourceList>,
}

/// Observed state of the node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeClaimStatus {
    /// Resources available to pods.
    #[serde(default, skip_serializing_if = "ResourceList::is_empty")]
    pub allocatable: Arc<ResourceList>,
    /// Total resources of the node.
    #[serde(default, skip_serializing_if = "ResourceList::is_empty")]
    pub capacity: Arc<ResourceList>,
    /// Conditions: `Launched`, `Registered` and `Initialized` feed `Ready`; the others stand for
    /// themselves.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// ID of the image that the instance was launched from.
    #[serde(default, rename = "imageID", skip_serializing_if = "Option::is_none")]
    pub image_id: Option<String>,
    /// Time at which a pod was last added to the node or removed from it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_pod_event_time: Option<Timestamp>,
    /// Name of the Node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_name: Option<String>,
    /// ID of the instance at the cloud provider, such as
    /// `aws:///eu-central-1a/i-0123456789abcdef0`.
    #[serde(default, rename = "providerID", skip_serializing_if = "Option::is_none")]
    pub provider_id: Option<String>,
}

impl ResourceRequirements {
    fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }
}

impl Default for NodeClaimSpec {
    fn default() -> Self {
        Self {
            expire_after: default_expire_after(),
            node_class_ref: NodeClassReference::default(),
            requirements: Arc::default(),
            resources: ResourceRequirements::default(),
            startup_taints: Vec::new(),
            taints: Vec::new(),
            termination_grace_period: None,
        }
    }
}

impl NodeClaim {
    /// The instance that runs it, once it is launched; none or empty before.
    pub fn provider_id(&self) -> Option<&str> {
        self.status.as_ref()?.provider_id.as_deref().filter(|id| !id.is_empty())
    }

    /// The node that it became; none or empty before registration.
    pub fn node_name(&self) -> Option<&str> {
        self.status.as_ref()?.node_name.as_deref().filter(|name| !name.is_empty())
    }
}
