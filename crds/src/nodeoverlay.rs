//! `NodeOverlay` (`karpenter.sh/v1alpha1`): what an administrator knows better than the provider about prices and capacity.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::conditions::Condition;
use crate::quantity::ResourceList;
use crate::requirement::{Operator, Requirement};

/// What a NodeOverlay says.
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
    doc = "NodeOverlay changes prices and capacity of instance types, as decisions see them."
)]
#[serde(rename_all = "camelCase")]
pub struct NodeOverlaySpec {
    /// Resources that the machines have besides what the provider says, or instead of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity: Option<ResourceList>,
    /// The price per hour in dollars, instead of the provider's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub price: Option<String>,
    /// How much higher or lower the price is: in dollars (`+0.1`, `-0.1`) or as a share (`+10%`, `-15%`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub price_adjustment: Option<String>,
    /// The NodePools, instance types and offerings that it is about.
    pub requirements: Vec<OverlayRequirement>,
    /// Of two overlays that say something about the same price or resource the heavier one counts; absent counts as 0.
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
    /// Values: at least one for `In` and `NotIn`, exactly one integer for `Gt`, `Lt`, `Gte` and `Lte`, none for `Exists` and `DoesNotExist`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<String>,
}

impl From<OverlayRequirement> for Requirement {
    fn from(OverlayRequirement { key, operator, values }: OverlayRequirement) -> Self {
        Self { key, operator, values, min_values: None }
    }
}

/// What was observed about a NodeOverlay.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NodeOverlayStatus {
    /// Conditions: `ValidationSucceeded` feeds `Ready`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}
