//! `NodeOverlay` (`karpenter.sh/v1alpha1`): what an administrator knows better than the provider
//! about prices and capacity.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::conditions::Condition;
use crate::quantity::ResourceList;
use crate::requirement::{Operator, Requirement};

/// Changes to the prices and capacity of instance types.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "karpenter.sh",
    version = "v1alpha1",
    kind = "NodeOverlay",
    plural = "nodeoverlays",
    shortname = "overlays",
    category = "karpenter",
    status = "NodeOverlayStatus",
    derive = "PartialEq",
    derive = "Default",
    doc = "NodeOverlay changes the prices and capacity of instance types for scheduling."
)]
#[serde(rename_all = "camelCase")]
pub struct NodeOverlaySpec {
    /// Resources of the nodes in addition to the provider's data, or instead of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity: Option<ResourceList>,
    /// The price per hour in dollars, instead of the provider's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub price: Option<String>,
    /// Change of the price: in dollars (`+0.1`, `-0.1`) or in percent (`+10%`, `-15%`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub price_adjustment: Option<String>,
    /// Requirements on the NodePools, instance types and offerings that the overlay applies to.
    pub requirements: Vec<OverlayRequirement>,
    /// Of two overlays that change the same price or resource, the one with the greater weight
    /// applies; absent counts as 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight: Option<i32>,
}

/// A requirement on a label of the nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OverlayRequirement {
    /// Label key.
    pub key: String,
    /// Relation between the label and the values.
    pub operator: Operator,
    /// Values: at least one for `In` and `NotIn`, exactly one integer for `Gt`, `Lt`, `Gte` and
    /// `Lte`, none for `Exists` and `DoesNotExist`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<String>,
}

impl From<OverlayRequirement> for Requirement {
    fn from(OverlayRequirement { key, operator, values }: OverlayRequirement) -> Self {
        Self { key, operator, values, min_values: None }
    }
}

/// Observed state of the NodeOverlay.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NodeOverlayStatus {
    /// Conditions: `ValidationSucceeded` feeds `Ready`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}
