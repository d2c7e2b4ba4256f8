//! Taints, as the core API spells them.

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::text_enum::text_enum;
use crate::timestamp::Timestamp;

text_enum! {
    /// What a taint does to pods that do not tolerate it.
    pub enum TaintEffect {
        /// New pods are not scheduled here.
        NoSchedule = "NoSchedule",
        /// The scheduler avoids the node when it can.
        PreferNoSchedule = "PreferNoSchedule",
        /// New pods are not scheduled here and running pods are evicted.
        NoExecute = "NoExecute",
    }
}

/// A taint of a node.
#[derive(
    Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "camelCase")]
pub struct Taint {
    /// Key, a qualified name.
    pub key: String,
    /// Value; may be absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// Effect on pods that do not tolerate the taint.
    pub effect: TaintEffect,
    /// Time at which the taint was added; only meaningful on a node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_added: Option<Timestamp>,
}

impl Taint {
    /// A taint without a value.
    pub fn new(key: impl Into<String>, effect: TaintEffect) -> Self {
        Self { key: key.into(), value: None, effect, time_added: None }
    }

    /// The value, where absent and empty are the same.
    pub fn value(&self) -> &str {
        self.value.as_deref().unwrap_or_default()
    }

    /// Whether both are the same taint to the API server: same key and same effect.
    pub fn matches(&self, other: &Self) -> bool {
        self.key == other.key && self.effect == other.effect
    }
}

impl From<Taint> for core::Taint {
    fn from(taint: Taint) -> Self {
        Self {
            key: taint.key,
            value: taint.value,
            effect: taint.effect.as_str().to_owned(),
            time_added: taint.time_added.map(|time| Time(time.0)),
        }
    }
}

/// Taints of a node always have one of the three effects; anything else is refused.
impl TryFrom<core::Taint> for Taint {
    type Error = crate::text_enum::UnknownText;

    fn try_from(taint: core::Taint) -> Result<Self, Self::Error> {
        Ok(Self {
            key: taint.key,
            value: taint.value,
            effect: taint.effect.parse()?,
            time_added: taint.time_added.map(|time| Timestamp(time.0)),
        })
    }
}
