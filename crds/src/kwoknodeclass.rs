//! `KWOKNodeClass` (`karpenter.kwok.sh/v1alpha1`): settings of the provider that only pretends to
//! launch machines.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::conditions::Condition;
use crate::duration::Duration;

/// Settings of simulated nodes.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "karpenter.kwok.sh",
    version = "v1alpha1",
    kind = "KWOKNodeClass",
    plural = "kwoknodeclasses",
    shortname = "kwoknc",
    shortname = "kwokncs",
    category = "karpenter",
    status = "KWOKNodeClassStatus",
    derive = "PartialEq",
    derive = "Default",
    doc = "KWOKNodeClass holds the settings of the provider kwok, which creates simulated nodes."
)]
#[serde(rename_all = "camelCase")]
pub struct KWOKNodeClassSpec {
    /// Time from the launch of a node until it registers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_registration_delay: Option<Duration>,
}

/// Observed state of the KWOKNodeClass.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct KWOKNodeClassStatus {
    /// Conditions: only `Ready`, which the API server presets to `True`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}
