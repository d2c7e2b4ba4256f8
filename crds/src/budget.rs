//! Disruption budgets: how many nodes of a pool may be disrupted at once, for which reasons, and when.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::duration::Duration;
use crate::text_enum::text_enum;

text_enum! {
    /// Why a node is disrupted, as far as budgets distinguish.
    pub enum DisruptionReason {
        /// Its pods fit elsewhere or on a cheaper node.
        Underutilized = "Underutilized",
        /// It runs nothing that counts.
        Empty = "Empty",
        /// It no longer matches its NodePool or its NodeClass.
        Drifted = "Drifted",
        /// It is broken and is repaired.
        Unhealthy = "Unhealthy",
    }
}

/// The most nodes of a pool that may be disrupted at once, while the budget is active.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Budget {
    /// How long the budget is active from each time of `schedule` on; hours and minutes only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration: Option<Duration>,
    /// A count of nodes, or a percentage of the pool's nodes that is rounded up. `0` forbids disruption.
    #[serde(default = "Budget::default_nodes")]
    pub nodes: String,
    /// Reasons that the budget limits; absent means all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reasons: Option<Vec<DisruptionReason>>,
    /// When the budget becomes active: five cron fields or a nickname such as `@daily`, in UTC. Absent means always.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedule: Option<String>,
}

impl Budget {
    fn default_nodes() -> String {
        "10%".to_owned()
    }

    /// An always active budget for all reasons.
    pub fn always(nodes: impl Into<String>) -> Self {
        Self { duration: None, nodes: nodes.into(), reasons: None, schedule: None }
    }
}

impl Default for Budget {
    /// 10 % of the nodes, always, for all reasons.
    fn default() -> Self {
        Self::always(Self::default_nodes())
    }
}
