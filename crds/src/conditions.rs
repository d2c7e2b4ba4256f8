//! Status conditions.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::text_enum::text_enum;
use crate::timestamp::Timestamp;

text_enum! {
    /// Whether a condition holds.
    pub enum ConditionStatus {
        /// It holds.
        True = "True",
        /// It does not hold.
        False = "False",
        /// Not known (yet).
        Unknown = "Unknown",
    }
}

/// One observation about an object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// When `status` changed last.
    pub last_transition_time: Timestamp,
    /// What was found, for people.
    #[serde(default)]
    pub message: String,
    /// The `metadata.generation` that this observation is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Why, in one word, for programs.
    #[serde(default)]
    pub reason: String,
    /// Whether the condition holds.
    pub status: ConditionStatus,
    /// What the condition is about.
    #[serde(rename = "type")]
    pub type_: String,
}

/// The condition that sums up the others.
pub const READY: &str = "Ready";
